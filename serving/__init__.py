"""Serving: what turns an exported model into an online service. Imports `gnmt_tf`; nothing there imports this."""

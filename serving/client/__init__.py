"""Asks a server of the TF Serving API for translations; needs gRPC, and not TensorFlow."""

"""The TF Serving gRPC API over a directory of exported model versions, from pip packages alone."""

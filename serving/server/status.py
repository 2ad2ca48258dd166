"""What the core of the server raises: a canonical status code with a message, free of any RPC system.

Raised by `model_server` and below; the RPC layer turns it into a status of its own.
"""

import enum


class StatusCode(enum.IntEnum):
    """The canonical error codes, with the numbers that gRPC, TensorFlow and TF Serving share."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """A request that cannot be answered.

    Args:
      code: why, in the terms of the API.
      message: the same for a person, worded as TF Serving words it where it has words for it.
    """

    def __init__(self, code: StatusCode, message: str):
        super().__init__(f"{code.name}: {message}")
        self.code, self.message = code, message

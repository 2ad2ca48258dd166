"""The address that the server binds, checked before anything heavy is loaded."""

import os
import socket

from gnmt_tf.config import UserError


def check_address(host: str, port: int) -> None:
    """Raises UserError when `host` and `port` cannot be bound now."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise UserError(
            f"--host {host}", "a name or address of this machine", str(error.strerror), "Use 127.0.0.1 or 0.0.0.0."
        ) from None
    except OSError as error:
        raise address_error(host, port, os.strerror(error.errno or 0)) from None


def address_error(host: str, port: int, reason: str) -> UserError:
    """The error for an address that cannot be bound for `reason`."""
    return UserError(
        f"--host {host} --port {port}",
        "an address that is free on this machine",
        reason,
        "End the program that uses it, or choose another --port (0 takes any free one).",
    )

"""Where a command's results go: stdout, or a file that appears whole."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from gnmt_tf.config import UserError
from gnmt_tf.text.whole_file import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def open_output(path: str | None, flag: str) -> Iterator[TextIO]:
    """Opens an output for writing text.

    A file takes its name when it is complete, so that a failed command leaves an existing one as it was, and reading
    from the same file is safe. What is no ordinary file (a pipe, a device) is written to directly.

    Args:
      path: the file, or None for stdout.
      flag: that named it, for messages.

    Raises:
      UserError: it cannot be written to, or the disk is full.
    """
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    direct = os.path.exists(path) and not os.path.isfile(path)
    try:
        with open(path, "w", encoding="utf-8", newline="\n") if direct else whole_file(path) as file:
            yield file
    except OSError as error:
        raise unwritable(path, flag, error) from None


def save_figure(figure: Figure, path: str, flag: str) -> None:
    """Writes a figure as PNG; errors as `open_output`."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise unwritable(path, flag, error) from None


def unwritable(path: str, flag: str, error: OSError) -> UserError:
    """What to tell of an output file that cannot be written; `flag` named it."""
    return UserError(
        f"{flag} {path}",
        "a file that can be written to",
        os.strerror(error.errno or 0),
        "Choose another path, mend its permissions or free some space.",
    )

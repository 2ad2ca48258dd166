"""A text file that appears whole or not at all: every file this project writes under a name that others read."""

import contextlib
import os
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[TextIO]:
    """Opens a file for writing UTF-8 text; it takes its name when the block ends without an error.

    Until then, and after an error, what was there before stays as it was, so that a reader of `path` never sees half of
    it, and reading from the same file meanwhile is safe.

    Raises:
      OSError: it cannot be written; nothing is left behind.
    """
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise

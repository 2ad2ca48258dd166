"""Lines of text from files and pipes: where every command's text comes in.

Reads bytes (plain, `.gz` or a pipe); gives strings without their line ends. Text is UTF-8, split at U+000A only, so
that a NEL or U+2028 inside a sentence never shifts the two sides of a corpus against each other.
"""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from gnmt_tf.config import UserError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_GZIP_ADVICE = "Copy or compress the file again; `gzip -t` tells whether it is whole."


def read_lines(path: str) -> Iterator[str]:
    """Streams the lines of a UTF-8 file; a name ending in `.gz` is decompressed.

    A byte-order mark at the start is dropped, one carriage return at the end of a line too. A last line without a line
    end counts as a line.

    Raises:
      UserError: a missing or unreadable file, a directory, damaged gzip data, invalid UTF-8 or a NUL character.
    """
    try:
        compressed = path.endswith(".gz")
        if compressed and os.path.isfile(path) and os.path.getsize(path) == 0:
            raise UserError(path, "gzip data", "an empty file", _GZIP_ADVICE)
        with gzip.open(path, "rb") if compressed else open(path, "rb") as file:
            yield from decode_lines(file, path)
    except OSError as error:
        raise UserError(path, "a readable text file", _reason(error), "Check the path and its permissions.") from None


def decode_lines(binary_stream: IO[bytes] | Iterable[bytes], name: str) -> Iterator[str]:
    """Streams the lines of a binary stream, such as `sys.stdin.buffer`, with the checks of `read_lines`.

    Args:
      binary_stream: yields bytes up to and including each U+000A.
      name: how error messages call the stream.

    Raises:
      UserError: as `read_lines`, naming `name:line`.
    """
    number = 0
    try:
        for number, raw in enumerate(binary_stream, start=1):
            if number == 1 and raw.startswith(_BYTE_ORDER_MARK):
                raw = raw[len(_BYTE_ORDER_MARK) :]
                if not raw:
                    return
            yield _decode(raw, name, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{name}:{number + 1}", "whole gzip data", f"damaged or truncated data ({error})", _GZIP_ADVICE
        ) from None


def _decode(raw: bytes, name: str, number: int) -> str:
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1 and line.startswith(_UTF16_MARKS):
        raise UserError(
            f"{name}:1", "UTF-8 text", "a UTF-16 byte-order mark", "Convert it with `iconv -f UTF-16 -t UTF-8`."
        )
    if b"\0" in line:
        raise UserError(
            f"{name}:{number}",
            "text without NUL characters",
            f"a NUL at byte {line.index(0) + 1} of the line",
            "Remove it, or convert the file to UTF-8 if it is UTF-16 or binary.",
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}:{number}",
            "valid UTF-8",
            f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line ({error.reason})",
            "Convert the file to UTF-8, for instance with `iconv`, or mend that line.",
        ) from None


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)

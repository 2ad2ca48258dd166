"""Translate text with a running server: one line in, one line out, in order.

Reads --input or standard input (UTF-8) and writes --output or standard output. Lines are sent in batches, several at
a time; a line that is typed is translated at once.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING

from absl import flags

if TYPE_CHECKING:
    from gnmt_tf.serving.client.responses import Translation


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string("server", "127.0.0.1:8500", "HOST:PORT of the server.", flag_values=flag_values)
    flags.DEFINE_string("model_name", "gnmt", "Name that the server knows the model by.", flag_values=flag_values)
    flags.DEFINE_string("input", None, "File to translate; standard input by default.", flag_values=flag_values)
    flags.DEFINE_string("output", None, "File to write; standard output by default.", flag_values=flag_values)
    flags.DEFINE_integer("batch_size", 32, "Most lines in a request.", 1, flag_values=flag_values)
    flags.DEFINE_integer("in_flight", 4, "Requests under way at the same time.", 1, flag_values=flag_values)
    flags.DEFINE_float("timeout_seconds", 60.0, "Time for each request.", 0.001, flag_values=flag_values)
    flags.DEFINE_bool("scores", False, "Write each line as score, tab, translation.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Translates the input to its end."""
    import os

    from gnmt_tf.config import UserError

    # gRPC's own log lines on a lost connection would stand beside the one line that says what to do.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from gnmt_tf.serving.client.line_batches import batches_when_idle
        from gnmt_tf.serving.client.translation_client import TranslationClient
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("grpc", "google"):
            raise
        raise UserError(
            "gnmt client", "the packages of the extra `serve`", str(error), "Run `pip install 'gnmt_tf[serve]'`."
        ) from None
    batch_size = flag_values["batch_size"].value
    input_path, output_path = flag_values["input"].value, flag_values["output"].value
    lines = _lines(input_path, output_path)
    with (
        TranslationClient(
            flag_values["server"].value,
            flag_values["model_name"].value,
            flag_values["timeout_seconds"].value,
            batch_size,
            flag_values["in_flight"].value,
        ) as client,
        _output(output_path) as output,
    ):
        _write(client.translate_batches(batches_when_idle(lines, batch_size)), output, flag_values["scores"].value)


def _write(batches: "Iterable[list[Translation]]", output: IO[bytes], scores: bool) -> None:
    progress = sys.stderr.isatty() and not output.isatty()
    num_lines = 0
    try:
        for batch in batches:
            rows = [f"{line.score:.4f}\t{line.text}\n" if scores else f"{line.text}\n" for line in batch]
            output.write("".join(rows).encode())
            # Whoever reads this may wait for it line by line.
            output.flush()
            num_lines += len(batch)
            if progress:
                print(f"\r{num_lines:,} lines translated", end="", file=sys.stderr, flush=True)
    finally:
        if progress and num_lines:
            print(file=sys.stderr)


def _lines(input_path: str | None, output_path: str | None) -> Iterable[str]:
    from gnmt_tf.config import UserError
    from gnmt_tf.text.lines import decode_lines, read_lines

    if input_path is None:
        # A stream of our own: the thread that reads it may be blocked when the program ends, and the interpreter
        # waits for the lock of `sys.stdin`.
        return decode_lines(open(sys.stdin.fileno(), "rb", closefd=False), "standard input")
    if output_path is not None and _same_file(input_path, output_path):
        raise UserError(
            f"--output {output_path}", "another file than the input", "the same one", "Write to a new file."
        )
    lines = read_lines(input_path)
    # The first line is read now, so that a wrong input is found before an existing output is emptied.
    first = next(lines, None)
    return () if first is None else itertools.chain((first,), lines)


def _same_file(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[IO[bytes]]:
    from gnmt_tf.config import UserError

    if path is None:
        yield sys.stdout.buffer
        return
    try:
        with open(path, "wb") as output:
            yield output
    except OSError as error:
        if error.filename != path:
            raise
        raise UserError(
            f"--output {path}", "a file that can be written", os.strerror(error.errno or 0), "Check the path."
        ) from None

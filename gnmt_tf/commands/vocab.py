"""Make the shared wordpiece vocabulary from training text.

Reads data.train_source and data.train_target of the configuration, or the files given with --input, and writes a
vocabulary file for data.vocabulary. Settings: the section `text` (text.vocab_size, text.alphabet_size, ...).
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from absl import flags

from gnmt_tf.commands.config_flags import config_from_flags, define_config_flags

if TYPE_CHECKING:
    from gnmt_tf.config import DataConfig

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_ON_TERMINAL = 0.2


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_config_flags(flag_values)
    flags.DEFINE_string("output", None, "Vocabulary file to write.", flag_values=flag_values)
    flags.DEFINE_multi_string(
        "input", [], "Text file, .gz or not; may be repeated. Replaces the training text.", flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Trains, writes the file and prints a summary on stdout."""
    from gnmt_tf.config import UserError
    from gnmt_tf.text.segmenter import WordpieceSegmenter
    from gnmt_tf.text.wordpiece_trainer import count_words, train_from_word_counts

    output = flag_values["output"].value
    if not output:
        raise UserError("--output", "a file name", "nothing", "Add --output vocabulary.json.")
    config = config_from_flags(flag_values)
    lines = _all_lines(flag_values["input"].value, config.data)
    _check_writable(output)
    start = time.monotonic()
    progress = _progress_line()
    word_counts = count_words(lines, config.text, progress)
    vocabulary = train_from_word_counts(word_counts, config.text, progress)
    vocabulary.save(output)
    seconds = time.monotonic() - start
    segmenter = WordpieceSegmenter(vocabulary)
    num_pieces = sum(count * len(segmenter.pieces(word)) for word, count in word_counts.items())
    print(
        f"{output}: {vocabulary.size} pieces (alphabet {len(vocabulary.alphabet)}, {vocabulary.fingerprint}) in"
        f" {seconds:.1f} s; {num_pieces / word_counts.total():.3f} pieces per word of the text read"
    )


def _all_lines(inputs: list[str], data: "DataConfig") -> Iterator[str]:
    from gnmt_tf.config import UserError
    from gnmt_tf.text.lines import read_lines

    if inputs:
        return (line for path in inputs for line in read_lines(path))
    sides = [path for path in (data.train_source, data.train_target) if path]
    if not sides:
        raise UserError(
            "--input", "text files", "none", "Give --input, or set data.train_source and data.train_target."
        )
    return _aligned_lines(sides) if len(sides) == 2 else read_lines(sides[0])


def _aligned_lines(paths: list[str]) -> Iterator[str]:
    from gnmt_tf.config import UserError
    from gnmt_tf.text.lines import read_lines

    counts = []
    for path in paths:
        count = 0
        for line in read_lines(path):
            count += 1
            yield line
        counts.append(count)
    if counts[0] != counts[1]:
        raise UserError(
            "data.train_source and data.train_target",
            "the same number of lines",
            f"{counts[0]} in {paths[0]} and {counts[1]} in {paths[1]}",
            f"Line {min(counts) + 1} of the longer file has no partner; mend the pair of files.",
        )


def _check_writable(path: str) -> None:
    """Finds out before the work, and not after it, that the file cannot be written."""
    import os

    from gnmt_tf.config import UserError

    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UserError(f"--output {path}", "a file in an existing folder", f"no folder {folder}", "Create it first.")
    if os.path.isdir(path):
        raise UserError(f"--output {path}", "a file name", "a folder", "Name a file in it.")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--output {path}", "a folder that can be written", "no permission", "Choose another folder.")


def _progress_line() -> Callable[[str, int, int | None], None]:
    """A progress callback that writes to stderr: one changing line on a terminal, a line now and then elsewhere."""
    from gnmt_tf.text.wordpiece_trainer import EXHAUSTED

    terminal = sys.stderr.isatty()
    stage_name, stage_start, stage_done, shown = "", 0.0, 0, time.monotonic()

    def show(stage: str, done: int, total: int | None) -> None:
        nonlocal stage_name, stage_start, stage_done, shown
        now = time.monotonic()
        if stage == EXHAUSTED:
            print(f"{stage}: {done} pieces instead of {total}", file=sys.stderr)
            return
        if stage != stage_name:
            stage_name, stage_start, stage_done = stage, now, done
        finished = done == total
        if now - shown < (_SECONDS_ON_TERMINAL if terminal else _SECONDS_BETWEEN_LINES) and not finished:
            return
        shown = now
        rate = (done - stage_done) / max(now - stage_start, 1e-9)
        text = f"{stage}: {done}" + (f" of {total}" if total and not finished else "") + f", {rate:.0f}/s"
        if total and not finished and rate:
            text += f", {(total - done) / rate:.0f} s left"
        print(f"\r{text}\033[K" if terminal else text, end="\n" if finished or not terminal else "", file=sys.stderr)
        sys.stderr.flush()

    return show

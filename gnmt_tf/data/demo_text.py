"""The demonstration corpus: endless English-French and English-German sentence pairs that can be checked exactly.

Last step of `gnmt demo-data`: fills the frames of `demo_frames` with values of `demo_values` and writes
train/dev/test text files, which `gnmt vocab` and `gnmt train` read like any corpus. Each English sentence has one
right translation, so exact match is a fair measure; a seed gives the same bytes on every machine that has the same
versions of Babel (CLDR) and num2words.
"""

import functools
import itertools
import os
import re
from collections.abc import Callable, Hashable, Iterator
from random import Random
from typing import NamedTuple

from gnmt_tf.config import UserError
from gnmt_tf.data.demo_frames import FRAMES, Frame
from gnmt_tf.data.demo_values import KINDS, DemoValue, render_value
from gnmt_tf.text.whole_file import whole_file

SOURCE_LANGUAGE = "en"
TARGET_LANGUAGES = ("fr", "de")
MAX_PAIRS = 2_000_000
"""Most pairs in one corpus: they are kept in memory, to be told apart."""
MAX_REPEATS = 20_000
"""Draws in a row without anything new after which the supply counts as exhausted."""
REPORT_EVERY_PAIRS = 10_000
NUM_EXAMPLES = 3


class DemoPair(NamedTuple):
    """One sentence, without a line end, and its only right translation."""

    source: str
    target: str


class DemoCounts(NamedTuple):
    """Sentence pairs in each part of the corpus."""

    train: int
    dev: int
    test: int


class DemoSummary(NamedTuple):
    """What was written: the files, in the order train, dev, test, source first, and a few pairs of the test set."""

    paths: tuple[str, ...]
    examples: tuple[DemoPair, ...]


class DemoSentence(NamedTuple):
    """A pair with what it says: its frame and the cores of its values, whatever style they are written in."""

    content: Hashable
    pair: DemoPair


def demo_pairs(target_language: str, seed: int) -> Iterator[DemoPair]:
    """Sentence pairs without end, in an order that depends on `seed` alone; repeats are possible, though rare.

    Args:
      target_language: "fr" or "de".
      seed: any integer.

    Raises:
      UserError: for an unknown language.
    """
    sentences = _demo_sentences(target_language, seed, set())
    return (sentence.pair for sentence in sentences if sentence is not None)


def write_demo_data(
    output_dir: str,
    target_language: str,
    counts: DemoCounts,
    seed: int,
    report: Callable[[str], None] = lambda message: None,
) -> DemoSummary:
    """Writes train, dev and test as `output_dir`/{train,dev,test}.{en,TARGET}, UTF-8, one sentence per line.

    No source, no target and no content (frame and values) occurs twice, within a part or across parts; so nothing
    of the held-out parts is seen in training. Nothing is written before all pairs have been found.

    Args:
      output_dir: made if it does not exist; files of these names in it are replaced.
      target_language: "fr" or "de".
      counts: sentence pairs in each part.
      seed: any integer.
      report: is told about progress now and then.

    Raises:
      UserError: for an unknown language, a count that is not positive, more pairs than can be found distinct, or a
        directory that cannot be written.
    """
    _check_counts(counts)
    seen: set[Hashable] = set()
    sentences = _demo_sentences(target_language, seed, seen)
    _make_directory(output_dir)
    distinct = _distinct_pairs(sentences, seen, sum(counts), report)
    # The held-out parts are drawn first: their pairs stay the same however many training pairs follow.
    parts = {name: list(itertools.islice(distinct, getattr(counts, name))) for name in ("test", "dev", "train")}
    paths: list[str] = []
    for name in counts._fields:
        for language, column in ((SOURCE_LANGUAGE, 0), (target_language, 1)):
            paths.append(os.path.join(output_dir, f"{name}.{language}"))
            _write_lines(paths[-1], [pair[column] for pair in parts[name]])
    return DemoSummary(tuple(paths), tuple(parts["test"][:NUM_EXAMPLES]))


def fill_frame(frame: Frame, values: dict[str, DemoValue], language: str) -> str:
    """The sentence of `frame` in `language`, with a capital first; `values` has one entry per slot."""
    text = getattr(frame, language).format_map(
        {slot: render_value(_kind(slot), value, language) for slot, value in values.items()}
    )
    return text[0].upper() + text[1:]


def draw_values(frame: Frame, random: Random) -> dict[str, DemoValue]:
    """A random value for every slot of `frame`; two of one kind differ, and ascend where the kind is ordered."""
    values: dict[str, DemoValue] = {}
    for slot in frame_slots(frame):
        kind = _kind(slot)
        value = KINDS[kind].draw(random)
        if kind != slot:
            while value.core == values[kind].core:
                value = KINDS[kind].draw(random)
            if KINDS[kind].ordered and value.core < values[kind].core:
                values[kind], value = value, values[kind]
        values[slot] = value
    return values


@functools.cache
def frame_slots(frame: Frame) -> tuple[str, ...]:
    """The names of the slots of `frame`, in English order."""
    return tuple(re.findall(r"\{(\w+)\}", frame.en))


def _kind(slot: str) -> str:
    return slot.rstrip("2")


def _demo_sentences(target_language: str, seed: int, seen: set[Hashable]) -> Iterator[DemoSentence | None]:
    """Sentences without end, but None for one whose content is in `seen`: writing it out is the slow part."""
    if target_language not in TARGET_LANGUAGES:
        raise UserError(
            "target_language",
            "one of " + ", ".join(TARGET_LANGUAGES),
            repr(target_language),
            "The demonstration corpus exists for these languages only.",
        )
    return _draw_sentences(target_language, seed, seen)


def _draw_sentences(target_language: str, seed: int, seen: set[Hashable]) -> Iterator[DemoSentence | None]:
    # Seeding by text keeps -1 and 1 apart, and does not depend on Python's hash seed.
    random = Random(f"demo corpus {seed}")
    while True:
        index = random.randrange(len(FRAMES))
        values = draw_values(FRAMES[index], random)
        content = (index, *(value.core for value in values.values()))
        if content in seen:
            yield None
            continue
        source = fill_frame(FRAMES[index], values, SOURCE_LANGUAGE)
        yield DemoSentence(content, DemoPair(source, fill_frame(FRAMES[index], values, target_language)))


def _distinct_pairs(
    sentences: Iterator[DemoSentence | None], seen: set[Hashable], wanted: int, report: Callable[[str], None]
) -> Iterator[DemoPair]:
    """Pairs whose content, source and target are all new; `seen` collects the contents."""
    sources: set[str] = set()
    targets: set[str] = set()
    repeats = 0
    for sentence in sentences:
        if sentence is None or sentence.pair.source in sources or sentence.pair.target in targets:
            repeats += 1
            if repeats == MAX_REPEATS:
                raise UserError(
                    "pairs + dev_pairs + test_pairs",
                    f"no more than can be found distinct (about {len(sources):,})",
                    f"{wanted:,}",
                    "Ask for fewer pairs.",
                )
            continue
        repeats = 0
        seen.add(sentence.content)
        sources.add(sentence.pair.source)
        targets.add(sentence.pair.target)
        if len(sources) % REPORT_EVERY_PAIRS == 0 or len(sources) == wanted:
            report(f"{len(sources):,} of {wanted:,} pairs")
        yield sentence.pair


def _check_counts(counts: DemoCounts) -> None:
    for flag, count in (("pairs", counts.train), ("dev_pairs", counts.dev), ("test_pairs", counts.test)):
        if count <= 0:
            raise UserError(flag, "a positive number of sentence pairs", str(count), "Ask for at least 1.")
    if sum(counts) > MAX_PAIRS:
        raise UserError(
            "pairs + dev_pairs + test_pairs",
            f"at most {MAX_PAIRS:,} distinct pairs",
            f"{sum(counts):,}",
            "Ask for fewer pairs.",
        )


def _make_directory(output_dir: str) -> None:
    try:
        os.makedirs(output_dir, exist_ok=True)
    except OSError as error:
        raise _unwritable(output_dir, error) from error
    if not os.access(output_dir, os.W_OK | os.X_OK):
        raise _unwritable(output_dir, PermissionError("no permission to write in it"))


def _write_lines(path: str, lines: list[str]) -> None:
    try:
        with whole_file(path) as file:
            file.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> UserError:
    return UserError(
        "output_dir",
        "a directory that can be written",
        f"{path!r} ({error.strerror or error})",
        "Choose another directory, or mend its permissions or free space.",
    )

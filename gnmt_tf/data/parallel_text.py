"""Parallel text on disk to pairs of piece ids in memory.

Reads two text files line by line, leaves out pairs that training cannot use, segments the rest; gives a PieceCorpus.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gnmt_tf.config import UserError
from gnmt_tf.text.lines import read_lines
from gnmt_tf.text.normalization import is_blank
from gnmt_tf.text.segmenter import Segmenter


class Pieces(NamedTuple):
    """Sentences as one flat array: sentence i is `ids[offsets[i]:offsets[i + 1]]`, `</s>` not stored.

    Fields:
      ids: int32 [total_pieces].
      offsets: int64 [num_sentences + 1].
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Pieces of each sentence, `</s>` counted: int64 [num_sentences]."""
        return np.diff(self.offsets) + 1

    def __getitem__(self, sentence: int) -> np.ndarray:  # type: ignore[override]
        return self.ids[self.offsets[sentence] : self.offsets[sentence + 1]]


class PieceCorpus(NamedTuple):
    """Segmented sentence pairs that passed the filter, and the counts of those that did not."""

    source: Pieces
    target: Pieces
    num_blank: int
    num_too_long: int

    @property
    def num_pairs(self) -> int:
        """Pairs kept."""
        return len(self.source.offsets) - 1

    def sample(self, most: int) -> "PieceCorpus":
        """At most so many of the pairs, spread evenly; the counts stay those of the whole corpus."""
        count = min(most, self.num_pairs)
        rows = [self.num_pairs * number // count for number in range(count)]
        source, target = _PiecesBuilder(), _PiecesBuilder()
        for row in rows:
            source.add(self.source[row])
            target.add(self.target[row])
        return self._replace(source=source.build(), target=target.build())

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when any pair does."""
        digest = hashlib.sha256()
        for array in (*self.source, *self.target):
            digest.update(array.tobytes())
        return digest.hexdigest()[:12]


def read_pairs(source_path: str, target_path: str) -> Iterator[tuple[str, str]]:
    """Yields the lines of two files side by side.

    Raises:
      UserError: a file cannot be read, or one ends before the other (after the last common line).
    """
    source, target = read_lines(source_path), read_lines(target_path)
    count = 0
    for source_line in source:
        target_line = next(target, None)
        if target_line is None:
            raise _unequal(source_path, target_path, count + 1 + sum(1 for _ in source), count)
        count += 1
        yield source_line, target_line
    extra = sum(1 for _ in target)
    if extra:
        raise _unequal(source_path, target_path, count, count + extra)


def load_corpus(
    source_path: str,
    target_path: str,
    segmenter: Segmenter,
    max_source_pieces: int,
    max_target_pieces: int,
    progress: Callable[[int], None] | None = None,
    source_prefix: str = "",
) -> PieceCorpus:
    """Reads, filters and segments a corpus.

    A pair is left out as a whole when either side is blank or longer than its limit (`</s>` counted).

    Args:
      progress: called now and then with the number of lines read.
      source_prefix: text put before every source line.

    Raises:
      UserError: as `read_pairs`, or no pair is left.
    """
    source, target = _PiecesBuilder(), _PiecesBuilder()
    num_blank = num_too_long = count = 0
    for count, (source_line, target_line) in enumerate(read_pairs(source_path, target_path), start=1):
        if progress is not None and count % 10_000 == 0:
            progress(count)
        if is_blank(source_line) or is_blank(target_line):
            num_blank += 1
            continue
        if source_prefix:
            source_line = f"{source_prefix} {source_line}"
        source_ids, target_ids = segmenter.encode(source_line), segmenter.encode(target_line)
        if len(source_ids) >= max_source_pieces or len(target_ids) >= max_target_pieces:
            num_too_long += 1
            continue
        source.add(source_ids)
        target.add(target_ids)
    if len(source.offsets) == 1:
        raise UserError(
            f"{source_path}, {target_path}",
            "at least one usable sentence pair",
            f"{count} pairs, of which {num_blank} blank and {num_too_long} too long",
            "Check the files, or raise data.max_source_pieces and data.max_target_pieces.",
        )
    return PieceCorpus(source.build(), target.build(), num_blank, num_too_long)


class _PiecesBuilder:
    def __init__(self) -> None:
        self.chunks: list[np.ndarray] = []
        self.offsets = [0]

    def add(self, ids: Sequence[int] | np.ndarray) -> None:
        self.chunks.append(np.asarray(ids, np.int32))
        self.offsets.append(self.offsets[-1] + len(ids))

    def build(self) -> Pieces:
        return Pieces(np.concatenate(self.chunks), np.asarray(self.offsets, np.int64))


def _unequal(source_path: str, target_path: str, source_count: int, target_count: int) -> UserError:
    return UserError(
        f"{source_path}, {target_path}",
        "equally many lines",
        f"{source_count} and {target_count}",
        "Each line must have its translation on the line of the same number in the other file.",
    )

"""Lines in, translations out: segmentation, batching by length, search, restoration.

Reads any strings; gives one Translation for each, in order. Blank lines never reach the model.
"""

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.beam_search import beam_search_grid
from gnmt_tf.search.constraints import Constraints
from gnmt_tf.search.engine import Engine
from gnmt_tf.search.ensemble import Ensemble
from gnmt_tf.search.history import BeamResult
from gnmt_tf.search.hypotheses import BLANK, Translation, hypotheses_of_row, joined
from gnmt_tf.search.scoring import Penalties
from gnmt_tf.search.shortlist import ROUNDED_TO, Shortlist, shortlisted
from gnmt_tf.text.normalization import is_blank
from gnmt_tf.text.segmenter import Segmenter
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, SPECIAL_PIECES, START_ID, UNKNOWN_ID, Vocabulary

BATCHES_IN_WINDOW = 16
"""A stream is sorted by length inside windows of this many batches."""

MOST_PARALLEL_BATCHES = 4
"""Unless more are asked for: each takes memory of its own."""

SMALLEST_BUCKET = 8
PREFIXES_ROUNDED_TO = 8
CANDIDATES_ROUNDED_TO = 512
"""With static shapes, so that there are few of them."""

SENTENCE_END = re.compile(r"(?<=[.!?\u2026])\s+|(?<=[\u3002\uff01\uff1f])\s*")


class _Line(NamedTuple):
    # One line, or a part of it, on its way to the model; ids and pieces end with `</s>`. number: of the line. prefix:
    # of the target. num_prefix_pieces: of the source prefix.
    number: int
    pieces: list[str]
    ids: list[int]
    prefix: list[int]
    cut: bool
    num_prefix_pieces: int


class Translator:
    """Translates strings with a model and a segmenter.

    Args:
      model: the network, or several.
      segmenter: of the vocabulary that the model was trained with.
      search: width, penalties, limits, batch size, and everything else.
      keep_attention: whether hypotheses hold their attention.
      shortlist: the table that `search.shortlist` needs.
      engine: searches instead of the portable beam search, `model` then being asked for nothing but alternatives.

    Raises:
      UserError: settings that do not fit the vocabulary, or the engine.
    """

    def __init__(
        self,
        model: GNMT | Ensemble,
        segmenter: Segmenter,
        search: SearchConfig,
        keep_attention: bool = False,
        shortlist: Shortlist | None = None,
        engine: Engine | None = None,
    ):
        self._engine = engine
        self.model, self.segmenter, self.search, self.keep_attention = model, segmenter, search, keep_attention
        self.num_compilations = 0
        self._banned_ids = banned_ids(search, segmenter.vocabulary)
        if search.beam_width > segmenter.vocabulary.size:
            raise UserError(
                "search.beam_width",
                f"at most {segmenter.vocabulary.size}, the pieces of the vocabulary",
                str(search.beam_width),
                "Choose a smaller one; beyond 12 there is little to win.",
            )
        if search.shortlist is not None and shortlist is None:
            raise UserError(
                "search.shortlist",
                "null, unless a table of pieces that occur together is given",
                str(search.shortlist),
                "Give the table, shortlist.npz of the model directory, or set it to null.",
            )
        if engine is not None and (search.shortlist is not None or search.jit_compile):
            raise UserError(
                "search.shortlist, search.jit_compile",
                "null and false with the quantised engine",
                f"{search.shortlist} and {search.jit_compile}",
                "Change them, or use the float model.",
            )
        self._shortlist = shortlist if search.shortlist is not None else None
        if search.method == "sample":
            self._settings = search.model_copy(update={"beam_width": search.n_best})
        else:
            # Of several hypotheses with the same text one is kept, so that more are asked for than are given.
            asked_for = search.beam_width if search.n_best > 1 else 1
            self._settings = search.model_copy(update={"n_best": asked_for})
        self._own_penalties = Penalties(search.length_penalty_weight, search.coverage_penalty_weight)
        self._functions: dict[Any, Callable[..., list[BeamResult]]] = {}
        self._lock = threading.Lock()

    def translate(
        self,
        lines: Sequence[str],
        progress: Callable[[int], None] | None = None,
        prefixes: Sequence[str] | None = None,
        first_number: int = 0,
    ) -> list[Translation]:
        """Translates lines, longest first in batches of similar length, and gives them back in their own order.

        Args:
          lines: any strings.
          progress: called with the number of lines done after every batch.
          prefixes: what the translation of each line starts with, or "".
          first_number: of the first line, counted from 0; what sampling and messages go by.

        Raises:
          UserError: a prefix longer than the length limit, another number of prefixes than of lines, or a model that
            gives numbers that are not finite.
        """
        return self._translate(lines, [self._own_penalties], progress, prefixes, first_number)[0]

    def warm_up(self, lines: Sequence[str]) -> None:
        """Traces and compiles what translating these lines needs, so that a measurement of that does not hold it."""
        kinds: dict[tuple[bool, int], str] = {}
        for line in lines:
            if not is_blank(line):
                ids = self.segmenter.encode(source_text(line, self.search))
                bucket = source_bucket(len(ids) + 1) if self.search.jit_compile else 0
                kinds.setdefault((UNKNOWN_ID in ids, bucket), line)
        for line in kinds.values():
            self.translate([line])

    def translate_with_each(
        self, lines: Sequence[str], penalties: Sequence[Penalties], progress: Callable[[int], None] | None = None
    ) -> list[list[Translation]]:
        """Translates lines under several settings of the penalties with one search: see `beam_search_grid`.

        Returns:
          What `translate` would give, for each setting.
        """
        return self._translate(lines, penalties, progress, None, 0)

    def _translate(
        self,
        lines: Sequence[str],
        penalties: Sequence[Penalties],
        progress: Callable[[int], None] | None,
        prefixes: Sequence[str] | None,
        first_number: int,
    ) -> list[list[Translation]]:
        # By line, by part of it, by setting.
        if prefixes is not None and len(prefixes) != len(lines):
            raise UserError(
                "target prefixes", f"one for each of {len(lines)} lines", str(len(prefixes)), 'Give "" where none is.'
            )
        results: list[list[list[Translation]]] = [[] for _ in lines]
        parts: list[tuple[int, _Line]] = []
        for i, line in enumerate(lines):
            prefix = prefixes[i] if prefixes is not None else ""
            for place, part in enumerate(self._parts(line) if not is_blank(line) else []):
                results[i].append([])
                parts.append((place, self._read(first_number + i, part, "" if place else prefix)))
        order = sorted(range(len(parts)), key=lambda k: (-len(parts[k][1].ids), k))
        waiting = [len(result) for result in results]
        done = sum(not count for count in waiting)
        for batch, found in self._searched(list(self._batches(order, parts)), parts, penalties):
            for k, *translations in zip(batch, *found, strict=True):
                place, read = parts[k]
                row = read.number - first_number
                results[row][place] = translations
                waiting[row] -= 1
                done += not waiting[row]
            if progress is not None:
                progress(done)
        return [[joined([part[number] for part in result]) for result in results] for number in range(len(penalties))]

    def _searched(
        self, batches: list[list[int]], parts: list[tuple[int, _Line]], penalties: Sequence[Penalties]
    ) -> Iterator[tuple[list[int], list[list[Translation]]]]:
        """Batches with what `_batch` gives for them, in order; several are searched at a time."""
        cores = min(os.cpu_count() or 1, MOST_PARALLEL_BATCHES)
        # The engine spreads a batch over all cores itself.
        num_parallel = 1 if self._engine is not None else min(self.search.parallel_batches or cores, len(batches))
        lines = ([parts[k][1] for k in batch] for batch in batches)
        if num_parallel <= 1:
            yield from zip(batches, (self._batch(batch, penalties) for batch in lines), strict=True)
            return
        pool = ThreadPoolExecutor(num_parallel)
        try:
            yield from zip(batches, pool.map(lambda batch: self._batch(batch, penalties), lines), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)

    def alternatives(self, line: str, prefix: str, count: int, number: int = 0) -> Translation:
        """Translations of a line that start with a prefix and differ in the piece after it.

        Args:
          line: any string; a blank one has none.
          prefix: what all of them start with, or "".
          count: how many to give; fewer when there are not so many pieces that may follow.
          number: of the line, counted from 0, for messages.

        Returns:
          A Translation whose hypotheses are the best one for each of the pieces, best first.

        Raises:
          UserError: as `translate`.
        """
        if is_blank(line):
            return BLANK
        read = self._read(number, line, prefix)
        parts = [read._replace(prefix=[*read.prefix, piece]) for piece in self._following(read, count)]
        found: list[Translation] = []
        for batch in self._batches(list(range(len(parts))), [(0, part) for part in parts]):
            found += self._batch([parts[k] for k in batch], [self._own_penalties])[0]
        best = sorted((t.hypotheses[0] for t in found if t.hypotheses), key=lambda hypothesis: -hypothesis.score)
        pieces, num_prefix_pieces = tuple(read.pieces), read.num_prefix_pieces
        if not best:
            return Translation("", -math.inf, 0, True, (), pieces, num_prefix_pieces)
        cut = read.cut or best[0].truncated
        return Translation(
            best[0].text, best[0].score, len(best[0].pieces), cut, tuple(best), pieces, num_prefix_pieces
        )

    def _following(self, line: _Line, count: int) -> list[int]:
        """The most probable pieces that may come after a line's target prefix."""
        if len(line.prefix) + 1 >= _length_limit(len(line.ids), self.search):
            return [END_ID]
        inputs = tf.constant([[START_ID, *line.prefix]])
        length = tf.constant([len(line.prefix) + 1])
        batch = Batch(tf.constant([line.ids]), tf.constant([len(line.ids)]), inputs, inputs, length)
        logits = self.model.scored(batch).logits[0, -1].numpy()
        if not np.isfinite(logits).all():
            raise not_finite(f"the piece after the prefix of line {line.number + 1}")
        banned = {PAD_ID, START_ID, *self._banned_ids}
        if len(line.prefix) < self.search.min_length:
            banned.add(END_ID)
        return [int(i) for i in np.argsort(-logits, kind="stable") if int(i) not in banned][:count]

    def translate_stream(
        self,
        lines: Iterable[str],
        progress: Callable[[int], None] | None = None,
        window_size: int | None = None,
        prefixes: Iterable[str] | None = None,
    ) -> Iterator[Translation]:
        """Translates an endless stream of lines, a window at a time.

        Args:
          lines: any strings.
          progress: called with the number of lines done after every batch.
          window_size: lines read before the first is answered; by default 16 batches.
          prefixes: see `translate`; as many as there are lines.
        """
        lines, prefixes = iter(lines), None if prefixes is None else iter(prefixes)
        size = window_size or self.search.batch_size * BATCHES_IN_WINDOW
        done = 0
        while window := list(islice(lines, size)):
            finished = done
            report = progress and (lambda count: progress(finished + count))  # noqa: B023
            starts = None if prefixes is None else list(islice(prefixes, len(window)))
            yield from self.translate(window, report, starts, done)
            done += len(window)

    def _parts(self, line: str) -> list[str]:
        """The line itself, or its sentences when it is too long and is to be split."""
        if self.search.long_lines == "cut":
            return [line]
        if len(self.segmenter.pieces(source_text(line, self.search))) < self.search.max_source_pieces:
            return [line]
        return [part for part in SENTENCE_END.split(line) if not is_blank(part)]

    def _read(self, number: int, text: str, prefix: str) -> _Line:
        pieces = self.segmenter.pieces(source_text(text, self.search))
        num_prefix_pieces = len(self.segmenter.pieces(self.search.source_prefix))
        limit = self.search.max_source_pieces - 1
        kept = pieces[:limit]
        ids = [*self.segmenter.encode_pieces(kept), END_ID]
        prefix_ids = self.segmenter.encode(prefix) if prefix else []
        line = _Line(number, [*kept, SPECIAL_PIECES[END_ID]], ids, prefix_ids, len(pieces) > limit, num_prefix_pieces)
        longest = _length_limit(len(ids), self.search)
        if len(prefix_ids) >= longest:
            raise UserError(
                f"target prefix of line {number + 1}",
                f"at most {longest - 1} pieces, the length limit of its translation without `</s>`",
                f"{len(prefix_ids)} pieces",
                "Shorten it, or raise search.max_length_factor or search.max_length_constant.",
            )
        return line

    def _batches(self, order: list[int], parts: list[tuple[int, _Line]]) -> Iterator[list[int]]:
        """The order cut into batches; the longest of each comes first."""
        start = 0
        while start < len(order):
            size = self._rows_of_batch(len(parts[order[start]][1].ids))
            yield order[start : start + size]
            start += size

    def _rows_of_batch(self, longest: int) -> int:
        if self.search.batch_tokens is None:
            return self.search.batch_size
        longest = source_bucket(longest) if self.search.jit_compile else longest
        return max(1, min(self.search.batch_size, self.search.batch_tokens // longest))

    def _batch(self, lines: list[_Line], penalties: Sequence[Penalties]) -> list[list[Translation]]:
        # Without a source character that is unknown there is none to copy.
        copies = self.search.jit_compile or any(UNKNOWN_ID in line.ids for line in lines)
        results = self._search(lines, self.keep_attention or copies, penalties)
        failed_step = int(results[0].failed_step)
        if failed_step >= 0:
            where = f"step {failed_step + 1} of the search for line {lines[0].number + 1} or one beside it"
            raise not_finite(where)
        return [list(self._translations(lines, result)) for result in results]

    def _translations(self, lines: list[_Line], result: BeamResult) -> Iterator[Translation]:
        for row, line in enumerate(lines):
            distinct = self.search.method == "beam"
            found = hypotheses_of_row(result, row, line.pieces, line.ids, self.segmenter, distinct)
            found = found[: self.search.n_best]
            if not self.keep_attention:
                found = [hypothesis._replace(attention=None) for hypothesis in found]
            pieces = tuple(line.pieces)
            if not found:
                # Every way on was forbidden: the line keeps its place.
                yield Translation("", -math.inf, 0, True, (), pieces, line.num_prefix_pieces)
                continue
            best = found[0]
            cut = line.cut or best.truncated
            prefix = line.num_prefix_pieces
            yield Translation(best.text, best.score, len(best.pieces), cut, tuple(found), pieces, prefix)

    def _search(self, lines: list[_Line], keep_attention: bool, penalties: Sequence[Penalties]) -> list[BeamResult]:
        num_rows, longest, max_steps = len(lines), max(len(line.ids) for line in lines), None
        if self.search.jit_compile:
            num_rows, longest = self._rows_of_batch(longest), source_bucket(longest)
            max_steps = _length_limit(longest, self.search)
        most_prefix = max(len(line.prefix) for line in lines)
        if self.search.jit_compile:
            most_prefix += -most_prefix % PREFIXES_ROUNDED_TO
        source_ids = np.full([num_rows, longest], PAD_ID, np.int32)
        prefix_ids = np.full([num_rows, most_prefix], PAD_ID, np.int32)
        # A row of filling is a sentence of one piece, which ends soon.
        numbers = np.zeros([3, num_rows], np.int32)
        source_ids[len(lines) :, 0], numbers[0, len(lines) :] = END_ID, 1
        for row, line in enumerate(lines):
            source_ids[row, : len(line.ids)] = line.ids
            prefix_ids[row, : len(line.prefix)] = line.prefix
            numbers[:, row] = len(line.ids), len(line.prefix), line.number % 2**31
        if self._engine is not None:
            if most_prefix or list(penalties) != [self._own_penalties]:
                raise UserError(
                    "target prefixes, grids of penalties",
                    "none with the quantised engine",
                    "some",
                    "Use the float model.",
                )
            found = self._engine.search(source_ids, numbers[0], self._settings, keep_attention)
            return [BeamResult(*(values.numpy() for values in found))]
        candidates = np.zeros([0], np.int32)
        if self._shortlist is not None and self.search.shortlist is not None:
            # The search counts pieces among the candidates.
            pieces = (piece for line in lines for piece in line.ids)
            further = {piece for line in lines for piece in line.prefix} | set(range(self.search.beam_width))
            rounded_to = CANDIDATES_ROUNDED_TO if self.search.jit_compile else ROUNDED_TO
            candidates = self._shortlist.candidates(pieces, self.search.shortlist, further, rounded_to)
            prefix_ids = np.searchsorted(candidates, prefix_ids).astype(np.int32)
        key = keep_attention, bool(most_prefix), max_steps, tuple(penalties)
        with self._lock:
            if key not in self._functions:
                self._functions[key] = self._make_function(*key)
        grid = self._functions[key](source_ids, numbers[0], prefix_ids, numbers[1], numbers[2], candidates)
        results = [BeamResult(*(values.numpy() for values in result)) for result in grid]
        if not len(candidates):
            return results
        return [result._replace(ids=candidates[result.ids]) for result in results]

    def _make_function(
        self, keep_attention: bool, has_prefix: bool, max_steps: int | None, penalties: tuple[Penalties, ...]
    ) -> Callable[..., list[BeamResult]]:
        def run(
            source_ids: tf.Tensor,
            source_lengths: tf.Tensor,
            prefix_ids: tf.Tensor,
            prefix_lengths: tf.Tensor,
            seeds: tf.Tensor,
            candidates: tf.Tensor,
        ) -> list[BeamResult]:
            self.num_compilations += 1
            constraints = Constraints(self._banned_ids, seeds=seeds)
            if has_prefix:
                constraints = constraints._replace(prefix_ids=prefix_ids, prefix_lengths=prefix_lengths)
            model = self.model
            if self._shortlist is not None:
                model = shortlisted(model, candidates)
                constraints = constraints._replace(candidate_ids=candidates)
            memory = model.encode(source_ids, source_lengths)
            return beam_search_grid(
                model, memory, source_lengths, self._settings, penalties, max_steps, keep_attention, constraints
            )

        if max_steps is not None:
            return tf.function(run, jit_compile=True, autograph=False)
        ids, lengths = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)
        return tf.function(run, input_signature=[ids, lengths, ids, lengths, lengths, lengths], autograph=False)


def source_bucket(length: int) -> int:
    """The length that sources of at most this length are padded to where shapes are static: 8, 12, 16, 24, 32, ..."""
    bucket = SMALLEST_BUCKET
    while bucket < length:
        is_power = bucket & (bucket - 1) == 0
        bucket = bucket * 3 // 2 if is_power else bucket * 4 // 3
    return bucket


def source_text(line: str, search: SearchConfig) -> str:
    """What the model reads of a line: the source prefix goes before it."""
    return f"{search.source_prefix} {line}" if search.source_prefix else line


def not_finite(where: str) -> UserError:
    """What to tell of a model that gives NaN or Inf."""
    return UserError(
        "model",
        "finite logits",
        f"NaN or Inf at {where}",
        "Its weights are damaged, or training diverged: use another checkpoint.",
    )


class Rate:
    """Lines per second and time left, for whoever watches.

    Args:
      total: lines in all, or None when that is not known.
    """

    def __init__(self, total: int | None):
        self.total = total
        self.start = time.monotonic()

    def describe(self, done: int) -> str:
        """A line such as `320/1000 sentences, 85.1/s, 0:08 left`."""
        rate = done / max(time.monotonic() - self.start, 1e-9)
        if self.total is None:
            return f"{done} sentences, {rate:.1f}/s"
        left = int((self.total - done) / max(rate, 1e-9))
        return f"{done}/{self.total} sentences, {rate:.1f}/s, {left // 60}:{left % 60:02d} left"


def _length_limit(source_length: int, search: SearchConfig) -> int:
    """`max_target_length` of one sentence."""
    return max(int(np.float32(source_length) * np.float32(search.max_length_factor)) + search.max_length_constant, 1)


def banned_ids(search: SearchConfig, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The ids of `search.banned_pieces`.

    Raises:
      UserError: one that is not in the vocabulary.
    """
    ids = {SPECIAL_PIECES[UNKNOWN_ID]: UNKNOWN_ID, **vocabulary.ids}
    for piece in search.banned_pieces:
        if piece not in ids:
            raise UserError(
                "search.banned_pieces",
                "pieces of the vocabulary, a word's first one with U+2581 before it",
                repr(piece),
                "See vocabulary.json in the model directory.",
            )
    return tuple(ids[piece] for piece in search.banned_pieces)

"""Lines in, translations out: segmentation, batching by length, search, restoration.

Reads any strings; gives one Translation for each, in order. Blank lines never reach the model.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.beam_search import BeamResult, beam_search
from gnmt_tf.text.normalization import is_blank
from gnmt_tf.text.segmenter import Segmenter
from gnmt_tf.text.vocabulary import END_ID, PAD_ID

BATCHES_IN_WINDOW = 16
"""A stream is sorted by length inside windows of this many batches."""


class Translation(NamedTuple):
    """What became of one line.

    Fields:
      text: the best hypothesis; empty for a blank line.
      score: eq. 14; 0 for a blank line.
      num_pieces: length of the hypothesis, `</s>` counted; 0 for a blank line.
      truncated: the source was cut, or the translation is as long as the length limit lets it be.
    """

    text: str
    score: float
    num_pieces: int
    truncated: bool


BLANK = Translation("", 0.0, 0, False)


class Translator:
    """Translates strings with a model and a segmenter.

    Args:
      model: the network.
      segmenter: of the vocabulary that the model was trained with.
      search: width, penalties, limits, batch size; one hypothesis is given whatever `n_best` says.
    """

    def __init__(self, model: GNMT, segmenter: Segmenter, search: SearchConfig):
        self.segmenter = segmenter
        self.search = search = search.model_copy(update={"n_best": 1})

        ids, lengths = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

        @tf.function(input_signature=[ids, lengths], autograph=False)
        def run(source_ids: tf.Tensor, source_lengths: tf.Tensor) -> BeamResult:
            memory = model.encode(source_ids, source_lengths)
            return beam_search(model, memory, source_lengths, search, keep_attention=False)

        self._run = run

    def translate(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Translation]:
        """Translates lines, longest first in batches of similar length, and gives them back in their own order.

        Args:
          progress: called with the number of lines done after every batch.
        """
        results = [BLANK] * len(lines)
        encoded = {i: self.segmenter.encode(line) for i, line in enumerate(lines) if not is_blank(line)}
        order = sorted(encoded, key=lambda i: (-len(encoded[i]), i))
        done = len(lines) - len(order)
        for start in range(0, len(order), self.search.batch_size):
            rows = order[start : start + self.search.batch_size]
            for row, translation in zip(rows, self._batch([encoded[i] for i in rows]), strict=True):
                results[row] = translation
            done += len(rows)
            if progress is not None:
                progress(done)
        return results

    def translate_stream(
        self, lines: Iterable[str], progress: Callable[[int], None] | None = None, window_size: int | None = None
    ) -> Iterator[Translation]:
        """Translates an endless stream of lines, a window at a time.

        Args:
          progress: called with the number of lines done after every batch.
          window_size: lines read before the first is answered; by default 16 batches, 1 for a dialogue.
        """
        lines = iter(lines)
        done = 0
        while window := list(islice(lines, window_size or self.search.batch_size * BATCHES_IN_WINDOW)):
            finished = done
            yield from self.translate(window, progress and (lambda count: progress(finished + count)))  # noqa: B023
            done += len(window)

    def _batch(self, sentences: list[list[int]]) -> Iterator[Translation]:
        limit = self.search.max_source_pieces
        kept = [ids[: limit - 1] + [END_ID] for ids in sentences]
        source_ids = np.full([len(kept), max(map(len, kept))], PAD_ID, np.int32)
        for row, ids in enumerate(kept):
            source_ids[row, : len(ids)] = ids
        result = self._run(source_ids, np.asarray([len(ids) for ids in kept], np.int32))
        rows = zip(result.ids.numpy(), result.lengths.numpy(), result.scores.numpy(), strict=True)
        for sentence, (ids, lengths, scores), cut in zip(sentences, rows, result.truncated.numpy(), strict=True):
            text = self.segmenter.decode(ids[0].tolist())
            yield Translation(text, float(scores[0]), int(lengths[0]), bool(cut[0]) or len(sentence) >= limit)


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

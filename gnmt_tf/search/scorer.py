"""What a model thinks of translations that are already there: eq. 14 for given pairs, and n-best lists ranked anew.

Reads pairs of strings; gives the same scores that the search would have given, had it found them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.ensemble import Ensemble
from gnmt_tf.search.scoring import Penalties, coverage_sums, eq_14
from gnmt_tf.search.translator import not_finite, source_text
from gnmt_tf.text.normalization import is_blank
from gnmt_tf.text.segmenter import Segmenter
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID


class PairScore(NamedTuple):
    """One pair.

    Fields:
      score: eq. 14.
      log_prob: log P(Y|X), in nats.
      num_pieces: of the target, `</s>` counted.
      piece_log_probs: of each of them.
    """

    score: float
    log_prob: float
    num_pieces: int
    piece_log_probs: tuple[float, ...]


NOTHING = PairScore(0.0, 0.0, 0, ())
"""A pair of two blank lines; a pair with one has the score -inf."""


class PairScorer:
    """Scores pairs.

    Args:
      model: one network, or several.
      segmenter: of the vocabulary.
      search: penalties, batch size, `max_source_pieces` (longer sides are cut).
    """

    def __init__(self, model: GNMT | Ensemble, segmenter: Segmenter, search: SearchConfig):
        self.segmenter, self.search = segmenter, search
        penalties = Penalties(search.length_penalty_weight, search.coverage_penalty_weight)
        ids, lengths = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

        @tf.function(input_signature=[Batch(ids, lengths, ids, ids, lengths)], autograph=False)
        def run(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scored = model.scored(batch)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_output_ids, scored.logits)
            real = tf.sequence_mask(batch.target_lengths, tf.shape(losses)[1], losses.dtype)
            log_probs = tf.reduce_sum(-losses * real, axis=1)
            attention = tf.reduce_sum(scored.attention_probs * real[:, :, None], axis=1)
            coverage = coverage_sums(attention[:, None], batch.source_lengths)[:, 0]
            return eq_14(log_probs, batch.target_lengths, coverage, penalties), log_probs, -losses * real

        self._run = run

    def __call__(
        self, pairs: Sequence[tuple[str, str]], progress: Callable[[int], None] | None = None
    ) -> list[PairScore]:
        """Scores pairs (source, target) of any strings, in order.

        Args:
          progress: called with the number of pairs done after every batch.

        Raises:
          UserError: a model that gives numbers that are not finite.
        """
        results = [NOTHING] * len(pairs)
        kept = {}
        for i, (source, target) in enumerate(pairs):
            if not is_blank(source) and not is_blank(target):
                kept[i] = self._ids(source_text(source, self.search)), self._ids(target)
            elif is_blank(source) != is_blank(target):
                results[i] = PairScore(float("-inf"), float("-inf"), 0, ())
        order = sorted(kept, key=lambda i: (-sum(map(len, kept[i])), i))
        done = len(pairs) - len(order)
        start = 0
        while start < len(order):
            size = self.search.batch_size
            if self.search.batch_tokens is not None:
                size = max(1, min(size, 2 * self.search.batch_tokens // sum(map(len, kept[order[start]]))))
            rows = order[start : start + size]
            start += size
            batch = _batch([kept[i] for i in rows])
            scores, log_probs, piece_log_probs = (values.numpy() for values in self._run(batch))
            if not np.isfinite(log_probs).all():
                bad = rows[int(np.argmin(np.isfinite(log_probs)))]
                raise not_finite(f"the translation of line {bad + 1}")
            for row, i in enumerate(rows):
                length = len(kept[i][1])
                pieces = tuple(piece_log_probs[row, :length].tolist())
                results[i] = PairScore(float(scores[row]), float(log_probs[row]), length, pieces)
            done += len(rows)
            if progress is not None:
                progress(done)
        return results

    def _ids(self, text: str) -> list[int]:
        return [*self.segmenter.encode(text)[: self.search.max_source_pieces - 1], END_ID]


class ListedHypothesis(NamedTuple):
    """One line of an n-best list in Moses' form: the number of its source line and the translation."""

    number: int
    text: str


def parse_n_best(lines: Sequence[str], path: str, num_sources: int) -> list[ListedHypothesis]:
    """Reads `number ||| translation ||| ...`, one hypothesis a line.

    Raises:
      UserError: a line of another form, or of a source line that is not there; `path` is named with the line.
    """
    hypotheses = []
    for place, line in enumerate(lines, start=1):
        fields = [field.strip() for field in line.split("|||")]
        if len(fields) < 2 or not fields[0].isascii() or not fields[0].isdigit():
            raise UserError(
                f"{path}:{place}",
                "number ||| translation ||| ...",
                repr(line[:60]),
                "Give a list as `gnmt translate --format=moses` writes it.",
            )
        if int(fields[0]) >= num_sources:
            raise UserError(
                f"{path}:{place}",
                f"the number of a source line, 0 to {num_sources - 1}",
                fields[0],
                "Check that the list belongs to this source.",
            )
        hypotheses.append(ListedHypothesis(int(fields[0]), fields[1]))
    return hypotheses


def _batch(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    source, target = (_padded([pair[side] for pair in pairs]) for side in (0, 1))
    inputs = np.concatenate([np.full([len(pairs), 1], START_ID, np.int32), target[:, :-1]], axis=1)
    lengths = [np.asarray([len(pair[side]) for pair in pairs], np.int32) for side in (0, 1)]
    return Batch(*map(tf.constant, (source, lengths[0], inputs, target, lengths[1])))


def _padded(sentences: list[list[int]]) -> np.ndarray:
    ids = np.full([len(sentences), max(map(len, sentences))], PAD_ID, np.int32)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = sentence
    return ids

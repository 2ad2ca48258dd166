"""GLEU, the reward of the refinement (paper, section 5): a BLEU for single sentences, symmetric and in [0, 1].

`gleu` is the definition, for sequences of any tokens; `gleu_of_ids` gives the same for a batch of ids inside a graph.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import tensorflow as tf

MOST_TOKENS = 4
"""Longest n-grams that count."""


def gleu(output: Sequence[Hashable], target: Sequence[Hashable]) -> float:
    """The smaller of precision and recall over all 1- to 4-grams; of two empty sequences 0.

    An n-gram matches as often as it is in both (multiset intersection).
    """
    grams = [
        Counter(tuple(tokens[i : i + n]) for n in range(1, MOST_TOKENS + 1) for i in range(len(tokens) - n + 1))
        for tokens in (output, target)
    ]
    matches = (grams[0] & grams[1]).total()
    return matches / max(grams[0].total(), grams[1].total(), 1)


def gleu_of_ids(ids: tf.Tensor, lengths: tf.Tensor, target_ids: tf.Tensor, target_lengths: tf.Tensor) -> tf.Tensor:
    """GLEU of each row.

    Args:
      ids: int32 [rows, length].
      lengths: int32 [rows]; what stands behind them does not count.
      target_ids: int32 [rows, target_length].
      target_lengths: int32 [rows].

    Returns:
      float32 [rows].
    """
    # same[r, i, j]: the n-grams that start at i and j are both whole and equal.
    within, meeting = _equal(ids, lengths, ids, lengths), _equal(ids, lengths, target_ids, target_lengths)
    within_n, meeting_n = within, meeting
    length = ids.shape[1] or tf.shape(ids)[1]
    not_later = tf.range(length)[None, :] <= tf.range(length)[:, None]
    matches = tf.zeros(tf.shape(lengths), tf.int32)
    for n in range(1, MOST_TOKENS + 1):
        if n > 1:
            within_n, meeting_n = within_n & _ahead(within, n - 1), meeting_n & _ahead(meeting, n - 1)
        # The k-th occurrence of an n-gram in the output matches if the target has at least k of them.
        occurrence = tf.reduce_sum(tf.cast(within_n & not_later, tf.int32), axis=2)
        in_target = tf.reduce_sum(tf.cast(meeting_n, tf.int32), axis=2)
        # An n-gram that is not whole is not even equal to itself and has occurrence 0.
        matched = (occurrence > 0) & (occurrence <= in_target)
        matches += tf.reduce_sum(tf.cast(matched, tf.int32), axis=1)
    most = tf.maximum(_num_grams(lengths), _num_grams(target_lengths))
    return tf.cast(matches, tf.float32) / tf.cast(tf.maximum(most, 1), tf.float32)


def _equal(ids: tf.Tensor, lengths: tf.Tensor, other_ids: tf.Tensor, other_lengths: tf.Tensor) -> tf.Tensor:
    """bool [rows, length, other_length]: which tokens are real and equal."""
    real, other_real = (tf.sequence_mask(n, tf.shape(t)[1]) for t, n in ((ids, lengths), (other_ids, other_lengths)))
    return (ids[:, :, None] == other_ids[:, None, :]) & real[:, :, None] & other_real[:, None, :]


def _ahead(equal: tf.Tensor, steps: int) -> tf.Tensor:
    """`equal` so many tokens further on, in both sequences."""
    return tf.pad(equal, [[0, 0], [0, steps], [0, steps]])[:, steps:, steps:]


def _num_grams(lengths: tf.Tensor) -> tf.Tensor:
    return tf.add_n([tf.maximum(lengths - n, 0) for n in range(MOST_TOKENS)])

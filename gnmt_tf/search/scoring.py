"""The score of a hypothesis, eq. 14: log-probability over a length penalty, plus a coverage penalty."""

from typing import NamedTuple

import tensorflow as tf

COVERAGE_FLOOR = 1e-6
"""A source piece that was never attended to counts as attended this much: costly, but not a veto."""


class Penalties(NamedTuple):
    """Alpha (`length_weight`) and beta (`coverage_weight`) of eq. 14."""

    length_weight: float
    coverage_weight: float


def eq_14(log_probs: tf.Tensor, lengths: tf.Tensor, coverage: tf.Tensor, penalties: Penalties) -> tf.Tensor:
    """The score of hypotheses.

    Args:
      log_probs: float, log P(Y|X).
      lengths: int, of shapes that go with it, `</s>` counted.
      coverage: float, from `coverage_sums`.
      penalties: alpha and beta.
    """
    return log_probs / length_penalty(lengths, penalties.length_weight) + penalties.coverage_weight * coverage


def length_penalty(lengths: tf.Tensor, weight: float) -> tf.Tensor:
    """lp(Y) = (5 + |Y|)^a / 6^a; `lengths` is any integer or float tensor and counts `</s>`."""
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, weight)


def coverage_sums(accumulated_attention: tf.Tensor, source_lengths: tf.Tensor) -> tf.Tensor:
    """cp(X; Y) of eq. 14 without its weight: sum_i log(min(sum_j p_ij, 1)), at most 0.

    Args:
      accumulated_attention: float [batch_size, beam_width, source_length], the sums over target steps.
      source_lengths: int32 [batch_size].

    Returns:
      float [batch_size, beam_width].
    """
    logs = tf.math.log(tf.clip_by_value(accumulated_attention, COVERAGE_FLOOR, 1.0))
    real = tf.sequence_mask(source_lengths, tf.shape(accumulated_attention)[-1], tf.float32)
    return tf.reduce_sum(logs * real[:, None, :], axis=-1)

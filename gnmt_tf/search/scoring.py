"""The score of a hypothesis, eq. 14: log-probability over a length penalty, plus a coverage penalty."""

import tensorflow as tf

COVERAGE_FLOOR = 1e-6
"""A source piece that was never attended to counts as attended this much: costly, but not a veto."""


def length_penalty(lengths: tf.Tensor, weight: float) -> tf.Tensor:
    """lp(Y) = (5 + |Y|)^a / 6^a; `lengths` is any integer or float tensor and counts `</s>`."""
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, weight)


def coverage_penalty(accumulated_attention: tf.Tensor, source_lengths: tf.Tensor, weight: float) -> tf.Tensor:
    """cp(X; Y) = b * sum_i log(min(sum_j p_ij, 1)), at most 0.

    Args:
      accumulated_attention: float [batch_size, beam_width, source_length], the sums over target steps.
      source_lengths: int32 [batch_size].
      weight: b.

    Returns:
      float [batch_size, beam_width].
    """
    logs = tf.math.log(tf.clip_by_value(accumulated_attention, COVERAGE_FLOOR, 1.0))
    real = tf.sequence_mask(source_lengths, tf.shape(accumulated_attention)[-1], tf.float32)
    return weight * tf.reduce_sum(logs * real[:, None, :], axis=-1)

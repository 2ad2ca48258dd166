"""The maximum-likelihood loss of eq. 7. Reads logits, or what they are made from, and a Batch; gives sums that callers
normalise.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.output_projection import OutputProjection
from gnmt_tf.layers.projected_cross_entropy import Labels


class LossSums(NamedTuple):
    """Sums over the real target pieces of a batch, scalars.

    Fields:
      loss: cross entropy against smoothed labels, in nats; what training minimises.
      negative_log_prob: -log P, in nats.
      num_pieces: how many pieces there were.
    """

    loss: tf.Tensor
    negative_log_prob: tf.Tensor
    num_pieces: tf.Tensor


def loss_sums(logits: tf.Tensor, batch: Batch, label_smoothing: float = 0.0) -> LossSums:
    """Sum of -log P(Y*|X) over the batch (eq. 7), the plain way.

    Args:
      logits: float [batch_size, target_length, vocab_size].
      batch: padding, and rows of length 0, count for nothing.
      label_smoothing: share of every label's probability that is spread evenly over the vocabulary.
    """
    log_probs = tf.nn.log_softmax(logits)
    negative_log_probs = -tf.gather(log_probs, batch.target_output_ids, batch_dims=2)
    losses = (1.0 - label_smoothing) * negative_log_probs - label_smoothing * tf.reduce_mean(log_probs, axis=-1)
    real = tf.sequence_mask(batch.target_lengths, tf.shape(logits)[1], logits.dtype)
    return LossSums(
        tf.reduce_sum(losses * real), tf.reduce_sum(negative_log_probs * real), _num_pieces(batch, logits.dtype)
    )


def projected_loss_sums(
    outputs: tf.Tensor, projection: OutputProjection, batch: Batch, logit_bound: tf.Tensor, label_smoothing: float
) -> LossSums:
    """The same from the top decoder layer's outputs, float [batch_size, target_length, num_units], without ever holding
    all logits.
    """
    labels = Labels(batch.target_output_ids, batch.target_lengths, label_smoothing)
    sums = projection.cross_entropy(outputs, labels, logit_bound)
    return LossSums(sums.loss, sums.negative_log_prob, _num_pieces(batch, tf.float32))


def _num_pieces(batch: Batch, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.reduce_sum(batch.target_lengths), dtype)

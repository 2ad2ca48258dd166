"""The maximum-likelihood loss of eq. 7, the plain way: what evaluation uses, and what the training step's is judged by.

Reads logits and a Batch; gives sums that callers normalise. The training step never holds all logits:
see `layers/projected_cross_entropy.py`.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.data.batch import Batch


class LossSums(NamedTuple):
    """Sums over the real target pieces of a batch, scalars: `-log P` in nats, and how many pieces there were."""

    negative_log_prob: tf.Tensor
    num_pieces: tf.Tensor


def loss_sums(logits: tf.Tensor, batch: Batch) -> LossSums:
    """Sum of -log P(Y*|X) over the batch (eq. 7).

    Args:
      logits: float [batch_size, target_length, vocab_size].
      batch: padding, and rows of length 0, count for nothing.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_output_ids, logits)
    real = tf.sequence_mask(batch.target_lengths, tf.shape(losses)[1], losses.dtype)
    return LossSums(tf.reduce_sum(losses * real), tf.reduce_sum(real))

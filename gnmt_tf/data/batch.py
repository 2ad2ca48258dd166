"""The batch: what the data package gives and the model reads."""

from typing import NamedTuple

import tensorflow as tf


class Batch(NamedTuple):
    """Sentence pairs of similar length, padded on the right with the pad id.

    Rows of length 0 are filling: they keep the shape static and count for nothing.

    Fields:
      source_ids: int32 [batch_size, source_length], each row ended by `</s>`.
      source_lengths: int32 [batch_size], `</s>` counted.
      target_input_ids: int32 [batch_size, target_length], `<s>` first.
      target_output_ids: int32 [batch_size, target_length], `</s>` last.
      target_lengths: int32 [batch_size], `</s>` counted.
    """

    source_ids: tf.Tensor
    source_lengths: tf.Tensor
    target_input_ids: tf.Tensor
    target_output_ids: tf.Tensor
    target_lengths: tf.Tensor

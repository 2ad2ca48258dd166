"""The bottom decoder layer: additive attention (eq. 4) and the LSTM whose output is the attention's query.

Reads target embeddings and the encoder's memory; gives the layer's outputs and the context that every decoder layer
reads.
"""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.layers.attention_sequence import (
    MASKED_SCORE,
    AttentionMemory,
    AttentionSequence,
    AttentionWeights,
    attention_lstm_sequence,
)
from gnmt_tf.layers.clipped_lstm import ClippedLSTM
from gnmt_tf.layers.initializers import uniform
from gnmt_tf.layers.products import project


class AttentionLSTM(keras.layers.Layer):
    """LSTM layer with additive attention over the encoder's outputs.

    At step t the query is this layer's own output at t - 1 (zero before the first), the context is the attention's
    weighted mean of the memory, and the LSTM reads the embedding and the context together.

    Call: `layer(embeddings, memory, clip_bound, context_scale=None)` with embeddings float [target_length, batch_size,
    embedding_size], time-major, and memory from `prepare`; gives an AttentionSequence. Padded source positions get
    probability 0.

    Args:
      lstm: the LSTM, which this layer owns; its inputs are the embedding and the context, concatenated.
      attention_units: width of the attention's hidden layer.
      memory_size: width of the memory.
      init_scale: weights start uniform in [-init_scale, init_scale].
    """

    def __init__(self, lstm: ClippedLSTM, attention_units: int, memory_size: int, init_scale: float, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.lstm = lstm
        self.attention_units = attention_units
        self.memory_size = memory_size
        self.init_scale = init_scale

    def build(self, input_shape: Any) -> None:
        """Makes the weights for embeddings whose last axis is known."""
        self.embedding_size = int(input_shape[-1])
        units = self.attention_units
        self.query_kernel = self.add_weight(
            "query_kernel", [self.lstm.num_units, units], initializer=uniform(self.init_scale)
        )
        self.key_kernel = self.add_weight("key_kernel", [self.memory_size, units], initializer=uniform(self.init_scale))
        self.key_bias = self.add_weight("key_bias", [units], initializer="zeros")
        self.score_kernel = self.add_weight("score_kernel", [units], initializer=uniform(self.init_scale))
        with tf.name_scope(self.lstm.name):
            self.lstm.build([None, self.embedding_size + self.memory_size])
        self.built = True

    def prepare(self, values: tf.Tensor, lengths: tf.Tensor) -> AttentionMemory:
        """What the attention needs of the encoder's outputs, computed once per sentence.

        Args:
          values: float [batch_size, source_length, memory_size].
          lengths: int32 [batch_size].
        """
        real = tf.sequence_mask(lengths, tf.shape(values)[1])
        score_bias = tf.where(real, tf.zeros([], values.dtype), tf.constant(MASKED_SCORE, values.dtype))
        return AttentionMemory(
            values, project(values, self.key_kernel) + tf.cast(self.key_bias, values.dtype), score_bias
        )

    def call(
        self,
        embeddings: tf.Tensor,
        memory: AttentionMemory,
        clip_bound: tf.Tensor,
        context_scale: tf.Tensor | None = None,
    ) -> AttentionSequence:
        """See the class."""
        dtype = embeddings.dtype
        kernel, recurrent_kernel = (tf.cast(values, dtype) for values in self.lstm.kernels())
        weights = AttentionWeights(
            tf.cast(self.query_kernel, dtype),
            tf.cast(self.score_kernel, dtype),
            recurrent_kernel,
            kernel[self.embedding_size :],
            tf.cast(self.lstm.bias, dtype),
        )
        return attention_lstm_sequence(
            project(embeddings, kernel[: self.embedding_size]),
            memory,
            weights,
            context_scale,
            tf.cast(clip_bound, dtype),
            self.lstm.output_activation,
        )

    def probabilities(self, queries: tf.Tensor, keys: tf.Tensor, score_bias: tf.Tensor) -> tf.Tensor:
        """Eq. 4 for one step, up to the context.

        Args:
          queries: float [rows, attention_units], the bottom layer's outputs through `query_kernel`.
          keys: float [rows, source_length, attention_units], those of each row's sentence.
          score_bias: float [rows, source_length], likewise.

        Returns:
          float [rows, source_length].
        """
        hidden = tf.tanh(keys + queries[:, None])
        # One product over all positions; with its axes apart TensorFlow would make one for each row.
        flat = tf.reshape(hidden, [-1, self.attention_units])
        scores = tf.reshape(tf.linalg.matvec(flat, self.score_kernel), tf.shape(hidden)[:-1])
        return tf.nn.softmax(scores + score_bias)

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the layer."""
        return super().get_config() | {
            "lstm": keras.layers.serialize(self.lstm),
            "attention_units": self.attention_units,
            "memory_size": self.memory_size,
            "init_scale": self.init_scale,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AttentionLSTM":
        """The inverse of `get_config`."""
        lstm = keras.layers.deserialize(config["lstm"], custom_objects={"ClippedLSTM": ClippedLSTM})
        return cls(**(config | {"lstm": lstm}))

"""The softmax layer's product, with the clip of eq. 13. Reads the top decoder layer, gives logits."""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.layers.initializers import uniform
from gnmt_tf.layers.products import project
from gnmt_tf.layers.projected_cross_entropy import CrossEntropySums, Labels, projected_cross_entropy
from gnmt_tf.layers.weight_quantizer import WeightQuantizer


class OutputProjection(keras.layers.Layer):
    """Logits over the target vocabulary.

    Call: `layer(inputs, logit_bound, embeddings=None)` with inputs float [batch_size, num_units] or
    [batch_size, length, num_units]; gives float [..., vocab_size] in [-logit_bound, logit_bound]. Knows nothing of
    padding.

    Args:
      vocab_size: pieces in the vocabulary.
      init_scale: weights start uniform in [-init_scale, init_scale]; biases start at 0.
      tied: whether the weights are those of the target embedding, float [vocab_size, num_units], which every call then
        has to be given.
    """

    def __init__(self, vocab_size: int, init_scale: float = 0.04, tied: bool = False, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.vocab_size = vocab_size
        self.init_scale = init_scale
        self.tied = tied
        self.weight_quantizer: WeightQuantizer | None = None

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs whose last axis is known."""
        if not self.tied:
            self.own_kernel = self.add_weight(
                "kernel", [input_shape[-1], self.vocab_size], initializer=uniform(self.init_scale)
            )
        self.bias = self.add_weight("bias", [self.vocab_size], initializer="zeros")
        self.built = True

    def call(self, inputs: tf.Tensor, logit_bound: tf.Tensor | float, embeddings: tf.Tensor | None = None) -> tf.Tensor:
        """See the class."""
        if self.tied and inputs.shape.rank == 2:
            sums = tf.matmul(inputs, self._quantized(embeddings, -1), transpose_b=True)
        else:
            sums = project(inputs, self.kernel(embeddings))
        return tf.clip_by_value(sums + self.bias, -logit_bound, logit_bound)

    def part(self, ids: tf.Tensor, embeddings: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Weights and biases of some pieces: ids int32 [n] -> float [num_units, n] and [n]."""
        if self.tied:
            kernel = tf.transpose(self._quantized(tf.gather(embeddings, ids), -1))
        else:
            kernel = self._quantized(tf.gather(self.own_kernel, ids, axis=1), 0)
        return kernel, tf.gather(self.bias, ids)

    def cross_entropy(
        self, inputs: tf.Tensor, labels: Labels, logit_bound: tf.Tensor | float, embeddings: tf.Tensor | None = None
    ) -> CrossEntropySums:
        """Loss of inputs float [batch_size, length, num_units] without all logits: see `projected_cross_entropy`."""
        return projected_cross_entropy(inputs, self.kernel(embeddings), self.bias, labels, logit_bound)

    def kernel(self, embeddings: tf.Tensor | None = None) -> tf.Tensor:
        """The weights, or what these are through `weight_quantizer`: float [num_units, vocab_size]."""
        if self.tied:
            return tf.transpose(self._quantized(embeddings, -1))
        return tf.convert_to_tensor(self._quantized(self.own_kernel, 0))

    def _quantized(self, weights: tf.Tensor, axis: int) -> tf.Tensor:
        return weights if self.weight_quantizer is None else self.weight_quantizer(weights, axis)

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the layer."""
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "init_scale": self.init_scale,
            "tied": self.tied,
        }

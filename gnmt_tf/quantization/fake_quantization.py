"""Training for int8: the layers see their weights rounded as the engine will round them.

Reads a GNMT that is to be trained; afterwards everything that it computes, the loss, its gradients and the search of
the evaluations, uses the weights of eq. 12 in place of the float ones, which the optimizer goes on moving.
"""

from typing import Any

import tensorflow as tf

from gnmt_tf.layers.clipped_lstm import ClippedLSTM
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.quantizer_interface import Quantizer
from gnmt_tf.quantization.row_wise import INT8_MAX


class RowWiseQuantizer(Quantizer):
    """Eq. 12 with 8 bits as a quantizer of `tensorflow_model_optimization`: round(W / s * 127) * s / 127, s the largest
    magnitude of each row.

    The gradient is that of the identity: no element is beyond the largest one, so none is cut off. The row maxima come
    from the weights at every call; there is nothing to learn or to keep.

    Args:
      axis: the axis that counts the elements of a row; 0 for kernels [input_size, num_units], where a row of eq. 12, an
        output unit, is a column.
    """

    def __init__(self, axis: int = 0):
        self.axis = axis

    def build(self, tensor_shape: Any, name: str, layer: Any) -> dict[str, tf.Variable]:
        """No variables."""
        return {}

    def __call__(self, inputs: tf.Tensor, training: bool, weights: dict[str, tf.Variable], **kwargs: Any) -> tf.Tensor:
        """float of any shape -> the same shape. Training or not makes no difference."""

        @tf.custom_gradient
        def round_rows(values: tf.Tensor):
            return _rounded(values, self.axis), lambda d_outputs: d_outputs

        return round_rows(tf.convert_to_tensor(inputs))

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild it."""
        return {"axis": self.axis}


def fake_quantize(model: GNMT) -> None:
    """Gives every layer that the engine quantises the quantizer: LSTMs, embeddings, output projection.

    Args:
      model: before any function of it is traced.
    """
    by_axis = {axis: RowWiseQuantizer(axis) for axis in (-1, 0)}

    def quantize(values: tf.Tensor, axis: int) -> tf.Tensor:
        return by_axis[axis](values, True, {})

    model.weight_quantizer = model.output_projection.weight_quantizer = quantize
    for layer in model.submodules:
        if isinstance(layer, ClippedLSTM):
            layer.weight_quantizer = quantize


def _rounded(values: tf.Tensor, axis: int) -> tf.Tensor:
    row_max = tf.reduce_max(tf.abs(values), axis=axis, keepdims=True)
    safe = tf.where(row_max > 0, row_max, tf.ones([], values.dtype))
    return tf.round(values / safe * INT8_MAX) * (row_max / INT8_MAX)

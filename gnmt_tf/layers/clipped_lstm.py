"""One LSTM layer of GNMT: weights, whole-sequence form for training, one-step form for decoding.

Reads what the layer below gives; gives the outputs `m` of eq. 11. Residuals and the clip of `x` belong to the stacks.
"""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.layers.initializers import uniform
from gnmt_tf.layers.lstm_sequence import OutputActivation, cell_step, lstm_sequence
from gnmt_tf.layers.products import project
from gnmt_tf.layers.weight_quantizer import WeightQuantizer


class ClippedLSTM(keras.layers.Layer):
    """LSTM with a clipped cell state (eq. 10, 11).

    Call: `layer(inputs, clip_bound)` with inputs float [length, batch_size, input_size] (time-major: the stacks turn
    the axes once) and a scalar clip bound; gives float [length, batch_size, num_units]. The start state is zero.
    Padding on the right needs no mask: no real step depends on it. For the backward direction reverse the inputs by
    length first. The dtype of the inputs is that of all products; the weights are float32.

    Args:
      num_units: width of the state.
      output_activation: `linear` (eq. 11 as printed) or `tanh`.
      init_scale: weights start uniform in [-init_scale, init_scale].
      forget_gate_bias: start value of the forget gate's bias; the others start at 0.
    """

    def __init__(
        self,
        num_units: int,
        output_activation: OutputActivation = "linear",
        init_scale: float = 0.04,
        forget_gate_bias: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.num_units = num_units
        self.output_activation: OutputActivation = output_activation
        self.init_scale = init_scale
        self.forget_gate_bias = forget_gate_bias
        self.weight_quantizer: WeightQuantizer | None = None

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs whose last axis is known."""
        gates = 4 * self.num_units
        self.kernel = self.add_weight("kernel", [input_shape[-1], gates], initializer=uniform(self.init_scale))
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", [self.num_units, gates], initializer=uniform(self.init_scale)
        )
        self.bias = self.add_weight("bias", [gates], initializer=self._initial_bias)
        self.built = True

    def call(self, inputs: tf.Tensor, clip_bound: tf.Tensor) -> tf.Tensor:
        """See the class."""
        kernel, recurrent_kernel = (tf.cast(weights, inputs.dtype) for weights in self.kernels())
        clip_bound = tf.cast(clip_bound, inputs.dtype)
        bias = tf.cast(self.bias, inputs.dtype)
        return lstm_sequence(project(inputs, kernel), bias, recurrent_kernel, clip_bound, self.output_activation)

    def kernels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """What meets the inputs, float [input_size, 4 * num_units], and the layer's own output, [num_units, same].

        They are the weights, or what these are through `weight_quantizer`. A row of eq. 12 is an output unit with all
        its inputs, from below and from the layer itself.
        """
        if self.weight_quantizer is None:
            return self.kernel, self.recurrent_kernel
        joined = self.weight_quantizer(tf.concat([self.kernel, self.recurrent_kernel], axis=0), 0)
        return joined[: self.kernel.shape[0]], joined[self.kernel.shape[0] :]

    def step(
        self,
        inputs: tf.Tensor,
        state: tuple[tf.Tensor, tf.Tensor],
        further_sums: tf.Tensor,
        clip_bound: tf.Tensor | float,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One step.

        Args:
          inputs: float [rows, n], which meet the first n rows of the kernel.
          state: c and m, float [rows, num_units].
          further_sums: float [rows, 4 * num_units], what the rest of the inputs give with the rest of the kernel.
          clip_bound: scalar delta of eq. 10.

        Returns:
          The new c and m.
        """
        c, m = state
        kernel, recurrent_kernel = self.kernels()
        sums = tf.matmul(inputs, kernel[: inputs.shape[-1]]) + tf.matmul(m, recurrent_kernel)
        step = cell_step(sums + self.bias + further_sums, c, clip_bound, self.output_activation, units_axis=1)
        return step.c, step.m

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the layer."""
        return super().get_config() | {
            "num_units": self.num_units,
            "output_activation": self.output_activation,
            "init_scale": self.init_scale,
            "forget_gate_bias": self.forget_gate_bias,
        }

    def _initial_bias(self, shape: Any, dtype: Any = None, **_: Any) -> tf.Tensor:
        zeros = tf.zeros([self.num_units], dtype)
        return tf.concat([zeros, zeros, zeros + self.forget_gate_bias, zeros], axis=0)

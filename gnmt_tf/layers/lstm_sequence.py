"""The LSTM of eq. 11 over a whole sequence, with its gradient written out.

Reads time-major inputs that the layer has already projected; gives the outputs `m` of every step. The loop holds only
what depends on the previous step; the weight gradients are one product over all steps, after the loop. The same code is
what XLA compiles for a CPU, a GPU and a TPU.
"""

from typing import Literal, NamedTuple

import tensorflow as tf

OutputActivation = Literal["linear", "tanh"]


class CellStep(NamedTuple):
    """One step of the cell: what the gradient needs, each float [batch_size, num_units], gates four times as wide."""

    c: tf.Tensor
    m: tf.Tensor
    gates: tf.Tensor


def cell_step(preactivation: tf.Tensor, c: tf.Tensor, clip_bound: tf.Tensor, output_activation: str) -> CellStep:
    """Eq. 11 with the clip of eq. 10.

    Args:
      preactivation: [batch_size, 4 * num_units], the sums inside the gates in the order i, i', f, o.
      c: [batch_size, num_units], the cell state of the previous step.
      clip_bound: scalar delta; infinity means no clip.
      output_activation: `linear`, as the paper prints it, or `tanh`.
    """
    i, j, f, o = tf.split(preactivation, 4, axis=-1)
    i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
    c = tf.clip_by_value(c * f + j * i, -clip_bound, clip_bound)
    m = o * _activate(c, output_activation)
    return CellStep(c, m, tf.concat([i, j, f, o], axis=-1))


def cell_gradient(
    step: CellStep, previous_c: tf.Tensor, d_m: tf.Tensor, d_c: tf.Tensor, clip_bound: tf.Tensor, output_activation: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradient of `cell_step`, zero where the cell state was clipped.

    Args:
      step: what the forward step gave; `m` is not read.
      previous_c: [batch_size, num_units].
      d_m: [batch_size, num_units], gradient of the output.
      d_c: [batch_size, num_units], gradient that later steps sent to the cell state.

    Returns:
      Gradients of the preactivation [batch_size, 4 * num_units] and of the previous cell state.
    """
    i, j, f, o = tf.split(step.gates, 4, axis=-1)
    activated = _activate(step.c, output_activation)
    slope = 1.0 - activated * activated if output_activation == "tanh" else 1.0
    d_c = d_c + d_m * o * slope
    d_c = tf.where(tf.abs(step.c) < clip_bound, d_c, tf.zeros_like(d_c))
    d_preactivation = tf.concat(
        [
            d_c * j * i * (1.0 - i),
            d_c * i * (1.0 - j * j),
            d_c * previous_c * f * (1.0 - f),
            d_m * activated * o * (1.0 - o),
        ],
        axis=-1,
    )
    return d_preactivation, d_c * f


def lstm_sequence(
    projected: tf.Tensor, recurrent_kernel: tf.Tensor, clip_bound: tf.Tensor, output_activation: OutputActivation
) -> tf.Tensor:
    """Runs the LSTM from a zero state; differentiable in the first two arguments.

    Args:
      projected: float [length, batch_size, 4 * num_units], `inputs @ kernel + bias` for all steps.
      recurrent_kernel: float [num_units, 4 * num_units].
      clip_bound: scalar delta of eq. 10.
      output_activation: see `cell_step`.

    Returns:
      float [length, batch_size, num_units]. Steps after the end of a right-padded sequence hold values that no earlier
      step depends on: whoever reads them masks them.
    """

    @tf.custom_gradient
    def run(projected: tf.Tensor, recurrent_kernel: tf.Tensor):
        steps = _forward(projected, recurrent_kernel, clip_bound, output_activation)

        def gradient(d_outputs: tf.Tensor):
            d_projected = _backward(steps, recurrent_kernel, d_outputs, clip_bound, output_activation)
            return d_projected, product_over_steps(shift(steps.m), d_projected)

        return steps.m, gradient

    return run(projected, recurrent_kernel)


def _forward(
    projected: tf.Tensor, recurrent_kernel: tf.Tensor, clip_bound: tf.Tensor, output_activation: str
) -> CellStep:
    """All steps, each field with the steps as a first axis."""
    num_units = recurrent_kernel.shape[0]
    zeros, length = zero_state(projected, num_units)

    def step(t, c, m, arrays):
        cell = cell_step(projected[t] + tf.matmul(m, recurrent_kernel), c, clip_bound, output_activation)
        return t + 1, cell.c, cell.m, tuple(a.write(t, v) for a, v in zip(arrays, cell, strict=True))

    arrays = tuple(step_array(projected, length, width) for width in (num_units, num_units, 4 * num_units))
    *_, arrays = tf.while_loop(lambda t, *_: t < length, step, (0, zeros, zeros, arrays), maximum_iterations=length)
    return CellStep(*(array.stack() for array in arrays))


def _backward(
    steps: CellStep,
    recurrent_kernel: tf.Tensor,
    d_outputs: tf.Tensor,
    clip_bound: tf.Tensor,
    output_activation: str,
) -> tf.Tensor:
    """Gradient of `projected`, from the last step to the first."""
    num_units = recurrent_kernel.shape[0]
    previous_c = shift(steps.c)
    zeros, length = zero_state(d_outputs, num_units)

    def step(t, d_c, d_m, d_projected):
        cell = CellStep(steps.c[t], steps.m[t], steps.gates[t])
        d_sums, d_c = cell_gradient(cell, previous_c[t], d_outputs[t] + d_m, d_c, clip_bound, output_activation)
        return t - 1, d_c, tf.matmul(d_sums, recurrent_kernel, transpose_b=True), d_projected.write(t, d_sums)

    start = (length - 1, zeros, zeros, step_array(d_outputs, length, 4 * num_units))
    *_, d_projected = tf.while_loop(lambda t, *_: t >= 0, step, start, maximum_iterations=length)
    return d_projected.stack()


def zero_state(steps: tf.Tensor, num_units: int) -> tuple[tf.Tensor, int | tf.Tensor]:
    """Zeros [batch_size, num_units] and the length, for steps [length, batch_size, ...]; static where it is known."""
    length, batch_size = (size or tf.shape(steps)[axis] for axis, size in enumerate(steps.shape[:2]))
    return tf.zeros([batch_size, num_units], steps.dtype), length


def step_array(like: tf.Tensor, length: int | tf.Tensor, width: int | tf.Tensor) -> tf.TensorArray:
    """An array of `length` steps [batch_size, width] with the dtype and batch of `like` [length, batch_size, ...]."""
    return tf.TensorArray(like.dtype, length, element_shape=[like.shape[1], width])


def shift(values: tf.Tensor) -> tf.Tensor:
    """What each step saw of the previous one: [length, ...] moved one step later, zeros first."""
    return tf.concat([tf.zeros_like(values[:1]), values[:-1]], axis=0)


def product_over_steps(inputs: tf.Tensor, d_outputs: tf.Tensor) -> tf.Tensor:
    """Weight gradient of a product made at every step: [length, batch, n], [length, batch, k] -> [n, k]."""
    inputs = tf.reshape(inputs, [-1, inputs.shape[-1]])
    return tf.matmul(inputs, tf.reshape(d_outputs, [-1, d_outputs.shape[-1]]), transpose_a=True)


def _activate(c: tf.Tensor, output_activation: str) -> tf.Tensor:
    return tf.tanh(c) if output_activation == "tanh" else c

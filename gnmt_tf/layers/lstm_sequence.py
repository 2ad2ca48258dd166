"""The LSTM of eq. 11 over a whole sequence, with its gradient written out.

Reads time-major inputs that the layer has already projected; gives the outputs `m` of every step. The loop holds no
product but the recurrent one; the weight gradients are one product over all steps, after the loop. The same code is
what XLA compiles for a CPU, a GPU and a TPU.

Inside the loops units come before sentences: a product [4 * num_units, num_units] x [num_units, batch_size] runs
faster on a CPU than the same the other way round, and turning all steps at once, before and after, is cheap.
"""

from typing import Literal, NamedTuple

import tensorflow as tf

from gnmt_tf.layers.products import product_over_steps

OutputActivation = Literal["linear", "tanh"]


class CellStep(NamedTuple):
    """One step of the cell: what the gradient needs, float [num_units, batch_size], gates [4 * num_units, batch_size].

    For a single decoding step the axes are the other way round.
    """

    c: tf.Tensor
    m: tf.Tensor
    gates: tf.Tensor


class CellSlopes(NamedTuple):
    """What the backward loop multiplies with, made for all steps at once and read step by step.

    Fields:
      sums: [length, 4 * num_units, batch_size], from the gradient of c (first three gates) or m (last gate) to that of
        the sums inside the gates.
      output: [length, num_units, batch_size], from the gradient of m to that of c.
      carry: [length, num_units, batch_size], from the gradient of the next step's c to that of this one's.
    """

    sums: tf.Tensor
    output: tf.Tensor
    carry: tf.Tensor


def cell_step(
    sums: tf.Tensor, c: tf.Tensor, clip_bound: tf.Tensor | float, output_activation: str, units_axis: int = 0
) -> CellStep:
    """Eq. 11 with the clip of eq. 10.

    Args:
      sums: [4 * num_units, batch_size], the sums inside the gates in the order i, i', f, o.
      c: [num_units, batch_size], the cell state of the previous step.
      clip_bound: scalar delta; infinity means no clip.
      output_activation: `linear`, as the paper prints it, or `tanh`.
      units_axis: 1 when sentences come before units.
    """
    # s(x) = (1 + tanh(x / 2)) / 2, so that one expression serves all four gates: a compiler makes one vectorised loop
    # of it, where four kinds of columns side by side would be told apart element by element.
    half = tf.repeat(_half(sums.dtype), c.shape[units_axis])
    if units_axis == 0:
        half = half[:, None]
    gates = half * tf.tanh(half * sums) + (1.0 - half)
    i, j, f, o = tf.split(gates, 4, axis=units_axis)
    c = tf.clip_by_value(c * f + j * i, -clip_bound, clip_bound)
    m = o * _activate(c, output_activation)
    return CellStep(c, m, gates)


def cell_slopes(steps: CellStep, clip_bound: tf.Tensor, output_activation: str) -> CellSlopes:
    """Everything in the gradient of `cell_step` that needs no gradient yet; zero where the cell state was clipped.

    Args:
      steps: what the forward loop gave, time-major.
      clip_bound, output_activation: as in `cell_step`.
    """
    gates = _split_gates(steps.gates, steps.c.shape[1])
    i, j, f, o = (gates[:, k : k + 1] for k in range(4))
    activated = _activate(steps.c, output_activation)
    previous_c = shift(steps.c)[:, None]
    # Each gate's factor in the cell: i' for i, i for i', the previous c for f, the activated c for o.
    number = tf.range(4)[:, None, None]
    factor = tf.where(number == 0, j, tf.where(number == 1, i, tf.where(number == 2, previous_c, activated[:, None])))
    half = _half(gates.dtype)[:, None, None]
    # The slope of the gate itself: g (1 - g) for a sigmoid, 1 - g * g for a tanh.
    sums = factor * (half * half - tf.square(gates - (1.0 - half)))
    slope = 1.0 - activated * activated if output_activation == "tanh" else tf.ones_like(activated)
    open_ = tf.cast(tf.abs(steps.c) < clip_bound, gates.dtype)
    next_f = tf.concat([f[1:, 0], tf.zeros_like(f[:1, 0])], axis=0)
    return CellSlopes(tf.reshape(sums, tf.shape(steps.gates)), open_ * slope * o[:, 0], open_ * next_f)


def cell_gradient(slopes: CellSlopes, d_m: tf.Tensor, next_d_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradient of `cell_step`.

    Args:
      slopes: those of this step, without the axis of steps.
      d_m: [num_units, batch_size], gradient of the output.
      next_d_c: [num_units, batch_size], gradient of the next step's cell state, zero after the last step.

    Returns:
      Gradients of the sums inside the gates [4 * num_units, batch_size] and of this step's cell state.
    """
    d_c = slopes.carry * next_d_c + slopes.output * d_m
    is_output_gate = tf.range(4)[:, None, None] == 3
    d_sums = _split_gates(slopes.sums, d_m.shape[0]) * tf.where(is_output_gate, d_m, d_c)
    return tf.reshape(d_sums, tf.shape(slopes.sums)), d_c


def lstm_sequence(
    projected: tf.Tensor,
    bias: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    clip_bound: tf.Tensor,
    output_activation: OutputActivation,
) -> tf.Tensor:
    """Runs the LSTM from a zero state; differentiable in the first three arguments.

    Args:
      projected: float [length, batch_size, 4 * num_units], `inputs @ kernel` for all steps.
      bias: float [4 * num_units].
      recurrent_kernel: float [num_units, 4 * num_units].
      clip_bound: scalar delta of eq. 10.
      output_activation: see `cell_step`.

    Returns:
      float [length, batch_size, num_units]. Steps after the end of a right-padded sequence hold values that no earlier
      step depends on: whoever reads them masks them.
    """

    @tf.custom_gradient
    def run(projected: tf.Tensor, bias: tf.Tensor, recurrent_kernel: tf.Tensor):
        steps = _forward(projected, bias, recurrent_kernel, clip_bound, output_activation)

        def gradient(d_outputs: tf.Tensor):
            d_sums = _backward(steps, recurrent_kernel, d_outputs, clip_bound, output_activation)
            d_projected = turned(d_sums)
            return (
                d_projected,
                sum_over_steps(d_sums),
                product_over_steps(shift(steps.m), d_projected, units_first=True),
            )

        return turned(steps.m), gradient

    return run(projected, bias, recurrent_kernel)


def _forward(
    projected: tf.Tensor,
    bias: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    clip_bound: tf.Tensor,
    output_activation: str,
) -> CellStep:
    """All steps, each field with the steps as a first axis."""
    num_units = recurrent_kernel.shape[0]
    turned_kernel = tf.transpose(recurrent_kernel)
    zeros, length = zero_state(projected, num_units)

    def step(t, c, m, arrays):
        sums = arrays.gates.read(t) + bias[:, None] + tf.matmul(turned_kernel, m)
        cell = cell_step(sums, c, clip_bound, output_activation)
        return t + 1, cell.c, cell.m, CellStep(*(a.write(t, v) for a, v in zip(arrays, cell, strict=True)))

    c, m = (step_array(zeros, length) for _ in range(2))
    # The gates of a step take the place of what was projected for it, which nothing reads again.
    arrays = CellStep(c, m, overwritten(turned(projected), length))
    *_, arrays = tf.while_loop(lambda t, *_: t < length, step, (0, zeros, zeros, arrays), maximum_iterations=length)
    return CellStep(*(array.stack() for array in arrays))


def _backward(
    steps: CellStep,
    recurrent_kernel: tf.Tensor,
    d_outputs: tf.Tensor,
    clip_bound: tf.Tensor,
    output_activation: str,
) -> tf.Tensor:
    """Gradient of the sums inside the gates, [length, 4 * num_units, batch_size], from the last step to the first."""
    slopes = cell_slopes(steps, clip_bound, output_activation)
    zeros, length = zero_state(d_outputs, recurrent_kernel.shape[0])
    d_outputs = turned(d_outputs)

    def step(t, d_c, d_m, d_sums):
        step_slopes = CellSlopes(d_sums.read(t), slopes.output[t], slopes.carry[t])
        d_step_sums, d_c = cell_gradient(step_slopes, d_outputs[t] + d_m, d_c)
        d_sums, d_step_sums = written(d_sums, t, d_step_sums)
        return t - 1, d_c, tf.matmul(recurrent_kernel, d_step_sums), d_sums

    start = (length - 1, zeros, zeros, overwritten(slopes.sums, length))
    *_, d_sums = tf.while_loop(lambda t, *_: t >= 0, step, start, maximum_iterations=length)
    return d_sums.stack()


def zero_state(steps: tf.Tensor, num_units: int) -> tuple[tf.Tensor, int | tf.Tensor]:
    """Zeros [num_units, batch_size] and the length, for steps [length, batch_size, ...]; static where it is known."""
    length, batch_size = (size or tf.shape(steps)[axis] for axis, size in enumerate(steps.shape[:2]))
    return tf.zeros([num_units, batch_size], steps.dtype), length


def step_array(like: tf.Tensor, length: int | tf.Tensor) -> tf.TensorArray:
    """An array of `length` steps with the dtype and shape of `like`."""
    return tf.TensorArray(like.dtype, length, element_shape=like.shape)


def overwritten(values: tf.Tensor, length: int | tf.Tensor) -> tf.TensorArray:
    """An array that holds `values` [length, ...] until each of its steps is written anew.

    A compiled loop then needs no second buffer of that size, nor the time to fill it with zeros.
    """
    array = tf.TensorArray(values.dtype, length, element_shape=values.shape[1:], clear_after_read=False)
    return array.unstack(values)


def written(array: tf.TensorArray, t: tf.Tensor, values: tf.Tensor) -> tuple[tf.TensorArray, tf.Tensor]:
    """The array with step `t` written, and what stands there now.

    To go on with what was written rather than with `values` tells XLA that the old step is read once, before it is
    overwritten. Otherwise it may make `values` twice, and copies the whole array at every step to be safe.
    """
    array = array.write(t, values)
    return array, array.read(t)


def shift(values: tf.Tensor) -> tf.Tensor:
    """What each step saw of the previous one: [length, ...] moved one step later, zeros first."""
    return tf.concat([tf.zeros_like(values[:1]), values[:-1]], axis=0)


def turned(steps: tf.Tensor) -> tf.Tensor:
    """All steps with their two axes exchanged: [length, n, k] -> [length, k, n]."""
    return tf.transpose(steps, [0, 2, 1])


def sum_over_steps(d_sums: tf.Tensor) -> tf.Tensor:
    """Bias gradient: [length, 4 * num_units, batch_size] -> [4 * num_units], summed in float32."""
    return tf.cast(tf.reduce_sum(tf.cast(d_sums, tf.float32), axis=[0, 2]), d_sums.dtype)


def _split_gates(values: tf.Tensor, num_units: int) -> tf.Tensor:
    """[..., 4 * num_units, batch_size] -> [..., 4, num_units, batch_size]."""
    shape = tf.shape(values)
    return tf.reshape(values, tf.concat([shape[:-2], [4, num_units], shape[-1:]], axis=0))


def _half(dtype: tf.DType) -> tf.Tensor:
    """What a gate's argument and value are multiplied with in `cell_step`: 1/2 for a sigmoid, 1 for a tanh."""
    return tf.constant([0.5, 1.0, 0.5, 0.5], dtype)


def _activate(c: tf.Tensor, output_activation: str) -> tf.Tensor:
    return tf.tanh(c) if output_activation == "tanh" else c

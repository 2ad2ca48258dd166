"""The large matrix products of a layer, written so that XLA makes fast programs of them on a CPU.

A product that sums over the first axis of both matrices, as every weight gradient does, runs at half speed there. With
that axis in two parts, steps and sentences, XLA cannot leave the turning of the inputs to the product: it turns
them first, which costs little, and the product takes the fast path.
"""

import tensorflow as tf


def project(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """One product over all leading axes, in the dtype of the inputs.

    Args:
      inputs: float [batch_size, n] or [length, batch_size, n], the axes before the last in either order.
      kernel: float [n, k].

    Returns:
      float [..., k].
    """
    kernel = tf.cast(kernel, inputs.dtype)
    if inputs.shape.rank == 2:
        return tf.matmul(inputs, kernel)

    @tf.custom_gradient
    def run(inputs: tf.Tensor, kernel: tf.Tensor):
        def gradient(d_outputs: tf.Tensor):
            return _product(d_outputs, kernel, transpose_b=True), product_over_steps(inputs, d_outputs)

        return _product(inputs, kernel), gradient

    return run(inputs, kernel)


def product_over_steps(inputs: tf.Tensor, d_outputs: tf.Tensor, units_first: bool = False) -> tf.Tensor:
    """Weight gradient of `project`.

    Args:
      inputs: float [length, batch_size, n], or [length, n, batch_size] when `units_first`.
      d_outputs: float [length, batch_size, k].

    Returns:
      float [n, k].
    """
    turned = tf.transpose(inputs, [1, 0, 2] if units_first else [2, 0, 1])
    turned = tf.reshape(turned, [inputs.shape[1 if units_first else 2], -1])
    return tf.matmul(turned, tf.reshape(d_outputs, [-1, d_outputs.shape[-1]]))


def _product(inputs: tf.Tensor, kernel: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), kernel, transpose_b=transpose_b)
    return tf.reshape(flat, tf.concat([tf.shape(inputs)[:-1], tf.shape(flat)[-1:]], axis=0))

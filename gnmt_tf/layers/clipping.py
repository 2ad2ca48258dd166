"""The clipping constraints of eq. 10 and 13 and their schedule over training.

Layers take the bound as a tensor, so that the schedule moves it without compiling the step again.
"""

import math

import tensorflow as tf

UNCONSTRAINED = math.inf
"""A clip bound that clips nothing."""


def clip(values: tf.Tensor, clip_bound: tf.Tensor | float) -> tf.Tensor:
    """Eq. 10: values held in [-clip_bound, clip_bound]; the gradient is zero where they were cut."""
    clip_bound = tf.cast(clip_bound, values.dtype)
    return tf.clip_by_value(values, -clip_bound, clip_bound)


def scheduled_clip_bound(step: tf.Tensor, start: float, end: float, num_steps: int) -> tf.Tensor:
    """Delta at a training step: linear from `start` at step 0 to `end` at `num_steps`, constant afterwards.

    Args:
      step: scalar integer tensor.
      start: delta at the start of training (8.0 in section 6).
      end: delta at its end (1.0).
      num_steps: steps the fall takes; positive.
    """
    progress = tf.minimum(tf.cast(step, tf.float32) / float(num_steps), 1.0)
    return start + (end - start) * progress

"""Dropout that is a function of (seed, step, place), so that a resumed run drops what the unbroken one would have.

Read by every layer's caller: a `Dropout` says how much to drop at this step; `apply` does it for one tensor.
"""

from typing import NamedTuple

import tensorflow as tf

PLACES_PER_STEP = 1024
"""Upper bound on the tensors that are dropped in one step; keeps the random streams of steps apart."""


class Dropout(NamedTuple):
    """Dropout of one training step.

    Fields:
      rate: share of elements that become zero, in (0, 1).
      seed: the run's seed.
      step: scalar int64, the training step.
    """

    rate: float
    seed: int
    step: tf.Tensor

    def scale(self, shape: list[int | tf.Tensor], place: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
        """A mask of `shape` that is 0 or 1 / (1 - rate); `place` tells tensors of the same step apart."""
        seed = tf.stack([tf.constant(self.seed, tf.int64), tf.cast(self.step, tf.int64) * PLACES_PER_STEP + place])
        uniform = tf.random.stateless_uniform(shape, seed, alg="philox")
        return tf.cast(uniform >= self.rate, dtype) / tf.cast(1.0 - self.rate, dtype)


def apply_dropout(values: tf.Tensor, dropout: Dropout | None, place: int) -> tf.Tensor:
    """Drops elements of `values` (any float tensor); returns it as it is when `dropout` is None."""
    if dropout is None:
        return values
    shape = [size if size is not None else tf.shape(values)[axis] for axis, size in enumerate(values.shape)]
    return values * dropout.scale(shape, place, values.dtype)

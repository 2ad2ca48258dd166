"""Dropout that is a function of (seed, step, place), so that a resumed run drops what the unbroken one would have.

Read by every layer's caller: a `Dropout` says how much to drop at this step; `apply_dropout` and `drop_pieces` do it
for one tensor.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.layers.random_bits import mix

PLACES_PER_STEP = 1024
"""Upper bound on the tensors that are dropped in one step; keeps the random streams of steps apart."""


class Dropout(NamedTuple):
    """Dropout of one training step.

    Fields:
      rate: share of elements that become zero, in (0, 1).
      seed: the run's seed.
      step: scalar int64, the training step.
      replica: scalar int32, which share of the global batch this is; shares are equally large.
      source_rate, target_rate: share of source and target pieces that the model does not get to see at all.
    """

    rate: float
    seed: int
    step: tf.Tensor
    replica: int | tf.Tensor = 0
    source_rate: float = 0.0
    target_rate: float = 0.0

    def scale(self, shape: list[int | tf.Tensor], place: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
        """A mask that is 0 or 1 / (1 - rate).

        A sentence pair loses the same elements whether the batch is on one device or cut up over several.

        Args:
          shape: [length, batch_size, width], the batch of this replica.
          place: tells tensors of the same step apart.
          dtype: of the mask.
        """
        stream = tf.cast(self.step, tf.uint32) * PLACES_PER_STEP + place
        key = mix(mix(stream) + tf.constant(self.seed & 0xFFFFFFFF, tf.uint32))
        # A hash of the element's number: a counter-based generator with few rounds, which a compiler fuses into the
        # product that uses the mask. The generators of tf.random cost more than the layers they would serve.
        length, batch_size, width = (tf.cast(size, tf.uint32) for size in shape)
        # Row by row, so that no number depends on how many rows there are, or on how they are shared out.
        rows = tf.cast(self.replica, tf.uint32) * batch_size + _numbers(shape[1])
        positions = rows * length + _numbers(shape[0])[:, None]
        elements = positions[:, :, None] * width + _numbers(shape[2])
        bits = mix(elements + key)
        threshold = tf.constant(min(round(self.rate * 2**32), 2**32 - 1), tf.uint32)
        return tf.cast(bits >= threshold, dtype) / tf.cast(1.0 - self.rate, dtype)


def apply_dropout(values: tf.Tensor, dropout: Dropout | None, place: int) -> tf.Tensor:
    """Drops elements of float [length, batch_size, width]; returns `values` as they are when `dropout` is None."""
    if dropout is None or not dropout.rate:
        return values
    return values * dropout.scale(_shape(values), place, values.dtype)


def drop_pieces(values: tf.Tensor, dropout: Dropout | None, rate: float, place: int) -> tf.Tensor:
    """Drops whole pieces of embeddings [length, batch_size, width] at a rate of their own (word dropout)."""
    if dropout is None or not rate:
        return values
    length, batch_size, _ = _shape(values)
    return values * dropout._replace(rate=rate).scale([length, batch_size, 1], place, values.dtype)


def _shape(values: tf.Tensor) -> list[int | tf.Tensor]:
    return [size if size is not None else tf.shape(values)[axis] for axis, size in enumerate(values.shape)]


def _numbers(size: int | tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.range(size), tf.uint32)

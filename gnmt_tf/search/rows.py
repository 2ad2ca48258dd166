"""Which slots of a search are computed: the filled ones only, with shapes that are dynamic or static.

Reads which slots hold a live hypothesis; gives `Rows`.
"""

import tensorflow as tf

from gnmt_tf.model.decoder import Rows

SMALLEST_CAPACITY = 4
MOST_CAPACITIES = 4
"""Each capacity is one more copy of the model's step in a compiled program."""


def filled_rows(filled: tf.Tensor, is_static: bool) -> Rows:
    """One row for each filled slot, in their order.

    Args:
      filled: bool [batch_size, beam_width].
      is_static: whether there have to be as many rows as slots; those of empty ones then stand at the end.
    """
    flat = tf.reshape(filled, [-1])
    is_filled = tf.cast(flat, tf.int32)
    before = tf.cumsum(is_filled, exclusive=True)
    if is_static:
        numbers = tf.range(tf.size(flat))
        # tf.argsort would say the same, but a TPU's compiler does not know what XLA makes of it.
        places = tf.where(flat, before, tf.reduce_sum(is_filled) + numbers - before)
        slots = tf.scatter_nd(places[:, None], numbers, tf.shape(flat))
    else:
        slots = tf.cast(tf.where(flat)[:, 0], tf.int32)
    row_of_slot = tf.maximum(before + is_filled - 1, 0)
    return Rows(slots, tf.reshape(row_of_slot, tf.shape(filled)))


def row_capacities(num_slots: int) -> list[int]:
    """The numbers of rows, falling, that a program of static shapes is made for."""
    capacities = [num_slots]
    while len(capacities) < MOST_CAPACITIES and capacities[-1] > SMALLEST_CAPACITY:
        capacities.append(-(-capacities[-1] // 2))
    return capacities


def with_capacity(rows: Rows, capacity: int) -> Rows:
    """The first rows alone; at most `capacity` slots may be filled."""
    return Rows(rows.slots[:capacity], tf.minimum(rows.row_of_slot, capacity - 1))

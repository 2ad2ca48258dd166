import math

import numpy as np
import pytest
import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.clipping import clip, scheduled_clip_bound
from gnmt_tf.model.loss import loss_sums


def test_the_loss_counts_real_target_pieces_only():
    # Uniform over 4 pieces: every real one costs log 4; the second row is filling.
    ids = tf.constant([[1, 3, 0], [0, 0, 0]])
    batch = Batch(ids, tf.constant([3, 0]), ids, ids, tf.constant([2, 0]))
    sums = loss_sums(tf.zeros([2, 3, 4]), batch)
    assert float(sums.num_pieces) == 2
    assert float(sums.negative_log_prob) == pytest.approx(2 * math.log(4))


@pytest.mark.parametrize(("step", "bound"), [(0, 8.0), (50, 4.5), (100, 1.0), (1000, 1.0)])
def test_the_clip_bound_falls_from_eight_to_one(step, bound):
    assert float(scheduled_clip_bound(tf.constant(step), 8.0, 1.0, 100)) == pytest.approx(bound)


def test_the_gradient_is_zero_where_a_value_was_clipped():
    values = tf.constant([-2.0, -0.5, 0.5, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(clip(values, 1.0))
    np.testing.assert_array_equal(tape.gradient(loss, values), [0.0, 1.0, 1.0, 0.0])

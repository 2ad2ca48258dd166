"""The sliced loss and its written-out gradient against autodiff through all logits at once."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.layers.projected_cross_entropy import Labels, projected_cross_entropy


def plain(outputs, kernel, bias, labels, logit_bound):
    logits = tf.clip_by_value(outputs @ kernel + bias, -logit_bound, logit_bound)
    log_probs = tf.nn.log_softmax(logits)
    negative = -tf.gather(log_probs, labels.ids, batch_dims=2)
    losses = (1.0 - labels.smoothing) * negative - labels.smoothing * tf.reduce_mean(log_probs, axis=-1)
    real = tf.sequence_mask(labels.lengths, outputs.shape[1], tf.float32)
    return tf.reduce_sum(losses * real), tf.reduce_sum(negative * real)


def with_gradients(function, arguments, *rest):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        loss, negative_log_prob = function(*arguments, *rest)
        scaled = 0.7 * loss
    return (loss, negative_log_prob), tape.gradient(scaled, arguments)


def make_case(batch_size, length, num_units, vocab_size, smoothing, seed):
    rng = np.random.default_rng(seed)
    arguments = [
        tf.constant(rng.normal(size=shape), tf.float32)
        for shape in ([batch_size, length, num_units], [num_units, vocab_size], [vocab_size])
    ]
    ids = tf.constant(rng.integers(0, vocab_size, [batch_size, length]), tf.int32)
    return arguments, Labels(ids, tf.constant(rng.integers(0, length + 1, batch_size), tf.int32), smoothing)


def assert_same(actual, expected):
    for got, wanted in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 6),
    st.sampled_from([0.3, 1.0, np.inf]),
    st.sampled_from([0.0, 0.1]),
    st.integers(0, 2**31),
)
def test_loss_and_gradients_are_those_of_autodiff(
    batch_size, length, num_units, vocab_size, rows_per_slice, logit_bound, smoothing, seed
):
    arguments, labels = make_case(batch_size, length, num_units, vocab_size, smoothing, seed)
    actual = with_gradients(projected_cross_entropy, arguments, labels, logit_bound, rows_per_slice)
    assert_same(actual, with_gradients(plain, arguments, labels, logit_bound))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_loss_gives_what_the_eager_one_gives(jit_compile):
    arguments, labels = make_case(4, 6, 4, 11, 0.1, 5)

    @tf.function(jit_compile=jit_compile)
    def run(*arguments):
        return with_gradients(projected_cross_entropy, list(arguments), labels, 0.8, 4)

    assert_same(run(*arguments), with_gradients(plain, arguments, labels, 0.8))


def test_rows_that_are_left_out_move_nothing():
    arguments, labels = make_case(2, 5, 3, 7, 0.1, 9)
    none = labels._replace(lengths=tf.zeros([2], tf.int32))
    values, gradients = with_gradients(projected_cross_entropy, arguments, none, 25.0, 4)
    for value in tf.nest.flatten([values, gradients]):
        np.testing.assert_array_equal(value, tf.zeros_like(value))


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary():
    labels = Labels(tf.constant([[1, 2, 0]]), tf.constant([2]), 0.1)
    sums = projected_cross_entropy(tf.zeros([1, 3, 2]), tf.zeros([2, 5]), tf.zeros([5]), labels, 25.0)
    assert float(sums.loss) == pytest.approx(2 * np.log(5))
    assert float(sums.negative_log_prob) == pytest.approx(2 * np.log(5))


def test_no_tensor_of_the_compiled_loss_holds_all_logits():
    batch_size, length, num_units, vocab_size = 4, 10, 3, 17
    arguments, labels = make_case(batch_size, length, num_units, vocab_size, 0.1, 2)

    @tf.function(jit_compile=True)
    def run(*arguments):
        return with_gradients(projected_cross_entropy, list(arguments), labels, 25.0, 8)

    text = run.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    assert f"f32[8,{vocab_size}]" in text
    assert f"f32[{batch_size * length},{vocab_size}]" not in text
    assert f"f32[{batch_size},{length},{vocab_size}]" not in text

"""The written-out gradients against plain autodiff through an unrolled loop of the same equations."""

import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.layers import attention_sequence as attention_module
from gnmt_tf.layers import lstm_sequence as lstm_module
from gnmt_tf.layers.attention_sequence import (
    MASKED_SCORE,
    AttentionMemory,
    AttentionWeights,
    attend,
    attention_lstm_sequence,
)
from gnmt_tf.layers.lstm_sequence import lstm_sequence
from gnmt_tf.layers.products import project

sizes = st.integers(1, 5)
bounds = st.sampled_from([0.05, 0.2, 1.0, np.inf])
activations = st.sampled_from(["linear", "tanh"])


def plain_cell(sums, c, clip_bound, output_activation):
    i, j, f, o = tf.split(sums, 4, axis=-1)
    c = tf.clip_by_value(c * tf.sigmoid(f) + tf.tanh(j) * tf.sigmoid(i), -clip_bound, clip_bound)
    return c, tf.sigmoid(o) * (tf.tanh(c) if output_activation == "tanh" else c)


def unrolled_lstm(projected, bias, recurrent_kernel, clip_bound, output_activation):
    c = m = tf.zeros([projected.shape[1], recurrent_kernel.shape[0]])
    outputs = []
    for t in range(projected.shape[0]):
        c, m = plain_cell(projected[t] + bias + m @ recurrent_kernel, c, clip_bound, output_activation)
        outputs.append(m)
    return tf.stack(outputs)


def unrolled_attention_lstm(projected, memory, weights, context_scale, clip_bound, output_activation):
    c = m = tf.zeros([projected.shape[1], weights.recurrent_kernel.shape[0]])
    outputs, contexts = [], []
    for t in range(projected.shape[0]):
        context, _, _ = attend(m @ weights.query_kernel, weights.score_kernel, memory)
        read = context if context_scale is None else context * context_scale[t]
        sums = projected[t] + weights.bias + m @ weights.recurrent_kernel + read @ weights.context_kernel
        c, m = plain_cell(sums, c, clip_bound, output_activation)
        outputs.append(m)
        contexts.append(context)
    return tf.stack(outputs), tf.stack(contexts)


def values_and_gradients(function, arguments, upstream):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        results = function(*arguments)
        loss = sum(tf.reduce_sum(result * weight) for result, weight in zip(results, upstream, strict=True))
    return results, tape.gradient(loss, arguments)


def assert_same(actual, expected):
    for got, wanted in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        scale = max(1e-3, float(tf.reduce_max(tf.abs(wanted))))
        np.testing.assert_allclose(got / scale, wanted / scale, atol=1e-4)


def random(rng, *shape, scale=1.0):
    return tf.constant(rng.normal(size=shape) * scale, tf.float32)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, sizes, bounds, activations, st.integers(0, 2**31))
def test_the_lstm_gradient_is_that_of_autodiff(length, batch_size, num_units, clip_bound, activation, seed):
    rng = np.random.default_rng(seed)
    arguments = [
        random(rng, length, batch_size, 4 * num_units),
        random(rng, 4 * num_units),
        random(rng, num_units, 4 * num_units),
    ]
    upstream = [random(rng, length, batch_size, num_units)]
    bound = tf.constant(clip_bound, tf.float32)
    actual = values_and_gradients(lambda *a: [lstm_sequence(*a, bound, activation)], arguments, upstream)
    expected = values_and_gradients(lambda *a: [unrolled_lstm(*a, bound, activation)], arguments, upstream)
    assert_same(actual, expected)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, sizes, sizes, sizes, sizes, bounds, activations, st.booleans(), st.integers(0, 2**31))
def test_the_attention_gradient_is_that_of_autodiff(
    length, batch_size, source_length, num_units, memory_size, attention_units, clip_bound, activation, drop, seed
):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, source_length + 1, size=batch_size)
    score_bias = tf.where(tf.sequence_mask(lengths, source_length), 0.0, MASKED_SCORE)
    scale = tf.constant(rng.integers(0, 2, [length, batch_size, memory_size]) * 2.0, tf.float32) if drop else None
    arguments = [
        random(rng, length, batch_size, 4 * num_units),
        random(rng, batch_size, source_length, memory_size),
        random(rng, batch_size, source_length, attention_units),
        random(rng, num_units, attention_units),
        random(rng, attention_units),
        random(rng, num_units, 4 * num_units),
        random(rng, memory_size, 4 * num_units),
        random(rng, 4 * num_units),
    ]
    upstream = [random(rng, length, batch_size, num_units), random(rng, length, batch_size, memory_size)]
    bound = tf.constant(clip_bound, tf.float32)

    def with_function(function):
        def run(projected, values, keys, *weights):
            memory = AttentionMemory(values, keys, score_bias)
            return function(projected, memory, AttentionWeights(*weights), scale, bound, activation)[:2]

        return values_and_gradients(run, arguments, upstream)

    assert_same(with_function(attention_lstm_sequence), with_function(unrolled_attention_lstm))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_step_gives_what_the_eager_one_gives(jit_compile):
    rng = np.random.default_rng(3)
    arguments = random(rng, 5, 3, 16), random(rng, 16), random(rng, 4, 16)
    bound = tf.constant(0.3)

    def run(*arguments):
        return values_and_gradients(
            lambda *a: [lstm_sequence(*a, bound, "linear")], list(arguments), [tf.ones([5, 3, 4])]
        )

    assert_same(tf.function(run, jit_compile=jit_compile)(*arguments), run(*arguments))


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, sizes, sizes, st.integers(0, 2**31))
def test_the_gradient_of_a_product_over_all_steps_is_that_of_autodiff(length, batch_size, n, k, seed):
    rng = np.random.default_rng(seed)
    arguments = [random(rng, length, batch_size, n), random(rng, n, k)]
    upstream = [random(rng, length, batch_size, k)]
    assert_same(
        values_and_gradients(lambda *a: [project(*a)], arguments, upstream),
        values_and_gradients(lambda *a: [tf.einsum("tbn,nk->tbk", *a)], arguments, upstream),
    )


def copies_in_loops(function, arguments, upstream):
    """The shapes that a loop of the compiled gradient copies whole at every step."""

    @tf.function(jit_compile=True, autograph=False)
    def compiled(*arguments):
        return values_and_gradients(function, list(arguments), upstream)

    text = compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    computations = dict(re.findall(r"^(?:ENTRY )?%?([\w.-]+) \(.*?\{$(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    bodies = set(re.findall(r"body=%?([\w.-]+)", text))
    assert bodies
    return [shape for body in bodies for shape in re.findall(r"= (\S+?)(?:\{\S*)? copy\(", computations[body])]


@pytest.mark.parametrize("careless", [False, True])
def test_no_step_of_the_compiled_loops_copies_what_it_writes_into(careless, monkeypatch):
    # At every step XLA once copied the whole array that the backward loop writes its gradients into, twice.
    rng = np.random.default_rng(4)
    length, batch_size, source_length, num_units, memory_size, attention_units = 7, 6, 11, 5, 9, 8
    bound = tf.constant(0.3)
    lstm = [random(rng, length, batch_size, 4 * num_units), random(rng, 4 * num_units)]
    lstm.append(random(rng, num_units, 4 * num_units))
    attention = [
        lstm[0],
        random(rng, batch_size, source_length, memory_size),
        random(rng, batch_size, source_length, attention_units),
        random(rng, num_units, attention_units),
        random(rng, attention_units),
        lstm[2],
        random(rng, memory_size, 4 * num_units),
        lstm[1],
    ]
    score_bias = tf.zeros([batch_size, source_length])
    scale = random(rng, length, batch_size, memory_size)
    if careless:
        # That the search for copies finds them where they are.
        for module in (lstm_module, attention_module):
            monkeypatch.setattr(module, "written", lambda array, t, values: (array.write(t, values), values))

    def with_attention(projected, values, keys, *weights):
        memory = AttentionMemory(values, keys, score_bias)
        return attention_lstm_sequence(projected, memory, AttentionWeights(*weights), scale, bound, "linear")[:2]

    outputs, contexts = (random(rng, length, batch_size, width) for width in (num_units, memory_size))
    cases = [
        (lambda *a: [lstm_sequence(*a, bound, "linear")], lstm, [outputs]),
        (with_attention, attention, [outputs, contexts]),
    ]
    for function, arguments, upstream in cases:
        copied = copies_in_loops(function, arguments, upstream)
        assert any(shape.startswith(f"f32[{length},") for shape in copied) == careless

"""The integer and floating-point functions that the engine is made of, against what they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gnmt_tf.quantization import float_math
from gnmt_tf.quantization.fixed_point import (
    clamp16,
    gate_inputs,
    multiply,
    products,
    quantize_fixed,
    quantize_float,
    sigmoid16,
    tanh16,
)
from gnmt_tf.quantization.row_wise import quantize_rows

ALL_INT16 = np.arange(-32767, 32768).astype(np.int16)


def test_equation_12_by_hand():
    rows = quantize_rows(np.array([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [2.0, 1.0, -0.01]]))
    # 0.5 / 1 * 127 = 63.5, which rounds to the even 64; 0.25 / 1 * 127 = 31.75.
    assert rows.values.tolist() == [[64, -127, 32], [0, 0, 0], [127, 64, -1]]
    assert rows.row_max.tolist() == [1.0, 0.0, 2.0]


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=st.floats(-1e6, 1e6, width=32)))
def test_a_quantised_row_is_within_half_a_step(weights):
    rows = quantize_rows(weights)
    assert rows.values.min() >= -127
    step = rows.row_max / 127
    assert (np.abs(rows.dequantized() - weights) <= step[:, None] * 0.5001 + 1e-30).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        quantize_rows(np.array([[1.0, bad]]))


def test_integer_tanh_and_sigmoid_are_close_odd_and_monotonic():
    tanh, sigmoid = (f(ALL_INT16).astype(np.int64) for f in (tanh16, sigmoid16))
    x = ALL_INT16.astype(np.float64) / 4096
    assert np.abs(tanh / 32767 - np.tanh(x)).max() < 1.3e-4
    assert np.abs(sigmoid / 32767 - 1 / (1 + np.exp(-2 * x))).max() < 1.3e-4
    assert tanh[32767] == 0
    assert np.abs(tanh + tanh[::-1]).max() <= 1
    assert (np.diff(tanh) >= 0).all()
    assert (np.diff(sigmoid) >= 0).all()
    assert sigmoid.min() >= 0


def test_products_of_fixed_point_numbers():
    assert multiply(np.array([32767, -32767, 16384, 1], np.int16), np.array([32767, 32767, 16384, 16384])).tolist() == [
        32766, -32766, 8192, 1,
    ]  # fmt: skip
    assert clamp16(np.array([40000, -40000, 5])).tolist() == [32767, -32767, 5]


def test_gate_inputs_are_rounded_to_even_and_held_in_range():
    values = np.array([0.5, 1.5, -0.5, 1e9, -1e9, 32766.7], np.float32)
    assert gate_inputs(values).tolist() == [0, 2, 0, 32767, -32767, 32767]


def test_a_row_of_activations_uses_the_range_of_int8_whatever_stands_beside_it():
    values = np.array([[100, -50, 0], [0, 0, 0], [-32767, 32767, 300]], np.int16)
    rows = quantize_fixed(values, np.float32(2.0**-15))
    assert rows.values.tolist() == [[127, -64, 0], [0, 0, 0], [-127, 127, 1]]
    np.testing.assert_allclose(rows.scales, np.array([100, 0, 32767]) / 127 * 2.0**-15, rtol=1e-6)
    alone = quantize_fixed(values[:1], np.float32(2.0**-15))
    np.testing.assert_array_equal(alone.values, rows.values[:1])
    np.testing.assert_array_equal(alone.scales, rows.scales[:1])


@given(hnp.arrays(np.float32, st.integers(1, 9), elements=st.floats(-100, 100, width=32)))
def test_quantised_activations_are_within_half_a_step(values):
    rows = quantize_float(values[None])
    assert (np.abs(rows.values[0] * rows.scales[0] - values) <= rows.scales[0] * 0.501 + 1e-30).all()


def test_products_are_exact_at_the_extremes():
    # 4096 products of 127 * 127 are far beyond 16 bits, and pairs of them at its very edge.
    weights, activations = np.full([2, 4096], 127, np.int8), np.full([1, 4096], -127, np.int8)
    assert products(weights, activations).tolist() == [[-127 * 127 * 4096] * 2]


def test_exp_tanh_and_log_are_those_of_mathematics():
    x = np.linspace(-87, 0, 20001).astype(np.float32)
    np.testing.assert_allclose(float_math.exp(x), np.exp(x.astype(np.float64)), rtol=2e-7)
    assert float_math.exp(np.float32(0.0)) == 1.0
    assert 0 < float_math.exp(np.float32(-1e30)) < 1e-37
    x = np.linspace(-20, 20, 20001).astype(np.float32)
    np.testing.assert_allclose(float_math.tanh(x), np.tanh(x.astype(np.float64)), atol=2e-7)
    assert float_math.tanh(np.float32(0.0)) == 0.0
    x = np.exp(np.linspace(-80, 80, 20001)).astype(np.float32)
    np.testing.assert_allclose(float_math.log(x), np.log(x.astype(np.float64)), rtol=1e-7, atol=1e-30)


@given(hnp.arrays(np.float32, st.integers(1, 70), elements=st.floats(-10, 10, width=32)))
def test_a_lane_sum_is_a_sum(values):
    np.testing.assert_allclose(float_math.lane_sum(values), values.astype(np.float64).sum(), atol=1e-4)


def test_the_order_of_a_lane_sum_by_hand():
    # Lane 0 adds 1e8, then -1e8, and has 0; lane 1 has 1: in the order of the array the 1 would have been lost.
    values = np.zeros(18, np.float32)
    values[[0, 1, 16]] = 1e8, 1.0, -1e8
    assert float_math.lane_sum(values) == 1.0


def test_softmax_and_normaliser():
    scores = np.random.default_rng(1).normal(size=[3, 37]).astype(np.float32) * 5
    expected = np.exp(scores.astype(np.float64))
    np.testing.assert_allclose(float_math.softmax(scores), expected / expected.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(float_math.log_normaliser(scores, 25.0), np.log(expected.sum(axis=1)), rtol=2e-6)


def test_the_normaliser_of_many_pieces_and_of_logits_far_below_the_bound():
    for shift in (0.0, -50.0):
        logits = np.linspace(-1, 1, 3000).astype(np.float32) + np.float32(25.0 + shift - 1.0)
        expected = np.log(np.exp(logits.astype(np.float64)).sum())
        np.testing.assert_allclose(float_math.log_normaliser(logits, 25.0), expected, rtol=2e-6)

"""The engine's integer arithmetic, in NumPy and to the bit (paper, section 6).

State and outputs of an LSTM are int16 that stand for `value * clip_bound / 32767`; gates are int16 that stand for
`value / 32767`. Nothing here depends on what else is in a batch.
"""

from typing import NamedTuple

import numpy as np

from gnmt_tf.quantization.row_wise import INT8_MAX

INT16_MAX = 32767
"""Values lie in [-32767, 32767], so that every value has a negative."""
GATE_INPUT_SCALE = 4096.0
"""What goes into a gate is an int16 that stands for value / 4096, from -8 to 8."""
TANH_SEGMENTS = 512
"""The table of tanh has so many segments of 128 inputs each; between its points the line is straight."""
SEGMENT_BITS = 7


class QuantizedActivations(NamedTuple):
    """Rows of activations, ready for an int8 product.

    Fields:
      values: int8 [num_rows, size].
      scales: float32 [num_rows]; value * scale is the activation.
    """

    values: np.ndarray
    scales: np.ndarray


def clamp16(values: np.ndarray) -> np.ndarray:
    """Any integers -> int16 in [-32767, 32767]."""
    return np.clip(values, -INT16_MAX, INT16_MAX).astype(np.int16)


def multiply(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    """Product of two int16 of which one stands for value / 32768: (a * b + 2**14) >> 15, as one instruction does it."""
    return ((a.astype(np.int32) * np.asarray(b, np.int32) + (1 << 14)) >> 15).astype(np.int16)


def tanh_table() -> tuple[np.ndarray, np.ndarray]:
    """The points of the table and the steps to the next ones, int32 [512] each."""
    segment = np.arange(TANH_SEGMENTS + 1) - TANH_SEGMENTS // 2
    points = np.rint(INT16_MAX * np.tanh(segment * (1 << SEGMENT_BITS) / GATE_INPUT_SCALE)).astype(np.int32)
    return points[:-1], np.diff(points)


_POINTS, _STEPS = tanh_table()


def tanh16(values: np.ndarray) -> np.ndarray:
    """tanh of int16 that stand for value / 4096, as int16 that stand for value / 32767; within 1.2e-4."""
    shifted = values.astype(np.int32) + (1 << 15)
    segment, within = shifted >> SEGMENT_BITS, shifted & ((1 << SEGMENT_BITS) - 1)
    half = 1 << (SEGMENT_BITS - 1)
    return (_POINTS[segment] + ((_STEPS[segment] * within + half) >> SEGMENT_BITS)).astype(np.int16)


def sigmoid16(half_values: np.ndarray) -> np.ndarray:
    """The sigmoid of x from x / 2: (1 + tanh(x / 2)) / 2, in [0, 32767]."""
    return ((tanh16(half_values).astype(np.int32) + (1 << 15)) >> 1).astype(np.int16)


def gate_inputs(sums: np.ndarray) -> np.ndarray:
    """float32 sums, already times 4096, -> int16; rounded to the nearest, ties to even, and held in range."""
    return np.rint(np.clip(sums, np.float32(-INT16_MAX), np.float32(INT16_MAX))).astype(np.int16)


def quantize_fixed(values: np.ndarray, unit: np.float32) -> QuantizedActivations:
    """int16 [num_rows, size], each worth `unit`, -> int8 with a scale for each row, which uses all of int8's range."""
    return quantize_float(values.astype(np.float32), unit)


def quantize_float(values: np.ndarray, unit: np.float32 | float = 1.0) -> QuantizedActivations:
    """float32 [num_rows, size], each worth `unit`, -> int8 with a scale for each row.

    A row's largest magnitude becomes 127, so that a row's integers depend on nothing but the row.
    """
    values = np.asarray(values, np.float32)
    largest = np.abs(values).max(axis=-1, initial=np.float32(0.0))
    safe = np.where(largest > 0, largest, np.float32(1.0))
    factors = np.where(largest > 0, np.float32(INT8_MAX) / safe, np.float32(0.0)).astype(np.float32)
    rounded = np.rint(values * factors[..., None])
    clipped = np.clip(rounded, -INT8_MAX, INT8_MAX).astype(np.int8)
    scales = largest * (np.float32(unit) / np.float32(INT8_MAX))
    return QuantizedActivations(clipped, scales.astype(np.float32))


def products(weights: np.ndarray, activations: np.ndarray) -> np.ndarray:
    """int8 [units, size] by int8 [rows, size] -> int32 [rows, units], exact."""
    return activations.astype(np.int32) @ weights.astype(np.int32).T

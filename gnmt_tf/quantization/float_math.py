"""The engine's floating-point functions, in NumPy and to the bit.

Only additions, products, divisions and roundings of float32 and float64, in an order that is written down: every
machine gives the same bits. Sums run over 16 lanes, lane k adding elements k, k + 16, ..., and lanes are then added in
halves (k and k + 8, then k and k + 4, ...), so that an engine may use vectors of any width up to 16.
"""

import numpy as np

LANES = 16
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.44269502), np.float32(0.693145752), np.float32(1.42860677e-06)
EXP_LOWEST = np.float32(-87.0)
"""exp of anything lower is taken to be that of this: about 1.6e-38, the smallest normal float32 not far below."""
EXP_TERMS = tuple(np.float32(1.0 / d) for d in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0))
TANH_LARGEST = np.float32(9.0)
CHUNK = 1024
F1, F2 = np.float32(1.0), np.float32(2.0)


def exp(x: np.ndarray) -> np.ndarray:
    """exp of float32 in [-87, 0], by Taylor's polynomial of degree 7 around the nearest multiple of ln 2."""
    x = np.maximum(np.asarray(x, np.float32), EXP_LOWEST)
    number = np.rint(x * LOG2_E)
    rest = (x - number * LN2_HIGH) - number * LN2_LOW
    value = np.full_like(rest, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        value = value * rest + term
    value = value * rest + F1
    value = value * rest + F1
    # Two to the power of `number`, made from the bits of its exponent.
    power = ((number.astype(np.int32) + 127) << 23).view(np.float32)
    return value * power


def tanh(x: np.ndarray) -> np.ndarray:
    """tanh of float32: (1 - e) / (1 + e) with e = exp(-2 |x|), and the sign of x."""
    x = np.asarray(x, np.float32)
    e = exp(np.minimum(np.abs(x), TANH_LARGEST) * -F2)
    return np.copysign((F1 - e) / (F1 + e), x).astype(np.float32)


def log(x: np.ndarray) -> np.ndarray:
    """log of positive normal float32, in float64 by the series of artanh, then rounded to float32."""
    x = np.asarray(x, np.float32)
    fraction, exponent = np.frexp(x.astype(np.float64))
    small = fraction < 0.70710678118654752
    fraction, exponent = np.where(small, fraction * 2.0, fraction), exponent - small
    s = (fraction - 1.0) / (fraction + 1.0)
    square = s * s
    series = np.zeros_like(s)
    for denominator in range(21, 0, -2):
        series = series * square + 1.0 / denominator
    return (exponent.astype(np.float64) * 0.6931471805599453 + 2.0 * (s * series)).astype(np.float32)


def lane_sum(values: np.ndarray) -> np.ndarray:
    """float32 [..., size] -> [...], in the order described above."""
    values = np.asarray(values, np.float32)
    size = values.shape[-1]
    padded = np.zeros([*values.shape[:-1], -(-size // LANES) * LANES], np.float32)
    padded[..., :size] = values
    lanes = np.zeros([*values.shape[:-1], LANES], np.float32)
    for start in range(0, padded.shape[-1], LANES):
        lanes = lanes + padded[..., start : start + LANES]
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes[..., 0]


def project(inputs: np.ndarray, kernel: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """float32 [rows, size] by [size, units]: each sum adds its products in order, beginning with `start` or 0."""
    sums = np.zeros([inputs.shape[0], kernel.shape[1]], np.float32)
    if start is not None:
        sums = sums + start
    for k in range(kernel.shape[0]):
        sums = sums + inputs[:, k : k + 1] * kernel[k]
    return sums


def softmax(scores: np.ndarray) -> np.ndarray:
    """float32 [..., size] -> probabilities."""
    values = exp(scores - scores.max(axis=-1, keepdims=True))
    return values / lane_sum(values)[..., None]


def log_normaliser(logits: np.ndarray, bound: float | np.float32) -> np.ndarray:
    """log of the sum of exp of float32 [..., size], none above `bound` -> [...].

    The bound takes the place of the largest logit, which is known only when all are: logits and sum are then made in
    one pass. Chunks of 1024 are summed by lanes and then added up in order, so that chunks may be made in any order.
    """
    reference = np.float32(bound)
    total = np.zeros(logits.shape[:-1], np.float32)
    for start in range(0, logits.shape[-1], CHUNK):
        total = total + lane_sum(exp(logits[..., start : start + CHUNK] - reference))
    return reference + log(total)

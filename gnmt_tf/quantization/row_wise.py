"""Row-wise int8 weights, eq. 12 of the paper. Reads float matrices; gives integers and one float per row."""

from typing import NamedTuple

import numpy as np

INT8_MAX = 127
"""Values lie in [-127, 127]: without -128 two products of 8 bits never leave 16 bits."""


class QuantizedRows(NamedTuple):
    """A matrix by rows, one row an output unit.

    Fields:
      values: int8 [num_rows, num_columns], round(W / row_max * 127).
      row_max: float32 [num_rows], the largest magnitude of each row; 0 for a row of zeros.
    """

    values: np.ndarray
    row_max: np.ndarray

    def dequantized(self) -> np.ndarray:
        """float32 [num_rows, num_columns], what the integers stand for."""
        return self.values.astype(np.float32) * (self.row_max / np.float32(INT8_MAX))[:, None]


def quantize_rows(weights: np.ndarray) -> QuantizedRows:
    """Eq. 12: `s_i = max_j |W[i, j]|`, `WQ[i, j] = round(W[i, j] / s_i * 127)`, ties to even.

    Args:
      weights: float [num_rows, num_columns].

    Raises:
      ValueError: a weight is not finite.
    """
    weights = np.asarray(weights, np.float32)
    if not np.isfinite(weights).all():
        raise ValueError("expected finite weights, got NaN or Inf")
    row_max = np.abs(weights).max(axis=1, initial=0.0).astype(np.float32)
    safe = np.where(row_max > 0, row_max, np.float32(1.0))
    values = np.rint(weights / safe[:, None] * np.float32(INT8_MAX))
    return QuantizedRows(values.astype(np.int8), row_max)

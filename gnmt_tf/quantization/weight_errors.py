"""What rounding to int8 does to each row of a model's weights.

Reads a GNMT; gives one error for every row of every matrix that the engine quantises.
"""

from typing import NamedTuple

import numpy as np

from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import float_rows
from gnmt_tf.quantization.row_wise import quantize_rows

GATES = ("i", "i'", "f", "o")
"""Of eq. 11, in the order of an LSTM's rows."""


class MatrixErrors(NamedTuple):
    """One matrix.

    Fields:
      name: as in `float_rows`.
      row_size: elements of a row.
      row_max: float32 [num_rows], what becomes 127.
      row_errors: float32 [num_rows], root mean square of what rounding changes, as a share of that of the row; 0 for a
        row of zeros.
      error: the same of the whole matrix.
    """

    name: str
    row_size: int
    row_max: np.ndarray
    row_errors: np.ndarray
    error: float


def weight_errors(model: GNMT) -> list[MatrixErrors]:
    """Of every quantised matrix, in the order of `float_rows`.

    Raises:
      ValueError: a weight is not finite.
    """
    found = []
    for name, rows in float_rows(model).items():
        quantized = quantize_rows(rows)
        lost = np.sqrt(np.mean((quantized.dequantized() - rows) ** 2, axis=1))
        size = np.sqrt(np.mean(rows**2, axis=1))
        total = float(np.linalg.norm(lost) / max(np.linalg.norm(size), np.finfo(np.float32).tiny))
        errors = np.divide(lost, size, out=np.zeros_like(lost), where=size > 0)
        found.append(MatrixErrors(name, rows.shape[1], quantized.row_max, errors, total))
    return found


def row_name(matrix: str, row: int, num_rows: int, pieces: list[str]) -> str:
    """What a row stands for: a piece of the vocabulary, or a gate and its unit such as `f 17`."""
    if not matrix.startswith(("encoder/", "decoder/")):
        return pieces[row]
    gate, unit = divmod(row, num_rows // len(GATES))
    return f"{GATES[gate]} {unit}"

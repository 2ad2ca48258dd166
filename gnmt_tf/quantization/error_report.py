"""Tables and a figure of what int8 changes in a model, layer by layer and row by row.

Reads MatrixErrors, and Ranges if a development set was read; gives text, CSV and a figure.
"""

import csv
from collections.abc import Sequence
from typing import TextIO

import numpy as np
from matplotlib.figure import Figure

from gnmt_tf.quantization.ranges import Ranges
from gnmt_tf.quantization.weight_errors import MatrixErrors, row_name


def weight_table(found: Sequence[MatrixErrors], pieces: Sequence[str]) -> str:
    """One line for each matrix: its error, its worst row and what that row is."""
    width = max(len(matrix.name) for matrix in found)
    lines = [f"{'weights':<{width}}{'rows':>8}{'columns':>9}{'error %':>9}{'worst %':>9}  worst row"]
    for matrix in found:
        num_rows, worst = len(matrix.row_errors), int(matrix.row_errors.argmax())
        lines.append(
            f"{matrix.name:<{width}}{num_rows:8d}{matrix.row_size:9d}{100 * matrix.error:9.2f}"
            f"{100 * float(matrix.row_errors[worst]):9.2f}  {row_name(matrix.name, worst, num_rows, list(pieces))}"
        )
    return "\n".join(lines)


def range_table(ranges: Ranges) -> str:
    """One line for each layer, in per cent."""
    width = max(len(layer.name) for layer in ranges.layers)
    heads = ("gates cut", "states cut", "sums cut", "input error")
    lines = [f"{'ranges, %':<{width}}" + "".join(f"{head:>13}" for head in heads)]
    lines += [
        layer.name.ljust(width) + "".join(f"{100 * share:13.3f}" for share in layer[1:]) for layer in ranges.layers
    ]
    return "\n".join(lines)


def write_rows(found: Sequence[MatrixErrors], pieces: Sequence[str], file: TextIO) -> None:
    """All rows of all matrices as CSV, the worst of each matrix first."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["matrix", "row", "name", "row_max", "relative_error"])
    for matrix in found:
        num_rows = len(matrix.row_errors)
        for row in np.argsort(-matrix.row_errors, kind="stable"):
            name = row_name(matrix.name, int(row), num_rows, list(pieces))
            writer.writerow([matrix.name, row, name, f"{matrix.row_max[row]:.6g}", f"{matrix.row_errors[row]:.6g}"])


def draw_errors(found: Sequence[MatrixErrors], ranges: Ranges | None) -> Figure:
    """The spread of row errors in every matrix; beside it, if measured, what each layer holds at a bound."""
    figure = Figure(figsize=(9.0 if ranges else 5.5, 1.2 + 0.32 * len(found)), dpi=120, layout="constrained")
    panels = figure.subplots(1, 2 if ranges else 1, squeeze=False)[0]
    panels[0].boxplot(
        [100 * matrix.row_errors for matrix in found],
        vert=False,
        tick_labels=[matrix.name for matrix in found],
        flierprops={"markersize": 2},
    )
    panels[0].set_xlabel("error of a row, % of the row (RMS)")
    if ranges:
        names, places = [layer.name for layer in ranges.layers], np.arange(len(ranges.layers))
        shares = {"gate inputs": 1, "states": 2, "sums or logits": 3}
        for number, (label, field) in enumerate(shares.items()):
            values = [100 * layer[field] for layer in ranges.layers]
            panels[1].barh(places + 0.27 * (number - 1), values, height=0.25, label=label)
        panels[1].set_yticks(places, names)
        panels[1].set_xlabel("held at the end of the range, %")
        panels[1].legend(fontsize="small")
    for axes in panels:
        axes.invert_yaxis()
        axes.set_xlim(left=0.0)
    return figure

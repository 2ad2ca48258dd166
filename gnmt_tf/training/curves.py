"""Training curves of one or more models as a figure and a table: Figure 4 of the paper.

Reads `config.yaml` and `logs/training.csv` of model directories; gives log perplexity against steps, in training and on
the development set.
"""

import csv
import os
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from matplotlib.figure import Figure

from gnmt_tf.config import UserError
from gnmt_tf.training.model_directory import ModelDirectory

TABLE_COLUMNS = ("model_dir", "constrained", "step", "train_log_perplexity", "dev_log_perplexity", "dev_bleu")


class Point(NamedTuple):
    """One row of a training log.

    Fields:
      step: training steps.
      train_log_perplexity: nats per piece since the row before, dropout included; None in a row of an evaluation.
      dev_log_perplexity, dev_bleu: of an evaluation; None in the other rows.
    """

    step: int
    train_log_perplexity: float | None
    dev_log_perplexity: float | None
    dev_bleu: float | None


class Curve(NamedTuple):
    """The log of one model: its directory, whether it was trained with the clips of eq. 10 and 13, and its rows."""

    model_dir: str
    constrained: bool
    points: list[Point]


def read_curve(model_dir: str) -> Curve:
    """Reads the log of a model directory.

    Raises:
      UserError: no model directory, or nothing in its log.
    """
    directory = ModelDirectory(model_dir)
    config = directory.read_config()
    path = os.path.join(directory.logs_path, "training.csv")
    points = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as file:
            points = [
                Point(
                    int(row["step"]), *(_number(row.get(name)) for name in ("loss", "dev_log_perplexity", "dev_bleu"))
                )
                for row in csv.DictReader(file)
                if (row.get("step") or "").isdigit()
            ]
    if not points:
        raise UserError(path, "a log with at least one row", "none", "Train for some steps first.")
    return Curve(os.path.normpath(model_dir), config.training.constrained, points)


def draw_curves(curves: Sequence[Curve]) -> Figure:
    """Log perplexity against steps: thin lines in training, marked lines on the development set."""
    figure = Figure(figsize=(8.0, 5.0), dpi=120, layout="constrained")
    axes = figure.subplots()
    names = _names(curves)
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        color = f"C{number}"
        label = f"{name}, {'constrained' if curve.constrained else 'unconstrained'}"
        trained = [(p.step, p.train_log_perplexity) for p in curve.points if p.train_log_perplexity is not None]
        evaluated = [(p.step, p.dev_log_perplexity) for p in curve.points if p.dev_log_perplexity is not None]
        if trained:
            axes.plot(*zip(*trained, strict=True), color=color, linewidth=0.8, alpha=0.6, label=f"{label}: training")
        if evaluated:
            axes.plot(
                *zip(*evaluated, strict=True), color=color, marker="o", markersize=4, label=f"{label}: development"
            )
    axes.set_xlabel("training steps")
    axes.set_ylabel("log perplexity (nats per piece)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def write_table(curves: Sequence[Curve], file: TextIO) -> None:
    """The same as CSV, one line for each row of the logs."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(TABLE_COLUMNS)
    for curve in curves:
        for point in curve.points:
            values = ("" if value is None else value for value in point[1:])
            writer.writerow([curve.model_dir, str(curve.constrained).lower(), point.step, *values])


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _names(curves: Sequence[Curve]) -> list[str]:
    """Directory names, or whole paths where names would be the same."""
    names = [os.path.basename(curve.model_dir) or curve.model_dir for curve in curves]
    return names if len(set(names)) == len(names) else [curve.model_dir for curve in curves]

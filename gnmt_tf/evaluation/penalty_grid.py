"""BLEU over a grid of the length and the coverage penalty: Tables 2 and 3 of the paper.

Reads a development set; gives one BLEU for each pair of weights. One search serves the whole grid, since which
hypotheses a search completes does not depend on the penalties.
"""

import csv
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

import numpy as np
from matplotlib.figure import Figure

from gnmt_tf.evaluation.corpus_scores import corpus_scores
from gnmt_tf.search.scoring import Penalties
from gnmt_tf.search.translator import Translator


class PenaltyGrid(NamedTuple):
    """BLEU for each pair of weights.

    Fields:
      length_weights: alphas, one a row.
      coverage_weights: betas, one a column.
      bleu: float [rows, columns].
      signature: sacreBLEU's.
    """

    length_weights: tuple[float, ...]
    coverage_weights: tuple[float, ...]
    bleu: np.ndarray
    signature: str

    @property
    def best(self) -> Penalties:
        """The pair with the highest BLEU; of equal ones that with the smaller weights."""
        row, column = np.unravel_index(int(np.argmax(self.bleu)), self.bleu.shape)
        return Penalties(self.length_weights[row], self.coverage_weights[column])

    @property
    def best_bleu(self) -> float:
        """BLEU of `best`."""
        return float(self.bleu.max())


def measure_grid(
    translator: Translator,
    source_lines: Sequence[str],
    reference_lines: Sequence[str],
    length_weights: Sequence[float],
    coverage_weights: Sequence[float],
    lowercase: bool,
    progress: Callable[[int], None] | None = None,
) -> PenaltyGrid:
    """Translates the source once and scores it under every pair of weights."""
    alphas, betas = sorted(set(length_weights)), sorted(set(coverage_weights))
    settings = [Penalties(alpha, beta) for alpha in alphas for beta in betas]
    scores = [
        corpus_scores([translation.text for translation in translations], reference_lines, lowercase)
        for translations in translator.translate_with_each(source_lines, settings, progress)
    ]
    bleu = np.asarray([score.bleu for score in scores]).reshape([len(alphas), len(betas)])
    return PenaltyGrid(tuple(alphas), tuple(betas), bleu, scores[0].bleu_signature)


def table(grid: PenaltyGrid) -> str:
    """The grid as text: alpha down, beta across, the best one marked."""
    lines = ["alpha \\ beta " + "".join(f"{beta:8.2f} " for beta in grid.coverage_weights)]
    for alpha, row in zip(grid.length_weights, grid.bleu, strict=True):
        marks = ["*" if Penalties(alpha, beta) == grid.best else " " for beta in grid.coverage_weights]
        lines.append(f"{alpha:12.2f} " + "".join(f"{b:8.2f}{mark}" for b, mark in zip(row, marks, strict=True)))
    return "\n".join(lines)


def write_table(grid: PenaltyGrid, file: TextIO) -> None:
    """The grid as CSV: one line for each pair."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["length_penalty_weight", "coverage_penalty_weight", "bleu"])
    for alpha, row in zip(grid.length_weights, grid.bleu, strict=True):
        for beta, bleu in zip(grid.coverage_weights, row, strict=True):
            writer.writerow([alpha, beta, f"{bleu:.4f}"])


def draw_grid(grid: PenaltyGrid) -> Figure:
    """A heat map: alpha down, beta across, every field with its BLEU, the best one framed."""
    rows, columns = grid.bleu.shape
    figure = Figure(figsize=(2.2 + 0.9 * columns, 1.6 + 0.7 * rows), dpi=120, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(grid.bleu, cmap="viridis", aspect="auto")
    middle = (grid.bleu.min() + grid.bleu.max()) / 2
    for row in range(rows):
        for column in range(columns):
            bleu = grid.bleu[row, column]
            color = "black" if bleu > middle else "white"
            axes.text(column, row, f"{bleu:.2f}", ha="center", va="center", color=color, fontsize=9)
    best_row = grid.length_weights.index(grid.best.length_weight)
    best_column = grid.coverage_weights.index(grid.best.coverage_weight)
    axes.plot(best_column, best_row, marker="s", markersize=34, markerfacecolor="none", markeredgecolor="red")
    axes.set_xticks(range(columns), [f"{beta:g}" for beta in grid.coverage_weights])
    axes.set_yticks(range(rows), [f"{alpha:g}" for alpha in grid.length_weights])
    axes.set_xlabel("coverage penalty (beta)")
    axes.set_ylabel("length penalty (alpha)")
    figure.colorbar(image, label="BLEU")
    return figure

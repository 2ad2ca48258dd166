"""What quantisation costs and brings: Table 1 of the paper for one model, float and int8 side by side.

Reads a test set and the ways of computing; gives one row for each, the float one first.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TextIO

from matplotlib.figure import Figure

from gnmt_tf.data.parallel_text import PieceCorpus
from gnmt_tf.evaluation.evaluator import Evaluation, evaluate
from gnmt_tf.evaluation.log_perplexity import LogPerplexity
from gnmt_tf.search.translator import Translator


class Precision(NamedTuple):
    """One way of computing.

    Fields:
      translator: translates with it.
      log_perplexity: measures with it.
      num_bytes: of its weights.
    """

    translator: Translator
    log_perplexity: LogPerplexity
    num_bytes: int


class PrecisionRow(NamedTuple):
    """What it gave.

    Fields:
      name: of the way of computing.
      bleu: of the test set.
      log_perplexity: nats per target piece.
      seconds: of translating, the fastest of all rounds.
      speed: how many times as fast as the first row.
      mebibytes: of the weights.
      changed: translations that differ from the first row's.
    """

    name: str
    bleu: float
    log_perplexity: float
    seconds: float
    speed: float
    mebibytes: float
    changed: int


def measure_precisions(
    precisions: Mapping[str, Precision],
    source_lines: Sequence[str],
    reference_lines: Sequence[str],
    corpus: PieceCorpus,
    lowercase: bool,
    rounds: int = 1,
    report: Callable[[str], None] | None = None,
) -> list[PrecisionRow]:
    """Translates the test set in every way, `rounds` times in turn, and scores its references.

    Args:
      precisions: by name; speed and differences are those against the first.
      corpus: the same test set as ids.
      report: called with the name of each way as it begins.
    """
    found: dict[str, list[Evaluation]] = {name: [] for name in precisions}
    for _ in range(rounds):
        for name, precision in precisions.items():
            if report is not None:
                report(name)
            found[name].append(evaluate(precision.translator, source_lines, reference_lines, lowercase))
    first, rows = next(iter(precisions)), []
    slowest = min(evaluation.seconds for evaluation in found[first])
    expected = [translation.text for translation in found[first][0].translations]
    for name, precision in precisions.items():
        seconds = min(evaluation.seconds for evaluation in found[name])
        texts = [translation.text for translation in found[name][0].translations]
        rows.append(
            PrecisionRow(
                name,
                found[name][0].scores.bleu,
                precision.log_perplexity(corpus),
                seconds,
                slowest / seconds,
                precision.num_bytes / 2**20,
                sum(a != b for a, b in zip(texts, expected, strict=True)),
            )
        )
    return rows


def table(rows: Sequence[PrecisionRow]) -> str:
    """The rows as text."""
    lines = [f"{'':<10}{'BLEU':>8}{'log ppl':>10}{'seconds':>10}{'speed':>8}{'MiB':>9}{'changed':>9}"]
    lines += [
        f"{r.name:<10}{r.bleu:8.2f}{r.log_perplexity:10.4f}{r.seconds:10.2f}{r.speed:8.2f}{r.mebibytes:9.1f}{r.changed:9d}"
        for r in rows
    ]
    return "\n".join(lines)


def write_table(rows: Sequence[PrecisionRow], file: TextIO) -> None:
    """The rows as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(PrecisionRow._fields)
    writer.writerows(rows)


def draw_rows(rows: Sequence[PrecisionRow]) -> Figure:
    """Bars of the time and of the memory, with BLEU and log perplexity beside them."""
    figure = Figure(figsize=(8.0, 3.2), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [row.name for row in rows]
    bars = left.barh(names, [row.seconds for row in rows], color="C0")
    left.bar_label(bars, [f" BLEU {row.bleu:.2f}\n log ppl {row.log_perplexity:.4f}" for row in rows])
    left.set_xlim(right=1.5 * max(row.seconds for row in rows))
    left.set_xlabel("seconds")
    right.barh(names, [row.mebibytes for row in rows], color="C1")
    right.set_xlabel("MiB of weights")
    for axes in (left, right):
        axes.invert_yaxis()
    return figure

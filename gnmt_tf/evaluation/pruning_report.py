"""What the two prunings of section 7 save, and what they cost: time and BLEU with each of them on and off.

Reads a test set; gives one row for each way of searching, the first being the search that runs on to the length limit.
"""

import csv
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TextIO

from matplotlib.figure import Figure

from gnmt_tf.config import SearchConfig
from gnmt_tf.evaluation.evaluator import Evaluation, evaluate
from gnmt_tf.search.translator import Translator


class PruningRow(NamedTuple):
    """One way of searching.

    Fields:
      name: what is on.
      bleu: of the test set.
      seconds: the fastest of all rounds.
      share: of the first row's seconds.
      changed: translations that differ from the first row's.
    """

    name: str
    bleu: float
    seconds: float
    share: float
    changed: int


COLUMNS = PruningRow._fields


def ways_of_searching(search: SearchConfig) -> dict[str, SearchConfig]:
    """The settings that are compared, by name; `search.pruning_margin` has to be a number."""
    margin = search.pruning_margin
    changes: dict[str, dict[str, Any]] = {
        "to the length limit": {"pruning_margin": None, "early_stopping": False},
        "end when none can win": {"pruning_margin": None, "early_stopping": True},
        "pieces pruned": {"pruning_margin": margin, "early_stopping": False, "prunings": "pieces"},
        "hypotheses pruned": {"pruning_margin": margin, "early_stopping": True, "prunings": "hypotheses"},
        "both prunings": {"pruning_margin": margin, "early_stopping": True, "prunings": "both"},
    }
    return {name: search.model_copy(update=change) for name, change in changes.items()}


def measure_pruning(
    make_translator: Callable[[SearchConfig], Translator],
    search: SearchConfig,
    source_lines: Sequence[str],
    reference_lines: Sequence[str],
    lowercase: bool,
    rounds: int = 1,
    report: Callable[[str], None] | None = None,
) -> list[PruningRow]:
    """Translates the test set in every way, `rounds` times in turn.

    Args:
      make_translator: gives a translator with the settings.
      report: called with the name of each way as it begins.
    """
    ways = ways_of_searching(search)
    translators = {name: make_translator(settings) for name, settings in ways.items()}
    evaluations: dict[str, list[Evaluation]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, translator in translators.items():
            if report is not None:
                report(name)
            evaluations[name].append(evaluate(translator, source_lines, reference_lines, lowercase))
    first, rows = next(iter(ways)), []
    slowest = min(evaluation.seconds for evaluation in evaluations[first])
    reference = [translation.text for translation in evaluations[first][0].translations]
    for name, found in evaluations.items():
        seconds = min(evaluation.seconds for evaluation in found)
        texts = [translation.text for translation in found[0].translations]
        changed = sum(a != b for a, b in zip(texts, reference, strict=True))
        rows.append(PruningRow(name, found[0].scores.bleu, seconds, seconds / slowest, changed))
    return rows


def table(rows: Sequence[PruningRow]) -> str:
    """The rows as text."""
    lines = [f"{'':<24}{'BLEU':>8}{'seconds':>10}{'share':>8}{'changed':>9}"]
    lines += [f"{r.name:<24}{r.bleu:8.2f}{r.seconds:10.2f}{r.share:8.2f}{r.changed:9d}" for r in rows]
    return "\n".join(lines)


def write_table(rows: Sequence[PruningRow], file: TextIO) -> None:
    """The rows as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def draw_rows(rows: Sequence[PruningRow]) -> Figure:
    """Bars of the time, with BLEU beside them."""
    figure = Figure(figsize=(8.0, 3.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    names = [row.name for row in rows]
    bars = axes.barh(names, [row.seconds for row in rows], color="C0")
    axes.bar_label(bars, [f" {row.share:.0%}, BLEU {row.bleu:.2f}" for row in rows])
    axes.set_xlim(right=1.35 * max(row.seconds for row in rows))
    axes.set_xlabel("seconds")
    axes.invert_yaxis()
    return figure

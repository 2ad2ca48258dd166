"""The last page of `make demo`: what was measured, what came back from the server, and where everything lies.

Reads `evaluation.json` (written by `gnmt evaluate --json`) and the three sample files that `demo.sh` leaves; prints
on standard output. Usage: demo_summary.py DEMO_DIR TOTAL_SECONDS.
"""

import json
import sys
from pathlib import Path


def scores(evaluation: dict[str, float | str]) -> list[str]:
    """The measured figures, one line each; `exact_match` is a fraction in [0, 1]."""
    return [
        f"BLEU            {evaluation['bleu']:.2f}   ({evaluation['signature']})",
        f"chrF            {evaluation['chrf']:.2f}",
        f"exact match     {100 * float(evaluation['exact_match']):.1f} % of the test sentences",
        f"log perplexity  {evaluation['log_perplexity']:.4f}",
        f"speed           {evaluation['sentences_per_second']:.1f} sentences/s, "
        f"{evaluation['words_per_second']:.0f} words/s",
    ]


def examples(folder: Path) -> list[str]:
    """The sample sentences with what the server answered; a wrong answer is followed by the reference."""
    names = ("sample.en", "sample.translated.fr", "sample.reference.fr")
    columns = [(folder / name).read_text(encoding="utf-8").split("\n")[:-1] for name in names]
    if len({len(column) for column in columns}) != 1:
        counts = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        raise ValueError(f"{folder}: expected as many lines in each sample file, got {counts}")
    lines = []
    for source, translation, reference in zip(*columns, strict=True):
        lines += [f"  en  {source}", f"  fr  {translation}"]
        if translation != reference:
            lines.append(f"      reference: {reference}")
    return lines


def main(folder: Path, total_seconds: int) -> None:
    """Prints the summary."""
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    print("\n".join(scores(evaluation)))
    print("\nTranslated by the server, over gRPC:")
    print("\n".join(examples(folder)))
    print()
    for title, name in (
        ("corpus", "data"),
        ("checkpoints", "model"),
        ("SavedModel", "export"),
        ("scores", "evaluation.json"),
    ):
        print(f"{title:<12} {folder / name}")
    print(f"{'this run':<12} {total_seconds // 60} min {total_seconds % 60} s")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except (OSError, ValueError) as error:
        sys.exit(f"demo_summary: {error}")
    except KeyError as error:
        sys.exit(
            f"demo_summary: {sys.argv[1]}/evaluation.json: expected the key {error}, got none. Run `make demo` again."
        )

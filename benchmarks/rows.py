"""What a benchmark gives: rows of case, metric, value and unit, as a table and as JSON."""

import json
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """One measured number."""

    case: str
    metric: str
    value: float
    unit: str


def print_rows(rows: Iterable[Row]) -> None:
    """One line each, to standard output."""
    for row in rows:
        print(f"{row.case:<44} {row.metric:<24} {row.value:>14,.3f} {row.unit}", flush=True)


def write_json(rows: Iterable[Row], path: str) -> None:
    """All rows as a JSON list."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump([row._asdict() for row in rows], file, indent=1, ensure_ascii=False)
        file.write("\n")

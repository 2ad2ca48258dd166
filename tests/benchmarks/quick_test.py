"""Each benchmark runs, and gives its rows under the names it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_build import make

ROOT = Path(__file__).resolve().parents[2]


def rows_of(tmp_path, module, *flags):
    path = tmp_path / "rows.json"
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", "--quick", "--json", str(path), *flags],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    rows = json.loads(path.read_text())
    assert all(set(row) == {"case", "metric", "value", "unit"} for row in rows)
    for row in rows:
        assert row["metric"] in result.stdout
    return {row["metric"]: row["value"] for row in rows}


def test_wordpiece_training(tmp_path):
    values = rows_of(tmp_path, "wordpiece_training")
    assert values["pieces"] == 2000
    assert values["total"] >= values["training"] > 0


@pytest.mark.slow
def test_train_speed(tmp_path):
    values = rows_of(tmp_path, "train_speed", "--without_pytorch", "--bfloat16")
    assert 0.0 < values["share_of_gemm_peak"] < 1.0
    assert values["tokens_per_second"] > 0
    assert values["bfloat16_tokens_per_second"] > 0
    assert values["peak_memory_gib"] > values["needed_memory_gib"] > 0


def test_search_speed(tmp_path):
    assert rows_of(tmp_path, "search_speed")["words_per_second"] > 0


def test_decode(tmp_path):
    make("engine")
    values = rows_of(tmp_path, "decode", "--peers", "float")
    assert values["sentences_per_second"] > 0
    assert values["latency_p99_ms"] >= values["latency_p50_ms"] > 0
    assert 0.0 < values["share_of_vnni_peak"] < 1.5
    assert values["memory_ratio_to_weights"] > 0
    assert values["ratio_to_float"] == pytest.approx(
        values["sentences_per_second"] / values["float_sentences_per_second"]
    )

"""The commands that show what the search knows, in processes of their own as a user starts them."""

import csv
import json
import shutil

import pytest
from model_commands_test import refused, run_gnmt

LINES = ["one two red .", "", "cat dog blue .", "three 漢 one ."]
REFERENCES = ["un deux rouge .", "", "chat chien bleu .", "trois 漢 un ."]


@pytest.fixture
def files(tmp_path):
    source, reference = tmp_path / "text.en", tmp_path / "text.fr"
    source.write_text("".join(line + "\n" for line in LINES))
    reference.write_text("".join(line + "\n" for line in REFERENCES))
    return source, reference


def test_json_lines_hold_all_hypotheses_and_alignments_one_line_each(trained_model, files, tmp_path):
    links = tmp_path / "links"
    run = run_gnmt(
        "translate", "--model_dir", trained_model, "--input", files[0], "--format=json", "--alignment", links,
        "--attention", "--set", "search.n_best=2", "--set", "search.min_length=2",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.decode().splitlines()]
    assert [row["line"] for row in rows] == [0, 1, 2, 3]
    assert [row["source"] for row in rows] == LINES
    assert rows[1]["hypotheses"] == []
    best = rows[0]["hypotheses"][0]
    assert rows[0]["translation"] == best["translation"]
    assert len(best["pieces"]) == len(best["piece_log_probs"]) == len(best["attention"])
    assert len(best["alignment"]) == len(best["pieces"]) - 1
    aligned = links.read_text().split("\n")
    assert len(aligned) == 5
    assert aligned[0] == " ".join(f"{source}-{target}" for source, target in best["alignment"])
    assert aligned[1] == ""


def test_an_n_best_list_of_moses_is_scored_again_in_the_same_order(trained_model, files, tmp_path):
    listed, again = tmp_path / "list", tmp_path / "again"
    run = run_gnmt(
        "translate", "--model_dir", trained_model, "--input", files[0], "--output", listed, "--format=moses",
        "--set", "search.n_best=3",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [line.split(" ||| ") for line in listed.read_text().splitlines()]
    assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
    assert {int(row[0]) for row in rows} == {0, 1, 2, 3}
    run = run_gnmt("score", "--model_dir", trained_model, "--source", files[0], "--n_best", listed, "--output", again)
    assert run.returncode == 0, run.stderr
    assert len(again.read_text().splitlines()) == len(rows)


def test_score_writes_one_line_for_each_pair(trained_model, files):
    run = run_gnmt("score", "--model_dir", trained_model, "--source", files[0], "--target", files[1])
    assert run.returncode == 0, run.stderr
    rows = [line.split("\t") for line in run.stdout.decode().splitlines()]
    assert len(rows) == 4
    assert float(rows[0][1]) < 0 < int(rows[0][2])
    assert rows[1] == ["0.000000", "0.000000", "0"]
    assert "give either" in refused(run_gnmt("score", "--model_dir", trained_model, "--source", files[0]))


def test_tune_prints_draws_and_writes_the_best_pair(trained_model, files, tmp_path):
    output, config = tmp_path / "grid", tmp_path / "tuned.yaml"
    run = run_gnmt(
        "tune", "--model_dir", trained_model, "--source", files[0], "--reference", files[1], "--alphas=0,0.5",
        "--betas=0,0.2,1", "--output", output, "--write_config", config,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    with open(f"{output}.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    best = max(rows, key=lambda row: float(row["bleu"]))
    text = run.stdout.decode()
    assert f"best {float(best['bleu']):.2f} at alpha" in text
    assert "nrefs:1" in text
    assert (tmp_path / "grid.png").stat().st_size > 5000
    assert "length_penalty_weight: 0" in config.read_text()
    line = refused(
        run_gnmt("tune", "--model_dir", trained_model, "--source", files[0], "--reference", files[1], "--alphas=-1,x")
    )
    assert "--alphas: expected numbers from 0 up" in line


def test_report_pruning_compares_all_ways_of_searching(trained_model, files, tmp_path):
    output = tmp_path / "pruning"
    run = run_gnmt(
        "report", "pruning", trained_model, "--source", files[0], "--reference", files[1], "--output", output
    )
    assert run.returncode == 0, run.stderr
    with open(f"{output}.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    assert (rows[0]["name"], float(rows[0]["share"]), rows[0]["changed"]) == ("to the length limit", 1.0, "0")
    # To end when nothing can win changes no translation.
    assert rows[1]["changed"] == "0"
    assert (tmp_path / "pruning.png").stat().st_size > 5000


def test_report_attention_draws_every_line(trained_model, files, tmp_path):
    output = tmp_path / "attention"
    run = run_gnmt("report", "attention", trained_model, "--source", files[0], "--output", output)
    assert run.returncode == 0, run.stderr
    page = (tmp_path / "attention.html").read_text()
    assert page.count("<h2>") == 4
    assert page.count("data:image/png;base64,") == 3
    assert (tmp_path / "attention.png").stat().st_size > 2000


def test_evaluate_by_writes_a_page_with_plots_and_the_worst_sentences(trained_model, files, tmp_path):
    page = tmp_path / "page.html"
    run = run_gnmt(
        "evaluate", "--model_dir", trained_model, "--source", files[0], "--reference", files[1],
        "--by=length,unknown,sentence", "--html", page,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 3
    assert "BLEU by source length" in text
    assert "three 漢 one ." in text
    line = refused(
        run_gnmt("evaluate", "--model_dir", trained_model, "--source", files[0], "--reference", files[1], "--by=colour")
    )
    assert "--by: expected some of length, unknown, sentence, got colour" in line


def test_an_ensemble_of_checkpoints_translates_and_another_vocabulary_is_refused(trained_model, files, tmp_path):
    checkpoint = next((trained_model / "checkpoints" / "latest").glob("ckpt-*.index"))
    run = run_gnmt(
        "translate", "--model_dir", trained_model, "--ensemble", trained_model, "--ensemble", checkpoint,
        "--input", files[0],
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.decode().split("\n")) == 5
    other = tmp_path / "other"
    shutil.copytree(trained_model, other)
    vocabulary = json.loads((other / "vocabulary.json").read_text())
    vocabulary["pieces"][-1], vocabulary["pieces"][-2] = vocabulary["pieces"][-2], vocabulary["pieces"][-1]
    (other / "vocabulary.json").write_text(json.dumps(vocabulary))
    line = refused(run_gnmt("translate", "--model_dir", trained_model, "--ensemble", other, "--input", files[0]))
    assert "vocabulary" in line


def test_prefixes_go_with_the_lines_of_a_file(trained_model, files, tmp_path):
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("chat\n\n\nun\n")
    run = run_gnmt("translate", "--model_dir", trained_model, "--input", files[0], "--target_prefix", prefixes)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.decode().split("\n")
    assert lines[0].startswith("chat")
    assert lines[3].startswith("un")
    assert "--target_prefix needs --input" in refused(
        run_gnmt("translate", "--model_dir", trained_model, "--target_prefix", prefixes)
    )

"""The commands around a trained model, in processes of their own as a user starts them."""

import json
import subprocess
import sys
import time

import pytest

NASTY = [
    "one two red cat .", "", "   ", "\ttwo\t", "\u00a0", "a\u00a0b", "line\u2028break", "cr\rinside", "😀😀",
    "漢字かな",
    "e\u0301\u0301\u0301", "\u2581x", "<s> </s> <unk> <pad>", "x" * 500, "## #", "1,234.5", "no words at all 0",
]  # fmt: skip


def run_gnmt(*arguments, stdin=b""):
    return subprocess.run(
        [sys.executable, "-m", "gnmt_tf.cli", *map(str, arguments)], input=stdin, capture_output=True, timeout=240,
        check=False,
    )  # fmt: skip


def refused(run):
    """The one line of an error a user made."""
    assert run.returncode == 2
    assert run.stdout == b""
    (line,) = run.stderr.decode().splitlines()
    return line


@pytest.fixture(scope="module")
def expected(trained_model):
    """What the library gives for the nasty lines."""
    from gnmt_tf.search.translator import Translator
    from gnmt_tf.training.model_directory import load_model

    loaded = load_model(str(trained_model))
    return [t.text for t in Translator(loaded.model, loaded.segmenter, loaded.config.search).translate(NASTY)]


def test_translate_gives_one_line_for_each_line(trained_model, expected):
    # A byte-order mark and CRLF are accepted, and the last line has no end.
    data = b"\xef\xbb\xbf" + "\r\n".join(NASTY).encode()
    run = run_gnmt("translate", "--model_dir", trained_model, stdin=data)
    assert run.returncode == 0, run.stderr
    assert run.stdout.decode().split("\n") == [*expected, ""]
    assert run.stderr == b""


def test_translate_reads_and_writes_files_and_obeys_search_settings(trained_model, tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.fr"
    source.write_text("one two\n\nred\n")
    run = run_gnmt(
        "translate", "--model_dir", trained_model, "--input", source, "--output", target, "--scores",
        "--set", "search.beam_width=1",
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, b"")
    rows = [line.split("\t") for line in target.read_text().splitlines()]
    assert len(rows) == 3
    assert rows[1] == ["0.0000", ""]
    assert float(rows[0][0]) < 0


def test_a_file_translated_onto_itself_is_not_lost(trained_model, tmp_path):
    text = tmp_path / "text"
    text.write_text("one two\nred\n")
    run = run_gnmt("translate", "--model_dir", trained_model, "--input", text, "--output", text)
    assert run.returncode == 0, run.stderr
    assert len(text.read_text().splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_missing_input_leaves_an_existing_output_alone(trained_model, tmp_path):
    output = tmp_path / "out"
    output.write_text("kept\n")
    line = refused(
        run_gnmt("translate", "--model_dir", trained_model, "--input", tmp_path / "none", "--output", output)
    )
    assert "none: expected a readable text file" in line
    assert output.read_text() == "kept\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_told_in_one_line(trained_model):
    run = run_gnmt("translate", "--model_dir", trained_model, "--output", "/dev/full", stdin=b"one\n")
    assert "No space left on device" in refused(run)


def test_an_empty_input_gives_an_empty_output(trained_model):
    run = run_gnmt("translate", "--model_dir", trained_model)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"one\ntwo \xff\n", "stdin:2"), (b"one\n\x00\n", "stdin:2")],
    ids=["invalid UTF-8", "NUL"],
)
def test_a_line_that_is_no_text_is_named(trained_model, data, message):
    run = run_gnmt("translate", "--model_dir", trained_model, stdin=data)
    assert run.returncode == 2
    assert message in run.stderr.decode()
    assert b"Traceback" not in run.stderr


def test_a_missing_model_is_refused_in_one_line(tmp_path):
    assert "expected a model directory" in refused(run_gnmt("translate", "--model_dir", tmp_path / "none"))


def test_a_setting_that_is_not_of_the_search_is_refused(trained_model):
    line = refused(run_gnmt("translate", "--model_dir", trained_model, "--set", "model.num_units=3"))
    assert "search.beam_width=4" in line


def test_quantize_shows_what_int8_changes(trained_model, tmp_path):
    folder = trained_model.parent
    run = run_gnmt(
        "quantize", "--model_dir", trained_model, "--source", folder / "text2.en", "--reference", folder / "text2.fr",
        "--num_sentences", 3, "--report", tmp_path / "int8",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    output = run.stdout.decode()
    for words in ("worst row", "gates cut", "log perplexity of 3 sentence pairs: float", "int8.png"):
        assert words in output
    assert (tmp_path / "int8.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "int8.csv").read_text().startswith("matrix,row,name,row_max,relative_error\n")
    run = run_gnmt("quantize", "--model_dir", trained_model, "--source", folder / "text2.en")
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"--source, --reference: expected both or neither, got only one" in run.stderr


def test_evaluate_reports_scores_with_signature_and_origin(trained_model, tmp_path):
    folder = trained_model.parent
    report = tmp_path / "report.json"
    run = run_gnmt(
        "evaluate", "--model_dir", trained_model, "--source", folder / "text2.en", "--reference", folder / "text2.fr",
        "--json", report, "--output", tmp_path / "out.fr",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    values = json.loads(report.read_text())
    assert f"{values['bleu']:.2f}" in run.stdout.decode()
    assert "tok:13a" in run.stdout.decode()
    assert values["sentences"] == 10
    assert len((tmp_path / "out.fr").read_text().splitlines()) == 10


def test_evaluate_refuses_unequal_files(trained_model, tmp_path):
    (tmp_path / "short.fr").write_text("un\n")
    source = trained_model.parent / "text2.en"
    line = refused(
        run_gnmt("evaluate", "--model_dir", trained_model, "--source", source, "--reference", tmp_path / "short.fr")
    )
    assert "expected equally many lines, got 10 and 1" in line


@pytest.mark.slow
def test_an_exported_model_served_over_grpc_answers_the_client_line_by_line(trained_model, tmp_path, expected):
    run = run_gnmt("export", "--model_dir", trained_model, "--export_dir", tmp_path)
    assert run.returncode == 0, run.stderr
    server = subprocess.Popen(
        [sys.executable, "-m", "gnmt_tf.cli", "serve", "--model_base_path", str(tmp_path), "--port", "0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        ready = next(line for line in server.stderr if line.startswith("Serving gnmt version 1 on "))
        address = ready.split(" on ")[1].split()[0]
        client = run_gnmt("client", "--server", address, stdin="\n".join(NASTY).encode())
        assert client.returncode == 0, client.stderr
        assert client.stdout.decode().split("\n") == [*expected, ""]
        large = run_gnmt("client", "--server", address, stdin="".join(f"{line}\n" for line in NASTY * 20).encode())
        assert large.stdout.decode().split("\n") == [*(expected * 20), ""]
    finally:
        server.terminate()
        deadline = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        server.kill()
    assert server.returncode == 0

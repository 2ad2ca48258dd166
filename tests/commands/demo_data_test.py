"""`gnmt demo-data`, through the program's own front door."""

import subprocess
import sys

import pytest

from gnmt_tf import cli

FEW = ["--pairs=40", "--dev_pairs=5", "--test_pairs=6"]


def test_it_writes_six_files_and_shows_three_examples_of_the_test_set(tmp_path, capsys):
    directory = tmp_path / "new" / "demo"
    assert cli.run(["demo-data", f"--output_dir={directory}", "--target_language=de", *FEW]) == 0
    output, progress = capsys.readouterr()
    assert "Wrote 40 training, 5 development and 6 test pairs (seed 1):" in output
    assert progress == "demo-data: 51 of 51 pairs\n"
    for part, count in (("train", 40), ("dev", 5), ("test", 6)):
        for language in ("en", "de"):
            path = directory / f"{part}.{language}"
            assert f"  {path}\n" in output
            assert path.read_bytes().count(b"\n") == count
    for language in ("en", "de"):
        for line in (directory / f"test.{language}").read_text("utf-8").split("\n")[:3]:
            assert f"  {language}  {line}\n" in output


def test_the_seed_decides_the_bytes(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert cli.run(["demo-data", f"--output_dir={tmp_path / name}", f"--seed={seed}", *FEW]) == 0
    first, same, other = ((tmp_path / name / "train.fr").read_bytes() for name in "abc")
    assert first == same != other


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--target_language=es", "target_language: expected one of fr, de, got 'es'"),
        ("--pairs=0", "pairs: expected a positive number"),
        ("--dev_pairs=-1", "dev_pairs: expected a positive number"),
        ("--test_pairs=0", "test_pairs: expected a positive number"),
        ("--pairs=2000000", "expected at most 2,000,000 distinct pairs, got 2,001,500"),
        ("--pairs=many", "--pairs"),
        ("--output_dir=", "--output_dir: expected a directory, got nothing"),
        ("stray", "'stray'"),
    ],
)
def test_a_mistake_is_explained_on_one_line_with_status_two(tmp_path, capsys, flag, message):
    assert cli.run(["demo-data", f"--output_dir={tmp_path}", flag]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_help_loads_neither_babel_nor_tensorflow():
    program = (
        "import sys; from gnmt_tf import cli; status = cli.run(['demo-data', '--help']); "
        "sys.exit(status or any(name in sys.modules for name in ('babel', 'num2words', 'tensorflow', 'pydantic')))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "--target_language" in result.stdout

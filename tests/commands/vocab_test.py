import os

import pytest

from gnmt_tf import cli
from gnmt_tf.text.vocabulary import Vocabulary


@pytest.fixture(name="corpus")
def small_corpus(tmp_path):
    (tmp_path / "train.en").write_text("the cat sat\nthe dog sat\n" * 20, encoding="utf-8")
    (tmp_path / "train.fr").write_text("le chat\nle chien\n" * 20, encoding="utf-8")
    return tmp_path


def sides(corpus) -> list[str]:
    return [f"--set=data.train_source={corpus}/train.en", f"--set=data.train_target={corpus}/train.fr"]


def test_the_training_text_of_the_configuration_makes_a_vocabulary(corpus, capsys):
    output = corpus / "vocabulary.json"
    assert cli.run(["vocab", *sides(corpus), "--set=text.vocab_size=30", f"--output={output}"]) == 0
    vocabulary = Vocabulary.load(str(output))
    assert {"\u2581the", "\u2581le"} <= set(vocabulary.pieces)
    shown = capsys.readouterr()
    assert f"{vocabulary.size} pieces (alphabet {len(vocabulary.alphabet)}, {vocabulary.fingerprint})" in shown.out
    assert "pieces per word" in shown.out
    assert "reading lines: 80" in shown.err


def test_input_files_replace_the_training_text(corpus, capsys):
    (corpus / "other").write_text("xyz xyz\n", encoding="utf-8")
    output = corpus / "vocabulary.json"
    arguments = ["--input", str(corpus / "other"), "--input", str(corpus / "train.fr"), "--output", str(output)]
    assert cli.run(["vocab", *sides(corpus), *arguments]) == 0
    assert Vocabulary.load(str(output)).alphabet == set("xyzlechatin")
    assert "nothing left to merge" in capsys.readouterr().err


def refusal(capsys, arguments: list[str]) -> str:
    assert cli.run(["vocab", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def test_sides_of_unequal_length_are_refused_with_their_counts(corpus, capsys):
    with open(corpus / "train.fr", "a", encoding="utf-8") as file:
        file.write("une ligne de trop\n")
    message = refusal(capsys, [*sides(corpus), f"--output={corpus}/v.json"])
    assert f"40 in {corpus}/train.en and 41 in {corpus}/train.fr" in message
    assert "Line 41" in message
    assert not os.path.exists(corpus / "v.json")


def test_one_side_alone_is_enough(corpus):
    arguments = [sides(corpus)[0], f"--output={corpus}/v.json"]
    assert cli.run(["vocab", *arguments]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--output: expected a file name, got nothing"),
        (["--output=v.json"], "--input: expected text files, got none"),
        (["--output=v.json", "--input=nowhere.txt"], "nowhere.txt: expected a readable text file"),
        (["--output=missing/v.json", "--input=text"], "no folder missing"),
        (["--output=.", "--input=text"], "got a folder"),
        (["--output=/dev/full", "--input=text"], "/dev/full: expected a regular file"),
        (["--output=v.json", "--input=empty"], "at least one word"),
        (["--output=v.json", "--input=binary"], "binary:2: expected valid UTF-8"),
        (["--output=v.json", "--input=text", "--set=text.vocab_size=16"], "text.vocab_size: expected at least 31"),
        (["--output=v.json", "--input=text", "--set=text.vocab_size=3"], "text.vocab_size"),
        (["--output=v.json", "--input=text", "--set=text.pieces=3"], "Did you mean"),
        (["--output=v.json", "text"], "unexpected argument 'text'"),
        (["--output=v.json", "--colour=red"], "colour"),
    ],
)
def test_bad_arguments_are_explained(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("abcdefghijklmnopqrstuvwxyz\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"a\n\xff\n")
    assert message in refusal(capsys, arguments)
    assert not os.path.exists("v.json")


def test_on_a_terminal_one_line_keeps_changing(corpus, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert cli.run(["vocab", *sides(corpus), "--set=text.vocab_size=25", f"--output={corpus}/v.json"]) == 0
    shown = capsys.readouterr().err
    assert "\rreading lines: 80" in shown
    assert "\rmaking pieces: 25" in shown

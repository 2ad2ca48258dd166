import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.config import TextConfig, UserError
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

CONFIG = TextConfig(lowercase=True)
PIECES = (*SPECIAL_PIECES, "\u2581", "a", "b", "<", "s", ">", "ab", "\u2581a")


def saved(tmp_path, change) -> str:
    path = tmp_path / "vocabulary.json"
    Vocabulary(PIECES, CONFIG).save(str(path))
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_ids_are_places_and_special_pieces_come_first():
    vocabulary = Vocabulary(PIECES, CONFIG)
    assert vocabulary.size == 12
    assert (vocabulary.pad_id, vocabulary.unknown_id, vocabulary.start_id, vocabulary.end_id) == (0, 1, 2, 3)
    assert vocabulary.id_of("ab") == 10
    assert vocabulary.alphabet == frozenset("ab<s>")


@pytest.mark.parametrize("text", [*SPECIAL_PIECES, "", "c", "abab"])
def test_what_is_no_piece_of_text_is_unknown(text):
    assert Vocabulary(PIECES, CONFIG).id_of(text) == 1


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (PIECES[1:], "the first pieces"),
        ((*PIECES, "ab"), "'ab' is there twice"),
        ((*PIECES, "<s>"), "'<s>' is there twice"),
        ((*SPECIAL_PIECES, "a"), "word mark"),
        ((*PIECES, ""), "0 characters"),
        ((*PIECES, "a" * 65), "65 characters"),
        ((*PIECES, "a\u2581b"), "inside"),
        ((*PIECES, "ac"), "not a piece of its own"),
        ((*PIECES, "\0"), "no piece may have"),
        ((*PIECES, " "), "no piece may have"),
        ((*PIECES, "\ud800"), "no piece may have"),
    ],
)
def test_pieces_that_could_not_be_told_apart_are_refused(tmp_path, pieces, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(pieces, CONFIG)
    path = saved(tmp_path, lambda content: content.update(pieces=list(pieces)))
    with pytest.raises(UserError, match="vocabulary.json: expected a consistent list of pieces"):
        Vocabulary.load(path)


@given(st.lists(st.characters(exclude_characters="\0 \t\u2581", exclude_categories=["Cs"]), unique=True, max_size=20))
def test_a_file_keeps_every_character(tmp_path_factory, characters):
    path = str(tmp_path_factory.mktemp("vocabulary") / "v.json")
    vocabulary = Vocabulary((*SPECIAL_PIECES, "\u2581", *characters), TextConfig())
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert Vocabulary.load(path).fingerprint == vocabulary.fingerprint


def test_the_file_has_one_readable_piece_on_each_line(tmp_path):
    path = tmp_path / "v.json"
    Vocabulary((*SPECIAL_PIECES, "\u2581", "é", "\u00a0", "\u2028", "\r", "\u0301", "\u2581é"), CONFIG).save(str(path))
    text = path.read_bytes().decode()
    assert text.endswith('"é",\n"\\u00a0",\n"\\u2028",\n"\\r",\n"\\u0301",\n"\u2581é"\n  ]\n}\n')
    assert '"lowercase": true' in text


def test_the_fingerprint_depends_on_pieces_order_and_settings():
    one = Vocabulary(PIECES, CONFIG)
    others = [
        Vocabulary(PIECES[:-1], CONFIG),
        Vocabulary((*PIECES[:-2], PIECES[-1], PIECES[-2]), CONFIG),
        Vocabulary(PIECES, TextConfig()),
    ]
    assert len({v.fingerprint for v in [one, *others]}) == 4
    assert one.fingerprint == Vocabulary(PIECES, CONFIG).fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format="other"), "another kind of JSON"),
        (lambda c: c.update(version=2), "version 1 of the format, got 2"),
        (lambda c: c.update(special_ids={"pad": 3}), "special_ids"),
        (lambda c: c.pop("pieces"), "a list of strings under `pieces`"),
        (lambda c: c["pieces"].append(7), "a list of strings under `pieces`"),
        (lambda c: c.pop("text"), "key text"),
        (lambda c: c["text"].update(unicode_form="nfd"), "key text.unicode_form"),
        (lambda c: c["text"].update(colour="red"), "key text.colour"),
    ],
)
def test_a_damaged_file_is_a_user_error(tmp_path, change, message):
    path = saved(tmp_path, change)
    with pytest.raises(UserError) as caught:
        Vocabulary.load(path)
    assert message in str(caught.value)
    assert "vocabulary.json" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"one\ntwo\n", b"[" * 100_000])
def test_a_file_of_another_kind_is_a_user_error(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="vocabulary.json: expected a vocabulary file"):
        Vocabulary.load(str(path))


def test_a_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        Vocabulary.load(str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize("name", ["missing/v.json", ".", "/dev/full"])
def test_a_path_that_cannot_be_written_is_a_user_error_and_leaves_nothing_behind(tmp_path, name):
    with pytest.raises(UserError):
        Vocabulary(PIECES, CONFIG).save(os.path.join(tmp_path, name))
    assert os.listdir(tmp_path) == []


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "v.json"
    path.write_text("old")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match="No space left"):
        Vocabulary(PIECES, CONFIG).save(str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["v.json"]

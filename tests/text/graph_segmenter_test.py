import dataclasses
import random
import subprocess
import sys
import time
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.config import TextConfig
from gnmt_tf.text import normalization
from gnmt_tf.text.graph_segmenter import GraphSegmenter
from gnmt_tf.text.normalization import is_blank, normalize
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary
from gnmt_tf.text.wordpiece_trainer import train_wordpieces

NUM_RANDOM_TEXTS = 100_000
EVERY_CHARACTER = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
CONFIGS = [
    TextConfig(unicode_form=form, lowercase=lowercase)
    for form in ("none", "nfc", "nfkc")
    for lowercase in (False, True)
]


def trained() -> Vocabulary:
    """A vocabulary of made-up words, with awkward characters in its alphabet."""
    choose = random.Random(7)
    stems = ["".join(choose.choices("abcdeghiklmnoprstuéèñßΣσ日本語のはたべるक्षि\u0301", k=4)) for _ in range(80)]
    awkward = [
        "<unk>",
        "</s>",
        "##a",
        "_",
        "a_b",
        "\u00a0",
        "\u2028",
        "\r",
        "\u2047",
        "\ue000",
        "\u200d",
        "3.14",
        "[^]\\-",
    ]
    lines = [" ".join(choose.choices(stems + awkward, k=12)) for _ in range(400)]
    return train_wordpieces(lines, TextConfig(vocab_size=400))


VOCABULARY = trained()
SEGMENTER = WordpieceSegmenter(VOCABULARY)


class Compiled(tf.Module):
    """What an exported model does with text, for batches of any size."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__()
        self.segmenter = GraphSegmenter(vocabulary)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def read(self, text):
        ids = self.segmenter.encode(text)
        return {
            "normal": self.segmenter.normalize(text),
            "ids": ids.to_tensor(VOCABULARY.pad_id),
            "lengths": ids.row_lengths(),
            "blank": self.segmenter.is_blank(text),
        }

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def write(self, ids):
        return self.segmenter.decode(ids)


def with_config(config: TextConfig) -> Vocabulary:
    return dataclasses.replace(VOCABULARY, config=config)


def assert_both_agree(texts: list[str], vocabulary: Vocabulary, compiled: Compiled) -> None:
    segmenter = WordpieceSegmenter(vocabulary)
    batch = compiled.read(tf.constant([text.encode() for text in texts], tf.string, [len(texts)]))
    normal = [normalize(text, vocabulary.config) for text in texts]
    assert [text.encode() for text in normal] == batch["normal"].numpy().tolist()
    assert [segmenter.restore(segmenter.pieces(text)) for text in texts] == normal
    ids = [segmenter.encode(text) for text in texts]
    rows = zip(batch["ids"].numpy().tolist(), batch["lengths"].numpy().tolist(), strict=True)
    assert ids == [row[:length] for row, length in rows]
    assert [is_blank(text) for text in texts] == batch["blank"].numpy().tolist()
    assert [segmenter.decode(row).encode() for row in ids] == compiled.write(batch["ids"]).numpy().tolist()


def random_texts(number: int, seed: int) -> list[str]:
    choose = random.Random(seed)
    younger = [c for c in EVERY_CHARACTER if normalization._PLAIN.match(c)]
    marks = [c for c in EVERY_CHARACTER if unicodedata.combining(c)]
    hangul = [chr(code) for code in [*range(0x1100, 0x1200), *range(0xAC00, 0xD7A4, 7)]]
    awkward = [
        "\u2581",
        "\0",
        "\u00a0",
        "\u2028",
        "\r",
        "\n",
        "\x85",
        "👩\u200d💻",
        "<unk>",
        "</s>",
        "<pad>",
        "##",
        "\uffff",
    ]
    awkward += ["\ue000", "\uf8ff", "\ufeff", "\ufffd", "\U0010ffff", "\U0010fffd", "\U0010fffe", "İ", "ΑΣ ", "℡", "①"]
    alphabet = sorted(VOCABULARY.alphabet)
    spaces = [" ", "  ", "\t", "\u3000"]
    pools = [alphabet, alphabet, EVERY_CHARACTER, marks, younger, hangul, awkward, spaces, list(VOCABULARY.pieces)]
    texts = ["".join(choose.choices([*spaces, "\u2029", "\x1c"], k=choose.randint(0, 4))) for _ in range(number // 50)]
    while len(texts) < number:
        chosen = choose.choices(pools, k=3)
        length = choose.choice([0, 1, 2, 4, 8, 16])
        texts.append("".join(choose.choice(choose.choice(chosen)) for _ in range(length)))
    return texts


def test_a_hundred_thousand_random_texts_are_read_alike():
    assert_both_agree(random_texts(NUM_RANDOM_TEXTS, 1), VOCABULARY, Compiled(VOCABULARY))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.unicode_form}-{c.lowercase}")
def test_every_unicode_form_and_case_is_read_alike(config):
    vocabulary = with_config(config)
    assert_both_agree(random_texts(5000, 2), vocabulary, Compiled(vocabulary))


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_every_character_is_normalised_alike(form):
    config = TextConfig(unicode_form=form, lowercase=True)
    # Each between a letter and a mark, which it may compose with or keep apart.
    around = ["e" + character + "\u0301" for character in EVERY_CHARACTER]
    texts = ["|".join(around[start : start + 64]) for start in range(0, len(around), 64)]
    graph = GraphSegmenter(with_config(config))
    in_graph = tf.function(graph.normalize)(tf.constant([text.encode() for text in texts])).numpy().tolist()
    assert in_graph == [normalize(text, config).encode() for text in texts]


COMPILED = Compiled(with_config(TextConfig(unicode_form="nfkc", lowercase=True)))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_batch_is_read_alike(texts):
    assert_both_agree(texts, with_config(TextConfig(unicode_form="nfkc", lowercase=True)), COMPILED)


@settings(deadline=None)
@given(st.lists(st.integers(0, VOCABULARY.size - 1), max_size=12))
def test_any_ids_are_written_alike(ids):
    found = COMPILED.write(tf.constant(ids, tf.int32, [1, len(ids)])).numpy()[0]
    assert found.decode() == SEGMENTER.decode(ids)


def test_decoding_keeps_leading_dimensions():
    mark, a, b = (VOCABULARY.id_of(piece) for piece in ("\u2581", "a", "b"))
    ids = tf.constant([[[mark, a, mark, b, 3, 0]], [[mark, b, 3, 3, a, a]]], tf.int32)
    assert GraphSegmenter(VOCABULARY).decode(ids).numpy().tolist() == [[b"a b"], [b"b"]]


def test_ids_are_int32_in_ragged_rows():
    ids = GraphSegmenter(VOCABULARY).encode(tf.constant(["a b", ""]))
    assert ids.dtype == tf.int32
    assert ids.to_list() == [SEGMENTER.encode("a b"), []]


@pytest.mark.parametrize("form", ["none", "nfc", "nfkc"])
def test_bytes_that_are_not_utf8_are_read_as_replacement_characters(form):
    vocabulary = with_config(TextConfig(unicode_form=form, lowercase=True))
    compiled = Compiled(vocabulary)
    batch = compiled.read(tf.constant([b"a\xffb", b"\xc3", b"\xed\xa0\x80 c", b"\xf4\x90\x80\x80"]))
    for text in batch["normal"].numpy().tolist():
        assert "\ufffd" in text.decode()
    assert batch["normal"].numpy()[0].decode() == "a\ufffdb"


def test_a_word_of_a_hundred_thousand_characters_takes_linear_time():
    compiled = Compiled(VOCABULARY)
    text = "abc" * 33_334
    compiled.read(tf.constant(["warm"]))
    start = time.process_time()
    ids = compiled.read(tf.constant([text]))["ids"].numpy()[0].tolist()
    assert time.process_time() - start < 5.0
    assert ids == SEGMENTER.encode(text)


def test_an_alphabet_of_ten_thousand_characters_works():
    characters = [chr(0x4E00 + 2 * i) for i in range(10_000)]
    vocabulary = Vocabulary((*SPECIAL_PIECES, "\u2581", *characters, characters[0] + characters[9999]), TextConfig())
    text = characters[0] + characters[9999] + "\u4e01" + characters[5000] + "a"
    ids = GraphSegmenter(vocabulary).encode(tf.constant([text])).to_list()
    assert ids == [WordpieceSegmenter(vocabulary).encode(text)]
    assert ids[0].count(vocabulary.unknown_id) == 2


def test_the_longest_pieces_are_taken():
    word = "\U00020000" * 63
    vocabulary = Vocabulary((*SPECIAL_PIECES, "\u2581", "\U00020000", "\u2581" + word, word), TextConfig())
    assert GraphSegmenter(vocabulary).encode(tf.constant([word * 2])).to_list() == [[6, 7]]


def test_a_saved_model_needs_nothing_but_tensorflow_and_tensorflow_text(tmp_path):
    texts = ["日本語 <unk> a\u00a0b", "", " x\u0301 "]
    tf.saved_model.save(Compiled(VOCABULARY), str(tmp_path / "model"))
    program = f"""
import sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load({str(tmp_path / "model")!r})
batch = model.read(tf.constant({texts!r}))
assert not any(name.startswith("gnmt_tf") for name in sys.modules)
print(ascii([text.decode() for text in model.write(batch["ids"]).numpy()]))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert printed.strip() == ascii([SEGMENTER.decode(SEGMENTER.encode(text)) for text in texts])

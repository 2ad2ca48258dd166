import numpy as np
import pytest

from gnmt_tf.config import SearchConfig
from gnmt_tf.search.translator import BLANK, Rate, Translator
from gnmt_tf.training.model_directory import load_model


@pytest.fixture(scope="module")
def loaded(trained_model):
    return load_model(str(trained_model))


@pytest.fixture(scope="module")
def translator(loaded):
    return Translator(loaded.model, loaded.segmenter, SearchConfig(beam_width=2, batch_size=4, max_source_pieces=12))


def test_lines_keep_their_places_with_a_quarter_of_them_blank(translator):
    chance = np.random.default_rng(1)
    words = ["one", "two", "red", "cat"]
    lines = [" ".join(chance.choice(words, n)) if n % 4 else " " * n for n in chance.integers(0, 8, 40)]
    alone = {line: translator.translate([line])[0] for line in set(lines)}
    for line, together in zip(lines, translator.translate(lines), strict=True):
        assert together.text == alone[line].text
        assert together.score == pytest.approx(alone[line].score, abs=1e-4)
    assert list(translator.translate_stream(iter(lines))) == translator.translate(lines)


@pytest.mark.parametrize("line", ["", " ", "\t \t", "\u00a0", "\u2028", "\u3000\u00a0"])
def test_a_blank_line_becomes_an_empty_one(translator, line):
    assert translator.translate([line]) == [BLANK]


@pytest.mark.parametrize("line", ["😀 one", "two\u00a0red", "cat\u2028dog", "a\rb", "<unk> </s>", "漢字", "e\u0301"])
def test_characters_never_seen_are_translated_somehow_and_stay_one_line(translator, line):
    (translation,) = translator.translate([line])
    assert "\n" not in translation.text
    assert translation.num_pieces > 0


def test_a_line_of_five_thousand_words_is_cut_and_flagged(translator):
    short, long = translator.translate(["one two", "one " * 5000])
    assert long.truncated
    assert translator.translate(["one two"])[0].text == short.text


def test_progress_counts_every_line(translator):
    seen = []
    translator.translate(["one", "", "two", "red", "blue", "cat"], seen.append)
    assert seen[-1] == 6
    assert seen == sorted(seen)


def test_no_lines_give_no_translations(translator):
    assert translator.translate([]) == []
    assert list(translator.translate_stream(iter([]))) == []


def test_the_rate_says_how_much_is_left():
    rate = Rate(100)
    rate.start -= 10
    assert rate.describe(50).startswith("50/100 sentences, 5.0/s, 0:")
    assert Rate(None).describe(7).startswith("7 sentences, ")

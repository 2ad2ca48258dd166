import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.config import TextConfig
from gnmt_tf.text import segmenter as segmenter_module
from gnmt_tf.text.normalization import normalize
from gnmt_tf.text.segmenter import Segmenter, WordpieceSegmenter
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

CHARACTERS = tuple("abdehikmnorstuvwJfl<>/#0\u00e9\u2047")
LONGER = ("et", "make", "rs", "fe", "ud", "over", "seat", "width", "wid")
VOCABULARY = Vocabulary(
    (*SPECIAL_PIECES, "\u2581", *CHARACTERS, *LONGER, "\u2581J", "\u2581fe", "\u2581over", "\u2581seat", "\u2581width"),
    TextConfig(),
)
ANY_TEXT = st.text(
    st.one_of(
        st.sampled_from([*CHARACTERS, *" \t\0\r\n\u2581\u00a0\u2028\u0301\u200d"]),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
)


@pytest.fixture(name="segmenter")
def wordpiece_segmenter() -> Segmenter:
    return WordpieceSegmenter(VOCABULARY)


def test_the_papers_example_is_cut_as_printed(segmenter):
    pieces = segmenter.pieces("Jet makers feud over seat width")
    printed = " ".join(piece.replace("\u2581", "_") for piece in pieces)
    assert printed == "_J et _ make rs _fe ud _over _seat _width"


def test_the_longest_match_is_taken_first(segmenter):
    assert segmenter.pieces("widthwid") == ["\u2581width", "wid"]
    assert segmenter.pieces("widt") == ["\u2581", "wid", "t"]


def test_an_unknown_character_is_a_piece_of_its_own_and_prints_as_a_double_question_mark(segmenter):
    pieces = segmenter.pieces("x\u732b \u732bet")
    assert pieces == ["\u2581", "x", "\u732b", "\u2581", "\u732b", "et"]
    assert segmenter.encode_pieces(pieces).count(1) == 3
    assert segmenter.decode(segmenter.encode("x\u732b \u732bet")) == "\u2047\u2047 \u2047et"


@pytest.mark.parametrize("text", ["", " ", " \t "])
def test_text_without_words_has_no_pieces(segmenter, text):
    assert segmenter.encode(text) == []


@pytest.mark.parametrize("text", ["<unk>", "</s>", "<s>", "<pad>", "##", "a</s>b <s>"])
def test_text_that_looks_like_a_special_piece_is_text(segmenter, text):
    ids = segmenter.encode(text)
    assert min(ids) >= 4 or segmenter.vocabulary.unknown_id in ids
    assert not {0, 2, 3} & set(ids)
    assert segmenter.restore(segmenter.pieces(text)) == text


@given(ANY_TEXT)
def test_pieces_restore_the_normalised_text(text):
    segmenter = WordpieceSegmenter(VOCABULARY)
    assert segmenter.restore(segmenter.pieces(text)) == normalize(text, TextConfig())


@given(ANY_TEXT)
def test_decoding_gives_the_text_with_unknown_characters_marked(text):
    segmenter = WordpieceSegmenter(VOCABULARY)
    known = VOCABULARY.alphabet | {" "}
    expected = "".join(c if c in known else "\u2047" for c in normalize(text, TextConfig()))
    assert segmenter.decode(segmenter.encode(text)) == expected


def test_decoding_stops_at_the_end_and_skips_the_other_special_ids(segmenter):
    ids = [2, 0, *segmenter.encode("seat over"), 0, 3, *segmenter.encode("width"), 3]
    assert segmenter.decode(ids) == "seat over"


def test_word_marks_in_a_row_give_one_space(segmenter):
    mark = VOCABULARY.id_of("\u2581")
    assert segmenter.decode([mark, mark, VOCABULARY.id_of("a"), mark, mark, VOCABULARY.id_of("b"), mark]) == "a b"


@pytest.mark.parametrize("wrong", [-1, VOCABULARY.size])
def test_an_id_outside_the_vocabulary_is_refused(segmenter, wrong):
    with pytest.raises(ValueError, match=f"the id {wrong} is not in a vocabulary of"):
        segmenter.decode([5, wrong])


def test_a_word_of_a_hundred_thousand_characters_takes_linear_time(segmenter):
    start = time.process_time()
    assert len(segmenter.encode("make" * 25_000)) == 25_001
    assert time.process_time() - start < 2.0


def test_the_cache_is_bounded(monkeypatch, segmenter):
    monkeypatch.setattr(segmenter_module, "_MAX_CACHED_WORDS", 3)
    for number in range(20):
        segmenter.encode(f"a{'b' * number}")
    segmenter.encode("a" * 1000)
    assert len(segmenter._cache) <= 3
    assert segmenter.pieces("abb") == ["\u2581", "a", "b", "b"]


def test_what_a_caller_does_to_pieces_does_not_reach_the_cache(segmenter):
    segmenter.pieces("seat").append("x")
    assert segmenter.pieces("seat") == ["\u2581seat"]

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.config import TextConfig
from gnmt_tf.text.normalization import is_blank, lowercase_table, normalize

PLAIN = TextConfig(unicode_form="none")
NFC = TextConfig()
NFKC = TextConfig(unicode_form="nfkc")
EVERY_CONFIG = [
    TextConfig(unicode_form=form, lowercase=lowercase)
    for form in ("none", "nfc", "nfkc")
    for lowercase in (False, True)
]
EVERY_CHARACTER = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  \t ", ""),
        (" a  b\t\tc ", "a b c"),
        ("a\u00a0b\u2028c\rd", "a\u00a0b\u2028c\rd"),
        ("a\u2581b \u2581", "a_b _"),
        ("<unk> </s>", "<unk> </s>"),
    ],
)
def test_words_are_split_at_spaces_and_tabs_only(text, expected):
    assert normalize(text, PLAIN) == expected


def test_the_unicode_form_comes_before_words_are_split():
    assert normalize("a\u00a0b\u3000c", NFKC) == "a b c"
    assert normalize("e\u0301", NFC) == "\u00e9"
    assert normalize("e\u0301", PLAIN) == "e\u0301"
    assert normalize("\ufb01\uff21", NFKC) == "fiA"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ÀÉ", "àé"),
        ("ΟΔΟΣ", "οδοσ"),
        ("\u0130", "i"),
        ("ẞ", "ß"),
        ("H\u0331", "\u1e96"),
        ("\u01c5", "\u01c6"),
        ("AB", "ab"),
    ],
)
def test_each_capital_becomes_one_small_letter_whatever_stands_beside_it(text, expected):
    assert normalize(text, TextConfig(lowercase=True)) == expected


def test_lowercasing_differs_from_python_only_where_python_gives_two_characters():
    table = lowercase_table()
    assert {code for code, small in table.items() if chr(code).lower() != chr(small)} == {0x130}


@pytest.mark.parametrize("config", EVERY_CONFIG, ids=lambda c: f"{c.unicode_form}-{c.lowercase}")
@given(text=ANY_TEXT)
def test_normalising_twice_changes_nothing(config, text):
    once = normalize(text, config)
    assert normalize(once, config) == once


@given(ANY_TEXT.filter(lambda text: all(unicodedata.category(c) != "Cn" and ord(c) < 0x558 for c in text)))
def test_common_text_gets_the_form_that_python_gives(text):
    expected = " ".join(word for word in unicodedata.normalize("NFC", text).replace("\t", " ").split(" ") if word)
    assert normalize(text, NFC) == expected


def test_characters_younger_than_unicode_13_stand_between_what_is_normalised():
    # U+1E030 decomposes since Unicode 15; U+0897 has a combining class since Unicode 16.
    assert normalize("\U0001e030", NFKC) == "\U0001e030"
    assert normalize("a\u0897\u0301", NFC) == "a\u0897\u0301"


def test_blank_means_that_every_character_is_white_space():
    assert [c for c in EVERY_CHARACTER if is_blank(c)] == [c for c in EVERY_CHARACTER if c.isspace()]
    assert is_blank("")
    assert is_blank(" \u3000\t")
    assert not is_blank(" \u200b ")

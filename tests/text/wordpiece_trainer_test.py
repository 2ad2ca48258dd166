import math
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.config import TextConfig, UserError
from gnmt_tf.text.pair_merging import PairMerger
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.vocabulary import SPECIAL_PIECES
from gnmt_tf.text.wordpiece_trainer import EXHAUSTED, MERGING, READING, count_words, train_wordpieces


def merges_by_recounting(units: dict[str, int], max_characters: int) -> list[str]:
    """The plain algorithm: everything is counted again before each merge, the text joined with str.find."""
    texts = {unit: list(unit) for unit in units}
    made = []
    while True:
        symbols: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for unit, count in units.items():
            for symbol in texts[unit]:
                symbols[symbol] += count
            for pair in set(zip(texts[unit], texts[unit][1:], strict=False)):
                joined = join(texts[unit], pair)
                pairs[pair] += count * (len(texts[unit]) - len(joined))
        total = sum(symbols.values())
        gains = {
            pair: round(gain(n, pair, symbols, total), 6)
            for pair, n in pairs.items()
            if len(pair[0] + pair[1]) <= max_characters
        }
        best = max(gains.values(), default=0.0)
        if best <= 0:
            return made
        pair = min(pair for pair, value in gains.items() if value == best)
        texts = {unit: join(text, pair) for unit, text in texts.items()}
        made.append(pair[0] + pair[1])


def join(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    joined, i = [], 0
    while i < len(symbols):
        step = 2 if tuple(symbols[i : i + 2]) == pair else 1
        joined.append("".join(symbols[i : i + step]))
        i += step
    return joined


def gain(n: int, pair: tuple[str, str], symbols: Counter[str], total: int) -> float:
    after = symbols.copy()
    after[pair[0]] -= n
    after[pair[1]] -= n
    parts = set(pair)
    likelihood = x_log_x(n) + sum(x_log_x(after[part]) - x_log_x(symbols[part]) for part in parts)
    return likelihood - x_log_x(total - n) + x_log_x(total)


def x_log_x(x: int) -> float:
    return x * math.log(x) if x else 0.0


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=14), st.integers(1, 9), min_size=1, max_size=6),
    st.integers(2, 8),
)
def test_incremental_merging_makes_the_merges_that_recounting_makes(units, max_characters):
    merger = PairMerger(list(units), list(units.values()), sorted(set("".join(units))), max_characters)
    assert list(iter(merger.merge_next, None)) == merges_by_recounting(units, max_characters)


def test_merging_a_larger_text_agrees_with_recounting_when_the_short_list_is_short(monkeypatch):
    monkeypatch.setattr("gnmt_tf.text.pair_merging._SHORT_LIST", 4)
    monkeypatch.setattr("gnmt_tf.text.pair_merging._LONGEST_SHORT_LIST", 8)
    choose = random.Random(3)
    units = {"".join(choose.choices("abcdefg", k=choose.randint(1, 9))): choose.randint(1, 30) for _ in range(80)}
    merger = PairMerger(list(units), list(units.values()), list("abcdefg"), 6)
    assert list(iter(merger.merge_next, None)) == merges_by_recounting(units, 6)


def test_the_pair_that_raises_the_likelihood_most_comes_first():
    # "th" occurs 10 times of 10 t's and 12 h's; "xy" as often as x and y, but 3 times only.
    merger = PairMerger(["th", "h", "xy"], [10, 2, 3], list("hxyt"), 24)
    assert [merger.merge_next(), merger.merge_next(), merger.merge_next()] == ["th", "xy", None]


def vocabulary_of(lines, **settings_of_text):
    return train_wordpieces(lines, TextConfig(**{"vocab_size": 200, **settings_of_text}))


def generated_lines(seed: int, number: int = 300) -> list[str]:
    choose = random.Random(seed)
    words = ["".join(choose.choices("abcdefghij", k=choose.randint(1, 8))) for _ in range(100)]
    return [" ".join(choose.choices(words, k=6)) + choose.choice([".", ", 2019!", "?"]) for _ in range(number)]


def test_special_pieces_mark_and_alphabet_come_first_and_the_size_is_met():
    vocabulary = vocabulary_of(generated_lines(1), vocab_size=100)
    assert vocabulary.size == 100
    assert vocabulary.pieces[:5] == (*SPECIAL_PIECES, "\u2581")
    assert all(len(piece) == 1 for piece in vocabulary.pieces[4 : 4 + 1 + len(vocabulary.alphabet)])


def test_the_order_of_lines_does_not_matter():
    lines = generated_lines(2)
    shuffled = random.Random(0).sample(lines, len(lines))
    assert vocabulary_of(lines) == vocabulary_of(shuffled)


def test_no_piece_joins_letters_digits_and_punctuation():
    lines = ["width, width, a1b2 ((x)) 12,50 --fast caf\u00e9 e\u0301x"] * 50
    for split_digits in (True, False):
        pieces = vocabulary_of(lines, split_digits=split_digits).pieces[4:]
        for piece in pieces:
            body = piece.removeprefix("\u2581")
            assert re.fullmatch(r"[^\W\d_]*|\d*|[^\w\s]*", body), piece
        longest_number = max(len(p.removeprefix("\u2581")) for p in pieces if re.search(r"\d", p))
        assert longest_number == (1 if split_digits else 2)
        assert "\u2581width" in pieces


def test_characters_beyond_the_alphabet_are_unknown_and_end_a_unit():
    vocabulary = vocabulary_of(["aaXbb"] * 5 + ["ab"] * 9, alphabet_size=2)
    assert vocabulary.alphabet == {"a", "b"}
    assert "abb" not in vocabulary.pieces
    assert WordpieceSegmenter(vocabulary).encode("X") == [vocabulary.id_of("\u2581"), vocabulary.unknown_id]


def test_equally_frequent_characters_enter_the_alphabet_by_code_point():
    assert vocabulary_of(["cab"], alphabet_size=2).alphabet == {"a", "b"}


@pytest.mark.parametrize("longest", [1, 3])
def test_pieces_are_at_most_as_long_as_asked_for(longest):
    vocabulary = vocabulary_of(["abcdefgh abcdefgh abcdefgh"], max_piece_characters=longest)
    assert max(len(piece) for piece in vocabulary.pieces[4:]) == longest


def test_training_ends_early_when_nothing_is_left_to_merge_and_says_so():
    heard = []
    vocabulary = train_wordpieces(["ab ab"], TextConfig(vocab_size=100), lambda *report: heard.append(report))
    # The mark, a, b, and the whole word; the step on the way to it is never used.
    assert vocabulary.pieces[4:] == ("\u2581", "a", "b", "\u2581ab")
    assert heard[0] == (READING, 1, 1)
    assert heard[-1] == (EXHAUSTED, 8, 100)


def test_steps_on_the_way_that_are_never_used_make_room():
    vocabulary = vocabulary_of(generated_lines(5, 2000), vocab_size=400)
    segmenter = WordpieceSegmenter(vocabulary)
    used = {piece for line in generated_lines(5, 2000) for piece in segmenter.pieces(line)}
    longer = [piece for piece in vocabulary.pieces[4:] if len(piece) > 1]
    assert sum(piece not in used for piece in longer) <= len(longer) // 20


def test_progress_counts_lines_and_pieces():
    stages = []
    train_wordpieces(generated_lines(1), TextConfig(vocab_size=60), lambda *report: stages.append(report))
    assert stages[0] == (READING, 300, 300)
    assert stages[-1] == (MERGING, 60, 60)


def test_text_without_spaces_is_one_long_word_and_still_quick():
    choose = random.Random(4)
    words = ["".join(choose.choices([chr(0x3041 + i) for i in range(80)], k=choose.randint(1, 4))) for _ in range(300)]
    lines = ["".join(choose.choices(words, k=20)) for _ in range(300)] + ["".join(choose.choices(words, k=40_000))]
    vocabulary = vocabulary_of(lines, vocab_size=400)
    assert vocabulary.size == 400
    assert len(WordpieceSegmenter(vocabulary).encode(lines[-1])) < len(lines[-1]) / 1.5


def test_words_are_counted_after_normalisation():
    assert count_words(["A  a\tb ", "", " a"], TextConfig(lowercase=True)) == {"a": 3, "b": 1}


@pytest.mark.parametrize("lines", [[], ["", "  \t"], ["\0", " \0"]])
def test_no_text_is_a_user_error(lines):
    with pytest.raises(UserError, match="at least one word"):
        train_wordpieces(lines, TextConfig())


def test_a_vocabulary_smaller_than_its_alphabet_is_a_user_error():
    with pytest.raises(UserError, match=r"text\.vocab_size: expected at least 31.*alphabet of 26.*got 20"):
        train_wordpieces(["abcdefghijklmnopqrstuvwxyz"], TextConfig(vocab_size=20))


def test_pieces_longer_than_the_graph_can_take_are_a_user_error():
    with pytest.raises(UserError, match="max_piece_characters: expected at most 64, got 65"):
        train_wordpieces(["a"], TextConfig(max_piece_characters=65))

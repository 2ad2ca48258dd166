"""Trains the wordpiece model: lines of both languages in, a shared `Vocabulary` out (paper, section 4.1).

Words are counted, then cut into units that no piece may leave: letters with their marks, decimal digits, and other
characters stand apart, so that `width,` gives a piece `width` and never a piece `width,`. The word mark joins the first
unit of its word. The most frequent characters are the alphabet; rarer ones become the unknown piece, and units end
there. Starting from single characters, `pair_merging` then makes the pieces.

Pieces that were only steps on the way to longer ones, and that segmentation of the training text never takes, give
their places to further pieces.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from gnmt_tf.config import TextConfig, UserError
from gnmt_tf.text.normalization import WORD_MARK, normalize
from gnmt_tf.text.pair_merging import PairMerger
from gnmt_tf.text.segmenter import longest_matches
from gnmt_tf.text.vocabulary import MAX_PIECE_CHARACTERS, SPECIAL_PIECES, Vocabulary

READING, MERGING, EXHAUSTED = "reading lines", "making pieces", "nothing left to merge"

Progress = Callable[[str, int, int | None], None]
"""Called with the stage (`READING`, `MERGING`, or once `EXHAUSTED`), how much is done and, if known, of how much."""

_LINES_PER_REPORT = 2000
_PIECES_PER_REPORT = 100
_CLEANING_ROUNDS = 4
# Special characters that would split a word or a file; no vocabulary may hold them.
_NEVER_IN_ALPHABET = frozenset("\0 \t\n" + WORD_MARK)


def train_wordpieces(lines: Iterable[str], config: TextConfig, progress: Progress | None = None) -> Vocabulary:
    """Makes at most `config.vocab_size` pieces from lines of text; the order of the lines does not matter.

    Fewer come out when no further merge raises the likelihood; `progress` then hears of `EXHAUSTED`.

    Raises:
      UserError: no text, or settings that leave no room for the alphabet.
    """
    return train_from_word_counts(count_words(lines, config, progress), config, progress)


def count_words(lines: Iterable[str], config: TextConfig, progress: Progress | None = None) -> Counter[str]:
    """How often each normalised word occurs, without word marks."""
    counts: Counter[str] = Counter()
    number = 0
    for number, line in enumerate(lines, start=1):
        counts.update(normalize(line, config).split(" "))
        if progress and number % _LINES_PER_REPORT == 0:
            progress(READING, number, None)
    if progress:
        progress(READING, number, number)
    del counts[""]
    return counts


def train_from_word_counts(
    word_counts: Mapping[str, int], config: TextConfig, progress: Progress | None = None
) -> Vocabulary:
    """As `train_wordpieces`, from what `count_words` gave."""
    if config.max_piece_characters > MAX_PIECE_CHARACTERS:
        raise UserError(
            "config key text.max_piece_characters",
            f"at most {MAX_PIECE_CHARACTERS}",
            str(config.max_piece_characters),
            "Lower it; the default suits most languages.",
        )
    alphabet = _alphabet(word_counts, config.alphabet_size)
    kept = [*SPECIAL_PIECES, WORD_MARK, *alphabet]
    if not alphabet:
        raise UserError("training text", "at least one word", "none", "Check the input files.")
    if config.vocab_size < len(kept):
        raise UserError(
            "config key text.vocab_size",
            f"at least {len(kept)}: the special pieces, the word mark and an alphabet of {len(alphabet)} characters",
            str(config.vocab_size),
            "Raise it, or lower text.alphabet_size.",
        )
    units = _count_units(word_counts, alphabet, config.split_digits)
    pieces = _merge(units, kept, config, progress)
    return Vocabulary(tuple(kept + pieces), config)


def _alphabet(word_counts: Mapping[str, int], size: int) -> list[str]:
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    allowed = ((-count, character) for character, count in counts.items() if character not in _NEVER_IN_ALPHABET)
    return [character for _, character in sorted(allowed)[:size]]


def _count_units(word_counts: Mapping[str, int], alphabet: list[str], split_digits: bool) -> Counter[str]:
    find = _unit_pattern(alphabet, split_digits).findall
    units: Counter[str] = Counter()
    for word, count in word_counts.items():
        for unit in find(WORD_MARK + word):
            units[unit] += count
    return units


def _unit_pattern(alphabet: list[str], split_digits: bool) -> re.Pattern[str]:
    classes: dict[str, str] = {}
    for character in alphabet:
        category = unicodedata.category(character)
        name = "letters" if category[0] in "LM" else "digits" if category == "Nd" else "others"
        classes[name] = classes.get(name, "") + re.escape(character)
    runs = [
        f"[{members}]" if name == "digits" and split_digits else f"[{members}]+" for name, members in classes.items()
    ]
    return re.compile(f"{WORD_MARK}?(?:{'|'.join(runs)})|{WORD_MARK}")


def _merge(units: Counter[str], kept: list[str], config: TextConfig, progress: Progress | None) -> list[str]:
    """The pieces longer than a character, in the order in which they were made."""
    characters = [WORD_MARK, *kept[len(SPECIAL_PIECES) + 1 :]]
    merger = PairMerger(list(units), list(units.values()), characters, config.max_piece_characters)
    wanted = config.vocab_size - len(kept)
    pieces: dict[str, None] = {}
    for cleaning in range(_CLEANING_ROUNDS + 1):
        while len(pieces) < wanted:
            piece = merger.merge_next()
            if piece is None:
                break
            pieces[piece] = None
            if progress and len(pieces) % _PIECES_PER_REPORT == 0:
                progress(MERGING, len(kept) + len(pieces), config.vocab_size)
        exhausted = len(pieces) < wanted
        used = _used_pieces(units, Vocabulary(tuple(kept + list(pieces)), config))
        if len(used) == len(pieces) or (cleaning == _CLEANING_ROUNDS and not exhausted):
            break
        pieces = {piece: None for piece in pieces if piece in used}
        if exhausted:
            break
    if progress:
        progress(EXHAUSTED if exhausted else MERGING, len(kept) + len(pieces), config.vocab_size)
    return list(pieces)


def _used_pieces(units: Counter[str], vocabulary: Vocabulary) -> set[str]:
    """Pieces longer than a character that the segmentation of the units takes."""
    used: set[str] = set()
    for unit in units:
        used.update(longest_matches(unit, vocabulary))
    return {piece for piece in used if len(piece) > 1}

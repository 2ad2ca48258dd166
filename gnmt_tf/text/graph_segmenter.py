"""Segmentation as TensorFlow operations, so that an exported model takes and gives raw strings.

Reads a `Vocabulary`; gives a `tf.Module` whose methods work inside `tf.function` and in a SavedModel that is loaded
where only `tensorflow` and `tensorflow_text` are installed. It agrees with `normalization` and `segmenter` on every
string.

A normalised line becomes one string with the word mark for each space and at the start. Since the mark occurs only at
the start of pieces, taking the longest match over the whole line is the same as doing so word by word, and one call of
the linear-time tokenizer of tensorflow_text does it.
"""

import itertools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from gnmt_tf.text.normalization import (
    BLANK_CHARACTERS,
    PLAIN_CHARACTERS,
    UNKNOWN_TEXT,
    WORD_MARK,
    lowercase_table,
)
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

_UNLIMITED_BYTES = 2**31 - 1
# regex_split drops what follows a NUL. A NUL, and the first of these characters, are written with two of them
# meanwhile; no Unicode form changes any of the three.
_ESCAPE, _ESCAPED_NUL, _ESCAPED_ESCAPE = "\U0010ffff", "\U0010ffff\U0010fffd", "\U0010ffff\U0010fffe"


class GraphSegmenter(tf.Module):
    """Text to ids and back, in the graph.

    Bytes that are not UTF-8 are read as U+FFFD.
    """

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(name="segmenter")
        self._vocabulary = vocabulary
        stand_in, self._inner = _absent_characters(vocabulary, 2)
        self._stand_in = stand_in
        self._unknown = f"[^{WORD_MARK}{_escaped(sorted(vocabulary.alphabet))}]"
        self._tokenizer, self._ids = _tokenizer(vocabulary, stand_in, self._inner)
        printed = ["" for _ in SPECIAL_PIECES] + list(vocabulary.pieces[len(SPECIAL_PIECES) :])
        printed[vocabulary.unknown_id] = UNKNOWN_TEXT
        self._printed = np.array([piece.encode() for piece in printed], object)
        if vocabulary.config.lowercase:
            capitals = sorted(lowercase_table())
            self._capitals = np.array(capitals, np.int32)
            self._small = np.array([lowercase_table()[code] for code in capitals], np.int32)

    def is_blank(self, text: tf.Tensor) -> tf.Tensor:
        """Whether lines hold nothing but white space: string [batch_size] -> bool [batch_size]."""
        return tf.strings.regex_full_match(_valid(text), f"[{BLANK_CHARACTERS}]*")

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Lines in their normal form: string [batch_size] -> string [batch_size]."""
        config = self._vocabulary.config
        text = _unicode_form(_valid(text), config.unicode_form)
        if config.lowercase:
            text = _unicode_form(self._lowercase(text), config.unicode_form)
        text = tf.strings.regex_replace(text, WORD_MARK, "_")
        return _single_spaces(tf.strings.regex_replace(text, "\t", " "))

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of lines, without start or end: string [batch_size] -> int32 [batch_size, (pieces)]."""
        words = self.normalize(text)
        marked = tf.where(words == "", words, tf.strings.join([WORD_MARK, words]))
        marked = tf.strings.regex_replace(marked, " ", WORD_MARK)
        known = tf.strings.regex_replace(marked, self._unknown, self._stand_in)
        tokens = self._tokenizer.tokenize(known)
        return tf.ragged.map_flat_values(lambda token: tf.gather(tf.constant(self._ids), token), tokens)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """The text of ids up to the first end id: int32 [..., length] -> string [...].

        Padding and start ids are skipped; an unknown character prints as U+2047.
        """
        ended = tf.cumsum(tf.cast(ids == self._vocabulary.end_id, tf.int32), axis=-1) > 0
        pieces = tf.gather(tf.constant(self._printed), tf.where(ended, self._vocabulary.pad_id, ids))
        text = tf.strings.reduce_join(pieces, axis=-1)
        return _single_spaces(tf.strings.regex_replace(text, WORD_MARK, " "))

    def _lowercase(self, text: tf.Tensor) -> tf.Tensor:
        codes = tf.strings.unicode_decode(text, "UTF-8")
        flat = codes.flat_values
        place = tf.minimum(tf.searchsorted(self._capitals, flat), self._capitals.size - 1)
        lowered = tf.where(tf.gather(self._capitals, place) == flat, tf.gather(self._small, place), flat)
        return tf.strings.unicode_encode(codes.with_flat_values(lowered), "UTF-8")


def _valid(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def _unicode_form(text: tf.Tensor, form: str) -> tf.Tensor:
    """The Unicode form of what lies between the characters that stay as they are: string [batch_size], both ways."""
    if form == "none":
        return text
    text = tf.strings.regex_replace(text, _ESCAPE, _ESCAPED_ESCAPE)
    text = tf.strings.regex_replace(text, r"\x{0}", _ESCAPED_NUL)
    parts = tf_text.regex_split(text, f"({PLAIN_CHARACTERS})", f"({PLAIN_CHARACTERS})")
    flat = parts.flat_values
    plain = tf.strings.regex_full_match(flat, PLAIN_CHARACTERS)
    flat = tf.where(plain, flat, tf_text.normalize_utf8(flat, form.upper()))
    text = tf.strings.reduce_join(parts.with_flat_values(flat), axis=-1)
    text = tf.strings.regex_replace(text, _ESCAPED_NUL, "\0")
    return tf.strings.regex_replace(text, _ESCAPED_ESCAPE, _ESCAPE)


def _single_spaces(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(tf.strings.regex_replace(text, " +", " "), "^ | $", "")


def _absent_characters(vocabulary: Vocabulary, number: int) -> list[str]:
    """Private-use characters that are not in the alphabet."""
    private = (chr(code) for code in itertools.chain(range(0xE000, 0xF900), range(0xF0000, 0x10FFFE)))
    return list(itertools.islice((c for c in private if c not in vocabulary.alphabet), number))


def _escaped(characters: list[str]) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in characters)


def _tokenizer(vocabulary: Vocabulary, stand_in: str, inner: str) -> tuple[tf_text.FastWordpieceTokenizer, np.ndarray]:
    """The tokenizer, and an int32 array from its ids to those of the vocabulary.

    Args:
      vocabulary: the pieces.
      stand_in: the character that unknown ones have been replaced with.
      inner: a character that cannot occur, which marks pieces inside a line in the tokenizer's own list.
    """
    ids = {stand_in: vocabulary.unknown_id, **vocabulary.ids}
    # Every line starts with the word mark; the stand-in is there because the tokenizer asks for an unknown token.
    first = [piece for piece in ids if piece.startswith((WORD_MARK, stand_in))]
    tokens = first + [inner + piece for piece in ids]
    tokenizer = tf_text.FastWordpieceTokenizer(
        tokens,
        suffix_indicator=inner,
        max_bytes_per_word=_UNLIMITED_BYTES,
        token_out_type=tf.int32,
        unknown_token=stand_in,
        no_pretokenization=True,
    )
    return tokenizer, np.array([ids[token.removeprefix(inner)] for token in tokens], np.int32)

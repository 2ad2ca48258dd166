"""Segmentation in plain Python: text to pieces and ids, and back. The oracle of the one in the graph.

Reads lines of text and a `Vocabulary`; gives the piece ids that batches are made of, and text from a model's ids.

Within a word the longest piece that matches is taken, from left to right. Pieces hold characters of one class only (the
trainer sees to that), so a match never reaches from letters into digits or punctuation.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gnmt_tf.text.normalization import UNKNOWN_TEXT, WORD_MARK, normalize
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

_MAX_CACHED_WORDS = 1 << 16
_MAX_CACHED_CHARACTERS = 64


class Segmenter(Protocol):
    """Text to pieces and back, for any character sequence."""

    @property
    def vocabulary(self) -> Vocabulary:
        """What the ids mean."""

    def pieces(self, text: str) -> list[str]:
        """The pieces of a line as they are written; an unknown character is a piece of its own."""

    def restore(self, pieces: Sequence[str]) -> str:
        """The text that pieces were made from: `restore(pieces(text)) == normalize(text)` for every string."""

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]:
        """The ids of pieces."""

    def encode(self, text: str) -> list[int]:
        """The ids of a line, without start or end."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first end id; an unknown character prints as U+2047."""


class WordpieceSegmenter:
    """The wordpiece model (paper, section 4.1)."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._cache: dict[str, list[str]] = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """What the ids mean."""
        return self._vocabulary

    def pieces(self, text: str) -> list[str]:
        """The pieces of a line, the word mark included; an unknown character is a piece of its own."""
        pieces: list[str] = []
        for word in normalize(text, self._vocabulary.config).split(" "):
            if word:
                pieces += self._word_pieces(word)
        return pieces

    def restore(self, pieces: Sequence[str]) -> str:
        """The text of pieces: every word mark starts a word."""
        return " ".join([word for word in "".join(pieces).replace(WORD_MARK, " ").split(" ") if word])

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]:
        """The ids of pieces; `unknown_id` for what is not a piece."""
        id_of = self._vocabulary.id_of
        return [id_of(piece) for piece in pieces]

    def encode(self, text: str) -> list[int]:
        """The ids of a line, without start or end; in time linear in its length."""
        return self.encode_pieces(self.pieces(text))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first `end_id`; padding and start are skipped, an unknown character is U+2047.

        Raises:
          ValueError: an id outside the vocabulary.
        """
        vocabulary = self._vocabulary
        pieces = []
        for piece_id in ids:
            if not 0 <= piece_id < vocabulary.size:
                raise ValueError(f"the id {piece_id} is not in a vocabulary of {vocabulary.size} pieces")
            if piece_id == vocabulary.end_id:
                break
            if piece_id == vocabulary.unknown_id:
                pieces.append(UNKNOWN_TEXT)
            elif piece_id >= len(SPECIAL_PIECES):
                pieces.append(vocabulary.pieces[piece_id])
        return self.restore(pieces)

    def _word_pieces(self, word: str) -> list[str]:
        pieces = self._cache.get(word)
        if pieces is None:
            pieces = longest_matches(WORD_MARK + word, self._vocabulary)
            if len(word) <= _MAX_CACHED_CHARACTERS:
                if len(self._cache) >= _MAX_CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = pieces
        return pieces


def longest_matches(text: str, vocabulary: Vocabulary, passes_over: Callable[[], bool] | None = None) -> list[str]:
    """Cuts text into pieces, the longest that matches first; a character that is no piece stands alone.

    Args:
      text: what to cut.
      vocabulary: the pieces.
      passes_over: asked at each match of several characters whether a shorter one is to be looked for.
    """
    ids, longest = vocabulary.ids, vocabulary.longest_by_first
    pieces = []
    start = 0
    while start < len(text):
        end = min(start + longest.get(text[start], 1), len(text))
        while end > start + 1 and (text[start:end] not in ids or (passes_over and passes_over())):
            end -= 1
        pieces.append(text[start:end])
        start = end
    return pieces

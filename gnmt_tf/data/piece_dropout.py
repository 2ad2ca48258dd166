"""Subword regularisation: training sentences cut anew each time, so that a model sees words in more than one form.

While the longest matching piece is looked for, each match is passed over with a given probability and the next shorter
one is tried (MaxMatch-Dropout, Hiraoka 2022, arXiv 2209.04126). Reads the ids of a sentence; gives others that stand
for the same text.
"""

import random
from collections.abc import Callable, Sequence

from gnmt_tf.text.normalization import WORD_MARK
from gnmt_tf.text.segmenter import longest_matches
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

_PIECES_PER_DROPPED = 1.5
"""Pieces that one passed-over match adds at most on average: it mostly falls into two, now and then into three."""


class PieceDropout:
    """Cuts sentences anew.

    Args:
      vocabulary: the pieces.
      rate: probability, in [0, 1), with which a match is passed over; 0 changes nothing.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float):
        self._vocabulary = vocabulary
        self.rate = rate

    @property
    def growth(self) -> float:
        """How much longer a sentence may become: the room that batches leave, as a factor of its length."""
        return 1.0 + _PIECES_PER_DROPPED * self.rate

    def cut(self, ids: Sequence[int], most: int, source: random.Random) -> list[int]:
        """The same text in other pieces.

        Args:
          ids: a sentence as the segmenter cuts it; unknown pieces stay where they are.
          most: most pieces of the result, at least `len(ids)`. Where all words cut anew would be too many, words chosen
            at random stay as they were until the rest fits.
          source: of the random numbers.
        """
        words = self._words(ids)
        anew = [self._cut_word(word, lambda: source.random() < self.rate) for word in words]
        excess = sum(map(len, anew)) - most
        if excess > 0:
            for number in source.sample(range(len(words)), len(words)):
                excess -= len(anew[number]) - len(words[number])
                anew[number] = words[number]
                if excess <= 0:
                    break
        return [piece_id for word in anew for piece_id in word]

    def _words(self, ids: Sequence[int]) -> list[list[int]]:
        """The ids in runs that are cut as one: words, or what unknown pieces leave of them."""
        pieces = self._vocabulary.pieces
        words: list[list[int]] = []
        was_text = False
        for piece_id in ids:
            is_text = piece_id >= len(SPECIAL_PIECES)
            if is_text and was_text and not pieces[piece_id].startswith(WORD_MARK):
                words[-1].append(piece_id)
            else:
                words.append([piece_id])
            was_text = is_text
        return words

    def _cut_word(self, word: list[int], passes_over: Callable[[], bool]) -> list[int]:
        if word[0] < len(SPECIAL_PIECES):
            return word
        vocabulary = self._vocabulary
        text = "".join(vocabulary.pieces[piece_id] for piece_id in word)
        return [vocabulary.ids[piece] for piece in longest_matches(text, vocabulary, passes_over)]

"""What became of one line: its hypotheses with everything the search knows of them.

Reads rows of a BeamResult and the pieces of the source line; gives text, with unknown characters copied, and details.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gnmt_tf.search.history import BeamResult
from gnmt_tf.text.segmenter import Segmenter
from gnmt_tf.text.vocabulary import END_ID, UNKNOWN_ID


class Hypothesis(NamedTuple):
    """One translation of a line.

    Fields:
      text: what a reader sees.
      score: eq. 14.
      log_prob: log P(Y|X), in nats.
      pieces: of the vocabulary, `</s>` last.
      piece_log_probs: one for each piece; they sum to log_prob.
      attention: float [pieces, source pieces], or None when it was not kept.
      truncated: it is as long as the length limit lets it be.
    """

    text: str
    score: float
    log_prob: float
    pieces: tuple[str, ...]
    piece_log_probs: tuple[float, ...]
    attention: np.ndarray | None
    truncated: bool


class Translation(NamedTuple):
    """What became of one line.

    Fields:
      text: the best hypothesis; empty for a blank line.
      score: eq. 14; 0 for a blank line.
      num_pieces: length of the hypothesis, `</s>` counted; 0 for a blank line.
      truncated: the source was cut, or the translation is as long as the length limit lets it be.
      hypotheses: the best ones with different texts, best first; none for a blank line.
      source_pieces: what the model read, `</s>` last; none for a blank line.
      num_prefix_pieces: how many of those at the start come from `search.source_prefix` and not from the line.
    """

    text: str
    score: float
    num_pieces: int
    truncated: bool
    hypotheses: tuple[Hypothesis, ...] = ()
    source_pieces: tuple[str, ...] = ()
    num_prefix_pieces: int = 0


BLANK = Translation("", 0.0, 0, False)


def hypotheses_of_row(
    result: BeamResult,
    row: int,
    source_pieces: list[str],
    source_ids: list[int],
    segmenter: Segmenter,
    distinct: bool = True,
) -> list[Hypothesis]:
    """The hypotheses of one sentence, best first.

    Args:
      result: of the batch, as NumPy arrays.
      row: of the sentence.
      source_pieces, source_ids: of the sentence, `</s>` last.
      segmenter: of the vocabulary.
      distinct: whether each text is given once.
    """
    hypotheses: list[Hypothesis] = []
    seen: set[str] = set()
    names = segmenter.vocabulary.pieces
    for n, score in enumerate(result.scores[row].tolist()):
        if score == -math.inf:
            break
        length = int(result.lengths[row, n])
        ids = result.ids[row, n, :length].tolist()
        attention = result.attention_probs[row, n, :length, : len(source_ids)]
        kept_attention = attention if attention.shape[1] else None
        text = _text(ids, kept_attention, source_pieces, source_ids, segmenter)
        if not distinct or text not in seen:
            seen.add(text)
            hypotheses.append(
                Hypothesis(
                    text,
                    score,
                    float(result.log_probs[row, n]),
                    tuple(names[i] for i in ids),
                    tuple(result.piece_log_probs[row, n, :length].tolist()),
                    kept_attention,
                    bool(result.truncated[row, n]),
                )
            )
    return hypotheses


def joined(parts: list[Translation]) -> Translation:
    """The translation of a line from those of its sentences.

    Their best hypotheses one after the other make its only one, each with the `</s>` of its own. Scores and
    log-probabilities are sums.
    """
    if len(parts) <= 1:
        return parts[0] if parts else BLANK
    found = [part for part in parts if part.hypotheses]
    bests = [part.hypotheses[0] for part in found]
    score = sum(part.score for part in parts)
    truncated = any(part.truncated for part in parts)
    whole = Hypothesis(
        " ".join(best.text for best in bests),
        score,
        sum(best.log_prob for best in bests),
        tuple(piece for best in bests for piece in best.pieces),
        tuple(log_prob for best in bests for log_prob in best.piece_log_probs),
        _block_diagonal([best.attention for best in bests]),
        truncated,
    )
    source_pieces = tuple(piece for part in found for piece in part.source_pieces)
    hypotheses = (whole,) if found else ()
    return Translation(
        whole.text, score, len(whole.pieces), truncated, hypotheses, source_pieces, parts[0].num_prefix_pieces
    )


def _block_diagonal(blocks: Sequence[np.ndarray | None]) -> np.ndarray | None:
    kept = [block for block in blocks if block is not None]
    if not kept or len(kept) < len(blocks):
        return None
    whole = np.zeros(np.sum([block.shape for block in kept], axis=0), np.float32)
    row = column = 0
    for block in kept:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole


def alignment(attention: np.ndarray) -> list[tuple[int, int]]:
    """Links (source piece, target piece), counted from 0, in Pharaoh's order of fields: for each target piece but
    `</s>` the source piece that it attended to most, `</s>` of the source left out.

    Args:
      attention: float [target pieces, source pieces], both ends included.
    """
    if attention.shape[1] < 2:
        return []
    return [(int(np.argmax(probs[:-1])), target) for target, probs in enumerate(attention[:-1])]


def word_alignment(attention: np.ndarray, source_words: list[int], target_words: list[int]) -> list[tuple[int, int]]:
    """Links between words: those of their pieces, each once.

    Args:
      attention: see `alignment`.
      source_words, target_words: the number of the word that each piece belongs to, `</s>` left out.
    """
    return sorted({(source_words[s], target_words[t]) for s, t in alignment(attention)})


def word_numbers(pieces: tuple[str, ...] | list[str], word_mark: str) -> list[int]:
    """The number of the word of each piece but `</s>`, counted from 0."""
    numbers, number = [], -1
    for piece in pieces[:-1]:
        number += piece.startswith(word_mark) or number < 0
        numbers.append(number)
    return numbers


def _text(
    ids: list[int],
    attention: np.ndarray | None,
    source_pieces: list[str],
    source_ids: list[int],
    segmenter: Segmenter,
) -> str:
    """The text of ids; an unknown piece becomes the unknown source character, if any, that it attended to most."""
    unknown = [place for place, source_id in enumerate(source_ids) if source_id == UNKNOWN_ID]
    if attention is None or UNKNOWN_ID not in ids or not unknown:
        return segmenter.decode(ids)
    names = segmenter.vocabulary.pieces
    pieces = []
    for step, piece_id in enumerate(ids):
        if piece_id == UNKNOWN_ID:
            pieces.append(source_pieces[max(unknown, key=lambda place: attention[step, place])])
        elif piece_id != END_ID:
            pieces.append(names[piece_id])
    return segmenter.restore(pieces)

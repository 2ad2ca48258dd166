"""The forms in which translations leave: plain lines, Moses n-best lists, JSON lines, Pharaoh alignments.

Reads a Translation and the number of its line; gives text without its last newline. A plain line, a JSON line and an
alignment are one line for each line of input; an n-best list has one for each hypothesis.
"""

import json
from typing import Any

from gnmt_tf.search.hypotheses import Hypothesis, Translation, alignment, word_alignment, word_numbers
from gnmt_tf.text.normalization import WORD_MARK

FORMATS = ("text", "json", "moses")


def formatted(translation: Translation, number: int, source: str, form: str, scores: bool, attention: bool) -> str:
    """One translation in a form of FORMATS; may be several lines for `moses`.

    Args:
      number: of the line, counted from 0.
      source: the line.
      form: the form.
      scores: for `text`, whether the score goes before the translation.
      attention: for `json`, whether each hypothesis has its attention.
    """
    if form == "json":
        return json.dumps(_json(translation, number, source, attention), ensure_ascii=False)
    if form == "moses":
        return "\n".join(_moses(hypothesis, number) for hypothesis in translation.hypotheses) or _moses(None, number)
    return f"{translation.score:.4f}\t{one_line(translation.text)}" if scores else one_line(translation.text)


def pharaoh(translation: Translation, words: bool = False) -> str:
    """Links `source-target` of the best hypothesis, counted from 0, between pieces or between words."""
    if not translation.hypotheses or translation.hypotheses[0].attention is None:
        return ""
    best = translation.hypotheses[0]
    return " ".join(f"{source}-{target}" for source, target in _links(best, translation, words))


def one_line(text: str) -> str:
    """A translation is one line, whatever the pieces held."""
    return text.replace("\n", " ")


def _links(hypothesis: Hypothesis, translation: Translation, words: bool = False) -> list[tuple[int, int]]:
    """Links to what the line itself holds, counted from its start: a source prefix is left out."""
    assert hypothesis.attention is not None
    links, first = alignment(hypothesis.attention), translation.num_prefix_pieces
    if words:
        source_words = word_numbers(translation.source_pieces, WORD_MARK)
        links = word_alignment(hypothesis.attention, source_words, word_numbers(hypothesis.pieces, WORD_MARK))
        first = source_words[first - 1] + 1 if first else 0
    return [(source - first, target) for source, target in links if source >= first]


def _json(translation: Translation, number: int, source: str, attention: bool) -> dict[str, Any]:
    hypotheses = []
    for hypothesis in translation.hypotheses:
        entry: dict[str, Any] = {
            "translation": hypothesis.text,
            "score": hypothesis.score,
            "log_prob": hypothesis.log_prob,
            "pieces": hypothesis.pieces,
            "piece_log_probs": hypothesis.piece_log_probs,
            "truncated": hypothesis.truncated,
        }
        if hypothesis.attention is not None:
            entry["alignment"] = [list(link) for link in _links(hypothesis, translation)]
            if attention:
                entry["attention"] = [[round(p, 6) for p in probs] for probs in hypothesis.attention.tolist()]
        hypotheses.append(entry)
    return {
        "line": number,
        "source": source,
        "source_pieces": translation.source_pieces,
        "translation": translation.text,
        "score": translation.score,
        "truncated": translation.truncated,
        "hypotheses": hypotheses,
    }


def _moses(hypothesis: Hypothesis | None, number: int) -> str:
    if hypothesis is None:
        return f"{number} |||  ||| log_prob= 0.000000 ||| 0.000000"
    return (
        f"{number} ||| {one_line(hypothesis.text)} ||| log_prob= {hypothesis.log_prob:.6f} ||| {hypothesis.score:.6f}"
    )

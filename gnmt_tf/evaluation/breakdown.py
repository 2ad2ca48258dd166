"""Where a model does well and where it does not: BLEU by source length and by unknown pieces, and single sentences.

Reads an evaluation; gives groups of sentences with their scores and a small HTML page, self-contained, with plots.
"""

import base64
import html
import io
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sacrebleu.metrics import CHRF

from gnmt_tf.evaluation.corpus_scores import corpus_scores
from gnmt_tf.search.hypotheses import Translation
from gnmt_tf.text.normalization import is_blank
from gnmt_tf.text.vocabulary import END_ID, SPECIAL_PIECES

BREAKDOWNS = ("length", "unknown", "sentence")
LENGTH_BOUNDS = (10, 20, 30, 40, 50, 70, 100)
WORST_SENTENCES = 50


class Sentence(NamedTuple):
    """One line of a test set.

    Fields:
      number: counted from 1.
      source, reference, text: as they are; text is the translation.
      chrf: of the sentence alone, 0 to 100.
      num_source_pieces: `</s>` counted; 0 for a blank line.
      num_unknown: source pieces that are not in the vocabulary.
      coverage: share of the source pieces whose attention sums to at least one half; None when it was not kept.
    """

    number: int
    source: str
    reference: str
    text: str
    chrf: float
    num_source_pieces: int
    num_unknown: int
    coverage: float | None


class Group(NamedTuple):
    """Sentences with something in common, and their corpus BLEU."""

    name: str
    num_sentences: int
    bleu: float


def sentences_of(
    sources: Sequence[str],
    references: Sequence[str],
    translations: Sequence[Translation],
    is_known: Callable[[str], bool],
    lowercase: bool,
) -> list[Sentence]:
    """One Sentence for each line that is not blank on both sides.

    `is_known` says whether a source piece is in the vocabulary.
    """
    chrf = CHRF(lowercase=lowercase)
    sentences = []
    for number, (source, reference, translation) in enumerate(
        zip(sources, references, translations, strict=True), start=1
    ):
        if is_blank(source) and is_blank(reference):
            continue
        unknown = sum(not is_known(piece) for piece in translation.source_pieces if piece != SPECIAL_PIECES[END_ID])
        score = chrf.sentence_score(translation.text, [reference]).score
        numbers = len(translation.source_pieces), unknown, _coverage(translation)
        sentences.append(Sentence(number, source, reference, translation.text, score, *numbers))
    return sentences


def by_length(sentences: Sequence[Sentence], lowercase: bool) -> list[Group]:
    """BLEU by the number of source pieces."""
    groups = []
    for low, high in itertools.pairwise((0, *LENGTH_BOUNDS, math.inf)):
        name = f"more than {low}" if high == math.inf else f"{low + 1} to {high}"
        groups += _group(name, [s for s in sentences if low < s.num_source_pieces <= high], lowercase)
    return groups


def by_unknown(sentences: Sequence[Sentence], lowercase: bool) -> list[Group]:
    """BLEU of sentences without and with unknown source pieces."""
    groups = []
    for name, low, high in (("none", 0, 0), ("one", 1, 1), ("two or more", 2, 10**9)):
        groups += _group(name, [s for s in sentences if low <= s.num_unknown <= high], lowercase)
    return groups


def report_page(title: str, sentences: Sequence[Sentence], breakdowns: Sequence[str], lowercase: bool) -> str:
    """An HTML page with the breakdowns asked for, of BREAKDOWNS."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if "length" in breakdowns:
        parts += ["<h2>BLEU by source length</h2>", *_groups("source pieces", by_length(sentences, lowercase))]
    if "unknown" in breakdowns:
        parts += ["<h2>BLEU by unknown source pieces</h2>", *_groups("unknown", by_unknown(sentences, lowercase))]
    if "sentence" in breakdowns:
        parts += _coverage_parts(sentences)
        parts += [f"<h2>The {WORST_SENTENCES} sentences with the lowest chrF</h2>", _worst(sentences)]
    style = (
        "body{font-family:sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse;margin:1em 0}"
        "td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}td.n{text-align:right}"
    )
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _group(name: str, sentences: list[Sentence], lowercase: bool) -> list[Group]:
    if not sentences:
        return []
    scores = corpus_scores([s.text for s in sentences], [s.reference for s in sentences], lowercase)
    return [Group(name, len(sentences), scores.bleu)]


def _coverage(translation: Translation) -> float | None:
    if not translation.hypotheses or translation.hypotheses[0].attention is None:
        return None
    sums = translation.hypotheses[0].attention.sum(axis=0)
    return float(np.mean(sums >= 0.5))


def _groups(label: str, groups: list[Group]) -> list[str]:
    figure = Figure(figsize=(7.0, 3.0), dpi=100, layout="constrained")
    axes = figure.subplots()
    bars = axes.bar([group.name for group in groups], [group.bleu for group in groups])
    axes.bar_label(bars, [f"{group.bleu:.1f}" for group in groups])
    axes.set_xlabel(label)
    axes.set_ylabel("BLEU")
    rows = "".join(
        f'<tr><td>{html.escape(g.name)}</td><td class="n">{g.num_sentences}</td><td class="n">{g.bleu:.2f}</td></tr>'
        for g in groups
    )
    return [_picture(figure), f"<table><tr><th>{label}</th><th>sentences</th><th>BLEU</th></tr>{rows}</table>"]


def _coverage_parts(sentences: Sequence[Sentence]) -> list[str]:
    shares = [s.coverage for s in sentences if s.coverage is not None]
    if not shares:
        return []
    figure = Figure(figsize=(7.0, 3.0), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.hist(shares, bins=20, range=(0.0, 1.0))
    axes.set_xlabel("share of the source pieces that were attended to (sum of at least 0.5)")
    axes.set_ylabel("sentences")
    return ["<h2>Coverage of the source by the attention</h2>", _picture(figure)]


def _worst(sentences: Sequence[Sentence]) -> str:
    worst = sorted(sentences, key=lambda s: (s.chrf, s.number))[:WORST_SENTENCES]
    rows = "".join(
        f'<tr><td class="n">{s.number}</td><td class="n">{s.chrf:.1f}</td><td>{html.escape(s.source)}<br>'
        f"<b>{html.escape(s.text)}</b><br><i>{html.escape(s.reference)}</i></td></tr>"
        for s in worst
    )
    return (
        f"<table><tr><th>line</th><th>chrF</th><th>source, <b>translation</b>, <i>reference</i></th></tr>{rows}</table>"
    )


def _picture(figure: Figure) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">'

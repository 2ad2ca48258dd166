"""The attention of a translation as a picture: target pieces down, source pieces across, dark where there is much."""

import base64
import html
import io
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gnmt_tf.search.hypotheses import Translation

INCHES_PER_PIECE = 0.32
MOST_INCHES = 30.0


def draw_attention(translation: Translation) -> Figure:
    """The best hypothesis of a translation that was made with its attention kept."""
    best = translation.hypotheses[0]
    assert best.attention is not None
    rows, columns = best.attention.shape
    size = [min(1.6 + INCHES_PER_PIECE * n, MOST_INCHES) for n in (columns, rows)]
    figure = Figure(figsize=(size[0], size[1]), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.imshow(best.attention, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    source, target = (_labels(pieces) for pieces in (translation.source_pieces, best.pieces))
    axes.set_xticks(range(columns), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(rows), target)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(-0.5, columns), minor=True)
    axes.set_yticks(np.arange(-0.5, rows), minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    return figure


def _labels(pieces: Sequence[str]) -> list[str]:
    # A dollar sign would start a formula.
    return [piece.replace("$", r"\$") for piece in pieces]


def attention_page(sources: Sequence[str], translations: Sequence[Translation]) -> str:
    """An HTML page, self-contained, with a picture for each translation."""
    parts = []
    for source, translation in zip(sources, translations, strict=True):
        parts.append(f"<h2>{html.escape(source)}</h2><p>{html.escape(translation.text)}</p>")
        if translation.hypotheses:
            picture = io.BytesIO()
            draw_attention(translation).savefig(picture, format="png")
            parts.append(f'<img alt="" src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Attention</title>'
        "<style>body{font-family:sans-serif;margin:2em}h2{font-size:1.1em}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )

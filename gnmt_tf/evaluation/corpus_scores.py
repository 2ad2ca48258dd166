"""Corpus scores by sacreBLEU, each with the signature that says how it was computed."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

from gnmt_tf.config import UserError


class CorpusScores(NamedTuple):
    """Scores of a whole corpus, 0 to 100 each.

    Fields:
      bleu, chrf: sacreBLEU's corpus scores.
      exact_match: share of the lines that equal their reference, in percent.
      bleu_signature, chrf_signature: sacreBLEU's signatures.
    """

    bleu: float
    chrf: float
    exact_match: float
    bleu_signature: str
    chrf_signature: str


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> CorpusScores:
    """Scores hypotheses against one reference each.

    Args:
      hypotheses, references: plain text, one sentence an element.
      lowercase: whether case is ignored, in all three scores.

    Raises:
      UserError: no sentences, or unequal counts.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(
            "evaluation",
            "equally many hypotheses and references, at least one",
            f"{len(hypotheses)} and {len(references)}",
            "Check the source and the reference file.",
        )
    bleu, chrf = BLEU(lowercase=lowercase, tokenize="13a"), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, [list(references)])
    chrf_score = chrf.corpus_score(hypotheses, [list(references)])
    fold = str.lower if lowercase else str
    matches = sum(fold(h) == fold(r) for h, r in zip(hypotheses, references, strict=True))
    return CorpusScores(
        bleu_score.score,
        chrf_score.score,
        100.0 * matches / len(hypotheses),
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )

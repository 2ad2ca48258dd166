"""One evaluation of a model on a test set: translate, score, time. Gives a report whose figures carry their origin."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gnmt_tf.config import SearchConfig
from gnmt_tf.evaluation.corpus_scores import CorpusScores, corpus_scores
from gnmt_tf.search.translator import Translation, Translator


class Evaluation(NamedTuple):
    """Scores, speed and the translations they belong to.

    Fields:
      scores: of the whole test set.
      translations: one for each source line.
      seconds: wall time of translating, segmentation included, without the first compilation.
      words_per_second, sentences_per_second: target words (split at white space) and sentences over `seconds`.
      search: the settings that produced the translations.
    """

    scores: CorpusScores
    translations: list[Translation]
    seconds: float
    words_per_second: float
    sentences_per_second: float
    search: SearchConfig


def evaluate(
    translator: Translator,
    source_lines: Sequence[str],
    reference_lines: Sequence[str],
    lowercase: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Translates the source and scores it against the reference.

    Args:
      translator: model, segmenter and search settings.
      source_lines, reference_lines: one sentence each, equally many.
      lowercase: see `corpus_scores`.
      progress: see `Translator.translate`.
    """
    # The first calls trace the graph, which is no part of the speed that a server shows.
    translator.warm_up(source_lines)
    start = time.perf_counter()
    translations = translator.translate(source_lines, progress)
    seconds = time.perf_counter() - start
    texts = [translation.text for translation in translations]
    scores = corpus_scores(texts, reference_lines, lowercase)
    words = sum(len(text.split()) for text in texts)
    return Evaluation(scores, translations, seconds, words / seconds, len(texts) / seconds, translator.search)

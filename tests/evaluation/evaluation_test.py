import math

import numpy as np
import pytest
import tensorflow as tf

from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.data.parallel_text import load_corpus, read_pairs
from gnmt_tf.evaluation.corpus_scores import corpus_scores
from gnmt_tf.evaluation.evaluator import evaluate
from gnmt_tf.evaluation.log_perplexity import LogPerplexity
from gnmt_tf.search.translator import Translator
from gnmt_tf.training.model_directory import load_model


def test_equal_texts_score_a_hundred_with_the_signature_of_sacrebleu():
    texts = ["a small house stands here", "nine days and nine nights"]
    scores = corpus_scores(texts, texts)
    assert (scores.bleu, scores.chrf, scores.exact_match) == (pytest.approx(100), pytest.approx(100), 100)
    assert "tok:13a" in scores.bleu_signature
    assert "case:mixed" in scores.bleu_signature


def test_bleu_of_a_hand_counted_example():
    # 5 words of 6; 1- to 4-gram matches 4/5, 3/4, 2/3, 1/2; brevity penalty exp(1 - 6/5).
    scores = corpus_scores(["a b c d x"], ["a b c d e f"])
    expected = 100 * math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert scores.bleu == pytest.approx(expected)
    assert scores.exact_match == 0


def test_case_counts_unless_it_is_told_not_to():
    assert corpus_scores(["The Cat sat down"], ["the cat sat down"]).exact_match == 0
    folded = corpus_scores(["The Cat sat down"], ["the cat sat down"], lowercase=True)
    assert (folded.exact_match, folded.bleu) == (100, pytest.approx(100))
    assert "case:lc" in folded.bleu_signature


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_nothing_to_compare_is_an_error(hypotheses, references):
    with pytest.raises(UserError, match="equally many hypotheses and references"):
        corpus_scores(hypotheses, references)


@pytest.fixture(scope="module")
def loaded(trained_model):
    return load_model(str(trained_model))


@pytest.fixture(scope="module")
def dev(trained_model):
    folder = trained_model.parent
    return str(folder / "text2.en"), str(folder / "text2.fr")


def test_log_perplexity_is_the_mean_over_all_pieces_whatever_the_batches(loaded, dev):
    corpus = load_corpus(*dev, loaded.segmenter, 100, 100)
    total = pieces = 0.0
    for source, target in read_pairs(*dev):
        source_ids, target_ids = loaded.segmenter.encode(source) + [3], loaded.segmenter.encode(target) + [3]
        inputs = [2] + target_ids[:-1]
        batch = Batch(*(tf.constant([x]) for x in (source_ids, len(source_ids), inputs, target_ids, len(target_ids))))
        log_probs = tf.nn.log_softmax(loaded.model(batch))[0].numpy()
        total -= sum(log_probs[t, piece] for t, piece in enumerate(target_ids))
        pieces += len(target_ids)
    for batch_size in (1, 3, 100):
        assert LogPerplexity(loaded.model, batch_size)(corpus) == pytest.approx(total / pieces, abs=1e-4)


def test_an_evaluation_scores_its_own_translations(loaded, dev):
    pairs = list(read_pairs(*dev))
    translator = Translator(loaded.model, loaded.segmenter, SearchConfig(beam_width=2))
    result = evaluate(translator, [s for s, _ in pairs], [t for _, t in pairs])
    texts = [translation.text for translation in result.translations]
    assert result.scores == corpus_scores(texts, [t for _, t in pairs])
    assert result.sentences_per_second == pytest.approx(len(pairs) / result.seconds)
    words = sum(len(text.split()) for text in texts)
    assert np.isclose(result.words_per_second, words / result.seconds)

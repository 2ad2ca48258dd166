import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.config import DataConfig, TextConfig
from gnmt_tf.data.batches import BatchStream
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces
from gnmt_tf.data.piece_dropout import PieceDropout
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.wordpiece_trainer import train_wordpieces

LINES = ["the train leaves the station at nine", "nine trains are at the station", "the stations are there"] * 4
VOCABULARY = train_wordpieces(iter(LINES), TextConfig(vocab_size=60))
SEGMENTER = WordpieceSegmenter(VOCABULARY)

texts = st.text(alphabet=sorted(VOCABULARY.alphabet) + [" ", "é", "Ω"], max_size=40)


@settings(max_examples=300, deadline=None)
@given(texts, st.floats(0.0, 0.99), st.integers(0, 5), st.integers(0, 100))
def test_a_sentence_cut_anew_is_the_same_text_and_fits(text, rate, room, seed):
    ids = SEGMENTER.encode(text)
    anew = PieceDropout(VOCABULARY, rate).cut(ids, len(ids) + room, random.Random(seed))
    assert SEGMENTER.decode(anew) == SEGMENTER.decode(ids)
    assert len(anew) <= len(ids) + room


def test_without_a_rate_nothing_changes():
    ids = SEGMENTER.encode(LINES[0])
    assert PieceDropout(VOCABULARY, 0.0).cut(ids, 1000, random.Random(1)) == ids


def test_each_match_is_passed_over_as_often_as_the_rate_says():
    ids = SEGMENTER.encode("the")
    assert len(ids) == 1
    dropout, source = PieceDropout(VOCABULARY, 0.25), random.Random(1)
    whole = sum(dropout.cut(ids, 10, source) == ids for _ in range(4000))
    assert abs(whole / 4000 - 0.75) < 0.03


def test_with_too_little_room_every_word_is_cut_anew_now_and_then():
    # A fixed order would always favour the same end of the sentence.
    ids = SEGMENTER.encode("the the the the the the")
    assert len(ids) == 6
    dropout, source = PieceDropout(VOCABULARY, 0.9), random.Random(1)
    cuts = [dropout.cut(ids, len(ids) + 3, source) for _ in range(300)]
    assert all(len(cut) > len(ids) for cut in cuts)
    assert sum(cut[0] != ids[0] for cut in cuts) > 30
    assert sum(cut[-1] != ids[-1] for cut in cuts) > 30


def corpus():
    ids = [SEGMENTER.encode(line) for line in LINES]
    pieces = Pieces(np.concatenate(ids).astype(np.int32), np.cumsum([0] + [len(i) for i in ids]))
    return PieceCorpus(pieces, pieces, 0, 0)


def stream(rate):
    config = DataConfig(batch_size=4, num_buckets=2)
    return BatchStream(corpus(), config, 7, PieceDropout(VOCABULARY, rate))


def test_every_pass_cuts_anew_and_a_resumed_run_cuts_alike():
    first, second = stream(0.3), stream(0.3)
    passes = [[first.batch_at(n + k * first.steps_per_epoch) for n in range(first.steps_per_epoch)] for k in range(2)]
    texts = []
    for batches in passes:
        rows = [row.tolist() for batch in batches for row in batch.source_ids]
        texts.append(sorted(SEGMENTER.decode(row) for row in rows if row[0]))
    assert texts[0] == texts[1] == sorted(LINES)
    lengths = [sorted(n for batch in batches for n in batch.source_lengths) for batches in passes]
    assert lengths[0] != lengths[1]
    for wanted, have in zip(first.batch_at(5), second.batch_at(5), strict=True):
        np.testing.assert_array_equal(wanted, have)


def test_batches_leave_room_for_the_pieces_that_dropout_adds():
    with_room, without = stream(0.2).buckets[-1], stream(0.0).buckets[-1]
    assert with_room.source_length > without.source_length

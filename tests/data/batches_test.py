import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.data.batches import BatchStream
from gnmt_tf.data.buckets import make_buckets
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces


def pieces(sentences):
    offsets = np.cumsum([0] + [len(s) for s in sentences])
    return Pieces(np.asarray(list(itertools.chain(*sentences)), np.int32), np.asarray(offsets, np.int64))


def corpus(*pairs):
    return PieceCorpus(pieces([s for s, _ in pairs]), pieces([t for _, t in pairs]), 0, 0)


def test_a_batch_has_end_marks_shifted_inputs_and_filling_rows():
    batch = BatchStream(corpus(([7, 8], [9]), ([5], [6, 4, 5])), batch_size=3, num_buckets=1, seed=0).batch_at(0)
    order = np.argsort(-batch.source_lengths)
    assert batch.source_ids[order].tolist() == [[7, 8, 3], [5, 3, 0], [0, 0, 0]]
    assert batch.source_lengths[order].tolist() == [3, 2, 0]
    assert batch.target_input_ids[order].tolist() == [[2, 9, 0, 0], [2, 6, 4, 5], [0, 0, 0, 0]]
    assert batch.target_output_ids[order].tolist() == [[9, 3, 0, 0], [6, 4, 5, 3], [0, 0, 0, 0]]
    assert batch.target_lengths[order].tolist() == [2, 4, 0]


sentences = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(sentences, st.integers(1, 5), st.integers(1, 4), st.integers(0, 5))
def test_every_pair_comes_once_in_each_pass(lengths, batch_size, num_buckets, seed):
    # Each sentence is made of its own number, so that it can be recognised.
    pairs = [([i + 4] * s, [i + 4] * t) for i, (s, t) in enumerate(lengths)]
    stream = BatchStream(corpus(*pairs), batch_size, num_buckets, seed)
    for epoch in range(2):
        seen = []
        for step in range(stream.steps_per_epoch):
            batch = stream.batch_at(epoch * stream.steps_per_epoch + step)
            for row in range(batch_size):
                if batch.source_lengths[row]:
                    number = batch.source_ids[row, 0] - 4
                    assert (batch.source_lengths[row] - 1, batch.target_lengths[row] - 1) == lengths[number]
                    assert batch.target_output_ids[row, 0] == number + 4
                    seen.append(number)
        assert sorted(seen) == list(range(len(lengths)))


def test_the_dataset_started_at_a_step_continues_the_one_started_at_zero():
    pairs = [([i + 4], [i + 4] * (1 + i % 3)) for i in range(50)]
    first = BatchStream(corpus(*pairs), 8, 2, seed=5)
    second = BatchStream(corpus(*pairs), 8, 2, seed=5)
    whole = list(first.dataset(0).take(20).as_numpy_iterator())
    rest = list(second.dataset(13).take(7).as_numpy_iterator())
    for expected, got in zip(whole[13:], rest, strict=True):
        for wanted, have in zip(expected, got, strict=True):
            np.testing.assert_array_equal(wanted, have)


def test_another_seed_gives_another_order():
    pairs = [([i + 4], [i + 4]) for i in range(50)]
    orders = {tuple(BatchStream(corpus(*pairs), 50, 1, seed).batch_at(0).source_ids[:, 0]) for seed in range(5)}
    assert len(orders) == 5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=25), st.integers(1, 4))
def test_no_choice_of_bounds_pads_less(lengths, num_buckets):
    lengths = np.asarray(lengths)
    buckets = make_buckets(lengths, lengths, num_buckets)
    assert len(buckets) <= num_buckets
    padded = sum(b.source_length * len(b.rows) for b in buckets)
    distinct = sorted(set(lengths.tolist()))
    choices = itertools.chain.from_iterable(
        itertools.combinations(distinct[:-1], n) for n in range(min(num_buckets, len(distinct)))
    )
    best = min(sum(min(b for b in (*bounds, distinct[-1]) if b >= n) for n in lengths) for bounds in choices)
    assert padded == best


@pytest.mark.parametrize("num_buckets", [1, 3, 10])
def test_buckets_hold_every_pair_once(num_buckets):
    source, target = np.asarray([1, 5, 3, 3, 2]), np.asarray([2, 2, 4, 1, 9])
    buckets = make_buckets(source, target, num_buckets)
    assert sorted(np.concatenate([b.rows for b in buckets]).tolist()) == [0, 1, 2, 3, 4]
    for bucket in buckets:
        assert source[bucket.rows].max() == bucket.source_length
        assert target[bucket.rows].max() == bucket.target_length

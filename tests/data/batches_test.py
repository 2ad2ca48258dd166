import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnmt_tf.config import DataConfig
from gnmt_tf.data.batches import BatchStream
from gnmt_tf.data.buckets import fewest_buckets, make_buckets, padding_share
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces


def pieces(sentences):
    offsets = np.cumsum([0] + [len(s) for s in sentences])
    return Pieces(np.asarray(list(itertools.chain(*sentences)), np.int32), np.asarray(offsets, np.int64))


def corpus(*pairs):
    return PieceCorpus(pieces([s for s, _ in pairs]), pieces([t for _, t in pairs]), 0, 0)


def stream_of(pairs, batch_size, num_buckets, seed, **settings):
    config = DataConfig(batch_size=batch_size, num_buckets=num_buckets, **settings)
    return BatchStream(corpus(*pairs), config, seed)


def test_a_batch_has_end_marks_shifted_inputs_and_filling_rows():
    batch = stream_of([([7, 8], [9]), ([5], [6, 4, 5])], batch_size=3, num_buckets=1, seed=0).batch_at(0)
    order = np.argsort(-batch.source_lengths)
    assert batch.source_ids[order].tolist() == [[7, 8, 3], [5, 3, 0], [0, 0, 0]]
    assert batch.source_lengths[order].tolist() == [3, 2, 0]
    assert batch.target_input_ids[order].tolist() == [[2, 9, 0, 0], [2, 6, 4, 5], [0, 0, 0, 0]]
    assert batch.target_output_ids[order].tolist() == [[9, 3, 0, 0], [6, 4, 5, 3], [0, 0, 0, 0]]
    assert batch.target_lengths[order].tolist() == [2, 4, 0]


sentences = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(sentences, st.integers(1, 5), st.sampled_from([None, 1, 2, 4]), st.sampled_from([None, 5, 60, 300]))
def test_every_pair_comes_once_in_each_pass(lengths, batch_size, num_buckets, batch_tokens):
    # Each sentence is made of its own number, so that it can be recognised.
    pairs = [([i + 4] * s, [i + 4] * t) for i, (s, t) in enumerate(lengths)]
    stream = stream_of(pairs, batch_size, num_buckets, seed=3, batch_tokens=batch_tokens)
    for epoch in range(2):
        seen = []
        for step in range(stream.steps_per_epoch):
            batch = stream.batch_at(epoch * stream.steps_per_epoch + step)
            for row in range(len(batch.source_lengths)):
                if batch.source_lengths[row]:
                    number = batch.source_ids[row, 0] - 4
                    assert (batch.source_lengths[row] - 1, batch.target_lengths[row] - 1) == lengths[number]
                    assert batch.target_output_ids[row, 0] == number + 4
                    seen.append(number)
        assert sorted(seen) == list(range(len(lengths)))


def test_the_dataset_started_at_a_step_continues_the_one_started_at_zero():
    pairs = [([i + 4], [i + 4] * (1 + i % 3)) for i in range(50)]
    first = stream_of(pairs, 8, 2, seed=5)
    second = stream_of(pairs, 8, 2, seed=5)
    whole = list(first.dataset(0).take(20).as_numpy_iterator())
    rest = list(second.dataset(13).take(7).as_numpy_iterator())
    for expected, got in zip(whole[13:], rest, strict=True):
        for wanted, have in zip(expected, got, strict=True):
            np.testing.assert_array_equal(wanted, have)


@pytest.mark.parametrize("num_shares", [2, 3])
def test_the_shares_of_a_batch_are_the_batch(num_shares):
    pairs = [([i + 4], [i + 4] * (1 + i % 3)) for i in range(50)]
    stream = stream_of(pairs, 8, 2, seed=5)
    whole = list(stream.dataset(2).take(4).as_numpy_iterator())
    shares = list(stream.dataset(2, range(num_shares), num_shares).take(4 * num_shares).as_numpy_iterator())
    size = -(-8 // num_shares)
    for number, batch in enumerate(whole):
        parts = shares[number * num_shares : (number + 1) * num_shares]
        assert {len(part.source_lengths) for part in parts} == {size}
        for expected, *got in zip(batch, *parts, strict=True):
            together = np.concatenate(got)
            np.testing.assert_array_equal(together[:8], expected)
            assert not together[8:].any()


def test_another_seed_gives_another_order():
    pairs = [([i + 4], [i + 4]) for i in range(50)]
    orders = {tuple(stream_of(pairs, 50, 1, seed).batch_at(0).source_ids[:, 0]) for seed in range(5)}
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


def test_pairs_left_over_join_a_larger_batch():
    # 5 short pairs and 3 long ones in batches of 4: one batch of the short shape, one of the long one, no filling.
    pairs = [([4], [4])] * 5 + [([4] * 9, [4] * 9)] * 3
    stream = stream_of(pairs, 4, 2, seed=1)
    batches = [stream.batch_at(step) for step in range(stream.steps_per_epoch)]
    assert sorted(batch.source_ids.shape for batch in batches) == [(4, 2), (4, 10)]
    assert all((batch.source_lengths > 0).all() for batch in batches)


def test_a_batch_by_tokens_has_more_short_pairs_than_long_ones():
    pairs = [([4] * 3, [4] * 3)] * 100 + [([4] * 19, [4] * 19)] * 100
    stream = stream_of(pairs, 64, 2, seed=1, batch_tokens=400)
    # 400 // (4 + 4) = 50 pairs, cut to whole eights; 400 // (20 + 20) = 10.
    assert stream.batch_sizes == [48, 8]
    for step, batch in enumerate(stream.dataset(0).take(5)):
        assert batch.source_ids.shape[0] == {4: 48, 20: 8}[batch.source_ids.shape[1]], step


def test_the_two_sides_are_bounded_apart():
    # Short sources with long targets and the reverse: two shapes hold them without padding.
    source, target = np.asarray([3, 3, 20, 20]), np.asarray([20, 20, 3, 3])
    assert padding_share(make_buckets(source, target, 3), source, target) == 0.0


def test_an_open_number_of_buckets_ends_below_the_padding_asked_for():
    rng = np.random.default_rng(1)
    source = rng.poisson(14, 5000) + 1
    target = np.maximum(1, source + rng.integers(-3, 4, 5000))
    buckets = fewest_buckets(source, target, 0.1, 24)
    assert padding_share(buckets, source, target) < 0.1
    fewer = make_buckets(source, target, len(buckets) - 1)
    assert padding_share(fewer, source, target) >= 0.1


def test_a_corpus_with_many_lengths_is_divided_in_no_time_and_keeps_its_longest_pair():
    rng = np.random.default_rng(2)
    source, target = rng.integers(1, 900, 20000), rng.integers(1, 900, 20000)
    buckets = make_buckets(source, target, 12)
    assert len(buckets) <= 12
    assert max(b.source_length for b in buckets) == source.max()
    assert max(b.target_length for b in buckets) == target.max()

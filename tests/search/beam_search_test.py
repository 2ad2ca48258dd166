import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import VOCAB_SIZE, RandomModel, RandomModelInNumpy
from search_oracle import Gap, length_limit, oracle_search

from gnmt_tf.config import SearchConfig
from gnmt_tf.search.beam_search import beam_search, beam_search_grid
from gnmt_tf.search.constraints import Constraints
from gnmt_tf.search.scoring import Penalties, coverage_sums, eq_14, length_penalty

MODEL = RandomModel()
TOO_CLOSE = 1e-4
MAX_SOURCE = 6
MOST_STEPS = 12


def padded(sources, length=None):
    lengths = [len(source) for source in sources]
    ids = np.asarray([list(s) + [0] * ((length or max(lengths)) - len(s)) for s in sources], np.int32)
    return tf.constant(ids), tf.constant(lengths, tf.int32)


def search(model, sources, config, max_steps=None, constraints=None):
    ids, lengths = padded(sources)
    memory = model.encode(ids, lengths)
    return beam_search(model, memory, lengths, config, max_steps, constraints=constraints or Constraints())


def assert_is(result, row, expected, atol=1e-5):
    for n, hypothesis in enumerate(expected):
        length = int(result.lengths[row, n])
        assert result.ids[row, n, :length].numpy().tolist() == list(hypothesis.ids)
        assert not result.ids[row, n, length:].numpy().any()
        np.testing.assert_allclose(result.scores[row, n], hypothesis.score, atol=atol, rtol=1e-5)
        np.testing.assert_allclose(result.log_probs[row, n], hypothesis.log_prob, atol=atol, rtol=1e-5)
        np.testing.assert_allclose(
            result.piece_log_probs[row, n, :length], hypothesis.piece_log_probs, atol=atol, rtol=1e-5
        )
        source_length = hypothesis.attention.shape[1]
        np.testing.assert_allclose(
            result.attention_probs[row, n, :length, :source_length], hypothesis.attention, atol=atol
        )
    for n in range(len(expected), result.scores.shape[1]):
        assert float(result.scores[row, n]) == -math.inf
        assert int(result.lengths[row, n]) == 0


source = st.lists(st.integers(4, VOCAB_SIZE - 1), min_size=0, max_size=MAX_SOURCE - 1).map(lambda ids: (*ids, 3))


@st.composite
def configs(draw):
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    width = groups * draw(st.integers(1, 5 if groups == 1 else 2))
    return SearchConfig(
        beam_width=width,
        n_best=draw(st.integers(1, width)),
        length_penalty_weight=draw(st.sampled_from([0.0, 0.2, 1.0])),
        coverage_penalty_weight=draw(st.sampled_from([0.0, 0.2, 1.0])),
        pruning_margin=draw(st.sampled_from([None, 0.5, 3.0])),
        prunings=draw(st.sampled_from(["both", "pieces", "hypotheses"])),
        early_stopping=draw(st.booleans()),
        max_length_factor=1.0,
        max_length_constant=draw(st.integers(0, 5)),
        min_length=draw(st.sampled_from([0, 0, 2, 5])),
        no_repeat_ngram=draw(st.sampled_from([0, 0, 1, 2, 3])),
        diverse_groups=groups,
        diversity_strength=draw(st.sampled_from([0.0, 0.5, 2.0])),
    )


@st.composite
def constraints(draw, num_sentences):
    pieces = st.integers(4, VOCAB_SIZE - 1)
    prefixes = draw(st.lists(st.lists(pieces, max_size=2), min_size=num_sentences, max_size=num_sentences))
    banned = draw(st.sets(st.integers(4, VOCAB_SIZE - 1), max_size=2))
    return prefixes, tuple(sorted(banned))


def as_constraints(prefixes, banned):
    if not any(prefixes):
        return Constraints(banned)
    most = max(map(len, prefixes))
    ids = np.asarray([[*prefix, *[0] * (most - len(prefix))] for prefix in prefixes], np.int32)
    return Constraints(banned, tf.constant(ids), tf.constant([len(prefix) for prefix in prefixes]))


def assert_agrees(result, sources, config, prefixes, banned):
    """Whether any sentence could be compared."""
    compared = 0
    for row, ids in enumerate(sources):
        gap = Gap()
        if len(prefixes[row]) >= length_limit(len(ids), config):
            continue
        expected = oracle_search(RandomModelInNumpy(MODEL), ids, config, prefixes[row], banned, gap)
        if gap.smallest > TOO_CLOSE:
            assert_is(result, row, expected)
            compared += 1
    return compared


@settings(max_examples=20, deadline=None)
@given(st.data(), st.integers(0, 1_000_000), st.lists(source, min_size=1, max_size=3), configs())
def test_the_search_finds_what_the_plain_one_finds(data, seed, sources, config):
    MODEL.draw(seed)
    prefixes, banned = data.draw(constraints(len(sources)))
    result = search(MODEL, sources, config, constraints=as_constraints(prefixes, banned))
    assert_agrees(result, sources, config, prefixes, banned)


COMPILED = {
    "paper": SearchConfig(beam_width=4, n_best=4, max_length_factor=1.0, max_length_constant=6),
    "no pruning": SearchConfig(
        beam_width=5, pruning_margin=None, early_stopping=False, max_length_factor=1.0, max_length_constant=4
    ),
    "rules": SearchConfig(
        beam_width=3, n_best=2, max_length_factor=1.0, max_length_constant=6, min_length=3, no_repeat_ngram=2
    ),
    "groups": SearchConfig(beam_width=6, n_best=3, max_length_factor=1.0, max_length_constant=5, diverse_groups=3),
}
BATCH_SIZE = 3


@pytest.fixture(scope="module", params=[(name, jit) for name in COMPILED for jit in (False, True)], ids=str)
def compiled(request):
    name, jit_compile = request.param
    config = COMPILED[name]

    @tf.function(
        input_signature=[tf.TensorSpec([BATCH_SIZE, MAX_SOURCE], tf.int32), tf.TensorSpec([BATCH_SIZE], tf.int32)],
        jit_compile=jit_compile,
        autograph=False,
    )
    def run(ids, lengths):
        memory = MODEL.encode(ids, lengths)
        return beam_search(MODEL, memory, lengths, config, MOST_STEPS if jit_compile else None)

    return run, config


def test_a_thousand_random_models_are_searched_alike_by_graph_xla_and_the_plain_search(compiled):
    run, config = compiled
    chance = np.random.default_rng(3)
    compared = 0
    for seed in range(100):
        MODEL.draw(seed, peak=float(chance.choice([1.0, 4.0, 10.0])))
        sources = [(*chance.integers(4, VOCAB_SIZE, chance.integers(0, MAX_SOURCE)), 3) for _ in range(BATCH_SIZE)]
        result = run(*padded(sources, MAX_SOURCE))
        compared += assert_agrees(result, sources, config, [()] * BATCH_SIZE, ())
    assert compared > 200


@pytest.mark.parametrize("max_steps", [None, MOST_STEPS])
def test_one_run_over_a_grid_of_penalties_gives_what_a_run_for_each_gives(max_steps):
    config = SearchConfig(beam_width=3, max_length_factor=1.0, max_length_constant=6)
    grid = [Penalties(a, b) for a in (0.0, 0.6, 1.0) for b in (0.0, 0.4)]
    for seed in range(12):
        MODEL.draw(seed)
        sources = [(4, 5, 6, 3), (7, 3), (8, 4, 8, 5, 3)]
        ids, lengths = padded(sources)
        memory = MODEL.encode(ids, lengths)
        together = beam_search_grid(MODEL, memory, lengths, config, grid, max_steps)
        for setting, result in zip(grid, together, strict=True):
            penalties = {
                "length_penalty_weight": setting.length_weight,
                "coverage_penalty_weight": setting.coverage_weight,
            }
            alone = search(MODEL, sources, config.model_copy(update=penalties), max_steps)
            for row in range(len(sources)):
                length = int(alone.lengths[row, 0])
                assert int(result.lengths[row, 0]) == length
                assert result.ids[row, 0, :length].numpy().tolist() == alone.ids[row, 0, :length].numpy().tolist()
                np.testing.assert_allclose(result.scores[row, 0], alone.scores[row, 0], atol=1e-5)


def test_width_one_follows_the_most_probable_piece():
    MODEL.draw(11)
    config = SearchConfig(beam_width=1, length_penalty_weight=1.0, coverage_penalty_weight=0.0)
    result = search(MODEL, [(4, 5, 3)], config)
    model = RandomModelInNumpy(MODEL)
    state, ids = model.start((4, 5, 3)), [2]
    while ids[-1] != 3 and len(ids) < 17:
        log_probs, state, _ = model.step(state, ids[-1])
        log_probs[[0, 2]] = -np.inf
        ids.append(int(log_probs.argmax()))
    assert result.ids[0, 0, : len(ids) - 1].numpy().tolist() == ids[1:16] + ([3] if len(ids) == 17 else [])


def with_constant_logits(logits):
    """A model whose every step has the same distribution."""
    model = RandomModel(len(logits))
    model.draw(1)
    model.decode_step_of_network = model.decode_step

    def decode_step(ids, state, memory, rows):
        step = model.decode_step_of_network(ids, state, memory, rows)
        return step._replace(logits=tf.zeros_like(step.logits) + tf.constant(logits, tf.float32))

    model.decode_step = decode_step
    return model


def test_at_the_length_limit_a_hypothesis_is_ended_and_flagged():
    model = with_constant_logits([0, 0, 0, -20, 1, 0, 0, 0, 0])
    config = SearchConfig(beam_width=2, max_length_factor=1.0, max_length_constant=2)
    result = search(model, [(4, 3), (4, 5, 6, 3)], config)
    assert result.lengths[:, 0].numpy().tolist() == [4, 6]
    assert result.ids[0, 0].numpy()[3] == 3
    assert result.truncated[:, 0].numpy().all()


def test_of_equal_pieces_the_lower_id_is_taken_and_of_equal_hypotheses_the_earlier():
    model = with_constant_logits([0, 0, 0, 0, 2, 2, 2])
    config = SearchConfig(beam_width=2, n_best=2, max_length_factor=1.0, max_length_constant=1, pruning_margin=None)
    result = search(model, [(4, 3)], config)
    assert result.ids[0].numpy().tolist() == [[4, 4, 3], [4, 5, 3]]


def test_the_score_of_a_hand_worked_hypothesis():
    # |Y| = 7: lp = (12/6)^0.5 = sqrt(2). Attention sums 0.5 and 2.0: cp = 0.2 * (log 0.5 + log 1).
    assert float(length_penalty(tf.constant(7), 0.5)) == pytest.approx(math.sqrt(2.0))
    coverage = coverage_sums(tf.constant([[[0.5, 2.0, 0.1]]]), tf.constant([2]))
    assert float(coverage[0, 0]) == pytest.approx(math.log(0.5))
    score = eq_14(tf.constant(-3.0), tf.constant(7), coverage[0, 0], Penalties(0.5, 0.2))
    assert float(score) == pytest.approx(-3.0 / math.sqrt(2.0) + 0.2 * math.log(0.5))


def test_a_source_piece_never_attended_to_costs_much_and_is_no_veto():
    coverage = coverage_sums(tf.constant([[[0.0, 1.0]]]), tf.constant([2]))
    assert float(coverage[0, 0]) == pytest.approx(math.log(1e-6), rel=1e-5)


def test_the_first_pruning_drops_what_is_more_than_the_margin_below_the_best_piece():
    # Log-probabilities of 4, 5, 6 are 0, -1 and -2.5 above a common term: with a margin of 2 piece 6 is never taken.
    model = with_constant_logits([-9, -9, -9, -1.5, 0, -1, -2.5])
    config = SearchConfig(beam_width=6, n_best=6, max_length_factor=1.0, max_length_constant=0, early_stopping=False)
    for margin, holds_6 in ((2.0, False), (3.0, True)):
        result = search(model, [(4, 3)], config.model_copy(update={"pruning_margin": margin}))
        assert (result.ids.numpy() == 6).any() == holds_6


def test_the_second_pruning_drops_complete_hypotheses_more_than_the_margin_below_the_best():
    # Each piece 4 costs 0.55 nats, `</s>` 0.86: log P is -0.86, -1.41 and -1.96 for one, two and three pieces.
    model = with_constant_logits([-9, -9, -9, math.log(0.42), math.log(0.58)])
    config = SearchConfig(
        beam_width=3,
        n_best=3,
        max_length_factor=1.0,
        max_length_constant=1,
        length_penalty_weight=0.0,
        coverage_penalty_weight=0.0,
        early_stopping=False,
    )
    for margin, lengths in ((0.7, [1, 2, 0]), (1.2, [1, 2, 3])):
        result = search(model, [(4, 3)], config.model_copy(update={"pruning_margin": margin}))
        assert result.lengths[0].numpy().tolist() == lengths


@pytest.mark.parametrize(("early_stopping", "steps"), [(True, 2), (False, 9)])
def test_the_search_stops_once_no_live_hypothesis_can_win(early_stopping, steps):
    # log P: `</s>` -0.51 at once. After two steps the best live one has -1.83 before any penalty and can only fall.
    model = with_constant_logits([-9, -9, -9, math.log(0.6), math.log(0.4)])
    seen = []
    inner = model.decode_step

    def counting(*arguments):
        seen.append(1)
        return inner(*arguments)

    model.decode_step = counting
    config = SearchConfig(
        beam_width=2,
        max_length_factor=1.0,
        max_length_constant=7,
        length_penalty_weight=1.0,
        coverage_penalty_weight=0.0,
        pruning_margin=None,
        early_stopping=early_stopping,
    )
    result = search(model, [(4, 3)], config)
    assert result.lengths[0, 0] == 1
    # lp(9) = 14/6: a live hypothesis of log P -0.92 might still come to -0.39, one of -1.83 to -0.79.
    assert len(seen) == steps


@pytest.mark.parametrize("max_steps", [None, MOST_STEPS])
def test_logits_that_are_not_finite_end_the_search_and_name_the_step(max_steps):
    model = RandomModel()
    model.draw(4)
    inner, step_number = model.decode_step, []

    def poisoned(ids, state, memory, rows):
        step = inner(ids, state, memory, rows)
        step_number.append(1)
        bad = tf.constant(math.nan) if len(step_number) == 3 else tf.constant(0.0)
        return step._replace(logits=step.logits + bad)

    model.decode_step = poisoned
    config = SearchConfig(beam_width=1, min_length=6)
    if max_steps is None:
        result = search(model, [(4, 5, 3)], config)
        assert int(result.failed_step) == 2
        assert len(step_number) == 3
    else:
        model.weights[2].assign(model.weights[2] * math.nan)
        assert int(search(model, [(4, 5, 3)], config, max_steps).failed_step) == 0


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1000), st.lists(source, min_size=2, max_size=4), configs())
def test_the_best_hypothesis_does_not_depend_on_batch_companions_or_on_how_many_are_asked_for(seed, sources, config):
    MODEL.draw(seed)
    together = search(MODEL, sources, config)
    for row, ids in enumerate(sources):
        alone = search(MODEL, [ids], config.model_copy(update={"n_best": 1}))
        length = int(alone.lengths[0, 0])
        assert int(together.lengths[row, 0]) == length
        assert together.ids[row, 0, :length].numpy().tolist() == alone.ids[0, 0, :length].numpy().tolist()


def test_a_banned_piece_is_never_taken_but_may_be_forced():
    MODEL.draw(2)
    config = SearchConfig(beam_width=4, n_best=4)
    result = search(MODEL, [(4, 5, 6, 3)], config, constraints=Constraints((4, 5)))
    assert not np.isin(result.ids.numpy(), [4, 5]).any()
    forced = search(MODEL, [(4, 5, 6, 3)], config, constraints=as_constraints([[5]], (4, 5)))
    assert forced.ids[0, 0].numpy()[0] == 5
    assert not np.isin(forced.ids.numpy()[:, :, 1:], [4, 5]).any()

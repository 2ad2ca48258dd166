import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from hypothesis import given, settings
from hypothesis import strategies as st
from search_oracle import oracle_search

from gnmt_tf.config import ModelConfig, SearchConfig
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.beam_search import beam_search
from gnmt_tf.search.scoring import coverage_penalty, length_penalty

VOCAB_SIZE = 9


def make_model(seed, peak=6.0):
    """A small random model whose distributions are far from flat, so that no two hypotheses tie."""
    keras.utils.set_random_seed(seed)
    config = ModelConfig(
        num_encoder_layers=2, num_decoder_layers=2, num_units=5, attention_units=4, embedding_size=5, init_scale=1.0
    )
    model = GNMT(config, VOCAB_SIZE)
    projection = model.output_projection
    projection.own_kernel.assign(projection.own_kernel * peak)
    projection.bias.assign(tf.random.normal([VOCAB_SIZE]))
    return model


def search(model, sources, config, max_steps=None):
    lengths = [len(source) for source in sources]
    ids = np.asarray([list(s) + [0] * (max(lengths) - len(s)) for s in sources], np.int32)
    memory = model.encode(tf.constant(ids), tf.constant(lengths))
    return beam_search(model, memory, tf.constant(lengths), config, max_steps)


def assert_is(result, row, expected):
    for n, hypothesis in enumerate(expected):
        length = int(result.lengths[row, n])
        assert result.ids[row, n, :length].numpy().tolist() == list(hypothesis.ids)
        assert not result.ids[row, n, length:].numpy().any()
        np.testing.assert_allclose(result.scores[row, n], hypothesis.score, atol=1e-4)
        np.testing.assert_allclose(result.log_probs[row, n], hypothesis.log_prob, atol=1e-4)
        source_length = hypothesis.attention.shape[1]
        np.testing.assert_allclose(
            result.attention_probs[row, n, :length, :source_length], hypothesis.attention, atol=1e-4
        )
    for n in range(len(expected), result.scores.shape[1]):
        assert float(result.scores[row, n]) == -math.inf
        assert int(result.lengths[row, n]) == 0


source = st.lists(st.integers(4, VOCAB_SIZE - 1), min_size=0, max_size=5).map(lambda ids: (*ids, 3))
configs = st.builds(
    lambda width, n_best, alpha, beta, margin, constant: SearchConfig(
        beam_width=width,
        n_best=min(n_best, width),
        length_penalty_weight=alpha,
        coverage_penalty_weight=beta,
        pruning_margin=margin,
        max_length_factor=1.0,
        max_length_constant=constant,
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([None, 0.5, 3.0]),
    st.integers(0, 4),
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.lists(source, min_size=1, max_size=3), configs)
def test_the_search_finds_what_the_plain_one_finds(seed, sources, config):
    model = make_model(seed)
    result = search(model, sources, config)
    for row, ids in enumerate(sources):
        assert_is(result, row, oracle_search(model, ids, config))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_compiled_search_finds_what_the_eager_one_finds(jit_compile):
    model, config = make_model(5), SearchConfig(beam_width=3, n_best=3)
    sources = [(4, 5, 6, 3), (7, 3)]
    eager = search(model, sources, config, max_steps=18)
    compiled = tf.function(lambda: search(model, sources, config, max_steps=18), jit_compile=jit_compile)()
    np.testing.assert_array_equal(eager.ids, compiled.ids)
    np.testing.assert_allclose(eager.scores, compiled.scores, atol=1e-5)


def test_width_one_follows_the_most_probable_piece():
    model = make_model(11)
    config = SearchConfig(beam_width=1, length_penalty_weight=1.0, coverage_penalty_weight=0.0)
    result = search(model, [(4, 5, 3)], config)
    memory = model.encode(tf.constant([[4, 5, 3]]), tf.constant([3]))
    state, ids = model.initial_state(1), [2]
    while ids[-1] != 3 and len(ids) < 17:
        step = model.decode_step(tf.constant(ids[-1:]), state, memory)
        logits = step.logits[0].numpy()
        logits[[0, 2]] = -np.inf
        state = step.state
        ids.append(int(logits.argmax()))
    assert result.ids[0, 0, : len(ids) - 1].numpy().tolist() == ids[1:16] + ([3] if len(ids) == 17 else [])


def test_at_the_length_limit_a_hypothesis_is_ended_and_flagged():
    model = make_model(1)
    bias = np.zeros(VOCAB_SIZE, np.float32)
    bias[3] = -20.0
    model.output_projection.own_kernel.assign(tf.zeros_like(model.output_projection.own_kernel))
    model.output_projection.bias.assign(bias)
    config = SearchConfig(beam_width=2, max_length_factor=1.0, max_length_constant=2)
    result = search(model, [(4, 3), (4, 5, 6, 3)], config)
    assert result.lengths[:, 0].numpy().tolist() == [4, 6]
    assert result.ids[0, 0].numpy()[3] == 3
    assert result.truncated[:, 0].numpy().all()


def test_the_score_of_a_hand_worked_hypothesis():
    # |Y| = 7: lp = (12/6)^0.5 = sqrt(2). Attention sums 0.5 and 2.0: cp = 0.2 * (log 0.5 + log 1).
    assert float(length_penalty(tf.constant(7), 0.5)) == pytest.approx(math.sqrt(2.0))
    penalty = coverage_penalty(tf.constant([[[0.5, 2.0, 0.1]]]), tf.constant([2]), 0.2)
    assert float(penalty[0, 0]) == pytest.approx(0.2 * math.log(0.5))


def test_a_source_piece_never_attended_to_costs_much_and_is_no_veto():
    penalty = coverage_penalty(tf.constant([[[0.0, 1.0]]]), tf.constant([2]), 1.0)
    assert float(penalty[0, 0]) == pytest.approx(math.log(1e-6), rel=1e-5)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.lists(source, min_size=2, max_size=4), configs)
def test_the_best_hypothesis_does_not_depend_on_batch_companions_or_on_how_many_are_asked_for(seed, sources, config):
    model = make_model(seed)
    together = search(model, sources, config)
    for row, ids in enumerate(sources):
        alone = search(model, [ids], config.model_copy(update={"n_best": 1}))
        length = int(alone.lengths[0, 0])
        assert int(together.lengths[row, 0]) == length
        assert together.ids[row, 0, :length].numpy().tolist() == alone.ids[0, 0, :length].numpy().tolist()

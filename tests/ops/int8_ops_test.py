"""The quantised engine's ops: what they give, and that no input, however malformed, does more than raise."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from engine_build import built_ops

from gnmt_tf.config import ModelConfig
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import Int8Reference

ops = built_ops()
VOCAB_SIZE = 30


@pytest.fixture(scope="module")
def reference():
    keras.utils.set_random_seed(5)
    config = ModelConfig(
        num_encoder_layers=2, num_decoder_layers=2, num_units=12, attention_units=9, embedding_size=10, init_scale=0.5
    )
    return Int8Reference(GNMT(config, VOCAB_SIZE))


@pytest.fixture(scope="module")
def weights(reference):
    return reference.weights()


@pytest.fixture(scope="module")
def shape(reference):
    from gnmt_tf.export.int8 import engine_shape

    return engine_shape(reference)


@pytest.fixture(scope="module")
def model(weights, shape):
    handle = ops.int8_model(shared_name="of the tests")
    ops.load_int8_model(handle, weights, shape)
    return handle


IDS = [[5, 9, 3, 0], [3, 77, -5, 0], [8, 8, 12, 3]]
LENGTHS = [3, 1, 4]
"""What stands behind a row's end is not read: 77 and -5 are no ids."""


def test_scores_are_those_of_the_reference(model, reference):
    targets, lengths = [[6, 11, 3], [3, 0, 0], [9, 3, 0]], [3, 1, 2]
    found = ops.score(model, IDS, LENGTHS, targets, lengths).numpy()
    assert found.shape == (3, 3)
    for row in range(3):
        memory, state = reference.encode(np.array(IDS[row][: LENGTHS[row]])), reference.initial_state(1)
        for k in range(lengths[row]):
            step = reference.step(np.array([[2, *targets[row]][k]]), state, memory)
            state = step.state
            assert found[row, k] == step.log_probs[0, targets[row][k]]
        assert not found[row, lengths[row] :].any()


@pytest.mark.parametrize("keep_attention", [False, True])
def test_a_translation_in_a_graph_has_the_shapes_it_was_told_to_have(model, keep_attention):
    settings = ops.Int8Settings(beam_width=4, n_best=3, keep_attention=keep_attention, max_length_factor=1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.int32), tf.TensorSpec([None], tf.int32)])
    def translate(ids, lengths):
        return ops.translate(model, ids, lengths, settings)

    kept = 4 if keep_attention else 0
    assert translate.get_concrete_function().structured_outputs.attention_probs.shape.as_list() == [None, 3, None, kept]
    found = translate(IDS, LENGTHS)
    longest = int(tf.reduce_max(found.lengths))
    assert found.ids.shape == (3, 3, longest)
    assert found.attention_probs.shape == (3, 3, longest, kept)
    for row in range(3):
        for n in range(3):
            length = int(found.lengths[row, n])
            ids = found.ids[row, n].numpy()
            assert (ids[length:] == 0).all()
            if length:
                assert ids[length - 1] == 3
                log_prob = tf.reduce_sum(found.piece_log_probs[row, n])
                np.testing.assert_allclose(log_prob, found.log_probs[row, n], rtol=1e-5)
                alone = ops.score(model, [IDS[row]], [LENGTHS[row]], [ids[:length]], [length])
                np.testing.assert_array_equal(alone[0], found.piece_log_probs[row, n, :length])
                if keep_attention:
                    probs = found.attention_probs[row, n].numpy()
                    np.testing.assert_allclose(probs[:length].sum(axis=1), 1.0, rtol=1e-5)
                    assert not probs[:, LENGTHS[row] :].any()
            else:
                assert float(found.scores[row, n]) == -np.inf


def test_an_empty_batch_gives_an_empty_result(model):
    found = ops.translate(model, np.zeros([0, 5], np.int32), np.zeros([0], np.int32))
    assert found.ids.shape == (0, 1, 1)
    assert found.scores.shape == (0, 1)


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        ([[5, 30, 3]], [3], r"source_ids: expected 0 to 29, got 30 in row 0, column 1"),
        ([[5, -1, 3]], [3], r"source_ids: expected 0 to 29, got -1 in row 0, column 1"),
        ([[5, 3]], [3], r"source_lengths: expected 1 to 2, got 3 in row 0"),
        ([[5, 3]], [0], r"source_lengths: expected 1 to 2, got 0 in row 0"),
        ([[5, 3]], [2, 2], r"[Dd]imension|source_lengths"),
        ([5, 3], [2], r"rank"),
    ],
)
def test_bad_ids_are_named(model, ids, lengths, message):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        ops.translate(model, ids, lengths)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_best": 9}, r"n_best: expected at most beam_width \(8\), got 9"),
        ({"beam_width": 5000}, "beam_width: expected at most 1024, got 5000"),
        ({"max_length_factor": float("nan")}, "max_length_factor: expected above 0, at most 100, got nan"),
        ({"length_penalty_weight": -1.0}, "length_penalty_weight: expected 0 to 1000, got -1"),
        ({"piece_margin": float("inf")}, "piece_margin: expected a number, got inf"),
        ({"banned_ids": (30,)}, "banned_ids: expected 0 to 29, got 30"),
    ],
)
def test_absurd_settings_are_named(model, settings, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ops.translate(model, IDS, LENGTHS, ops.Int8Settings(**settings))


def test_a_model_that_was_never_loaded_is_not_found():
    with pytest.raises((tf.errors.NotFoundError, tf.errors.FailedPreconditionError)):
        ops.translate(ops.int8_model(shared_name="empty"), IDS, LENGTHS)


def test_weights_of_another_shape_or_none_are_named(weights, shape):
    handle = ops.int8_model(shared_name="broken")
    place = next(i for i, w in enumerate(weights) if w.shape == (12, 9))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"query_kernel: expected float \[12,9\], got float \[9,12\]"
    ):
        ops.load_int8_model(handle, [*weights[:place], weights[place].T, *weights[place + 1 :]], shape)
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights: expected projection_biases at place"):
        ops.load_int8_model(handle, weights[:-1], shape)
    spoiled = [w.copy() for w in weights]
    spoiled[-1][4] = np.nan
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="projection_biases: expected finite weights, got nan at place 4"
    ):
        ops.load_int8_model(handle, spoiled, shape)
    with pytest.raises(tf.errors.InvalidArgumentError, match="clip_bound: expected 1 to 1e6, got 0.5"):
        ops.load_int8_model(handle, weights, shape._replace(clip_bound=0.5))


@pytest.mark.slow
def test_twenty_thousand_malformed_calls_raise_and_do_nothing_else(model, weights, shape):
    rng = np.random.default_rng(11)
    refused = 0
    for number in range(20_000):
        shapes = [tuple(rng.integers(0, 4, rng.integers(0, 4))) for _ in range(4)]
        if rng.random() < 0.5:
            # Often the ranks are right, so that values are what is wrong.
            batch, other = rng.integers(0, 4, 2)
            shapes = [(batch, other), (batch,), (batch, rng.integers(0, 4)), (batch,)]
        values = [rng.integers(-2, 40, shape_).astype(np.int32) for shape_ in shapes]
        try:
            if number % 500 == 0:
                # One of the sizes, the first seven.
                changed = shape._replace(**{shape._fields[rng.integers(7)]: int(rng.integers(0, 40))})
                ops.load_int8_model(ops.int8_model(shared_name="fuzz"), weights[: rng.integers(len(weights))], changed)
            elif number % 2:
                width = int(rng.integers(1, 6))
                ops.translate(
                    model, values[0], values[1], ops.Int8Settings(beam_width=width, n_best=int(rng.integers(1, 8)))
                )
            else:
                ops.score(model, *values)
        except (tf.errors.InvalidArgumentError, ValueError):
            refused += 1
    assert refused > 10_000
    assert np.isfinite(ops.score(model, IDS, LENGTHS, [[3]] * 3, [1] * 3)).all()

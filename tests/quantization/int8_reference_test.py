"""The quantised model beside the float one, and what it promises about batches."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import ModelConfig, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import Int8Reference

VOCAB_SIZE = 40
SOURCE, TARGET = [7, 11, 5, 30, 9, 3], [8, 9, 21, 4, 6, 12, 3]


def make_model(constrained=True, **changes):
    settings = {
        "num_encoder_layers": 4, "num_decoder_layers": 4, "num_units": 24, "attention_units": 20, "embedding_size": 28,
        "init_scale": 0.4,
    } | changes  # fmt: skip
    keras.utils.set_random_seed(5)
    model = GNMT(ModelConfig(**settings), VOCAB_SIZE, constrained)
    rng = np.random.default_rng(2)
    for weight in model.trainable_variables:
        if weight.name.endswith("bias:0"):
            weight.assign(rng.normal(size=weight.shape) * 0.3)
    return model


def forced(reference, source, target):
    """log-probabilities [target_length, vocab_size] and attention [target_length, source_length]."""
    memory, state = reference.encode(np.array(source)), reference.initial_state(1)
    log_probs, probs = [], []
    for piece in [2, *target[:-1]]:
        step = reference.step(np.array([piece]), state, memory)
        state = step.state
        log_probs.append(step.log_probs[0])
        probs.append(step.attention_probs[0])
    return np.array(log_probs), np.array(probs)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_encoder_layers": 1, "num_decoder_layers": 1},
        {"clip_bound": 4.0, "init_scale": 0.6},
        {"output_activation": "tanh", "clip_bound": 2.0},
        {"embedding_size": 24, "tie_output_projection": True, "embedding_init_scale": 1.5, "share_embeddings": True},
    ],
)
def test_the_quantised_model_says_nearly_what_the_float_one_says(changes):
    model = make_model(**changes)
    batch = Batch(*(tf.constant(v, tf.int32) for v in ([SOURCE], [6], [[2, *TARGET[:-1]]], [TARGET], [7])))
    scored = model.scored(batch)
    log_probs, probs = forced(Int8Reference(model), SOURCE, TARGET)
    expected = tf.nn.log_softmax(scored.logits[0]).numpy()
    np.testing.assert_allclose(probs, scored.attention_probs[0], atol=0.03)
    np.testing.assert_allclose(np.exp(log_probs), np.exp(expected), atol=0.03)
    # Nearly, but not the same: it is quantised.
    assert np.abs(log_probs - expected).max() > 1e-4
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0, rtol=1e-5)


def test_a_hypothesis_has_the_same_bits_alone_and_among_others():
    reference = Int8Reference(make_model())
    memory = reference.encode(np.array(SOURCE))
    together, alone = reference.initial_state(3), [reference.initial_state(1) for _ in range(3)]
    for ids in ([2, 2, 2], [4, 9, 30], [5, 5, 11]):
        step = reference.step(np.array(ids), together, memory)
        together = step.state
        for row, piece in enumerate(ids):
            one = reference.step(np.array([piece]), alone[row], memory)
            alone[row] = one.state
            np.testing.assert_array_equal(step.log_probs[row], one.log_probs[0])
            np.testing.assert_array_equal(step.state.c[:, row], one.state.c[:, 0])
            np.testing.assert_array_equal(step.attention_probs[row], one.attention_probs[0])


def test_the_cell_state_stays_within_its_bound():
    reference = Int8Reference(make_model(init_scale=3.0))
    memory, state = reference.encode(np.array(SOURCE)), reference.initial_state(1)
    for _ in range(30):
        state = reference.step(np.array([7]), state, memory).state
    assert np.abs(state.c.astype(np.int32)).max() == 32767


def test_a_model_without_the_constraints_is_refused():
    with pytest.raises(UserError, match="constrained False"):
        Int8Reference(make_model(constrained=False))
    with pytest.raises(UserError, match=r"clip_bound 0.5"):
        Int8Reference(make_model(clip_bound=0.5))

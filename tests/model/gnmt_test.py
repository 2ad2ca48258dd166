import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from gnmt_oracle import Oracle

from gnmt_tf.config import ModelConfig
from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.dropout import Dropout, apply_dropout, drop_pieces
from gnmt_tf.model.gnmt import GNMT, Bounds

VOCAB_SIZE = 13
SIZES = {"num_units": 6, "attention_units": 5, "embedding_size": 7, "init_scale": 0.9}
SOURCE = [[4, 5, 6, 7, 3], [8, 3], [9, 10, 3]]
TARGET_INPUT = [[2, 4], [2, 5, 6, 7], [2, 8, 9]]


def make_model(**changes):
    keras.utils.set_random_seed(7)
    model = GNMT(ModelConfig(**(SIZES | {"num_encoder_layers": 4, "num_decoder_layers": 4} | changes)), VOCAB_SIZE)
    for weight in model.trainable_variables:
        # Biases start at zero; values of their own let a forgotten one show.
        weight.assign_add(tf.random.uniform(weight.shape, -0.5, 0.5, seed=3))
    return model


def make_batch():
    rows = [len(row) for row in SOURCE], [len(row) for row in TARGET_INPUT]
    source = np.asarray([row + [0] * (6 - len(row)) for row in SOURCE], np.int32)
    inputs = np.asarray([row + [0] * (5 - len(row)) for row in TARGET_INPUT], np.int32)
    return Batch(*(tf.constant(x, tf.int32) for x in (source, rows[0], inputs, np.roll(inputs, -1, 1), rows[1])))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"output_activation": "tanh"},
        {"clip_bound": 0.3, "logit_bound": 0.5},
        {"first_residual_layer": 4},
        {"num_encoder_layers": 1, "num_decoder_layers": 1},
        {"share_embeddings": True},
        {"tie_output_projection": True, "embedding_size": 6},
    ],
    ids=lambda changes: ",".join(changes) or "paper",
)
def test_logits_are_those_of_the_equations(changes):
    model = make_model(**changes)
    logits = model(make_batch()).numpy()
    for row, (source, target) in enumerate(zip(SOURCE, TARGET_INPUT, strict=True)):
        expected, _ = Oracle(model).logits(source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=1e-5)


@pytest.mark.parametrize("clip_bound", [0.3, 1.0])
def test_decoding_step_by_step_gives_the_logits_and_attention_of_the_equations(clip_bound):
    model = make_model(clip_bound=clip_bound)
    batch = make_batch()
    memory = model.start(model.encode(batch.source_ids, batch.source_lengths))
    state = model.initial_state(len(SOURCE))
    for t in range(4):
        step = model.decode_step(batch.target_input_ids[:, t], state, memory)
        state = step.state
        for row, (source, target) in enumerate(zip(SOURCE, TARGET_INPUT, strict=True)):
            if t < len(target):
                logits, probs = Oracle(model).logits(source, target)
                np.testing.assert_allclose(step.logits[row], logits[t], atol=1e-5)
                np.testing.assert_allclose(step.attention_probs[row, 0, : len(source)], probs[t], atol=1e-5)
                assert not step.attention_probs[row, 0, len(source) :].numpy().any()


def test_only_the_bottom_encoder_layer_reads_from_right_to_left():
    # The last source piece reaches every position through the bottom layer, and only through it.
    model = make_model()
    first = model.encode(tf.constant([[4, 5, 6]]), tf.constant([3])).values
    second = model.encode(tf.constant([[4, 5, 7]]), tf.constant([3])).values
    assert np.abs(first - second)[0, 0].max() > 1e-4
    model.encoder.backward_layer.kernel.assign(tf.zeros_like(model.encoder.backward_layer.kernel))
    first = model.encode(tf.constant([[4, 5, 6]]), tf.constant([3])).values
    second = model.encode(tf.constant([[4, 5, 7]]), tf.constant([3])).values
    np.testing.assert_array_equal(first[0, :2], second[0, :2])


def test_padding_changes_nothing():
    model = make_model()
    short = model.encode(tf.constant([[4, 5, 3]]), tf.constant([3]))
    long = model.encode(tf.constant([[4, 5, 3, 9, 11]]), tf.constant([3]))
    np.testing.assert_allclose(short.values, long.values[:, :3], atol=1e-6)
    step_short = model.decode_step(tf.constant([2]), model.initial_state(1), model.start(short))
    step_long = model.decode_step(tf.constant([2]), model.initial_state(1), model.start(long))
    np.testing.assert_allclose(step_short.logits, step_long.logits, atol=1e-6)


def test_dropout_is_a_function_of_seed_step_and_place():
    def scale(seed, step, place):
        return Dropout(0.25, seed, tf.constant(step, tf.int64)).scale([10, 20, 300], place).numpy()

    reference = scale(1, 10, 0)
    np.testing.assert_array_equal(reference, scale(1, 10, 0))
    assert set(np.unique(reference)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((reference == 0).mean() - 0.25) < 0.01
    for other in (scale(2, 10, 0), scale(1, 11, 0), scale(1, 10, 1)):
        # Independent masks agree on 0.75 ** 2 + 0.25 ** 2 of the elements.
        assert abs((reference == other).mean() - 0.625) < 0.02


def test_word_dropout_takes_whole_pieces_from_each_side_at_its_own_rate():
    values, step = tf.ones([40, 50, 6]), tf.constant(7, tf.int64)
    dropout = Dropout(0.0, 3, step, source_rate=0.2, target_rate=0.4)
    np.testing.assert_array_equal(apply_dropout(values, dropout, 0), values)
    for rate in (dropout.source_rate, dropout.target_rate):
        dropped = drop_pieces(values, dropout, rate, 1).numpy()
        assert (dropped == dropped[:, :, :1]).all()
        assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / (1 - rate))}
        assert abs((dropped[:, :, 0] == 0).mean() - rate) < 0.03


@pytest.mark.parametrize("side", ["source_rate", "target_rate"])
def test_word_dropout_of_one_side_changes_what_the_decoder_gives(side):
    model, batch = make_model(), make_batch()
    plain = model.decoder_outputs(batch, model.inference_bounds)
    dropout = Dropout(0.0, 3, tf.constant(0, tf.int64), **{side: 0.5})
    assert np.abs(model.decoder_outputs(batch, model.inference_bounds, dropout) - plain).max() > 1e-3


def test_dropout_leaves_rows_and_columns_alike():
    mask = Dropout(0.5, 3, tf.constant(0, tf.int64)).scale([20, 20, 400], 5).numpy().reshape([400, 400]) > 0
    assert mask.mean(axis=0).std() < 0.05
    assert mask.mean(axis=1).std() < 0.05
    assert abs(np.corrcoef(mask[:-1].ravel(), mask[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(mask[:, :-1].ravel(), mask[:, 1:].ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("num_replicas", [2, 3, 4])
def test_replicas_drop_what_one_device_would_drop_of_the_same_pairs(num_replicas):
    step = tf.constant(4, tf.int64)
    whole = Dropout(0.5, 3, step).scale([5, 6, 7], 2)
    # Four shares of two rows: the last one holds filling only.
    size = -(-6 // num_replicas)
    shares = [Dropout(0.5, 3, step, replica).scale([5, size, 7], 2) for replica in range(num_replicas)]
    np.testing.assert_array_equal(tf.concat(shares, axis=1)[:, :6], whole)


def test_bounds_given_in_the_call_replace_those_of_inference():
    model = make_model()
    tight = model(make_batch(), Bounds(tf.constant(0.01), tf.constant(0.2)))
    assert np.abs(tight).max() <= 0.2
    assert np.abs(model(make_batch())).max() > 0.2


def test_the_model_is_rebuilt_from_its_config():
    model = make_model()
    twin = GNMT.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(twin(make_batch()), model(make_batch()))


def test_every_weight_starts_with_values_of_its_own():
    model = GNMT(ModelConfig(**SIZES), VOCAB_SIZE)
    starts = [weight.numpy().ravel()[:5].tolist() for weight in model.trainable_variables if weight.shape.rank > 1]
    assert len({tuple(start) for start in starts}) == len(starts)

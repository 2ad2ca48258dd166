"""One training step: what it adds up, what it skips, and that it does not depend on how its batch was cut up."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import load_config
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.loss import loss_sums
from gnmt_tf.training.trainable import TrainableGNMT

VOCAB_SIZE = 11


def make_model(tied=False, **settings):
    overrides = {
        "model.num_encoder_layers": 2, "model.num_decoder_layers": 2, "model.num_units": 6, "model.embedding_size": 6,
        "model.attention_units": 5, "model.init_scale": 0.5, "training.dropout": 0.0, "training.jit_compile": False,
        "training.adam_learning_rate": 0.1, "model.tie_output_projection": tied,
    } | {f"training.{key}": value for key, value in settings.items()}  # fmt: skip
    keras.utils.set_random_seed(3)
    model = TrainableGNMT(load_config(None, [f"{k}={v}" for k, v in overrides.items()]), VOCAB_SIZE)
    model.compile_for_training()
    return model


def make_batch(num_rows, seed, lengths=(4, 5)):
    rng = np.random.default_rng(seed)
    source, target = (rng.integers(4, VOCAB_SIZE, [num_rows, length]) for length in lengths)
    source_lengths, target_lengths = (rng.integers(1, length + 1, num_rows) for length in lengths)
    fields = (source, source_lengths, np.roll(target, 1, axis=1), target, target_lengths)
    return Batch(*(tf.constant(field, tf.int32) for field in fields))


def joined(batches):
    return Batch(*(tf.concat(fields, axis=0) for fields in zip(*batches, strict=True)))


def run_step(model, batches):
    return {name: float(value) for name, value in model.make_train_function()(iter(batches)).items()}


def assert_same_weights(model, other):
    for first, second in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_summed_over_batches_are_those_of_one_large_batch(jit_compile):
    # With SGD the weights show the gradient itself; Adam would forgive a wrong scale.
    settings = {"adam_steps": 0, "sgd_learning_rate": 0.5, "jit_compile": jit_compile}
    batches = [make_batch(3, seed) for seed in range(6)]
    apart, whole = make_model(accumulate_batches=3, **settings), make_model(**settings)
    for start in (0, 3):
        logs = run_step(apart, batches[start : start + 3])
        expected = run_step(whole, [joined(batches[start : start + 3])])
        assert logs == pytest.approx(expected, rel=1e-4)
    assert_same_weights(apart, whole)
    assert int(apart.optimizer.iterations) == 2


def test_every_batch_of_a_step_drops_other_elements():
    model = make_model(accumulate_batches=2, dropout=0.5)
    batch = make_batch(4, 1)
    first = model._gradients(batch, 0).negative_log_prob
    assert float(first) == float(model._gradients(batch, 0).negative_log_prob)
    assert float(first) != float(model._gradients(batch, 1).negative_log_prob)


@pytest.mark.parametrize("accumulate_batches", [1, 2])
def test_a_step_with_an_undefined_gradient_moves_nothing_and_is_counted(accumulate_batches):
    model = make_model(accumulate_batches=accumulate_batches, average_decay=0.9)
    batches = [make_batch(3, seed) for seed in range(accumulate_batches)]
    run_step(model, batches)
    before = [value.numpy() for value in [*model.variables, *model.optimizer.variables[1:]]]
    bias = model.output_projection.bias
    value = bias.numpy()
    bias.assign(np.full_like(value, np.nan))
    logs = run_step(model, batches)
    assert not np.isfinite(logs["loss"])
    bias.assign(value)
    for old, new in zip(before, [*model.variables, *model.optimizer.variables[1:]], strict=True):
        np.testing.assert_array_equal(new, old)
    assert int(model.optimizer.iterations) == 2
    # What one batch of it had summed up is gone as well.
    assert np.isfinite(run_step(model, batches)["loss"])


@pytest.mark.parametrize("tied", [False, True])
def test_the_gradient_is_that_of_the_plain_loss(tied):
    model = make_model(tied)
    batch = make_batch(5, 3)
    bounds = model.training_bounds(tf.constant(0))
    with tf.GradientTape() as tape:
        loss = loss_sums(model(batch, bounds), batch).negative_log_prob
    expected = tape.gradient(loss, model.trainable_variables)
    actual = model._gradients(batch, 0)
    assert float(actual.negative_log_prob) == pytest.approx(float(loss), rel=1e-5)
    for weight, wanted, got in zip(model.trainable_variables, expected, actual.gradients, strict=True):
        np.testing.assert_allclose(got, tf.convert_to_tensor(wanted), atol=1e-4, err_msg=weight.name)


def test_the_loss_that_is_shown_knows_nothing_of_smoothing():
    batch = make_batch(4, 2)
    smooth, plain = make_model(label_smoothing=0.2), make_model()
    sums = loss_sums(plain(batch, plain.training_bounds(tf.constant(0))), batch)
    expected = float(sums.negative_log_prob / sums.num_pieces)
    assert run_step(plain, [batch])["loss"] == pytest.approx(expected, rel=1e-5)
    assert run_step(smooth, [batch])["loss"] == pytest.approx(expected, rel=1e-5)
    assert any(not np.allclose(a, b, atol=1e-3) for a, b in zip(plain.get_weights(), smooth.get_weights(), strict=True))


def test_weights_and_averages_change_places_and_come_back():
    model = make_model(average_decay=0.5)
    run_step(model, [make_batch(3, 1)])
    weights, averages = model.get_weights(), [average.numpy() for average in model.optimizer.averages]
    with model.averaged_weights():
        for inside, average in zip(model.get_weights(), averages, strict=True):
            np.testing.assert_array_equal(inside, average)
    for after, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_bfloat16_gives_nearly_the_gradients_of_float32(jit_compile):
    batch = make_batch(8, 4)
    settings = {"adam_steps": 0, "sgd_learning_rate": 1.0, "jit_compile": jit_compile, "label_smoothing": 0.1}
    exact, rounded = make_model(**settings), make_model(compute_dtype="bfloat16", **settings)
    start = exact.get_weights()
    logs, expected = run_step(rounded, [batch]), run_step(exact, [batch])
    assert logs == pytest.approx(expected, rel=0.03)
    assert logs != expected
    changes = [
        ((first - before).ravel(), (second - before).ravel())
        for before, first, second in zip(start, exact.get_weights(), rounded.get_weights(), strict=True)
    ]
    largest = max(np.linalg.norm(change) for change, _ in changes)
    compared = [pair for pair in changes if np.linalg.norm(pair[0]) > 1e-2 * largest]
    assert len(compared) > len(changes) / 2
    for change, other in compared:
        # A rounded product has about 3 digits.
        assert change @ other > 0.99 * np.linalg.norm(change) * np.linalg.norm(other)
        np.testing.assert_allclose(np.linalg.norm(other), np.linalg.norm(change), rtol=0.1)
    assert all(weight.dtype == np.float32 for weight in rounded.get_weights())


def test_activations_have_the_dtype_asked_for():
    model = make_model()
    batch = make_batch(3, 1)
    assert model.decoder_outputs(batch, model.inference_bounds, None, tf.bfloat16).dtype == tf.bfloat16
    assert model.decoder_outputs(batch, model.inference_bounds).dtype == tf.float32

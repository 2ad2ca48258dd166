"""Training for int8: rounding is the engine's, gradients pass through, and the float weights are what moves."""

import os
import subprocess
import sys

import hypothesis
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from hypothesis import strategies as st

from gnmt_tf.config import UserError, load_config
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.decoder import one_row_each
from gnmt_tf.quantization.fake_quantization import RowWiseQuantizer
from gnmt_tf.quantization.row_wise import quantize_rows
from gnmt_tf.training.trainable import TrainableGNMT

VOCAB_SIZE = 23
SHAPES = {
    "plain": {},
    "tied and shared": {"tie_output_projection": True, "share_embeddings": True, "embedding_init_scale": 1.5},
}


def make_model(fake_quantization, constrained=True, jit_compile=False, **shape):
    settings = {f"model.{key}": value for key, value in shape.items()} | {
        "model.num_encoder_layers": 2, "model.num_decoder_layers": 2, "model.num_units": 12, "model.attention_units": 9,
        "model.embedding_size": 12, "model.init_scale": 0.5, "training.dropout": 0.0,
        "training.constrained": constrained, "training.clip_bound_start": 1.0, "training.adam_learning_rate": 0.01,
        "training.jit_compile": jit_compile, "training.fake_quantization": fake_quantization,
    }  # fmt: skip
    keras.utils.set_random_seed(4)
    model = TrainableGNMT(load_config(None, [f"{key}={value}" for key, value in settings.items()]), VOCAB_SIZE)
    model.compile_for_training()
    return model


def make_batch(seed=0):
    rng = np.random.default_rng(seed)
    source, target = (rng.integers(4, VOCAB_SIZE, [6, length]) for length in (5, 7))
    source_lengths, target_lengths = (rng.integers(1, length + 1, 6) for length in (5, 7))
    fields = (source, source_lengths, np.roll(target, 1, axis=1), target, target_lengths)
    return Batch(*(tf.constant(field, tf.int32) for field in fields))


def rounded_by_hand(model):
    """The weights of a model, each as the engine would keep it, in the order of `get_weights`."""
    values = {weight.ref(): weight.numpy() for weight in model.weights}
    encoder, decoder = model.encoder, model.decoder
    lstms = [encoder.forward_layer, encoder.backward_layer, *encoder.upper_layers]
    for layer in [*lstms, decoder.bottom_layer.lstm, *decoder.upper_layers]:
        joined = np.concatenate([layer.kernel.numpy(), layer.recurrent_kernel.numpy()])
        joined = quantize_rows(joined.T).dequantized().T
        values[layer.kernel.ref()], values[layer.recurrent_kernel.ref()] = np.split(joined, [layer.kernel.shape[0]])
    for embedding in (model.source_embedding, model.target_embedding):
        clipped = np.clip(embedding.embeddings.numpy(), -1.0, 1.0)
        values[embedding.embeddings.ref()] = quantize_rows(clipped).dequantized()
    if not model.config.tie_output_projection:
        kernel = model.output_projection.own_kernel
        values[kernel.ref()] = quantize_rows(kernel.numpy().T).dequantized().T
    return [values[weight.ref()] for weight in model.weights]


@hypothesis.given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.floats(-8.0, 8.0, width=32, allow_subnormal=False),
    )
)
@hypothesis.settings(deadline=None)
def test_rows_are_rounded_as_the_engine_rounds_them(weights):
    expected = quantize_rows(weights).dequantized()
    for axis, given_weights, wanted in ((-1, weights, expected), (0, weights.T, expected.T)):
        given_weights = tf.constant(given_weights)
        with tf.GradientTape() as tape:
            tape.watch(given_weights)
            rounded = RowWiseQuantizer(axis)(given_weights, training=True, weights={})
            total = tf.reduce_sum(rounded * 3.0)
        np.testing.assert_allclose(rounded, wanted, rtol=1e-6)
        np.testing.assert_array_equal(tape.gradient(total, given_weights), np.full(wanted.shape, 3.0, np.float32))


def test_it_is_a_quantizer_of_the_model_optimization_toolkit():
    import tensorflow_model_optimization as tfmot

    quantizer = RowWiseQuantizer.from_config(RowWiseQuantizer(-1).get_config())
    assert isinstance(quantizer, tfmot.quantization.keras.quantizers.Quantizer)
    assert quantizer.axis == -1
    assert quantizer.build([3, 4], "kernel", keras.layers.Dense(2)) == {}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_that_of_the_rounded_weights(shape):
    batch = make_batch()
    aware, plain = make_model(True, **SHAPES[shape]), make_model(False, **SHAPES[shape])
    np.testing.assert_array_equal(aware.weights[0], plain.weights[0])
    before = float(plain._gradients(batch, 0).negative_log_prob)
    # Under ties the projection rounds what the embedding clips first.
    logits = aware(batch)
    rounded = rounded_by_hand(plain)
    if shape == "tied and shared":
        kernel = quantize_rows(plain.target_embedding.embeddings.numpy()).dequantized()
        plain.set_weights(rounded)
        outputs = plain.decoder_outputs(batch, plain.inference_bounds)
        expected = np.clip(outputs.numpy() @ kernel.T + plain.output_projection.bias.numpy(), -25.0, 25.0)
    else:
        plain.set_weights(rounded)
        expected = plain(batch)
        assert float(aware._gradients(batch, 0).negative_log_prob) == pytest.approx(
            float(plain._gradients(batch, 0).negative_log_prob), rel=1e-5
        )
    assert float(aware._gradients(batch, 0).negative_log_prob) != before
    np.testing.assert_allclose(logits, expected, atol=2e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_moves_the_float_weights_until_the_rounded_ones_fit(jit_compile):
    model = make_model(True, jit_compile=jit_compile)
    train, batch = model.make_train_function(), make_batch()
    losses = [float(train(iter([batch]))["loss"]) for _ in range(60)]
    assert losses[-1] < 0.6 * losses[0]
    # The float weights have not been rounded themselves.
    kernel = model.output_projection.own_kernel.numpy().T
    assert np.abs(quantize_rows(kernel).dequantized() - kernel).max() > 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_the_search_sees_the_weights_that_the_loss_sees(shape):
    model, batch = make_model(True, **SHAPES[shape]), make_batch()
    expected = model(batch)
    memory = model.start(model.encode(batch.source_ids, batch.source_lengths))
    state, some = model.initial_state(6), tf.constant([3, 20, 7])
    for position in range(batch.target_input_ids.shape[1]):
        ids = batch.target_input_ids[:, position]
        outputs = model.decoder_step(ids, state, memory, one_row_each(6)).outputs
        step = model.decode_step(ids, state, memory)
        state = step.state
        np.testing.assert_allclose(step.logits, expected[:, position], atol=1e-5)
        np.testing.assert_allclose(
            model.partial_projection(some)(outputs), tf.gather(step.logits, some, axis=1), atol=1e-5
        )


def test_an_unconstrained_model_is_told_that_it_cannot_be_quantised():
    with pytest.raises(UserError, match="training.constrained true when training.fake_quantization is true"):
        make_model(True, constrained=False)


@pytest.mark.parametrize(("variable", "keras_module"), [(None, "keras"), ("0", "keras"), ("1", "tf_keras")])
def test_a_program_keeps_the_keras_it_has_when_it_imports_fake_quantization(variable, keras_module):
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if variable is not None:
        environment["TF_USE_LEGACY_KERAS"] = variable
    program = (
        "import os, gnmt_tf.quantization.fake_quantization, tensorflow as tf\n"
        "print(os.environ.get('TF_USE_LEGACY_KERAS'), tf.keras.layers.Layer.__module__.split('.')[0])"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == [str(variable), keras_module], run.stderr

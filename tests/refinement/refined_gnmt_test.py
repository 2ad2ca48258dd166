"""The refinement's samples, its gradient, and that it raises the reward."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import load_config
from gnmt_tf.data.batch import Batch
from gnmt_tf.refinement.gleu import gleu
from gnmt_tf.refinement.refined_gnmt import RefinedGNMT
from gnmt_tf.refinement.samples import draw_samples
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID

VOCAB_SIZE = 9


def make_model(num_samples=5, ml_weight=0.02, **settings):
    overrides = {
        "model.num_encoder_layers": 2, "model.num_decoder_layers": 2, "model.num_units": 6, "model.embedding_size": 6,
        "model.attention_units": 5, "model.init_scale": 0.6, "training.dropout": 0.0, "training.jit_compile": False,
        "training.adam_learning_rate": 0.02, "training.clip_bound_start": 1.0, "refinement.num_samples": num_samples,
        "refinement.ml_weight": ml_weight,
    } | {f"training.{key}": value for key, value in settings.items()}  # fmt: skip
    keras.utils.set_random_seed(3)
    model = RefinedGNMT(load_config(None, [f"{k}={v}" for k, v in overrides.items()]), VOCAB_SIZE)
    model.compile_for_training()
    return model


def make_batch(num_rows, seed, source_length=4, target_length=6):
    rng = np.random.default_rng(seed)
    source = rng.integers(4, VOCAB_SIZE, [num_rows, source_length])
    lengths = rng.integers(2, target_length + 1, num_rows)
    output = np.full([num_rows, target_length], PAD_ID)
    for row, length in zip(output, lengths, strict=True):
        row[: length - 1] = rng.integers(4, VOCAB_SIZE, length - 1)
        row[length - 1] = END_ID
    target_input = np.concatenate([np.full([num_rows, 1], START_ID), output[:, :-1]], axis=1)
    fields = (source, rng.integers(1, source_length + 1, num_rows), target_input, output, lengths)
    return Batch(*(tf.constant(field, tf.int32) for field in fields))


def texts(ids, lengths):
    return [
        [int(piece) for piece in row[:n] if piece != END_ID]
        for row, n in zip(ids.numpy(), lengths.numpy(), strict=True)
    ]


def drawn(model, batch, num_samples, length=7, seed=1, first_sentence=0):
    memory = model.encode(batch.source_ids, batch.source_lengths)
    return draw_samples(model, memory, num_samples, length, tf.constant(seed, tf.uint32), tf.constant(first_sentence))


def test_samples_end_once_and_hold_no_piece_that_is_none():
    samples = drawn(make_model(), make_batch(4, 1), num_samples=50)
    ids, lengths = samples.ids.numpy(), samples.lengths.numpy()
    assert ids.shape == (200, 7)
    assert set(lengths) > {1, 2, 7}
    assert START_ID not in ids
    for row, length in zip(ids, lengths, strict=True):
        assert PAD_ID not in row[:length]
        assert END_ID not in row[: length - 1]
        assert (row[length:] == PAD_ID).all()
        assert length == 7 or row[length - 1] == END_ID


def test_samples_come_as_often_as_the_model_says():
    model, batch = make_model(), make_batch(1, 1)
    counts = np.zeros([VOCAB_SIZE, VOCAB_SIZE])
    for seed in range(4):
        for row in drawn(model, batch, num_samples=1000, length=2, seed=seed).ids.numpy():
            counts[row[0], row[1]] += 1
    logits = model.scored(batch).logits[0, 0].numpy()
    possible = [piece for piece in range(VOCAB_SIZE) if piece not in (PAD_ID, START_ID)]
    probs = np.exp(logits[possible]) / np.exp(logits[possible]).sum()
    # Four standard deviations.
    observed = counts.sum(axis=1)[possible] / 4000
    assert (np.abs(observed - probs) < 4 * np.sqrt(probs * (1 - probs) / 4000)).all()
    # And the second piece, after the most frequent first one.
    first = int(np.argmax([0 if p == END_ID else counts[p].sum() for p in range(VOCAB_SIZE)]))
    second = batch._replace(target_input_ids=tf.constant([[START_ID, first]]), target_lengths=tf.constant([2]))
    logits = model.scored(second).logits[0, 1].numpy()
    probs = np.exp(logits[possible]) / np.exp(logits[possible]).sum()
    number = counts[first].sum()
    assert (np.abs(counts[first][possible] / number - probs) < 4 * np.sqrt(probs * (1 - probs) / number)).all()


def test_a_sentence_gets_its_samples_whatever_shares_its_batch():
    model, batch = make_model(), make_batch(5, 2)
    whole = drawn(model, batch, num_samples=3)
    share = drawn(model, Batch(*(field[2:4] for field in batch)), num_samples=3, first_sentence=2)
    np.testing.assert_array_equal(share.ids, whole.ids[6:12])
    assert not np.array_equal(drawn(model, batch, num_samples=3, seed=2).ids, whole.ids)
    assert len({tuple(row) for row in whole.ids.numpy()}) > 5


@pytest.mark.parametrize("ml_weight", [0.0, 0.3])
def test_the_gradient_is_that_of_equation_9(ml_weight):
    model, batch = make_model(num_samples=4, ml_weight=ml_weight), make_batch(3, 5)
    # A row of length 0 only fills the batch.
    batch = batch._replace(target_lengths=batch.target_lengths * tf.constant([1, 1, 0]))
    found = model.rewarded_samples(batch, tf.constant(0))
    ids, lengths = found.samples
    written, wanted = texts(ids, lengths), texts(batch.target_output_ids, batch.target_lengths)
    rewards = np.array([gleu(written[i], wanted[i // 4]) for i in range(8)]).reshape(2, 4)
    np.testing.assert_allclose(found.rewards[:2], rewards, atol=1e-6)
    assert rewards.std() > 0.03
    advantages = rewards - rewards.mean(axis=1, keepdims=True)

    def log_probs(source, input_ids, output_ids, output_lengths):
        logits = model(Batch(*source, input_ids, output_ids, output_lengths))
        steps = tf.nn.sparse_softmax_cross_entropy_with_logits(output_ids, logits)
        return -tf.reduce_sum(steps * tf.sequence_mask(output_lengths, output_ids.shape[1], tf.float32), axis=1)

    with tf.GradientTape() as tape:
        source = [tf.repeat(values[:2], 4, axis=0) for values in (batch.source_ids, batch.source_lengths)]
        input_ids = tf.concat([tf.fill([8, 1], START_ID), ids[:8, :-1]], axis=1)
        expected = tf.reduce_sum(advantages.ravel() / 4 * log_probs(source, input_ids, ids[:8], lengths[:8]))
        targets = log_probs(batch[:2], *batch[2:])
        loss = -expected - ml_weight * tf.reduce_sum(targets)
    gradients = tape.gradient(loss, model.trainable_variables)
    actual = model._gradients(batch, 0)
    assert float(actual.negative_log_prob) == pytest.approx(-float(tf.reduce_sum(targets)), rel=1e-5)
    assert float(actual.reward) == pytest.approx(rewards.mean(axis=1).sum(), rel=1e-5)
    assert float(actual.num_pairs) == 2
    for weight, want, got in zip(model.trainable_variables, gradients, actual.gradients, strict=True):
        np.testing.assert_allclose(got, tf.convert_to_tensor(want), atol=1e-5, err_msg=weight.name)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_refinement_raises_the_reward(jit_compile):
    model = make_model(num_samples=15, ml_weight=0.017, jit_compile=jit_compile)
    batch = make_batch(6, 7)
    train = model.make_train_function()
    rewards = [float(train(iter([batch]))["reward"]) for _ in range(60)]
    assert np.mean(rewards[-5:]) > 2 * np.mean(rewards[:5])


def test_a_compiled_step_does_what_the_plain_one_does():
    batch = make_batch(6, 7)
    settings = {"adam_steps": 0, "sgd_learning_rate": 0.5, "dropout": 0.2}
    plain, compiled = make_model(**settings), make_model(jit_compile=True, **settings)
    logs = {name: float(value) for name, value in plain.make_train_function()(iter([batch])).items()}
    expected = {name: float(value) for name, value in compiled.make_train_function()(iter([batch])).items()}
    assert logs == pytest.approx(expected, rel=1e-4)
    for first, second in zip(plain.get_weights(), compiled.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from gnmt_tf.training.optimizer import AdamThenSGD


def updates(optimizer, num_steps, start=(1.0, -2.0, 3.0)):
    """The variable after each of `num_steps` steps down the slope of sum(x^4) / 4."""
    variable = tf.Variable(start)
    optimizer.build([variable])
    values = []
    for _ in range(num_steps):
        optimizer.apply_gradients([(variable**3, variable)])
        values.append(variable.numpy())
    return np.stack(values)


def test_the_first_phase_is_adam():
    ours = updates(AdamThenSGD(adam_learning_rate=0.1, adam_steps=20), 20)
    theirs = updates(keras.optimizers.Adam(0.1, epsilon=1e-8), 20)
    # Some values pass close to zero, where only the absolute error means anything.
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_second_phase_is_plain_sgd():
    values = updates(AdamThenSGD(adam_learning_rate=0.1, sgd_learning_rate=0.01, adam_steps=3), 6)
    for before, after in zip(values[2:-1], values[3:], strict=True):
        np.testing.assert_allclose(after, before - 0.01 * before**3, rtol=1e-5)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 2e-4), (59_999, 2e-4), (60_000, 0.5), (1_199_999, 0.5), (1_200_000, 0.25), (1_399_999, 0.25),
     (1_400_000, 0.125), (2_000_000, 0.5**6)],
)  # fmt: skip
def test_the_rate_is_the_one_the_paper_gives_for_the_step(step, rate):
    assert float(AdamThenSGD().rate_at(tf.constant(step, tf.int64))) == pytest.approx(rate)


def test_the_optimizer_is_rebuilt_from_its_config():
    optimizer = AdamThenSGD(0.1, 0.2, 3, 4, 5)
    assert AdamThenSGD.from_config(optimizer.get_config()).get_config() == optimizer.get_config()

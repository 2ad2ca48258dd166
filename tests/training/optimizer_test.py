import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig
from gnmt_tf.training.optimizer import AdamThenSGD


def make(**settings):
    return AdamThenSGD(TrainingConfig(**settings))


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
    ours = updates(make(adam_learning_rate=0.1, adam_steps=20), 20)
    theirs = updates(keras.optimizers.Adam(0.1, epsilon=1e-8), 20)
    # Some values pass close to zero, where only the absolute error means anything.
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_second_phase_is_plain_sgd():
    values = updates(make(adam_learning_rate=0.1, sgd_learning_rate=0.01, adam_steps=3), 6)
    for before, after in zip(values[2:-1], values[3:], strict=True):
        np.testing.assert_allclose(after, before - 0.01 * before**3, rtol=1e-5)


def rate(optimizer, step):
    return float(optimizer.rate_at(tf.constant(step, tf.int64)))


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 2e-4), (59_999, 2e-4), (60_000, 0.5), (1_199_999, 0.5), (1_200_000, 0.25), (1_399_999, 0.25),
     (1_400_000, 0.125), (2_000_000, 0.5**6)],
)  # fmt: skip
def test_the_rate_is_the_one_the_paper_gives_for_the_step(step, expected):
    assert rate(make(), step) == pytest.approx(expected)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.01), (49, 0.5), (99, 1.0), (399, 0.5), (9999, 0.1)])
def test_the_rate_rises_over_the_warm_up_and_falls_with_the_root_of_the_step(step, expected):
    optimizer = make(schedule="inverse_sqrt", warmup_steps=100, adam_learning_rate=1.0)
    assert rate(optimizer, step) == pytest.approx(expected)


def test_the_plateau_schedule_stays_where_it_is_until_it_is_lowered():
    optimizer = make(schedule="plateau", adam_learning_rate=0.3)
    assert rate(optimizer, 5000) == pytest.approx(0.3)
    optimizer.plateau_scale.assign(0.25)
    assert rate(optimizer, 5001) == pytest.approx(0.075)


def test_the_average_follows_the_weights():
    optimizer = make(adam_learning_rate=0.1, average_decay=0.5)
    variable = tf.Variable([1.0, -2.0, 3.0])
    optimizer.build([variable])
    expected = variable.numpy()
    for step in range(1, 30):
        optimizer.apply_gradients([(variable**3, variable)])
        decay = min(0.5, step / (step + 9))
        expected = decay * expected + (1 - decay) * variable.numpy()
        np.testing.assert_allclose(optimizer.averages[0], expected, rtol=1e-5)


def test_a_gradient_of_nan_moves_nothing_but_the_step():
    optimizer = make(adam_learning_rate=0.1, average_decay=0.9)
    variable = tf.Variable([1.0, -2.0])
    optimizer.build([variable])
    optimizer.apply_gradients([(variable**3, variable)])
    before = [value.numpy() for value in [variable, *optimizer.variables[1:]]]
    optimizer.apply_gradients([(variable * np.nan, variable)])
    for old, new in zip(before, [variable, *optimizer.variables[1:]], strict=True):
        np.testing.assert_array_equal(new, old)
    assert int(optimizer.iterations) == 2


def test_the_optimizer_is_rebuilt_from_its_config():
    optimizer = make(adam_learning_rate=0.1, schedule="plateau", warmup_steps=7)
    rebuilt = AdamThenSGD.from_config(optimizer.get_config())
    assert rebuilt.get_config() == optimizer.get_config()
    assert rebuilt.training == optimizer.training

"""The paper's optimizer: Adam, then plain SGD, with a learning rate that is halved late in training (section 8)."""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig


class AdamThenSGD(keras.optimizers.Optimizer):
    """Adam for the first `adam_steps` steps, SGD without momentum afterwards.

    The rate of either phase is halved every `halve_every_steps` steps from `halve_after_step` on, for the first time
    at that step.

    Args:
      adam_learning_rate, sgd_learning_rate: rates of the two phases.
      adam_steps: steps of the first phase; 0 means SGD alone.
      halve_after_step, halve_every_steps: see above.
      beta_1, beta_2, epsilon: Adam's constants.
    """

    def __init__(
        self,
        adam_learning_rate: float = 2e-4,
        sgd_learning_rate: float = 0.5,
        adam_steps: int = 60_000,
        halve_after_step: int = 1_200_000,
        halve_every_steps: int = 200_000,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "AdamThenSGD",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.adam_learning_rate, self.sgd_learning_rate = adam_learning_rate, sgd_learning_rate
        self.adam_steps, self.halve_after_step, self.halve_every_steps = adam_steps, halve_after_step, halve_every_steps
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        # Keras shows and checkpoints a `learning_rate`; the rate itself is a function of the step.
        self._learning_rate = self._build_learning_rate(adam_learning_rate)

    @classmethod
    def of(cls, config: TrainingConfig) -> "AdamThenSGD":
        """The optimizer that a configuration describes."""
        return cls(
            config.adam_learning_rate,
            config.sgd_learning_rate,
            config.adam_steps,
            config.halve_after_step,
            config.halve_every_steps,
        )

    def rate_at(self, step: tf.Tensor) -> tf.Tensor:
        """Learning rate of the update that follows `step` completed ones: scalar float32."""
        base = tf.where(step < self.adam_steps, self.adam_learning_rate, self.sgd_learning_rate)
        past = tf.cast(step - self.halve_after_step, tf.float32)
        halvings = tf.maximum(tf.floor(past / self.halve_every_steps) + 1.0, 0.0)
        return base * 0.5**halvings

    def build(self, var_list: list[tf.Variable]) -> None:
        """Makes the two moments of every variable."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._first_moments = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._second_moments = [self.add_variable_from_reference(v, "v") for v in var_list]
        self._built = True

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """One update of one variable."""
        gradient = tf.convert_to_tensor(gradient)
        rate = tf.cast(self.rate_at(self.iterations), variable.dtype)
        index = self._index_dict[self._var_key(variable)]
        first, second = self._first_moments[index], self._second_moments[index]
        count = tf.cast(self.iterations + 1, variable.dtype)
        first.assign(self.beta_1 * first + (1.0 - self.beta_1) * gradient)
        second.assign(self.beta_2 * second + (1.0 - self.beta_2) * gradient * gradient)
        correction = tf.sqrt(1.0 - self.beta_2**count) / (1.0 - self.beta_1**count)
        adam = correction * first / (tf.sqrt(second) + self.epsilon)
        variable.assign_sub(rate * tf.where(self.iterations < self.adam_steps, adam, gradient))

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the optimizer."""
        return super().get_config() | {
            name: getattr(self, name)
            for name in (
                "adam_learning_rate",
                "sgd_learning_rate",
                "adam_steps",
                "halve_after_step",
                "halve_every_steps",
                "beta_1",
                "beta_2",
                "epsilon",
            )
        }

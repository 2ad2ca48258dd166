"""The optimizer: Adam, then plain SGD, with the rate of the paper's schedule or of a common one (section 8).

Reads gradients; moves the weights, their two moments and, if asked for, their running average.
"""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig


class AdamThenSGD(keras.optimizers.Optimizer):
    """Adam for the first `adam_steps` steps, SGD without momentum afterwards.

    Schedules of the rate, each after a linear rise over the first `warmup_steps` steps:

    * `paper`: the rate of either phase, halved every `halve_every_steps` steps from `halve_after_step` on, for the
      first time at that step.
    * `inverse_sqrt`: falls as 1 / sqrt(step) from the end of the warm-up on.
    * `plateau`: constant until somebody lowers `plateau_scale`.

    An element whose gradient is NaN stays as it is, moments and average included: a step is skipped by such gradients.

    Args:
      training: rates, schedule and phases.
      beta_1, beta_2, epsilon: Adam's constants.
    """

    def __init__(
        self,
        training: TrainingConfig,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "AdamThenSGD",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.training = training
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.plateau_scale = tf.Variable(1.0, trainable=False, name="plateau_scale")
        # Keras shows and checkpoints a `learning_rate`; the rate itself is a function of the step.
        self._learning_rate = self._build_learning_rate(training.adam_learning_rate)

    def rate_at(self, step: tf.Tensor) -> tf.Tensor:
        """Learning rate of the update that follows `step` completed ones: scalar float32."""
        training = self.training
        base = tf.where(step < training.adam_steps, training.adam_learning_rate, training.sgd_learning_rate)
        number = tf.cast(step, tf.float32) + 1.0
        warmup_steps = float(max(training.warmup_steps, 1))
        base *= tf.minimum(number / warmup_steps, 1.0)
        if training.schedule == "inverse_sqrt":
            return base * tf.minimum(tf.sqrt(warmup_steps / number), 1.0)
        if training.schedule == "plateau":
            return base * self.plateau_scale
        past = tf.cast(step - training.halve_after_step, tf.float32)
        halvings = tf.maximum(tf.floor(past / training.halve_every_steps) + 1.0, 0.0)
        return base * 0.5**halvings

    def build(self, var_list: list[tf.Variable]) -> None:
        """Makes the two moments, and the average, of every variable."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._first_moments = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._second_moments = [self.add_variable_from_reference(v, "v") for v in var_list]
        self.averages = []
        if self.training.average_decay is not None:
            self.averages = [self.add_variable_from_reference(v, "average", initial_value=v) for v in var_list]
        self._built = True

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """One update of one variable."""
        gradient = tf.convert_to_tensor(gradient)
        skipped = tf.math.is_nan(gradient)
        rate = tf.cast(self.rate_at(self.iterations), variable.dtype)
        index = self._index_dict[self._var_key(variable)]
        first, second = self._first_moments[index], self._second_moments[index]
        count = tf.cast(self.iterations + 1, variable.dtype)
        first.assign(tf.where(skipped, first, self.beta_1 * first + (1.0 - self.beta_1) * gradient))
        second.assign(tf.where(skipped, second, self.beta_2 * second + (1.0 - self.beta_2) * gradient * gradient))
        correction = tf.sqrt(1.0 - self.beta_2**count) / (1.0 - self.beta_1**count)
        adam = correction * first / (tf.sqrt(second) + self.epsilon)
        change = rate * tf.where(self.iterations < self.training.adam_steps, adam, gradient)
        variable.assign(tf.where(skipped, variable, variable - change))
        if self.averages:
            # Early on the average would still hold the start values; it then follows the weights more closely.
            decay = tf.minimum(self.training.average_decay, count / (count + 9.0))
            average = self.averages[index]
            average.assign(tf.where(skipped, average, decay * average + (1.0 - decay) * variable))

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the optimizer."""
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return super().get_config() | {"training": self.training.model_dump()} | own

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "AdamThenSGD":
        """The inverse of `get_config`."""
        return cls(**(config | {"training": TrainingConfig(**config["training"])}))

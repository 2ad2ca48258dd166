"""GNMT with its training step, for `keras.Model.fit`.

Loss and gradients are normalised over the global batch of a `tf.distribute` strategy; with more than one replica,
`training.jit_compile` has to be off, and every replica drops the same elements.

Reads Batches; gives the loss of eq. 7 per target piece and updates the weights.
"""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from gnmt_tf.config import Config
from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.clipping import UNCONSTRAINED, scheduled_clip_bound
from gnmt_tf.layers.dropout import Dropout
from gnmt_tf.model.gnmt import GNMT, Bounds
from gnmt_tf.model.loss import projected_loss_sums
from gnmt_tf.training.optimizer import AdamThenSGD


class TrainableGNMT(GNMT):
    """The model with `train_step`; construct, `compile_for_training()`, `fit`.

    Args:
      settings: the whole configuration.
      vocab_size: pieces in the shared vocabulary.
    """

    def __init__(self, settings: Config, vocab_size: int, **kwargs: Any):
        super().__init__(settings.model, vocab_size, settings.training.constrained, **kwargs)
        self.settings = settings

    train_function: Callable[[Iterator[Batch]], dict[str, tf.Tensor]] | None

    def compile_for_training(self) -> None:
        """Gives the model its optimizer, whose variables exist afterwards (so that a checkpoint can restore them)."""
        optimizer = AdamThenSGD.of(self.settings.training)
        self.compile(optimizer=optimizer, jit_compile=self.settings.training.jit_compile)
        optimizer.build(self.trainable_variables)

    def training_bounds(self, step: tf.Tensor) -> Bounds:
        """The constraints at a step (section 6)."""
        training = self.settings.training
        if not self.constrained:
            return Bounds(tf.constant(UNCONSTRAINED), tf.constant(UNCONSTRAINED))
        steps = training.clip_bound_steps or training.num_steps
        clip_bound = scheduled_clip_bound(step, training.clip_bound_start, self.config.clip_bound, steps)
        return Bounds(clip_bound, tf.constant(self.config.logit_bound))

    def train_step(self, data: Batch) -> dict[str, tf.Tensor]:
        """One update; returns `loss` (nats per target piece), `num_pieces` (both sides), `gradient_norm`."""
        training = self.settings.training
        step = self.optimizer.iterations
        dropout = Dropout(training.dropout, training.seed, step) if training.dropout else None
        with tf.GradientTape() as tape:
            bounds = self.training_bounds(step)
            outputs = self.decoder_outputs(data, bounds, dropout)
            sums = projected_loss_sums(
                outputs, self.output_projection, data, bounds.logit_bound, training.label_smoothing
            )
            # The pieces of the global batch, so that every replica's gradient weighs as it would on one device.
            replicas = tf.distribute.get_replica_context()
            num_target_pieces = replicas.all_reduce(tf.distribute.ReduceOp.SUM, sums.num_pieces)
            loss = sums.loss / tf.maximum(num_target_pieces, 1.0)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        gradients, norm = tf.clip_by_global_norm(gradients, training.gradient_norm)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True), skip_gradients_aggregation=True
        )
        # Without the smoothing, so that runs with and without it can be compared.
        loss = replicas.all_reduce(tf.distribute.ReduceOp.SUM, sums.negative_log_prob)
        loss /= tf.maximum(num_target_pieces, 1.0)
        num_source_pieces = replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(data.source_lengths))
        num_pieces = num_target_pieces + tf.cast(num_source_pieces, tf.float32)
        return {"loss": loss, "num_pieces": num_pieces, "gradient_norm": norm}

    def make_train_function(self, force: bool = False) -> Callable[[Iterator[Batch]], dict[str, tf.Tensor]]:
        """As in Keras, but compiled once for every batch shape, with that shape static inside.

        Keras traces one function for all shapes, in which the lengths are unknown; loops over steps, and a TPU, want
        them known.
        """
        if self.train_function is not None and not force:
            return self.train_function
        strategy = self.distribute_strategy
        step_function = tf.function(self.train_step, jit_compile=self.jit_compile or None)

        @tf.function(reduce_retracing=False)
        def run(batch: Batch) -> dict[str, tf.Tensor]:
            logs = strategy.run(step_function, args=(batch,))
            return {name: strategy.experimental_local_results(value)[0] for name, value in logs.items()}

        self.train_function = lambda iterator: run(next(iterator))
        return self.train_function

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the model."""
        return {"settings": self.settings.model_dump(), "vocab_size": self.vocab_size, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "TrainableGNMT":
        """The inverse of `get_config`."""
        return cls(**(config | {"settings": Config(**config["settings"])}))

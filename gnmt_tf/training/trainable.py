"""GNMT with its training step, for `keras.Model.fit`.

Loss and gradients are normalised over the global batch of a `tf.distribute` strategy, and every replica drops what one
device would drop of the same sentence pairs, so that the number of replicas changes nothing but the speed.

Reads Batches; gives the loss of eq. 7 per target piece and updates the weights.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from gnmt_tf.config import Config, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.clipping import UNCONSTRAINED, scheduled_clip_bound
from gnmt_tf.layers.dropout import Dropout
from gnmt_tf.layers.placement import ONE_DEVICE, Placement
from gnmt_tf.layers.projected_cross_entropy import CrossEntropySums, Labels
from gnmt_tf.model.gnmt import GNMT, Bounds
from gnmt_tf.tensorflow_start import release_freed_memory
from gnmt_tf.training.optimizer import AdamThenSGD


class Objective(NamedTuple):
    """What a batch says of the model: sums over its sentence pairs, scalars.

    Fields:
      loss: what training makes small, in nats.
      negative_log_prob: of the target pieces, in nats, for people to watch.
      reward: of sequences that the model wrote itself, where training is about that; else 0.
    """

    loss: tf.Tensor
    negative_log_prob: tf.Tensor
    reward: tf.Tensor


class _Gradients(NamedTuple):
    # Sums over one batch, on one replica.
    gradients: list[tf.Tensor]
    negative_log_prob: tf.Tensor
    reward: tf.Tensor
    num_target_pieces: tf.Tensor
    num_source_pieces: tf.Tensor
    num_pairs: tf.Tensor


class _Accumulator:
    """What the batches of a step have summed up so far, each replica for itself; zero between steps."""

    def __init__(self, weights: list[tf.Variable]):
        # Not attributes of the model: they are no part of it and need not be saved.
        shapes = _Gradients([weight.shape for weight in weights], *[tf.TensorShape([])] * 5)
        self._sums = tf.nest.map_structure(_zero_on_each_replica, shapes)

    def add(self, values: _Gradients) -> None:
        tf.nest.map_structure(lambda variable, value: variable.assign_add(value), self._sums, values)

    def take(self, values: _Gradients) -> _Gradients:
        """The sums with the last batch's values; starts again from zero."""
        sums = tf.nest.map_structure(lambda variable, value: variable.read_value() + value, self._sums, values)
        tf.nest.map_structure(lambda variable: variable.assign(tf.zeros_like(variable)), self._sums)
        return sums


def _zero_on_each_replica(shape: tf.TensorShape) -> tf.Variable:
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _global_norm(gradients: list[tf.Tensor]) -> tf.Tensor:
    # Row by row as products: XLA writes the squares to memory before it adds them up, in tf.linalg.global_norm.
    rows = [gradient if gradient.shape.rank == 2 else tf.reshape(gradient, [1, -1]) for gradient in gradients]
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.einsum("ij,ij->i", row, row)) for row in rows]))


class _ForEveryShape:
    """A function of a batch, traced and compiled apart for every batch shape that comes.

    One tf.function could hold all traces, but TensorFlow takes more than a few of them for a mistake, and warns.
    """

    def __init__(self, function: Callable[..., Any], strategy: tf.distribute.Strategy):
        self._function, self._strategy = function, strategy
        self._functions: dict[tuple[tuple[int, ...], ...], Callable[..., Any]] = {}

    def __call__(self, batch: Batch, *rest: tf.Tensor) -> Any:
        sides = (
            self._strategy.experimental_local_results(ids)[0] for ids in (batch.source_ids, batch.target_input_ids)
        )
        shapes = tuple(tuple(ids.shape) for ids in sides)
        if shapes in self._functions:
            return self._functions[shapes](batch, *rest)
        self._functions[shapes] = tf.function(self._function, autograph=False)
        result = self._functions[shapes](batch, *rest)
        # A compiler takes more memory than the step it compiles.
        release_freed_memory()
        return result


class TrainableGNMT(GNMT):
    """The model with `train_step`; construct, `compile_for_training()`, `fit`.

    One step takes `training.accumulate_batches` batches from the iterator.

    Args:
      settings: the whole configuration.
      vocab_size: pieces in the shared vocabulary.
      placement: where its parts are.
    """

    def __init__(self, settings: Config, vocab_size: int, placement: Placement = ONE_DEVICE, **kwargs: Any):
        super().__init__(settings.model, vocab_size, settings.training.constrained, placement, **kwargs)
        self.settings = settings
        if settings.training.fake_quantization:
            from gnmt_tf.quantization.fake_quantization import fake_quantize

            fake_quantize(self)
        self._accumulator: _Accumulator | None = None

    has_reward = False
    """Whether `objective` has one."""

    train_function: Callable[[Iterator[Batch]], dict[str, tf.Tensor]] | None

    def compile_for_training(self) -> None:
        """Gives the model its optimizer, whose variables exist afterwards (so that a checkpoint can restore them)."""
        optimizer = AdamThenSGD(self.settings.training)
        self.compile(optimizer=optimizer, jit_compile=self.settings.training.jit_compile)
        optimizer.build(self.trainable_variables)
        if self.settings.training.accumulate_batches > 1:
            self._accumulator = _Accumulator(self.trainable_variables)

    def start_from(self, model: GNMT) -> None:
        """Takes over the weights of a model of the same shape, also as their running average.

        Raises:
          UserError: it has another shape.
        """
        pairs = list(zip(self.trainable_variables, model.trainable_variables, strict=False))
        differing = [
            f"{mine.name} {mine.shape}, not {theirs.shape}" for mine, theirs in pairs if mine.shape != theirs.shape
        ]
        if differing or len(self.trainable_variables) != len(model.trainable_variables):
            raise UserError(
                "the model to start from",
                f"the shape that the config section `model` describes ({len(self.trainable_variables)} weights)",
                "; ".join(differing[:3]) or f"{len(model.trainable_variables)} weights",
                "Give the settings in `model` that it was trained with.",
            )
        for mine, theirs in pairs:
            mine.assign(theirs)
        for average, weight in zip(self.optimizer.averages, self.trainable_variables, strict=False):
            average.assign(weight)

    @property
    def step(self) -> int:
        """Training steps behind the model."""
        return int(self.optimizer.iterations.numpy())

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Exchanges the weights for their running average meanwhile; without `average_decay` nothing changes."""
        self.exchange_weights()
        try:
            yield
        finally:
            self.exchange_weights()

    def exchange_weights(self) -> None:
        """Exchanges weights and averages."""
        if self.optimizer.averages:
            for weight, average in zip(self.trainable_variables, self.optimizer.averages, strict=True):
                value = tf.identity(weight)
                weight.assign(average)
                average.assign(value)

    def training_bounds(self, step: tf.Tensor) -> Bounds:
        """The constraints at a step (section 6)."""
        training = self.settings.training
        if not self.constrained:
            return Bounds(tf.constant(UNCONSTRAINED), tf.constant(UNCONSTRAINED))
        steps = training.clip_bound_steps or training.num_steps
        clip_bound = scheduled_clip_bound(step, training.clip_bound_start, self.config.clip_bound, steps)
        return Bounds(clip_bound, tf.constant(self.config.logit_bound))

    def train_step(self, data: Batch) -> dict[str, tf.Tensor]:
        """The last batch of a step, and the update.

        Returns:
          `loss` (nats per target piece, without smoothing), `num_pieces` (both sides), `gradient_norm` before it was
          cut, `reward` (per sentence pair, if training is about one). When loss or norm are not finite the step moves
          nothing but the count of steps.
        """
        training = self.settings.training
        sums = self._gradients(data, training.accumulate_batches - 1)
        if self._accumulator:
            sums = self._accumulator.take(sums)
        replicas = tf.distribute.get_replica_context()
        sums = _Gradients(*replicas.all_reduce(tf.distribute.ReduceOp.SUM, list(sums)))
        # The pieces of the global batch, so that every replica's gradient weighs as it would on one device.
        num_target_pieces = tf.maximum(sums.num_target_pieces, 1.0)
        loss = sums.negative_log_prob / num_target_pieces
        norm = _global_norm(sums.gradients) / num_target_pieces
        scale = tf.minimum(training.gradient_norm / norm, 1.0) / num_target_pieces
        # The optimizer leaves alone what has an undefined gradient, so this skips the step.
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        scale = tf.where(finite, scale, float("nan"))
        gradients = [gradient * scale for gradient in sums.gradients]
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True), skip_gradients_aggregation=True
        )
        num_pieces = sums.num_target_pieces + sums.num_source_pieces
        logs = {"loss": loss, "num_pieces": num_pieces, "gradient_norm": norm}
        return logs | ({"reward": sums.reward / tf.maximum(sums.num_pairs, 1.0)} if self.has_reward else {})

    def accumulate_step(self, data: Batch, number: tf.Tensor) -> None:
        """One batch of a step that is not its last: `number` counts them from 0."""
        assert self._accumulator is not None
        self._accumulator.add(self._gradients(data, number))

    def _gradients(self, data: Batch, number: int | tf.Tensor) -> _Gradients:
        """Of batch `number` of this step."""
        training = self.settings.training
        step = self.optimizer.iterations
        # Every batch drops elements of its own.
        draw = step * training.accumulate_batches + tf.cast(number, step.dtype)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        rates = training.dropout, training.source_dropout, training.target_dropout
        dropout = Dropout(rates[0], training.seed, draw, replica, *rates[1:]) if any(rates) else None
        bounds = self.training_bounds(step)
        with tf.GradientTape() as tape:
            objective = self.objective(data, bounds, dropout, draw)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(objective.loss, self.trainable_variables)]
        counted = data.target_lengths, data.source_lengths, tf.cast(data.target_lengths > 0, tf.int32)
        counts = (tf.cast(tf.reduce_sum(n), tf.float32) for n in counted)
        return _Gradients(gradients, objective.negative_log_prob, objective.reward, *counts)

    def objective(self, data: Batch, bounds: Bounds, dropout: Dropout | None, draw: tf.Tensor) -> Objective:
        """Maximum likelihood (eq. 7), with label smoothing if asked for.

        Args:
          data: this replica's share of a batch.
          bounds: the constraints of this step.
          dropout: of this step, or None.
          draw: scalar, another number for every batch of the run: where random choices start from.
        """
        training = self.settings.training
        outputs = self.decoder_outputs(data, bounds, dropout, tf.as_dtype(training.compute_dtype))
        labels = Labels(data.target_output_ids, data.target_lengths, training.label_smoothing)
        return Objective(*self.cross_entropy(outputs, labels, bounds), tf.zeros([]))

    def cross_entropy(self, outputs: tf.Tensor, labels: Labels, bounds: Bounds) -> CrossEntropySums:
        """The loss of decoder outputs float [batch_size, target_length, num_units]."""
        with self._placement.device("output_projection"):
            return self.output_projection.cross_entropy(outputs, labels, bounds.logit_bound, self.tied_embeddings)

    def make_train_function(self, force: bool = False) -> Callable[[Iterator[Batch]], dict[str, tf.Tensor]]:
        """As in Keras, but compiled once for every batch shape, with that shape static inside.

        Keras traces one function for all shapes, in which the lengths are unknown; loops over steps, and a TPU, want
        them known.
        """
        if self.train_function is not None and not force:
            return self.train_function
        strategy, jit_compile = self.distribute_strategy, self.jit_compile or None

        def run_last(batch: Batch) -> dict[str, tf.Tensor]:
            logs = strategy.run(tf.function(self.train_step, jit_compile=jit_compile, autograph=False), args=(batch,))
            return {name: strategy.experimental_local_results(value)[0] for name, value in logs.items()}

        def run_earlier(batch: Batch, number: tf.Tensor) -> None:
            strategy.run(
                tf.function(self.accumulate_step, jit_compile=jit_compile, autograph=False), args=(batch, number)
            )

        last, earlier = _ForEveryShape(run_last, strategy), _ForEveryShape(run_earlier, strategy)

        def run(iterator: Iterator[Batch]) -> dict[str, tf.Tensor]:
            for number in range(self.settings.training.accumulate_batches - 1):
                earlier(next(iterator), tf.constant(number))
            return last(next(iterator))

        self.train_function = run
        return run

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the model."""
        return {"settings": self.settings.model_dump(), "vocab_size": self.vocab_size, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "TrainableGNMT":
        """The inverse of `get_config`."""
        return cls(**(config | {"settings": Config(**config["settings"])}))

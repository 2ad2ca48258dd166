"""What happens between training steps beside progress: evaluation, checkpoints, stopping.

Keras callbacks of one training run; each reads the step from the optimizer, so that a resumed run goes
on where it was.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple, TextIO

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig, UserError
from gnmt_tf.training.best_checkpoints import BestCheckpoints
from gnmt_tf.training.model_directory import TrainingState
from gnmt_tf.training.progress import Clock, TrainingLog, say


class DevScores(NamedTuple):
    """Scores on the development set: BLEU in percent, log perplexity in nats per piece."""

    bleu: float
    log_perplexity: float


class Checkpoints(keras.callbacks.Callback):
    """Saves the latest state every `checkpoint_every_steps` steps, and whenever `save` is called.

    A checkpoint is complete before the pointer to it moves, and older ones go only after that: a crash or a full disk
    in the middle leaves the one before. In it the model has its averaged weights, if there are any: those are to be
    used. Nothing is saved between steps that were skipped in a row, so that the last checkpoint is from before them.
    """

    def __init__(
        self,
        training: TrainingConfig,
        checkpoint: tf.train.Checkpoint,
        state: TrainingState,
        latest_path: str,
        best_path: str,
        clock: Clock,
    ):
        super().__init__()
        self.training, self.state, self.clock = training, state, clock
        self._latest = tf.train.CheckpointManager(checkpoint, latest_path, training.keep_checkpoints)
        self._best = BestCheckpoints(checkpoint, best_path, training.keep_best)
        newest = self._latest.latest_checkpoint
        self._saved_step = int(newest.rpartition("-")[2]) if newest else -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves when it is time to; the last step of a run is saved after its evaluation, by whoever runs it."""
        step = self.model.step
        is_last = step == self.training.num_steps or self.model.stop_training
        due = step % self.training.checkpoint_every_steps == 0 and not int(self.state.skipped_in_a_row)
        if due and not is_last:
            with self.clock.pause():
                self.save()

    def save(self) -> None:
        """Saves the latest state, unless that of this step is saved already."""
        step = self.model.step
        if step != self._saved_step:
            with self.model.averaged_weights(), _saving(step, self._latest):
                self._latest.save(checkpoint_number=step)
            self._saved_step = step

    def save_if_good(self, bleu: float, log_perplexity: float) -> None:
        """Saves the state if it is one of the best."""
        step = self.model.step
        if self._best.would_keep(bleu, log_perplexity):
            with self.model.averaged_weights(), _saving(step, self._latest):
                self._best.save(step, bleu, log_perplexity)


class EvaluationInterruptedError(Exception):
    """Raised by a scorer that was asked to stop in the middle."""


class Evaluation(keras.callbacks.Callback):
    """Scores the development set every `evaluate_every_steps` steps and keeps the best model.

    What follows from a series of scores is decided here too: the plateau schedule's lower rates, and the early end.

    Args:
      training: settings.
      score: translates and scores the development set; when it raises EvaluationInterruptedError the run ends with
        this step not evaluated. Without one nothing is evaluated.
      state: where the best score is noted.
      log: where scores go.
      clock: seconds of training.
      checkpoints: saves the best model.
    """

    def __init__(
        self,
        training: TrainingConfig,
        score: Callable[[], DevScores] | None,
        state: TrainingState,
        log: TrainingLog,
        clock: Clock,
        checkpoints: Checkpoints,
        output: TextIO = sys.stderr,
    ):
        super().__init__()
        self.training, self.score, self.state, self.log, self.clock = training, score, state, log, clock
        self.checkpoints, self.output = checkpoints, output

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluates when it is time to."""
        step = self.model.step
        if step and step % self.training.evaluate_every_steps == 0:
            with self.clock.pause():
                self.evaluate()

    def evaluate(self) -> None:
        """Evaluates the model of this step and saves it, unless it has been evaluated already."""
        step = self.model.step
        if self.score is None or step == int(self.state.evaluated_step):
            return
        start = self.clock.seconds()
        try:
            with self.model.averaged_weights():
                scores = self.score()
        except EvaluationInterruptedError:
            self.model.stop_training = True
            return
        seconds = self.clock.seconds()
        self.state.evaluated_step.assign(step)
        self.state.evaluated_bleu.assign(scores.bleu)
        self.state.evaluated_log_perplexity.assign(scores.log_perplexity)
        # While BLEU is still 0, or equal, the better model is the one that finds the references less surprising.
        best = float(self.state.best_bleu), -float(self.state.best_log_perplexity)
        is_best = (scores.bleu, -scores.log_perplexity) > best
        self.log.write(step, seconds=seconds, dev_bleu=scores.bleu, dev_log_perplexity=scores.log_perplexity)
        say(
            self.output,
            f"step {step}  development BLEU {scores.bleu:.2f}{' (best)' if is_best else ''}, "
            f"log perplexity {scores.log_perplexity:.4f}, {seconds - start:.0f} s",
        )
        if is_best:
            self.state.best_bleu.assign(scores.bleu)
            self.state.best_log_perplexity.assign(scores.log_perplexity)
            self.state.best_step.assign(step)
            self.state.evaluations_since_best.assign(0)
        else:
            self.state.evaluations_since_best.assign_add(1)
            self._lower_the_rate(int(self.state.evaluations_since_best))
            self.stop_early()
        # The states that are saved know of all this: a run that goes on from them decides as this one would have.
        self.checkpoints.save_if_good(scores.bleu, scores.log_perplexity)
        self.checkpoints.save()

    def stop_early(self) -> bool:
        """Whether patience is at an end; if so, no further step is made."""
        patience = self.training.early_stopping_patience
        since_best = int(self.state.evaluations_since_best)
        if patience is None or since_best < patience:
            return False
        say(self.output, f"Ends here: {since_best} evaluations without a new best.")
        self.model.stop_training = True
        return True

    def _lower_the_rate(self, since_best: int) -> None:
        if self.training.schedule != "plateau" or since_best % self.training.plateau_patience:
            return
        optimizer = self.model.optimizer
        optimizer.plateau_scale.assign(optimizer.plateau_scale * self.training.plateau_factor)
        rate = float(optimizer.rate_at(optimizer.iterations))
        say(self.output, f"Learning rate lowered to {rate:.3g}: {since_best} evaluations without a new best.")


class Stopping(keras.callbacks.Callback):
    """Ends training cleanly: after `max_minutes`, or when a signal asks for it.

    Used as a context manager, which holds SIGINT and SIGTERM; a second signal does what it did before.
    """

    def __init__(self, training: TrainingConfig, clock: Clock, output: TextIO = sys.stderr):
        super().__init__()
        self.training, self.clock, self.output = training, clock, output
        self.signal_number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stops after this step if it has to."""
        limit = self.training.max_minutes
        if self.signal_number is not None or (limit is not None and self.clock.seconds() >= limit * 60.0):
            self.model.stop_training = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        signal.signal(number, self._previous[number])
        # Written straight to the descriptor: the signal may have come in the middle of another write to the stream.
        os.write(2, b"Stopping after this step and saving; once more to stop at once.\n")

    def check(self, *_: object) -> None:
        """Called between the batches of an evaluation.

        Raises:
          EvaluationInterruptedError: a signal has come.
        """
        if self.signal_number is not None:
            raise EvaluationInterruptedError


@contextlib.contextmanager
def _saving(step: int, latest: tf.train.CheckpointManager) -> Iterator[None]:
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f"checkpoint of step {step} beside {latest.directory}",
            "to be saved",
            str(error).strip().splitlines()[-1],
            "Free some space and run the same command again; it goes on from "
            f"{latest.latest_checkpoint or 'the start'}.",
        ) from None

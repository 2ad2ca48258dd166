"""What happens between training steps: progress, logs, evaluation, checkpoints, stopping.

Keras callbacks of one training run; each reads the step from the optimizer, so that a resumed run goes
on where it was.
"""

import contextlib
import csv
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple, TextIO

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig, UserError
from gnmt_tf.training.model_directory import TrainingState

CSV_COLUMNS = (
    "step",
    "seconds",
    "loss",
    "learning_rate",
    "clip_bound",
    "gradient_norm",
    "pieces_per_second",
    "dev_bleu",
    "dev_log_perplexity",
)


def say(output: TextIO, line: str) -> None:
    """Prints a line of progress. That its reader has gone away is no reason to stop training."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=output, flush=True)


class DevScores(NamedTuple):
    """Scores on the development set: BLEU in percent, log perplexity in nats per piece."""

    bleu: float
    log_perplexity: float


class Clock:
    """Seconds of training, summed over restarts; `paused` seconds of them went to evaluations and checkpoints."""

    def __init__(self, state: TrainingState):
        self._state = state
        self._before = float(state.elapsed_seconds)
        self._start = time.monotonic()
        self.paused = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Counts what happens meanwhile as no part of the rate of training."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.paused += time.monotonic() - start

    def seconds(self) -> float:
        """Seconds so far; also noted in the state that checkpoints hold."""
        seconds = self._before + time.monotonic() - self._start
        self._state.elapsed_seconds.assign(seconds)
        return seconds


class TrainingLog:
    """`logs/training.csv`, whose rows after the step that a run resumes from are dropped, and TensorBoard events.

    Args:
      path: the logs directory.
      first_step: steps behind the run when it starts.
    """

    def __init__(self, path: str, first_step: int):
        self._csv_path = os.path.join(path, "training.csv")
        rows = []
        if os.path.exists(self._csv_path):
            with open(self._csv_path, encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
        with self._reported(), open(self._csv_path + ".new", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, CSV_COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in rows if int(row["step"]) <= first_step)
        os.replace(self._csv_path + ".new", self._csv_path)
        self._events = tf.summary.create_file_writer(path)

    def write(self, step: int, **values: float) -> None:
        """Adds one row; every name is a column."""
        with self._reported():
            with open(self._csv_path, "a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, CSV_COLUMNS).writerow({"step": step} | {k: f"{v:.7g}" for k, v in values.items()})
            with self._events.as_default():
                for name, value in values.items():
                    tf.summary.scalar(name, value, step=step)
            self._events.flush()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            raise UserError(
                self._csv_path,
                "logs that can be written to",
                str(error).strip().splitlines()[-1],
                "Free some space and run the same command again; it goes on from the last checkpoint.",
            ) from None


class Progress(keras.callbacks.Callback):
    """Prints loss, rate and time left, and logs them, every `log_every_steps` steps."""

    def __init__(self, training: TrainingConfig, log: TrainingLog, clock: Clock, output: TextIO = sys.stderr):
        super().__init__()
        self.training, self.log, self.clock, self.output = training, log, clock, output
        self._losses: list[float] = []
        self._pieces = 0.0
        self._first_seconds: float | None = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts, and reports when it is time to."""
        logs = logs or {}
        step = int(self.model.optimizer.iterations)
        now = self.clock.seconds() - self.clock.paused
        self._losses.append(float(logs["loss"]))
        self._check_finite(step, float(logs["loss"]), float(logs["gradient_norm"]))
        self._pieces += float(logs["num_pieces"])
        if self._first_seconds is None:
            # The first step compiles; the rate counts from its end.
            self._first_seconds, self._first_step, self._last_seconds, self._pieces = now, step, now, 0.0
        if step % self.training.log_every_steps and step != self.training.num_steps:
            return
        loss = sum(self._losses) / len(self._losses)
        rate = self._pieces / max(now - self._last_seconds, 1e-9)
        step_seconds = (now - self._first_seconds) / max(step - self._first_step, 1)
        bounds = self.model.training_bounds(self.model.optimizer.iterations)
        self.log.write(
            step,
            seconds=self.clock.seconds(),
            loss=loss,
            learning_rate=float(self.model.optimizer.rate_at(self.model.optimizer.iterations)),
            clip_bound=float(bounds.clip_bound),
            gradient_norm=float(logs["gradient_norm"]),
            pieces_per_second=rate,
        )
        left = self._seconds_left(step, step_seconds, self.clock.seconds())
        say(
            self.output,
            f"step {step}/{self.training.num_steps}  loss {loss:.4f}  {rate:,.0f} pieces/s  "
            f"{_clock_time(self.clock.seconds())} gone, {_clock_time(left)} left",
        )
        self._losses, self._pieces, self._last_seconds = [], 0.0, now

    def _check_finite(self, step: int, loss: float, gradient_norm: float) -> None:
        # Checked before any checkpoint of this step, so that those on disk hold finite weights.
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            raise UserError(
                f"training step {step}",
                "a finite loss and gradient",
                f"loss {loss}, gradient norm {gradient_norm}",
                "Lower the learning rate; the last checkpoint is from before this step.",
            )

    def _seconds_left(self, step: int, step_seconds: float, now: float) -> float:
        left = (self.training.num_steps - step) * step_seconds
        if self.training.max_minutes is not None:
            left = min(left, self.training.max_minutes * 60.0 - now)
        return max(left, 0.0)


class Checkpoints(keras.callbacks.Callback):
    """Saves the latest state every `checkpoint_every_steps` steps, and whenever `save` is called.

    A checkpoint is complete before the pointer to it moves, and older ones go only after that: a crash or a full disk
    in the middle leaves the one before.
    """

    def __init__(
        self, training: TrainingConfig, checkpoint: tf.train.Checkpoint, latest_path: str, best_path: str, clock: Clock
    ):
        super().__init__()
        self.training = training
        self.clock = clock
        self._latest = tf.train.CheckpointManager(checkpoint, latest_path, training.keep_checkpoints)
        self._best = tf.train.CheckpointManager(checkpoint, best_path, max_to_keep=1)
        newest = self._latest.latest_checkpoint
        self._saved_step = int(newest.rpartition("-")[2]) if newest else -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves when it is time to; the last step of a run is saved after its evaluation, by whoever runs it."""
        step = int(self.model.optimizer.iterations)
        is_last = step == self.training.num_steps or self.model.stop_training
        if step % self.training.checkpoint_every_steps == 0 and not is_last:
            with self.clock.pause():
                self.save()

    def save(self) -> None:
        """Saves the latest state, unless that of this step is saved already."""
        step = int(self.model.optimizer.iterations)
        if step != self._saved_step:
            _save(self._latest, step)
            self._saved_step = step

    def save_best(self) -> None:
        """Saves the state as the best one."""
        _save(self._best, int(self.model.optimizer.iterations))


class Evaluation(keras.callbacks.Callback):
    """Scores the development set every `evaluate_every_steps` steps and keeps the best model.

    Args:
      training: settings.
      score: translates and scores the development set.
      state: where the best score is noted.
      log: where scores go.
      clock: seconds of training.
      checkpoints: saves the best model.
    """

    def __init__(
        self,
        training: TrainingConfig,
        score: Callable[[], DevScores],
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
        if int(self.model.optimizer.iterations) % self.training.evaluate_every_steps == 0:
            with self.clock.pause():
                self.evaluate()

    def evaluate(self) -> None:
        """Evaluates the model of this step and saves it, unless it has been evaluated already.

        The state that is saved knows of the evaluation: a run that ends after it does not forget its best score.
        """
        step = int(self.model.optimizer.iterations)
        if step == int(self.state.evaluated_step):
            return
        self.state.evaluated_step.assign(step)
        start = self.clock.seconds()
        scores = self.score()
        seconds = self.clock.seconds()
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
            self.checkpoints.save_best()
        self.checkpoints.save()


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


def _save(manager: tf.train.CheckpointManager, step: int) -> None:
    try:
        manager.save(checkpoint_number=step)
    except (OSError, tf.errors.OpError) as error:
        before = manager.latest_checkpoint
        raise UserError(
            f"checkpoint of step {step} in {manager.directory}",
            "to be saved",
            str(error).strip().splitlines()[-1],
            f"Free some space and run the same command again; it goes on from {before or 'the start'}.",
        ) from None


def _clock_time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"

"""What a person sees of a run, and what is written down of it: lines of progress, `training.csv`, TensorBoard events.

Keras callbacks; each reads the step from the optimizer, so that a resumed run goes on where it was.
"""

import contextlib
import csv
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import TrainingConfig, UserError
from gnmt_tf.text.whole_file import whole_file
from gnmt_tf.training.model_directory import TrainingState

CSV_COLUMNS = (
    "step",
    "seconds",
    "loss",
    "reward",
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
        with self._reported(), whole_file(self._csv_path) as file:
            writer = csv.DictWriter(file, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for row in rows if int(row["step"]) <= first_step)
        self._events = tf.summary.create_file_writer(path)

    def write(self, step: int, **values: float) -> None:
        """Adds one row; every name is a column."""
        with self._reported():
            with open(self._csv_path, "a", encoding="utf-8", newline="") as file:
                row = {"step": step} | {name: f"{value:.7g}" for name, value in values.items()}
                csv.DictWriter(file, CSV_COLUMNS, lineterminator="\n").writerow(row)
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


class SkippedSteps(keras.callbacks.Callback):
    """Counts the steps whose gradient was infinite or undefined, which moved nothing, and ends a run of them.

    Args:
      training: settings; more than `max_skipped_steps` in a row end the run.
      state: where the counts are kept.
    """

    def __init__(self, training: TrainingConfig, state: TrainingState, output: TextIO = sys.stderr):
        super().__init__()
        self.training, self.state, self.output = training, state, output

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts.

        Raises:
          UserError: too many in a row.
        """
        loss, norm = float((logs or {})["loss"]), float((logs or {})["gradient_norm"])
        if math.isfinite(loss) and math.isfinite(norm):
            self.state.skipped_in_a_row.assign(0)
            return
        step = self.model.step
        self.state.skipped_steps.assign_add(1)
        in_a_row = int(self.state.skipped_in_a_row.assign_add(1))
        say(self.output, f"step {step} skipped: loss {loss}, gradient norm {norm}")
        if in_a_row > self.training.max_skipped_steps:
            raise UserError(
                f"training step {step}",
                "a finite loss and gradient",
                f"{in_a_row} steps in a row without one (loss {loss}, gradient norm {norm}; {self._diagnosis()})",
                "Lower the learning rate or lengthen the warm-up and run again; it goes on from the last checkpoint, "
                "which is from before these steps.",
            )

    def _diagnosis(self) -> str:
        rate = float(self.model.optimizer.rate_at(self.model.optimizer.iterations))
        bad = [w.name for w in self.model.trainable_variables if not bool(tf.reduce_all(tf.math.is_finite(w)))]
        weights = f"no longer finite: {', '.join(bad[:3])}" if bad else "all weights are finite"
        return f"learning rate {rate:.3g}, {weights}"


class Progress(keras.callbacks.Callback):
    """Prints loss, rate and time left, and logs them, every `log_every_steps` steps."""

    def __init__(self, training: TrainingConfig, log: TrainingLog, clock: Clock, output: TextIO = sys.stderr):
        super().__init__()
        self.training, self.log, self.clock, self.output = training, log, clock, output
        self._losses: list[float] = []
        self._rewards: list[float] = []
        self._pieces = 0.0
        self._first_seconds: float | None = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts, and reports when it is time to."""
        logs = logs or {}
        step = self.model.step
        now = self.clock.seconds() - self.clock.paused
        if math.isfinite(float(logs["loss"])):
            self._losses.append(float(logs["loss"]))
        if "reward" in logs:
            self._rewards.append(float(logs["reward"]))
        self._pieces += float(logs["num_pieces"])
        if self._first_seconds is None:
            # The first step compiles; the rate counts from its end.
            self._first_seconds, self._first_step, self._last_seconds, self._pieces = now, step, now, 0.0
        if step % self.training.log_every_steps and step != self.training.num_steps:
            return
        loss = sum(self._losses) / len(self._losses) if self._losses else math.nan
        reward = {"reward": sum(self._rewards) / len(self._rewards)} if self._rewards else {}
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
            **reward,
        )
        left = self._seconds_left(step, step_seconds, self.clock.seconds())
        say(
            self.output,
            f"step {step}/{self.training.num_steps}  loss {loss:.4f}  "
            f"{''.join(f'{name} {value:.4f}  ' for name, value in reward.items())}{rate:,.0f} pieces/s  "
            f"{_clock_time(self.clock.seconds())} gone, {_clock_time(left)} left",
        )
        self._losses, self._rewards, self._pieces, self._last_seconds = [], [], 0.0, now

    def _seconds_left(self, step: int, step_seconds: float, now: float) -> float:
        left = (self.training.num_steps - step) * step_seconds
        if self.training.max_minutes is not None:
            left = min(left, self.training.max_minutes * 60.0 - now)
        return max(left, 0.0)


def _clock_time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"

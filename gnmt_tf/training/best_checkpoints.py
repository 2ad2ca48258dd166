"""The best checkpoints of a run, by development BLEU, and the average of the weights of several.

Reads and writes `checkpoints/best` and `checkpoints/averaged` of a model directory.
"""

import glob
import json
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.config import UserError
from gnmt_tf.text.whole_file import whole_file
from gnmt_tf.training.model_directory import (
    LoadedModel,
    ModelDirectory,
    Which,
    listed_checkpoints,
    load_checkpoint,
    score_of,
    write_checkpoint,
)


class Ranked(NamedTuple):
    """One checkpoint: development BLEU of its weights, log perplexity with its sign turned, path prefix."""

    bleu: float
    negative_log_perplexity: float
    prefix: str


class BestCheckpoints:
    """Keeps the `keep` best of the checkpoints it is offered, the best of them last in the directory's list.

    A checkpoint is whole before the list names it, and leaves the list before its files go.

    Args:
      checkpoint: what is saved; the scores of its weights are in its state.
      path: the directory.
      keep: how many.
    """

    def __init__(self, checkpoint: tf.train.Checkpoint, path: str, keep: int):
        self._checkpoint, self._path, self._keep = checkpoint, path, keep
        self._ranked = sorted(Ranked(*score_of(prefix), prefix) for prefix in listed_checkpoints(path))

    def would_keep(self, bleu: float, log_perplexity: float) -> bool:
        """Whether weights with these scores are among the best so far."""
        return len(self._ranked) < self._keep or (bleu, -log_perplexity) > self._ranked[-self._keep][:2]

    def save(self, step: int, bleu: float, log_perplexity: float) -> None:
        """Saves the state of a step as one of the best; the worst one goes if there are too many.

        Raises:
          tf.errors.OpError, OSError: it cannot be written.
        """
        prefix = os.path.join(self._path, f"ckpt-{step}")
        write_checkpoint(self._checkpoint, prefix)
        others = [ranked for ranked in self._ranked if ranked.prefix != prefix]
        ranked = sorted([*others, Ranked(bleu, -log_perplexity, prefix)])
        self._ranked = ranked[-self._keep :]
        list_checkpoints(self._path, [one.prefix for one in self._ranked])
        for dropped in ranked[: -self._keep]:
            for path in glob.glob(glob.escape(dropped.prefix) + ".*"):
                os.remove(path)


def average_checkpoints(model_dir: str, which: Which, last: int | None = None) -> LoadedModel:
    """Averages the weights of several checkpoints and saves the result as the `averaged` one.

    Args:
      model_dir: a model directory.
      which: the `best` or the `latest` checkpoints.
      last: how many of them, counted from the best or latest one; by default all.

    Returns:
      The model with the average; its step is the highest of those averaged.

    Raises:
      UserError: fewer than two checkpoints, or fewer than asked for.
    """
    directory = ModelDirectory(model_dir)
    prefixes = directory.checkpoints(which)[-(last or 0) :]
    if len(prefixes) < max(last or 2, 2):
        key = {"best": "training.keep_best", "latest": "training.keep_checkpoints"}.get(which, "")
        raise UserError(
            directory.checkpoints_path(which),
            f"at least {max(last or 2, 2)} checkpoints",
            str(len(prefixes)),
            f"Train with a higher {key}, or average fewer.",
        )
    loaded = [load_checkpoint(directory, prefix) for prefix in prefixes]
    average = loaded[0]
    weights = [one.model.get_weights() for one in loaded]
    average.model.set_weights([np.mean(values, axis=0, dtype=np.float64) for values in zip(*weights, strict=True)])
    step = max(one.step for one in loaded)
    path = directory.checkpoints_path("averaged")
    os.makedirs(path, exist_ok=True)
    prefix = os.path.join(path, f"ckpt-{step}")
    average.save(prefix, step)
    list_checkpoints(path, [prefix])
    return average._replace(checkpoint=prefix, step=step)


def list_checkpoints(path: str, prefixes: list[str]) -> None:
    """Writes TensorFlow's list of a directory's checkpoints, relative to it, so that it can be moved.

    TensorFlow writes such a list only for the checkpoints of a CheckpointManager, which keeps the latest ones.
    """
    names = [json.dumps(os.path.basename(prefix)) for prefix in prefixes]
    with whole_file(os.path.join(path, "checkpoint")) as file:
        file.write(f"model_checkpoint_path: {names[-1]}\n")
        file.writelines(f"all_model_checkpoint_paths: {name}\n" for name in names)

"""A refinement run: a trained model in, a model directory of the same model refined out (paper, section 5).

Reads a model directory and the text it was trained on; writes another model directory with `train`.
"""

import sys
from collections.abc import Sequence
from typing import TextIO

from gnmt_tf.config import Config, apply_overrides
from gnmt_tf.refinement.refined_gnmt import RefinedGNMT
from gnmt_tf.training.model_directory import Which, load_model
from gnmt_tf.training.trainer import Start, TrainingResult, train


def refine(
    model_dir: str,
    refined_dir: str,
    overrides: Sequence[str] = (),
    which: Which | None = None,
    output: TextIO = sys.stderr,
) -> TrainingResult:
    """Refines a model, or goes on refining it.

    Args:
      model_dir: of the trained model; it is only read.
      refined_dir: of the refined one, made if missing.
      overrides: `section.key=value`, applied to the settings that the model was trained with.
      which: the checkpoint to start from, as in `load_model`.
      output: where progress is printed.

    Raises:
      UserError: as `load_model` and `train`.
    """
    initial = load_model(model_dir, which)
    config = refinement_settings(initial.config, overrides)
    return train(config, refined_dir, output, start=Start(initial, RefinedGNMT))


def refinement_settings(trained_with: Config, overrides: Sequence[str] = ()) -> Config:
    """The settings of a refinement run: those the model was trained with, the schedule that of `refinement`.

    Raises:
      UserError: as `apply_overrides`.
    """
    config = apply_overrides(trained_with, overrides)
    refinement = config.refinement
    changed = {
        "data.piece_dropout": 0.0,
        "training.num_steps": refinement.num_steps,
        "training.max_minutes": None,
        "training.dropout": refinement.dropout,
        "training.source_dropout": 0.0,
        "training.target_dropout": 0.0,
        "training.label_smoothing": 0.0,
        "training.schedule": "paper",
        "training.warmup_steps": 0,
        "training.adam_learning_rate": refinement.learning_rate,
        "training.adam_steps": refinement.num_steps,
        "training.halve_after_step": refinement.num_steps,
        # The bound has arrived where inference has it.
        "training.clip_bound_start": config.model.clip_bound,
        "training.evaluate_every_steps": refinement.evaluate_every_steps,
        "training.early_stopping_patience": refinement.early_stopping_patience,
    }
    values = [f"{key}={'null' if value is None else value}" for key, value in changed.items()]
    # What was asked for explicitly has the last word.
    return apply_overrides(config, [*values, *overrides])

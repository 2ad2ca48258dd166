"""The flags that commands share: those of a configuration, and those of a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

if TYPE_CHECKING:
    from gnmt_tf.config import Config, SearchConfig
    from gnmt_tf.training.loaded_models import LoadedModels


def define_config_flags(flag_values: flags.FlagValues) -> None:
    """Adds `--config FILE` and the repeatable `--set key.path=value`."""
    flags.DEFINE_string("config", None, "YAML file with what differs from the defaults.", flag_values=flag_values)
    flags.DEFINE_multi_string("set", [], "Override, as section.key=value; may be repeated.", flag_values=flag_values)


def config_from_flags(flag_values: flags.FlagValues) -> Config:
    """The configuration that the two flags describe.

    Raises:
      UserError: as `gnmt_tf.config.load_config`.
    """
    from gnmt_tf.config import load_config

    return load_config(flag_values["config"].value, flag_values["set"].value)


def define_search_flags(flag_values: flags.FlagValues) -> None:
    """Adds what every command that loads a trained model takes."""
    flags.DEFINE_string(
        "model_dir", None, "Model directory that `gnmt train` made.", required=True, flag_values=flag_values
    )
    flags.DEFINE_enum(
        "checkpoint",
        None,
        ["best", "latest", "averaged"],
        "Which checkpoint; by default the best by development BLEU, if there is one.",
        flag_values=flag_values,
    )
    flags.DEFINE_multi_string(
        "set", [], "Override of a search setting, as search.key=value; may be repeated.", flag_values=flag_values
    )


def define_ensemble_flag(flag_values: flags.FlagValues) -> None:
    """Adds the repeatable `--ensemble`."""
    flags.DEFINE_multi_string(
        "ensemble",
        [],
        "Another model directory, or a checkpoint in one (DIR/checkpoints/best/ckpt-500), to average log-probabilities "
        "with; may be repeated.",
        flag_values=flag_values,
    )


def search_from_flags(flag_values: flags.FlagValues) -> SearchConfig:
    """The search settings of the model directory with the overrides of `--set` applied.

    Raises:
      UserError: the model directory has no configuration, or an override is not of the search.
    """
    return search_with(flag_values["model_dir"].value, flag_values["set"].value)


def search_with(model_dir: str, overrides: list[str]) -> SearchConfig:
    """The search settings of a model directory with overrides applied; errors as `search_from_flags`."""
    from gnmt_tf.config import UserError, apply_overrides
    from gnmt_tf.training.model_directory import ModelDirectory

    for override in overrides:
        if not override.strip().startswith("search."):
            raise UserError(
                f"--set {override}",
                "a search setting, such as search.beam_width=4",
                repr(override),
                "The other settings are those that the model was trained with.",
            )
    return apply_overrides(ModelDirectory(model_dir).read_config(), overrides).search


def load_from_flags(flag_values: flags.FlagValues) -> LoadedModels:
    """The model of `--model_dir` and those of `--ensemble`.

    Raises:
      UserError: as `gnmt_tf.training.loaded_models.load_models`.
    """
    from gnmt_tf.training.loaded_models import load_models

    model_dir, which = flag_values["model_dir"].value, flag_values["checkpoint"].value
    return load_models(model_dir, which, flag_values["ensemble"].value)

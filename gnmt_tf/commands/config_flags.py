"""The two flags that every command with a configuration shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

if TYPE_CHECKING:
    from gnmt_tf.config import Config


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

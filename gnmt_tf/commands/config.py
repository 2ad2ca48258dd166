"""Print the resolved configuration as YAML.

The defaults are the paper's values; --config and --set change them.
"""

from absl import flags

from gnmt_tf.commands.config_flags import config_from_flags, define_config_flags


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_config_flags(flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints the configuration on stdout."""
    from gnmt_tf.config import to_yaml

    print(to_yaml(config_from_flags(flag_values)), end="")

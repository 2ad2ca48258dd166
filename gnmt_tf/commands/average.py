"""Average the weights of a model's checkpoints into one.

Writes checkpoints/averaged in the model directory; use it with --checkpoint averaged. Train with a higher
training.keep_best or training.keep_checkpoints to have more than the default of them.
"""

from absl import flags

from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string("model_dir", None, "Model directory.", required=True, flag_values=flag_values)
    flags.DEFINE_enum("checkpoints", "best", ["best", "latest"], "Which checkpoints.", flag_values=flag_values)
    flags.DEFINE_integer(
        "last", None, "How many, from the best or latest on; by default all.", lower_bound=2, flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Averages and prints the path of the new checkpoint."""
    start_tensorflow()
    from gnmt_tf.training.best_checkpoints import average_checkpoints

    averaged = average_checkpoints(
        flag_values["model_dir"].value, flag_values["checkpoints"].value, flag_values["last"].value
    )
    print(averaged.checkpoint)

"""Train a model, or continue training it.

Reads the text files that the configuration names; writes the model directory: config.yaml, vocabulary.json,
checkpoints and logs (TensorBoard events and training.csv). Run the same command again to continue after any kind of
end; --model_dir alone is enough for that. Ctrl-C saves and stops.
"""

import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from gnmt_tf.commands.config_flags import config_from_flags, define_config_flags
from gnmt_tf.tensorflow_start import keep_freed_memory, start_tensorflow

if TYPE_CHECKING:
    from gnmt_tf.training.trainer import TrainingResult


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_config_flags(flag_values)
    flags.DEFINE_string("model_dir", None, "Model directory, made if missing.", required=True, flag_values=flag_values)
    flags.DEFINE_string(
        "initial_model",
        None,
        "Model directory whose best model a new run begins with instead of random weights; its vocabulary is kept.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Trains; status 0 when finished or terminated by SIGTERM after saving, 130 after Ctrl-C."""
    own_config = os.path.join(flag_values["model_dir"].value, "config.yaml")
    if flag_values["config"].value is None and os.path.exists(own_config):
        flag_values["config"].value = own_config
    config = config_from_flags(flag_values)
    keep_freed_memory()
    start_tensorflow()
    from gnmt_tf.training.model_directory import load_model
    from gnmt_tf.training.trainer import Start, train

    initial = flag_values["initial_model"].value
    start = Start(load_model(initial) if initial else None)
    return report(train(config, flag_values["model_dir"].value, start=start))


def report(result: "TrainingResult") -> int:
    """Says how a run ended and gives the exit status."""
    from gnmt_tf.training.trainer import Outcome

    if result.outcome is Outcome.FINISHED:
        best = f", best development BLEU {result.best_bleu:.2f} at step {result.best_step}" if result.best_step else ""
        print(f"Finished at step {result.step}{best}.", file=sys.stderr)
        return 0
    print(f"Stopped and saved at step {result.step}; run the same command again to continue.", file=sys.stderr)
    return 130 if result.outcome is Outcome.INTERRUPTED else 0

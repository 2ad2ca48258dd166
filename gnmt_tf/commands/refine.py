"""Refine a trained model by expected reward (GLEU), as in section 5 of the paper.

Reads the model directory of `gnmt train` and the text files its configuration names; writes another model directory.
The settings are those the model was trained with, changed by its section `refinement`; --set changes any of them. Run
the same command again to continue after any kind of end. Ctrl-C saves and stops.
"""

from absl import flags

from gnmt_tf.tensorflow_start import keep_freed_memory, start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string(
        "model_dir", None, "Model directory that `gnmt train` made.", required=True, flag_values=flag_values
    )
    flags.DEFINE_string(
        "refined_dir",
        None,
        "Model directory of the refined model, made if missing.",
        required=True,
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "checkpoint",
        None,
        ["best", "latest", "averaged"],
        "Which checkpoint to start from; by default the best by development BLEU, if there is one.",
        flag_values=flag_values,
    )
    flags.DEFINE_multi_string("set", [], "Override, as section.key=value; may be repeated.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Refines; status as `gnmt train`."""
    import os

    from gnmt_tf.config import UserError

    model_dir, refined_dir = flag_values["model_dir"].value, flag_values["refined_dir"].value
    if os.path.realpath(model_dir) == os.path.realpath(refined_dir):
        raise UserError(
            f"--refined_dir {refined_dir}", "another directory than --model_dir", "the same", "Choose a new one."
        )
    keep_freed_memory()
    start_tensorflow()
    from gnmt_tf.commands.train import report
    from gnmt_tf.refinement.refine import refine

    return report(refine(model_dir, refined_dir, flag_values["set"].value, flag_values["checkpoint"].value))

"""Export a model as a SavedModel for TF Serving, `gnmt serve` and other TensorFlow programs.

Writes the next numbered version below --export_dir. The SavedModel takes and gives plain strings and carries its
vocabulary; a program needs only tensorflow and tensorflow_text to load it, and for --precision=int8 also gnmt_tf.ops.
"""

from absl import flags

from gnmt_tf.commands.config_flags import define_search_flags, search_from_flags
from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_search_flags(flag_values)
    flags.DEFINE_string("export_dir", None, "Base directory of the versions.", required=True, flag_values=flag_values)
    flags.DEFINE_string("model_name", "gnmt", "Name that warm-up requests give.", flag_values=flag_values)
    flags.DEFINE_enum(
        "precision",
        "float",
        ["float", "int8"],
        "float32, or the quantised engine, which is several times as fast on a CPU.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool("warmup", True, "Write warm-up requests, run at load.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Exports and prints the path."""
    start_tensorflow()
    from gnmt_tf.export.saved_model import export_saved_model

    model_dir = flag_values["model_dir"].value
    export = export_saved_model(
        model_dir,
        flag_values["export_dir"].value,
        search_from_flags(flag_values),
        flag_values["checkpoint"].value,
        flag_values["model_name"].value,
        flag_values["warmup"].value,
        flag_values["precision"].value,
    )
    print(f"Version {export.version}, from step {export.step}: {export.path}")

"""Draw a report as a figure and a table.

  gnmt report curves MODEL_DIR...   log perplexity against training steps (Figure 4 of the paper)

Writes --output.png and --output.csv.
"""

from absl import flags

from gnmt_tf.tensorflow_start import start_tensorflow

ARGUMENTS = "KIND MODEL_DIR..."
KINDS = ("curves",)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string(
        "output", None, "Both files' path without its ending; by default KIND.", flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws, and prints the paths of both files."""
    from gnmt_tf.config import UserError

    if not arguments or arguments[0] not in KINDS:
        given = repr(arguments[0]) if arguments else "nothing"
        raise UserError(
            "KIND", f"one of {', '.join(KINDS)}", given, "Write for instance `gnmt report curves MODEL_DIR`."
        )
    kind, *model_dirs = arguments
    if not model_dirs:
        raise UserError(
            "MODEL_DIR", "at least one model directory", "none", f"Write `gnmt report {kind} MODEL_DIR...`."
        )
    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output, unwritable
    from gnmt_tf.training.curves import draw_curves, read_curve, write_table

    curves = [read_curve(model_dir) for model_dir in model_dirs]
    output = flag_values["output"].value or kind
    with open_output(f"{output}.csv", "--output") as file:
        write_table(curves, file)
    try:
        draw_curves(curves).savefig(f"{output}.png")
    except OSError as error:
        raise unwritable(f"{output}.png", "--output", error) from None
    print(f"{output}.png\n{output}.csv")

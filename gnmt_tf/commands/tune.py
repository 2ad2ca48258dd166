"""Choose the penalties of eq. 14 on a development set: the grids of Tables 2 and 3 of the paper.

Prints BLEU for every pair of weights, writes --output.png (a heat map) and --output.csv, and with --write_config a
configuration with the best pair, such as the config.yaml of the model directory itself.
"""

from absl import flags

from gnmt_tf.commands.config_flags import define_ensemble_flag, define_search_flags, load_from_flags, search_from_flags
from gnmt_tf.commands.progress_line import progress_line
from gnmt_tf.tensorflow_start import start_tensorflow

PAPER_GRID = ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_search_flags(flag_values)
    define_ensemble_flag(flag_values)
    flags.DEFINE_string("source", None, "Source text, plain or .gz.", required=True, flag_values=flag_values)
    flags.DEFINE_string("reference", None, "Its translation.", required=True, flag_values=flag_values)
    flags.DEFINE_list("alphas", PAPER_GRID, "Length penalty weights.", flag_values=flag_values)
    flags.DEFINE_list("betas", PAPER_GRID, "Coverage penalty weights.", flag_values=flag_values)
    flags.DEFINE_bool(
        "lowercase", None, "Score without regard to case; by default as the vocabulary says.", flag_values=flag_values
    )
    flags.DEFINE_string("output", "tune", "Both files' path without its ending.", flag_values=flag_values)
    flags.DEFINE_string("write_config", None, "YAML file to write the best pair into.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Measures, prints, draws, writes."""

    alphas, betas = (_weights(flag_values[name].value, name) for name in ("alphas", "betas"))
    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output, save_figure
    from gnmt_tf.config import to_yaml
    from gnmt_tf.data.parallel_text import read_pairs
    from gnmt_tf.evaluation.penalty_grid import draw_grid, measure_grid, table, write_table

    pairs = list(read_pairs(flag_values["source"].value, flag_values["reference"].value))
    search = search_from_flags(flag_values)
    loaded = load_from_flags(flag_values)
    lowercase = flag_values["lowercase"].value
    if lowercase is None:
        lowercase = loaded.segmenter.vocabulary.config.lowercase
    translator = loaded.translator(search)
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    with progress_line(len(pairs)) as progress:
        grid = measure_grid(translator, sources, references, alphas, betas, lowercase, progress)
    print(table(grid))
    best = grid.best
    at = f"alpha {best.length_weight:g}, beta {best.coverage_weight:g}"
    print(f"best {grid.best_bleu:.2f} at {at}   {grid.signature}")
    output = flag_values["output"].value
    with open_output(f"{output}.csv", "--output") as file:
        write_table(grid, file)
    save_figure(draw_grid(grid), f"{output}.png", "--output")
    print(f"{output}.png\n{output}.csv")
    if flag_values["write_config"].value:
        weights = {"length_penalty_weight": best.length_weight, "coverage_penalty_weight": best.coverage_weight}
        tuned = loaded.config.model_copy(update={"search": search.model_copy(update=weights)})
        with open_output(flag_values["write_config"].value, "--write_config") as file:
            file.write(to_yaml(tuned))
        print(flag_values["write_config"].value)


def _weights(texts: list[str], name: str) -> list[float]:
    from gnmt_tf.config import UserError

    try:
        weights = [float(text) for text in texts]
    except ValueError:
        weights = [-1.0]
    if not weights or not all(0.0 <= weight < float("inf") for weight in weights):
        raise UserError(
            f"--{name}", "numbers from 0 up, with commas between them", ",".join(texts), "Write for instance 0,0.2,0.4."
        )
    return weights

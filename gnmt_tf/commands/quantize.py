"""Show what int8 weights change in a model, before `gnmt export --precision=int8`.

Prints the error of every quantised matrix with its worst row. With --source and --reference, a development set, it also
reads sentences in the quantised model and prints how much each layer holds at the end of its range, and the log
perplexity in float and in int8. --report NAME writes NAME.csv with all rows and NAME.png.
"""

from absl import flags

from gnmt_tf.commands.progress_line import progress_line
from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string("model_dir", None, "Model directory.", required=True, flag_values=flag_values)
    flags.DEFINE_enum(
        "checkpoint",
        None,
        ["best", "latest", "averaged"],
        "Which checkpoint; by default the best by development BLEU, if there is one.",
        flag_values=flag_values,
    )
    flags.DEFINE_string("report", None, "Path of the files to write, without an ending.", flag_values=flag_values)
    flags.DEFINE_string("source", None, "Source text of a development set.", flag_values=flag_values)
    flags.DEFINE_string("reference", None, "Its translation.", flag_values=flag_values)
    flags.DEFINE_integer(
        "num_sentences", 100, "Sentences of it that are read, spread evenly.", lower_bound=1, flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints the tables, and the paths of the files."""
    from gnmt_tf.config import UserError

    paths = flag_values["source"].value, flag_values["reference"].value
    if bool(paths[0]) != bool(paths[1]):
        raise UserError("--source, --reference", "both or neither", "only one", "Give the other one too.")
    start_tensorflow()
    from gnmt_tf.quantization.error_report import draw_errors, range_table, weight_table, write_rows
    from gnmt_tf.quantization.weight_errors import weight_errors
    from gnmt_tf.training.model_directory import load_model

    loaded = load_model(flag_values["model_dir"].value, flag_values["checkpoint"].value)
    pieces = loaded.segmenter.vocabulary.pieces
    errors, ranges = weight_errors(loaded.model), None
    print(weight_table(errors, pieces))
    if paths[0]:
        from gnmt_tf.data.parallel_text import load_corpus
        from gnmt_tf.evaluation.log_perplexity import LogPerplexity
        from gnmt_tf.quantization.ranges import measure_ranges

        search = loaded.config.search
        limit = search.max_source_pieces
        corpus = load_corpus(*paths, loaded.segmenter, limit, limit, source_prefix=search.source_prefix)
        corpus = corpus.sample(flag_values["num_sentences"].value)
        with progress_line(corpus.num_pairs) as progress:
            ranges = measure_ranges(loaded.model, corpus, progress)
        print(f"\n{range_table(ranges)}\n")
        in_float = LogPerplexity(loaded.model, search.batch_size)(corpus)
        both = f"float {in_float:.4f}, int8 {ranges.log_perplexity:.4f}"
        print(f"log perplexity of {corpus.num_pairs} sentence pairs: {both}")
    name = flag_values["report"].value
    if name:
        from gnmt_tf.commands.output_file import open_output, save_figure

        with open_output(f"{name}.csv", "--report") as file:
            write_rows(errors, pieces, file)
        save_figure(draw_errors(errors, ranges), f"{name}.png", "--report")
        print(f"{name}.png\n{name}.csv")

"""Score translations that are already there, or rank an n-best list anew.

Writes score<TAB>log P(target|source)<TAB>pieces for each pair of lines of --source and --target. With --n_best instead
of --target, reads a list in Moses' form and writes it in the order of the new scores.
"""

from absl import flags

from gnmt_tf.commands.config_flags import define_ensemble_flag, define_search_flags, load_from_flags, search_from_flags
from gnmt_tf.commands.progress_line import progress_line
from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_search_flags(flag_values)
    define_ensemble_flag(flag_values)
    flags.DEFINE_string("source", None, "Source text, plain or .gz.", required=True, flag_values=flag_values)
    flags.DEFINE_string("target", None, "Its translation.", flag_values=flag_values)
    flags.DEFINE_string("n_best", None, "An n-best list of its translations.", flag_values=flag_values)
    flags.DEFINE_string("output", None, "File for the scores; by default stdout.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Scores and writes."""

    source_path, target_path, list_path = (flag_values[name].value for name in ("source", "target", "n_best"))
    if bool(target_path) == bool(list_path):
        raise flags.Error("give either --target or --n_best")
    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output
    from gnmt_tf.data.parallel_text import read_pairs
    from gnmt_tf.search.scorer import PairScorer, parse_n_best
    from gnmt_tf.text.lines import read_lines

    listed = []
    if list_path:
        sources = list(read_lines(source_path))
        listed = parse_n_best(list(read_lines(list_path)), list_path, len(sources))
        pairs = [(sources[hypothesis.number], hypothesis.text) for hypothesis in listed]
    else:
        pairs = list(read_pairs(source_path, target_path))
    search = search_from_flags(flag_values)
    loaded = load_from_flags(flag_values)
    with progress_line(len(pairs)) as progress:
        scores = PairScorer(loaded.model, loaded.segmenter, search)(pairs, progress)
    with open_output(flag_values["output"].value, "--output") as output:
        if not list_path:
            output.writelines(f"{s.score:.6f}\t{s.log_prob:.6f}\t{s.num_pieces}\n" for s in scores)
            return
        order = sorted(range(len(listed)), key=lambda i: (listed[i].number, -scores[i].score, i))
        for i in order:
            output.write(
                f"{listed[i].number} ||| {listed[i].text} ||| log_prob= {scores[i].log_prob:.6f} ||| "
                f"{scores[i].score:.6f}\n"
            )

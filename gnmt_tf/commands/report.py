"""Draw a report as a figure and a table.

  gnmt report curves MODEL_DIR...   log perplexity against training steps (Figure 4 of the paper)
  gnmt report pruning MODEL_DIR     time and BLEU with each pruning of the search on and off (--source, --reference)
  gnmt report quantization MODEL_DIR  BLEU, log perplexity, time and memory of float and int8 (Table 1 of the paper)
  gnmt report attention MODEL_DIR   where the attention lies for each line of --source

Writes --output.png and --output.csv; `attention` writes --output.html with all lines, and --output.png of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from gnmt_tf.tensorflow_start import start_tensorflow

if TYPE_CHECKING:
    from gnmt_tf.config import SearchConfig
    from gnmt_tf.training.loaded_models import LoadedModels

ARGUMENTS = "KIND MODEL_DIR..."
MOST_PICTURES = 200


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string("output", None, "All files' path without its ending; by default KIND.", flag_values=flag_values)
    flags.DEFINE_string("source", None, "Source text of all kinds but `curves`.", flag_values=flag_values)
    flags.DEFINE_string(
        "reference", None, "Its translation, for `pruning` and `quantization`.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "rounds", 1, "How often times are measured; the fastest counts.", lower_bound=1, flag_values=flag_values
    )
    flags.DEFINE_multi_string(
        "set", [], "Override of a search setting, as search.key=value; may be repeated.", flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Draws, and prints the paths of the files."""
    from gnmt_tf.config import UserError

    kinds = {"curves": _curves, "pruning": _pruning, "quantization": _quantization, "attention": _attention}
    if not arguments or arguments[0] not in kinds:
        given = repr(arguments[0]) if arguments else "nothing"
        raise UserError(
            "KIND", f"one of {', '.join(kinds)}", given, "Write for instance `gnmt report curves MODEL_DIR`."
        )
    kind, *model_dirs = arguments
    if not model_dirs:
        raise UserError(
            "MODEL_DIR", "at least one model directory", "none", f"Write `gnmt report {kind} MODEL_DIR...`."
        )
    if kind != "curves" and len(model_dirs) > 1:
        raise UserError("MODEL_DIR", "one model directory", str(len(model_dirs)), "Report on one after the other.")
    start_tensorflow()
    kinds[kind](flag_values, model_dirs, flag_values["output"].value or kind)


def _curves(flag_values: flags.FlagValues, model_dirs: list[str], output: str) -> None:
    from gnmt_tf.commands.output_file import open_output, save_figure
    from gnmt_tf.training.curves import draw_curves, read_curve, write_table

    curves = [read_curve(model_dir) for model_dir in model_dirs]
    with open_output(f"{output}.csv", "--output") as file:
        write_table(curves, file)
    save_figure(draw_curves(curves), f"{output}.png", "--output")
    print(f"{output}.png\n{output}.csv")


def _pruning(flag_values: flags.FlagValues, model_dirs: list[str], output: str) -> None:
    import sys

    from gnmt_tf.commands.output_file import open_output, save_figure
    from gnmt_tf.config import UserError
    from gnmt_tf.data.parallel_text import read_pairs
    from gnmt_tf.evaluation.pruning_report import draw_rows, measure_pruning, table, write_table

    pairs = list(read_pairs(_needed(flag_values, "source"), _needed(flag_values, "reference")))
    loaded, search = _model_and_search(flag_values, model_dirs[0])
    if search.pruning_margin is None:
        raise UserError(
            "search.pruning_margin", "a number of nats", "null", "Give one, for instance --set search.pruning_margin=3."
        )
    rows = measure_pruning(
        loaded.translator,
        search,
        [source for source, _ in pairs],
        [reference for _, reference in pairs],
        lowercase=loaded.segmenter.vocabulary.config.lowercase,
        rounds=flag_values["rounds"].value,
        report=lambda name: print(f"{name} ...", file=sys.stderr),
    )
    print(table(rows))
    with open_output(f"{output}.csv", "--output") as file:
        write_table(rows, file)
    save_figure(draw_rows(rows), f"{output}.png", "--output")
    print(f"{output}.png\n{output}.csv")


def _quantization(flag_values: flags.FlagValues, model_dirs: list[str], output: str) -> None:
    import sys
    import tempfile

    from gnmt_tf.commands.output_file import open_output, save_figure
    from gnmt_tf.data.parallel_text import load_corpus, read_pairs
    from gnmt_tf.evaluation.log_perplexity import LogPerplexity
    from gnmt_tf.evaluation.quantization_report import Precision, draw_rows, measure_precisions, table, write_table
    from gnmt_tf.export.saved_model import int8_engine
    from gnmt_tf.search.translator import Translator
    from gnmt_tf.training.model_directory import load_model

    paths = _needed(flag_values, "source"), _needed(flag_values, "reference")
    pairs = list(read_pairs(*paths))
    _, search = _model_and_search(flag_values, model_dirs[0])
    loaded = load_model(model_dirs[0])
    model, segmenter = loaded.model, loaded.segmenter
    with tempfile.TemporaryDirectory() as folder:
        engine = int8_engine(model, segmenter.vocabulary, search, folder)
        precisions = {
            "float": Precision(
                Translator(model, segmenter, search),
                LogPerplexity(model, search.batch_size),
                sum(weight.numpy().nbytes for weight in model.weights),
            ),
            "int8": Precision(
                Translator(model, segmenter, search, engine=engine),
                LogPerplexity(engine, search.batch_size),
                engine.num_bytes,
            ),
        }
        rows = measure_precisions(
            precisions,
            [source for source, _ in pairs],
            [reference for _, reference in pairs],
            load_corpus(*paths, segmenter, search.max_source_pieces, search.max_source_pieces),
            lowercase=segmenter.vocabulary.config.lowercase,
            rounds=flag_values["rounds"].value,
            report=lambda name: print(f"{name} ...", file=sys.stderr),
        )
    print(table(rows))
    with open_output(f"{output}.csv", "--output") as file:
        write_table(rows, file)
    save_figure(draw_rows(rows), f"{output}.png", "--output")
    print(f"{output}.png\n{output}.csv")


def _attention(flag_values: flags.FlagValues, model_dirs: list[str], output: str) -> None:
    from gnmt_tf.commands.output_file import open_output, save_figure
    from gnmt_tf.config import UserError
    from gnmt_tf.search.heat_map import attention_page, draw_attention
    from gnmt_tf.text.lines import read_lines

    path = _needed(flag_values, "source")
    lines = list(read_lines(path))
    if not 1 <= len(lines) <= MOST_PICTURES:
        raise UserError(
            f"--source {path}", f"1 to {MOST_PICTURES} lines", str(len(lines)), "Choose those that are to be drawn."
        )
    loaded, search = _model_and_search(flag_values, model_dirs[0])
    translations = loaded.translator(search, keep_attention=True).translate(lines)
    with open_output(f"{output}.html", "--output") as file:
        file.write(attention_page(lines, translations))
    print(f"{output}.html")
    drawn = next((translation for translation in translations if translation.hypotheses), None)
    if drawn is not None:
        save_figure(draw_attention(drawn), f"{output}.png", "--output")
        print(f"{output}.png")


def _needed(flag_values: flags.FlagValues, name: str) -> str:
    value = flag_values[name].value
    if not value:
        raise flags.Error(f"this kind of report needs --{name}")
    return value


def _model_and_search(flag_values: flags.FlagValues, model_dir: str) -> tuple[LoadedModels, SearchConfig]:
    from gnmt_tf.commands.config_flags import search_with
    from gnmt_tf.training.loaded_models import load_models

    return load_models(model_dir), search_with(model_dir, flag_values["set"].value)

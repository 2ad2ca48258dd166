"""Translate text with a model directory.

One line in, one line out, in order; stdout carries translations only. At a terminal each line is answered at once.
"""

from absl import flags

from gnmt_tf.commands.config_flags import define_search_flags, search_from_flags
from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_search_flags(flag_values)
    flags.DEFINE_string("input", None, "Text file, plain or .gz; by default stdin.", flag_values=flag_values)
    flags.DEFINE_string("output", None, "File for the translations; by default stdout.", flag_values=flag_values)
    flags.DEFINE_bool("scores", False, "Write score<TAB>translation.", flag_values=flag_values)
    flags.DEFINE_bool(
        "unbuffered",
        None,
        "Answer each line before the next is read; by default at a terminal.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Translates line by line."""
    import sys

    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output
    from gnmt_tf.search.translator import Rate, Translator
    from gnmt_tf.text.lines import decode_lines, read_lines
    from gnmt_tf.training.model_directory import load_model

    source, target = flag_values["input"].value, flag_values["output"].value
    lines = read_lines(source) if source else decode_lines(sys.stdin.buffer, "stdin")
    search = search_from_flags(flag_values)
    loaded = load_model(flag_values["model_dir"].value, flag_values["checkpoint"].value)
    translator = Translator(loaded.model, loaded.segmenter, search)
    unbuffered = flag_values["unbuffered"].value
    if unbuffered is None:
        unbuffered = not source and sys.stdin.isatty()
    watched = sys.stderr.isatty() and bool(target or not sys.stdout.isatty())
    rate = Rate(None)

    def progress(done: int) -> None:
        if watched:
            print(f"\r{rate.describe(done)}\033[K", end="", file=sys.stderr, flush=True)

    count = truncated = 0
    with open_output(target, "--output") as output:
        for translation in translator.translate_stream(lines, progress, 1 if unbuffered else None):
            # A translation is one line, whatever the pieces held.
            text = translation.text.replace("\n", " ")
            prefix = f"{translation.score:.4f}\t" if flag_values["scores"].value else ""
            output.write(f"{prefix}{text}\n")
            output.flush()
            count += 1
            truncated += translation.truncated
    if watched:
        print(file=sys.stderr)
    if truncated:
        print(
            f"{truncated} of {count} lines were cut: the source at search.max_source_pieces="
            f"{search.max_source_pieces}, or the translation at its length limit.",
            file=sys.stderr,
        )

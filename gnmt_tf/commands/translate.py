"""Translate text with a model directory.

One line in, one line out, in order; stdout carries translations only.
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


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Translates line by line."""
    import contextlib
    import sys

    start_tensorflow()
    from gnmt_tf.config import UserError
    from gnmt_tf.search.translator import Rate, Translator
    from gnmt_tf.text.lines import decode_lines, read_lines
    from gnmt_tf.training.model_directory import load_model

    source, target = flag_values["input"].value, flag_values["output"].value
    lines = read_lines(source) if source else decode_lines(sys.stdin.buffer, "stdin")
    search = search_from_flags(flag_values)
    loaded = load_model(flag_values["model_dir"].value, flag_values["checkpoint"].value)
    translator = Translator(loaded.model, loaded.segmenter, search)
    rate = Rate(None)
    watched = sys.stderr.isatty()

    def progress(done: int) -> None:
        if watched:
            print(f"\r{rate.describe(done)}\033[K", end="", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        try:
            output = stack.enter_context(open(target, "w", encoding="utf-8")) if target else sys.stdout
        except OSError as error:
            raise UserError(
                f"--output {target}", "a file that can be written to", error.strerror or "", "Choose another path."
            ) from None
        for translation in translator.translate_stream(lines, progress):
            # A translation is one line, whatever the pieces held.
            text = translation.text.replace("\n", " ")
            prefix = f"{translation.score:.4f}\t" if flag_values["scores"].value else ""
            output.write(f"{prefix}{text}\n")
            output.flush()
    if watched:
        print(file=sys.stderr)

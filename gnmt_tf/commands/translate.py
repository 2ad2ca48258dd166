"""Translate text with a model directory.

One line in, one line out, in order; stdout carries translations only. At a terminal each line is answered at once.

  --format=text    the translation (with --scores, score<TAB>translation)
  --format=json    one JSON object a line: all hypotheses with pieces, log-probabilities and alignment
  --format=moses   the n-best list of Moses: line ||| translation ||| log_prob= ... ||| score, one line a hypothesis

Everything else is a search setting: see `search` in `gnmt config`, for instance --set search.beam_width=4.
"""

from absl import flags

from gnmt_tf.commands.config_flags import define_ensemble_flag, define_search_flags, load_from_flags, search_from_flags
from gnmt_tf.commands.progress_line import progress_line
from gnmt_tf.tensorflow_start import start_tensorflow


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    define_search_flags(flag_values)
    define_ensemble_flag(flag_values)
    flags.DEFINE_string("input", None, "Text file, plain or .gz; by default stdin.", flag_values=flag_values)
    flags.DEFINE_string("output", None, "File for the translations; by default stdout.", flag_values=flag_values)
    flags.DEFINE_enum("format", "text", ["text", "json", "moses"], "Form of the output.", flag_values=flag_values)
    flags.DEFINE_bool("scores", False, "Write score<TAB>translation.", flag_values=flag_values)
    flags.DEFINE_bool("attention", False, "Put the whole attention into JSON.", flag_values=flag_values)
    flags.DEFINE_string(
        "alignment", None, "File for alignments in Pharaoh's form, `0-0 1-2 ...`.", flag_values=flag_values
    )
    flags.DEFINE_enum("alignment_unit", "piece", ["piece", "word"], "What alignments count.", flag_values=flag_values)
    flags.DEFINE_string(
        "target_prefix",
        None,
        "Text file with what the translation of each line starts with; an empty line asks for nothing.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "alternatives",
        None,
        "Give so many hypotheses that differ in the piece after the prefix, or in the first one.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "unbuffered",
        None,
        "Answer each line before the next is read; by default at a terminal.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Translates line by line."""
    import contextlib
    import sys
    from collections.abc import Iterator
    from itertools import repeat, tee

    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output
    from gnmt_tf.data.parallel_text import read_pairs
    from gnmt_tf.search.formats import formatted, pharaoh
    from gnmt_tf.search.hypotheses import Translation
    from gnmt_tf.text.lines import decode_lines, read_lines

    source, target = flag_values["input"].value, flag_values["output"].value
    form, alignment = flag_values["format"].value, flag_values["alignment"].value
    prefix_path = flag_values["target_prefix"].value
    if prefix_path and not source:
        raise flags.Error("--target_prefix needs --input: its lines go with those of a file")
    if flag_values["alternatives"].value and form == "text":
        raise flags.Error("--alternatives needs --format=json or --format=moses: a line has room for one translation")
    if flag_values["scores"].value and form != "text":
        raise flags.Error("--scores is for --format=text; the other forms hold scores anyway")
    if flag_values["attention"].value and form != "json":
        raise flags.Error("--attention is for --format=json")
    search = search_from_flags(flag_values)
    loaded = load_from_flags(flag_values)
    keep_attention = bool(alignment) or flag_values["attention"].value or form == "json"
    translator = loaded.translator(search, keep_attention)
    if prefix_path:
        pairs = list(read_pairs(source, prefix_path))
        lines, prefixes = iter([line for line, _ in pairs]), [prefix for _, prefix in pairs]
    else:
        lines, prefixes = (read_lines(source) if source else decode_lines(sys.stdin.buffer, "stdin")), None
    lines, sources = tee(lines)
    unbuffered = flag_values["unbuffered"].value
    if unbuffered is None:
        unbuffered = not source and sys.stdin.isatty()
    watched = sys.stderr.isatty() and bool(target or not sys.stdout.isatty())
    count = truncated = 0
    with progress_line(None, watched) as progress, contextlib.ExitStack() as files:
        output = files.enter_context(open_output(target, "--output"))
        links = files.enter_context(open_output(alignment, "--alignment")) if alignment else None
        count_of = flag_values["alternatives"].value
        translations: Iterator[Translation]
        if count_of:
            starts = iter(prefixes) if prefixes is not None else repeat("")
            translations = (
                translator.alternatives(line, start, count_of, number)
                for number, (line, start) in enumerate(zip(lines, starts, strict=False))
            )
        else:
            translations = translator.translate_stream(lines, progress, 1 if unbuffered else None, prefixes)
        for number, (line, translation) in enumerate(zip(sources, translations, strict=False)):
            scores, attention = flag_values["scores"].value, flag_values["attention"].value
            output.write(formatted(translation, number, line, form, scores, attention) + "\n")
            output.flush()
            if links is not None:
                links.write(pharaoh(translation, flag_values["alignment_unit"].value == "word") + "\n")
            count += 1
            truncated += translation.truncated
    if truncated:
        print(
            f"{truncated} of {count} lines were cut: the source at search.max_source_pieces="
            f"{search.max_source_pieces}, or the translation at its length limit.",
            file=sys.stderr,
        )

"""Evaluate a model: BLEU and chrF with their signatures, log perplexity, exact matches, speed.

Translates --source with the model directory and scores the result against --reference.
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
    flags.DEFINE_string("reference", None, "Its translation.", required=True, flag_values=flag_values)
    flags.DEFINE_bool(
        "lowercase", None, "Score without regard to case; by default as the vocabulary says.", flag_values=flag_values
    )
    flags.DEFINE_string("output", None, "File for the translations.", flag_values=flag_values)
    flags.DEFINE_string("json", None, "File for the scores as JSON.", flag_values=flag_values)
    flags.DEFINE_list(
        "by",
        [],
        "Breakdowns for an HTML page with plots: length, unknown, sentence, with commas between them.",
        flag_values=flag_values,
    )
    flags.DEFINE_string("html", "evaluation.html", "That page's file.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints the scores, each with what produced it."""
    import json

    start_tensorflow()
    from gnmt_tf.commands.output_file import open_output
    from gnmt_tf.config import UserError
    from gnmt_tf.data.parallel_text import load_corpus, read_pairs
    from gnmt_tf.evaluation.breakdown import BREAKDOWNS, report_page, sentences_of
    from gnmt_tf.evaluation.evaluator import evaluate
    from gnmt_tf.evaluation.log_perplexity import LogPerplexity

    breakdowns = flag_values["by"].value
    if not set(breakdowns) <= set(BREAKDOWNS):
        raise UserError("--by", f"some of {', '.join(BREAKDOWNS)}", ",".join(breakdowns), "Mend the list.")
    paths = flag_values["source"].value, flag_values["reference"].value
    pairs = list(read_pairs(*paths))
    search = search_from_flags(flag_values)
    loaded = load_from_flags(flag_values)
    lowercase = flag_values["lowercase"].value
    if lowercase is None:
        lowercase = loaded.segmenter.vocabulary.config.lowercase
    limit = search.max_source_pieces
    corpus = load_corpus(*paths, loaded.segmenter, limit, limit, source_prefix=search.source_prefix)
    with progress_line(len(pairs)) as progress:
        evaluation = evaluate(
            loaded.translator(search, keep_attention="sentence" in breakdowns),
            sources := [source for source, _ in pairs],
            references := [reference for _, reference in pairs],
            lowercase,
            progress,
        )
    scores = evaluation.scores
    report = {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "exact_match": scores.exact_match / 100.0,
        "log_perplexity": LogPerplexity(loaded.model, search.batch_size)(corpus),
        "log_perplexity_pairs": corpus.num_pairs,
        "sentences": len(pairs),
        "sentences_per_second": evaluation.sentences_per_second,
        "words_per_second": evaluation.words_per_second,
        "signature": scores.bleu_signature,
        "chrf_signature": scores.chrf_signature,
        "step": loaded.step,
        "checkpoints": loaded.checkpoints,
        "config": loaded.config.fingerprint,
        "search": search.model_dump(),
    }
    _print_report(report)
    if flag_values["output"].value:
        with open_output(flag_values["output"].value, "--output") as file:
            file.writelines(translation.text.replace("\n", " ") + "\n" for translation in evaluation.translations)
    if breakdowns:
        known = loaded.segmenter.vocabulary.ids
        sentences = sentences_of(sources, references, evaluation.translations, known.__contains__, lowercase)
        with open_output(flag_values["html"].value, "--html") as file:
            title = f"{paths[0]}: BLEU {scores.bleu:.2f}"
            file.write(report_page(title, sentences, breakdowns, lowercase))
        print(flag_values["html"].value)
    if flag_values["json"].value:
        with open_output(flag_values["json"].value, "--json") as file:
            file.write(json.dumps(report, indent=1) + "\n")


def _print_report(report: dict) -> None:
    search = report["search"]
    print(f"BLEU            {report['bleu']:.2f}   {report['signature']}")
    print(f"chrF            {report['chrf']:.2f}   {report['chrf_signature']}")
    print(f"exact match     {report['exact_match']:.1%} of {report['sentences']} sentences")
    print(
        f"log perplexity  {report['log_perplexity']:.4f} nats per target piece, {report['log_perplexity_pairs']} pairs"
    )
    print(f"speed           {report['sentences_per_second']:.1f} sentences/s, {report['words_per_second']:.0f} words/s")
    print(
        f"from            step {report['step']}, config {report['config']}, beam width {search['beam_width']}, "
        f"length penalty {search['length_penalty_weight']}, coverage penalty {search['coverage_penalty_weight']}, "
        f"pruning margin {search['pruning_margin']}"
    )

"""Write a demonstration corpus: English with French or German, as much as you like, exactly checkable.

Dates, times, numbers, money, percentages and units in short sentences, written as CLDR has it, in the files
train, dev and test .en and .fr (or .de) of --output_dir. The held-out parts share no sentence with training.
"""

import sys

from absl import flags


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string("output_dir", None, "Directory for the files; made if missing.", flag_values=flag_values)
    flags.DEFINE_string("target_language", "fr", "fr or de.", flag_values=flag_values)
    flags.DEFINE_integer("pairs", 60_000, "Training sentence pairs.", flag_values=flag_values)
    flags.DEFINE_integer("dev_pairs", 500, "Development sentence pairs.", flag_values=flag_values)
    flags.DEFINE_integer("test_pairs", 1000, "Test sentence pairs.", flag_values=flag_values)
    flags.DEFINE_integer("seed", 1, "The same seed gives the same files.", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> None:
    """Writes the corpus, reports progress on stderr, and prints what was written with three examples."""
    from gnmt_tf.config import UserError
    from gnmt_tf.data.demo_text import DemoCounts, write_demo_data

    if not flag_values["output_dir"].value:
        raise UserError("--output_dir", "a directory", "nothing", "Add --output_dir DIR.")
    language, seed = flag_values["target_language"].value, flag_values["seed"].value
    counts = DemoCounts(flag_values["pairs"].value, flag_values["dev_pairs"].value, flag_values["test_pairs"].value)
    summary = write_demo_data(
        flag_values["output_dir"].value,
        language,
        counts,
        seed,
        report=lambda message: print(f"demo-data: {message}", file=sys.stderr, flush=True),
    )
    print(f"Wrote {counts.train:,} training, {counts.dev:,} development and {counts.test:,} test pairs (seed {seed}):")
    for path in summary.paths:
        print(f"  {path}")
    print("Examples from the test set:")
    for pair in summary.examples:
        print(f"  en  {pair.source}\n  {language}  {pair.target}")

"""Measures the wordpiece trainer: seconds, reading included, and peak memory.

    python -m benchmarks.wordpiece_training --source train.en.gz --target train.fr.gz --vocab_size 32000
    python -m benchmarks.wordpiece_training --quick --json rows.json

Prints a table; `--json` writes rows of case, metric, value and unit.
"""

import argparse
import random
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from benchmarks.rows import Row, print_rows, write_json
from gnmt_tf.config import TextConfig
from gnmt_tf.text.lines import read_lines
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.wordpiece_trainer import count_words, train_from_word_counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="text file, .gz or not")
    parser.add_argument("--target", help="its translation")
    parser.add_argument("--vocab_size", type=int, default=32000)
    parser.add_argument("--alphabet_size", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="generated text and 2000 pieces")
    parser.add_argument("--json", metavar="FILE", help="also write the rows here")
    flags = parser.parse_args(arguments)
    if not flags.quick and not (flags.source and flags.target):
        parser.error("give --source and --target, or --quick")
    size = 2000 if flags.quick else flags.vocab_size
    lines = generated_lines() if flags.quick else chain(read_lines(flags.source), read_lines(flags.target))
    case = f"{'generated' if flags.quick else flags.source + ' + ' + flags.target}, {size} pieces"
    rows = measure(case, lines, TextConfig(vocab_size=size, alphabet_size=flags.alphabet_size))
    print_rows(rows)
    if flags.json:
        write_json(rows, flags.json)


def measure(case: str, lines: Iterable[str], config: TextConfig) -> list[Row]:
    """Trains once; the peak memory is that of the whole process."""
    start = time.perf_counter()
    words = count_words(lines, config)
    counted = time.perf_counter()
    vocabulary = train_from_word_counts(words, config)
    trained = time.perf_counter()
    segmenter = WordpieceSegmenter(vocabulary)
    num_pieces = sum(count * len(segmenter.pieces(word)) for word, count in words.items())
    # The unit of ru_maxrss is kilobytes, on macOS bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))
    return [
        Row(case, "reading", counted - start, "s"),
        Row(case, "training", trained - counted, "s"),
        Row(case, "total", trained - start, "s"),
        Row(case, "peak memory", peak, "MiB"),
        Row(case, "distinct words", len(words), "words"),
        Row(case, "pieces", vocabulary.size, "pieces"),
        Row(case, "pieces per word", num_pieces / words.total(), "pieces"),
    ]


def generated_lines(num_lines: int = 10_000, seed: int = 1) -> Iterator[str]:
    """Sentences of words built from syllables, frequent ones more often (Zipf)."""
    choose = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bcdfglmnprstv" for vowel in "aeiou"]
    words = ["".join(choose.choices(syllables, k=choose.randint(1, 5))) for _ in range(5000)]
    weights = [1.0 / rank for rank in range(1, len(words) + 1)]
    for _ in range(num_lines):
        yield " ".join(choose.choices(words, weights, k=choose.randint(3, 15))) + choose.choice([".", "?", " 42."])


if __name__ == "__main__":
    main()

"""Measures quantised decoding: the paper's network on this CPU, latency, and the engine beside the CPU's limits.

    make engine
    python -m benchmarks.decode --source newstest2012.en newstest2013.en --reference newstest2012.fr newstest2013.fr
    python -m benchmarks.decode --quick --json rows.json

The network has the paper's shape (8+8 layers of 1024 units, 32,000 pieces) and seeded weights: only its speed is
measured. So that sentences are as long as real ones, source and reference are cut into wordpieces of a vocabulary made
from them, and every translation gets exactly its reference's length.

Metrics: sentences_per_second and ratio_to_paper_tpu (15.6 sentences/s: 6003 sentences in 384 s, Table 1);
latency_p50_ms and latency_p99_ms of one sentence of 25 words; share_of_vnni_peak of a product of 1024 by 4096 with so
many rows, against the same instructions in registers; share_of_memory_bandwidth of a product with one row and a matrix
that is larger than the caches, against reading an array of its size; memory_ratio_to_weights, the whole process's
growth while the model is loaded and used, against the int8 weights.
"""

import argparse
import ctypes
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, print_rows, write_json
from gnmt_tf.config import SearchConfig, TextConfig
from gnmt_tf.data.parallel_text import read_pairs
from gnmt_tf.serving.engine.library import Engine, EngineShape, kernels, load_library
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.wordpiece_trainer import train_wordpieces

PAPER_SENTENCES_PER_SECOND = 6003 / 384
PAPER_SHAPE = EngineShape(32_000, 8, 8, 1024, 1024, 1024, 3, False, 1.0, 25.0)
QUICK_SHAPE = EngineShape(500, 3, 3, 64, 64, 64, 3, False, 1.0, 25.0)
WORDS_OF_A_SENTENCE = 25
ROWS = (1, 8, 32, 128)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", nargs="+", help="source text, one sentence a line, plain or .gz")
    parser.add_argument("--reference", nargs="+", help="its translation, which gives the lengths")
    parser.add_argument("--sentences", type=int, default=200, help="a sample of so many, evenly spread over the text")
    parser.add_argument("--widths", default="4,8")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--latency_sentences", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="a small network and a few sentences: whether it runs")
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args(arguments)
    if not options.quick and not (options.source and options.reference):
        parser.error("give --source and --reference, or --quick")
    shape = QUICK_SHAPE if options.quick else PAPER_SHAPE
    if options.quick:
        pairs = [(f"a b c {'d ' * (i % 7)}", f"e f {'g ' * (i % 5)}") for i in range(6)]
        options.latency_sentences = 3
    else:
        files = zip(options.source, options.reference, strict=True)
        pairs = _sample([pair for paths in files for pair in read_pairs(*paths)], options.sentences)
    sources, lengths, words = _pieces(pairs, shape.vocab_size)
    library = load_library()
    rows = _limits(library, 0.05 if options.quick else 1.0)
    before = _resident_bytes()
    engine = Engine(library, shape, random_weights(shape))
    name = "quick 3+3x64" if options.quick else "paper 8+8x1024"
    for threads in map(int, options.threads.split(",")):
        for width in map(int, options.widths.split(",")):
            case = f"{name} width {width}, {threads} threads"
            search = SearchConfig(beam_width=width)
            rows += _throughput(engine, sources, lengths, search, threads, case)
            rows += _latency(engine, sources, lengths, words, search, threads, case, options.latency_sentences)
    used = (_resident_bytes() - before) / engine.num_bytes[0]
    rows.append(Row(name, "memory_ratio_to_weights", used, ""))
    print_rows(rows)
    if options.json:
        write_json(rows, options.json)


def random_weights(shape: EngineShape, seed: int = 1) -> list[np.ndarray]:
    """Quantised weights of the size that training gives, in the order of `Int8Reference.weights`."""
    rng = np.random.default_rng(seed)
    units, attention, memory = shape.num_units, shape.attention_units, shape.num_units
    if shape.num_encoder_layers == 1:
        memory = 2 * units

    def int8(*size: int) -> np.ndarray:
        return rng.integers(-127, 128, size, np.int8)

    def near(value: float, size: int) -> np.ndarray:
        return (value * rng.uniform(0.5, 1.0, size)).astype(np.float32)

    def lstm(input_size: int) -> list[np.ndarray]:
        scale = 2.0 * 4096 / 127 / np.sqrt(input_size + units)
        biases = rng.normal(0.0, 1000.0, 4 * units).astype(np.float32)
        return [int8(4 * units, input_size + units), near(scale, 4 * units), biases]

    def normal(*size: int) -> np.ndarray:
        return (rng.standard_normal(size, np.float32) / np.sqrt(np.float32(size[0]))).astype(np.float32)

    weights = []
    for _ in range(2):
        weights += [int8(shape.vocab_size, shape.embedding_size), near(0.008, shape.vocab_size)]
    for number in range(shape.num_encoder_layers + 1):
        weights += lstm(shape.embedding_size if number < 2 else 2 * units if number == 2 else units)
    for number in range(shape.num_decoder_layers):
        weights += lstm((shape.embedding_size if number == 0 else units) + memory)
    weights += [normal(units, attention), normal(memory, attention), normal(attention), normal(attention)]
    weights += [int8(shape.vocab_size, units), near(0.05, shape.vocab_size), normal(shape.vocab_size)]
    return weights


def _limits(library: ctypes.CDLL, seconds: float) -> list[Row]:
    """The engine's products beside what the instructions and the memory can do, on one thread."""
    rows = []
    bandwidth = library.gnmt_bytes_per_second(256 << 20, seconds)
    rows.append(Row("1 thread", "memory_bandwidth", bandwidth / 1e9, "GB/s"))
    for name in kernels(library):
        peak = library.gnmt_peak_products_per_second(name.encode(), seconds)
        rows.append(Row(name, "peak", peak / 1e9, "G products/s"))
        for num_rows in ROWS:
            speed = library.gnmt_products_per_second(name.encode(), num_rows, 1024, 4096, seconds)
            rows.append(Row(f"{name}, {num_rows} rows", "share_of_vnni_peak", speed / peak, ""))
        # A byte of weights takes part in one product.
        speed = library.gnmt_products_per_second(name.encode(), 1, 4096, 65_536, seconds)
        rows.append(Row(f"{name}, 1 row", "share_of_memory_bandwidth", speed / bandwidth, ""))
    return rows


def _throughput(
    engine: Engine,
    sources: list[list[int]],
    lengths: list[int],
    search: SearchConfig,
    threads: int,
    case: str,
) -> list[Row]:
    start = time.perf_counter()
    engine.translate(sources, search, threads, lengths)
    speed = len(sources) / (time.perf_counter() - start)
    rows = [Row(case, "sentences_per_second", speed, "sentences/s")]
    if case.startswith("paper"):
        rows.append(Row(case, "ratio_to_paper_tpu", speed / PAPER_SENTENCES_PER_SECOND, ""))
    return rows


def _latency(
    engine: Engine,
    sources: list[list[int]],
    lengths: list[int],
    words: list[int],
    search: SearchConfig,
    threads: int,
    case: str,
    count: int,
) -> list[Row]:
    """Sentences whose length is nearest to 25 words, one after the other."""
    order = sorted(range(len(sources)), key=lambda i: (abs(words[i] - WORDS_OF_A_SENTENCE), i))[:count]
    times = []
    for number in order:
        start = time.perf_counter()
        engine.translate([sources[number]], search, threads, [lengths[number]])
        times.append(1e3 * (time.perf_counter() - start))
    return [
        Row(case, "latency_p50_ms", statistics.median(times), "ms"),
        Row(case, "latency_p99_ms", float(np.percentile(times, 99)), "ms"),
    ]


def _pieces(pairs: list[tuple[str, str]], vocab_size: int) -> tuple[list[list[int]], list[int], list[int]]:
    """Source ids, lengths of the references in pieces and of the sources in words."""
    vocabulary = train_wordpieces((line for pair in pairs for line in pair), TextConfig(vocab_size=vocab_size))
    segmenter = WordpieceSegmenter(vocabulary)
    sources = [[*segmenter.encode(source), 3] for source, _ in pairs]
    lengths = [len(segmenter.encode(reference)) + 1 for _, reference in pairs]
    return sources, lengths, [len(source.split()) for source, _ in pairs]


def _sample(pairs: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    if count >= len(pairs):
        return pairs
    return [pairs[round(i * (len(pairs) - 1) / max(count - 1, 1))] for i in range(count)]


def _resident_bytes() -> int:
    with Path("/proc/self/statm").open(encoding="utf-8") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()

"""Measures quantised decoding: the paper's network on this CPU, latency, and the engine beside the CPU's limits.

    make engine
    python -m benchmarks.decode --source newstest2012.en newstest2013.en --reference newstest2012.fr newstest2013.fr
    python -m benchmarks.decode --quick --json rows.json

With `--peers float,pytorch_int8` sentences are also decoded by this project's float search and by the network in
PyTorch with dynamically quantised layers (`pip install torch==2.13.0`), every translation as long as its source,
without pruning, and for 4+4 layers of 512 units and 8,000 pieces as well.

The network has the paper's shape (8+8 layers of 1024 units, 32,000 pieces) and seeded weights: only its speed is
measured. So that sentences are as long as real ones, source and reference are cut into wordpieces of a vocabulary made
from them, and every translation gets exactly its reference's length.

Metrics: sentences_per_second and ratio_to_paper_tpu (15.6 sentences/s: 6003 sentences in 384 s, Table 1);
latency_p50_ms and latency_p99_ms of one sentence of 25 words; share_of_vnni_peak of a product of 1024 by 4096 with so
many rows, against the same instructions in registers; share_of_memory_bandwidth of a product with one row and a matrix
that is larger than the caches, against reading an array of its size; memory_ratio_to_weights, the whole process's
growth at its peak while the model is loaded and used, against the int8 weights; ratio_to_float, ratio_to_pytorch_int8,
sentences per second against those of a peer, which are also given.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.peers.decoding import PEERS, Case
from benchmarks.rows import Row, print_rows, write_json
from gnmt_tf.config import SearchConfig, TextConfig
from gnmt_tf.data.parallel_text import read_pairs
from gnmt_tf.serving.engine.library import Engine, EngineShape, kernels, load_library
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.wordpiece_trainer import train_wordpieces

PAPER_SENTENCES_PER_SECOND = 6003 / 384
PAPER_SHAPE = EngineShape(32_000, 8, 8, 1024, 1024, 1024, 3, False, 1.0, 25.0)
SMALL_SHAPE = EngineShape(8_000, 4, 4, 512, 512, 512, 3, False, 1.0, 25.0)
QUICK_SHAPE = EngineShape(500, 3, 3, 64, 64, 64, 3, False, 1.0, 25.0)
WORDS_OF_A_SENTENCE = 25
ROWS = (1, 8, 32, 128)
Value = TypeVar("Value")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", nargs="+", help="source text, one sentence a line, plain or .gz")
    parser.add_argument("--reference", nargs="+", help="its translation, which gives the lengths")
    parser.add_argument("--sentences", type=int, default=200, help="a sample of so many, evenly spread over the text")
    parser.add_argument("--widths", default="4,8")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--latency_sentences", type=int, default=40)
    parser.add_argument("--peers", default="", help=f"some of {','.join(PEERS)}")
    parser.add_argument("--peer_width", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="a small network and a few sentences: whether it runs")
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args(arguments)
    peers = [peer for peer in options.peers.split(",") if peer]
    if not set(peers) <= set(PEERS):
        parser.error(f"--peers: expected some of {','.join(PEERS)}, got {options.peers}")
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
    weights = random_weights(shape)
    before = _memory_bytes("VmRSS")
    engine = Engine(library, shape, weights)
    # From here on the peak is counted anew; what came before it was to make the weights.
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    name = "quick 3+3x64" if options.quick else "paper 8+8x1024"
    for threads in map(int, options.threads.split(",")):
        for width in map(int, options.widths.split(",")):
            case = f"{name} width {width}, {threads} threads"
            search = SearchConfig(beam_width=width)
            rows += _throughput(engine, sources, lengths, search, threads, case)
            rows += _latency(engine, sources, lengths, words, search, threads, case, options.latency_sentences)
    used = (_memory_bytes("VmHWM") - before) / engine.num_bytes[0]
    rows.append(Row(name, "memory_ratio_to_weights", used, ""))
    if peers:
        shapes = {name: shape} if options.quick else {"4+4x512": SMALL_SHAPE, name: shape}
        for threads in map(int, options.threads.split(",")):
            for case_name, case_shape in shapes.items():
                for batch_size in (1, 4 if options.quick else 32):
                    chosen = _of_vocabulary(_sample(sources, max(batch_size, 6)), case_shape.vocab_size)
                    case = Case(
                        case_shape.num_encoder_layers, case_shape.num_units, case_shape.vocab_size, options.peer_width,
                        batch_size, threads, chosen,
                    )  # fmt: skip
                    made = engine if case_shape is shape else Engine(library, case_shape, random_weights(case_shape))
                    rows += _beside_peers(made, case, peers, case_name)
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


def _beside_peers(engine: Engine, case: Case, peers: Sequence[str], name: str) -> list[Row]:
    search = SearchConfig(beam_width=case.beam_width, batch_size=case.batch_size, pruning_margin=None)
    # A batch of one is one call, as for a user who waits for it.
    calls = [[source] for source in case.sources] if case.batch_size == 1 else [case.sources]
    start = time.perf_counter()
    for sources in calls:
        engine.translate(sources, search, case.threads, [len(source) for source in sources])
    speed = len(case.sources) / (time.perf_counter() - start)
    label = f"{name} width {case.beam_width}, batch {case.batch_size}, {case.threads} threads"
    rows = [Row(label, "sentences_per_second", speed, "sentences/s")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case._asdict()), encoding="utf-8")
        for peer in peers:
            command = [sys.executable, "-m", "benchmarks.peers.decoding", "--peer", peer, "--case", str(path)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            peer_speed = len(case.sources) / float(run.stdout.split()[-1])
            rows.append(Row(label, f"{peer}_sentences_per_second", peer_speed, "sentences/s"))
            rows.append(Row(label, f"ratio_to_{peer}", speed / peer_speed, ""))
    return rows


def _of_vocabulary(sources: list[list[int]], vocab_size: int) -> list[list[int]]:
    """The same lengths with ids of a smaller vocabulary; the special ones stay."""
    return [[piece if piece < 4 else 4 + piece % (vocab_size - 4) for piece in source] for source in sources]


def _pieces(pairs: list[tuple[str, str]], vocab_size: int) -> tuple[list[list[int]], list[int], list[int]]:
    """Source ids, lengths of the references in pieces and of the sources in words."""
    vocabulary = train_wordpieces((line for pair in pairs for line in pair), TextConfig(vocab_size=vocab_size))
    segmenter = WordpieceSegmenter(vocabulary)
    sources = [[*segmenter.encode(source), 3] for source, _ in pairs]
    lengths = [len(segmenter.encode(reference)) + 1 for _, reference in pairs]
    return sources, lengths, [len(source.split()) for source, _ in pairs]


def _sample(values: list[Value], count: int) -> list[Value]:
    """So many of them, evenly spread."""
    if count >= len(values):
        return values
    return [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]


def _memory_bytes(field: str) -> int:
    """Of this process: VmRSS, or VmHWM for the peak."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


if __name__ == "__main__":
    main()

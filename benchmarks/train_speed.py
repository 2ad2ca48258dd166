"""Measures a training step beside the same network in PyTorch: tokens per second, share of the GEMM peak, peak memory.

    pip install -e '.[peers]'
    python -m benchmarks.train_speed
    python -m benchmarks.train_speed --quick --json rows.json

Each measurement runs in a process of its own, one after the other, with the same number of threads: the two programs
take turns, `--rounds` times, and the median counts. Tokens are source plus target pieces; batches are full, so that no
padding flatters either side. FLOPs are those of the matrix products in the equations (forward once, backward twice),
and the peak is that of a large float32 product, the best that NumPy or TensorFlow reaches here.

Metrics: tokens_per_second, bfloat16_tokens_per_second, pytorch_tokens_per_second, ratio_to_pytorch, gflops_per_second,
share_of_gemm_peak, peak_memory_gib, pytorch_peak_memory_gib, memory_ratio_to_pytorch, needed_memory_gib and
memory_ratio_to_needed (see `estimate_memory`), compile_seconds.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.rows import Row, print_rows, write_json
from gnmt_tf.config import Config, load_config
from gnmt_tf.tensorflow_start import keep_freed_memory, start_tensorflow

GIB = 2.0**30


class Case(NamedTuple):
    """Shape of a model and its batch."""

    num_layers: int
    num_units: int
    vocab_size: int
    batch_size: int
    length: int

    def __str__(self) -> str:
        shape = f"{self.num_layers}+{self.num_layers}x{self.num_units}"
        return f"{shape} {self.vocab_size} pieces, batch {self.batch_size}x{self.length}"

    @property
    def tokens(self) -> int:
        """Source and target pieces of a batch."""
        return 2 * self.batch_size * self.length


class Measured(NamedTuple):
    """What one process gives: medians over its steps, and the peak of its resident memory during them."""

    seconds_per_step: float
    first_step_seconds: float
    peak_bytes: int
    num_parameters: int


CASES = {
    "2+2x256": Case(2, 256, 8000, 64, 25),
    "4+4x512": Case(4, 512, 8000, 64, 25),
    "8+8x1024": Case(8, 1024, 32000, 64, 25),
    "memory": Case(8, 1024, 32000, 64, 50),
}
QUICK_CASE = Case(3, 64, 500, 16, 8)
DROPOUT = 0.2


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="2+2x256,4+4x512,8+8x1024,memory", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="least time that a measurement takes")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each program and case")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--without_pytorch", action="store_true")
    parser.add_argument("--bfloat16", action="store_true", help="show this project's speed in bfloat16, too")
    parser.add_argument("--quick", action="store_true", help="one tiny case, to see that it runs")
    parser.add_argument("--json", metavar="FILE", help="also write the rows here")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    flags = parser.parse_args(arguments)
    if flags.worker:
        print(json.dumps(WORKERS[flags.worker](Case(*json.loads(flags.case)), flags.seconds, flags.threads)))
        return
    cases = [QUICK_CASE] if flags.quick else [CASES[name] for name in flags.cases.split(",")]
    seconds, rounds = (0.2, 1) if flags.quick else (flags.seconds, flags.rounds)
    run = Runner(seconds, flags.threads)
    peak = run("gemm_peak", cases[0])[0]
    rows = [Row(f"float32 product, {flags.threads} threads", "gemm_peak_gflops_per_second", peak / 1e9, "GFLOP/s")]
    print_rows(rows)
    for case in cases:
        measured = measure_case(case, run, rounds, peak, not flags.without_pytorch)
        if flags.bfloat16:
            seconds_per_step = Measured(*run("ours_bfloat16", case)).seconds_per_step
            measured.append(Row(str(case), "bfloat16_tokens_per_second", case.tokens / seconds_per_step, "tokens/s"))
        print_rows(measured)
        rows += measured
    if flags.json:
        write_json(rows, flags.json)


class Runner(NamedTuple):
    """Runs one measurement in a process of its own."""

    seconds: float
    threads: int

    def __call__(self, worker: str, case: Case) -> list[float]:
        """What the worker printed last."""
        command = [sys.executable, "-m", "benchmarks.train_speed", "--worker", worker, "--case", json.dumps(case)]
        command += ["--seconds", str(self.seconds), "--threads", str(self.threads)]
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        return json.loads(result.stdout.splitlines()[-1])


def measure_case(case: Case, run: Runner, rounds: int, gemm_peak: float, with_pytorch: bool) -> list[Row]:
    """All rows of one case; `gemm_peak` in FLOP/s."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(Measured(*run("ours", case)))
        if with_pytorch:
            theirs.append(Measured(*run("pytorch", case)))
    seconds = statistics.median(m.seconds_per_step for m in ours)
    peak_bytes = max(m.peak_bytes for m in ours)
    needed = needed_bytes(case, ours[0].num_parameters)
    flops = step_flops(case)
    values = {
        "tokens_per_second": (case.tokens / seconds, "tokens/s"),
        "gflops_per_second": (flops / seconds / 1e9, "GFLOP/s"),
        "share_of_gemm_peak": (flops / seconds / gemm_peak, ""),
        "peak_memory_gib": (peak_bytes / GIB, "GiB"),
        "needed_memory_gib": (needed / GIB, "GiB"),
        "memory_ratio_to_needed": (peak_bytes / needed, ""),
        "compile_seconds": (ours[0].first_step_seconds, "s"),
        "parameters": (ours[0].num_parameters, ""),
    }
    if with_pytorch:
        their_seconds = statistics.median(m.seconds_per_step for m in theirs)
        their_bytes = max(m.peak_bytes for m in theirs)
        values |= {
            "pytorch_tokens_per_second": (case.tokens / their_seconds, "tokens/s"),
            "ratio_to_pytorch": (their_seconds / seconds, ""),
            "pytorch_peak_memory_gib": (their_bytes / GIB, "GiB"),
            "memory_ratio_to_pytorch": (peak_bytes / their_bytes, ""),
            "pytorch_parameters": (theirs[0].num_parameters, ""),
        }
    return [Row(str(case), metric, value, unit) for metric, (value, unit) in values.items()]


def step_flops(case: Case) -> float:
    """Floating-point operations of the matrix products of one training step, with 2 per multiply-add."""
    units, positions = case.num_units, case.batch_size * case.length
    cell = 4 * units * 2 * units
    encoder = 2 * cell + (4 * units * 3 * units if case.num_layers > 1 else 0) + (case.num_layers - 2) * cell
    decoder = case.num_layers * 4 * units * 3 * units
    # Products of keys and queries, then scores and contexts over all source positions.
    attention = 2 * units * units + 2 * case.length * units
    return 3.0 * 2.0 * positions * (encoder + decoder + attention + units * case.vocab_size)


def needed_bytes(case: Case, num_parameters: int) -> int:
    """See `estimate_memory`."""
    start_tensorflow()
    from gnmt_tf.training.memory_estimate import estimate_memory

    return estimate_memory(
        config_of(case), num_parameters, case.vocab_size, case.batch_size, case.length, case.length
    ).total


def config_of(case: Case, compute_dtype: str = "float32") -> Config:
    """The configuration of a case."""
    settings = {
        "training.compute_dtype": compute_dtype,
        "model.num_encoder_layers": case.num_layers,
        "model.num_decoder_layers": case.num_layers,
        "model.num_units": case.num_units,
        "model.attention_units": case.num_units,
        "model.embedding_size": case.num_units,
        "training.dropout": DROPOUT,
    }
    return load_config(None, [f"{key}={value}" for key, value in settings.items()])


@contextlib.contextmanager
def peak_memory(found: list[int]):
    """Appends the peak of the resident memory, in bytes, that this process reaches meanwhile (Linux)."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    yield
    with open("/proc/self/status") as file:
        found.append(next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")))


def time_steps(step: Callable[[], object], seconds: float) -> tuple[float, float, int]:
    """Median seconds of a step, seconds of the first one, and peak memory in bytes of those after the second."""
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    step()
    times: list[float] = []
    found: list[int] = []
    with peak_memory(found):
        while sum(times) < seconds or len(times) < 3:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return statistics.median(times), first, found[0]


def measure_ours(case: Case, seconds: float, threads: int, compute_dtype: str = "float32") -> Measured:
    """A training step of this project."""
    keep_freed_memory()
    start_tensorflow()
    import numpy as np
    import tensorflow as tf

    from gnmt_tf.data.batch import Batch
    from gnmt_tf.training.trainable import TrainableGNMT

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = TrainableGNMT(config_of(case, compute_dtype), case.vocab_size)
    model.compile_for_training()
    rng = np.random.default_rng(1)
    source, target = (
        tf.constant(rng.integers(4, case.vocab_size, [case.batch_size, case.length]), tf.int32) for _ in range(2)
    )
    lengths = tf.fill([case.batch_size], case.length)
    batch = Batch(source, lengths, target, target, lengths)
    train = model.make_train_function()
    median, first, peak = time_steps(lambda: float(train(iter([batch]))["loss"]), seconds)
    return Measured(median, first, peak, model.count_params())


def measure_ours_in_bfloat16(case: Case, seconds: float, threads: int) -> Measured:
    """The same with `compute_dtype` bfloat16, which pays only where the processor multiplies such numbers."""
    return measure_ours(case, seconds, threads, "bfloat16")


def measure_pytorch(case: Case, seconds: float, threads: int) -> Measured:
    """A training step of the PyTorch reference."""
    import torch

    from benchmarks.peers.pytorch_gnmt import PyTorchGNMT

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = PyTorchGNMT(case.vocab_size, case.num_units, case.num_layers, DROPOUT)
    source, target = (torch.randint(4, case.vocab_size, [case.batch_size, case.length]) for _ in range(2))
    median, first, peak = time_steps(lambda: model.train_step(source, target, target), seconds)
    return Measured(median, first, peak, sum(weight.numel() for weight in model.parameters()))


def measure_gemm_peak(case: Case, seconds: float, threads: int) -> list[float]:
    """FLOP/s of the best of two programs at a product of 2048 x 2048 matrices; the case does not matter."""
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    size = 2048
    first, second = (np.random.default_rng(seed).normal(size=[size, size]).astype(np.float32) for seed in (1, 2))
    constants = tf.constant(first), tf.constant(second)
    best = float("inf")
    for product in (lambda: first @ second, lambda: tf.matmul(*constants).numpy()):
        product()
        end = time.perf_counter() + seconds / 4
        while time.perf_counter() < end:
            start = time.perf_counter()
            product()
            best = min(best, time.perf_counter() - start)
    return [2.0 * size**3 / best]


WORKERS = {
    "ours": measure_ours,
    "ours_bfloat16": measure_ours_in_bfloat16,
    "pytorch": measure_pytorch,
    "gemm_peak": measure_gemm_peak,
}

if __name__ == "__main__":
    main()

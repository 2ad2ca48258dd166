"""The quantised engine in C++ against its reference in NumPy, bit for bit, and its search against the plain one."""

import subprocess

import numpy as np
import pytest
import tf_keras as keras
from engine_build import ROOT, built_library, make
from search_oracle import Gap, oracle_search

from gnmt_tf.config import ModelConfig, SearchConfig
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import Int8Reference
from gnmt_tf.serving.engine.library import Engine, EngineShape, kernels

VOCAB_SIZE = 45
SHAPES = {
    "four layers": {},
    "one layer": {"num_encoder_layers": 1, "num_decoder_layers": 1},
    "bound 4": {"clip_bound": 4.0, "init_scale": 0.6},
    "tanh output": {"output_activation": "tanh", "clip_bound": 2.0},
    "shared and tied": {
        "embedding_size": 24, "tie_output_projection": True, "embedding_init_scale": 1.5, "share_embeddings": True,
    },
    "odd sizes": {"num_units": 17, "attention_units": 5, "embedding_size": 3, "num_decoder_layers": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def library():
    return built_library()


def make_reference(**changes):
    settings = {
        "num_encoder_layers": 4, "num_decoder_layers": 4, "num_units": 24, "attention_units": 20, "embedding_size": 28,
        "init_scale": 0.4,
    } | changes  # fmt: skip
    keras.utils.set_random_seed(5)
    model = GNMT(ModelConfig(**settings), VOCAB_SIZE)
    rng = np.random.default_rng(2)
    for weight in model.trainable_variables:
        if weight.name.endswith("bias:0"):
            weight.assign(rng.normal(size=weight.shape) * 0.3)
    return Int8Reference(model)


def random_sentences(lengths, seed):
    rng = np.random.default_rng(seed)
    return [[*rng.integers(4, VOCAB_SIZE, length - 1), 3] for length in lengths]


class OneSentence:
    """The reference as the plain search wants it, one hypothesis at a time."""

    def __init__(self, reference):
        self.reference = reference

    def start(self, source_ids):
        return self.reference.encode(np.array(source_ids)), self.reference.initial_state(1)

    def step(self, state, piece):
        memory, state = state
        step = self.reference.step(np.array([piece]), state, memory)
        return step.log_probs[0], (memory, step.state), step.attention_probs[0]


def engine_of(library, reference, name=None):
    return Engine(library, EngineShape.of(reference.config, reference.vocab_size), reference.weights(), name)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_variant_gives_the_bits_of_the_reference(library, shape):
    reference = make_reference(**SHAPES[shape])
    sources = random_sentences([1, 4, 8, 2, 13, 21, 6], 1)
    targets = random_sentences([3, 10, 5, 1, 2, 19, 7], 2)
    expected = []
    for source, target in zip(sources, targets, strict=True):
        memory, state = reference.encode(np.array(source)), reference.initial_state(1)
        log_probs, probs = [], []
        for before, piece in zip([2, *target[:-1]], target, strict=True):
            step = reference.step(np.array([before]), state, memory)
            state = step.state
            log_probs.append(step.log_probs[0, piece])
            probs.append(step.attention_probs[0])
        expected.append((np.array(log_probs), np.array(probs)))
    assert "portable" in kernels(library)
    for name in kernels(library):
        engine = engine_of(library, reference, name)
        for threads in (1, 2):
            for (log_probs, probs), got, got_probs in zip(
                expected, *engine.score(sources, targets, threads), strict=True
            ):
                np.testing.assert_array_equal(got, log_probs, err_msg=name)
                np.testing.assert_array_equal(got_probs, probs, err_msg=name)


SEARCHES = {
    "paper": {"n_best": 4},
    "no pruning": {"pruning_margin": None, "n_best": 2},
    "no early end": {"pruning_margin": None, "early_stopping": False},
    "one pruning": {"prunings": "pieces", "min_length": 4},
    "the other": {"prunings": "hypotheses", "n_best": 3, "length_penalty_weight": 1.0},
    "greedy": {"beam_width": 1},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_search_is_the_plain_one(library, name):
    config = SearchConfig(**({"beam_width": 5, "max_length_factor": 1.0, "max_length_constant": 5} | SEARCHES[name]))
    compared = 0
    for shape in ("four layers", "bound 4"):
        reference = make_reference(**SHAPES[shape], embedding_init_scale=1.0)
        engine = engine_of(library, reference)
        sources = random_sentences([1, 4, 8, 2, 11, 6, 3, 7], 3)
        for source, found in zip(sources, engine.translate(sources, config, num_threads=2), strict=True):
            gap = Gap()
            expected = oracle_search(OneSentence(reference), tuple(source), config, gap=gap)
            if gap.smallest < 1e-4:
                continue
            compared += 1
            assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]
            for got, want in zip(found, expected, strict=True):
                np.testing.assert_allclose([got.score, got.log_prob], [want.score, want.log_prob], atol=1e-5, rtol=1e-5)
                np.testing.assert_array_equal(got.piece_log_probs, np.array(want.piece_log_probs, np.float32))
    assert compared >= 5


def translations(engine, sources, config, threads):
    """Everything found for each sentence, as bytes."""
    return [
        [
            (found.ids, found.score.tobytes(), found.log_prob.tobytes(), found.piece_log_probs.tobytes())
            for found in best
        ]
        for best in engine.translate(sources, config, threads)
    ]


@pytest.mark.parametrize("shape", ["four layers", "bound 4"])
def test_no_translation_depends_on_its_batch_the_threads_or_the_cpu(library, shape):
    reference = make_reference(**SHAPES[shape], embedding_init_scale=1.0)
    rng = np.random.default_rng(8)
    sources = random_sentences(rng.integers(1, 30, 500), 9)
    config = SearchConfig(beam_width=4, n_best=2, max_length_factor=1.0, max_length_constant=5, batch_size=1)
    expected = translations(engine_of(library, reference, "portable"), sources, config, 1)
    assert len({best[0][0] for best in expected}) > 250
    for name in kernels(library):
        engine = engine_of(library, reference, name)
        for batching in range(20):
            order = rng.permutation(len(sources))
            batch_size, threads = int(rng.integers(1, 130)), 1 + batching % 2
            # Companions come from the call as well as from the size of its batches.
            cuts = np.sort(rng.integers(0, len(sources), batching % 4))
            for numbers in np.split(order, cuts):
                found = translations(
                    engine, [sources[k] for k in numbers], config.model_copy(update={"batch_size": batch_size}), threads
                )
                assert found == [expected[k] for k in numbers], (name, batching, batch_size, threads)


def test_bad_input_is_told_and_not_read(library):
    engine = engine_of(library, make_reference())
    with pytest.raises(ValueError, match="sentence 1: expected ids from 0 to 44, got 45"):
        engine.translate([[3], [45, 3]], SearchConfig())
    with pytest.raises(ValueError, match="sentence 0: expected at least one piece, got none"):
        engine.translate([[]], SearchConfig())
    with pytest.raises(ValueError, match="target 0: expected ids from 0 to 44, got -1"):
        engine.score([[3]], [[-1]])
    assert engine.translate([], SearchConfig()) == []
    with pytest.raises(ValueError, match="kernels: expected one of .*portable, got abacus"):
        engine_of(library, make_reference(), "abacus")


def run_cpp_tests(sanitizer, num_sentences):
    target = f"build/engine{f'-{sanitizer}' if sanitizer else ''}/engine_test"
    make(target, *([f"SANITIZE={sanitizer}"] if sanitizer else []))
    run = subprocess.run([ROOT / target, str(num_sentences)], capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "engine_test: passed\n"


def test_the_engines_own_tests_pass():
    run_cpp_tests(None, 40)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_engines_own_tests_pass_under_sanitizers(sanitizer):
    run_cpp_tests(sanitizer, 4)

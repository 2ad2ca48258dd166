"""The quantised engine as a library, built from its sources and called through its C interface."""

import ctypes
import fcntl
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


class Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "vocab_size", "num_encoder_layers", "num_decoder_layers", "num_units", "attention_units", "embedding_size",
            "first_residual_layer", "tanh_output",
        )),
        ("clip_bound", ctypes.c_double),
        ("logit_bound", ctypes.c_float),
    ]  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = [
        ("beam_width", ctypes.c_int32), ("n_best", ctypes.c_int32), ("length_penalty_weight", ctypes.c_float),
        ("coverage_penalty_weight", ctypes.c_float), ("piece_margin", ctypes.c_float),
        ("hypothesis_margin", ctypes.c_float), ("early_stopping", ctypes.c_int32),
        ("max_length_factor", ctypes.c_float), ("max_length_constant", ctypes.c_int32), ("min_length", ctypes.c_int32),
        ("batch_size", ctypes.c_int32),
    ]  # fmt: skip


class Found(NamedTuple):
    """A hypothesis."""

    ids: tuple[int, ...]
    score: np.float32
    log_prob: np.float32
    piece_log_probs: np.ndarray


def make(*targets):
    """Runs make, one process at a time: tests run in several."""
    with open(ROOT / "Makefile", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "--silent", *targets], cwd=ROOT, check=True)


def built_ops():
    """`gnmt_tf.ops`, built if the sources are younger."""
    make("ops")
    from gnmt_tf import ops

    return ops


def load_library():
    """Builds the library if its sources are younger, and loads it."""
    make("engine")
    library = ctypes.CDLL(str(ROOT / "build" / "engine" / "libgnmt_engine.so"))
    library.gnmt_error.restype = library.gnmt_kernels.restype = ctypes.c_char_p
    library.gnmt_free.argtypes = [ctypes.c_void_p]
    return library


def _pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def _joined(sentences):
    ids = np.concatenate([np.asarray(s, np.int32) for s in sentences]) if sentences else np.zeros([0], np.int32)
    return ids.astype(np.int32), np.array([len(s) for s in sentences], np.int32)


class Engine:
    """A model in the engine, from its NumPy reference."""

    def __init__(self, library, reference, kernels=None):
        self.library, config = library, reference.config
        shape = Shape(
            reference.vocab_size, config.num_encoder_layers, config.num_decoder_layers, config.num_units,
            config.attention_units, config.embedding_size, config.first_residual_layer,
            config.output_activation == "tanh", config.clip_bound, config.logit_bound,
        )  # fmt: skip
        arrays = [*reference.source_embeddings, *reference.target_embeddings]
        for layer in [*reference.encoder_bottom, *reference.encoder_layers, *reference.decoder_layers]:
            arrays += [layer.inputs, layer.row_scales, layer.biases]
        arrays += [reference.query_kernel, reference.key_kernel, reference.key_bias, reference.score_kernel]
        arrays += [reference.projection, reference.projection_scales, reference.projection_bias]
        arrays = [np.ascontiguousarray(array) for array in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        self.handle = ctypes.c_void_p()
        name = kernels.encode() if kernels else None
        self._check(library.gnmt_load(ctypes.byref(shape), pointers, len(arrays), name, ctypes.byref(self.handle)))

    def __del__(self):
        self.library.gnmt_free(self.handle)

    def score(self, sources, targets, threads=1):
        """log-probabilities of the pieces of each target, and attention."""
        (ids, lengths), (target_ids, target_lengths) = _joined(sources), _joined(targets)
        log_probs = np.zeros(len(target_ids), np.float32)
        probs = np.zeros(int((lengths * target_lengths).sum()), np.float32)
        values = map(_pointer, (ids, lengths, target_ids, target_lengths))
        self._check(
            self.library.gnmt_score(self.handle, *values, len(lengths), threads, _pointer(log_probs), _pointer(probs))
        )
        attention = np.split(probs, np.cumsum(lengths * target_lengths)[:-1])
        shaped = [a.reshape(t, s) for a, t, s in zip(attention, target_lengths, lengths, strict=True)]
        return np.split(log_probs, np.cumsum(target_lengths)[:-1]), shaped

    def translate(self, sources, search, threads=1):
        """For each sentence a list of Found, with settings of a SearchConfig."""
        margins = [-1.0 if margin is None else margin for margin in (search.piece_margin, search.hypothesis_margin)]
        options = Options(
            search.beam_width, search.n_best, search.length_penalty_weight, search.coverage_penalty_weight, *margins,
            search.early_stopping, search.max_length_factor, search.max_length_constant, search.min_length,
            search.batch_size,
        )  # fmt: skip
        ids, lengths = _joined(sources)
        most = int(max(lengths, default=0) * search.max_length_factor) + search.max_length_constant + 1
        shape = [len(lengths), search.n_best]
        out_ids, out_lengths = np.zeros([*shape, most], np.int32), np.zeros(shape, np.int32)
        scores, log_probs = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        piece_log_probs = np.zeros([*shape, most], np.float32)
        out = map(_pointer, (out_ids, out_lengths, scores, log_probs, piece_log_probs))
        self._check(
            self.library.gnmt_translate(
                self.handle, _pointer(ids), _pointer(lengths), len(lengths), ctypes.byref(options), threads, most, *out
            )
        )
        return [
            [
                Found(
                    tuple(map(int, out_ids[i, n, :length])),
                    scores[i, n],
                    log_probs[i, n],
                    piece_log_probs[i, n, :length],
                )
                for n, length in enumerate(out_lengths[i])
                if length
            ]
            for i in range(len(lengths))
        ]

    def _check(self, status):
        if status:
            raise ValueError(self.library.gnmt_error().decode())

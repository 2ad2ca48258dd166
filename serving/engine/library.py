"""The quantised engine through its C interface, without TensorFlow: for benchmarks, tests and other front ends.

Reads the library that `make engine` builds and quantised weights; gives translations.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnmt_tf.config import ModelConfig, SearchConfig

LIBRARY_PATH = Path(__file__).resolve().parents[2] / "build" / "engine" / "libgnmt_engine.so"


class EngineShape(NamedTuple):
    """Sizes of a network, in the order of the C interface."""

    vocab_size: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_units: int
    attention_units: int
    embedding_size: int
    first_residual_layer: int
    tanh_output: bool
    clip_bound: float
    logit_bound: float

    @classmethod
    def of(cls, config: ModelConfig, vocab_size: int) -> "EngineShape":
        """That of a model."""
        return cls(
            vocab_size,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.num_units,
            config.attention_units,
            config.embedding_size,
            config.first_residual_layer,
            config.output_activation == "tanh",
            config.clip_bound,
            config.logit_bound,
        )


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in EngineShape._fields[:8]),
        ("clip_bound", ctypes.c_double),
        ("logit_bound", ctypes.c_float),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("beam_width", ctypes.c_int32),
        ("n_best", ctypes.c_int32),
        ("length_penalty_weight", ctypes.c_float),
        ("coverage_penalty_weight", ctypes.c_float),
        ("piece_margin", ctypes.c_float),
        ("hypothesis_margin", ctypes.c_float),
        ("early_stopping", ctypes.c_int32),
        ("max_length_factor", ctypes.c_float),
        ("max_length_constant", ctypes.c_int32),
        ("min_length", ctypes.c_int32),
        ("batch_size", ctypes.c_int32),
    ]


class Found(NamedTuple):
    """A hypothesis: piece ids with `</s>` last, eq. 14, log P(Y|X), and log-probabilities float32 [length]."""

    ids: tuple[int, ...]
    score: float
    log_prob: float
    piece_log_probs: np.ndarray


def load_library(path: Path = LIBRARY_PATH) -> ctypes.CDLL:
    """Loads the library.

    Raises:
      FileNotFoundError: it is not built.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the engine's library, found none; build it with `make engine`.")
    library = ctypes.CDLL(str(path))
    library.gnmt_error.restype = library.gnmt_kernels.restype = ctypes.c_char_p
    library.gnmt_free.argtypes = [ctypes.c_void_p]
    for name in ("gnmt_products_per_second", "gnmt_peak_products_per_second", "gnmt_bytes_per_second"):
        getattr(library, name).restype = ctypes.c_double
    library.gnmt_products_per_second.argtypes = [ctypes.c_char_p, *[ctypes.c_int32] * 3, ctypes.c_double]
    library.gnmt_peak_products_per_second.argtypes = [ctypes.c_char_p, ctypes.c_double]
    library.gnmt_bytes_per_second.argtypes = [ctypes.c_int64, ctypes.c_double]
    return library


def kernels(library: ctypes.CDLL) -> list[str]:
    """Names of the variants that this CPU can run, the fastest first."""
    return library.gnmt_kernels().decode().split()


class Engine:
    """A quantised model.

    Args:
      library: from `load_library`.
      shape: of the network.
      weights: in the order of `Int8Reference.weights`.
      kernels: name of a variant; by default the fastest.

    Raises:
      ValueError: weights that are not finite or too few of them, or a variant that this CPU cannot run.
    """

    def __init__(
        self, library: ctypes.CDLL, shape: EngineShape, weights: Sequence[np.ndarray], kernels: str | None = None
    ):
        self._library = library
        self._handle = ctypes.c_void_p()
        pointers = (ctypes.c_void_p * len(weights))(*(array.ctypes.data for array in weights))
        name = kernels.encode() if kernels else None
        handle = ctypes.byref(self._handle)
        self._check(library.gnmt_load(ctypes.byref(_Shape(*shape)), pointers, len(weights), name, handle))

    def __del__(self) -> None:
        self._library.gnmt_free(self._handle)

    @property
    def num_bytes(self) -> tuple[int, int]:
        """Of the int8 weights, and of all that the model holds."""
        int8_bytes, total_bytes = ctypes.c_int64(), ctypes.c_int64()
        self._library.gnmt_sizes(self._handle, ctypes.byref(int8_bytes), ctypes.byref(total_bytes))
        return int8_bytes.value, total_bytes.value

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], num_threads: int = 1
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """log-probabilities of given targets, float32 [target_length] each, and attention of their steps.

        Raises:
          ValueError: ids out of range, or an empty sentence.
        """
        (ids, lengths), (target_ids, target_lengths) = _joined(sources), _joined(targets)
        log_probs = np.zeros(len(target_ids), np.float32)
        probs = np.zeros(int((lengths * target_lengths).sum()), np.float32)
        values = map(_pointer, (ids, lengths, target_ids, target_lengths))
        out = map(_pointer, (log_probs, probs))
        self._check(self._library.gnmt_score(self._handle, *values, len(lengths), num_threads, *out))
        attention = np.split(probs, np.cumsum(lengths * target_lengths)[:-1])
        shaped = [a.reshape(t, s) for a, t, s in zip(attention, target_lengths, lengths, strict=True)]
        return np.split(log_probs, np.cumsum(target_lengths)[:-1]), shaped

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        search: SearchConfig,
        num_threads: int = 1,
        forced_lengths: Sequence[int] | None = None,
    ) -> list[list[Found]]:
        """The best hypotheses of each sentence, best first.

        Args:
          sources: piece ids, `</s>` last.
          search: settings; those of sampling, groups and n-grams are not read.
          num_threads: that share the work; it changes no result.
          forced_lengths: of each sentence's hypotheses, `</s>` counted, for measuring with weights that never end one.

        Raises:
          ValueError: ids out of range, or an empty sentence.
        """
        margins = [-1.0 if margin is None else margin for margin in (search.piece_margin, search.hypothesis_margin)]
        options = _Options(
            search.beam_width,
            search.n_best,
            search.length_penalty_weight,
            search.coverage_penalty_weight,
            *margins,
            search.early_stopping,
            search.max_length_factor,
            search.max_length_constant,
            search.min_length,
            search.batch_size,
        )
        ids, lengths = _joined(sources)
        forced = None if forced_lengths is None else np.array(forced_lengths, np.int32)
        most = int(max(lengths, default=0) * search.max_length_factor) + search.max_length_constant + 1
        most = max(most, *forced_lengths) if forced_lengths else most
        shape = [len(lengths), search.n_best]
        out_ids, out_lengths = np.zeros([*shape, most], np.int32), np.zeros(shape, np.int32)
        scores, log_probs = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        piece_log_probs = np.zeros([*shape, most], np.float32)
        read = _pointer(ids), _pointer(lengths), _pointer(forced), len(lengths)
        out = map(_pointer, (out_ids, out_lengths, scores, log_probs, piece_log_probs))
        self._check(self._library.gnmt_translate(self._handle, *read, ctypes.byref(options), num_threads, most, *out))
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

    def _check(self, status: int) -> None:
        if status:
            raise ValueError(self._library.gnmt_error().decode())


def _pointer(array: np.ndarray | None) -> Any:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def _joined(sentences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = [piece for sentence in sentences for piece in sentence]
    return np.array(ids, np.int32), np.array([len(sentence) for sentence in sentences], np.int32)

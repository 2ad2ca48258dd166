"""The quantised engine's ops: importing this is all that a program needs to load a SavedModel that uses them.

A quantised model lives in a resource (`int8_model`, `load_int8_model`); `translate` and `score` run it. The ops are
built with the installed TensorFlow: `make ops`.
"""

import os
from typing import NamedTuple

import tensorflow as tf

_PATH = os.path.join(os.path.dirname(__file__), "libgnmt_ops.so")
if not os.path.exists(_PATH):
    raise ImportError(f"{_PATH}: expected the ops library, found none; build it with `make ops`.")
_ops = tf.load_op_library(_PATH)


class Int8Result(NamedTuple):
    """The best hypotheses of each sentence, best first; those that do not exist have length 0 and score -inf.

    Fields:
      ids: int32 [batch_size, n_best, target_length], `</s>` last, then the pad id.
      lengths: int32 [batch_size, n_best], `</s>` counted.
      scores: float32 [batch_size, n_best], eq. 14.
      log_probs: float32 [batch_size, n_best], log P(Y|X).
      piece_log_probs: float32 [batch_size, n_best, target_length].
      attention_probs: float32 [batch_size, n_best, target_length, source_length], or source_length 0 if not kept.
      truncated: bool [batch_size, n_best], whether the hypothesis is as long as the length limit lets it be.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    piece_log_probs: tf.Tensor
    attention_probs: tf.Tensor
    truncated: tf.Tensor


class Int8Settings(NamedTuple):
    """Settings of a search, as the fields of the config section `search`; a margin of None turns its pruning off."""

    beam_width: int = 8
    n_best: int = 1
    length_penalty_weight: float = 0.2
    coverage_penalty_weight: float = 0.2
    piece_margin: float | None = 3.0
    hypothesis_margin: float | None = 3.0
    early_stopping: bool = True
    max_length_factor: float = 2.0
    max_length_constant: int = 10
    min_length: int = 0
    banned_ids: tuple[int, ...] = ()
    batch_size: int = 32
    keep_attention: bool = False


class Int8Shape(NamedTuple):
    """Sizes of a network, as the fields of the config section `model`, and of its vocabulary."""

    vocab_size: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_units: int
    attention_units: int
    embedding_size: int
    first_residual_layer: int = 3
    tanh_output: bool = False
    clip_bound: float = 1.0
    logit_bound: float = 25.0


def int8_model(shared_name: str = "") -> tf.Tensor:
    """Handle of a quantised model: a scalar resource, empty until `load_int8_model`."""
    return _ops.gnmt_int8_model(shared_name=shared_name)


def load_int8_model(model: tf.Tensor, weights: list[tf.Tensor], shape: Int8Shape) -> tf.Operation | None:
    """Packs weights into a model.

    Args:
      model: handle.
      weights: in the order of `gnmt_tf.quantization.int8_reference.Int8Reference.weights`.
      shape: sizes.

    Raises:
      InvalidArgumentError: a tensor of another type or shape, or weights that are not finite; it names the tensor.
    """
    return _ops.gnmt_load_int8_model(model=model, weights=weights, **shape._asdict())


def translate(
    model: tf.Tensor, source_ids: tf.Tensor, source_lengths: tf.Tensor, settings: Int8Settings | None = None
) -> Int8Result:
    """Beam search with a quantised model.

    Args:
      model: handle of a loaded model.
      source_ids: int32 [batch_size, source_length], each row ended by `</s>`; what stands behind is not read.
      source_lengths: int32 [batch_size], `</s>` counted, at least 1.
      settings: of the search.

    Raises:
      InvalidArgumentError: ids out of range, lengths beyond the row; NotFoundError: nothing was loaded.
    """
    values = (settings or Int8Settings())._asdict()
    for name in ("piece_margin", "hypothesis_margin"):
        values[name] = -1.0 if values[name] is None else values[name]
    values["banned_ids"] = list(values["banned_ids"])
    return Int8Result(
        *_ops.gnmt_translate_int8(model=model, source_ids=source_ids, source_lengths=source_lengths, **values)
    )


def score(
    model: tf.Tensor, source_ids: tf.Tensor, source_lengths: tf.Tensor, target_ids: tf.Tensor, target_lengths: tf.Tensor
) -> tf.Tensor:
    """log P of each piece of given targets: float32 [batch_size, target_length], zeros behind the ends.

    Args:
      model, source_ids, source_lengths: as in `translate`.
      target_ids: int32 [batch_size, target_length], each row ended by `</s>`.
      target_lengths: int32 [batch_size], `</s>` counted, at least 1.

    Raises:
      InvalidArgumentError, NotFoundError: as `translate`.
    """
    return _ops.gnmt_score_int8(
        model=model,
        source_ids=source_ids,
        source_lengths=source_lengths,
        target_ids=target_ids,
        target_lengths=target_lengths,
    )

"""The serving contract: three signatures over raw strings, row-wise in dimension 0.

Reads a trained model and its vocabulary; gives a `tf.Module` whose functions hold segmentation, search and restoration,
so that whoever loads the SavedModel needs tensorflow and tensorflow_text only, and for a quantised one `gnmt_tf.ops`.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.data.batch import Batch
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.beam_search import beam_search
from gnmt_tf.search.constraints import Constraints
from gnmt_tf.search.engine import Engine
from gnmt_tf.search.history import BeamResult
from gnmt_tf.text.graph_segmenter import GraphSegmenter
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID, Vocabulary

TEXT = tf.TensorSpec([None], tf.string)


class _Source(NamedTuple):
    # ids int32 [rows, source_length] ended by </s>, lengths int32 [rows], cut bool [rows].
    ids: tf.Tensor
    lengths: tf.Tensor
    cut: tf.Tensor


class FloatEngine:
    """The model itself, in TensorFlow's own ops.

    Args:
      model: trained.
      banned: ids that no translation may hold.
    """

    def __init__(self, model: GNMT, banned: tuple[int, ...] = ()):
        # The weights are tracked, the Keras objects are not: their own call signatures are no part of the contract.
        self.tracked = list(model.weights)
        self._model, self._constraints = model, Constraints(banned)

    def search(
        self, source_ids: tf.Tensor, source_lengths: tf.Tensor, search: SearchConfig, keep_attention: bool
    ) -> BeamResult:
        """See Engine."""
        memory = self._model.encode(source_ids, source_lengths)
        result = beam_search(
            self._model, memory, source_lengths, search, keep_attention=keep_attention, constraints=self._constraints
        )
        finite = tf.debugging.assert_less(
            result.failed_step, 0, message="the model gave NaN or Inf at the step (counted from 0) that x tells"
        )
        with tf.control_dependencies([finite]):
            return BeamResult(*(tf.identity(values) for values in result))

    def piece_log_probs(self, batch: Batch) -> tf.Tensor:
        """See Engine."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(batch.target_output_ids, self._model(batch))


class TranslationModule(tf.Module):
    """Signatures `serving_default`, `n_best` and `score_pair`.

    Args:
      engine: translates ids.
      vocabulary: that the model was trained with.
      search: settings that the signatures hold; `serving_default` gives one hypothesis, `n_best` gives
        `search.beam_width` of them.
      asset_paths: files that travel in the SavedModel's `assets`.
    """

    def __init__(self, engine: Engine, vocabulary: Vocabulary, search: SearchConfig, asset_paths: list[str]):
        super().__init__(name="gnmt")
        self.segmenter = GraphSegmenter(vocabulary)
        self.assets = [tf.saved_model.Asset(path) for path in asset_paths]
        self.tracked = engine.tracked
        pieces = tf.constant([piece.encode() for piece in vocabulary.pieces])
        one = search.model_copy(update={"n_best": 1})
        many = search.model_copy(update={"n_best": search.beam_width})

        def source(text: tf.Tensor) -> _Source:
            if search.source_prefix:
                text = tf.strings.join([search.source_prefix, text], separator=" ")
            return _source(self.segmenter.encode(text), search.max_source_pieces)

        def searched(text: tf.Tensor, settings: SearchConfig, keep_attention: bool) -> tuple[_Source, BeamResult]:
            rows = source(text)
            return rows, engine.search(rows.ids, rows.lengths, settings, keep_attention)

        def translate(text: tf.Tensor) -> dict[str, tf.Tensor]:
            rows, result = searched(text, one, keep_attention=False)
            return {
                "translation": self.segmenter.decode(result.ids[:, 0]),
                "score": result.scores[:, 0],
                "truncated": rows.cut | result.truncated[:, 0],
            }

        def n_best(text: tf.Tensor) -> dict[str, tf.Tensor]:
            rows, result = searched(text, many, keep_attention=True)
            return {
                "translation": self.segmenter.decode(result.ids),
                "score": result.scores,
                "truncated": rows.cut[:, None] | result.truncated,
                "source_pieces": tf.where(rows.ids == PAD_ID, "", tf.gather(pieces, rows.ids)),
                "target_pieces": tf.where(result.ids == PAD_ID, "", tf.gather(pieces, result.ids)),
                "attention_probs": result.attention_probs,
            }

        def score_pair(text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
            batch = _pairs(source(text), self.segmenter.encode(translation))
            log_probs = engine.piece_log_probs(batch)
            real = tf.sequence_mask(batch.target_lengths, tf.shape(log_probs)[1], log_probs.dtype)
            return {"log_prob": tf.reduce_sum(log_probs * real, axis=1), "num_pieces": batch.target_lengths}

        self.serving_default = self._signature(translate, 1)
        self.n_best = self._signature(n_best, 1)
        self.score_pair = self._signature(score_pair, 2)

    def _signature(self, function: Callable[..., dict[str, tf.Tensor]], num_inputs: int) -> Callable[..., object]:
        """Runs `function` on the rows whose text is not blank; the others get empty strings and zeros."""

        def run(text: tf.Tensor, *rest: tf.Tensor) -> dict[str, tf.Tensor]:
            kept = ~self.segmenter.is_blank(text)
            # Blank rows take row 0 of the results, which is the blank answer put in front of the real ones.
            positions = tf.where(kept, tf.cumsum(tf.cast(kept, tf.int32)), 0)
            inputs = [tf.boolean_mask(values, kept) for values in (text, *rest)]
            # The model sees at least one row: with nothing to translate that is a stand-in whose result is not read.
            nothing = tf.cast(tf.logical_not(tf.reduce_any(kept)), tf.int32)
            inputs = [tf.concat([values, tf.repeat([b"."], nothing)], axis=0) for values in inputs]
            return {name: tf.gather(_with_blank_first(values), positions) for name, values in function(*inputs).items()}

        if num_inputs == 1:

            @tf.function(input_signature=[TEXT], autograph=False)
            def one_input(text: tf.Tensor) -> dict[str, tf.Tensor]:
                return run(text)

            return one_input

        @tf.function(input_signature=[TEXT, TEXT], autograph=False)
        def two_inputs(text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
            same = tf.debugging.assert_equal(
                tf.shape(text), tf.shape(translation), message="text and translation have unequal numbers of rows"
            )
            with tf.control_dependencies([same]):
                return run(tf.identity(text), translation)

        return two_inputs

    @property
    def signatures(self) -> dict[str, Callable[..., object]]:
        """What `tf.saved_model.save` takes."""
        return {
            "serving_default": self.serving_default,
            "n_best": self.n_best,
            "score_pair": self.score_pair,
        }


def _with_blank_first(values: tf.Tensor) -> tf.Tensor:
    # Further hypotheses of a blank line do not exist, which is written as everywhere: "" and -inf.
    if values.dtype == tf.string:
        blank = tf.fill(tf.shape(values[:1]), "")
    elif values.shape.rank == 2 and values.dtype == tf.float32:
        blank = tf.concat([tf.zeros_like(values[:1, :1]), tf.fill(tf.shape(values[:1, 1:]), float("-inf"))], axis=1)
    else:
        blank = tf.zeros_like(values[:1])
    return tf.concat([blank, values], axis=0)


def _source(pieces: tf.RaggedTensor, max_pieces: int) -> _Source:
    kept = pieces[:, : max_pieces - 1]
    ended = tf.concat([kept, tf.fill([kept.nrows(), 1], END_ID)], axis=1)
    lengths = tf.cast(ended.row_lengths(), tf.int32)
    return _Source(ended.to_tensor(PAD_ID), lengths, pieces.row_lengths() >= max_pieces)


def _pairs(source: _Source, target: tf.RaggedTensor) -> Batch:
    outputs = tf.concat([target, tf.fill([target.nrows(), 1], END_ID)], axis=1)
    inputs = tf.concat([tf.fill([target.nrows(), 1], START_ID), target], axis=1)
    lengths = tf.cast(outputs.row_lengths(), tf.int32)
    return Batch(source.ids, source.lengths, inputs.to_tensor(PAD_ID), outputs.to_tensor(PAD_ID), lengths)

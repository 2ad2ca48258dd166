"""GNMT as a Keras model: embeddings, encoder, decoder, output projection (paper, section 3).

Reads a Batch in training (`call`), or source ids and then one target piece after the other in the search (`encode`,
`start`, `initial_state`, `decode_step`); gives logits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import ModelConfig
from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.layers.clipping import UNCONSTRAINED, clip
from gnmt_tf.layers.dropout import Dropout
from gnmt_tf.layers.initializers import uniform
from gnmt_tf.layers.output_projection import OutputProjection
from gnmt_tf.layers.placement import ONE_DEVICE, Placement
from gnmt_tf.layers.weight_quantizer import WeightQuantizer
from gnmt_tf.model.decoder import Decoder, DecoderMemory, DecoderState, DecoderStep, Rows, one_row_each
from gnmt_tf.model.encoder import Encoder


class Bounds(NamedTuple):
    """The clipping constraints of one call: `clip_bound` is delta of eq. 10, `logit_bound` gamma of eq. 13."""

    clip_bound: tf.Tensor | float
    logit_bound: tf.Tensor | float


class GNMTStep(NamedTuple):
    """One decoding step.

    Fields:
      logits: float [rows, vocab_size].
      state: after the step, of the same rows.
      attention_probs: float [batch_size, beam_width, source_length].
    """

    logits: tf.Tensor
    state: Any
    attention_probs: tf.Tensor


class Scored(NamedTuple):
    """A whole target sentence read at once.

    Fields:
      logits: float [batch_size, target_length, vocab_size].
      attention_probs: float [batch_size, target_length, source_length].
    """

    logits: tf.Tensor
    attention_probs: tf.Tensor


class GNMT(keras.Model):
    """The network. All weights exist once it is constructed.

    Call: `model(batch, bounds=None, dropout=None)` with a Batch; gives logits float [batch_size, target_length,
    vocab_size]. Without bounds those of inference hold; without a Dropout nothing is dropped.

    Args:
      config: shape of the model.
      vocab_size: pieces in the shared vocabulary.
      constrained: whether it is trained, and so used, with the clips of eq. 10 and 13.
      placement: where its parts are.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        constrained: bool = True,
        placement: Placement = ONE_DEVICE,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._placement = placement
        self.config = config
        self.vocab_size = vocab_size
        self.constrained = constrained
        self.weight_quantizer: WeightQuantizer | None = None
        self.source_embedding = _embedding(config, vocab_size, "source_embedding")
        self.target_embedding = (
            self.source_embedding if config.share_embeddings else _embedding(config, vocab_size, "target_embedding")
        )
        self.encoder = Encoder(config, placement, name="encoder")
        self.decoder = Decoder(config, self.encoder.output_size, placement, name="decoder")
        self.output_projection = OutputProjection(
            vocab_size, config.init_scale, config.tie_output_projection, name="output_projection"
        )
        self._build_layers()

    def _build_layers(self) -> None:
        embeddings = [None, None, self.config.embedding_size]
        shapes = {
            self.source_embedding: [None, None],
            self.target_embedding: [None, None],
            self.encoder: embeddings,
            self.decoder: embeddings,
            self.output_projection: [None, None, self.config.num_units],
        }
        for layer, shape in shapes.items():
            with self._placement.device(layer.name), tf.name_scope(layer.name):
                layer.build(shape)
        self.built = True

    @property
    def tied_embeddings(self) -> tf.Tensor | None:
        """The target embeddings if they are the output projection's weights, too."""
        return self.target_embedding.embeddings if self.config.tie_output_projection else None

    @property
    def inference_bounds(self) -> Bounds:
        """The constraints that hold outside training."""
        if not self.constrained:
            return Bounds(UNCONSTRAINED, UNCONSTRAINED)
        return Bounds(self.config.clip_bound, self.config.logit_bound)

    def call(self, batch: Batch, bounds: Bounds | None = None, dropout: Dropout | None = None) -> tf.Tensor:
        """See the class."""
        bounds = bounds or self.inference_bounds
        outputs = self.decoder_outputs(batch, bounds, dropout)
        with self._placement.device("output_projection"):
            return self.output_projection(outputs, bounds.logit_bound, self.tied_embeddings)

    def decoder_outputs(
        self, batch: Batch, bounds: Bounds, dropout: Dropout | None = None, dtype: tf.DType = tf.float32
    ) -> tf.Tensor:
        """What the logits are made from: float [batch_size, target_length, num_units].

        `dtype` is that of all activations and products; the weights are float32.
        """
        return self._decoder_pass(batch, bounds, dropout, dtype)[0]

    def scored(self, batch: Batch) -> Scored:
        """Logits and attention of target sentences, under the bounds of inference."""
        bounds = self.inference_bounds
        outputs, probs = self._decoder_pass(batch, bounds, None, tf.float32)
        with self._placement.device("output_projection"):
            return Scored(self.output_projection(outputs, bounds.logit_bound, self.tied_embeddings), probs)

    def _decoder_pass(
        self, batch: Batch, bounds: Bounds, dropout: Dropout | None, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        memory = self.encode(batch.source_ids, batch.source_lengths, bounds, dropout, dtype)
        return self.decode(batch.target_input_ids, memory, bounds, dropout)

    def decode(
        self, target_input_ids: tf.Tensor, memory: AttentionMemory, bounds: Bounds, dropout: Dropout | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the decoder over whole target sequences, in the dtype of `memory`.

        Args:
          target_input_ids: int32 [batch_size, target_length], `<s>` first.
          memory: of as many sentences.
          bounds, dropout: as in `call`.

        Returns:
          Its outputs, float [batch_size, target_length, num_units], and the attention's probabilities, float
          [batch_size, target_length, source_length].
        """
        with self._placement.device("target_embedding"):
            embeddings = self._embedded(self.target_embedding, target_input_ids, bounds)
        return self.decoder(tf.cast(embeddings, memory.values.dtype), memory, bounds.clip_bound, dropout)

    def encode(
        self,
        source_ids: tf.Tensor,
        source_lengths: tf.Tensor,
        bounds: Bounds | None = None,
        dropout: Dropout | None = None,
        dtype: tf.DType = tf.float32,
    ) -> AttentionMemory:
        """Runs the encoder: ids int32 [batch_size, source_length], lengths int32 [batch_size]."""
        bounds = bounds or self.inference_bounds
        with self._placement.device("source_embedding"):
            embeddings = tf.cast(self._embedded(self.source_embedding, source_ids, bounds), dtype)
        outputs = self.encoder(embeddings, source_lengths, bounds.clip_bound, dropout)
        with self._placement.device("decoder/1"):
            return self.decoder.bottom_layer.prepare(outputs, source_lengths)

    def _embedded(self, embedding: keras.layers.Embedding, ids: tf.Tensor, bounds: Bounds) -> tf.Tensor:
        rows = tf.gather(embedding.embeddings, ids)
        # The stacks clip what they read; what the engine rounds is clipped already.
        return self.weight_quantizer(clip(rows, bounds.clip_bound), -1) if self.weight_quantizer else rows

    def initial_state(self, num_rows: int | tf.Tensor) -> DecoderState:
        """The decoder's state before the first step."""
        return self.decoder.initial_state(num_rows)

    def start(self, memory: AttentionMemory) -> DecoderMemory:
        """What decoding steps read of the sentences, from `encode`'s memory."""
        return self.decoder.start(memory)

    def decode_step(
        self, ids: tf.Tensor, state: DecoderState, memory: DecoderMemory, rows: Rows | None = None
    ) -> GNMTStep:
        """Feeds one target piece to each row.

        Args:
          ids: int32 [rows].
          state: of the rows.
          memory: of the sentences, from `start`.
          rows: which hypotheses these are; by default one of each sentence.
        """
        step = self.decoder_step(ids, state, memory, rows or one_row_each(tf.shape(ids)[0]))
        with self._placement.device("output_projection"):
            logits = self.output_projection(step.outputs, self.inference_bounds.logit_bound, self.tied_embeddings)
        return GNMTStep(logits, step.state, step.attention_probs)

    def partial_projection(self, ids: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """The output projection of the pieces `ids` alone: gives a function from outputs to logits float [rows, n]."""
        kernel, bias = self.output_projection.part(ids, self.tied_embeddings)
        bound = self.inference_bounds.logit_bound
        return lambda outputs: tf.clip_by_value(tf.matmul(outputs, kernel) + bias, -bound, bound)

    def decoder_step(self, ids: tf.Tensor, state: DecoderState, memory: DecoderMemory, rows: Rows) -> DecoderStep:
        """`decode_step` without the output projection."""
        bounds = self.inference_bounds
        embeddings = self._embedded(self.target_embedding, ids, bounds)
        return self.decoder.step(embeddings, state, memory, rows, bounds.clip_bound)

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the model."""
        return {
            "config": self.config.model_dump(),
            "vocab_size": self.vocab_size,
            "constrained": self.constrained,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "GNMT":
        """The inverse of `get_config`."""
        return cls(**(config | {"config": ModelConfig(**config["config"])}))


def _embedding(config: ModelConfig, vocab_size: int, name: str) -> keras.layers.Embedding:
    return keras.layers.Embedding(
        vocab_size,
        config.embedding_size,
        embeddings_initializer=uniform(config.embedding_init_scale or config.init_scale),
        name=name,
    )

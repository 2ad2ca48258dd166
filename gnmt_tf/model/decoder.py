"""The decoder of section 3: whole target sequences in training, one step at a time in the search.

Reads embedded target pieces and the attention's memory; gives the top layer's outputs, from which the logits come.
"""

import contextlib
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import ModelConfig
from gnmt_tf.layers.attention_lstm import AttentionLSTM
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.layers.clipped_lstm import ClippedLSTM
from gnmt_tf.layers.clipping import clip
from gnmt_tf.layers.dropout import Dropout, apply_dropout, drop_pieces
from gnmt_tf.layers.placement import ONE_DEVICE, Placement
from gnmt_tf.layers.products import project
from gnmt_tf.model.encoder import lstm_layer

FIRST_PLACE = 256
"""Dropout places of the decoder start here; those of the encoder lie below."""
CONTEXT_PLACE = FIRST_PLACE + 1
TOP_PLACE = 2 * FIRST_PLACE
TARGET_PIECES_PLACE = TOP_PLACE + 1


class DecoderState(NamedTuple):
    """Everything a hypothesis carries from step to step: c and m, float [rows, num_layers, num_units]."""

    c: tf.Tensor
    m: tf.Tensor


class DecoderMemory(NamedTuple):
    """What the steps of a search read of each source sentence.

    Fields:
      keys: float [batch_size, source_length, attention_units], as in AttentionMemory.
      score_bias: float [batch_size, source_length], as in AttentionMemory.
      context_sums: float [batch_size, source_length, num_layers * 4 * num_units], the memory's values through the part
        of each layer's kernel that meets the context. The context is a weighted mean of values, and a layer's product
        with it the same mean of these: for a few source pieces that is far less work at each step than the product.
    """

    keys: tf.Tensor
    score_bias: tf.Tensor
    context_sums: tf.Tensor


class Rows(NamedTuple):
    """Which hypotheses of a batch of sentences a step is made for.

    A sentence has a fixed number of slots for hypotheses, its beam width. Only filled slots need a row.

    Fields:
      slots: int32 [rows], the slot of each row, counted through all sentences.
      row_of_slot: int32 [batch_size, beam_width], the row of each slot; any row at a slot that has none.
    """

    slots: tf.Tensor
    row_of_slot: tf.Tensor

    @property
    def sentences(self) -> tf.Tensor:
        """int32 [rows], the sentence of each row."""
        return self.slots // (self.row_of_slot.shape[1] or tf.shape(self.row_of_slot)[1])

    def by_slot(self, values: tf.Tensor) -> tf.Tensor:
        """[rows, n] -> [batch_size, beam_width, n]; any values at slots without a row."""
        return tf.gather(values, self.row_of_slot)

    def by_row(self, values: tf.Tensor) -> tf.Tensor:
        """[batch_size, beam_width, n] -> [rows, n]."""
        return tf.gather(tf.reshape(values, [-1, values.shape[-1]]), self.slots)


def one_row_each(batch_size: int | tf.Tensor) -> Rows:
    """One hypothesis of every sentence."""
    slots = tf.range(batch_size)
    return Rows(slots, slots[:, None])


class DecoderStep(NamedTuple):
    """One step.

    Fields:
      outputs: float [rows, num_units].
      state: after the step, of the same rows.
      attention_probs: float [batch_size, beam_width, source_length].
    """

    outputs: tf.Tensor
    state: DecoderState
    attention_probs: tf.Tensor


class Decoder(keras.layers.Layer):
    """Attention layer at the bottom, LSTM layers above, the context an input of every one.

    Call: `decoder(embeddings, memory, clip_bound, dropout=None)` with embeddings float [batch_size, target_length,
    embedding_size]; gives float [batch_size, target_length, num_units] and attention probabilities float [batch_size,
    target_length, source_length]. Padding on the right of the target needs no mask; that of the source is in `memory`.

    Args:
      config: shape of the model.
      memory_size: width of the encoder's outputs.
      placement: where its layers are.
    """

    def __init__(self, config: ModelConfig, memory_size: int, placement: Placement = ONE_DEVICE, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self._placement = placement
        self.config = config
        self.memory_size = memory_size
        self.bottom_layer = AttentionLSTM(
            lstm_layer(config, "lstm"), config.attention_units, memory_size, config.init_scale, name="bottom"
        )
        self.upper_layers = [lstm_layer(config, f"layer_{i}") for i in range(2, config.num_decoder_layers + 1)]

    def build(self, input_shape: Any) -> None:
        """Makes the weights of all layers."""
        with self._device(1), tf.name_scope(self.bottom_layer.name):
            self.bottom_layer.build([None, input_shape[-1]])
        for number, layer in enumerate(self.upper_layers, start=2):
            with self._device(number), tf.name_scope(layer.name):
                layer.build([None, self.config.num_units + self.memory_size])
        self.built = True

    def call(
        self, embeddings: tf.Tensor, memory: AttentionMemory, clip_bound: tf.Tensor, dropout: Dropout | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See the class."""
        inputs = tf.transpose(clip(embeddings, clip_bound), [1, 0, 2])
        inputs = drop_pieces(inputs, dropout, dropout.target_rate if dropout else 0.0, TARGET_PIECES_PLACE)
        context_scale = None
        if dropout is not None and dropout.rate:
            shape = [*(size or tf.shape(inputs)[axis] for axis, size in enumerate(inputs.shape[:2])), self.memory_size]
            context_scale = dropout.scale(shape, CONTEXT_PLACE, inputs.dtype)
        inputs = apply_dropout(inputs, dropout, place=FIRST_PLACE)
        with self._device(1):
            bottom = self.bottom_layer(inputs, memory, clip_bound, context_scale)
        outputs = bottom.outputs
        for number, layer in enumerate(self.upper_layers, start=2):
            below = outputs
            with self._device(number):
                read = tf.concat([below, bottom.contexts], axis=-1)
                outputs = layer(apply_dropout(read, dropout, place=FIRST_PLACE + number), clip_bound)
                outputs = self._residual(outputs, below, number, clip_bound)
        outputs = apply_dropout(outputs, dropout, place=TOP_PLACE)
        return tf.transpose(outputs, [1, 0, 2]), tf.transpose(bottom.attention_probs, [1, 0, 2])

    def initial_state(self, num_rows: int | tf.Tensor, dtype: tf.DType = tf.float32) -> DecoderState:
        """The zero state. The paper does not carry the encoder's last state over: the attention alone joins them."""
        zeros = tf.zeros([num_rows, self.config.num_decoder_layers, self.config.num_units], dtype)
        return DecoderState(zeros, zeros)

    def start(self, memory: AttentionMemory) -> DecoderMemory:
        """What `step` reads of the sentences, from the encoder's memory."""
        sums = []
        for number, layer in enumerate(self._lstms, start=1):
            with self._device(number):
                sums.append(project(memory.values, layer.kernels()[0][-self.memory_size :]))
        return DecoderMemory(memory.keys, memory.score_bias, tf.concat(sums, axis=-1))

    def step(
        self,
        embeddings: tf.Tensor,
        state: DecoderState,
        memory: DecoderMemory,
        rows: Rows,
        clip_bound: tf.Tensor | float,
    ) -> DecoderStep:
        """One step without dropout: embeddings float [rows, embedding_size], the state of the same rows."""
        previous = list(zip(tf.unstack(state.c, axis=1), tf.unstack(state.m, axis=1), strict=True))
        bottom = self.bottom_layer
        with self._device(1):
            queries = tf.matmul(previous[0][1], bottom.query_kernel)
            keys, score_bias = (tf.gather(values, rows.sentences) for values in (memory.keys, memory.score_bias))
            probs = rows.by_slot(bottom.probabilities(queries, keys, score_bias))
            context_sums = tf.split(rows.by_row(tf.matmul(probs, memory.context_sums)), len(previous), axis=-1)
        states: list[tuple[tf.Tensor, tf.Tensor]] = []
        outputs = clip(embeddings, clip_bound)
        for number, layer in enumerate(self._lstms, start=1):
            below = outputs
            with self._device(number):
                states.append(layer.step(below, previous[number - 1], context_sums[number - 1], clip_bound))
                outputs = self._residual(states[-1][1], below, number, clip_bound)
        c, m = (tf.stack(values, axis=1) for values in zip(*states, strict=True))
        return DecoderStep(outputs, DecoderState(c, m), probs)

    @property
    def _lstms(self) -> list[ClippedLSTM]:
        return [self.bottom_layer.lstm, *self.upper_layers]

    def _device(self, number: int) -> contextlib.AbstractContextManager[Any]:
        return self._placement.device(f"decoder/{number}")

    def _residual(self, outputs: tf.Tensor, below: tf.Tensor, number: int, clip_bound: tf.Tensor | float) -> tf.Tensor:
        if number < self.config.first_residual_layer:
            return outputs
        return clip(outputs + below, clip_bound)

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the layer."""
        return super().get_config() | {"config": self.config.model_dump(), "memory_size": self.memory_size}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Decoder":
        """The inverse of `get_config`."""
        return cls(**(config | {"config": ModelConfig(**config["config"])}))

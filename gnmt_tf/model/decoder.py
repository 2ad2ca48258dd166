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
from gnmt_tf.layers.clipping import clip
from gnmt_tf.layers.dropout import Dropout, apply_dropout, drop_pieces
from gnmt_tf.layers.placement import ONE_DEVICE, Placement
from gnmt_tf.model.encoder import lstm_layer

FIRST_PLACE = 256
"""Dropout places of the decoder start here; those of the encoder lie below."""
CONTEXT_PLACE = FIRST_PLACE + 1
TOP_PLACE = 2 * FIRST_PLACE
TARGET_PIECES_PLACE = TOP_PLACE + 1


class DecoderState(NamedTuple):
    """Everything a hypothesis carries from step to step: c and m, float [batch_size, num_layers, num_units]."""

    c: tf.Tensor
    m: tf.Tensor


class DecoderStep(NamedTuple):
    """One step: outputs [batch_size, num_units], the new state, attention_probs [batch_size, source_length]."""

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

    def initial_state(self, batch_size: int | tf.Tensor, dtype: tf.DType = tf.float32) -> DecoderState:
        """The zero state. The paper does not carry the encoder's last state over: the attention alone joins them."""
        zeros = tf.zeros([batch_size, self.config.num_decoder_layers, self.config.num_units], dtype)
        return DecoderState(zeros, zeros)

    def step(
        self, embeddings: tf.Tensor, state: DecoderState, memory: AttentionMemory, clip_bound: tf.Tensor | float
    ) -> DecoderStep:
        """One step without dropout: embeddings float [batch_size, embedding_size]."""
        previous = list(zip(tf.unstack(state.c, axis=1), tf.unstack(state.m, axis=1), strict=True))
        with self._device(1):
            bottom = self.bottom_layer.step(clip(embeddings, clip_bound), *previous[0], memory, clip_bound)
        states = [(bottom.c, bottom.m)]
        outputs = bottom.m
        for number, layer in enumerate(self.upper_layers, start=2):
            below = outputs
            with self._device(number):
                read = tf.concat([below, bottom.context], axis=-1)
                states.append(layer.step(read, *previous[number - 1], clip_bound))
                outputs = self._residual(states[-1][1], below, number, clip_bound)
        c, m = (tf.stack(values, axis=1) for values in zip(*states, strict=True))
        return DecoderStep(outputs, DecoderState(c, m), bottom.attention_probs)

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

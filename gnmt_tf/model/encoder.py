"""The encoder of section 3: one bidirectional layer below, one-directional layers above, residuals from the third.

Reads embedded source pieces; gives the top layer's outputs, which the attention reads.
"""

import contextlib
from typing import Any

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import ModelConfig
from gnmt_tf.layers.clipped_lstm import ClippedLSTM
from gnmt_tf.layers.clipping import clip
from gnmt_tf.layers.dropout import Dropout, apply_dropout, drop_pieces
from gnmt_tf.layers.placement import ONE_DEVICE, Placement

SOURCE_PIECES_PLACE = 255
"""Dropout place of the source pieces; those of the layers count up from 0."""


def lstm_layer(config: ModelConfig, name: str) -> ClippedLSTM:
    """A layer of either stack."""
    return ClippedLSTM(
        config.num_units, config.output_activation, config.init_scale, config.forget_gate_bias, name=name
    )


class Encoder(keras.layers.Layer):
    """Stack of LSTM layers over the source.

    Call: `encoder(embeddings, lengths, clip_bound, dropout=None)` with embeddings float [batch_size, source_length,
    embedding_size] and lengths int32 [batch_size]; gives float [batch_size, source_length, num_units]. Positions after
    a sentence's end hold values that only the attention's mask keeps out.

    Args:
      config: shape of the model.
      placement: where its layers are.
    """

    def __init__(self, config: ModelConfig, placement: Placement = ONE_DEVICE, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.config = config
        self._placement = placement
        self.forward_layer = lstm_layer(config, "forward")
        self.backward_layer = lstm_layer(config, "backward")
        self.upper_layers = [lstm_layer(config, f"layer_{i}") for i in range(2, config.num_encoder_layers + 1)]

    @property
    def output_size(self) -> int:
        """Width of the outputs: both directions of the bottom layer when it is the only one."""
        return self.config.num_units if self.upper_layers else 2 * self.config.num_units

    def build(self, input_shape: Any) -> None:
        """Makes the weights of all layers."""
        for layer in (self.forward_layer, self.backward_layer):
            with self._device(1), tf.name_scope(layer.name):
                layer.build([None, input_shape[-1]])
        size = 2 * self.config.num_units
        for number, layer in enumerate(self.upper_layers, start=2):
            with self._device(number), tf.name_scope(layer.name):
                layer.build([None, size])
            size = self.config.num_units
        self.built = True

    def call(
        self, embeddings: tf.Tensor, lengths: tf.Tensor, clip_bound: tf.Tensor, dropout: Dropout | None = None
    ) -> tf.Tensor:
        """See the class."""
        with self._device(1):
            inputs = tf.transpose(clip(embeddings, clip_bound), [1, 0, 2])
            inputs = drop_pieces(inputs, dropout, dropout.source_rate if dropout else 0.0, SOURCE_PIECES_PLACE)
            inputs = apply_dropout(inputs, dropout, place=0)
            backward_inputs = _reverse(inputs, lengths)
            outputs = tf.concat(
                [
                    self.forward_layer(inputs, clip_bound),
                    _reverse(self.backward_layer(backward_inputs, clip_bound), lengths),
                ],
                axis=-1,
            )
        for number, layer in enumerate(self.upper_layers, start=2):
            below = outputs
            with self._device(number):
                outputs = layer(apply_dropout(below, dropout, place=number), clip_bound)
                if number >= self.config.first_residual_layer:
                    outputs = clip(outputs + below, clip_bound)
        return tf.transpose(outputs, [1, 0, 2])

    def _device(self, number: int) -> contextlib.AbstractContextManager[Any]:
        return self._placement.device(f"encoder/{number}")

    def get_config(self) -> dict[str, Any]:
        """Arguments that rebuild the layer."""
        return super().get_config() | {"config": self.config.model_dump()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Encoder":
        """The inverse of `get_config`."""
        return cls(**(config | {"config": ModelConfig(**config["config"])}))


def _reverse(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    # Padding stays on the right, so that the backward direction starts at each sentence's own last piece.
    return tf.reverse_sequence(values, lengths, seq_axis=0, batch_axis=1)

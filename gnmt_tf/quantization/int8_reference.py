"""The quantised model in NumPy: what the C++ engine must give, bit for bit (paper, section 6).

Reads a trained GNMT; gives the encoder's memory and one decoding step after the other. LSTM states and outputs are
16-bit integers, every matrix product of an LSTM and of the output projection is int8 by int8, embeddings are int8 with
a scale for each piece; attention and softmax are float32. What goes into a product is quantised row by row, each row by
its own largest magnitude, so that no row depends on another.
"""

from typing import NamedTuple

import numpy as np

from gnmt_tf.config import UserError
from gnmt_tf.layers.clipped_lstm import ClippedLSTM
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization import float_math
from gnmt_tf.quantization.fixed_point import (
    GATE_INPUT_SCALE,
    INT16_MAX,
    QuantizedActivations,
    clamp16,
    gate_inputs,
    multiply,
    products,
    quantize_fixed,
    quantize_float,
    sigmoid16,
    tanh16,
)
from gnmt_tf.quantization.row_wise import INT8_MAX, QuantizedRows, quantize_rows

NEGATIVE_INFINITY = np.float32(-np.inf)


class QuantizedLSTM(NamedTuple):
    """An LSTM layer by output units: those of the gates i, i', f and o, one after the other.

    Fields:
      inputs: int8 [4 * num_units, input_size], then what meets the context (if any), then the layer's own output.
      row_scales: float32 [4 * num_units], row_max / 127 times what turns the sum into a gate's input: 4096 for i', 2048
        for a sigmoid, which is computed from half of its input.
      biases: float32 [4 * num_units], times the same.
      input_sizes: widths of the parts of `inputs`, which are quantised apart.
    """

    inputs: np.ndarray
    row_scales: np.ndarray
    biases: np.ndarray
    input_sizes: tuple[int, ...]


class QuantizedMemory(NamedTuple):
    """What decoding reads of one sentence.

    Fields:
      values: float32 [source_length, memory_size].
      keys: float32 [source_length, attention_units].
    """

    values: np.ndarray
    keys: np.ndarray


class QuantizedState(NamedTuple):
    """State of the decoder, int16 [num_layers, rows, num_units] each."""

    c: np.ndarray
    m: np.ndarray


class QuantizedStep(NamedTuple):
    """One step: log_probs float32 [rows, vocab_size], the state, attention_probs float32 [rows, source_length]."""

    log_probs: np.ndarray
    state: QuantizedState
    attention_probs: np.ndarray


def float_rows(model: GNMT) -> dict[str, np.ndarray]:
    """What is quantised of a model, by output units: float32 [num_rows, row_size] by name.

    Embeddings have a row for each piece, under the clip; an LSTM layer has 4 * num_units, those of the gates i, i', f
    and o, each with what meets the inputs and then the layer's own output; the projection has one for each piece.
    """
    bound = model.config.clip_bound
    rows = {
        layer.name: np.clip(layer.embeddings.numpy(), -bound, bound)
        for layer in (model.source_embedding, model.target_embedding)
    }
    encoder, decoder = model.encoder, model.decoder
    lstms = {f"encoder/{layer.name}": layer for layer in (encoder.forward_layer, encoder.backward_layer)}
    lstms |= {f"encoder/{layer.name}": layer for layer in encoder.upper_layers}
    lstms |= {f"decoder/{decoder.bottom_layer.name}": decoder.bottom_layer.lstm}
    lstms |= {f"decoder/{layer.name}": layer for layer in decoder.upper_layers}
    for name, layer in lstms.items():
        rows[name] = np.concatenate([layer.kernel.numpy(), layer.recurrent_kernel.numpy()]).T
    kernel, _ = model.output_projection.part(np.arange(model.vocab_size), model.tied_embeddings)
    return rows | {"output_projection": kernel.numpy().T}


class Int8Reference:
    """GNMT with quantised weights.

    Args:
      model: a trained, constrained model.

    Raises:
      UserError: it was trained without the clipping constraints, or with a clip bound below 1.
    """

    def __init__(self, model: GNMT):
        config = model.config
        if not model.constrained or config.clip_bound < 1.0:
            raise UserError(
                "the model to quantise",
                "one trained with training.constrained and a model.clip_bound of at least 1",
                f"constrained {model.constrained}, clip_bound {config.clip_bound}",
                "Train it with the clipping constraints of section 6.",
            )
        self.config = config
        self.vocab_size = model.vocab_size
        clip_bound = float(np.float32(config.clip_bound))
        self.unit = np.float32(clip_bound / INT16_MAX)
        self.one = min(round(32768 / clip_bound), INT16_MAX)
        encoder, decoder = model.encoder, model.decoder
        rows = {name: quantize_rows(values) for name, values in float_rows(model).items()}
        self.source_embeddings = _embeddings(rows[model.source_embedding.name])
        self.target_embeddings = _embeddings(rows[model.target_embedding.name])
        embedding_size, num_units = config.embedding_size, config.num_units
        self.encoder_bottom = [
            _lstm(layer, rows[f"encoder/{layer.name}"], (embedding_size,))
            for layer in (encoder.forward_layer, encoder.backward_layer)
        ]
        self.encoder_layers = [
            _lstm(layer, rows[f"encoder/{layer.name}"], (layer.kernel.shape[0],)) for layer in encoder.upper_layers
        ]
        attention, memory_size = decoder.bottom_layer, decoder.memory_size
        self.decoder_layers = [
            _lstm(attention.lstm, rows[f"decoder/{attention.name}"], (embedding_size, memory_size)),
            *(_lstm(layer, rows[f"decoder/{layer.name}"], (num_units, memory_size)) for layer in decoder.upper_layers),
        ]
        self.query_kernel, self.key_kernel, self.key_bias, self.score_kernel = (
            weight.numpy()
            for weight in (attention.query_kernel, attention.key_kernel, attention.key_bias, attention.score_kernel)
        )
        projection = rows["output_projection"]
        self.projection = projection.values
        self.projection_scales = projection.row_max / np.float32(INT8_MAX)
        self.projection_bias = model.output_projection.bias.numpy()

    def weights(self) -> list[np.ndarray]:
        """All weights in the order that the engine takes them.

        Source embeddings int8 [vocab_size, embedding_size] and scales float32 [vocab_size], the same of the target; of
        each LSTM layer (encoder: forward, backward, upper ones; decoder) int8 [4 * num_units, input_size], row scales
        and biases float32 [4 * num_units]; query, key, key bias and score kernels; projection int8 [vocab_size,
        num_units], its scales and its biases.
        """
        weights = [*self.source_embeddings, *self.target_embeddings]
        for layer in [*self.encoder_bottom, *self.encoder_layers, *self.decoder_layers]:
            weights += [layer.inputs, layer.row_scales, layer.biases]
        weights += [self.query_kernel, self.key_kernel, self.key_bias, self.score_kernel]
        weights += [self.projection, self.projection_scales, self.projection_bias]
        return [np.ascontiguousarray(values) for values in weights]

    def encode(self, source_ids: np.ndarray) -> QuantizedMemory:
        """Runs the encoder on one sentence: int [source_length], `</s>` last."""
        embedded = QuantizedActivations(
            self.source_embeddings.values[source_ids], self.source_embeddings.row_max[source_ids]
        )
        forward = self._run(self.encoder_bottom[0], embedded)
        backward = self._run(self.encoder_bottom[1], QuantizedActivations(*(part[::-1] for part in embedded)))[::-1]
        outputs = np.concatenate([forward, backward], axis=1)
        for number, layer in enumerate(self.encoder_layers, start=2):
            below = outputs
            outputs = self._run(layer, quantize_fixed(below, self.unit))
            outputs = self._residual(outputs, below, number)
        values = outputs.astype(np.float32) * self.unit
        return QuantizedMemory(values, float_math.project(values, self.key_kernel, self.key_bias))

    def initial_state(self, num_rows: int) -> QuantizedState:
        """The zero state."""
        zeros = np.zeros([len(self.decoder_layers), num_rows, self.config.num_units], np.int16)
        return QuantizedState(zeros, zeros)

    def step(self, ids: np.ndarray, state: QuantizedState, memory: QuantizedMemory) -> QuantizedStep:
        """Feeds one piece to each row of hypotheses of one sentence: int [rows]."""
        probs = self.attention(state.m[0], memory)
        # Each sum adds its products in the order of the source pieces.
        context = float_math.project(probs, memory.values)
        quantized_context = quantize_float(context)
        inputs = QuantizedActivations(self.target_embeddings.values[ids], self.target_embeddings.row_max[ids])
        outputs = np.zeros([len(ids), 0], np.int16)
        new_c, new_m = [], []
        for number, layer in enumerate(self.decoder_layers, start=1):
            below = outputs
            own = quantize_fixed(state.m[number - 1], self.unit)
            c, m = self._cell(layer, [inputs, quantized_context, own], state.c[number - 1])
            outputs = self._residual(m, below, number)
            inputs = quantize_fixed(outputs, self.unit)
            new_c.append(c)
            new_m.append(m)
        return QuantizedStep(self.log_probs(inputs), QuantizedState(np.stack(new_c), np.stack(new_m)), probs)

    def attention(self, m: np.ndarray, memory: QuantizedMemory) -> np.ndarray:
        """Eq. 4 from the bottom layer's last output, int16 [rows, num_units] -> float32 [rows, source_length]."""
        queries = float_math.project(m.astype(np.float32) * self.unit, self.query_kernel)
        hidden = float_math.tanh(memory.keys[None] + queries[:, None])
        return float_math.softmax(float_math.lane_sum(hidden * self.score_kernel))

    def log_probs(self, outputs: QuantizedActivations) -> np.ndarray:
        """The softmax layer: float32 [rows, vocab_size]."""
        logits = self.logits(outputs)
        return logits - float_math.log_normaliser(logits, np.float32(self.config.logit_bound))[:, None]

    def logits(self, outputs: QuantizedActivations) -> np.ndarray:
        """With the clip of eq. 13: float32 [rows, vocab_size]."""
        sums = products(self.projection, outputs.values).astype(np.float32) * outputs.scales[:, None]
        logits = sums * self.projection_scales + self.projection_bias
        bound = np.float32(self.config.logit_bound)
        return np.clip(logits, -bound, bound)

    def _run(self, layer: QuantizedLSTM, inputs: QuantizedActivations) -> np.ndarray:
        """A whole sequence of one sentence: int16 [length, num_units]."""
        c = m = np.zeros([1, self.config.num_units], np.int16)
        outputs = []
        for t in range(len(inputs.values)):
            at_t = QuantizedActivations(inputs.values[t : t + 1], inputs.scales[t : t + 1])
            c, m = self._cell(layer, [at_t, quantize_fixed(m, self.unit)], c)
            outputs.append(m)
        return np.concatenate(outputs)

    def _cell(
        self, layer: QuantizedLSTM, inputs: list[QuantizedActivations], c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Eq. 11 with eq. 10: c int16 [rows, num_units] -> the new c and m."""
        i, candidate, f, o = np.split(self._gate_inputs(layer, inputs), 4, axis=1)
        added = multiply(multiply(sigmoid16(i), tanh16(candidate)), self.one)
        c = clamp16(multiply(c, sigmoid16(f)).astype(np.int32) + added)
        return c, multiply(self._activated(c), sigmoid16(o))

    def _gate_inputs(self, layer: QuantizedLSTM, inputs: list[QuantizedActivations]) -> np.ndarray:
        """int16 [rows, 4 * num_units]."""
        sums, first = np.zeros([len(inputs[0].values), len(layer.biases)], np.float32), 0
        for part in inputs:
            size = part.values.shape[1]
            weights = layer.inputs[:, first : first + size]
            sums = sums + products(weights, part.values).astype(np.float32) * part.scales[:, None]
            first += size
        return gate_inputs(sums * layer.row_scales + layer.biases)

    def _activated(self, c: np.ndarray) -> np.ndarray:
        if self.config.output_activation == "linear":
            return c
        sums = c.astype(np.float32) * (self.unit * np.float32(GATE_INPUT_SCALE))
        return multiply(tanh16(gate_inputs(sums)), self.one)

    def _residual(self, outputs: np.ndarray, below: np.ndarray, number: int) -> np.ndarray:
        if number < self.config.first_residual_layer:
            return outputs
        return clamp16(outputs.astype(np.int32) + below)


def _embeddings(rows: QuantizedRows) -> QuantizedRows:
    """Embeddings with their scales in the place of `row_max`."""
    return QuantizedRows(rows.values, rows.row_max / np.float32(INT8_MAX))


def _lstm(layer: ClippedLSTM, rows: QuantizedRows, input_sizes: tuple[int, ...]) -> QuantizedLSTM:
    half, whole = np.float32(GATE_INPUT_SCALE / 2), np.float32(GATE_INPUT_SCALE)
    factors = np.repeat(np.array([half, whole, half, half], np.float32), layer.num_units)
    return QuantizedLSTM(
        rows.values,
        rows.row_max / np.float32(INT8_MAX) * factors,
        layer.bias.numpy() * factors,
        (*input_sizes, layer.num_units),
    )

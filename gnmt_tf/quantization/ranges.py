"""Where the integers of the quantised model reach the end of their range, on real sentences.

Reads a model and sentence pairs as piece ids; gives, layer by layer, how much was held at a bound. What is held there
often was cut, and is where a quantised model loses what the float one knows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gnmt_tf.data.parallel_text import PieceCorpus
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.fixed_point import INT16_MAX, QuantizedActivations
from gnmt_tf.quantization.int8_reference import Int8Reference, QuantizedLSTM
from gnmt_tf.text.vocabulary import END_ID, START_ID


class LayerRanges(NamedTuple):
    """Shares in [0, 1] of what a layer computed.

    Fields:
      name: as in `float_rows`.
      gates_cut: gate inputs at 8 or beyond, where the tables end.
      states_cut: cell states c at the clip bound.
      outputs_cut: sums of residual connections at the clip bound; 0 where there is none. Logits at theirs, for the
        output projection.
      input_error: what rounding to int8 changes of the rows that enter the product, root mean square as a share of
        theirs; the mean over rows.
    """

    name: str
    gates_cut: float
    states_cut: float
    outputs_cut: float
    input_error: float


class Ranges(NamedTuple):
    """All layers, the output projection last, and the quantised model's log perplexity (nats per target piece)."""

    layers: list[LayerRanges]
    log_perplexity: float


class _Share:
    def __init__(self) -> None:
        self.part = self.whole = 0.0

    def add(self, values: np.ndarray) -> None:
        self.part += float(values.sum())
        self.whole += values.size

    def __float__(self) -> float:
        return self.part / self.whole if self.whole else 0.0


class _Observed:
    def __init__(self) -> None:
        self.gates, self.states, self.outputs, self.errors = _Share(), _Share(), _Share(), _Share()

    def add_inputs(self, rows: QuantizedActivations) -> None:
        # Rounding errors are spread evenly over one step of the integers.
        size = np.sqrt(np.mean(rows.values.astype(np.float32) ** 2, axis=-1))
        self.errors.add(np.divide(np.float32(12.0**-0.5), size, out=np.zeros_like(size), where=size > 0))

    def ranges(self, name: str) -> LayerRanges:
        return LayerRanges(name, *map(float, (self.gates, self.states, self.outputs, self.errors)))


class _ObservedReference(Int8Reference):
    # The reference, which writes down what it sees on its way.

    def __init__(self, model: GNMT):
        super().__init__(model)
        encoder, decoder = model.encoder, model.decoder
        encoder_names = [layer.name for layer in (encoder.forward_layer, encoder.backward_layer, *encoder.upper_layers)]
        decoder_names = [decoder.bottom_layer.name, *(layer.name for layer in decoder.upper_layers)]
        layers = [*self.encoder_bottom, *self.encoder_layers, *self.decoder_layers]
        names = [f"encoder/{name}" for name in encoder_names] + [f"decoder/{name}" for name in decoder_names]
        self._names = {id(layer): name for layer, name in zip(layers, names, strict=True)}
        self._last = ""
        self.observed = {name: _Observed() for name in [*names, "output_projection"]}

    def _gate_inputs(self, layer: QuantizedLSTM, inputs: list[QuantizedActivations]) -> np.ndarray:
        self._last = self._names[id(layer)]
        for rows in inputs:
            self.observed[self._last].add_inputs(rows)
        values = super()._gate_inputs(layer, inputs)
        self.observed[self._last].gates.add(np.abs(values) == INT16_MAX)
        return values

    def _cell(self, layer: QuantizedLSTM, inputs: list[QuantizedActivations], c: np.ndarray) -> Any:
        c, m = super()._cell(layer, inputs, c)
        self.observed[self._last].states.add(np.abs(c) == INT16_MAX)
        return c, m

    def _residual(self, outputs: np.ndarray, below: np.ndarray, number: int) -> np.ndarray:
        sums = super()._residual(outputs, below, number)
        if number >= self.config.first_residual_layer:
            self.observed[self._last].outputs.add(np.abs(sums) == INT16_MAX)
        return sums

    def logits(self, outputs: QuantizedActivations) -> np.ndarray:
        values = super().logits(outputs)
        observed = self.observed["output_projection"]
        observed.add_inputs(outputs)
        observed.outputs.add(np.abs(values) >= self.config.logit_bound)
        return values


def measure_ranges(model: GNMT, corpus: PieceCorpus, progress: Callable[[int], None] | None = None) -> Ranges:
    """Reads the sentences in the quantised model, each target piece after the right ones before it.

    Args:
      model: trained and constrained.
      corpus: the sentence pairs.
      progress: called after each pair with the number of those done.

    Raises:
      UserError: as `Int8Reference`.
    """
    reference = _ObservedReference(model)
    total = count = 0.0
    for number in range(corpus.num_pairs):
        source, target = (np.append(side[number], END_ID) for side in (corpus.source, corpus.target))
        memory, state = reference.encode(source), reference.initial_state(1)
        for before, piece in zip([START_ID, *target[:-1]], target, strict=True):
            step = reference.step(np.array([before]), state, memory)
            state = step.state
            total -= float(step.log_probs[0, piece])
            count += 1.0
        if progress is not None:
            progress(number + 1)
    return Ranges([seen.ranges(name) for name, seen in reference.observed.items()], total / count)

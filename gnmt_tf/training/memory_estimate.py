"""What a training step needs to hold, from the shapes of the equations: shown at the start, named when memory runs out.

Reads a Config and batch shapes; gives bytes.
"""

from typing import NamedTuple

from gnmt_tf.config import Config
from gnmt_tf.layers.projected_cross_entropy import ROWS_PER_SLICE

FLOAT_BYTES = 4
GIB = 2.0**30


class MemoryEstimate(NamedTuple):
    """Bytes at the peak of one training step; the program itself and the compiler's temporaries come on top.

    Fields:
      weights: the parameters.
      gradients: as many, and their sums when batches are accumulated.
      optimizer: Adam's two moments, and the running average of the weights.
      activations: what backpropagation reads of every position, and one slice of logits with its gradient.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value / GIB:.2f}" for name, value in self._asdict().items())
        return f"{self.total / GIB:.2f} GiB ({parts})"


def estimate_memory(
    config: Config, num_parameters: int, vocab_size: int, batch_size: int, source_length: int, target_length: int
) -> MemoryEstimate:
    """Estimates one step with batches of [batch_size, source_length] and [batch_size, target_length].

    Activations of an LSTM layer are its four gates, c and m; those of a residual the sum; beside them there are the
    embeddings, the attention's keys, contexts and probabilities. The hidden layer of the attention and the logits of a
    whole batch are not among them, since the one is made again and the others are used up slice by slice.
    """
    model, training = config.model, config.training
    weights = num_parameters * FLOAT_BYTES
    memory_size = model.num_units if model.num_encoder_layers > 1 else 2 * model.num_units
    source = _stack(model.num_encoder_layers + 1, model.num_units)
    source += _residuals(model.num_encoder_layers, model.first_residual_layer, model.num_units)
    source += model.embedding_size + model.attention_units
    target = _stack(model.num_decoder_layers, model.num_units)
    target += _residuals(model.num_decoder_layers, model.first_residual_layer, model.num_units)
    target += model.embedding_size + memory_size + source_length
    logits = 2 * min(ROWS_PER_SLICE, batch_size * target_length) * vocab_size
    activations = batch_size * (source_length * source + target_length * target) + logits
    return MemoryEstimate(
        weights,
        weights * (2 if training.accumulate_batches > 1 else 1),
        weights * (3 if training.average_decay is not None else 2),
        activations * FLOAT_BYTES,
    )


def _stack(num_layers: int, num_units: int) -> int:
    return 6 * num_units * num_layers


def _residuals(num_layers: int, first: int, num_units: int) -> int:
    return num_units * max(num_layers - first + 1, 0)

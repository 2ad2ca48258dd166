"""Several models as one: their log-probabilities averaged at every step."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.model.decoder import Rows
from gnmt_tf.model.gnmt import GNMT, GNMTStep, Scored


class Ensemble:
    """Models of the same vocabulary, whatever their shapes, searched together.

    The mean of their log-probabilities stands where a single model has its logits; the search normalises it again. The
    attention is the mean of theirs.

    Args:
      models: at least one.
    """

    def __init__(self, models: Sequence[GNMT]):
        self.models = list(models)

    def encode(self, source_ids: tf.Tensor, source_lengths: tf.Tensor) -> tuple[Any, ...]:
        """The memories of all models."""
        return tuple(model.encode(source_ids, source_lengths) for model in self.models)

    def scored(self, batch: Batch) -> Scored:
        """As GNMT's, the mean log-probabilities in place of logits."""
        scored = [model.scored(batch) for model in self.models]
        log_probs = sum(tf.nn.log_softmax(one.logits) for one in scored) / len(scored)
        return Scored(log_probs, sum(one.attention_probs for one in scored) / len(scored))

    def start(self, memory: tuple[Any, ...]) -> tuple[Any, ...]:
        """See StepModel."""
        return tuple(model.start(values) for model, values in zip(self.models, memory, strict=True))

    def initial_state(self, num_rows: int | tf.Tensor) -> tuple[Any, ...]:
        """See StepModel."""
        return tuple(model.initial_state(num_rows) for model in self.models)

    def decode_step(self, ids: tf.Tensor, state: Any, memory: Any, rows: Rows) -> GNMTStep:
        """See StepModel."""
        steps = [
            model.decode_step(ids, values, sentences, rows)
            for model, values, sentences in zip(self.models, state, memory, strict=True)
        ]
        log_probs = sum(tf.nn.log_softmax(step.logits) for step in steps) / len(steps)
        probs = sum(step.attention_probs for step in steps) / len(steps)
        return GNMTStep(log_probs, tuple(step.state for step in steps), probs)

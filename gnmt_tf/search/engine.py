"""What a translator or a SavedModel asks of whatever does the work: the float model or the quantised engine."""

from typing import Any, Protocol

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.data.batch import Batch
from gnmt_tf.search.history import BeamResult


class Engine(Protocol):
    """Translates and scores batches of ids."""

    tracked: list[Any]
    """What of it a SavedModel has to hold."""

    def search(
        self, source_ids: tf.Tensor, source_lengths: tf.Tensor, search: SearchConfig, keep_attention: bool
    ) -> BeamResult:
        """Beam search: ids int32 [rows, source_length], lengths int32 [rows]."""

    def piece_log_probs(self, batch: Batch) -> tf.Tensor:
        """log P of each target piece, float32 [rows, target_length]; anything behind the ends."""

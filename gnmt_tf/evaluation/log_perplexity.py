"""Log perplexity of references under a model: what Table 1 and Figure 4 of the paper plot."""

import numpy as np
import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.data.batches import pad_batch
from gnmt_tf.data.parallel_text import PieceCorpus
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.model.loss import LossSums, loss_sums
from gnmt_tf.search.engine import Engine
from gnmt_tf.search.ensemble import Ensemble


class LogPerplexity:
    """Measures -log P(Y|X) / |Y| in nats per target piece, `</s>` counted, under the bounds of inference.

    Args:
      model: the network, or several, or an engine; weights are read at each call.
      batch_size: sentences scored together.
    """

    def __init__(self, model: GNMT | Ensemble | Engine, batch_size: int):
        self.batch_size = batch_size
        ids, lengths = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

        @tf.function(input_signature=[Batch(ids, lengths, ids, ids, lengths)], autograph=False)
        def run(batch: Batch) -> LossSums:
            if isinstance(model, GNMT | Ensemble):
                return loss_sums(model.scored(batch).logits, batch)
            log_probs = model.piece_log_probs(batch)
            real = tf.sequence_mask(batch.target_lengths, tf.shape(log_probs)[1], tf.float32)
            return LossSums(-tf.reduce_sum(log_probs * real), tf.reduce_sum(real))

        self._run = run

    def __call__(self, corpus: PieceCorpus) -> float:
        """Log perplexity of all pairs of a corpus."""
        order = np.argsort(corpus.source.lengths + corpus.target.lengths, kind="stable")
        total = num_pieces = 0.0
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            source, target = (int(side.lengths[rows].max()) for side in (corpus.source, corpus.target))
            sums = self._run(Batch(*map(tf.constant, pad_batch(corpus, rows, len(rows), source, target))))
            total += float(sums.negative_log_prob)
            num_pieces += float(sums.num_pieces)
        return total / num_pieces

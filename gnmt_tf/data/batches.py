"""The endless stream of training batches, in an order that is a function of (seed, step).

Reads a PieceCorpus; gives a `tf.data.Dataset` of Batches that can start at any step, so that training resumes anywhere.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.data.buckets import Bucket, make_buckets
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID

PREFETCHED_BATCHES = 8


class _Epoch(NamedTuple):
    # The order of one pass: the bucket and the rows of every batch.
    batches: list[tuple[Bucket, np.ndarray]]


class BatchStream:
    """Training batches of a corpus.

    Every pass over the corpus shuffles the pairs inside each bucket and the batches among each other. The last batch of
    a bucket is filled up with rows of length 0, so that each bucket has one static shape.

    Args:
      corpus: the segmented pairs.
      batch_size: rows of every batch.
      num_buckets: static shapes at most.
      seed: of the order.
    """

    def __init__(self, corpus: PieceCorpus, batch_size: int, num_buckets: int, seed: int):
        self.corpus = corpus
        self.batch_size = batch_size
        self.seed = seed
        self.buckets = make_buckets(corpus.source.lengths, corpus.target.lengths, num_buckets)
        self.steps_per_epoch = sum(-(-len(bucket.rows) // batch_size) for bucket in self.buckets)
        self._epoch = lru_cache(maxsize=2)(self._shuffled_epoch)

    def batch_at(self, step: int) -> Batch:
        """The batch of one training step, as NumPy arrays."""
        epoch, position = divmod(step, self.steps_per_epoch)
        bucket, rows = self._epoch(epoch).batches[position]
        return pad_batch(self.corpus, rows, self.batch_size, bucket.source_length, bucket.target_length)

    def dataset(self, first_step: int) -> tf.data.Dataset:
        """Endless dataset of Batches from `first_step` on, prefetched; lengths vary by bucket."""

        def generate() -> Iterator[Batch]:
            step = first_step
            while True:
                yield self.batch_at(step)
                step += 1

        ids = tf.TensorSpec([self.batch_size, None], tf.int32)
        lengths = tf.TensorSpec([self.batch_size], tf.int32)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=Batch(ids, lengths, ids, ids, lengths))
        return dataset.prefetch(PREFETCHED_BATCHES)

    @property
    def padding_share(self) -> float:
        """Share of the positions in an epoch that hold no piece."""
        padded = sum(
            -(-len(b.rows) // self.batch_size) * self.batch_size * (b.source_length + b.target_length)
            for b in self.buckets
        )
        real = self.corpus.source.lengths.sum() + self.corpus.target.lengths.sum()
        return 1.0 - float(real) / padded

    def _shuffled_epoch(self, epoch: int) -> _Epoch:
        random = np.random.default_rng([self.seed, epoch])
        batches = []
        for bucket in self.buckets:
            rows = random.permutation(bucket.rows)
            batches += [(bucket, rows[i : i + self.batch_size]) for i in range(0, len(rows), self.batch_size)]
        return _Epoch([batches[i] for i in random.permutation(len(batches))])


def pad_batch(corpus: PieceCorpus, rows: np.ndarray, batch_size: int, source_length: int, target_length: int) -> Batch:
    """The pairs at `rows` as one Batch of static shape; missing rows are filled with length 0."""
    source_ids, source_lengths = _pad(corpus.source, rows, batch_size, source_length)
    target_ids, target_lengths = _pad(corpus.target, rows, batch_size, target_length)
    # Shifted by one: the input starts with <s> where the output starts with the first piece.
    inputs = np.where(target_ids == END_ID, PAD_ID, target_ids)[:, :-1]
    starts = np.where(target_lengths > 0, START_ID, PAD_ID).astype(np.int32)
    return Batch(
        source_ids, source_lengths, np.concatenate([starts[:, None], inputs], axis=1), target_ids, target_lengths
    )


def _pad(pieces: Pieces, rows: np.ndarray, batch_size: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.full([batch_size, length], PAD_ID, np.int32)
    lengths = np.zeros([batch_size], np.int32)
    for i, row in enumerate(rows):
        sentence = pieces[row]
        ids[i, : len(sentence)] = sentence
        ids[i, len(sentence)] = END_ID
        lengths[i] = len(sentence) + 1
    return ids, lengths

"""The endless stream of training batches, in an order that is a function of (seed, step).

Reads a PieceCorpus; gives a `tf.data.Dataset` of Batches that can start at any step, so that training resumes anywhere.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gnmt_tf.config import DataConfig
from gnmt_tf.data.batch import Batch
from gnmt_tf.data.buckets import Bucket, fewest_buckets, make_buckets
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces
from gnmt_tf.data.piece_dropout import PieceDropout
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID

PREFETCHED_BATCHES = 8

MOST_PADDING = 0.1
"""Share of padding below which no more shapes are added, when their number is left open."""

MOST_BUCKETS = 24
"""Most shapes that are compiled for when their number is left open."""


class _Planned(NamedTuple):
    # One shape of the stream: its bucket, rows of a batch, and the later shape that takes the pairs left over.
    bucket: Bucket
    batch_size: int
    parent: int | None


class BatchStream:
    """Training batches of a corpus.

    Every pass over the corpus shuffles the pairs inside each bucket and the batches among each other. Pairs that do
    not fill a batch of their bucket join a larger one; where there is none, rows of length 0 fill the batch up, so that
    each bucket has one static shape.

    Args:
      corpus: the segmented pairs.
      config: `batch_size` or `batch_tokens`, and `num_buckets`.
      seed: of the order, and of the piece dropout.
      piece_dropout: cuts every sentence of a batch anew; batches then are longer, so that there is room for it.
    """

    def __init__(self, corpus: PieceCorpus, config: DataConfig, seed: int, piece_dropout: PieceDropout | None = None):
        self.corpus = corpus
        self.seed = seed
        self.piece_dropout = piece_dropout
        growth = piece_dropout.growth if piece_dropout else 1.0
        source, target = (np.ceil(side.lengths * growth).astype(np.int64) for side in (corpus.source, corpus.target))
        self.buckets = (
            fewest_buckets(source, target, MOST_PADDING, MOST_BUCKETS)
            if config.num_buckets is None
            else make_buckets(source, target, config.num_buckets)
        )
        self._plan = [_planned(self.buckets, number, config) for number in range(len(self.buckets))]
        # Where pairs go depends on how many there are and never on their order, so every pass has as many batches.
        self._first_epoch = self._shuffled_epoch(0)
        self.steps_per_epoch = len(self._first_epoch)
        self._epoch = lru_cache(maxsize=2)(self._shuffled_epoch)

    @property
    def batch_sizes(self) -> list[int]:
        """Rows of a batch of each bucket."""
        return [planned.batch_size for planned in self._plan]

    def batch_at(self, step: int) -> Batch:
        """The batch of one training step, as NumPy arrays."""
        epoch, position = divmod(step, self.steps_per_epoch)
        (bucket, batch_size, _), rows = self._epoch(epoch)[position]
        cut = None
        if self.piece_dropout is not None:
            cut = partial(self.piece_dropout.cut, source=random.Random(self.seed << 64 | step))
        return pad_batch(self.corpus, rows, batch_size, bucket.source_length, bucket.target_length, cut)

    def dataset(self, first_batch: int, shares: Sequence[int] = (0,), num_shares: int = 1) -> tf.data.Dataset:
        """Endless dataset of Batches from `first_batch` on, prefetched.

        Lengths, and under `batch_tokens` the number of rows, vary by bucket.

        Args:
          first_batch: number of the first batch.
          shares: of every batch, the equally large shares that come one after the other.
          num_shares: how many shares a batch is cut into; the last ones are filled up with rows of length 0.
        """

        def generate() -> Iterator[Batch]:
            number = first_batch
            while True:
                batch = self.batch_at(number)
                yield from (_share(batch, share, num_shares) for share in shares)
                number += 1

        sizes = {-(-size // num_shares) for size in self.batch_sizes}
        batch_size = sizes.pop() if len(sizes) == 1 else None
        ids = tf.TensorSpec([batch_size, None], tf.int32)
        lengths = tf.TensorSpec([batch_size], tf.int32)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=Batch(ids, lengths, ids, ids, lengths))
        return dataset.prefetch(PREFETCHED_BATCHES)

    @property
    def padding_share(self) -> float:
        """Share of the positions in an epoch that hold no piece, the room for what piece dropout adds included."""
        padded = sum(planned.batch_size * planned.bucket.positions for planned, _ in self._first_epoch)
        real = self.corpus.source.lengths.sum() + self.corpus.target.lengths.sum()
        return 1.0 - float(real) / padded

    def _shuffled_epoch(self, epoch: int) -> list[tuple[_Planned, np.ndarray]]:
        """The order of one pass: the shape and the rows of every batch."""
        shuffle = np.random.default_rng([self.seed, epoch]).permutation
        batches = []
        left_over: dict[int, list[np.ndarray]] = {number: [] for number in range(len(self._plan))}
        for number, planned in enumerate(self._plan):
            rows = shuffle(np.concatenate([planned.bucket.rows, *left_over[number]]))
            size = planned.batch_size
            whole = len(rows) if planned.parent is None else len(rows) // size * size
            batches += [(planned, rows[i : min(i + size, whole)]) for i in range(0, whole, size)]
            if planned.parent is not None:
                left_over[planned.parent].append(rows[whole:])
        return [batches[i] for i in shuffle(len(batches))]


def _planned(buckets: list[Bucket], number: int, config: DataConfig) -> _Planned:
    bucket = buckets[number]
    size = config.batch_size
    if config.batch_tokens is not None:
        # Whole multiples of eight rows keep matrix products at full speed.
        rows = config.batch_tokens // bucket.positions
        size = max(rows // 8 * 8 or rows, 1)
    larger = (later for later in range(number + 1, len(buckets)) if buckets[later].fits(bucket))
    return _Planned(bucket, size, next(larger, None))


def pad_batch(
    corpus: PieceCorpus,
    rows: np.ndarray,
    batch_size: int,
    source_length: int,
    target_length: int,
    cut: Callable[[Sequence[int], int], Sequence[int]] | None = None,
) -> Batch:
    """The pairs at `rows` as one Batch of static shape; missing rows are filled with length 0.

    Args:
      cut: gives the pieces of a sentence anew, at most so many; see `PieceDropout.cut`.
    """
    source_ids, source_lengths = _pad(corpus.source, rows, batch_size, source_length, cut)
    target_ids, target_lengths = _pad(corpus.target, rows, batch_size, target_length, cut)
    # Shifted by one: the input starts with <s> where the output starts with the first piece.
    inputs = np.where(target_ids == END_ID, PAD_ID, target_ids)[:, :-1]
    starts = np.where(target_lengths > 0, START_ID, PAD_ID).astype(np.int32)
    return Batch(
        source_ids, source_lengths, np.concatenate([starts[:, None], inputs], axis=1), target_ids, target_lengths
    )


def _share(batch: Batch, share: int, num_shares: int) -> Batch:
    """One of equally large shares of the rows."""
    if num_shares == 1:
        return batch
    size = -(-len(batch.source_lengths) // num_shares)
    missing = size * num_shares - len(batch.source_lengths)
    rows = slice(share * size, (share + 1) * size)
    return Batch(*(np.pad(field, [(0, missing)] + [(0, 0)] * (field.ndim - 1))[rows] for field in batch))


def _pad(
    pieces: Pieces,
    rows: np.ndarray,
    batch_size: int,
    length: int,
    cut: Callable[[Sequence[int], int], Sequence[int]] | None,
) -> tuple[np.ndarray, np.ndarray]:
    ids = np.full([batch_size, length], PAD_ID, np.int32)
    lengths = np.zeros([batch_size], np.int32)
    for i, row in enumerate(rows):
        sentence = pieces[row] if cut is None else cut(pieces[row].tolist(), length - 1)
        ids[i, : len(sentence)] = sentence
        ids[i, len(sentence)] = END_ID
        lengths[i] = len(sentence) + 1
    return ids, lengths

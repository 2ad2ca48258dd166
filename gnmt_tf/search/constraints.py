"""What hypotheses have to start with, and what they may not hold."""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.text.vocabulary import PAD_ID, START_ID

NEVER = (PAD_ID, START_ID)
"""Pieces that are no part of any sentence."""


class Constraints(NamedTuple):
    """Constraints of one batch.

    Fields:
      banned_ids: pieces that no hypothesis may hold, beside the pad and the start.
      prefix_ids: int32 [batch_size, prefix_length], pieces that hypotheses start with, banned or not; or None.
      prefix_lengths: int32 [batch_size], how many of them.
      candidate_ids: int32 [candidates], what piece each of the model's is, when it has a shortlist; else None.
        `prefix_ids` then count among these.
      seeds: int32 [batch_size], what the random numbers of each sentence depend on beside `search.seed`; by default the
        sentence's place in the batch.
    """

    banned_ids: tuple[int, ...] = ()
    prefix_ids: tf.Tensor | None = None
    prefix_lengths: tf.Tensor | None = None
    candidate_ids: tf.Tensor | None = None
    seeds: tf.Tensor | None = None

    @property
    def has_prefix(self) -> bool:
        """Whether there is a prefix."""
        return self.prefix_ids is not None

    def prefix(self, batch_size: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The prefixes and their lengths; of no pieces when there is none."""
        if self.prefix_ids is None or self.prefix_lengths is None:
            return tf.zeros([batch_size, 0], tf.int32), tf.zeros([batch_size], tf.int32)
        return self.prefix_ids, self.prefix_lengths

    def mask(self, vocab_size: int | tf.Tensor) -> tf.Tensor:
        """float [vocab_size] to add to logits: -inf at what may never be taken, else 0."""
        return tf.where(self.are_banned(tf.range(vocab_size)), float("-inf"), 0.0)

    def are_banned(self, ids: tf.Tensor) -> tf.Tensor:
        """Whether each of some pieces may never be taken: bool of the shape of `ids`."""
        if self.candidate_ids is not None:
            ids = tf.gather(self.candidate_ids, ids)
        return tf.reduce_any(ids[..., None] == tf.constant(sorted({*NEVER, *self.banned_ids})), axis=-1)

    def sentence_seeds(self, numbers: tf.Tensor) -> tf.Tensor:
        """The seed of each of the sentences `numbers`."""
        return numbers if self.seeds is None else tf.gather(self.seeds, numbers)


NO_CONSTRAINTS = Constraints()


def repeated_pieces(pieces: tf.Tensor, step: tf.Tensor, size: int, vocab_size: int | tf.Tensor) -> tf.Tensor:
    """Which pieces would repeat an n-gram that the hypothesis already holds.

    Args:
      pieces: int32 [rows, steps], what each hypothesis holds; only the first `step` count.
      step: how many those are.
      size: n.
      vocab_size: pieces in the vocabulary.

    Returns:
      bool [rows, vocab_size].
    """
    num_rows, num_steps = tf.shape(pieces)[0], pieces.shape[1] or tf.shape(pieces)[1]
    places = tf.range(num_steps)
    # An n-gram that ends at place j begins as the last n - 1 pieces do if each of those equals the one as far before j.
    begins_alike = tf.broadcast_to((places >= size - 1) & (places < step), [num_rows, num_steps])
    for back in range(1, size):
        last = tf.gather(pieces, tf.maximum(step - back, 0), axis=1)
        begins_alike &= tf.roll(pieces, back, axis=1) == last[:, None]
    begins_alike &= step >= size
    rows = tf.broadcast_to(tf.range(num_rows)[:, None], [num_rows, num_steps])
    places = tf.stack([rows, pieces], axis=-1)
    return tf.scatter_nd(places, tf.cast(begins_alike, tf.int32), [num_rows, vocab_size]) > 0

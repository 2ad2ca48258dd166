"""Sampling: one random continuation of each hypothesis, as a function of the seed, the sentence, the step and the slot.

Reads allowed logits; gives one piece a row. The same sentence gets the same samples whatever shares its batch.
"""

import math

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.layers.random_bits import mix


def sample(
    allowed: tf.Tensor,
    keys: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    search: SearchConfig,
    candidate_ids: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws one piece for each row.

    Args:
      allowed: float [rows, vocab_size], logits, -inf where a piece may not follow.
      keys: the sentence's seed [rows], the step (scalar) and the slot [rows].
      search: `temperature`, `sampling_top_k`, `sampling_top_p` and `seed`.
      candidate_ids: int32 [vocab_size], what piece each one is, where there is a shortlist.

    Returns:
      The logit and the id of the piece drawn, [rows, 1] each.
    """
    vocab_size = allowed.shape[-1] or tf.shape(allowed)[-1]
    if search.sampling_top_k or search.sampling_top_p < 1.0:
        values, ids = tf.math.top_k(allowed, tf.minimum(search.sampling_top_k or vocab_size, vocab_size))
    else:
        values, ids = allowed, tf.broadcast_to(tf.range(vocab_size), tf.shape(allowed))
    # The best logit becomes zero first: a small temperature would make the others too large for a float.
    scaled = (values - tf.reduce_max(values, axis=-1, keepdims=True)) / search.temperature
    if search.sampling_top_p < 1.0:
        # The fewest most probable pieces that together have top_p; the first one always.
        probs = tf.nn.softmax(scaled)
        before = tf.cumsum(probs, axis=-1, exclusive=True)
        scaled = tf.where(before < search.sampling_top_p, scaled, -math.inf)
    # The largest of values with Gumbel noise is a draw from their softmax.
    pieces = ids if candidate_ids is None else tf.gather(candidate_ids, ids)
    drawn = tf.argmax(scaled + _gumbel(pieces, keys, search.seed), axis=-1, output_type=tf.int32)[:, None]
    return tf.gather(values, drawn, batch_dims=1), tf.gather(ids, drawn, batch_dims=1)


def _gumbel(ids: tf.Tensor, keys: tuple[tf.Tensor, tf.Tensor, tf.Tensor], seed: int) -> tf.Tensor:
    sentence, step, slot = (tf.cast(key, tf.uint32) for key in keys)
    key = mix(mix(mix(mix(tf.constant(seed & 0xFFFFFFFF, tf.uint32)) + sentence) + step) + slot)
    bits = mix(mix(tf.cast(ids, tf.uint32) + key[:, None]) + key[:, None])
    # 23 bits and a half, so that the number is neither 0 nor 1.
    uniform = (tf.cast(tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), tf.float32) + 0.5) / 2.0**23
    return -tf.math.log(-tf.math.log(uniform))

"""Target sequences drawn from the model, for the estimate of the expected reward (paper, eq. 8).

Reads the encoder's memory of a batch; gives several samples of each sentence. Static shapes and no host calls, so that
the loop compiles inside a training step. Which sample a sentence gets depends on the seed, the step and its number in
the global batch, and on nothing else.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.layers.random_bits import mix
from gnmt_tf.model.decoder import Rows
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.sampling import sample
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID


class Samples(NamedTuple):
    """Samples, those of one sentence side by side.

    Fields:
      ids: int32 [batch_size * num_samples, length], the pad id behind each end.
      lengths: int32 [batch_size * num_samples], `</s>` counted if the sample has one.
    """

    ids: tf.Tensor
    lengths: tf.Tensor


def draw_samples(
    model: GNMT, memory: AttentionMemory, num_samples: int, length: int, seed: tf.Tensor, first_sentence: tf.Tensor
) -> Samples:
    """Draws from the model's distribution, without dropout and under the bounds of inference.

    Args:
      model: the decoder.
      memory: of the batch, from `model.encode`, of static shape.
      num_samples: of each sentence.
      length: a sample that has not ended after so many pieces is cut there.
      seed: uint32 scalar, another one at every step.
      first_sentence: int32 scalar, the number of the batch's first sentence in the global batch.
    """
    batch_size = memory.values.shape[0]
    num_rows = batch_size * num_samples
    slots = tf.range(num_rows)
    rows = Rows(slots, tf.reshape(slots, [batch_size, num_samples]))
    sentence_seeds = mix(tf.cast(first_sentence + rows.sentences, tf.uint32) + mix(seed))
    decoder_memory = model.start(memory)
    never = tf.one_hot([PAD_ID, START_ID], model.vocab_size, on_value=float("-inf"), off_value=0.0)
    never = tf.reduce_sum(never, axis=0)

    def step(number: tf.Tensor, ids: tf.Tensor, ended: tf.Tensor, state: Any, drawn: tf.TensorArray):
        taken = model.decode_step(ids, state, decoder_memory, rows)
        keys = sentence_seeds, number, slots % num_samples
        _, pieces = sample(taken.logits + never, keys, SearchConfig(method="sample"))
        ids = tf.where(ended, PAD_ID, pieces[:, 0])
        return number + 1, ids, ended | (ids == END_ID), taken.state, drawn.write(number, ids)

    start = (
        tf.constant(0),
        tf.fill([num_rows], START_ID),
        tf.zeros([num_rows], tf.bool),
        model.initial_state(num_rows),
        tf.TensorArray(tf.int32, length, element_shape=[num_rows]),
    )
    *_, drawn = tf.while_loop(
        lambda number, ids, ended, *_: ~tf.reduce_all(ended), step, start, maximum_iterations=length
    )
    # Steps that were not made hold zeros, which is the pad id.
    ids = tf.transpose(drawn.stack())
    lengths = tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)
    return Samples(tf.stop_gradient(ids), tf.stop_gradient(lengths))

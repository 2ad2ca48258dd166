"""GNMT with a training step that refines it by expected reward (paper, section 5, eq. 8 and 9).

Reads Batches; draws sequences from the model, rewards each by its GLEU against the target, and makes those more
probable that are better than the mean of their sentence.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.layers.dropout import Dropout
from gnmt_tf.layers.projected_cross_entropy import Labels
from gnmt_tf.layers.random_bits import mix
from gnmt_tf.model.gnmt import Bounds
from gnmt_tf.refinement.gleu import gleu_of_ids
from gnmt_tf.refinement.samples import Samples, draw_samples
from gnmt_tf.text.vocabulary import END_ID, START_ID
from gnmt_tf.training.trainable import Objective, TrainableGNMT


class RewardedSamples(NamedTuple):
    """Samples with their worth.

    Fields:
      samples: see Samples.
      rewards: float32 [batch_size, num_samples], GLEU.
      advantages: float32 [batch_size, num_samples], how much better each is than the mean of its sentence.
    """

    samples: Samples
    rewards: tf.Tensor
    advantages: tf.Tensor


class RefinedGNMT(TrainableGNMT):
    """As TrainableGNMT, with the mixed objective of eq. 9.

    For each sentence pair O_mixed = ml_weight * log P(Y*|X) + the mean over the samples Y of (r(Y, Y*) - mean reward) *
    log P(Y|X), whose gradient is an estimate of that of the expected reward. Settings: `refinement`.
    """

    has_reward = True

    def objective(self, data: Batch, bounds: Bounds, dropout: Dropout | None, draw: tf.Tensor) -> Objective:
        """See the class and TrainableGNMT."""
        settings = self.settings.refinement
        found = self.rewarded_samples(data, draw)
        samples, num_samples = found.samples, settings.num_samples
        dtype = tf.as_dtype(self.settings.training.compute_dtype)
        memory = self.encode(data.source_ids, data.source_lengths, bounds, dropout, dtype)
        # One pass of the decoder reads the samples and, behind them, the targets.
        memory = tf.nest.map_structure(lambda v: tf.concat([tf.repeat(v, num_samples, axis=0), v], axis=0), memory)
        first = tf.fill([samples.ids.shape[0], 1], START_ID)
        input_ids = tf.concat([tf.concat([first, samples.ids[:, :-1]], axis=1), data.target_input_ids], axis=0)
        outputs, _ = self.decode(input_ids, memory, bounds, dropout)
        num_rows = samples.ids.shape[0]
        weights = tf.reshape(found.advantages, [-1]) / num_samples
        expected = self.cross_entropy(outputs[:num_rows], Labels(*samples, weights=weights), bounds)
        likelihood = self.cross_entropy(outputs[num_rows:], Labels(data.target_output_ids, data.target_lengths), bounds)
        return Objective(
            expected.loss + settings.ml_weight * likelihood.loss,
            likelihood.negative_log_prob,
            tf.reduce_sum(tf.reduce_mean(found.rewards, axis=1)),
        )

    def rewarded_samples(self, data: Batch, draw: tf.Tensor) -> RewardedSamples:
        """Draws `refinement.num_samples` sequences for each pair and rewards them. No gradient flows through this.

        Args:
          data: a batch of static shape; samples are as long as its targets may be.
          draw: scalar, another number for every batch of the run.
        """
        num_samples = self.settings.refinement.num_samples
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        batch_size, length = data.target_output_ids.shape
        memory: AttentionMemory = tf.nest.map_structure(
            tf.stop_gradient, self.encode(data.source_ids, data.source_lengths)
        )
        seed = mix(tf.cast(draw, tf.uint32)) + tf.constant(self.settings.training.seed & 0xFFFFFFFF, tf.uint32)
        samples = draw_samples(self, memory, num_samples, length, seed, tf.cast(replica, tf.int32) * batch_size)
        # `</s>` is not part of the text.
        ends = tf.reduce_any(samples.ids == END_ID, axis=1)
        targets = tf.repeat(data.target_output_ids, num_samples, axis=0)
        target_lengths = tf.repeat(tf.maximum(data.target_lengths - 1, 0), num_samples)
        rewards = gleu_of_ids(samples.ids, samples.lengths - tf.cast(ends, tf.int32), targets, target_lengths)
        # Rows that only fill the batch are worth nothing, and neither are their samples.
        samples = samples._replace(
            lengths=tf.where(tf.repeat(data.target_lengths, num_samples) > 0, samples.lengths, 0)
        )
        rewards = tf.stop_gradient(tf.reshape(rewards, [batch_size, num_samples]))
        return RewardedSamples(samples, rewards, rewards - tf.reduce_mean(rewards, axis=1, keepdims=True))

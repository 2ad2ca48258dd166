"""Small random models that a search cannot tell from a real one, in TensorFlow and in NumPy alike."""

import numpy as np
import tensorflow as tf

from gnmt_tf.model.decoder import Rows
from gnmt_tf.model.gnmt import GNMTStep

VOCAB_SIZE = 9
UNITS = 6


class RandomModel:
    """A recurrent network with attention of no particular kind: h' = tanh(h A + E[id] + context), logits h' O.

    Its weights are variables, so that a search compiled once runs with any number of models.
    """

    def __init__(self, vocab_size=VOCAB_SIZE):
        self.vocab_size = vocab_size
        shapes = [UNITS, UNITS], [vocab_size, UNITS], [UNITS, vocab_size], [vocab_size, UNITS]
        self.weights = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    def draw(self, seed, peak=4.0):
        """New weights; the larger the peak, the farther from flat its distributions are."""
        chance = np.random.default_rng(seed)
        for weight, scale in zip(self.weights, (0.3, 0.7, peak, 0.7), strict=True):
            weight.assign(chance.normal(size=weight.shape).astype(np.float32) * np.float32(scale))

    # As the search sees it.

    def encode(self, source_ids, source_lengths):
        values = tf.gather(self.weights[3], source_ids)
        real = tf.sequence_mask(source_lengths, tf.shape(source_ids)[1])
        return values, tf.where(real, 0.0, -1e9)

    def start(self, memory):
        return memory

    def initial_state(self, num_rows):
        return tf.zeros([num_rows, UNITS])

    def decode_step(self, ids, state, memory, rows: Rows):
        recurrent, embeddings, output, _ = self.weights
        values, bias = memory
        scores = tf.einsum("bwu,bsu->bws", rows.by_slot(state), values) + bias[:, None]
        probs = tf.nn.softmax(scores)
        context = rows.by_row(tf.matmul(probs, values))
        state = tf.tanh(tf.matmul(state, recurrent) + tf.gather(embeddings, ids) + context)
        return GNMTStep(tf.matmul(state, output), state, probs)


class RandomModelInNumpy:
    """The same for one sentence, as the oracle sees it."""

    def __init__(self, model: RandomModel):
        self.recurrent, self.embeddings, self.output, self.source = (
            weight.numpy().astype(np.float64) for weight in model.weights
        )

    def start(self, source_ids):
        return np.zeros(UNITS), self.source[list(source_ids)]

    def step(self, state, piece):
        h, values = state
        probs = softmax(values @ h)
        h = np.tanh(h @ self.recurrent + self.embeddings[piece] + probs @ values)
        logits = h @ self.output
        return logits - np.logaddexp.reduce(logits), (h, values), probs


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()

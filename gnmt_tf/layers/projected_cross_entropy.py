"""The softmax layer's product and the loss of eq. 7 in one, slice by slice, with the gradient written out.

Reads the top decoder layer's outputs and the weights of the output projection; gives sums of the loss. Slices of rows
pass one after the other through product, softmax and all three gradient products, so that the logits of a batch,
[batch_size * target_length, vocab_size], and their gradient never exist whole. Padding is left out before the first
product and costs nothing. The gradient of a sum is known while the sum is made, so that nothing is computed twice.
"""

from typing import NamedTuple

import tensorflow as tf

ROWS_PER_SLICE = 512
"""Large enough for matrix products at full speed; at 32,000 pieces a slice of logits takes 64 MiB."""


class CrossEntropySums(NamedTuple):
    """Sums over the real rows, each times its sentence's weight; scalars in nats.

    Fields:
      loss: cross entropy against the smoothed labels; gradients flow from here.
      negative_log_prob: the same without smoothing; no gradient flows from it.
    """

    loss: tf.Tensor
    negative_log_prob: tf.Tensor


class Labels(NamedTuple):
    """What should have been predicted.

    Fields:
      ids: int32 [batch_size, length].
      lengths: int32 [batch_size]; what comes after them is left out.
      smoothing: share of every label's probability that is spread evenly over the vocabulary.
      weights: float32 [batch_size], what each sentence counts for, negative numbers included; by default 1.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    smoothing: float = 0.0
    weights: tf.Tensor | None = None


def projected_cross_entropy(
    outputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    labels: Labels,
    logit_bound: tf.Tensor | float,
    rows_per_slice: int = ROWS_PER_SLICE,
) -> CrossEntropySums:
    """Sums of -log softmax(clip(outputs @ kernel + bias)) at the labels (eq. 7, 13).

    Args:
      outputs: float [batch_size, length, num_units] of static shape, in the dtype of the products; sums are float32.
      kernel: float [num_units, vocab_size].
      bias: float [vocab_size].
      labels: see Labels.
      logit_bound: gamma of eq. 13; the gradient is zero where a logit was clipped.
      rows_per_slice: most rows whose logits exist at a time.
    """

    @tf.custom_gradient
    def run(outputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor):
        sums, gradients = _run_slices(outputs, kernel, bias, labels, logit_bound, rows_per_slice)

        def gradient(d_loss: tf.Tensor, _: tf.Tensor):
            return tuple(value * tf.cast(d_loss, value.dtype) for value in gradients)

        return tuple(sums), gradient

    return CrossEntropySums(*run(outputs, kernel, bias))


def _run_slices(
    outputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    labels: Labels,
    logit_bound: tf.Tensor | float,
    rows_per_slice: int,
) -> tuple[CrossEntropySums, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """The sums, and the gradients of `loss` in outputs, kernel and bias."""
    shape, dtype = outputs.shape, outputs.dtype
    outputs, label_ids = tf.reshape(outputs, [-1, shape[-1]]), tf.reshape(labels.ids, [-1])
    num_rows = shape[0] * shape[1]
    rounded_kernel = tf.cast(kernel, dtype)
    rows = min(rows_per_slice, num_rows)
    most_slices = -(-num_rows // rows)
    order, place, real = _real_rows_first(labels.lengths, shape[1], most_slices * rows)
    num_real = tf.reduce_sum(labels.lengths)
    sentence_weights = None if labels.weights is None else tf.repeat(labels.weights, shape[1])
    num_slices = (num_real + rows - 1) // rows

    def step(number, sums, d_kernel, d_bias, d_slices):
        numbers = number * rows + tf.range(rows)
        chosen = tf.gather(order, numbers)
        inputs = tf.gather(outputs, chosen)
        weights = tf.cast(numbers < num_real, tf.float32)
        if sentence_weights is not None:
            weights *= tf.gather(sentence_weights, chosen)
        raw = tf.cast(tf.matmul(inputs, rounded_kernel), tf.float32) + bias
        slice_sums, d_logits = _slice(raw, tf.gather(label_ids, chosen), weights, logit_bound, labels.smoothing)
        rounded = tf.cast(d_logits, dtype)
        return (
            number + 1,
            CrossEntropySums(*(a + b for a, b in zip(sums, slice_sums, strict=True))),
            d_kernel + tf.cast(tf.matmul(inputs, rounded, transpose_a=True), tf.float32),
            d_bias + tf.reduce_sum(d_logits, axis=0),
            d_slices.write(number, tf.matmul(rounded, rounded_kernel, transpose_b=True)),
        )

    zero = tf.zeros([])
    start = (
        0,
        CrossEntropySums(zero, zero),
        tf.zeros_like(kernel),
        tf.zeros_like(bias),
        tf.TensorArray(dtype, most_slices, element_shape=[rows, outputs.shape[1]]),
    )
    _, sums, d_kernel, d_bias, d_slices = tf.while_loop(
        lambda number, *_: number < num_slices, step, start, maximum_iterations=most_slices
    )
    d_rows = tf.gather(tf.reshape(d_slices.stack(), [-1, outputs.shape[1]]), place)
    d_outputs = tf.where(real[:, None], d_rows, tf.zeros_like(d_rows))
    return sums, (tf.reshape(d_outputs, shape), d_kernel, d_bias)


def _real_rows_first(lengths: tf.Tensor, length: int, size: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Numbers of the real rows in order, filled up to `size`; every row's place among them; which rows are real."""
    # The rows before each sentence, summed over a triangle: XLA makes a slow program of tf.cumsum on a CPU.
    numbers = tf.range(tf.size(lengths))
    starts = tf.reduce_sum(tf.where(numbers[None] < numbers[:, None], lengths[None], 0), axis=1)
    within = tf.range(length)[None]
    place = tf.reshape(starts[:, None] + within, [-1])
    real = tf.reshape(within < lengths[:, None], [-1])
    # Rows that are left out all write to one more element, which is then cut off.
    targets = tf.where(real, place, size)
    order = tf.scatter_nd(targets[:, None], tf.range(tf.size(real)), [size + 1])[:size]
    return order, tf.where(real, place, 0), real


def _slice(
    raw: tf.Tensor, label_ids: tf.Tensor, weights: tf.Tensor, logit_bound: tf.Tensor | float, smoothing: float
) -> tuple[CrossEntropySums, tf.Tensor]:
    """Sums of one slice, and the gradient of its `loss` in the raw logits.

    Args:
      raw: [rows, vocab_size], the logits before their clip.
      label_ids: int32 [rows].
      weights: [rows], what each counts for, 0 at filling.
      logit_bound, smoothing: as above.
    """
    vocab_size = raw.shape[1]
    logits = tf.clip_by_value(raw, -logit_bound, logit_bound)
    log_normaliser = tf.reduce_logsumexp(logits, axis=-1)
    is_label = label_ids[:, None] == tf.range(vocab_size)
    negative_log_prob = log_normaliser - tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)
    loss = negative_log_prob
    wanted = tf.cast(is_label, raw.dtype)
    if smoothing:
        mean_negative_log_prob = log_normaliser - tf.reduce_mean(logits, axis=-1)
        loss = (1.0 - smoothing) * negative_log_prob + smoothing * mean_negative_log_prob
        wanted = (1.0 - smoothing) * wanted + smoothing / vocab_size
    d_logits = (tf.exp(logits - log_normaliser[:, None]) - wanted) * weights[:, None]
    d_raw = tf.where(tf.abs(raw) <= logit_bound, d_logits, tf.zeros_like(d_logits))
    return CrossEntropySums(tf.reduce_sum(loss * weights), tf.reduce_sum(negative_log_prob * weights)), d_raw

"""The bottom decoder layer and its attention over a whole target sequence, with the gradient written out.

Reads the projected target embeddings and the encoder's memory; gives the layer's outputs, the context vectors and the
attention probabilities of every step. One loop holds both, because the query of a step is the layer's output of the
step before (paper, section 3). The tanh of the attention's hidden layer, [batch, source, units] per step, is computed
again in the backward loop and never kept for all steps.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.layers.lstm_sequence import (
    CellSlopes,
    CellStep,
    cell_gradient,
    cell_slopes,
    cell_step,
    overwritten,
    shift,
    step_array,
    sum_over_steps,
    turned,
    written,
    zero_state,
)
from gnmt_tf.layers.products import product_over_steps, project

MASKED_SCORE = -1e9
"""Score of a source position that is only padding: exp of it is 0 beside any real score."""


class AttentionMemory(NamedTuple):
    """What the attention reads of a source sentence.

    Fields:
      values: float [batch_size, source_length, memory_size], the top encoder layer.
      keys: float [batch_size, source_length, attention_units], the values after the attention's first product.
      score_bias: float [batch_size, source_length], 0 at real pieces, MASKED_SCORE at padding.
    """

    values: tf.Tensor
    keys: tf.Tensor
    score_bias: tf.Tensor


class AttentionWeights(NamedTuple):
    """Weights inside the loop.

    Fields:
      query_kernel: float [num_units, attention_units].
      score_kernel: float [attention_units].
      recurrent_kernel: float [num_units, 4 * num_units].
      context_kernel: float [memory_size, 4 * num_units], the rows of the layer's kernel that meet the context.
      bias: float [4 * num_units].
    """

    query_kernel: tf.Tensor
    score_kernel: tf.Tensor
    recurrent_kernel: tf.Tensor
    context_kernel: tf.Tensor
    bias: tf.Tensor


class AttentionSequence(NamedTuple):
    """Outputs of every step, time-major.

    Fields:
      outputs: float [target_length, batch_size, num_units].
      contexts: float [target_length, batch_size, memory_size].
      attention_probs: float [target_length, batch_size, source_length]; no gradient flows through it.
    """

    outputs: tf.Tensor
    contexts: tf.Tensor
    attention_probs: tf.Tensor


def attend(
    query: tf.Tensor, score_kernel: tf.Tensor, memory: AttentionMemory
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Eq. 4 for one step.

    Args:
      query: float [batch_size, attention_units], already through the query product.
      score_kernel: float [attention_units].
      memory: the source side.

    Returns:
      context [batch_size, memory_size], attention probabilities [batch_size, source_length], and the hidden layer
      [batch_size, source_length, attention_units].
    """
    hidden = tf.tanh(memory.keys + query[:, None, :])
    scores = tf.linalg.matvec(hidden, score_kernel) + memory.score_bias
    probs = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32), axis=-1), scores.dtype)
    return tf.linalg.matvec(memory.values, probs, transpose_a=True), probs, hidden


def attention_lstm_sequence(
    projected: tf.Tensor,
    memory: AttentionMemory,
    weights: AttentionWeights,
    context_scale: tf.Tensor | None,
    clip_bound: tf.Tensor,
    output_activation: str,
) -> AttentionSequence:
    """Runs attention and LSTM from a zero state; differentiable in `projected`, memory values, keys and weights.

    Args:
      projected: float [target_length, batch_size, 4 * num_units], the embeddings through their part of the kernel.
      memory: the source side.
      weights: see AttentionWeights.
      context_scale: float [target_length, batch_size, memory_size], the dropout mask of the context as an input of this
        layer (0 or 1/keep), or None.
      clip_bound: scalar delta of eq. 10.
      output_activation: see `cell_step`.
    """
    loop = _Loop(context_scale, clip_bound, output_activation)

    @tf.custom_gradient
    def run(projected, values, keys, *kernels):
        source = AttentionMemory(values, keys, memory.score_bias)
        steps = _forward(loop, projected, source, AttentionWeights(*kernels))

        def gradient(d_outputs, d_contexts, _):
            return _backward(loop, steps, source, AttentionWeights(*kernels), d_outputs, d_contexts)

        return (turned(steps.m), steps.contexts, steps.attention_probs), gradient

    return AttentionSequence(*run(projected, memory.values, memory.keys, *weights))


class _Loop(NamedTuple):
    # What no gradient flows into.
    context_scale: tf.Tensor | None
    clip_bound: tf.Tensor
    output_activation: str

    def scaled(self, context: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
        """The context of step t as the LSTM reads it."""
        return context if self.context_scale is None else context * self.context_scale[t]


class _Steps(NamedTuple):
    # What the forward loop keeps of every step, time-major: the cell's c, m and gates, units before sentences, contexts
    # and probabilities, sentences first.
    c: tf.Tensor
    m: tf.Tensor
    gates: tf.Tensor
    contexts: tf.Tensor
    attention_probs: tf.Tensor


def _forward(loop: _Loop, projected: tf.Tensor, source: AttentionMemory, weights: AttentionWeights) -> _Steps:
    num_units = weights.recurrent_kernel.shape[0]
    turned_kernel = tf.transpose(tf.concat([weights.recurrent_kernel, weights.context_kernel], axis=0))
    turned_query_kernel = tf.transpose(weights.query_kernel)
    zeros, length = zero_state(projected, num_units)

    def step(t, c, m, arrays):
        query = tf.transpose(tf.matmul(turned_query_kernel, m))
        context, probs, _ = attend(query, weights.score_kernel, source)
        read = tf.concat([m, tf.transpose(loop.scaled(context, t))], axis=0)
        sums = arrays.gates.read(t) + weights.bias[:, None] + tf.matmul(turned_kernel, read)
        cell = cell_step(sums, c, loop.clip_bound, loop.output_activation)
        arrays = _Steps(*(array.write(t, v) for array, v in zip(arrays, (*cell, context, probs), strict=True)))
        return t + 1, cell.c, cell.m, arrays

    likes = zeros, zeros, source.values[:, 0], source.score_bias
    c, m, contexts, probs = (step_array(like, length) for like in likes)
    # See lstm_sequence: the gates take the place of `projected`.
    arrays = _Steps(c, m, overwritten(turned(projected), length), contexts, probs)
    *_, arrays = tf.while_loop(lambda t, *_: t < length, step, (0, zeros, zeros, arrays), maximum_iterations=length)
    return _Steps(*(array.stack() for array in arrays))


def _backward(
    loop: _Loop,
    steps: _Steps,
    source: AttentionMemory,
    weights: AttentionWeights,
    d_outputs: tf.Tensor,
    d_contexts: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Gradients of projected, values, keys and the five weights, in the order of `run`'s arguments."""
    num_units, memory_size = weights.recurrent_kernel.shape[0], source.values.shape[-1]
    state_kernel = tf.concat([weights.recurrent_kernel, weights.context_kernel], axis=0)
    previous_m = shift(steps.m)
    slopes = cell_slopes(CellStep(steps.c, steps.m, steps.gates), loop.clip_bound, loop.output_activation)
    queries = project(turned(previous_m), weights.query_kernel)
    zeros, length = zero_state(d_outputs, num_units)
    d_outputs = turned(d_outputs)

    def step(t, d_c, d_m, d_keys, d_score_kernel, arrays):
        step_slopes = CellSlopes(arrays[0].read(t), slopes.output[t], slopes.carry[t])
        d_step_sums, d_c = cell_gradient(step_slopes, d_outputs[t] + d_m, d_c)
        d_sums, d_step_sums = written(arrays[0], t, d_step_sums)
        d_m, d_context = tf.split(tf.matmul(state_kernel, d_step_sums), [num_units, memory_size], axis=0)
        d_context = loop.scaled(tf.transpose(d_context), t) + d_contexts[t]
        d_query, d_hidden, d_kernel = _attend_gradient(
            queries[t], steps.attention_probs[t], source, weights.score_kernel, d_context
        )
        d_m += tf.matmul(weights.query_kernel, d_query, transpose_b=True)
        arrays = d_sums, arrays[1].write(t, d_query), arrays[2].write(t, d_context)
        d_keys += tf.cast(d_hidden, tf.float32)
        return t - 1, d_c, d_m, d_keys, d_score_kernel + tf.cast(d_kernel, tf.float32), arrays

    arrays = overwritten(slopes.sums, length), *(step_array(like[0], length) for like in (queries, d_contexts))
    # Sums over many steps are float32 whatever the rest is.
    sums = tf.zeros_like(source.keys, tf.float32), tf.zeros_like(weights.score_kernel, tf.float32)
    start = (length - 1, zeros, zeros, *sums, arrays)
    *_, d_keys, d_score_kernel, arrays = tf.while_loop(lambda t, *_: t >= 0, step, start, maximum_iterations=length)
    d_sums, d_queries, d_all_contexts = (array.stack() for array in arrays)
    d_projected = turned(d_sums)
    read = steps.contexts if loop.context_scale is None else steps.contexts * loop.context_scale
    return (
        d_projected,
        tf.einsum("tbs,tbn->bsn", steps.attention_probs, d_all_contexts),
        tf.cast(d_keys, source.keys.dtype),
        product_over_steps(previous_m, d_queries, units_first=True),
        tf.cast(d_score_kernel, weights.score_kernel.dtype),
        product_over_steps(previous_m, d_projected, units_first=True),
        product_over_steps(read, d_projected),
        sum_over_steps(d_sums),
    )


def _attend_gradient(
    query: tf.Tensor, probs: tf.Tensor, source: AttentionMemory, score_kernel: tf.Tensor, d_context: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of the query, of the hidden layer's sums (which is that of the keys), and of the score kernel.

    The hidden layer is computed again here.
    """
    d_probs = tf.linalg.matvec(source.values, d_context)
    d_scores = probs * (d_probs - tf.reduce_sum(probs * d_probs, axis=-1, keepdims=True))
    hidden = tf.tanh(source.keys + query[:, None, :])
    d_hidden = d_scores[:, :, None] * score_kernel * (1.0 - hidden * hidden)
    flat = tf.reshape(hidden, [-1, hidden.shape[-1]])
    d_score_kernel = tf.linalg.matvec(flat, tf.reshape(d_scores, [-1]), transpose_a=True)
    return tf.reduce_sum(d_hidden, axis=1), d_hidden, d_score_kernel

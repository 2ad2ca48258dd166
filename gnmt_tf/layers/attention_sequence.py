"""The bottom decoder layer and its attention over a whole target sequence, with the gradient written out.

Reads the projected target embeddings and the encoder's memory; gives the layer's outputs, the context vectors and the
attention probabilities of every step. One loop holds both, because the query of a step is the layer's output of the
step before (paper, section 3). The tanh of the attention's hidden layer, [batch, source, units] per step, is computed
again in the backward loop and never kept for all steps.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.layers.lstm_sequence import CellStep, cell_gradient, cell_step, product_over_steps, shift, step_array

MASKED_SCORE = -1e9
"""Score of a source position that is only padding: exp of it is 0 beside any real score."""


class AttentionMemory(NamedTuple):
    """What the attention reads of a source sentence.

    Fields:
      values: float [batch_size, source_length, num_units], the top encoder layer.
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
      context_kernel: float [num_units, 4 * num_units], the rows of the layer's kernel that meet the context.
    """

    query_kernel: tf.Tensor
    score_kernel: tf.Tensor
    recurrent_kernel: tf.Tensor
    context_kernel: tf.Tensor


class AttentionSequence(NamedTuple):
    """Outputs of every step, time-major.

    Fields:
      outputs: float [target_length, batch_size, num_units].
      contexts: float [target_length, batch_size, num_units].
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
      context [batch_size, num_units], attention probabilities [batch_size, source_length], and the hidden layer
      [batch_size, source_length, attention_units].
    """
    hidden = tf.tanh(memory.keys + query[:, None, :])
    scores = tf.linalg.matvec(hidden, score_kernel) + memory.score_bias
    probs = tf.nn.softmax(scores, axis=-1)
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
      context_scale: float [target_length, batch_size, num_units], the dropout mask of the context as an input of this
        layer (0 or 1/keep), or None.
      clip_bound: scalar delta of eq. 10.
      output_activation: see `cell_step`.
    """
    length = projected.shape[0] or tf.shape(projected)[0]
    batch_size = projected.shape[1] or tf.shape(projected)[1]
    num_units = weights.recurrent_kernel.shape[0]
    zeros = tf.zeros([batch_size, num_units], projected.dtype)

    def scaled(context: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
        return context if context_scale is None else context * context_scale[t]

    @tf.custom_gradient
    def run(projected, values, keys, query_kernel, score_kernel, recurrent_kernel, context_kernel):
        source = AttentionMemory(values, keys, memory.score_bias)
        state_kernel = tf.concat([recurrent_kernel, context_kernel], axis=0)

        def forward(t, c, m, arrays):
            context, probs, _ = attend(tf.matmul(m, query_kernel), score_kernel, source)
            sums = projected[t] + tf.matmul(tf.concat([m, scaled(context, t)], axis=-1), state_kernel)
            step = cell_step(sums, c, clip_bound, output_activation)
            written = tuple(array.write(t, value) for array, value in zip(arrays, (*step, context, probs), strict=True))
            return t + 1, step.c, step.m, written

        widths = (num_units, num_units, 4 * num_units, values.shape[-1], memory.values.shape[1])
        arrays = tuple(step_array(projected, length, width) for width in widths)
        *_, arrays = tf.while_loop(
            lambda t, *_: t < length, forward, (0, zeros, zeros, arrays), maximum_iterations=length
        )
        cells, outputs, gates, contexts, probs = (array.stack() for array in arrays)

        def gradient(d_outputs, d_contexts, _):
            previous_cells, previous_outputs = shift(cells), shift(outputs)
            queries = tf.matmul(previous_outputs, query_kernel)

            def backward(t, d_c, d_m, d_keys, d_score_kernel, d_arrays):
                step = CellStep(cells[t], outputs[t], gates[t])
                d_sums, d_c = cell_gradient(
                    step, previous_cells[t], d_outputs[t] + d_m, d_c, clip_bound, output_activation
                )
                d_m, d_context = tf.split(
                    tf.matmul(d_sums, state_kernel, transpose_b=True), [num_units, values.shape[-1]], axis=-1
                )
                d_context = scaled(d_context, t) + d_contexts[t]
                d_probs = tf.linalg.matvec(values, d_context)
                d_scores = probs[t] * (d_probs - tf.reduce_sum(probs[t] * d_probs, axis=-1, keepdims=True))
                hidden = tf.tanh(keys + queries[t][:, None, :])
                d_hidden = d_scores[:, :, None] * score_kernel * (1.0 - hidden * hidden)
                d_query = tf.reduce_sum(d_hidden, axis=1)
                d_score_kernel += tf.linalg.matvec(
                    tf.reshape(hidden, [-1, hidden.shape[-1]]), tf.reshape(d_scores, [-1]), transpose_a=True
                )
                d_m += tf.matmul(d_query, query_kernel, transpose_b=True)
                written = tuple(a.write(t, v) for a, v in zip(d_arrays, (d_sums, d_query, d_context), strict=True))
                return t - 1, d_c, d_m, d_keys + d_hidden, d_score_kernel, written

            widths = (4 * num_units, query_kernel.shape[-1], values.shape[-1])
            d_arrays = tuple(step_array(projected, length, width) for width in widths)
            *_, d_keys, d_score_kernel, d_arrays = tf.while_loop(
                lambda t, *_: t >= 0,
                backward,
                (length - 1, zeros, zeros, tf.zeros_like(keys), tf.zeros_like(score_kernel), d_arrays),
                maximum_iterations=length,
            )
            d_projected, d_queries, d_all_contexts = (array.stack() for array in d_arrays)
            scaled_contexts = contexts if context_scale is None else contexts * context_scale
            return (
                d_projected,
                tf.einsum("tbs,tbn->bsn", probs, d_all_contexts),
                d_keys,
                product_over_steps(previous_outputs, d_queries),
                d_score_kernel,
                product_over_steps(previous_outputs, d_projected),
                product_over_steps(scaled_contexts, d_projected),
            )

        return (outputs, contexts, probs), gradient

    return AttentionSequence(*run(projected, memory.values, memory.keys, *weights))

"""Portable beam search: eq. 14, both prunings of section 7, in TensorFlow ops that run eagerly, in a graph and in XLA.

Reads the encoder's memory of a batch of sentences; gives the best hypotheses of each. Width 1 is greedy search. Live
hypotheses stand in `beam_width` slots; one that ends moves to the pool of complete ones. Tokens and parents are kept
per step and hypotheses are read back from them at the end.
"""

from typing import NamedTuple, Protocol

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.model.decoder import DecoderState
from gnmt_tf.model.gnmt import GNMTStep
from gnmt_tf.search.scoring import coverage_penalty, length_penalty
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID

IMPOSSIBLE = float("-inf")


class StepModel(Protocol):
    """What the search needs of a model."""

    def initial_state(self, batch_size: int | tf.Tensor) -> DecoderState:
        """The state before the first step."""

    def decode_step(self, ids: tf.Tensor, state: DecoderState, memory: AttentionMemory) -> GNMTStep:
        """One step for rows of ids [rows]."""


class BeamResult(NamedTuple):
    """The best hypotheses of each sentence, best first; rows beyond those that exist have score -inf and length 0.

    Fields:
      ids: int32 [batch_size, n_best, target_length], `</s>` last, then the pad id; target_length is that of the longest
        hypothesis, or `max_steps` when that is given.
      lengths: int32 [batch_size, n_best], `</s>` counted.
      scores: float [batch_size, n_best], eq. 14.
      log_probs: float [batch_size, n_best], log P(Y|X).
      attention_probs: float [batch_size, n_best, target_length, source_length]; source_length is 0 when
        the attention is not kept.
      truncated: bool [batch_size, n_best], whether the hypothesis is as long as the length limit lets it be.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    attention_probs: tf.Tensor
    truncated: tf.Tensor


class _Live(NamedTuple):
    # One slot a hypothesis; log_probs [batch, width] is -inf in an empty slot, ids the piece each slot took last.
    ids: tf.Tensor
    log_probs: tf.Tensor
    state: DecoderState
    accumulated_attention: tf.Tensor


class _Complete(NamedTuple):
    # [batch, width] each, best first: eq. 14, log P, the step that gave `</s>`, and the slot that took that step.
    scores: tf.Tensor
    log_probs: tf.Tensor
    end_steps: tf.Tensor
    slots: tf.Tensor


class _History(NamedTuple):
    # [steps][batch, width]: the piece and the parent slot of every slot; attention [batch, width, source].
    ids: tf.TensorArray
    parent_ids: tf.TensorArray
    attention_probs: tf.TensorArray


class _Choice(NamedTuple):
    # The best continuations of one step, [batch, width] each.
    log_probs: tf.Tensor
    ids: tf.Tensor
    parent_ids: tf.Tensor


def max_target_length(source_lengths: tf.Tensor, search: SearchConfig) -> tf.Tensor:
    """Longest hypothesis of each sentence in pieces, `</s>` counted: int32 like `source_lengths`."""
    scaled = tf.cast(tf.cast(source_lengths, tf.float32) * search.max_length_factor, tf.int32)
    return tf.maximum(scaled + search.max_length_constant, 1)


def beam_search(
    model: StepModel,
    memory: AttentionMemory,
    source_lengths: tf.Tensor,
    search: SearchConfig,
    max_steps: int | None = None,
    keep_attention: bool = True,
) -> BeamResult:
    """Finds the `search.n_best` best hypotheses of each sentence.

    Args:
      model: the decoder.
      memory: of the batch, from `model.encode`.
      source_lengths: int32 [batch_size], at least 1.
      search: width, penalties, pruning, limits.
      max_steps: steps of the loop; needed under XLA, else the longest limit in the batch.
      keep_attention: whether the result holds the attention of every step, which takes memory for all of them.
    """
    width = search.beam_width
    limits = max_target_length(source_lengths, search)
    most_steps = tf.reduce_max(limits) if max_steps is None else max_steps
    limits = tf.minimum(limits, most_steps)
    rows = AttentionMemory(*(tf.repeat(value, width, axis=0) for value in memory))

    def keep_going(step: tf.Tensor, live: _Live, *_) -> tf.Tensor:
        return (step < most_steps) & tf.reduce_any(live.log_probs > IMPOSSIBLE)

    def advance(step: tf.Tensor, live: _Live, complete: _Complete, history: _History):
        taken = model.decode_step(tf.reshape(live.ids, [-1]), live.state, rows)
        probs = _by_sentence(taken.attention_probs, width)
        log_probs = _allowed_log_probs(_by_sentence(taken.logits, width), step, limits, search.pruning_margin)
        choice = _best_continuations(live.log_probs, log_probs)
        history = _History(
            history.ids.write(step, choice.ids),
            history.parent_ids.write(step, choice.parent_ids),
            history.attention_probs.write(step, probs if keep_attention else probs[:, :, :0]),
        )
        attention = tf.gather(live.accumulated_attention + probs, choice.parent_ids, batch_dims=1)
        complete = _add_complete(complete, choice, step, attention, source_lengths, search)
        ended = choice.ids == END_ID
        alive = tf.where(ended, IMPOSSIBLE, choice.log_probs)
        alive = tf.where(_can_win(alive, complete, limits, search)[:, None], alive, IMPOSSIBLE)
        parents = tf.reshape(choice.parent_ids + width * tf.range(tf.shape(alive)[0])[:, None], [-1])
        state = DecoderState(*(tf.gather(value, parents) for value in taken.state))
        return step + 1, _Live(choice.ids, alive, state, attention), complete, history

    start = _start(model, memory, search, most_steps, keep_attention)
    _, _, complete, history = tf.while_loop(keep_going, advance, (0, *start), maximum_iterations=most_steps)
    return _read_back(complete, history, limits, search.n_best, max_steps)


def _start(
    model: StepModel,
    memory: AttentionMemory,
    search: SearchConfig,
    max_steps: int | tf.Tensor,
    keep_attention: bool,
) -> tuple[_Live, _Complete, _History]:
    batch_size = memory.values.shape[0] or tf.shape(memory.values)[0]
    source_length = memory.values.shape[1] or tf.shape(memory.values)[1]
    width = search.beam_width
    shape = [batch_size, width]
    # All slots hold the same empty hypothesis, so only the first may speak at the first step.
    first = tf.one_hot(0, width, on_value=0.0, off_value=IMPOSSIBLE)
    live = _Live(
        tf.fill(shape, START_ID),
        tf.tile(first[None, :], [batch_size, 1]),
        model.initial_state(batch_size * width),
        tf.zeros([batch_size, width, source_length]),
    )
    complete = _Complete(
        tf.fill(shape, IMPOSSIBLE), tf.fill(shape, IMPOSSIBLE), tf.zeros(shape, tf.int32), tf.zeros(shape, tf.int32)
    )
    static = [memory.values.shape[0], width]
    history = _History(
        tf.TensorArray(tf.int32, max_steps, element_shape=static),
        tf.TensorArray(tf.int32, max_steps, element_shape=static),
        tf.TensorArray(tf.float32, max_steps, element_shape=[*static, memory.values.shape[1] if keep_attention else 0]),
    )
    return live, complete, history


def _by_sentence(values: tf.Tensor, width: int) -> tf.Tensor:
    return tf.reshape(values, tf.concat([[-1, width], tf.shape(values)[1:]], axis=0))


def _allowed_log_probs(
    logits: tf.Tensor, step: tf.Tensor, limits: tf.Tensor, pruning_margin: float | None
) -> tf.Tensor:
    """Log-probabilities [batch, width, vocab] with what may not follow set to -inf."""
    log_probs = tf.nn.log_softmax(logits)
    vocab_size = tf.shape(logits)[-1]
    ids = tf.range(vocab_size)
    never = (ids == PAD_ID) | (ids == START_ID)
    pruned = tf.where(never, IMPOSSIBLE, log_probs)
    if pruning_margin is not None:
        # First pruning. "The best token" is that of the same hypothesis: its own distribution says what is unlikely.
        best = tf.reduce_max(pruned, axis=-1, keepdims=True)
        pruned = tf.where(pruned >= best - pruning_margin, pruned, IMPOSSIBLE)
    # At its limit a hypothesis ends, and pays for `</s>` what the model asks, whether pruned or not.
    only_end = tf.where(ids == END_ID, log_probs, IMPOSSIBLE)
    return tf.where((step + 1 >= limits)[:, None, None], only_end, pruned)


def _best_continuations(live_log_probs: tf.Tensor, log_probs: tf.Tensor) -> _Choice:
    width, vocab_size = live_log_probs.shape[1], tf.shape(log_probs)[-1]
    candidates = tf.reshape(live_log_probs[:, :, None] + log_probs, [-1, width * vocab_size])
    # Among equals top_k takes the lower index: the lower slot, then the lower id.
    values, indices = tf.math.top_k(candidates, width)
    return _Choice(values, indices % vocab_size, indices // vocab_size)


def _add_complete(
    complete: _Complete,
    choice: _Choice,
    step: tf.Tensor,
    accumulated_attention: tf.Tensor,
    source_lengths: tf.Tensor,
    search: SearchConfig,
) -> _Complete:
    """The pool with this step's ended hypotheses, the second pruning applied."""
    coverage = coverage_penalty(accumulated_attention, source_lengths, search.coverage_penalty_weight)
    scores = choice.log_probs / length_penalty(step + 1, search.length_penalty_weight) + coverage
    scores = tf.where((choice.ids == END_ID) & (choice.log_probs > IMPOSSIBLE), scores, IMPOSSIBLE)
    new = _Complete(scores, choice.log_probs, tf.fill(tf.shape(choice.ids), step), choice.parent_ids)
    both = [tf.concat(pair, axis=1) for pair in zip(complete, new, strict=True)]
    best, order = tf.math.top_k(both[0], search.beam_width)
    if search.pruning_margin is not None:
        best = tf.where(best >= best[:, :1] - search.pruning_margin, best, IMPOSSIBLE)
    return _Complete(best, *(tf.gather(values, order, batch_dims=1) for values in both[1:]))


def _can_win(alive: tf.Tensor, complete: _Complete, limits: tf.Tensor, search: SearchConfig) -> tf.Tensor:
    """Whether a live hypothesis of each sentence [batch] may still enter the n best.

    Log P only falls and the penalty divides it by at most lp(limit), while coverage adds at most 0.
    """
    bound = tf.reduce_max(alive, axis=1) / length_penalty(limits, search.length_penalty_weight)
    to_beat = complete.scores[:, search.n_best - 1]
    if search.pruning_margin is not None:
        to_beat = tf.maximum(to_beat, complete.scores[:, 0] - search.pruning_margin)
    return bound > to_beat


def _read_back(
    complete: _Complete, history: _History, limits: tf.Tensor, n_best: int, max_steps: int | None
) -> BeamResult:
    """Follows the parents of the best complete hypotheses from their ends to the start."""
    scores, log_probs, end_steps, slots = (values[:, :n_best] for values in complete)
    exists = scores > IMPOSSIBLE
    lengths = tf.where(exists, end_steps + 1, 0)
    steps = tf.reduce_max(lengths) if max_steps is None else max_steps
    ids, parent_ids, attention = (array.stack() for array in history)

    def back(step: tf.Tensor, slots: tf.Tensor, out_ids: tf.TensorArray, out_probs: tf.TensorArray):
        at_end, before = step == end_steps, step < end_steps
        taken = tf.where(at_end, END_ID, tf.gather(ids[step], slots, batch_dims=1))
        taken = tf.where(exists & (before | at_end), taken, PAD_ID)
        slots = tf.where(before, tf.gather(parent_ids[step], slots, batch_dims=1), slots)
        probs = tf.gather(attention[step], slots, batch_dims=1)
        probs = tf.where((exists & (before | at_end))[:, :, None], probs, 0.0)
        return step - 1, slots, out_ids.write(step, taken), out_probs.write(step, probs)

    out_ids = tf.TensorArray(tf.int32, steps, element_shape=slots.shape)
    out_probs = tf.TensorArray(tf.float32, steps, element_shape=[*slots.shape, attention.shape[-1]])
    *_, out_ids, out_probs = tf.while_loop(
        lambda step, *_: step >= 0, back, (steps - 1, slots, out_ids, out_probs), maximum_iterations=steps
    )
    return BeamResult(
        tf.transpose(out_ids.stack(), [1, 2, 0]),
        lengths,
        scores,
        tf.where(exists, log_probs, IMPOSSIBLE),
        tf.transpose(out_probs.stack(), [1, 2, 0, 3]),
        exists & (lengths >= limits[:, None]),
    )

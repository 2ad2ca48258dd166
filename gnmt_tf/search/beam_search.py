"""Portable beam search: eq. 14, both prunings of section 7, in TensorFlow ops that run eagerly, in a graph and in XLA.

Reads the encoder's memory of a batch of sentences; gives the best hypotheses of each. Width 1 is greedy search. Live
hypotheses stand in `beam_width` slots a sentence; only filled slots are computed (`rows.py`). Every step keeps pieces,
parents and what ended there; hypotheses are chosen and read back from that at the end (`history.py`), so that one run
serves any number of settings of the penalties.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from gnmt_tf.config import SearchConfig
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.model.decoder import Rows
from gnmt_tf.model.gnmt import GNMTStep
from gnmt_tf.search.constraints import NEVER, NO_CONSTRAINTS, Constraints, repeated_pieces
from gnmt_tf.search.history import IMPOSSIBLE, BeamResult, Chosen, History, read_back
from gnmt_tf.search.rows import filled_rows, row_capacities, with_capacity
from gnmt_tf.search.sampling import sample
from gnmt_tf.search.scoring import Penalties, coverage_sums, eq_14, length_penalty
from gnmt_tf.text.vocabulary import END_ID, PAD_ID, START_ID

FEW_BANNED = 16
"""With more banned pieces they are taken out of the logits before the best are looked for."""

COMPACT_BELOW = 0.75
"""Finished sentences are taken out of the batch once less than this share of it is still searched."""


class StepModel(Protocol):
    """What the search needs of a model. States and memories are any nests of tensors.

    A memory's first axis is that of the sentences, a state's that of the rows; the first tensor of a memory has the
    source positions as its second axis.
    """

    def start(self, memory: Any) -> Any:
        """What steps read of the sentences, from the encoder's memory."""

    def initial_state(self, num_rows: int | tf.Tensor) -> Any:
        """The state before the first step."""

    def decode_step(self, ids: tf.Tensor, state: Any, memory: Any, rows: Rows) -> GNMTStep:
        """One step for rows of ids [rows]."""


class _Sentences(NamedTuple):
    # What belongs to the sentences that are still in the batch. numbers: their places in the whole batch.
    numbers: tf.Tensor
    memory: Any
    source_lengths: tf.Tensor
    limits: tf.Tensor
    prefix_ids: tf.Tensor
    prefix_lengths: tf.Tensor


class _Live(NamedTuple):
    # One slot a hypothesis, [batch, width]: ids, the piece it took last; log_probs, -inf in an empty slot; rows, where
    # in the state its own is. accumulated_attention [batch, width, source]; pieces [batch, width, steps], all that it
    # took, when they are needed at every step, else [batch, width, 0].
    ids: tf.Tensor
    log_probs: tf.Tensor
    rows: tf.Tensor
    accumulated_attention: tf.Tensor
    pieces: tf.Tensor


class _Loop(NamedTuple):
    # failed_step: the step whose logits were not finite, or -1. state: of the rows of the last step. best_scores:
    # [batch, settings of the penalties, n_best], the best complete hypotheses so far.
    step: tf.Tensor
    failed_step: tf.Tensor
    sentences: _Sentences
    live: _Live
    state: Any
    best_scores: tf.Tensor
    history: History


class _Taken(NamedTuple):
    # One step of all rows: the state after it; by slot the best continuations, [batch, width, k], and the attention.
    state: Any
    log_probs: tf.Tensor
    ids: tf.Tensor
    attention_probs: tf.Tensor
    finite: tf.Tensor


def max_target_length(source_lengths: tf.Tensor, search: SearchConfig) -> tf.Tensor:
    """Longest hypothesis of each sentence in pieces, `</s>` counted: int32 like `source_lengths`."""
    scaled = tf.cast(tf.cast(source_lengths, tf.float32) * search.max_length_factor, tf.int32)
    return tf.maximum(scaled + search.max_length_constant, 1)


def beam_search(
    model: StepModel,
    memory: AttentionMemory | Any,
    source_lengths: tf.Tensor,
    search: SearchConfig,
    max_steps: int | None = None,
    keep_attention: bool = True,
    constraints: Constraints = NO_CONSTRAINTS,
) -> BeamResult:
    """Finds the `search.n_best` best hypotheses of each sentence.

    Args:
      model: the decoder.
      memory: of the batch, from `model.encode`.
      source_lengths: int32 [batch_size], at least 1.
      search: width, penalties, pruning, limits.
      max_steps: steps of the loop, given when shapes have to be static, as XLA needs them. Rows are then computed in a
        few fixed numbers instead of exactly as many as there are, and finished sentences stay in the batch.
      keep_attention: whether the result holds the attention of every step, which takes memory for all of them.
      constraints: what the hypotheses have to start with, and what they may not hold.
    """
    penalties = [Penalties(search.length_penalty_weight, search.coverage_penalty_weight)]
    return beam_search_grid(model, memory, source_lengths, search, penalties, max_steps, keep_attention, constraints)[0]


def beam_search_grid(
    model: StepModel,
    memory: AttentionMemory | Any,
    source_lengths: tf.Tensor,
    search: SearchConfig,
    penalties: Sequence[Penalties],
    max_steps: int | None = None,
    keep_attention: bool = True,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[BeamResult]:
    """As `beam_search` for each of several settings of the penalties, in one run.

    The live hypotheses do not depend on the penalties, only which complete one is best and when that is certain. So the
    run goes on until it is certain for all, and each result is that of a run of its own.
    """
    run = _Run(model, source_lengths, search, penalties, max_steps, keep_attention, constraints)
    loop = run(model.start(memory))
    margin = search.hypothesis_margin
    return [
        read_back(loop.history, loop.step, run.limits, setting, search.n_best, margin, max_steps, loop.failed_step)
        for setting in penalties
    ]


class _Run:
    """One search: what does not change from step to step, and the step."""

    def __init__(
        self,
        model: StepModel,
        source_lengths: tf.Tensor,
        search: SearchConfig,
        penalties: Sequence[Penalties],
        max_steps: int | None,
        keep_attention: bool,
        constraints: Constraints,
    ):
        self.model, self.search, self.penalties = model, search, penalties
        self.source_lengths, self.constraints, self.keep_attention = source_lengths, constraints, keep_attention
        self.width = search.beam_width
        self.is_static = max_steps is not None
        limits = max_target_length(source_lengths, search)
        self.most_steps = tf.reduce_max(limits) if max_steps is None else max_steps
        self.limits = tf.minimum(limits, self.most_steps)
        self.batch_size = source_lengths.shape[0] or tf.shape(source_lengths)[0]
        self.samples = search.method == "sample"
        self.num_groups = self.width if self.samples else search.diverse_groups

    def __call__(self, memory: Any) -> _Loop:
        start = self._start(memory)
        invariants = None if self.is_static else _any_batch(start)
        return _Loop(
            *tf.while_loop(
                lambda *loop: self._goes_on(_Loop(*loop)),
                lambda *loop: self._advance(_Loop(*loop)),
                start,
                shape_invariants=invariants,
                maximum_iterations=self.most_steps,
            )
        )

    def _start(self, memory: Any) -> _Loop:
        shape = [self.batch_size, self.width]
        source_length = tf.nest.flatten(memory)[0].shape[1] or tf.shape(tf.nest.flatten(memory)[0])[1]
        # All slots hold the same empty hypothesis, so only the first of each group may speak at the first step.
        is_first = tf.range(self.width) % (self.width // self.num_groups) == 0
        first = tf.where(is_first, 0.0, IMPOSSIBLE)
        prefix_ids, prefix_lengths = self.constraints.prefix(self.batch_size)
        sentences = _Sentences(
            tf.range(self.batch_size), memory, self.source_lengths, self.limits, prefix_ids, prefix_lengths
        )
        live = _Live(
            tf.fill(shape, START_ID),
            tf.tile(first[None, :], [self.batch_size, 1]),
            tf.tile(tf.range(self.batch_size)[:, None], [1, self.width]),
            tf.zeros([*shape, source_length]),
            tf.fill([*shape, self.most_steps if self.search.no_repeat_ngram else 0], PAD_ID),
        )
        # With static shapes a state has as many rows as there may ever be.
        num_rows = self.batch_size * self.width if self.is_static else self.batch_size
        kept_source_length = live.accumulated_attention.shape[2] if self.keep_attention else 0
        static = [self.source_lengths.shape[0], self.width]
        return _Loop(
            tf.constant(0),
            tf.constant(-1),
            sentences,
            live,
            self.model.initial_state(num_rows),
            tf.fill([self.batch_size, len(self.penalties), self.search.n_best], IMPOSSIBLE),
            History.empty(self.most_steps, static, kept_source_length),
        )

    def _goes_on(self, loop: _Loop) -> tf.Tensor:
        alive = tf.reduce_any(loop.live.log_probs > IMPOSSIBLE)
        return (loop.step < self.most_steps) & alive & (loop.failed_step < 0)

    def _advance(self, loop: _Loop) -> _Loop:
        step, sentences, live = loop.step, loop.sentences, loop.live
        rows = filled_rows(live.log_probs > IMPOSSIBLE, self.is_static)
        taken = self._take(loop, rows)
        choice = self._choose(live.log_probs, taken)
        attention = tf.gather(live.accumulated_attention + taken.attention_probs, choice.parent_ids, batch_dims=1)
        ended = (choice.ids == END_ID) & (choice.log_probs > IMPOSSIBLE)
        complete_log_probs = tf.where(ended, choice.log_probs, IMPOSSIBLE)
        coverage = coverage_sums(attention, sentences.source_lengths)
        history = loop.history.write(
            step,
            choice,
            complete_log_probs,
            coverage,
            taken.attention_probs if self.keep_attention else tf.zeros([tf.shape(ended)[0], self.width, 0]),
            None if self.is_static else (sentences.numbers, self.batch_size),
        )
        best_scores = self._best_scores(loop.best_scores, complete_log_probs, coverage, step + 1)
        alive = tf.where(ended, IMPOSSIBLE, choice.log_probs)
        if self.search.early_stopping and not self.samples:
            can_win = self._can_win(alive, best_scores, sentences.limits)
            alive = tf.where(can_win[:, None], alive, IMPOSSIBLE)
        next_live = _Live(
            choice.ids,
            alive,
            tf.gather(rows.row_of_slot, choice.parent_ids, batch_dims=1),
            attention,
            self._next_pieces(live.pieces, choice, step),
        )
        failed_step = tf.where(taken.finite, -1, step)
        if not self.is_static:
            sentences, next_live, best_scores = self._without_finished(sentences, next_live, best_scores)
        return _Loop(step + 1, failed_step, sentences, next_live, taken.state, best_scores, history)

    def _take(self, loop: _Loop, rows: Rows) -> _Taken:
        """The model's step for the rows, in the smallest of a few static numbers of rows when shapes are static."""
        if not self.is_static:
            return self._take_rows(loop, rows)
        most = rows.slots.shape[0]
        capacities = row_capacities(most)
        num_rows = tf.reduce_sum(tf.cast(loop.live.log_probs > IMPOSSIBLE, tf.int32))
        # Capacities fall, and the one to take is the last that is large enough.
        index = tf.reduce_sum(tf.cast(tf.constant(capacities) >= num_rows, tf.int32)) - 1

        def branch(capacity: int):
            taken = self._take_rows(loop, with_capacity(rows, capacity))
            padding = [[0, most - capacity]]
            state = tf.nest.map_structure(lambda v: tf.pad(v, padding + [[0, 0]] * (v.shape.rank - 1)), taken.state)
            return taken._replace(state=state)

        return tf.switch_case(index, [lambda c=capacity: branch(c) for capacity in capacities])

    def _take_rows(self, loop: _Loop, rows: Rows) -> _Taken:
        live, sentences = loop.live, loop.sentences
        parents = tf.gather(tf.reshape(live.rows, [-1]), rows.slots)
        state = tf.nest.map_structure(lambda values: tf.gather(values, parents), loop.state)
        ids = tf.gather(tf.reshape(live.ids, [-1]), rows.slots)
        taken = self.model.decode_step(ids, state, sentences.memory, rows)
        log_probs, ids, finite = self._continuations(taken.logits, rows, loop)
        filled = live.log_probs > IMPOSSIBLE
        return _Taken(
            taken.state,
            tf.where(filled[:, :, None], rows.by_slot(log_probs), IMPOSSIBLE),
            rows.by_slot(ids),
            tf.where(filled[:, :, None], taken.attention_probs, 0.0),
            finite,
        )

    def _continuations(self, logits: tf.Tensor, rows: Rows, loop: _Loop) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The best pieces that may follow each row, best first: log-probabilities and ids [rows, k], and whether all
        logits were finite.
        """
        sentences, step = loop.sentences, loop.step
        sentence_of_row = rows.slots // self.width
        limits = tf.gather(sentences.limits, sentence_of_row)
        if self.samples or self.search.no_repeat_ngram or len(self.constraints.banned_ids) > FEW_BANNED:
            values, ids, normaliser = self._best_of_allowed(logits, rows, loop)
        else:
            values, ids, normaliser = self._best_but_banned(logits, step)
        log_probs = values - normaliser[:, None]
        if self.search.piece_margin is not None and not self.samples:
            # First pruning. "The best token" is that of the same hypothesis: its own distribution says what is
            # unlikely.
            log_probs = tf.where(log_probs >= log_probs[:, :1] - self.search.piece_margin, log_probs, IMPOSSIBLE)
        # What has to be taken is taken, and paid for, whatever was ruled out above: the prefix, `</s>` at the limit.
        forced = tf.where(step + 1 >= limits, END_ID, -1)
        if self.constraints.has_prefix:
            place = tf.minimum(step, tf.shape(sentences.prefix_ids)[1] - 1)
            prefix_ids = tf.gather(sentences.prefix_ids[:, place], sentence_of_row)
            within = step < tf.gather(sentences.prefix_lengths, sentence_of_row)
            forced = tf.where(within, prefix_ids, forced)
        is_forced = forced >= 0
        forced = tf.maximum(forced, 0)
        only = tf.gather(logits, forced, batch_dims=1) - normaliser
        first = tf.range(tf.shape(values)[1]) == 0
        log_probs = tf.where(is_forced[:, None], tf.where(first, only[:, None], IMPOSSIBLE), log_probs)
        ids = tf.where(is_forced[:, None] & first, forced[:, None], ids)
        return log_probs, ids, tf.reduce_all(tf.math.is_finite(normaliser))

    def _best_but_banned(self, logits: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The logits and ids of the best pieces that may follow, [rows, k], and the log of the softmax's sum [rows].

        As many more of the best are looked at as there are banned ones, so that no pass over all logits is needed for
        those.
        """
        num_banned = len({*NEVER, *self.constraints.banned_ids}) + bool(self.search.min_length)
        values, ids = tf.math.top_k(logits, self._at_most_all(self._num_continuations + num_banned, logits))
        best = values[:, :1]
        normaliser = best[:, 0] + tf.math.log(tf.reduce_sum(tf.exp(logits - best), axis=-1))
        values = tf.where(self.constraints.are_banned(ids), IMPOSSIBLE, values)
        if self.search.min_length:
            values = tf.where((ids == END_ID) & (step < self.search.min_length), IMPOSSIBLE, values)
        values, places = tf.math.top_k(values, self._at_most_all(self._num_continuations, logits))
        return values, tf.gather(ids, places, batch_dims=1), normaliser

    def _best_of_allowed(self, logits: tf.Tensor, rows: Rows, loop: _Loop) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `_best_but_banned` for any rules, and for samples."""
        step, vocab_size = loop.step, logits.shape[-1] or tf.shape(logits)[-1]
        allowed = logits + self.constraints.mask(vocab_size)
        if self.search.min_length:
            too_early = (step < self.search.min_length) & (tf.range(vocab_size) == END_ID)
            allowed = tf.where(too_early, IMPOSSIBLE, allowed)
        if self.search.no_repeat_ngram:
            pieces = tf.gather(tf.reshape(loop.live.pieces, [-1, self.most_steps]), rows.slots)
            repeated = repeated_pieces(pieces, step, self.search.no_repeat_ngram, vocab_size)
            allowed = tf.where(repeated, IMPOSSIBLE, allowed)
        normaliser = tf.reduce_logsumexp(logits, axis=-1)
        if self.samples:
            numbers = tf.gather(loop.sentences.numbers, rows.slots // self.width)
            keys = self.constraints.sentence_seeds(numbers), step, rows.slots % self.width
            return *sample(allowed, keys, self.search, self.constraints.candidate_ids), normaliser
        return *tf.math.top_k(allowed, self._at_most_all(self._num_continuations, logits)), normaliser

    @property
    def _num_continuations(self) -> int:
        """How many continuations of a hypothesis may be chosen at a step, all penalties for diversity considered."""
        return self.width * (2 if self.num_groups > 1 else 1)

    def _at_most_all(self, count: int, logits: tf.Tensor) -> int | tf.Tensor:
        vocab_size = logits.shape[-1]
        return tf.minimum(count, tf.shape(logits)[-1]) if vocab_size is None else min(count, vocab_size)

    def _choose(self, live_log_probs: tf.Tensor, taken: _Taken) -> Chosen:
        """The best continuations of all slots, group by group; of samples each slot's own."""
        if self.samples:
            log_probs, ids = taken.log_probs[:, :, 0], taken.ids[:, :, 0]
            slots = tf.zeros_like(ids) + tf.range(self.width)
            return Chosen(live_log_probs + log_probs, log_probs, ids, slots)
        per_group = self.width // self.num_groups
        groups: list[Chosen] = []
        for group in range(self.num_groups):
            slots = slice(group * per_group, (group + 1) * per_group)
            log_probs, ids = taken.log_probs[:, slots], taken.ids[:, slots]
            totals = live_log_probs[:, slots, None] + log_probs
            values = totals
            if groups:
                # Diverse beam search: a piece costs more the more often earlier groups took it at this step.
                earlier = tf.concat([tf.where(c.log_probs > IMPOSSIBLE, c.ids, -1) for c in groups], axis=1)
                counts = tf.reduce_sum(tf.cast(ids[..., None] == earlier[:, None, None], tf.float32), axis=-1)
                values = totals - self.search.diversity_strength * counts
            k = values.shape[2] or tf.shape(values)[2]
            # Among equals top_k takes the lower index: the lower slot, then the lower id.
            _, indices = tf.math.top_k(tf.reshape(values, [-1, per_group * k]), per_group)
            totals, log_probs, ids = (
                tf.gather(tf.reshape(v, [-1, per_group * k]), indices, batch_dims=1) for v in (totals, log_probs, ids)
            )
            groups.append(Chosen(totals, log_probs, ids, indices // k + group * per_group))
        return Chosen(*(tf.concat(values, axis=1) for values in zip(*groups, strict=True)))

    def _best_scores(
        self, best_scores: tf.Tensor, complete_log_probs: tf.Tensor, coverage: tf.Tensor, length: tf.Tensor
    ) -> tf.Tensor:
        updated = []
        for number, setting in enumerate(self.penalties):
            scores = eq_14(complete_log_probs, length, coverage, setting)
            both = tf.concat([best_scores[:, number], scores], axis=1)
            updated.append(tf.math.top_k(both, self.search.n_best).values)
        return tf.stack(updated, axis=1)

    def _can_win(self, alive: tf.Tensor, best_scores: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Whether a live hypothesis of each sentence [batch] may still enter the n best, under any of the settings.

        Log P only falls and the penalty divides it by at most lp(limit), while coverage adds at most 0.
        """
        best_live = tf.reduce_max(alive, axis=1)
        answers = []
        for number, setting in enumerate(self.penalties):
            to_beat = best_scores[:, number, -1]
            if self.search.hypothesis_margin is not None:
                to_beat = tf.maximum(to_beat, best_scores[:, number, 0] - self.search.hypothesis_margin)
            answers.append(best_live / length_penalty(limits, setting.length_weight) > to_beat)
        return tf.reduce_any(tf.stack(answers), axis=0)

    def _next_pieces(self, pieces: tf.Tensor, choice: Chosen, step: tf.Tensor) -> tf.Tensor:
        if not self.search.no_repeat_ngram:
            return pieces
        pieces = tf.gather(pieces, choice.parent_ids, batch_dims=1)
        return tf.where(tf.range(tf.shape(pieces)[2]) == step, choice.ids[:, :, None], pieces)

    def _without_finished(
        self, sentences: _Sentences, live: _Live, best_scores: tf.Tensor
    ) -> tuple[_Sentences, _Live, tf.Tensor]:
        searched = tf.reduce_any(live.log_probs > IMPOSSIBLE, axis=1)
        share = tf.reduce_mean(tf.cast(searched, tf.float32))
        everything = sentences, live, best_scores

        def compacted():
            return tf.nest.map_structure(lambda values: tf.boolean_mask(values, searched), everything)

        return tf.cond((share < COMPACT_BELOW) & (share > 0.0), compacted, lambda: everything)


def _any_batch(loop: _Loop) -> _Loop:
    """Shape invariants under which sentences may leave the batch."""

    def first_axis_open(values: Any) -> tf.TensorShape | None:
        if isinstance(values, tf.TensorArray):
            return None
        return tf.TensorShape([None, *values.shape[1:]]) if values.shape.rank else values.shape

    return tf.nest.map_structure(first_axis_open, loop)

"""What a search keeps of its steps, and how hypotheses are chosen and read back from it.

Reads one `Chosen` a step; gives a `BeamResult` for any setting of the penalties. Nothing is copied from step to step.
"""

from typing import NamedTuple

import tensorflow as tf

from gnmt_tf.search.scoring import Penalties, eq_14
from gnmt_tf.text.vocabulary import PAD_ID

IMPOSSIBLE = float("-inf")
"""Log-probability and score of what does not exist."""


class BeamResult(NamedTuple):
    """The best hypotheses of each sentence, best first; rows beyond those that exist have score -inf and length 0.

    Fields:
      ids: int32 [batch_size, n_best, target_length], `</s>` last, then the pad id; target_length is that of the longest
        hypothesis, at least 1, or `max_steps` when that is given.
      lengths: int32 [batch_size, n_best], `</s>` counted.
      scores: float [batch_size, n_best], eq. 14.
      log_probs: float [batch_size, n_best], log P(Y|X).
      piece_log_probs: float [batch_size, n_best, target_length], of each piece, 0 after the end; they sum to log_probs.
      attention_probs: float [batch_size, n_best, target_length, source_length]; source_length is 0 when
        the attention is not kept.
      truncated: bool [batch_size, n_best], whether the hypothesis is as long as the length limit lets it be.
      failed_step: int32 scalar, the step (from 0) at which the model gave logits that are not finite, which ended the
        search; -1 if none did.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    piece_log_probs: tf.Tensor
    attention_probs: tf.Tensor
    truncated: tf.Tensor
    failed_step: tf.Tensor


class Chosen(NamedTuple):
    """The continuations taken in one step, [batch_size, beam_width] each.

    Fields:
      log_probs: of the whole hypothesis; -inf where there is none.
      piece_log_probs: of the piece alone.
      ids: the piece.
      parent_ids: the slot that it continues.
    """

    log_probs: tf.Tensor
    piece_log_probs: tf.Tensor
    ids: tf.Tensor
    parent_ids: tf.Tensor


class History(NamedTuple):
    """All steps, as arrays of [batch_size, beam_width] or, for the attention, [batch_size, beam_width, source_length].

    Fields:
      ids, parent_ids, piece_log_probs: see Chosen.
      complete_log_probs: log P of the hypotheses that ended at the step, else -inf.
      coverage: their `coverage_sums`.
      attention_probs: of every slot, before the step's choice.
    """

    ids: tf.TensorArray
    parent_ids: tf.TensorArray
    piece_log_probs: tf.TensorArray
    complete_log_probs: tf.TensorArray
    coverage: tf.TensorArray
    attention_probs: tf.TensorArray

    @classmethod
    def empty(cls, num_steps: int | tf.Tensor, shape: list[int | None], source_length: int | None) -> "History":
        """Room for `num_steps` steps; `shape` is [batch_size, beam_width] as far as it is static."""
        dtypes = tf.int32, tf.int32, tf.float32, tf.float32, tf.float32
        arrays = [tf.TensorArray(dtype, num_steps, element_shape=shape) for dtype in dtypes]
        arrays.append(tf.TensorArray(tf.float32, num_steps, element_shape=[*shape, source_length]))
        return cls(*arrays)

    def write(
        self,
        step: tf.Tensor,
        chosen: Chosen,
        complete_log_probs: tf.Tensor,
        coverage: tf.Tensor,
        attention_probs: tf.Tensor,
        places: tuple[tf.Tensor, int | tf.Tensor] | None,
    ) -> "History":
        """Adds a step.

        Args:
          step: its number.
          chosen, complete_log_probs, coverage, attention_probs: of the sentences that are still in the batch.
          places: those sentences' numbers in the whole batch and the size of that; None when all are still there.
        """
        values = (
            chosen.ids,
            chosen.parent_ids,
            chosen.piece_log_probs,
            complete_log_probs,
            coverage,
            attention_probs,
        )
        fills = PAD_ID, 0, 0.0, IMPOSSIBLE, 0.0, 0.0
        written = []
        for array, value, fill in zip(self, values, fills, strict=True):
            written.append(array.write(step, value if places is None else _placed(value, fill, *places)))
        return History(*written)


def read_back(
    history: History,
    num_steps: tf.Tensor,
    limits: tf.Tensor,
    penalties: Penalties,
    n_best: int,
    pruning_margin: float | None,
    max_steps: int | None,
    failed_step: tf.Tensor,
) -> BeamResult:
    """Chooses the best complete hypotheses and follows their parents from their ends to the start.

    Args:
      history: of the search.
      num_steps: steps that were taken.
      limits: int32 [batch_size], the longest hypothesis of each sentence.
      penalties: alpha and beta.
      n_best: hypotheses to give.
      pruning_margin: of the second pruning, or None.
      max_steps: length of the result where it has to be static.
      failed_step: see BeamResult.
    """
    # Of steps that may be taken but seldom are there is no need for a copy, unless shapes have to be static.
    stacked = (array.gather(tf.range(num_steps)) if max_steps is None else array.stack() for array in history)
    arrays = History(*stacked)  # type: ignore[arg-type]
    ends = _best_ends(arrays, num_steps, penalties, n_best, pruning_margin)
    exists = ends.scores > IMPOSSIBLE
    lengths = tf.where(exists, ends.steps + 1, 0)
    most = tf.maximum(tf.reduce_max(lengths), 1) if max_steps is None else max_steps

    def back(step: tf.Tensor, slots: tf.Tensor, out: tuple[tf.TensorArray, ...]):
        # `slots` is where the hypothesis stands after the step; at its end that is where `</s>` was taken.
        at_end, before = step == ends.steps, step < ends.steps
        part = exists & (at_end | before)
        slots = tf.where(at_end, ends.slots, slots)
        ids, log_probs, parents = (
            tf.gather(values[step], slots, batch_dims=1)
            for values in (arrays.ids, arrays.piece_log_probs, arrays.parent_ids)
        )
        slots = tf.where(part, parents, slots)
        probs = tf.gather(arrays.attention_probs[step], slots, batch_dims=1)
        taken = (
            tf.where(part, ids, PAD_ID),
            tf.where(part, log_probs, 0.0),
            tf.where(part[:, :, None], probs, 0.0),
        )
        return step - 1, slots, tuple(array.write(step, value) for array, value in zip(out, taken, strict=True))

    shape = ends.slots.shape
    out = (
        tf.TensorArray(tf.int32, most, element_shape=shape),
        tf.TensorArray(tf.float32, most, element_shape=shape),
        tf.TensorArray(tf.float32, most, element_shape=[*shape, arrays.attention_probs.shape[-1]]),
    )
    *_, out = tf.while_loop(lambda step, *_: step >= 0, back, (most - 1, ends.slots, out), maximum_iterations=most)
    ids, piece_log_probs, attention_probs = (array.stack() for array in out)
    # As floats of the same bits: TensorFlow's transpose of integers writes a complaint to stderr on some machines.
    ids = tf.bitcast(tf.transpose(tf.bitcast(ids, tf.float32), [1, 2, 0]), tf.int32)
    return BeamResult(
        ids,
        lengths,
        ends.scores,
        tf.where(exists, ends.log_probs, IMPOSSIBLE),
        tf.transpose(piece_log_probs, [1, 2, 0]),
        tf.transpose(attention_probs, [1, 2, 0, 3]),
        exists & (lengths >= limits[:, None]),
        failed_step,
    )


class _Ends(NamedTuple):
    # [batch, n_best] each: eq. 14, log P, the step that gave `</s>`, and the slot it came to.
    scores: tf.Tensor
    log_probs: tf.Tensor
    steps: tf.Tensor
    slots: tf.Tensor


def _best_ends(
    arrays: History, num_steps: tf.Tensor, penalties: Penalties, n_best: int, pruning_margin: float | None
) -> _Ends:
    log_probs = arrays.complete_log_probs
    all_steps, width = tf.shape(log_probs)[0], log_probs.shape[2]
    steps = tf.range(all_steps)[:, None, None]
    # Steps that were never taken hold zeros.
    log_probs = tf.where(steps < num_steps, log_probs, IMPOSSIBLE)
    scores = eq_14(log_probs, steps + 1, arrays.coverage, penalties)
    log_probs, scores = (
        tf.reshape(tf.transpose(values, [1, 0, 2]), [-1, all_steps * width]) for values in (log_probs, scores)
    )
    # Among equals top_k takes the lower index: the earlier end, then the lower slot.
    best, indices = tf.math.top_k(scores, n_best)
    if pruning_margin is not None:
        # Second pruning.
        best = tf.where(best >= best[:, :1] - pruning_margin, best, IMPOSSIBLE)
    return _Ends(best, tf.gather(log_probs, indices, batch_dims=1), indices // width, indices % width)


def _placed(values: tf.Tensor, fill: float, numbers: tf.Tensor, batch_size: int | tf.Tensor) -> tf.Tensor:
    shape = tf.concat([[batch_size], tf.shape(values)[1:]], axis=0)
    if values.shape[-1] == 0:
        return tf.zeros(shape, values.dtype)
    return tf.tensor_scatter_nd_update(tf.fill(shape, tf.cast(fill, values.dtype)), numbers[:, None], values)

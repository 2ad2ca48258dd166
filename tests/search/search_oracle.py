"""The beam search as a person would write it: one sentence, lists of hypotheses, no slots and no masks."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

PAD, START, END = 0, 2, 3


class Hypothesis(NamedTuple):
    ids: tuple
    log_prob: float
    state: object
    attention: np.ndarray
    accumulated: np.ndarray


class Complete(NamedTuple):
    score: float
    ids: tuple
    log_prob: float
    attention: np.ndarray


def lp(length, alpha):
    return ((5 + length) / 6) ** alpha


def cp(accumulated, beta):
    return beta * sum(math.log(min(max(a, 1e-6), 1.0)) for a in accumulated)


def oracle_search(model, source_ids, search):
    """The complete hypotheses of one sentence, best first, at most `search.n_best`."""
    memory = model.encode(tf.constant([source_ids]), tf.constant([len(source_ids)]))
    limit = max(int(np.float32(len(source_ids)) * np.float32(search.max_length_factor)) + search.max_length_constant, 1)
    nothing = np.zeros([0, len(source_ids)])
    live = [Hypothesis((), 0.0, model.initial_state(1), nothing, np.zeros(len(source_ids)))]
    complete = []
    for length in range(1, limit + 1):
        candidates = []
        for rank, hypothesis in enumerate(live):
            previous = hypothesis.ids[-1] if hypothesis.ids else START
            step = model.decode_step(tf.constant([previous]), hypothesis.state, memory)
            log_probs = tf.nn.log_softmax(step.logits)[0].numpy().astype(np.float64)
            allowed = [i for i in range(len(log_probs)) if i not in (PAD, START)]
            if search.pruning_margin is not None:
                best = max(log_probs[i] for i in allowed)
                allowed = [i for i in allowed if log_probs[i] >= best - search.pruning_margin]
            if length == limit:
                allowed = [END]
            for i in allowed:
                candidates.append((hypothesis.log_prob + log_probs[i], rank, i, step))
        # The better first; among equals the earlier hypothesis, then the lower id.
        candidates.sort(key=lambda c: (-c[0], c[1], c[2]))
        next_live = []
        for log_prob, rank, i, step in candidates[: search.beam_width]:
            parent, probs = live[rank], step.attention_probs[0].numpy()
            accumulated = parent.accumulated + probs
            attention = np.concatenate([parent.attention, probs[None]])
            ids = (*parent.ids, i)
            if i == END:
                score = log_prob / lp(length, search.length_penalty_weight)
                score += cp(accumulated, search.coverage_penalty_weight)
                complete.append(Complete(score, ids, log_prob, attention))
            else:
                next_live.append(Hypothesis(ids, log_prob, step.state, attention, accumulated))
        complete.sort(key=lambda c: -c.score)
        complete = complete[: search.beam_width]
        if search.pruning_margin is not None:
            complete = [c for c in complete if c.score >= complete[0].score - search.pruning_margin]
        live = next_live
        if not live or (complete and not can_win(live, complete, limit, search)):
            break
    return complete[: search.n_best]


def can_win(live, complete, limit, search):
    """Whether any live hypothesis could still enter the n best, were the rest of it free and all of it attended to."""
    bound = max(h.log_prob for h in live) / lp(limit, search.length_penalty_weight)
    if search.pruning_margin is not None and bound <= complete[0].score - search.pruning_margin:
        return False
    return len(complete) < search.n_best or bound > complete[search.n_best - 1].score

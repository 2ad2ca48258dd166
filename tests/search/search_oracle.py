"""The beam search as a person would write it, in NumPy: one sentence, lists of hypotheses, no slots and no masks."""

import math
from typing import NamedTuple

import numpy as np

PAD, START, END = 0, 2, 3


class Hypothesis(NamedTuple):
    ids: tuple
    log_prob: float
    piece_log_probs: tuple
    state: object
    attention: np.ndarray


class Complete(NamedTuple):
    score: float
    ids: tuple
    log_prob: float
    piece_log_probs: tuple
    attention: np.ndarray


class Candidate(NamedTuple):
    value: float
    rank: int
    id: int
    log_prob: float


class Gap:
    """How close the closest decision was: a search in float32 may decide otherwise where that is next to nothing."""

    def __init__(self):
        self.smallest = math.inf

    def between(self, a, b):
        if math.isfinite(a) and math.isfinite(b):
            self.smallest = min(self.smallest, abs(a - b))


def lp(length, alpha):
    return ((5 + length) / 6) ** alpha


def cp(attention, beta):
    return beta * sum(math.log(min(max(a, 1e-6), 1.0)) for a in attention.sum(axis=0))


def length_limit(source_length, search):
    return max(int(np.float32(source_length) * np.float32(search.max_length_factor)) + search.max_length_constant, 1)


def oracle_search(model, source_ids, search, prefix=(), banned=(), gap=None):
    """The complete hypotheses of one sentence, best first, at most `search.n_best`.

    `model` has `start(source_ids) -> state` and `step(state, id) -> (log_probs, state, attention)`.
    """
    gap = gap or Gap()
    limit = length_limit(len(source_ids), search)
    empty = Hypothesis((), 0.0, (), model.start(source_ids), np.zeros([0, len(source_ids)]))
    groups = [[empty] for _ in range(search.diverse_groups)]
    complete = []
    for length in range(1, limit + 1):
        steps = [[model.step(h.state, h.ids[-1] if h.ids else START) for h in group] for group in groups]
        chosen_ids, next_groups = [], []
        for group, group_steps in zip(groups, steps, strict=True):
            candidates = []
            for rank, (hypothesis, (log_probs, _, _)) in enumerate(zip(group, group_steps, strict=True)):
                for i in allowed_pieces(log_probs, hypothesis, length, limit, search, prefix, banned, gap):
                    total = hypothesis.log_prob + log_probs[i]
                    value = total - search.diversity_strength * chosen_ids.count(i)
                    candidates.append(Candidate(value, rank, i, total))
            # The better first; among equals the earlier hypothesis, then the lower id.
            candidates.sort(key=lambda c: (-c.value, c.rank, c.id))
            per_group = search.beam_width // search.diverse_groups
            for better, worse in zip(candidates, candidates[1 : per_group + 1], strict=False):
                gap.between(better.value, worse.value)
            next_group = []
            for _, rank, i, log_prob in candidates[:per_group]:
                parent, (log_probs, state, probs) = group[rank], group_steps[rank]
                chosen_ids.append(i)
                grown = Hypothesis(
                    (*parent.ids, i),
                    log_prob,
                    (*parent.piece_log_probs, log_probs[i]),
                    state,
                    np.concatenate([parent.attention, probs[None]]),
                )
                if i == END:
                    complete.append(completed(grown, search))
                else:
                    next_group.append(grown)
            next_groups.append(next_group)
        groups = next_groups
        complete.sort(key=lambda c: -c.score)
        live = [hypothesis for group in groups for hypothesis in group]
        if not live or (search.early_stopping and not can_win(live, complete, limit, search, gap)):
            break
    for better, worse in zip(complete, complete[1:], strict=False):
        # Groups may end with the same hypothesis: which of the two comes first is the same to everybody.
        if better.ids != worse.ids:
            gap.between(better.score, worse.score)
    if search.pruning_margin is not None and search.prunings != "pieces":
        for c in complete:
            gap.between(c.score, complete[0].score - search.pruning_margin)
        complete = [c for c in complete if c.score >= complete[0].score - search.pruning_margin]
    return complete[: search.n_best]


def completed(hypothesis, search):
    score = hypothesis.log_prob / lp(len(hypothesis.ids), search.length_penalty_weight)
    score += cp(hypothesis.attention, search.coverage_penalty_weight)
    return Complete(score, hypothesis.ids, hypothesis.log_prob, hypothesis.piece_log_probs, hypothesis.attention)


def allowed_pieces(log_probs, hypothesis, length, limit, search, prefix, banned, gap):
    if length <= len(prefix):
        return [prefix[length - 1]]
    if length >= limit:
        return [END]
    allowed = [i for i in range(len(log_probs)) if i not in (PAD, START, *banned)]
    if length <= search.min_length:
        allowed = [i for i in allowed if i != END]
    if search.no_repeat_ngram:
        allowed = [i for i in allowed if not repeats((*hypothesis.ids, i), search.no_repeat_ngram)]
    if search.pruning_margin is not None and search.prunings != "hypotheses" and allowed:
        best = max(log_probs[i] for i in allowed)
        for i in allowed:
            gap.between(log_probs[i], best - search.pruning_margin)
        allowed = [i for i in allowed if log_probs[i] >= best - search.pruning_margin]
    return allowed


def repeats(ids, size):
    ngrams = [ids[start : start + size] for start in range(len(ids) - size + 1)]
    return len(ngrams) > 1 and ngrams[-1] in ngrams[:-1]


def can_win(live, complete, limit, search, gap):
    """Whether any live hypothesis could still enter the n best, were the rest of it free and all of it attended to."""
    bound = max(h.log_prob for h in live) / lp(limit, search.length_penalty_weight)
    if complete and search.pruning_margin is not None and search.prunings != "pieces":
        gap.between(bound, complete[0].score - search.pruning_margin)
        if bound <= complete[0].score - search.pruning_margin:
            return False
    if len(complete) < search.n_best:
        return True
    gap.between(bound, complete[search.n_best - 1].score)
    return bound > complete[search.n_best - 1].score

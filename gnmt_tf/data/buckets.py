"""Few static batch shapes with little padding, chosen from the lengths of the corpus."""

from typing import NamedTuple

import numpy as np

MOST_LEVELS = 48
"""Distinct lengths of a side that shapes are chosen from; a corpus with more has its lengths rounded up, half of the
levels at quantiles and half at even distances."""

MOST_PASSES = 10
"""Rounds in which each shape is moved to where it saves most; they end sooner when no move helps."""


class Bucket(NamedTuple):
    """A batch shape and the sentence pairs that use it.

    Fields:
      source_length, target_length: padded lengths in pieces.
      rows: int64 [num_pairs], indices into the corpus.
    """

    source_length: int
    target_length: int
    rows: np.ndarray

    @property
    def positions(self) -> int:
        """Padded positions that one pair takes, source and target together."""
        return self.source_length + self.target_length

    def fits(self, other: "Bucket") -> bool:
        """Whether pairs of the other bucket have room in this one."""
        return self.source_length >= other.source_length and self.target_length >= other.target_length


def make_buckets(source_lengths: np.ndarray, target_lengths: np.ndarray, num_buckets: int) -> list[Bucket]:
    """Divides the pairs among at most `num_buckets` shapes so that few padded positions are needed.

    The two sides are bounded apart. The search starts from the best bounds on the longer side alone, which dynamic
    programming finds, and then moves one shape at a time as long as that saves anything.

    Args:
      source_lengths, target_lengths: int [num_pairs], `</s>` counted.
      num_buckets: most shapes.

    Returns:
      Buckets in the order of their positions, none empty; together they hold every pair once.
    """
    lengths = _Lengths(source_lengths, target_lengths)
    longest = np.maximum(source_lengths, target_lengths)
    shapes = [lengths.shape_of(bound) for bound in _best_bounds(np.bincount(longest), num_buckets)]
    shapes += [(0, 0)] * (num_buckets - len(shapes))
    return _divide(source_lengths, target_lengths, lengths.sizes(lengths.improve(shapes)))


def fewest_buckets(
    source_lengths: np.ndarray, target_lengths: np.ndarray, most_padding: float, most_buckets: int
) -> list[Bucket]:
    """As `make_buckets`, with the fewest shapes whose padding stays under a share of all positions.

    Args:
      source_lengths, target_lengths: int [num_pairs], `</s>` counted.
      most_padding: share of the positions that may hold no piece.
      most_buckets: where the search for more shapes ends; then the padding is what it is.
    """
    low, high = 1, most_buckets
    while low < high:
        middle = (low + high) // 2
        if padding_share(make_buckets(source_lengths, target_lengths, middle), source_lengths, target_lengths) < (
            most_padding
        ):
            high = middle
        else:
            low = middle + 1
    return make_buckets(source_lengths, target_lengths, low)


def padding_share(buckets: list[Bucket], source_lengths: np.ndarray, target_lengths: np.ndarray) -> float:
    """Share of the positions of all pairs that hold no piece."""
    padded = sum(bucket.positions * len(bucket.rows) for bucket in buckets)
    return 1.0 - float(source_lengths.sum() + target_lengths.sum()) / padded


def _divide(source_lengths: np.ndarray, target_lengths: np.ndarray, sizes: list[tuple[int, int]]) -> list[Bucket]:
    """Every pair to the cheapest shape it fits, each shape then drawn in to the pairs it got."""
    sizes = sorted(set(sizes), key=lambda size: (sum(size), size))
    choice = np.full(len(source_lengths), -1)
    for number, (source_length, target_length) in reversed(list(enumerate(sizes))):
        choice[(source_lengths <= source_length) & (target_lengths <= target_length)] = number
    buckets = []
    for number in range(len(sizes)):
        rows = np.flatnonzero(choice == number)
        if len(rows):
            buckets.append(Bucket(int(source_lengths[rows].max()), int(target_lengths[rows].max()), rows))
    return sorted(buckets, key=lambda bucket: (bucket.positions, bucket.source_length))


class _Lengths:
    """How many pairs there are of each pair of lengths, in levels; shapes are (source level, target level)."""

    def __init__(self, source_lengths: np.ndarray, target_lengths: np.ndarray):
        self._source, self._target = _levels(source_lengths), _levels(target_lengths)
        self._counts = np.zeros([len(self._source), len(self._target)])
        cells = np.searchsorted(self._source, source_lengths), np.searchsorted(self._target, target_lengths)
        np.add.at(self._counts, cells, 1)
        self._positions: np.ndarray = (self._source[:, None] + self._target[None, :]).astype(np.float64)

    def shape_of(self, bound: int) -> tuple[int, int]:
        """The shape that holds `bound` pieces on either side, or all there are."""
        source, target = np.searchsorted(self._source, bound), np.searchsorted(self._target, bound)
        return min(int(source), len(self._source) - 1), min(int(target), len(self._target) - 1)

    def sizes(self, shapes: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Lengths of shapes in pieces."""
        return [(int(self._source[s]), int(self._target[t])) for s, t in shapes]

    def improve(self, shapes: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Moves one shape after the other to the best place for it, until none moves. The largest shape stays."""
        whole = len(self._source) - 1, len(self._target) - 1
        # Only one of them has to hold everything; the others are free to move, from the smallest shape if need be.
        shapes = [(0, 0) if shape == whole else shape for shape in sorted(shapes)[:-1]]
        for _ in range(MOST_PASSES):
            before = list(shapes)
            for number in range(len(shapes)):
                others = [whole, *shapes[:number], *shapes[number + 1 :]]
                gains = self._gains(self._costs(others))
                best = divmod(int(gains.argmax()), gains.shape[1])
                if gains[best] > gains[shapes[number]]:
                    shapes[number] = best
            if shapes == before:
                break
        return [*shapes, whole]

    def _costs(self, shapes: list[tuple[int, int]]) -> np.ndarray:
        """Positions that a pair of each pair of levels takes when it has these shapes to choose from."""
        costs = np.full(self._counts.shape, np.inf)
        for s, t in shapes:
            costs[: s + 1, : t + 1] = np.minimum(costs[: s + 1, : t + 1], self._positions[s, t])
        return costs

    def _gains(self, costs: np.ndarray) -> np.ndarray:
        """What each shape, as one more, would save of these costs."""
        gains = np.zeros(self._counts.shape)
        for s in range(len(gains)):
            # [target level of the shape, source level, target level of the pair]
            saved: np.ndarray = np.maximum(costs[None, : s + 1, :] - self._positions[s, :, None, None], 0.0)
            by_target = np.einsum("tij,ij->tj", saved, self._counts[: s + 1])
            gains[s] = np.tril(by_target).sum(axis=1)
        return gains


def _levels(lengths: np.ndarray) -> np.ndarray:
    distinct = np.unique(lengths)
    if len(distinct) <= MOST_LEVELS:
        return distinct
    shares = np.linspace(0.0, 1.0, MOST_LEVELS // 2 + 1)[1:]
    even = distinct[np.searchsorted(distinct, shares * distinct[-1])]
    return np.unique(np.concatenate([even, np.quantile(lengths, shares, method="higher")]))


def _best_bounds(histogram: np.ndarray, num_buckets: int) -> list[int]:
    """Upper lengths that minimise sum of count x padded length, by dynamic programming over the lengths that occur."""
    lengths = np.flatnonzero(histogram)
    counts = np.concatenate([[0], np.cumsum(histogram[lengths])])
    size = len(lengths)
    # cost[i, j]: padding lengths i..j-1 (by index) to the longest of them.
    cost = (counts[None, :] - counts[:, None])[:, 1:] * lengths[None, :]
    best = np.concatenate([[0], np.full(size, np.iinfo(np.int64).max // 2)])
    cuts = []
    for _ in range(min(num_buckets, size)):
        totals = best[:-1, None] + np.where(np.arange(size)[:, None] <= np.arange(size)[None, :], cost[:-1], 0)
        totals = np.where(np.arange(size)[:, None] <= np.arange(size)[None, :], totals, np.iinfo(np.int64).max)
        cut = totals.argmin(axis=0)
        cuts.append(cut)
        best = np.concatenate([[np.iinfo(np.int64).max // 2], totals[cut, np.arange(size)]])
    bounds: list[int] = []
    end = size
    for cut in reversed(cuts):
        bounds.append(int(lengths[end - 1]))
        end = int(cut[end - 1])
        if end == 0:
            break
    return bounds[::-1]

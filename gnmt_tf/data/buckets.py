"""Few static batch shapes with little padding, chosen from the lengths of the corpus."""

from typing import NamedTuple

import numpy as np


class Bucket(NamedTuple):
    """A batch shape and the sentence pairs that use it.

    Fields:
      source_length, target_length: padded lengths in pieces.
      rows: int64 [num_pairs], indices into the corpus.
    """

    source_length: int
    target_length: int
    rows: np.ndarray


def make_buckets(source_lengths: np.ndarray, target_lengths: np.ndarray, num_buckets: int) -> list[Bucket]:
    """Divides the pairs by their longer side so that the padded total is the least that `num_buckets` shapes allow.

    Args:
      source_lengths, target_lengths: int [num_pairs], `</s>` counted.
      num_buckets: most shapes.

    Returns:
      Buckets from short to long, none empty; together they hold every pair once.
    """
    longest = np.maximum(source_lengths, target_lengths)
    bounds = _best_bounds(np.bincount(longest), num_buckets)
    buckets = []
    lower = 0
    for upper in bounds:
        rows = np.flatnonzero((longest > lower) & (longest <= upper))
        buckets.append(Bucket(int(source_lengths[rows].max()), int(target_lengths[rows].max()), rows))
        lower = upper
    return buckets


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

"""Greedy merging of neighbouring symbols: the inner loop of the wordpiece trainer.

Reads counted units (stretches of text that no piece may leave) as strings of characters; gives new pieces one by one,
best first. Each merge joins, everywhere, the pair of neighbours (a, b) that adds most to the log-likelihood of the
text under a unigram model of the symbols (paper, section 4.1). With f(x) = x log x, n occurrences of the pair, n_a and
n_b of its parts and N symbols in all, the log-likelihood is sum_s f(n_s) - f(N), so that

    gain(a, b) = f(n) + f(n_a - n) + f(n_b - n) - f(n_a) - f(n_b) - (f(N - n) - f(N)),     and for a = b
    gain(a, a) = f(n) + f(n_a - 2n) - f(n_a) - (f(N - n) - f(N)),     n not counting overlaps ("aaa" holds one).

Nothing is counted twice: the text is one array of linked symbols, every pair knows where it occurs, and a merge touches
only the neighbours of what it joins. Only the term in N changes for all pairs at once, and it only falls; so a gain
computed earlier bounds today's, and a short list of the best suffices until its best falls to the bound of the rest.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SHORT_LIST = 512
_LONGEST_SHORT_LIST = 2048
# Gains closer than this are equal: rounding in f() must not decide between pairs of equal counts.
_DECIMALS = 6
_NOWHERE = -1

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


def _x_log_x(x: _Ints) -> _Floats:
    return x.astype(np.float64) * np.log(np.maximum(x, 1))


class _Text:
    """All units as one array of linked symbols; the entries between units are `_NOWHERE`.

    A merged symbol stays at the place of its first character, so that a place never moves.
    """

    def __init__(self, units: Sequence[str], counts: Sequence[int], symbol_of: dict[str, int]):
        lengths = np.array([len(unit) + 1 for unit in units], np.int64)
        characters = [symbol_of[character] for unit in units for character in unit]
        self.symbol = np.full(int(lengths.sum()) + 1, _NOWHERE, np.int32)
        inside = np.ones(self.symbol.size, bool)
        inside[0] = False
        inside[np.cumsum(lengths)] = False
        self.symbol[inside] = characters
        self.weight = np.concatenate([[0], np.repeat(np.array(counts, np.int64), lengths)])
        self.weight[~inside] = 0
        places = np.arange(self.symbol.size, dtype=np.int32)
        self.previous, self.next = places - 1, places + 1
        self._mark = np.zeros(self.symbol.size, bool)

    def neighbours(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The symbols of every place and of the place after it, either may be `_NOWHERE`."""
        return self.symbol[:-1], self.symbol[1:]

    def edges_around(self, first: _Ints, last: _Ints) -> _Ints:
        """Places whose link to the next place touches one of the stretches first..last, each link once.

        Args:
          first: [occurrences] where the stretches begin.
          last: [occurrences] where they end: the same places, or the ones linked behind them.
        """
        before = self.previous[first]
        self._mark[last] = True
        before = before[~self._mark[before]]
        self._mark[last] = False
        inner = [] if first is last else [first]
        return np.concatenate([before, *inner, last])

    def join(self, first: _Ints, symbol: int) -> None:
        """Makes one symbol of each place in `first` and the one after it."""
        second = self.next[first]
        after = self.next[second]
        self.symbol[first] = symbol
        self.symbol[second] = _NOWHERE
        self.next[first] = after
        self.previous[after] = first


class _Pairs:
    """What is known of every pair of symbols that has occurred, in growing arrays indexed by pair id."""

    def __init__(self, num_places: int):
        self.size = 0
        self.left, self.right = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self.count = np.zeros(0, np.int64)
        """Occurrences, overlapping ones of (a, a) included."""
        self.usable = np.zeros(0, np.int64)
        """Occurrences that one merge can join; differs from `count` for (a, a) only."""
        self.listed = np.zeros(0, bool)
        """Whether the pair is on the short list."""
        self.base = np.zeros(0, np.float64)
        """The gain without the term in N; -inf for a pair that is gone."""
        self.pair_at = np.full(num_places, _NOWHERE, np.int32)
        """[places] the pair that a place forms with the next one."""
        self._places: list[list[NDArray[np.int32]]] = []

    def add(self, left: _Ints, right: _Ints) -> _Ints:
        """New pairs with no occurrence yet; gives their ids."""
        ids = np.arange(self.size, self.size + left.size)
        self.size += left.size
        if self.size > self.left.size:
            room = max(1024, self.size, 2 * self.left.size)
            for name in ("left", "right", "count", "usable", "listed", "base"):
                old = getattr(self, name)
                new = np.zeros(room, old.dtype)
                new[: old.size] = old
                setattr(self, name, new)
        self.left[ids], self.right[ids] = left, right
        self._places += [[] for _ in range(left.size)]
        return ids

    def occur(self, ids: _Ints, which: _Ints, places: _Ints, weights: _Ints) -> None:
        """Records that pair `ids[which[i]]` occurs at `places[i]`, `weights[i]` times."""
        self.count[ids] += np.bincount(which, weights, minlength=ids.size).astype(np.int64)
        self.pair_at[places] = ids[which]
        ordered = places[np.argsort(which, kind="stable")].astype(np.int32)
        ends = np.cumsum(np.bincount(which, minlength=ids.size))
        start = 0
        for pair, end in zip(ids.tolist(), ends.tolist(), strict=True):
            self._places[pair].append(ordered[start:end])
            start = end

    def vanish(self, places: _Ints, weights: _Ints) -> _Ints:
        """Takes back the occurrences at `places`; gives the ids of the pairs that lost some."""
        pairs = self.pair_at[places]
        known = pairs >= 0
        ids, which = np.unique(pairs[known], return_inverse=True)
        self.count[ids] -= np.bincount(which, weights[known], minlength=ids.size).astype(np.int64)
        self.pair_at[places] = _NOWHERE
        return ids.astype(np.int64)

    def joinable(self, pair: int, following: NDArray[np.int32]) -> _Ints:
        """The places, in ascending order, where the pair occurs now; of overlapping ones every other, from the left."""
        recorded = self._places[pair]
        places = recorded[0] if len(recorded) == 1 else np.sort(np.concatenate(recorded or [np.zeros(0, np.int32)]))
        places = places[self.pair_at[places] == pair]
        self._places[pair] = [places]
        if self.left[pair] == self.right[pair] and places.size > 1:
            overlaps = np.concatenate([[False], following[places[:-1]] == places[1:]])
            index = np.arange(places.size)
            run_start = np.maximum.accumulate(np.where(overlaps, 0, index))
            places = places[(index - run_start) % 2 == 0]
        return places.astype(np.int64)


class PairMerger:
    """Merges pairs of symbols, the one with the largest gain first.

    Args:
      units: the distinct units; the result does not depend on their order.
      counts: how often each occurs.
      alphabet: every character that occurs in the units.
      max_characters: the longest piece that may come about.
    """

    def __init__(self, units: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], max_characters: int):
        order = sorted(range(len(units)), key=units.__getitem__)
        self._max_characters = max_characters
        self._strings: list[str] = []
        self._symbol_of: dict[str, int] = {}
        self._symbol_count = np.zeros(0, np.int64)
        self._symbol_length = np.zeros(0, np.int64)
        self._pairs_of: list[array[int]] = []
        for character in alphabet:
            self._symbol(character)
        self._text = _Text([units[i] for i in order], [counts[i] for i in order], self._symbol_of)
        self._pairs = _Pairs(self._text.symbol.size)
        live = self._text.symbol >= 0
        totals = np.bincount(self._text.symbol[live], self._text.weight[live], minlength=len(self._strings))
        self._symbol_count[: totals.size] = totals
        self._num_symbols = int(totals.sum())
        left, right = self._text.neighbours()
        changed = self._connect(np.flatnonzero((left >= 0) & (right >= 0)))
        self._update(changed, changed)
        self._short_list = np.zeros(0, np.int64)
        self._bound = np.inf

    def merge_next(self) -> str | None:
        """Joins the best pair everywhere; gives the string of the new symbol, which may have come about before.

        Returns None, and changes nothing, when no merge raises the likelihood any more.
        """
        pair = self._best_pair()
        if pair is None:
            return None
        text, pairs = self._text, self._pairs
        left, right = int(pairs.left[pair]), int(pairs.right[pair])
        first = pairs.joinable(pair, text.next)
        second = text.next[first].astype(np.int64)
        symbol = self._symbol(self._strings[left] + self._strings[right])
        edges = text.edges_around(first, second)
        lost = pairs.vanish(edges, text.weight[edges])
        joined = int(text.weight[first].sum())
        text.join(first, symbol)
        self._symbol_count[left] -= joined
        self._symbol_count[right] -= joined
        self._symbol_count[symbol] += joined
        self._num_symbols -= joined
        edges = text.edges_around(first, first)
        outside = (text.symbol[edges] < 0) | (text.symbol[text.next[edges]] < 0)
        gained = self._connect(np.sort(edges[~outside]))
        affected = np.concatenate([self._living_pairs_of(s) for s in {left, right, symbol}])
        self._update(affected, np.concatenate([lost, gained]))
        self._list_if_above_bound(affected)
        return self._strings[symbol]

    def _symbol(self, string: str) -> int:
        """The symbol of a string: an existing one where the same string came about in another way."""
        symbol = self._symbol_of.setdefault(string, len(self._strings))
        if symbol == len(self._strings):
            self._strings.append(string)
            self._pairs_of.append(array("i"))
            if symbol >= self._symbol_count.size:
                self._symbol_count = np.resize(self._symbol_count, 2 * symbol + 64)
                self._symbol_count[symbol:] = 0
                self._symbol_length = np.resize(self._symbol_length, 2 * symbol + 64)
            self._symbol_length[symbol] = len(string)
        return symbol

    def _connect(self, places: _Ints) -> _Ints:
        """Records the pairs that `places` (ascending) form with the next ones; gives the ids of these pairs."""
        text, pairs = self._text, self._pairs
        left = text.symbol[places].astype(np.int64)
        right = text.symbol[text.next[places]].astype(np.int64)
        fits = self._symbol_length[left] + self._symbol_length[right] <= self._max_characters
        places, left, right = places[fits], left[fits], right[fits]
        keys, which = np.unique(left << 32 | right, return_inverse=True)
        ids = self._existing_pairs(keys)
        new = ids < 0
        ids[new] = pairs.add(keys[new] >> 32, keys[new] & 0xFFFFFFFF)
        for pair, one, other in zip(ids[new].tolist(), *self._both_symbols(ids[new]), strict=True):
            self._pairs_of[one].append(pair)
            if one != other:
                self._pairs_of[other].append(pair)
        pairs.occur(ids, which, places, text.weight[places])
        return ids

    def _both_symbols(self, ids: _Ints) -> tuple[list[int], list[int]]:
        return self._pairs.left[ids].tolist(), self._pairs.right[ids].tolist()

    def _existing_pairs(self, keys: _Ints) -> _Ints:
        """The ids of pairs (left << 32 | right, ascending), all sharing one symbol; `_NOWHERE` for new ones."""
        ids = np.full(keys.size, _NOWHERE, np.int64)
        if not self._pairs.size or not keys.size:
            return ids
        shared = {int(keys[0] >> 32), int(keys[0] & 0xFFFFFFFF)}
        for symbol in shared:
            known = np.array(self._pairs_of[symbol], np.int64)
            # One that died out may be missing from the other symbol's list, so it is added anew.
            known = known[self._pairs.count[known] > 0]
            known_keys = self._pairs.left[known].astype(np.int64) << 32 | self._pairs.right[known]
            at = np.minimum(np.searchsorted(keys, known_keys), keys.size - 1)
            found = keys[at] == known_keys
            ids[at[found]] = known[found]
        return ids

    def _living_pairs_of(self, symbol: int) -> _Ints:
        ids = np.array(self._pairs_of[symbol], np.int32)
        alive = self._pairs.count[ids] > 0
        self._pairs.base[ids[~alive]] = -np.inf
        if 2 * np.count_nonzero(alive) < ids.size:
            self._pairs_of[symbol] = array("i", ids[alive].tobytes())
        return ids[alive].astype(np.int64)

    def _update(self, ids: _Ints, recounted: _Ints) -> None:
        """Computes the gains of pairs without the term in N; `recounted` are those whose occurrences changed."""
        pairs = self._pairs
        pairs.usable[recounted] = pairs.count[recounted]
        for pair in recounted[pairs.left[recounted] == pairs.right[recounted]].tolist():
            pairs.usable[pair] = self._text.weight[pairs.joinable(pair, self._text.next)].sum()
        n = pairs.usable[ids]
        n_left, n_right = self._symbol_count[pairs.left[ids]], self._symbol_count[pairs.right[ids]]
        same = pairs.left[ids] == pairs.right[ids]
        one_left = np.where(same, n_left - 2 * n, n_left - n)
        gain = _x_log_x(n) + _x_log_x(one_left) - _x_log_x(n_left)
        gain += np.where(same, 0.0, _x_log_x(n_right - n) - _x_log_x(n_right))
        pairs.base[ids] = np.where(n > 0, gain, -np.inf)

    def _gains(self, ids: _Ints) -> _Floats:
        n, total = self._pairs.usable[ids], self._num_symbols
        # f(N) - f(N - n) without the cancellation.
        term = n * np.log(total) - (total - n) * np.log1p(-n / total)
        return np.round(self._pairs.base[ids] + term, _DECIMALS)

    def _list_if_above_bound(self, ids: _Ints) -> None:
        ids = np.unique(ids[~self._pairs.listed[ids]])
        ids = ids[self._gains(ids) > self._bound]
        self._pairs.listed[ids] = True
        self._short_list = np.concatenate([self._short_list, ids])

    def _best_pair(self) -> int | None:
        for refreshed in (False, True):
            if refreshed:
                self._refresh_short_list()
            if not self._short_list.size or (self._short_list.size > _LONGEST_SHORT_LIST and not refreshed):
                continue
            gains = self._gains(self._short_list)
            best = gains.max()
            if best > max(self._bound, 0.0):
                return self._first_by_strings(self._short_list[gains == best].tolist())
        return None

    def _first_by_strings(self, ids: list[int]) -> int:
        if len(ids) == 1:
            return ids[0]
        pairs, strings = self._pairs, self._strings
        return min(ids, key=lambda pair: (strings[pairs.left[pair]], strings[pairs.right[pair]]))

    def _refresh_short_list(self) -> None:
        """Lists the pairs of the largest gains, with all that tie; no other has more than `_bound`."""
        pairs = self._pairs
        ids = np.flatnonzero(pairs.base[: pairs.size] > -np.inf)
        gains = self._gains(ids)
        if ids.size > _SHORT_LIST:
            least = np.partition(gains, -_SHORT_LIST)[-_SHORT_LIST]
            self._bound = gains[gains < least].max(initial=-np.inf)
            ids = ids[gains >= least]
        else:
            self._bound = -np.inf
        pairs.listed[:] = False
        pairs.listed[ids] = True
        self._short_list = ids

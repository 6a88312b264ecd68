"""IntOpt: the non-negative integers nearest to noisy counts in the Chebyshev norm, for all parents at once."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

_BLOCK = 2**17  # cells solved at once, or one wider parent: arrays that stay near the processor and bound the memory
_KEY_BITS = 63
_ROW = 256  # keys sorted as one row: about as many as a vectorised sort takes without partitioning


def nearest_in_chebyshev(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return, for each parent, the non-negative integers nearest to its noisy counts that sum to its total.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b}} \|y - x\|_\infty \quad \text{s.t.} \quad \sum_i y_i = c

    Among the optima it is the one that the paper's loop reaches: cells are lowered in ascending order of their noisy
    counts, so that small ones go to zero first, which keeps false positives few. The loop is replaced by its end state.
    With L = ⌈(c − Σx)/b⌉ the loop starts from y = max(0, x + L) and the bound t₀ = max(|L|, L, −min x). If lowering
    cells down to max(0, x − t₀) can remove what is too much, it is removed in ascending order. Otherwise the loop passes
    through max(0, x − t) for growing t and ends at the last t whose sum is at least c; what is still too much is fewer
    than the cells left above zero, and is taken from them one by one in ascending order.

    Args:
        noisy: x, shape (cells,), int64, records; may be negative.
        first_cell: shape (parents + 1,), int64; parent p owns cells first_cell[p]:first_cell[p + 1], at least one.
        totals: c, shape (parents,), int64, records, >= 0.
    Returns:
        y, shape (cells,), int64, records.
    Guarantees:
        Post-processing: reads no true count. Deterministic; ties go to the lower cell.
    Raises:
        ValueError: a total is negative, a parent has no cell, or the shapes disagree.
    Source:
        Boninsegna and Silvestri (2025), Algorithm 3.
    """
    _check(noisy, first_cell, totals)
    y = np.empty(len(noisy), dtype=np.int64)
    cuts = np.unique(np.searchsorted(first_cell, [*range(0, len(noisy), _BLOCK), len(noisy)]))
    for first, stop in pairwise(cuts.tolist()):
        cells = slice(first_cell[first], first_cell[stop])
        y[cells] = _solve(noisy[cells], first_cell[first : stop + 1] - first_cell[first], totals[first:stop])
    return y


def _check(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> None:
    if len(first_cell) != len(totals) + 1 or first_cell[0] != 0 or first_cell[-1] != len(noisy):
        raise ValueError(
            f"first_cell must run from 0 to the {len(noisy)} cells with one step for each of {len(totals)} parents."
        )
    if (np.diff(first_cell) < 1).any():
        raise ValueError("first_cell must give every parent at least one cell.")
    if (totals < 0).any():
        raise ValueError("totals must be >= 0.")


def _solve(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    """Return y for a block of parents. Cells that end at zero are told by comparison, and only the others are sorted.

    Let M = max x. If M + L ≥ c, the greatest cell can hold by itself what those beyond t₀ leave, so that cells up to
    both M − 1 and t₀ end at zero; and if t₀ < M − c, the bound grows at least that far, so that cells up to M − c do.
    Otherwise cells up to −L do, where the loop starts. No cell is left where c = 0, and all of c is a lone cell's.
    """
    if len(noisy) == len(totals):
        return totals
    starts, fan_out = first_cell[:-1], np.diff(first_cell)
    lift = -((_sums(noisy, first_cell[1:]) - totals) // fan_out)  # L
    bound = np.maximum(np.abs(lift), -np.minimum.reduceat(noisy, starts))  # t0
    most = np.maximum.reduceat(noisy, starts)  # M
    suffices = most + lift >= totals
    to_zero = np.where(suffices, np.maximum(np.minimum(most - 1, bound), most - totals), -lift)

    left = np.flatnonzero(noisy > np.repeat(to_zero, fan_out))
    parents = np.repeat(np.arange(len(totals)), fan_out)[left]
    often = np.bincount(parents, minlength=len(totals))
    y = np.zeros_like(noisy)
    y[left] = totals[parents]
    shared = often > 1
    if shared.any():
        left = left[shared[parents]]
        y[left] = _share(noisy[left], often[shared], totals[shared], lift[shared], bound[shared])
    return y


def _share(noisy: IntArray, fan_out: IntArray, totals: IntArray, lift: IntArray, bound: IntArray) -> IntArray:
    """Return y for the cells that are left, given L and t₀; every total is positive, and at most Σ (x + L).

    To lower cells in ascending order, as far as needed, is to raise the lowest that they may be in descending order.
    """
    order = _ascending_within_parents(noisy, fan_out)
    x, ends = noisy[order], np.cumsum(fan_out)

    lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
    given = _sums(lowest, ends)
    beyond = given > totals  # parents for which t0 is too tight
    if beyond.any():
        least = _least_bound(x[np.repeat(beyond, fan_out)], fan_out[beyond], totals[beyond])
        last_bound = np.maximum(bound[beyond], least - 1)
        lift[beyond], bound[beyond] = -last_bound, last_bound + 1
        lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
        given = _sums(lowest, ends)

    room = np.maximum(x + np.repeat(lift, fan_out), 0) - lowest
    room_so_far = np.cumsum(room)
    to_give = room_so_far + np.repeat(totals - given - room_so_far[ends - 1], fan_out)  # what later cells leave
    y = np.empty_like(x)
    y[order] = lowest + np.clip(to_give, 0, room)
    return y


def _ascending_within_parents(noisy: IntArray, fan_out: IntArray) -> IntArray:
    """Return the permutation that sorts cells by parent, then noisy count, then cell.

    Parent, count and cell share one 64-bit key where they fit, because a plain sort is faster than an indirect one.
    """
    least = int(noisy.min())
    cell_bits = len(noisy).bit_length()
    count_bits = (int(noisy.max()) - least).bit_length()
    parents = np.arange(len(fan_out))
    if len(fan_out).bit_length() + count_bits + cell_bits > _KEY_BITS:
        return np.lexsort((noisy, np.repeat(parents, fan_out)))
    key = np.repeat(parents << (count_bits + cell_bits), fan_out)
    key |= (noisy - least) << cell_bits
    key |= np.arange(len(noisy))
    _sort_within_parents(key, fan_out)
    key &= (1 << cell_bits) - 1
    return key


def _sort_within_parents(key: IntArray, fan_out: IntArray) -> None:
    """Sort, in place, keys whose parents ascend already.

    Rows of keys are sorted, and then rows that begin half a row later: a parent of at most half a row lies within a row
    of the one or of the other. Sorting a row does no harm to the parents that it cuts. Wider ones are sorted one by one.
    """
    for offset in (0, _ROW // 2):
        stop = max(offset, len(key) - (len(key) - offset) % _ROW)
        key[offset:stop].reshape(-1, _ROW).sort(axis=1)
        key[stop:].sort()
    wide = fan_out > _ROW // 2
    ends = np.cumsum(fan_out)[wide]
    for first, stop in zip((ends - fan_out[wide]).tolist(), ends.tolist(), strict=True):
        key[first:stop].sort()


def _least_bound(x: IntArray, fan_out: IntArray, totals: IntArray) -> IntArray:
    r"""Return, per parent, the least integer t with Σ max(0, x_i − t) ≤ c.

    With x in descending order and P_j the sum of the first j, t is the ceiling of (P_j − c)/j for the largest j with
    j x_j > P_j − c: the threshold of the projection onto the simplex of size c.

    Args:
        x: noisy counts, ascending within each parent.
        fan_out: cells per parent, >= 1.
        totals: c, per parent, > 0.
    """
    ends, so_far = np.cumsum(fan_out), np.cumsum(x)
    after = np.repeat(so_far[ends - 1], fan_out) - so_far + x  # P_j
    j = np.repeat(ends, fan_out) - np.arange(len(x))
    above = j * x > after - np.repeat(totals, fan_out)
    first_above = ends - _sums(above, ends)
    least: IntArray = -((totals - after[first_above]) // j[first_above])
    return least


def _sums(values: NDArray[np.int64 | np.bool_], ends: IntArray) -> IntArray:
    """Return the sum of each parent's values; it is right where the running sum over all parents has wrapped around."""
    sums: IntArray = np.diff(np.cumsum(values)[ends - 1], prepend=0)
    return sums

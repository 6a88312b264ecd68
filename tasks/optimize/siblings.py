"""Siblings: arrays with the cells of many parents, the form in which optimisers take them."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

# from noisy counts, where the cells of each parent begin, and the parents' totals to counts that add up to these
Optimiser = Callable[[IntArray, IntArray, IntArray], IntArray]

_BLOCK = 2**17  # cells solved at once, or one wider parent: arrays that stay near the processor and bound the memory
_KEY_BITS = 63
_ROW = 256  # keys sorted as one row: about as many as a vectorised sort takes without partitioning


def check_siblings(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> None:
    """Refuse arguments that an optimiser cannot solve.

    Raises:
        ValueError: a total is negative, a parent has no cell, or the shapes disagree.
    """
    if len(first_cell) != len(totals) + 1 or first_cell[0] != 0 or first_cell[-1] != len(noisy):
        raise ValueError(
            f"first_cell must run from 0 to the {len(noisy)} cells with one step for each of {len(totals)} parents."
        )
    if (np.diff(first_cell) < 1).any():
        raise ValueError("first_cell must give every parent at least one cell.")
    if (totals < 0).any():
        raise ValueError("totals must be >= 0.")


def as_they_are(noisy: IntArray, _first_cell: IntArray, _totals: IntArray) -> IntArray:
    """Return the counts of a level that is published exactly, unchanged: they already add up."""
    return noisy


def solve_in_blocks(solve: Optimiser, noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    """Return an optimiser's solution, computed in blocks of whole parents.

    Args:
        solve: the optimiser; takes one block as if it were all. Other arguments are those of `nearest_in_chebyshev`.
    """
    check_siblings(noisy, first_cell, totals)
    y = np.empty(len(noisy), dtype=np.int64)
    cuts = np.unique(np.searchsorted(first_cell, [*range(0, len(noisy), _BLOCK), len(noisy)]))
    for first, stop in pairwise(cuts.tolist()):
        cells = slice(first_cell[first], first_cell[stop])
        y[cells] = solve(noisy[cells], first_cell[first : stop + 1] - first_cell[first], totals[first:stop])
    return y


def sum_siblings(values: NDArray[np.int64 | np.bool_], ends: IntArray) -> IntArray:
    """Return the sum of each parent's values, correct even if the running sum over all parents overflows.

    Args:
        values: shape (cells,), int64 or bool.
        ends: shape (parents,), int64: behind each parent's last cell; ascending.
    Returns:
        Shape (parents,), int64.
    """
    sums: IntArray = np.diff(np.cumsum(values)[ends - 1], prepend=0)
    return sums


def ascending_siblings(values: IntArray, fan_out: IntArray) -> IntArray:
    """Return the permutation that sorts cells by parent, then value, then cell.

    Parent, value and cell share one 64-bit key where they fit, because a plain sort is faster than an indirect one.

    Args:
        values: shape (cells,), int64, at least one.
        fan_out: shape (parents,), int64, cells per parent, >= 1.
    Returns:
        Shape (cells,), int64: the numbers of the cells in their order.
    """
    least = int(values.min())
    cell_bits = len(values).bit_length()
    value_bits = (int(values.max()) - least).bit_length()
    parents = np.arange(len(fan_out))
    if len(fan_out).bit_length() + value_bits + cell_bits > _KEY_BITS:
        return np.lexsort((values, np.repeat(parents, fan_out)))
    key = np.repeat(parents << (value_bits + cell_bits), fan_out)
    key |= (values - least) << cell_bits
    key |= np.arange(len(values))
    _sort_keys(key, fan_out)
    key &= (1 << cell_bits) - 1
    return key


def _sort_keys(key: IntArray, fan_out: IntArray) -> None:
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


def simplex_threshold(x: IntArray, fan_out: IntArray, totals: IntArray) -> tuple[IntArray, IntArray]:
    r"""Return, per parent, the real θ with Σ max(0, x_i − θ) = c as a fraction: its numerator, and its denominator > 0.

    With x in descending order and P_j the sum of the first j, θ is (P_j − c)/j for the largest j with j x_j > P_j − c.

    Args:
        x: shape (cells,), int64, descending within each parent.
        fan_out: shape (parents,), int64, cells per parent, >= 1.
        totals: c, shape (parents,), int64, > 0.
    Source:
        Held, Wolfe and Crowder (1974): max(0, x − θ) is the Euclidean projection onto the simplex of size c.
    """
    ends, so_far = np.cumsum(fan_out), np.cumsum(x)
    starts = ends - fan_out
    first = so_far - np.repeat(so_far[starts] - x[starts], fan_out)  # P_j
    first -= np.repeat(totals, fan_out)
    j = np.arange(1, len(x) + 1) - np.repeat(starts, fan_out)
    positive = sum_siblings(j * x > first, ends)
    return first[starts + positive - 1], positive


def least_threshold(x: IntArray, fan_out: IntArray, totals: IntArray) -> IntArray:
    """Return, per parent, the least integer t with Σ max(0, x_i − t) ≤ c: θ of `simplex_threshold`, rounded up.

    Arguments as there; shape (parents,), int64, records.
    """
    numerator, denominator = simplex_threshold(x, fan_out, totals)
    return -(-numerator // denominator)


def share_above(
    noisy: IntArray,
    totals: IntArray,
    fan_out: IntArray,
    to_zero: IntArray,
    share: Callable[[IntArray, IntArray, NDArray[np.bool_]], IntArray],
) -> IntArray:
    """Return counts of which those of cells up to a bound are zero; a cell that alone is above it has all of its parent's.

    Args:
        noisy: x, shape (cells,), int64, records.
        totals: c, shape (parents,), int64, records.
        fan_out: shape (parents,): how many cells each parent has.
        to_zero: shape (parents,): cells with x up to so much end at zero. No cell is above it where c = 0.
        share: from the noisy counts of the cells above it whose parents have several, from how many those are of each of
            these parents, and from which of all parents they are, to the cells' counts.
    """
    left = np.flatnonzero(noisy > np.repeat(to_zero, fan_out))
    parents = np.repeat(np.arange(len(totals)), fan_out)[left]
    often = np.bincount(parents, minlength=len(totals))
    y = np.zeros_like(noisy)
    y[left] = totals[parents]
    shared = often > 1
    if shared.any():
        left = left[shared[parents]]
        y[left] = share(noisy[left], often[shared], shared)
    return y

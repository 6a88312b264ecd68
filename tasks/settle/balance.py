"""Counts of sibling cells that agree with the totals of their families, and with those of areas as far as they can."""

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

FloatArray = NDArray[np.float64]

_MOST_SWEEPS = 50  # over areas and families
_CLOSE = 0.25  # records: areas that are all as near as this need no further sweep
_MOST_SWAPS = 50  # rounds of swaps


def balanced(values: IntArray, family: IntArray, totals: IntArray, area: IntArray, wanted: FloatArray) -> FloatArray:
    r"""Return the counts nearest to some values, in squares, whose families and areas have given totals.

    .. math:: y_i = \max(0,\; x_i + \lambda_{\text{family}(i)} + \mu_{\text{area}(i)})

    Areas and families take turns, until no area is off by more than a quarter of a record. An area in which every count has become 0
    is left as it is, and so is a family.

    Args:
        values: x, int64, shape (cells,), records, >= 0.
        family: int64, shape (cells,).
        totals: of the families, int64, shape (families,), records, >= 0.
        area: int64, shape (cells,).
        wanted: of the areas, float64, shape (areas,), records, >= 0.
    Returns:
        y, float64, shape (cells,), records, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    """
    y, of_area, of_family = values.astype(np.float64), np.zeros(len(wanted)), np.zeros(len(totals))
    for _ in range(_MOST_SWEEPS):
        missing, each = _missing(y, area, wanted)
        if np.abs(missing).max(initial=0.0) <= _CLOSE:
            break
        of_area += each
        y = np.maximum(values + of_area[area] + of_family[family], 0)
        of_family += _missing(y, family, totals)[1]
        y = np.maximum(values + of_area[area] + of_family[family], 0)
    return y


def _missing(y: FloatArray, group: IntArray, totals: IntArray | FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what groups lack of their totals, and what that is for each of their counts above 0; 0 where there is none."""
    left = np.bincount(group, y > 0, len(totals))
    missing = np.where(left > 0, totals - np.bincount(group, y, len(totals)), 0.0)
    return missing, missing / np.maximum(left, 1)


def share_out(values: FloatArray, counts: IntArray, first: IntArray, totals: IntArray) -> tuple[IntArray, FloatArray]:
    """Return whole counts of the children of some nodes in proportion to their values, and the real numbers near which they are.

    Running sums within each family are rounded, so that each count is within 1 of its real number and none is favoured.

    Args:
        values: float64, shape (cells,), >= 0.
        counts: what stands for the values where all of a family are 0, int64, shape (cells,), > 0.
        first: shape (parents + 1,), int64; parent p owns the cells first[p]:first[p + 1], at least one.
        totals: of the parents, shape (parents,), int64, records, >= 0.
    Returns:
        int64 and float64, shape (cells,), records, >= 0; those of a family add up to its total.
    """
    if not len(totals):
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    fan_out, starts = np.diff(first), first[:-1]
    sums = np.add.reduceat(values, starts)
    lost = sums <= 0
    values = np.where(np.repeat(lost, fan_out), counts, values)
    sums = np.where(lost, np.add.reduceat(counts.astype(np.float64), starts), sums)
    exact = values * np.repeat(totals / sums, fan_out)
    running = np.cumsum(exact)
    running -= np.repeat(running[starts] - exact[starts], fan_out)
    whole = np.minimum(np.rint(running).astype(np.int64), np.repeat(totals, fan_out))
    whole[first[1:] - 1] = totals
    whole = np.diff(whole, prepend=0)
    whole[starts[1:]] += totals[:-1]
    return whole, exact


def swapped(whole: IntArray, exact: FloatArray, parent: IntArray, area: IntArray, totals: IntArray) -> IntArray:
    """Return whole counts that add up to the totals of areas as far as moving records between siblings can achieve.

    In each round a family moves a record from the child whose area has the most too many to the one whose area lacks the most, where
    both counts stay within 1 of their real numbers. No area changes by more than it lacks or has too many, so that every
    round brings the sums nearer.

    Args:
        whole: shape (cells,), int64, records.
        exact: the real numbers near which they are, float64, shape (cells,).
        parent: int64, shape (cells,), ascending.
        area: int64, shape (cells,).
        totals: of the areas, shape (areas,), int64, records.
    """
    whole = whole.copy()
    for _ in range(_MOST_SWAPS):
        lacking = totals - np.bincount(area, whole, len(totals)).astype(np.int64)
        gains = _best_of_each(np.flatnonzero((lacking[area] > 0) & (whole < exact)), lacking[area], parent)
        gives = _best_of_each(np.flatnonzero((lacking[area] < 0) & (whole > exact)), -lacking[area], parent)
        _, of_gains, of_gives = np.intersect1d(parent[gains], parent[gives], assume_unique=True, return_indices=True)
        gains, gives = gains[of_gains], gives[of_gives]
        allowed = (_place_among_equals(area[gains]) < lacking[area[gains]]) & (
            _place_among_equals(area[gives]) < -lacking[area[gives]]
        )
        if not allowed.any():
            break
        whole[gains[allowed]] += 1
        whole[gives[allowed]] -= 1
    return whole


def _best_of_each(cells: IntArray, value: IntArray, parent: IntArray) -> IntArray:
    """Return, of some cells in their order, the one of each parent with the largest value; of equals the first."""
    order = np.lexsort((cells, -value[cells], parent[cells]))
    ranked = cells[order]
    of = parent[ranked]
    return ranked[np.append(True, of[1:] != of[:-1])] if len(ranked) else ranked


def _place_among_equals(keys: IntArray) -> IntArray:
    """Return how many equal keys come before each one."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    begins = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])) if len(keys) else order
    before = np.arange(len(keys)) - np.repeat(begins, np.diff(np.append(begins, len(keys))))
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = before
    return places

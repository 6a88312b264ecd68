"""Totals of one axis: settled by themselves, and the levels moved towards them."""

from collections.abc import Mapping

import numpy as np

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import NodeEstimates, combined, rounded
from tasks.tree.axis import Axis, FloatArray, IntArray


def settle_axis(
    axis: Axis, fixed: Mapping[int, IntArray], noisy: Mapping[int, tuple[IntArray, float]]
) -> dict[int, IntArray]:
    r"""Return non-negative whole totals of an axis that add up from level to level, and to those that are known.

    Up, each area's noisy count and the sum over its parts make one estimate, by least squares. Down, the parts of an area are
    the whole counts nearest to their estimates, in squares, that sum to its own.

    Args:
        fixed: by axis level, the totals that are known, shape (areas of the level,), int64, records, >= 0; 0 is everything,
            and all others lie above the measured levels.
        noisy: by axis level, the noisy counts of all its areas, shape (areas of the level,), int64, records, and their
            variance. Levels may be missing.
    Returns:
        By measured axis level, int64, shape (areas of the level,), records.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010) for the estimates.
    """
    estimates, above = totals_of_axis(axis, noisy), max(fixed)
    totals, settled = fixed[above], dict[int, IntArray]()
    for level in sorted(noisy):
        first = axis.first_descendants(above, level)
        totals = settled[level] = nearest_in_euclid(rounded(estimates[level]), first, totals)
        above = level
    return settled


def totals_of_axis(axis: Axis, noisy: Mapping[int, tuple[IntArray, float]]) -> dict[int, NodeEstimates]:
    """Return estimates of the totals of an axis, by axis level, from the finest measured one up to 1: each from what is measured of it and below.

    Args:
        noisy: by axis level, as in `settle_axis`.
    """
    estimates = dict[int, NodeEstimates]()
    below: NodeEstimates | None = None
    for level in reversed(range(1, max(noisy, default=0) + 1)):
        if below:
            starts = axis.first_child[level][:-1]
            below = NodeEstimates(np.add.reduceat(below.values, starts), np.add.reduceat(below.variances, starts))
        if level in noisy:
            below = combined(*noisy[level], below)
        if below:
            estimates[level] = below
    return estimates


_MOST_TURNS = 200  # of areas and families
_CLOSE = 0.1  # records: areas that are all as near as this need no further turn
_FAMILY_STEPS = 3  # towards the totals of families, in a turn
_MOST_SWAPS = 50  # rounds of swaps


def balanced(
    values: IntArray, family: IntArray, totals: IntArray, area: IntArray, wanted: IntArray, ratio: float
) -> FloatArray:
    r"""Return the counts nearest to some values and to the totals of areas, in weighted squares, whose families have their totals.

    .. math:: \min_{y \ge 0} \sum_i (y_i - x_i)^2 + \frac{1}{r} \sum_a \Big( \sum_{i \in a} y_i - m_a \Big)^2

    The solution is y = max(0, x + λ + μ) with a λ for each family and a μ for each area. Areas and families take turns until none is
    off by more than a tenth of a record, or for 200 turns.

    Args:
        values: x, int64, shape (cells,), records, >= 0.
        family: int64, shape (cells,), ascending.
        totals: of the families, int64, shape (families,), records, >= 0.
        area: int64, shape (cells,).
        wanted: m, of the areas, int64, shape (areas,), records, >= 0.
        ratio: r, the variance of a total over that of a value, > 0.
    Returns:
        y, float64, shape (cells,), records, >= 0; families have their totals nearly.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    """
    y, of_area, of_family = values.astype(np.float64), np.zeros(len(wanted)), np.zeros(len(totals))
    for _ in range(_MOST_TURNS):
        left = np.bincount(area, y > 0, len(wanted))
        missing = wanted - np.bincount(area, y, len(wanted)) - ratio * of_area
        if np.abs(missing).max(initial=0.0) <= _CLOSE:
            break
        of_area += missing / (left + ratio)
        for _ in range(_FAMILY_STEPS):
            y = np.maximum(values + of_area[area] + of_family[family], 0)
            of_family += _lacking(y, values + of_area[area], family, totals, of_family)
        y = np.maximum(values + of_area[area] + of_family[family], 0)
    return y


def _lacking(
    y: FloatArray, values: FloatArray, family: IntArray, totals: IntArray, of_family: FloatArray
) -> FloatArray:
    """Return by how much λ of each family has to rise, as far as the counts above 0 tell; where none is, the largest has the total."""
    left, sums = np.bincount(family, y > 0, len(totals)), np.bincount(family, y, len(totals))
    rise = (totals - sums) / np.maximum(left, 1)
    largest = np.maximum.reduceat(values, np.flatnonzero(np.diff(family, prepend=-1))) if len(family) else rise
    return np.where(left > 0, rise, totals - largest - of_family)


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


def swapped(whole: IntArray, exact: FloatArray, parent: IntArray, area: IntArray) -> IntArray:
    """Return whole counts whose sums over areas are nearer to those of the real numbers, by records moved between siblings.

    In each round a family moves a record from the child whose area has the most too many to the one whose area lacks the most, where
    both counts stay within 1 of their real numbers. No area changes by more than it lacks or has too many, so that every
    round brings the sums nearer.

    Args:
        whole: shape (cells,), int64, records.
        exact: the real numbers near which they are, float64, shape (cells,).
        parent: int64, shape (cells,), ascending.
        area: int64, shape (cells,).
    """
    whole, areas = whole.copy(), int(area.max(initial=-1)) + 1
    totals = np.rint(np.bincount(area, exact, areas)).astype(np.int64)
    for _ in range(_MOST_SWAPS):
        lacking = totals - np.bincount(area, whole, areas).astype(np.int64)
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

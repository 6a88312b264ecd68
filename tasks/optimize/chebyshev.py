"""IntOpt: the non-negative integers nearest to noisy counts in the Chebyshev norm, for all parents at once."""

import numpy as np

from tasks.tree.axis import IntArray

_KEY_BITS = 63


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
    if not len(totals):
        return np.zeros(0, dtype=np.int64)
    starts, fan_out = first_cell[:-1], np.diff(first_cell)
    order = _ascending_within_parents(noisy, fan_out)
    x = noisy[order]

    lift = -((np.add.reduceat(x, starts) - totals) // fan_out)  # L
    bound = np.maximum(np.abs(lift), np.maximum(lift, -x[starts]))  # t0
    highest = np.maximum(x + np.repeat(lift, fan_out), 0)
    lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
    beyond = np.add.reduceat(lowest, starts) > totals  # parents for which t0 is too tight

    if beyond.any():
        cells = np.repeat(beyond, fan_out)
        sizes = fan_out[beyond]
        last_bound = np.maximum(bound[beyond], _least_bound(x[cells], sizes, totals[beyond]) - 1)
        lowered = np.maximum(x[cells] - np.repeat(last_bound, sizes), 0)
        highest[cells] = lowered
        lowest[cells] = np.maximum(lowered - 1, 0)

    too_much = np.add.reduceat(highest, starts) - totals
    room = highest - lowest
    room_before = _cumulative_before(room, starts, fan_out)
    y = np.empty_like(x)
    y[order] = highest - np.clip(np.repeat(too_much, fan_out) - room_before, 0, room)
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


def _ascending_within_parents(noisy: IntArray, fan_out: IntArray) -> IntArray:
    """Return the permutation that sorts cells by parent, then noisy count, then cell.

    Parent, count and cell share one 64-bit key where they fit, because a plain sort is faster than an indirect one.
    """
    least = int(noisy.min())
    cell_bits = len(noisy).bit_length()
    count_bits = (int(noisy.max()) - least).bit_length()
    parents = np.repeat(np.arange(len(fan_out)), fan_out)
    if len(fan_out).bit_length() + count_bits + cell_bits > _KEY_BITS:
        return np.lexsort((noisy, parents))
    key = (((parents << count_bits) | (noisy - least)) << cell_bits) | np.arange(len(noisy))
    key.sort()
    return key & ((1 << cell_bits) - 1)


def _least_bound(x: IntArray, fan_out: IntArray, totals: IntArray) -> IntArray:
    r"""Return, per parent, the least integer t with Σ max(0, x_i − t) ≤ c.

    With x in descending order and P_j the sum of the first j, t is the ceiling of (P_j − c)/j for the largest j with
    j x_j > P_j − c: the threshold of the projection onto the simplex of size c. For c = 0 it is max x.

    Args:
        x: noisy counts, ascending within each parent; Σ max(0, x_i) > c for every parent.
        fan_out: cells per parent, >= 1.
        totals: c, per parent.
    """
    starts = np.cumsum(fan_out) - fan_out
    ends = starts + fan_out
    after = np.add.reduceat(x, starts).repeat(fan_out) - _cumulative_before(x, starts, fan_out)  # P_j, x_j included
    j = np.repeat(ends, fan_out) - np.arange(len(x))
    above = j * x > after - np.repeat(totals, fan_out)
    above[ends - 1] |= totals == 0
    first_above = starts + fan_out - np.add.reduceat(above.astype(np.int64), starts)
    least: IntArray = -((totals - after[first_above]) // j[first_above])
    return least


def _cumulative_before(values: IntArray, starts: IntArray, fan_out: IntArray) -> IntArray:
    """Return, for each cell, the sum of the values of its parent's earlier cells."""
    before = np.cumsum(values) - values
    return before - np.repeat(before[starts], fan_out)

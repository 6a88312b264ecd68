"""Euclidean projections in whole numbers, for all parents at once: onto the simplex, and with bounds for each cell."""

import numpy as np

from tasks.optimize.siblings import ascending_siblings, least_threshold, share_above, solve_in_blocks, sum_siblings
from tasks.tree.axis import FloatArray, IntArray


def nearest_in_euclid(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return, for each parent, the non-negative integers nearest to its noisy counts, in squares, that sum to its total.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b}} \|y - x\|_2 \quad \text{s.t.} \quad \sum_i y_i = c

    The nearest real numbers are p = max(0, x − θ) with Σp = c, found by sorting. Every p_i > 0 has the same fractional
    part, so that the integers nearest to p with that sum round all of them down and then raise as many as are missing,
    each at the same cost: the largest, and of equals the lower cells. They are also the integers nearest to x. With
    t = ⌈θ⌉, all of it is whole: y = max(0, x − t), and one more for the largest of the cells with x ≥ t.

    What is nearest in squares is nearest in the Chebyshev norm as well, among real numbers and among integers: so this is
    both the Euclidean baseline and, of all that IntOpt may return, the nearest in squares (docs/proofs/mechanisms.md).

    Arguments, result and errors as of `nearest_in_chebyshev`.

    Guarantees:
        Post-processing: reads no true count. Deterministic and without rounding; ties go to the larger count, then the
        lower cell.
    Source:
        Held, Wolfe and Crowder (1974) for the projection; Abowd et al. (2022) for least squares down a tree.
    """
    return solve_in_blocks(_solve, noisy, first_cell, totals)


def _solve(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    """Return y for a block of parents. Comparison finds cells that end at zero; only the others are sorted.

    θ is at least M − c, M = max x, where the greatest cell would have all of c; and at least (Σx − c)/b over any cells of
    the parent. Cells up to either end at zero, in whole numbers too: where θ is that number, nothing is left to raise.
    So no cell is left where c = 0, and all of c is a lone cell's.
    """
    if len(noisy) == len(totals):
        return totals
    starts, fan_out = first_cell[:-1], np.diff(first_cell)
    most = np.maximum.reduceat(noisy, starts)  # M
    mean = (sum_siblings(noisy, first_cell[1:]) - totals) // fan_out
    to_zero = np.maximum(most - totals, mean)

    return share_above(noisy, totals, fan_out, to_zero, lambda x, often, of: _share(x, often, totals[of]))


def _share(noisy: IntArray, fan_out: IntArray, totals: IntArray) -> IntArray:
    """Return y for the cells that are left; every total is positive."""
    order = ascending_siblings(-noisy, fan_out)
    x, ends = noisy[order], np.cumsum(fan_out)
    starts = ends - fan_out

    lowest = np.maximum(x - np.repeat(least_threshold(x, fan_out, totals), fan_out), 0)
    missing = totals - sum_siblings(lowest, ends)  # fewer than the cells with x >= t
    y = np.empty_like(x)
    y[order] = lowest + (np.arange(len(x)) < np.repeat(starts + missing, fan_out))
    return y


_ONE = 2**20  # fractions count as equal within about a millionth: floating point does not decide between them


def nearest_whole(values: FloatArray, first_cell: IntArray, totals: IntArray, most: IntArray | None = None) -> IntArray:
    r"""Return, for each parent, the whole numbers nearest to its values that add up to its total.

    .. math:: \min_{0 \le y \le u,\ y \in \mathbb{Z}^b} \|y - a\|_2 \quad \text{s.t.} \quad \sum_i y_i = c

    The nearest real numbers are p = min(u, max(0, a − θ)). The cost is separable and convex, so that y takes the c steps
    with the largest a_i − j. These are all whole steps of p, and then those of the largest fractions.

    Args:
        values: a, shape (cells,), float64, records; may be negative. Other arguments are those of `nearest_in_chebyshev`.
        most: u, shape (cells,), int64, records, >= 0; those of a parent add up to its total at least. None where nothing bounds
            a cell.
    Returns:
        y, shape (cells,), int64, records.
    Guarantees:
        Post-processing: reads no true count. Deterministic; of equal fractions the larger count is raised, and of equal counts the lower cell. A parent has fewer than 2**20 cells.
    """
    parent = np.repeat(np.arange(len(totals)), np.diff(first_cell))
    real = np.maximum(values - _thresholds(values, parent, totals, most)[parent], 0)
    real = np.rint(real * _ONE) / _ONE
    if most is not None:
        real = np.minimum(real, most)
    whole: IntArray = np.floor(real).astype(np.int64)
    fraction = real - whole
    if most is not None:
        fraction[whole == most] = -1
    missing = totals - np.add.reduceat(whole, first_cell[:-1])
    order = np.lexsort((-whole, -fraction, parent))
    place = np.arange(len(values)) - first_cell[parent]
    whole[order[place < missing[parent]]] += 1
    return whole


def _thresholds(values: FloatArray, parent: IntArray, totals: IntArray, most: IntArray | None) -> FloatArray:
    """Return θ of each parent, shape (parents,).

    As θ falls, a cell begins to grow at its value, and stops at its value less its bound. Between such events the sum of a parent
    grows by as much as there are growing cells.
    """
    if most is None:
        event, of, change = values, parent, np.ones(len(values), dtype=np.int64)
    else:
        event, of = np.concatenate((values, values - most)), np.concatenate((parent, parent))
        change = np.repeat((1, -1), len(values))
    order = np.lexsort((-change, -event, of))
    event, of, change = event[order], of[order], change[order]
    first = np.searchsorted(of, np.arange(len(totals)))
    growing = np.cumsum(change) - (np.cumsum(change) - change)[first][of]
    steps = np.append(event[:-1] - event[1:], 0.0) * growing  # up to the next event of the parent
    steps[np.append(first[1:], len(event)) - 1] = 0
    reached = np.cumsum(steps) - steps
    reached -= reached[first][of]  # the sum of the parent at each event
    last = np.add.reduceat((reached <= totals[of]).astype(np.int64), first) + first - 1
    thresholds: FloatArray = event[last] - (totals - reached[last]) / np.maximum(growing[last], 1)
    return thresholds

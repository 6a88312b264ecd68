"""Whole increments: non-negative integers nearest to real numbers, with a given sum for each parent and bounds for each cell."""

import numpy as np

from tasks.tree.axis import FloatArray, IntArray

_ONE = 2**20  # fractions count as equal within about a millionth: floating point does not decide between them


def nearest_whole(values: FloatArray, first_cell: IntArray, totals: IntArray, most: IntArray | None = None) -> IntArray:
    r"""Return, for each parent, the whole numbers nearest to its values that add up to its total.

    .. math:: \min_{0 \le y \le u,\ y \in \mathbb{Z}^b} \|y - a\|_2 \quad \text{s.t.} \quad \sum_i y_i = c

    The nearest real numbers are p = min(u, max(0, a − θ)). The cost is separable and convex, so that y takes the c steps
    with the largest a_i − j. These are all whole steps of p, and then those of the largest fractions.

    Args:
        values: a, shape (cells,), float64, records; may be negative.
        first_cell: shape (parents + 1,), int64; parent p owns cells first_cell[p]:first_cell[p + 1], at least one.
        totals: c, shape (parents,), int64, records, >= 0.
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

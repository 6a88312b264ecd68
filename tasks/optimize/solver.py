"""The nearest integers in the Chebyshev norm as a mixed-integer program: a solver per parent, for comparison."""

from itertools import pairwise

import numpy as np

from tasks.optimize.siblings import check_siblings
from tasks.tree.axis import IntArray

_MOST_STEPS = 8  # whole numbers by which floating point may miss the optimum before the answer is refused


def nearest_by_solver(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return, for each parent, non-negative integers nearest to its noisy counts that sum to its total, by HiGHS.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b},\, t \in \mathbb{Z}} t
        \quad \text{s.t.} \quad -t \le y_i - x_i \le t, \quad \sum_i y_i = c

    A program for each parent, in the changes y − x, a millisecond and more apiece where `nearest_in_chebyshev` takes less
    than a microsecond. HiGHS works in floating point: its t is checked in whole numbers, its changes are rounded and
    brought within t of x and above zero, and what is then missing from the sum is made up within the same bounds, so that
    the result is exact or refused. Among the optima it takes any.

    Arguments, result and errors as of `nearest_in_chebyshev`, and one error more.

    Guarantees:
        Post-processing: reads no true count. Exact: no non-negative integers with the sum are nearer. Deterministic for one
        version of HiGHS; which of several optima it takes may depend on the version and on the order of cells.
    Raises:
        RuntimeError: HiGHS finds no optimum, or one that whole numbers do not keep.
    Source:
        Boninsegna and Silvestri (2025), the baseline TDA with a black-box solver; Huangfu and Hall (2018), HiGHS.
    """
    check_siblings(noisy, first_cell, totals)
    y = np.empty(len(noisy), dtype=np.int64)
    for parent, (first, stop) in enumerate(pairwise(first_cell.tolist())):
        x, total = noisy[first:stop], int(totals[parent])
        y[first:stop] = _repair(x, total, *_ask_highs(x, total))
    return y


def _ask_highs(x: IntArray, total: int) -> tuple[IntArray, int]:
    """Return the changes y − x, shape (cells,), and the greatest of them, as HiGHS finds them, rounded.

    Rows of the program: y_i − x_i − t ≤ 0 for each cell, y_i − x_i + t ≥ 0 for each cell, and the sum. Only t is declared
    whole: for a whole t the corners of what is left are whole (one sum within bounds), and HiGHS does not branch on cells.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import
    from scipy.sparse import csc_array

    fan_out = len(x)
    cells, none, unbounded = np.arange(fan_out), np.zeros(fan_out), np.full(fan_out, np.inf)
    of_cells = np.column_stack((cells, fan_out + cells, np.full(fan_out, 2 * fan_out)))
    rows = csc_array(
        (
            np.repeat([1.0, -1.0, 1.0], [3 * fan_out, fan_out, fan_out]),
            np.concatenate((of_cells.ravel(), np.arange(2 * fan_out))),
            np.append(3 * np.arange(fan_out + 1), 5 * fan_out),
        ),
        shape=(2 * fan_out + 1, fan_out + 1),
    )
    missing = total - int(x.sum())
    solution = milp(
        np.append(none, 1),
        integrality=np.append(none, 1),
        bounds=Bounds(np.append(-x, 0), np.inf),
        constraints=LinearConstraint(
            rows, np.concatenate((-unbounded, none, [missing])), np.concatenate((none, unbounded, [missing]))
        ),
        options={"mip_rel_gap": 0},
    )
    if not solution.success:
        raise RuntimeError(
            f"HiGHS found no optimum of a parent's counts (status {solution.status}). Choose the mechanism inftda, whose"
            " optimum is as near and needs no solver."
        )
    return np.rint(solution.x[:-1]).astype(np.int64), round(solution.x[-1])


def _repair(x: IntArray, total: int, change: IntArray, t: int) -> IntArray:
    """Return x + change, moved as little as makes it whole, >= 0, within t of x, and right in sum, for the least such t.

    Raises:
        RuntimeError: the least t is further from the given one than rounding explains.
    """
    for _ in range(_MOST_STEPS):
        if not _reaches(x, total, t):
            t += 1
        elif _reaches(x, total, t - 1):
            t -= 1
        else:
            break
    else:
        raise RuntimeError(
            "HiGHS's optimum of a parent's counts is not one in whole numbers: floating point is too coarse for counts so"
            " large. Choose the mechanism inftda, which is exact."
        )
    lowest, highest = np.maximum(x - t, 0), x + t
    y = np.clip(x + change, lowest, highest)
    missing = total - int(y.sum())
    room = highest - y if missing > 0 else y - lowest
    moved = np.clip(abs(missing) - (np.cumsum(room) - room), 0, room)
    repaired: IntArray = y + moved if missing > 0 else y - moved
    return repaired


def _reaches(x: IntArray, total: int, t: int) -> bool:
    """Return whether non-negative integers within t of x sum to the total."""
    return t >= max(0, -int(x.min())) and int(np.maximum(x - t, 0).sum()) <= total <= int((x + t).sum())

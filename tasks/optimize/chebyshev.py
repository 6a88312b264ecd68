"""IntOpt: the non-negative integers nearest to noisy counts in the Chebyshev norm, for all parents at once; and by a solver, for comparison."""

from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.optimize.siblings import (
    ascending_siblings,
    check_siblings,
    least_threshold,
    share_above,
    solve_in_blocks,
    sum_siblings,
)
from tasks.tree.axis import IntArray


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
    return solve_in_blocks(partial(_solve, small_first=True), noisy, first_cell, totals)


def nearest_in_chebyshev_large_first(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return another Chebyshev optimum: the one that IntOpt reaches if it lowers large cells first.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b}} \|y - x\|_\infty \quad \text{s.t.} \quad \sum_i y_i = c

    The paper's loop, with cells lowered in descending order of their noisy counts: large ones give what they can before
    small ones are asked, so that small counts that are not zero survive, which keeps false negatives few. The end state
    is that of `nearest_in_chebyshev` with the other order: from max(0, x + L) towards max(0, x − t₀) if that suffices,
    otherwise from max(0, x − t* + 1) one off each of the largest.

    Arguments, result and errors as of `nearest_in_chebyshev`.

    Guarantees:
        Post-processing: reads no true count. Deterministic; of equal counts the lower cell gives first.
    Source:
        Boninsegna and Silvestri (2025), Algorithm 3 with its cells in the opposite order.
    """
    return solve_in_blocks(partial(_solve, small_first=False), noisy, first_cell, totals)


def _solve(noisy: IntArray, first_cell: IntArray, totals: IntArray, small_first: bool) -> IntArray:
    """Return y for a block of parents. Comparison finds cells that end at zero; only the others are sorted.

    Let M = max x. If t₀ < M − c, the bound grows at least that far, so that cells up to M − c end at zero. Otherwise
    cells up to −L do, where the loop starts; and where small cells are lowered first and M + L ≥ c, the greatest cell
    can hold by itself what those beyond t₀ leave, so that cells up to both M − 1 and t₀ end at zero. No cell is left
    where c = 0, and all of c is a lone cell's.
    """
    if len(noisy) == len(totals):
        return totals
    starts, fan_out = first_cell[:-1], np.diff(first_cell)
    lift = -((sum_siblings(noisy, first_cell[1:]) - totals) // fan_out)  # L
    bound = np.maximum(np.abs(lift), -np.minimum.reduceat(noisy, starts))  # t0
    most = np.maximum.reduceat(noisy, starts)  # M
    if small_first:
        suffices = most + lift >= totals
        to_zero = np.where(suffices, np.maximum(np.minimum(most - 1, bound), most - totals), -lift)
    else:
        to_zero = np.where((most - totals > bound) | (totals == 0), most - totals, -lift)

    def share(x: IntArray, often: IntArray, of: NDArray[np.bool_]) -> IntArray:
        return _share(x, often, totals[of], lift[of], bound[of], small_first)

    return share_above(noisy, totals, fan_out, to_zero, share)


def _share(
    noisy: IntArray, fan_out: IntArray, totals: IntArray, lift: IntArray, bound: IntArray, small_first: bool
) -> IntArray:
    """Return y for the cells that are left, given L and t₀; every total is positive, and at most Σ (x + L).

    Lowering cells in one order gives the same result as raising their lower limits in the opposite order.
    """
    order = ascending_siblings(noisy if small_first else -noisy, fan_out)
    x, ends = noisy[order], np.cumsum(fan_out)

    lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
    given = sum_siblings(lowest, ends)
    beyond = given > totals  # parents for which t0 is too tight
    if beyond.any():
        cells, turn = np.repeat(beyond, fan_out), slice(None, None, -1 if small_first else 1)
        least = least_threshold(x[cells][turn], fan_out[beyond][turn], totals[beyond][turn])[turn]  # t*
        last_bound = np.maximum(bound[beyond], least - 1)
        lift[beyond], bound[beyond] = -last_bound, last_bound + 1
        lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
        given = sum_siblings(lowest, ends)

    room = np.maximum(x + np.repeat(lift, fan_out), 0) - lowest
    room_so_far = np.cumsum(room)
    to_give = room_so_far + np.repeat(totals - given - room_so_far[ends - 1], fan_out)  # what later cells leave
    y = np.empty_like(x)
    y[order] = lowest + np.clip(to_give, 0, room)
    return y


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

"""Group sizes nearest to noisy ones: least squares without negative counts by merged slopes, and over the integers in windows around that optimum."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import FloatArray, IntArray, first_leaves

_CELLS = 2**19  # of the finest level, solved at once


def blocks(regions: int, largest: int) -> Iterator[slice]:
    """Yield the sizes that are solved at once: below the root they have nothing to do with each other."""
    width = max(1, _CELLS // regions)
    yield from (slice(begin, min(begin + width, largest)) for begin in range(0, largest, width))


def weights_of(variances: Sequence[float]) -> list[float]:
    """Return the weights of squares, with that of the finest level 1: only their ratios matter."""
    return [variances[-1] / variance for variance in variances]


class _Slopes(NamedTuple):
    r"""How the best counts of regions follow from a multiplier, for some sizes. Below a region r there is the count

    .. math:: v_r(\lambda) = \sum_j d_j \max(0, \lambda - \lambda_j)

    with as many breakpoints as there are leaves below r, in the places of those leaves.

    Attributes:
        breakpoints: λ_j of each level, shape (leaves, sizes).
        steps: d_j of each level, > 0, of the same shape.
    """

    breakpoints: list[FloatArray]
    steps: list[FloatArray]


def real_optimum(
    noisy: Sequence[IntArray], variances: Sequence[float], first_child: Sequence[IntArray], total: int | None = None
) -> list[FloatArray]:
    r"""Return the real group sizes nearest to noisy ones that are not negative and add up.

    .. math:: \min_{v \ge 0} \sum_{\ell, r, s} \frac{w_\ell}{2} (v_{rs} - n_{rs})^2

    The least cost of a region as a function of its count v is convex and piecewise quadratic. What is kept is the inverse of its
    slope, v(λ), which is piecewise linear. Up the tree, breakpoints of siblings are merged. The region's own term then moves them:

    .. math:: S_j = \sum_{i \le j} d_i, \quad v_j = \sum_{i < j} S_i (\lambda_{i + 1} - \lambda_i), \quad
        \lambda_j' = \lambda_j + w (v_j - n), \quad S_j' = \frac{1}{1 / S_j + w}

    Down the tree, the multiplier of the children is λ − w (v − n). That of the root is 0, or the same for all sizes, such that
    they have a total.

    Args:
        noisy: n of each level from the root to the finest, shape (regions, N), int64; may be negative.
        variances: of the noise of each level, > 0; w is inverse to them.
        total: of all groups, >= 0; None where it is free.
    Returns:
        v of each level, shape (regions, N), float64, >= 0; children add up to their parents but for rounding.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    """
    weights, leaves = weights_of(variances), first_leaves(first_child, len(noisy[-1]))
    parts = list(blocks(*noisy[-1].shape))
    multiplier = 0.0
    if total is not None:
        roots = [_up([of[:, part] for of in noisy], weights, leaves) for part in parts]
        multiplier = _multiplier(
            np.concatenate([of.breakpoints[0].ravel() for of in roots]),
            np.concatenate([of.steps[0].ravel() for of in roots]),
            total,
        )
    optimum = [np.empty(of.shape) for of in noisy]
    for part in parts:
        counts = [of[:, part] for of in noisy]
        solved = _down(_up(counts, weights, leaves), counts, weights, first_child, leaves, multiplier)
        for values, of_part in zip(optimum, solved, strict=True):
            values[:, part] = of_part
    return optimum


def _up(noisy: Sequence[IntArray], weights: Sequence[float], leaves: Sequence[IntArray]) -> _Slopes:
    breakpoints: list[FloatArray] = [(-weights[-1] * noisy[-1]).astype(np.float64)]
    steps: list[FloatArray] = [np.full(noisy[-1].shape, 1 / weights[-1])]
    for counts, weight, first in reversed(list(zip(noisy[:-1], weights, leaves, strict=False))):
        merged, moved = np.empty_like(breakpoints[0]), np.empty_like(steps[0])
        for own, (begin, end) in zip(counts, pairwise(first.tolist()), strict=True):
            order = breakpoints[0][begin:end].argsort(axis=0, kind="stable")
            at = np.take_along_axis(breakpoints[0][begin:end], order, axis=0)
            slope = np.cumsum(np.take_along_axis(steps[0][begin:end], order, axis=0), axis=0)
            value = np.zeros_like(at)
            np.cumsum(slope[:-1] * np.diff(at, axis=0), axis=0, out=value[1:])
            merged[begin:end] = at + weight * (value - own)
            moved[begin:end] = np.diff(1 / (1 / slope + weight), axis=0, prepend=0)
        breakpoints.insert(0, merged)
        steps.insert(0, moved)
    return _Slopes(breakpoints, steps)


def _multiplier(breakpoints: FloatArray, steps: FloatArray, total: int) -> float:
    """Return the λ at which the counts of all sizes of the root have a total."""
    order = breakpoints.argsort(kind="stable")
    at, slope = breakpoints[order], np.cumsum(steps[order])
    value = np.append(0, np.cumsum(slope[:-1] * np.diff(at)))
    last = int(np.searchsorted(value, total, side="right")) - 1
    return float(at[last] + (total - value[last]) / slope[last])


def _down(
    slopes: _Slopes,
    noisy: Sequence[IntArray],
    weights: Sequence[float],
    first_child: Sequence[IntArray],
    leaves: Sequence[IntArray],
    multiplier: float,
) -> list[FloatArray]:
    """Return v of all levels for some sizes."""
    multipliers, solved = np.full((1, noisy[0].shape[1]), multiplier), list[FloatArray]()
    is_empty = np.zeros(multipliers.shape, dtype=np.bool_)
    for level, (at, step, first) in enumerate(zip(slopes.breakpoints, slopes.steps, leaves, strict=True)):
        reached = np.maximum(np.repeat(multipliers, np.diff(first), axis=0) - at, 0) * step
        values = np.where(is_empty, 0, np.add.reduceat(reached, first[:-1], axis=0))
        solved.append(values)
        if level < len(first_child):
            fan_out = np.diff(first_child[level])
            below = multipliers - weights[level] * (values - noisy[level])
            multipliers, is_empty = np.repeat(below, fan_out, axis=0), np.repeat(values == 0, fan_out, axis=0)
    return solved


WINDOW = 6  # whole numbers on either side of the real optimum


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """The least costs of counts near the real optimum, for some sizes.

    Attributes:
        low: of each level the least number in each window, int64, shape (sizes, regions).
        root: by how much the cost rises from each number of the root's windows to the next, shape (sizes, width).
        orders: of each level but the finest, for each region, the order in which its children take one more group each: positions
            among their concatenated slopes, shape (sizes, children × width).
    """

    low: list[IntArray]
    root: FloatArray
    orders: list[list[IntArray]]

    @property
    def width(self) -> int:
        """How many steps a window has."""
        return int(self.root.shape[1])


def whole_optimum(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    total: int | None = None,
    window: int = WINDOW,
) -> list[IntArray]:
    r"""Return the whole group sizes nearest to noisy ones that are not negative and add up.

    .. math:: \min_{v \in \mathbb{Z}_{\ge 0}} \sum_{\ell, r, s} w_\ell (v_{rs} - n_{rs})^2

    The least cost of a region as a function of its count is convex. Its steps from one whole number to the next are the merged
    steps of its children, in order, and those of its own term. They are kept for a window of numbers around the real optimum x:

    .. math:: \max(0, \lfloor x \rfloor - W), \dots, \max(0, \lfloor x \rfloor - W) + 2 W + 1

    Where no count lies at an end of its window that is not 0, no exchange of single groups lowers the cost. For convex costs over a
    tree this means that nothing does. Sizes for which a count does lie there are solved again with twice the window.

    Args:
        window: W to begin with, >= 1; other arguments are those of `real_optimum`.
    Returns:
        v of each level, shape (regions, N), int64, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic. An optimum, whatever the window; of several the one with less at the
        root and more in lower children.
    Source:
        Fioretto, Van Hentenryck and Zhu (2020), the dynamic program, which is not restricted here.
    """
    real = real_optimum(noisy, variances, first_child, total)
    weights = weights_of(variances)
    optimum = [np.empty(of.shape, dtype=np.int64) for of in noisy]
    if total is not None:
        return _with_total(noisy, real, weights, first_child, total, window)
    for part in blocks(*noisy[-1].shape):
        left, reach = np.arange(part.start, part.stop), window
        while len(left):
            table = _tables_up(_columns(noisy, left), _columns(real, left), weights, first_child, reach)
            counts = _counts_down(table, (table.root < 0).sum(axis=1), first_child)
            is_proven = _is_proven(table, counts)
            for values, of_part in zip(optimum, counts, strict=True):
                values[:, left[is_proven]] = of_part[is_proven].T
            left, reach = left[~is_proven], 2 * reach
    return optimum


def _with_total(
    noisy: Sequence[IntArray],
    real: Sequence[FloatArray],
    weights: Sequence[float],
    first_child: Sequence[IntArray],
    total: int,
    window: int,
) -> list[IntArray]:
    """Return v where the sizes of the root share a total: they take the least steps among those of all sizes."""
    parts = list(blocks(*noisy[-1].shape))
    while True:
        tables = [
            _tables_up(_columns(noisy, part), _columns(real, part), weights, first_child, window) for part in parts
        ]
        steps = np.concatenate([of.root for of in tables])
        wanted = total - sum(int(of.low[0].sum()) for of in tables)
        taken = np.zeros(steps.size, dtype=np.bool_)
        taken[steps.ravel().argsort(kind="stable")[:wanted]] = True
        often = taken.reshape(steps.shape).sum(axis=1)
        counts = [_counts_down(table, often[part], first_child) for table, part in zip(tables, parts, strict=True)]
        if wanted <= steps.size and all(_is_proven(table, of).all() for table, of in zip(tables, counts, strict=True)):
            return [np.concatenate(of).T.copy() for of in zip(*counts, strict=True)]
        window *= 2


def _columns(levels: Sequence[NDArray[np.generic]], sizes: slice | IntArray) -> list[FloatArray]:
    """Return the counts of some sizes, shape (sizes, regions), of each level."""
    return [np.ascontiguousarray(of[:, sizes].T, dtype=np.float64) for of in levels]


def _tables_up(
    noisy: Sequence[FloatArray],
    real: Sequence[FloatArray],
    weights: Sequence[float],
    first_child: Sequence[IntArray],
    window: int,
) -> _Windows:
    """Return the windows of all levels for some sizes."""
    width = 2 * window + 1
    lows, orders = list[IntArray](), list[list[IntArray]]()
    above = np.zeros((1, 1, 1))
    for level in reversed(range(len(noisy))):
        steps = above
        low = np.maximum(np.floor(real[level]).astype(np.int64) - window, 0)
        if lows:
            # children have no fewer, whatever x was rounded to
            below = np.add.reduceat(lows[0], first_child[level][:-1], axis=1)
            low = np.clip(low, below, below + width * (np.diff(first_child[level]) - 1))
        own = 2 * weights[level] * (low - noisy[level] + 0.5)
        above = own[:, :, None] + 2 * weights[level] * np.arange(width)
        if lows:
            orders.insert(0, [])
            for at, (begin, end) in enumerate(pairwise(first_child[level].tolist())):
                merged = steps[:, begin:end].reshape(len(low), -1)
                order = merged.argsort(axis=1, kind="stable")
                offset = low[:, at] - lows[0][:, begin:end].sum(axis=1)
                nearest = np.take_along_axis(order, offset[:, None] + np.arange(width), axis=1)
                above[:, at] += np.take_along_axis(merged, nearest, axis=1)
                orders[0].append(order.astype(np.int32))
        lows.insert(0, low)
    return _Windows(lows, above[:, 0], orders)


def _counts_down(table: _Windows, often: IntArray, first_child: Sequence[IntArray]) -> list[IntArray]:
    """Return the counts of all levels for some sizes, shape (sizes, regions), from the number of steps that the root takes."""
    counts = [table.low[0] + often[:, None]]
    for first, orders, low in zip(first_child, table.orders, table.low[1:], strict=True):
        below = low.copy()
        for at, (begin, end) in enumerate(pairwise(first.tolist())):
            steps = counts[-1][:, at] - low[:, begin:end].sum(axis=1)
            is_taken = np.zeros(orders[at].shape, dtype=np.bool_)
            np.put_along_axis(is_taken, orders[at], np.arange(orders[at].shape[1]) < steps[:, None], axis=1)
            below[:, begin:end] += is_taken.reshape(len(low), end - begin, table.width).sum(axis=2)
        counts.append(below)
    return counts


def _is_proven(table: _Windows, counts: Sequence[IntArray]) -> NDArray[np.bool_]:
    """Return of which sizes no count lies at an end of its window that is not 0, shape (sizes,)."""
    proven = np.ones(len(table.root), dtype=np.bool_)
    for low, of in zip(table.low, counts, strict=True):
        proven &= ((of < low + table.width) & ((of > low) | (low == 0))).all(axis=1)
    return proven

"""Real group sizes nearest to noisy ones: least squares without negative counts, solved exactly by merged slopes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tasks.tree.axis import FloatArray, IntArray, first_leaves

_CELLS = 2**19  # of the finest level, solved at once


def blocks(regions: int, largest: int) -> Iterator[slice]:
    """Yield the sizes that are solved at once: below the root they have nothing to do with each other."""
    width = max(1, _CELLS // regions)
    yield from (slice(begin, min(begin + width, largest)) for begin in range(0, largest, width))


def weights_of(variances: Sequence[float]) -> list[float]:
    """Return the weights of squares, with that of the finest level 1: only their ratios matter."""
    return [variances[-1] / variance for variance in variances]


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """How the best counts of regions follow from a multiplier, for some sizes.

    Below a region r there is the count

    .. math:: v_r(\\lambda) = \\sum_j d_j \\max(0, \\lambda - \\lambda_j)

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
        first_child: of each level but the finest, shape (regions + 1,), int64.
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
    found = [np.empty(of.shape) for of in noisy]
    for part in parts:
        counts = [of[:, part] for of in noisy]
        solved = _down(_up(counts, weights, leaves), counts, weights, first_child, leaves, multiplier)
        for values, of_part in zip(found, solved, strict=True):
            values[:, part] = of_part
    return found


def _up(noisy: Sequence[IntArray], weights: Sequence[float], leaves: Sequence[IntArray]) -> _Slopes:
    """Return the slopes of all levels for some sizes."""
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

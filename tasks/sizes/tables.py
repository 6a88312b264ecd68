"""Tables of group sizes, a row per region and a column per size: their tails, their sums over regions, and the nearest rows that do not increase."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import FloatArray, IntArray

Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyLevels:
    """What was measured of the regions of all levels, from the root to the finest.

    Attributes:
        noisy: of each level the noisy counts by size, int64, shape (regions, N), records; may be negative.
        variances: of the noise of each level, > 0, records squared.
        first_child: of each level but the finest, shape (regions + 1,), int64: the children of a region are adjacent.
        groups: how many groups each finest region has, empty ones too, int64, shape (regions,); None where that is not public.
    """

    noisy: Sequence[IntArray]
    variances: Sequence[float]
    first_child: Sequence[IntArray]
    groups: IntArray | None = None

    @property
    def total(self) -> int | None:
        """The number of all groups; None where it is not public."""
        return None if self.groups is None else int(self.groups.sum())


def tails_of(sizes: NDArray[Scalar]) -> NDArray[Scalar]:
    r"""Return :math:`t_{rs} = \sum_{k \ge s} n_{rk}`, the groups of at least each size, of the shape of `sizes`, (regions, N)."""
    tails: NDArray[Scalar] = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1]
    return tails


def sizes_of(tails: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the groups of each size from those of at least each size, both of shape (regions, N)."""
    sizes = tails.copy()
    sizes[:, :-1] -= tails[:, 1:]
    return sizes


def earth_movers(true: IntArray, found: IntArray) -> int:
    """Return the earth mover's distance of group sizes, shape (regions, N), records: how many are too many in a group, or missing."""
    return int(np.abs(tails_of(found - true)).sum())


def sums_over_children(values: NDArray[Scalar], first_child: IntArray) -> NDArray[Scalar]:
    """Return the sums over the children of each region, shape (parents, N) or (parents,)."""
    sums: NDArray[Scalar] = np.add.reduceat(values, first_child[:-1], axis=0)
    return sums


def levels_above(finest: NDArray[Scalar], first_child: Sequence[IntArray]) -> list[NDArray[Scalar]]:
    """Return the sums over the regions of every level, from the root to the finest, whose values are given."""
    levels = [finest]
    for first in reversed(first_child):
        levels.insert(0, sums_over_children(levels[0], first))
    return levels


_REACH = 2.0**40  # records that rows may span together: beside it, floats resolve a thousandth of a record


def falling(values: FloatArray) -> FloatArray:
    r"""Return, for each row, the non-increasing values nearest to it in squares.

    .. math:: \min_{x_1 \ge x_2 \ge \dots \ge x_N} \sum_s (x_s - a_s)^2

    Rows are laid end to end, each below the one before, so that no value of a row is pooled with one of another.

    Args:
        values: a, shape (rows, N), float64, records.
    Returns:
        x, of the same shape; integers that do not increase come back as they are, up to a span of 2**40.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    Source:
        Ayer et al. (1955), pooling of adjacent violators.
    """
    from scipy.optimize import isotonic_regression  # only where it is used: it takes a fifth of a second to import

    low = values.min(axis=1, initial=np.inf)
    span = np.ceil(values.max(axis=1, initial=-np.inf) - low) + 1 if values.size else np.zeros(len(values))
    result, first = np.empty_like(values), 0
    while first < len(values):
        below = np.cumsum(span[first:])
        stop = first + max(1, int(np.searchsorted(below, _REACH, side="right")))
        lowered = np.ceil(low[first:stop]) + below[: stop - first]
        laid = values[first:stop] - lowered[:, None]
        pooled = isotonic_regression(laid.ravel(), increasing=False).x
        np.add(pooled.reshape(laid.shape), lowered[:, None], out=result[first:stop])
        first = stop
    return result


def round_half_up(values: FloatArray) -> NDArray[np.int64]:
    """Return the nearest whole numbers, halves up, so that values which do not increase still do not."""
    return np.floor(values + 0.5).astype(np.int64)

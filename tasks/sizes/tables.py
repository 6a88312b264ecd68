"""Tables of group sizes, a row per region and a column per size: their tails, and their sums over regions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

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

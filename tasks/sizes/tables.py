"""Tables of group sizes, a row per region and a column per size: their tails, and their sums over regions."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

Number = TypeVar("Number", np.int64, np.float64)


def tails_of(sizes: NDArray[Number]) -> NDArray[Number]:
    r"""Return :math:`t_{rs} = \sum_{k \ge s} n_{rk}`, the groups of at least each size, of the shape of `sizes`, (regions, N)."""
    tails: NDArray[Number] = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1]
    return tails


def sizes_of(tails: NDArray[Number]) -> NDArray[Number]:
    """Return the groups of each size from those of at least each size, both of shape (regions, N)."""
    sizes = tails.copy()
    sizes[:, :-1] -= tails[:, 1:]
    return sizes


def sums_over_children(values: NDArray[Number], first_child: IntArray) -> NDArray[Number]:
    """Return the sums over the children of each region, shape (parents, N) or (parents,)."""
    sums: NDArray[Number] = np.add.reduceat(values, first_child[:-1], axis=0)
    return sums


def levels_above(finest: NDArray[Number], first_child: Sequence[IntArray]) -> list[NDArray[Number]]:
    """Return the sums over the regions of every level, from the root to the finest, whose values are given."""
    levels = [finest]
    for first in reversed(first_child):
        levels.insert(0, sums_over_children(levels[0], first))
    return levels

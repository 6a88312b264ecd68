"""Mechanisms that measure group sizes themselves: M_H of Fioretto, Van Hentenryck and Zhu, and top-down."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.sizes.down import settle_down, within
from tasks.sizes.monotone import round_half_up
from tasks.sizes.slopes import real_optimum
from tasks.sizes.tables import NoisyLevels, Scalar, sizes_of, tails_of
from tasks.sizes.windows import whole_optimum
from tasks.tree.axis import IntArray

# Results are those of `from_tails`, and what is noisy are group sizes in place of tails. A public number of groups bounds all groups in the
# optimum. Then groups move between siblings where a region would have too many.


def from_sizes(levels: NoisyLevels) -> list[IntArray]:
    """Return whole group sizes near to the real optimum that add up: M_H, rounded from the root down."""
    tails = [tails_of(of) for of in _bounded(real_optimum, levels)]
    root = sizes_of(round_half_up(tails[0]))
    return settle_down(root, tails, [np.ones(len(of)) for of in tails], levels.first_child, levels.groups)


def from_sizes_relaxed(levels: NoisyLevels) -> list[IntArray]:
    """Return the real optimum, rounded count by count: M_H^r. Its sums do not hold, so that it is for comparisons only."""
    return [round_half_up(of) for of in _bounded(real_optimum, levels)]


def from_sizes_exact(levels: NoisyLevels) -> list[IntArray]:
    """Return the whole optimum: M_H^dp."""
    return within(_bounded(whole_optimum, levels), levels.first_child, levels.groups)


def _bounded(optimum: Callable[..., list[NDArray[Scalar]]], levels: NoisyLevels) -> list[NDArray[Scalar]]:
    """Return an optimum with no more groups than there are."""
    found = optimum(levels.noisy, levels.variances, levels.first_child)
    if levels.total is not None and found[0].sum() > levels.total:
        found = optimum(levels.noisy, levels.variances, levels.first_child, levels.total)
    return found


def from_sizes_top_down(levels: NoisyLevels) -> list[IntArray]:
    """Return group sizes from the root down: of each region and size the whole counts of its children nearest to the noisy ones."""
    root = np.maximum(levels.noisy[0], 0)
    if levels.total is not None and root.sum() > levels.total:
        root = nearest_to_total(levels.noisy[0], levels.total)
    return within(top_down(root, levels.noisy, levels.first_child), levels.first_child, levels.groups)


def nearest_to_total(noisy: IntArray, total: int) -> IntArray:
    """Return the whole counts nearest to those of one region, shape (1, N), that have a total."""
    return nearest_in_euclid(noisy[0], np.array([0, noisy.shape[1]]), np.array([total]))[None]


def top_down(root: IntArray, noisy: Sequence[IntArray], first_child: Sequence[IntArray]) -> list[IntArray]:
    """Return whole counts of all levels, given those of the root, shape (1, N), by the nearest counts of each family."""
    settled = [root]
    for counts, first in zip(noisy[1:], first_child, strict=True):
        regions, largest = counts.shape
        begins = np.append((np.arange(largest)[:, None] * regions + first[:-1]).ravel(), counts.size)
        found = nearest_in_euclid(counts.T.ravel(), begins, settled[-1].T.ravel())
        settled.append(np.ascontiguousarray(found.reshape(largest, regions).T))
    return settled

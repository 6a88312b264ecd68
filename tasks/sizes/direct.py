"""Mechanisms that measure group sizes themselves: M_H of Fioretto, Van Hentenryck and Zhu, and top-down."""

from collections.abc import Sequence

import numpy as np

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.sizes.down import settle_down, within
from tasks.sizes.monotone import round_half_up
from tasks.sizes.slopes import FloatArray, real_optimum
from tasks.sizes.tables import sizes_of, tails_of
from tasks.sizes.windows import whole_optimum
from tasks.tree.axis import IntArray

# Arguments and results are those of `from_tails`, with noisy group sizes in place of noisy tails. A public number of groups bounds all
# groups in the optimum. Then groups move between siblings where a region would have too many.


def from_sizes(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    """Return whole group sizes near to the real optimum that add up: M_H, rounded from the root down."""
    real = _real(noisy, variances, first_child, groups)
    tails = [tails_of(of) for of in real]
    root = sizes_of(round_half_up(tails[0]))
    return settle_down(root, tails, [np.ones(len(of)) for of in tails], first_child, groups)


def from_sizes_relaxed(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    """Return the real optimum, rounded count by count: M_H^r. Its sums do not hold, so that it is for comparisons only."""
    return [round_half_up(of) for of in _real(noisy, variances, first_child, groups)]


def from_sizes_exact(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    """Return the whole optimum: M_H^dp."""
    found = whole_optimum(noisy, variances, first_child)
    if groups is not None and found[0].sum() > groups.sum():
        found = whole_optimum(noisy, variances, first_child, int(groups.sum()))
    return within(found, first_child, groups)


def _real(
    noisy: Sequence[IntArray], variances: Sequence[float], first_child: Sequence[IntArray], groups: IntArray | None
) -> list[FloatArray]:
    """Return the real optimum, with no more groups than there are."""
    found = real_optimum(noisy, variances, first_child)
    if groups is not None and found[0].sum() > groups.sum():
        found = real_optimum(noisy, variances, first_child, int(groups.sum()))
    return found


def from_sizes_top_down(
    noisy: Sequence[IntArray],
    _variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    """Return group sizes from the root down: of each region and size the whole counts of its children nearest to the noisy ones."""
    root = np.maximum(noisy[0], 0)
    if groups is not None and root.sum() > groups.sum():
        root = nearest_to_total(noisy[0], int(groups.sum()))
    return within(top_down(root, noisy, first_child), first_child, groups)


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

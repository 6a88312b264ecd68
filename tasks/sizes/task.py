"""The stage that turns the noisy counts of all regions and sizes into whole numbers of groups, of which all levels are sums."""

from itertools import pairwise

import numpy as np

from storage.releases.shards import TRUNK, Shard
from tasks.laws.named import noise_of
from tasks.optimize.task import all_leaves, write_frontier
from tasks.sizes.estimators import Estimator
from tasks.sizes.tables import NoisyLevels
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS
from tasks.tree.job import Job
from tasks.tree.order import Tree


def settle_sizes(job: Job, estimate: Estimator) -> Shard:
    """Settle the sealed noisy counts of all levels, and write the finest regions' numbers of groups that are not 0, in the order of the tree.

    It reads only sealed counts, and a public list of groups. It measures nothing and charges nothing.
    """
    tree, groups = job.tree, job.load_groups()
    *_, sizes = estimated_sizes(job, estimate)
    if groups is not None:
        sizes = np.column_stack((groups - sizes.sum(axis=1), sizes))
    counts = np.ascontiguousarray(sizes.T).ravel()  # all regions of a size before those of the next
    parts = (counts[first : first + CHUNK_CELLS] for first in range(0, len(counts), CHUNK_CELLS))
    return write_frontier(job, tree.depth, TRUNK, all_leaves(tree, parts))


def estimated_sizes(job: Job, estimate: Estimator) -> list[IntArray]:
    """Return what an estimator makes of the sealed noisy counts: of each measured level the groups of sizes from 1 on, shape (regions, sizes)."""
    tree, groups = job.tree, job.load_groups()
    measured = [terms for terms in job.record.release.levels if terms.is_measured]
    skipped = 0 if groups is None else 1  # size 0 is what is left of the list
    noisy = [by_region(tree, terms.level, job.all_noisy(terms.level))[:, skipped:] for terms in measured]
    variances = [noise_of(terms).variance for terms in measured]
    axis = region_axis(tree)
    own_levels = [tree.axis_levels(terms.level)[axis] for terms in measured]
    first_child = [tree.axes[axis].first_descendants(above, below) for above, below in pairwise(own_levels)]
    return estimate(NoisyLevels(noisy, variances, first_child, groups))


def by_region(tree: Tree, level: int, counts: IntArray) -> IntArray:
    """Return the counts of all cells of a level, which come in the order of the tree, by region and size: shape (regions, sizes)."""
    return np.ascontiguousarray(counts.reshape(-1, regions_of(tree, level)).T)


def regions_of(tree: Tree, level: int) -> int:
    """Return how many regions a level of a tree of group sizes has."""
    axis = region_axis(tree)
    return tree.axes[axis].areas(tree.axis_levels(level)[axis])


def region_axis(tree: Tree) -> int:
    """Return the number of the axis of regions, which a tree of group sizes has."""
    return next(number for number, axis in enumerate(tree.axes) if axis.role == "region")

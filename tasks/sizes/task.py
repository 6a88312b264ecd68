"""The stage that turns the noisy counts of all places and sizes into whole numbers of groups, of which all levels are sums."""

from itertools import pairwise

import numpy as np

from storage.releases.shards import TRUNK, Shard
from tasks.laws.named import noise_of
from tasks.optimize.task import all_leaves, write_frontier
from tasks.settle.task import write_counts
from tasks.sizes.estimators import Estimator
from tasks.sizes.places import areas_of, by_place, first_inside, in_tree_order
from tasks.sizes.tables import NoisyLevels
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier
from tasks.tree.job import Job
from tasks.tree.order import Tree
from tasks.tree.views import sums_of_leaves


def settle_sizes(job: Job, estimate: Estimator) -> list[Shard]:
    """Settle the sealed noisy counts of all levels, and write the finest places' numbers of groups that are not 0, in the order of the tree.

    Then write the views, which are sums of them.

    It reads only sealed counts, and a public list of groups. It measures nothing and charges nothing.
    """
    tree, groups = job.tree, _groups(job)
    *_, sizes = estimated_sizes(job, estimate)
    if groups is not None:
        sizes = np.column_stack((groups - sizes.sum(axis=1), sizes))
    counts = np.ascontiguousarray(sizes.T).ravel()  # all places of a size before those of the next
    parts = (counts[first : first + CHUNK_CELLS] for first in range(0, len(counts), CHUNK_CELLS))
    made, leaves = [write_frontier(job, tree.depth, TRUNK, all_leaves(tree, parts))], nodes_by_size(tree, sizes)
    for terms in job.record.release.views:
        partition = job.partition(terms.level)
        made.append(write_counts(job, partition, terms.level, sums_of_leaves(partition, leaves)))
    return made


def nodes_by_size(tree: Tree, sizes: IntArray, level: int | None = None) -> Frontier:
    """Return the numbers of groups of a level that are not 0, or of the finest one, in the order of the tree, given by place in that order and size."""
    level = tree.depth if level is None else level
    size, place = np.nonzero(sizes.T)
    areas = areas_of(tree, tree.axis_levels(level), in_tree_order(tree, level)[place])
    return Frontier(level, (*areas, size), sizes[place, size])


def estimated_sizes(job: Job, estimate: Estimator) -> list[IntArray]:
    """Return what an estimator makes of the sealed noisy counts: of each measured level the groups of sizes from 1 on, shape (places, sizes).

    To an estimator places are regions: it knows no more of them than which lie in which.
    """
    tree, groups = job.tree, _groups(job)
    measured = [terms for terms in job.record.release.levels if terms.is_measured]
    skipped = 0 if groups is None else 1  # size 0 is what is left of the list
    noisy = [by_place(tree, terms.level, job.all_noisy(terms.level))[:, skipped:] for terms in measured]
    variances = [noise_of(terms).variance for terms in measured]
    first_child = [first_inside(tree, above.level, below.level) for above, below in pairwise(measured)]
    return estimate(NoisyLevels(noisy, variances, first_child, groups))


def _groups(job: Job) -> IntArray | None:
    """Return how many groups each finest place has by a public list, in the order of the tree, int64, shape (places,); None without one."""
    groups = job.load_groups()
    return None if groups is None else groups[in_tree_order(job.tree, job.tree.depth)]

"""Group sizes in comparisons: the true sizes of a table, what a mechanism says of every level, and the paper's second measure."""

from dataclasses import dataclass

import numpy as np

from flows.trials.in_memory import PublicTable
from tasks.sizes.estimators import Estimator
from tasks.sizes.intervals import own_source
from tasks.sizes.tables import earth_movers, sizes_of
from tasks.sizes.task import estimated_sizes
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, root_of
from tasks.tree.job import Job
from tasks.tree.order import Tree


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedTrial:
    """A trial of a mechanism whose group sizes need not add up over regions: no release states them, and each level is as it was made.

    Attributes:
        job: the work of the trial, all of it done.
        estimate: makes group sizes of what was measured.
        published: nothing: no release is made by it.
    """

    job: Job
    estimate: Estimator
    published: None = None

    @property
    def released(self) -> list[Frontier]:
        """The numbers of groups of levels 0 to T, also those below 0."""
        tree, parts = self.job.tree, self.job.record.release.levels
        measured = [part.level for part in parts if part.is_measured]
        made = dict(zip(measured, estimated_sizes(self.job, self.estimate), strict=True))
        return _levels(tree, [made[own_source(level, measured)] for level in range(1, tree.depth + 1)])


def true_sizes(table: PublicTable) -> list[Frontier]:
    """Return the true numbers of groups of levels 0 to T, given those of at least each size."""
    tree = table.tree
    tails = (_by_region(tree, Frontier(at, of.areas, of.true_counts)) for at, of in enumerate(table.levels[1:], 1))
    return _levels(tree, [sizes_of(of) for of in tails])


def emd_of_level(tree: Tree, true: Frontier, released: Frontier) -> int:
    """Return the earth mover's distance of a level of group sizes, records."""
    return earth_movers(_by_region(tree, true), _by_region(tree, released))


def _by_region(tree: Tree, nodes: Frontier) -> IntArray:
    """Return the counts of all cells of a level, shape (regions, sizes)."""
    counts = np.zeros(tree.sizes(nodes.level), dtype=np.int64)
    counts[nodes.areas] = nodes.counts
    return counts


def _levels(tree: Tree, sizes: list[IntArray]) -> list[Frontier]:
    """Return levels 0 to T, given the numbers of groups of levels 1 to T, each of shape (regions, sizes)."""
    levels = [root_of(tree, int(sizes[0].sum()))]
    for level, of_level in enumerate(sizes, 1):
        size, region = np.nonzero(of_level.T)  # in the order of the tree
        levels.append(Frontier(level, (region, size), of_level[region, size]))
    return levels

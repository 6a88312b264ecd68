"""Group sizes in comparisons: the true sizes of a table, what a mechanism says of every level, and the paper's second measure."""

from dataclasses import dataclass

import numpy as np

from flows.trials.in_memory import PublicTable
from tasks.sizes.estimators import Estimator
from tasks.sizes.intervals import own_source
from tasks.sizes.places import in_tree_order, numbered, places_of
from tasks.sizes.tables import earth_movers, sizes_of
from tasks.sizes.task import estimated_sizes, nodes_by_size
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
    tails = (_by_place(tree, Frontier(at, of.areas, of.true_counts)) for at, of in enumerate(table.levels[1:], 1))
    return _levels(tree, [sizes_of(of) for of in tails])


def emd_of_level(tree: Tree, true: Frontier, released: Frontier) -> int:
    """Return the earth mover's distance of a level of group sizes, records."""
    return earth_movers(_by_place(tree, true), _by_place(tree, released))


def _by_place(tree: Tree, nodes: Frontier) -> IntArray:
    """Return the counts of all cells of a level, shape (places, sizes), with the places in the order of the tree."""
    counts = np.zeros((places_of(tree, nodes.level), tree.sizes(nodes.level)[-1]), dtype=np.int64)
    counts[numbered(tree, tree.axis_levels(nodes.level), nodes.areas), nodes.areas[-1]] = nodes.counts
    return counts[in_tree_order(tree, nodes.level)]


def _levels(tree: Tree, sizes: list[IntArray]) -> list[Frontier]:
    """Return levels 0 to T, given the numbers of groups of levels 1 to T, each of shape (places, sizes), in the order of the tree."""
    levels = [root_of(tree, int(sizes[0].sum()))]
    return [*levels, *(nodes_by_size(tree, of_level, level) for level, of_level in enumerate(sizes, 1))]

"""The stage that turns the noisy counts of all nodes into unbiased whole counts of the leaves, of which everything else is sums."""

from dataclasses import dataclass

from storage.releases.shards import TRUNK, Shard
from storage.releases.terms import TREE, Covariance
from tasks.laws.named import noise_of
from tasks.optimize.task import all_leaves, write_frontier
from tasks.settle.task import write_counts
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, taking
from tasks.tree.job import Job
from tasks.tree.views import View, sums_of_leaves
from tasks.unbiased.dense import strategies_of
from tasks.unbiased.deviations import released_counts
from tasks.unbiased.grid import round_grid, sums_of_cells
from tasks.unbiased.least_squares import least_squares, precisions_of, round_prefix_sums
from tasks.unbiased.variance import tree_variances


@dataclass(frozen=True, slots=True)
class Unbiased:
    """A finish: least squares over all that is measured, then whole counts of the leaves by rounded sums; levels and views are their sums.

    Counts may be below zero. Every count, and every sum of leaves, has a known variance.

    Attributes:
        covariance: what is measured, as the rule by which variances follow: all levels of a tree, views beside them too, all combinations of
            levels of several axes, or whole-number combinations of all leaves of some axes, within every node of the others.
    """

    covariance: Covariance = TREE


def settle_unbiased(job: Job) -> Shard | list[Shard]:
    """Settle the sealed noisy counts of all levels, and write the counts of the leaves that are not 0, in the order of the tree.

    Of what is no tree alone, write the counts of all levels and views. It reads only sealed counts. It measures nothing and charges nothing.
    """
    if job.record.release.terms.crosses:
        return _settle_boxes(job)
    levels, tree = job.record.release.levels, job.tree
    precisions = precisions_of([noise_of(terms) if terms.is_measured else None for terms in levels])
    values = least_squares(tree_variances(tree, precisions), precisions, lambda level: taking(job.noisy(level, TRUNK)))
    return write_frontier(job, tree.depth, TRUNK, all_leaves(tree, round_prefix_sums(values)))


def _settle_boxes(job: Job) -> list[Shard]:
    """Settle the sealed noisy counts of all levels and views together, and write the counts of all of them."""
    tree, release = job.tree, job.record.release
    parts = [(job.view(of.level), noise_of(of) if of.is_measured else None) for of in release.parts]
    total = int(job.all_noisy(0)[0]) if release.parts[0].is_invariant else None
    is_grid, confidence = release.terms.is_grid, release.terms.intervals.confidence

    def noisy(number: int) -> IntArray:
        job.check_going_on()
        return job.all_noisy(number)

    strategies = strategies_of(release.terms.strategy)
    released = released_counts(
        tree, parts, confidence, total, is_grid=is_grid, has_views=not is_grid, strategies=strategies
    )
    counts = round_grid(released.settle({view.axis_levels: view.number for view, _ in parts}, noisy))
    return [write_counts(job, job.partition(view.number), view.number, _sums(job, counts, view)) for view, _ in parts]


def _sums(job: Job, counts: IntArray, view: View) -> IntArray:
    """Return the sums of leaves in the cells of a level or view, int64, shape (cells,), records."""
    if view.derived:
        every = job.partition(job.record.finest).cells()
        return sums_of_leaves(job.partition(view.number), Frontier(job.record.finest, every.areas, counts.ravel()))
    return sums_of_cells(job.tree.axes, counts, view.axis_levels).ravel()

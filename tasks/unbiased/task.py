"""The stage that turns the noisy counts of all nodes into unbiased whole counts of the leaves, of which everything else is sums."""

from dataclasses import dataclass

from storage.releases.shards import TRUNK, Shard
from tasks.laws.named import noise_of
from tasks.optimize.task import all_leaves, write_frontier
from tasks.settle.task import write_counts
from tasks.tree.axis import IntArray
from tasks.tree.frontier import taking
from tasks.tree.job import Job
from tasks.unbiased.deviations import pair_precisions
from tasks.unbiased.grid import grid_of, round_grid, sums_of_pairs
from tasks.unbiased.least_squares import least_squares, precisions_of, round_prefix_sums
from tasks.unbiased.variance import tree_variances


@dataclass(frozen=True, slots=True)
class Unbiased:
    """A finish: least squares over all levels, then whole counts of the leaves by rounded prefix sums; levels are their sums.

    Counts may be below zero. Every count, and every sum of adjacent leaves, has a known variance.

    Attributes:
        is_grid: whether all pairs of levels of two axes are measured, rather than the levels of one tree.
    """

    is_grid: bool = False


def settle_unbiased(job: Job) -> Shard | list[Shard]:
    """Settle the sealed noisy counts of all levels, and write the counts of the leaves that are not 0, in the order of the tree.

    Of a grid, write the counts of all levels and views. It reads only sealed counts. It measures nothing and charges nothing.
    """
    if job.record.release.terms.is_grid:
        return _settle_grid(job)
    levels, tree = job.record.release.levels, job.tree
    precisions = precisions_of([noise_of(terms) if terms.is_measured else None for terms in levels])
    values = least_squares(tree_variances(tree, precisions), precisions, lambda level: taking(job.noisy(level, TRUNK)))
    return write_frontier(job, tree.depth, TRUNK, all_leaves(tree, round_prefix_sums(values)))


def _settle_grid(job: Job) -> list[Shard]:
    """Settle the sealed noisy counts of all pairs of levels, and write the counts of all levels and views."""
    tree, parts = job.tree, job.record.release.parts
    views = [job.view(terms.level) for terms in parts]
    pairs = {(view.axis_levels[0], view.axis_levels[1]): view.number for view in views}
    noises = [noise_of(terms) if terms.is_measured else None for terms in parts]
    precisions = pair_precisions([(view.axis_levels, noise) for view, noise in zip(views, noises, strict=True)])
    total = int(job.all_noisy(0)[0]) if parts[0].is_invariant else None

    def noisy(above: int, below: int) -> IntArray:
        job.check_going_on()
        sizes = tree.axes[0].areas(above), tree.axes[1].areas(below)
        return job.all_noisy(pairs[above, below]).reshape(sizes)

    counts = round_grid(grid_of(tree, precisions, total).settle(noisy))
    return [
        write_counts(job, job.partition(number), number, sums_of_pairs(tree, counts, pair).ravel())
        for pair, number in pairs.items()
    ]

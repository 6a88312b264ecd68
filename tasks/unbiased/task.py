"""The stage that turns the noisy counts of all nodes into unbiased whole counts of the leaves, of which all levels are sums."""

from dataclasses import dataclass

from storage.releases.seals import TRUNK, FrontierShard
from tasks.laws.named import noise_of
from tasks.optimize.task import all_leaves, write_frontier
from tasks.stage import stage
from tasks.tree.frontier import taking
from tasks.tree.job import Job, stored_job
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.prefix_sums import round_prefix_sums
from tasks.unbiased.variance import tree_variances


@dataclass(frozen=True, slots=True)
class Unbiased:
    """A finish: least squares over all levels, then whole counts of the leaves by rounded prefix sums; levels are their sums.

    Counts may be below zero. Every count, and every sum of adjacent leaves, has a known variance.
    """


@stage("settle all levels")
def settle_unbiased_release(release_id: str) -> FrontierShard:
    """Settle the sealed noisy counts of all levels into counts of the leaves. Repeated calls give the same result."""
    return settle_unbiased(stored_job(release_id))


def settle_unbiased(job: Job) -> FrontierShard:
    """Settle the sealed noisy counts of all levels, and write the counts of the leaves that are not 0, in the order of the tree.

    It reads only sealed counts. It measures nothing and charges nothing.
    """
    levels, tree = job.record.release.levels, job.tree
    precisions = precisions_of([noise_of(terms) if terms.is_measured else None for terms in levels])
    values = least_squares(tree_variances(tree, precisions), precisions, lambda level: taking(job.noisy(level, TRUNK)))
    return write_frontier(job, tree.depth, TRUNK, all_leaves(tree, round_prefix_sums(values)))

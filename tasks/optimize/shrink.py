"""The stages that shrink: level by level, they learn what is to be known of a level, fit its prior, and share its totals out.

They read only sealed counts and the nodes that the first pass kept. They measure nothing and charge nothing.
"""

from dataclasses import dataclass

import numpy as np

from storage.releases.shards import TRUNK, Shard
from tasks.optimize.posterior import shared_out
from tasks.optimize.prior import RATIOS, STRATA, families_with, fitted, prior_means, shrunk_totals
from tasks.optimize.reconcile import UpDown
from tasks.optimize.shrink_statistics import (
    hashed_names,
    joined_statistics,
    nothing_learnt,
    sample_of,
    statistics_from,
    statistics_of,
)
from tasks.optimize.task import nodes_kept, parts_of, root_settled, totals_above, write_settled
from tasks.tree.axis import FloatArray
from tasks.tree.job import Job

FEWEST = 300  # cells of a level to share out from which on a prior is fitted


@dataclass(frozen=True, slots=True)
class Shrink:
    """A finish: up the tree to estimates, and down it by a prior that is fitted to the estimates of each level.

    Attributes:
        passes: the way up; and the way down at levels that are exact, or have too few cells to fit a prior to.
    """

    passes: UpDown


def gather(job: Job, level: int, branch: str) -> Shard:
    """Gather what is to be learnt of a level from the families of a branch, whose totals are settled."""
    areas, axis = _number_of_areas(job, level), job.tree.steps[level - 1]
    learnt = nothing_learnt(areas)
    for part in parts_of(job, level, branch, nodes_kept(job, level, branch), totals_above(job, level, branch)):
        families = families_with(part.estimates, part.first, part.totals)
        names = hashed_names([of_axis[families.parent] for of_axis in part.parents.areas])
        learnt = joined_statistics([learnt, statistics_of(families, part.areas[axis][families.cell], names, areas)])
    return job.write_numbers("statistics", level, branch, learnt.columns())


def fit(job: Job, level: int, branch: str) -> Shard:
    """Fit the prior of a level to what was gathered in all branches; it is kept as the trunk's.

    The shard has the weights of all strata, none where there are too few cells, and then the totals of the areas.
    """
    learnt = nothing_learnt(_number_of_areas(job, level))
    for of in job.record.branches_of(level):
        learnt = joined_statistics([learnt, statistics_from(job.columns(job.record.shards["statistics"][level, of]))])
    tree, axis = job.tree, job.tree.steps[level - 1]
    above = tree.axes[axis].first_child[tree.axis_levels(level - 1)[axis]]
    of_areas = shrunk_totals(learnt.values, learnt.variances, above)
    is_enough = learnt.cells.sum() >= FEWEST
    weights = fitted(sample_of(learnt, of_areas)).ravel() if is_enough else np.zeros(0)
    return job.write_numbers("prior", level, branch, {"value": np.concatenate((weights, of_areas))})


def share(job: Job, level: int, branch: str, finish: Shrink) -> Shard:
    """Share the totals above a level out among the nodes of a branch, and write those that keep a count."""
    kept, terms = nodes_kept(job, level, branch), job.record.release.levels[level]
    if level == 0:
        return write_settled(job, level, branch, kept, root_settled(job, kept))
    totals = totals_above(job, level, branch)
    if terms.same_as is not None:
        return write_settled(job, level, branch, kept, totals[: len(kept)])  # a root of 0 has no cell
    prior, of_areas = _prior(job, level) if terms.is_charged else (None, np.zeros(0))
    axis, counts = job.tree.steps[level - 1], np.zeros(len(kept), dtype=np.int64)
    for part in parts_of(job, level, branch, kept, totals):
        if prior is None:
            counts[part.nodes] = finish.passes.share(part.estimates, part.first, part.totals)
            continue
        families = families_with(part.estimates, part.first, part.totals)
        of_cells = of_areas[part.areas[axis][families.cell]]
        means = prior_means(families.totals.astype(np.float64), families.sizes, families.first, of_cells)
        of_part, single = np.zeros(int(part.first[-1]), dtype=np.int64), np.flatnonzero(np.diff(part.first) == 1)
        of_part[part.first[single]] = part.totals[single]
        of_part[families.cell] = shared_out(families, means, prior)
        counts[part.nodes] = of_part
    return write_settled(job, level, branch, kept, counts)


def _number_of_areas(job: Job, level: int) -> int:
    """Return how many areas the axis has that a level refines."""
    axis = job.tree.steps[level - 1]
    return job.tree.axes[axis].areas(job.tree.axis_levels(level)[axis])


def _prior(job: Job, level: int) -> tuple[FloatArray | None, FloatArray]:
    """Return the prior of a level, None where it has too few cells, and the totals of its areas."""
    values = job.columns(job.record.shards["prior"][level, TRUNK])["value"]
    of_areas = values[len(values) - _number_of_areas(job, level) :]
    weights = values[: len(values) - len(of_areas)]
    return weights.reshape(STRATA, 2 + len(RATIOS)) if len(weights) else None, of_areas

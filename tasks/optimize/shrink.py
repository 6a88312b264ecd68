"""The stages that shrink: level by level, they learn what is to be known of a level, fit its prior, and share its totals out.

They read only sealed counts and the nodes that the first pass kept. They measure nothing and charge nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from storage.releases.shards import TRUNK, Shard
from tasks.optimize.posterior import shared_out
from tasks.optimize.prior import RATIOS, Families, LevelPrior, families_with
from tasks.optimize.reconcile import UpDown
from tasks.optimize.shrink_statistics import (
    hashed_names,
    joined_statistics,
    level_prior,
    nothing_learnt,
    statistics_from,
    statistics_of,
)
from tasks.optimize.task import Part, nodes_kept, parts_of, root_settled, totals_above, write_settled
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.job import Job
from tasks.tree.keys import AreaArray
from tasks.tree.order import innermost

Within = Callable[[Sequence[AreaArray]], BoolArray]  # which cells are within one area, by their areas per axis


@dataclass(frozen=True, slots=True)
class Shrink:
    """A finish: up the tree to estimates, and down it by a prior that is fitted to the estimates of each level.

    Attributes:
        passes: the way up; and the way down at levels that are exact, or have too few cells to fit a prior to.
    """

    passes: UpDown


def gather(job: Job, level: int, branch: str) -> Shard:
    """Gather what is to be learnt of a level from the families of a branch, whose totals are settled."""
    areas, axis, within = _number_of_areas(job, level), job.tree.steps[level - 1], innermost(job.tree, level)
    learnt = nothing_learnt(areas)
    for part in parts_of(job, level, branch, nodes_kept(job, level, branch), totals_above(job, level, branch)):
        families = families_with(part.estimates, part.first, part.totals)
        names = hashed_names([of_axis[families.parent] for of_axis in part.parents.areas])
        of_part = statistics_of(families, *_places(part, families, axis, within), names, areas)
        learnt = joined_statistics([learnt, of_part])
    return job.write_numbers("statistics", level, branch, learnt.columns())


def fit(job: Job, level: int, branch: str) -> Shard:
    """Fit the prior of a level to what was gathered in all branches; it is kept as the trunk's.

    The shard has the weights of all strata, none where there are too few cells, and then the totals of the areas.
    """
    learnt = nothing_learnt(_number_of_areas(job, level))
    for of in job.record.branches_of(level):
        learnt = joined_statistics([learnt, statistics_from(job.columns(job.record.shards["statistics"][level, of]))])
    axis, own = job.tree.refined(level - 1)
    prior = level_prior(learnt, job.tree.axes[axis].first_child[own])
    return job.write_numbers("prior", level, branch, {"value": np.append(prior.weights, prior.of_areas)})


def share(job: Job, level: int, branch: str, finish: Shrink) -> Shard:
    """Share the totals above a level out among the nodes of a branch, and write those that keep a count."""
    kept, terms = nodes_kept(job, level, branch), job.record.release.levels[level]
    if level == 0:
        return write_settled(job, level, branch, kept, root_settled(job, kept))
    totals = totals_above(job, level, branch)
    if terms.same_as is not None:
        return write_settled(job, level, branch, kept, totals[: len(kept)])  # a root of 0 has no cell
    prior = _prior(job, level) if terms.is_charged else None
    axis, within = job.tree.steps[level - 1], innermost(job.tree, level)
    counts = np.zeros(len(kept), dtype=np.int64)
    for part in parts_of(job, level, branch, kept, totals):
        if prior is None or not len(prior.weights):
            counts[part.nodes] = finish.passes.share(part.estimates, part.first, part.totals)
            continue
        families = families_with(part.estimates, part.first, part.totals)
        of_part = counts_by_prior(families, *_places(part, families, axis, within), part.first, part.totals, prior)
        counts[part.nodes] = of_part
    return write_settled(job, level, branch, kept, counts)


def counts_by_prior(
    families: Families, areas: IntArray, within: BoolArray, first: IntArray, totals: IntArray, prior: LevelPrior
) -> IntArray:
    """Return the counts of the cells of some parents, shape (cells,), that add up to their totals.

    Args:
        families: those of the parents that have something to share out.
        areas: of their cells on the refined axis.
        within: which of their cells are within one area.
        first: where the cells of all parents begin, and the end, shape (parents + 1,).
        totals: of all parents, shape (parents,).
    """
    counts, single = np.zeros(int(first[-1]), dtype=np.int64), np.flatnonzero(np.diff(first) == 1)
    counts[first[single]] = totals[single]
    counts[families.cell] = shared_out(families, *prior.of_cells(families, areas, within), prior.weights)
    return counts


def _places(part: Part, families: Families, axis: int, within: Within) -> tuple[IntArray, BoolArray]:
    """Return the areas of the cells of some families on the refined axis, and which cells are within one area."""
    areas = [of_axis[families.cell] for of_axis in part.areas]
    return areas[axis], within(areas)


def _number_of_areas(job: Job, level: int) -> int:
    """Return how many areas the axis has that a level refines."""
    axis = job.tree.steps[level - 1]
    return job.tree.axes[axis].areas(job.tree.axis_levels(level)[axis])


def _prior(job: Job, level: int) -> LevelPrior:
    """Return the prior of a level."""
    values = job.columns(job.record.shards["prior"][level, TRUNK])["value"]
    weights, of_areas = np.split(values, [len(values) - _number_of_areas(job, level)])
    return LevelPrior(weights.reshape(-1, 2 + len(RATIOS)), of_areas)

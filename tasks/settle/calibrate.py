"""The stage that settles the totals of single axes, each axis as a tree of its own, and calibrates the leaves to them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from storage.releases.parts import Part
from storage.releases.shards import TRUNK, Shard, shard_name
from tasks.laws.named import noise_of
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import UpDown
from tasks.settle.balance import balanced, share_out, swapped
from tasks.settle.margins import settle_axis
from tasks.shrink.task import Shrink
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier
from tasks.tree.job import Job
from tasks.tree.keys import begins_run
from tasks.tree.leaves import joined
from tasks.tree.views import leading_levels


@dataclass(frozen=True, slots=True)
class Calibrate:
    """A finish: totals of single axes are settled, each axis as a tree of its own, and the leaves are calibrated to them.

    Only the nodes that are left in the tree take part, so that a total without enough of them is not met: then its table and the
    sums of the leaves differ.

    Attributes:
        second_pass: the tree's own finish, which comes first; None if it has none.
    """

    second_pass: UpDown | Shrink | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """The totals of one axis at one of its levels.

    Attributes:
        number: of their view.
        counts: settled, int64, shape (areas of the level,), records.
        variance: of the noise of one of them, records squared.
    """

    number: int
    counts: IntArray
    variance: float


Marginals = Mapping[tuple[int, int], Marginal]  # by the number of an axis, and one of its levels


def calibrate(job: Job) -> list[Shard]:
    """Settle the totals of single axes, calibrate the levels to them, and return the counts of all levels and views.

    Level 0 and the levels of the first axis alone stay as they are. It reads only sealed and released counts. It measures nothing and charges nothing.
    """
    margins = _settled_margins(job)
    views = [_write_view(job, margin) for margin in sorted(margins.values(), key=lambda margin: margin.number)]
    made = list[Shard]()
    for level, counts in enumerate(_calibrated(job, margins)):
        start = 0
        for (of, _), shard in job.record.released.items():
            if of == level:
                made.append(_write_level(job, shard, counts[start : start + shard.rows]))
                start += shard.rows
    return [*made, *views]


def _settled_margins(job: Job) -> Marginals:
    """Return the totals of single axes, each axis settled as a tree of its own below what stays as it is."""
    tree, views = job.tree, dict[tuple[int, int], Part]()
    for terms in job.record.release.views:
        axis, level = next((axis, own) for axis, own in enumerate(job.view(terms.level).axis_levels) if own)
        views[axis, level] = terms
    fixed = {axis: {0: _released(job, 0).counts} for axis, _ in views}
    for level in range(1, leading_levels(tree) + 1):
        nodes, axis = _released(job, level), tree.steps[0]
        counts = fixed.setdefault(axis, {})[level] = np.zeros(tree.axes[axis].areas(level), dtype=np.int64)
        counts[nodes.areas[axis]] = nodes.counts
    found = dict[tuple[int, int], Marginal]()
    for axis, known in fixed.items():
        noisy = {
            level: (job.all_noisy(terms.level), noise_of(terms).variance)
            for (of, level), terms in views.items()
            if of == axis
        }
        for level, counts in settle_axis(tree.axes[axis], known, noisy).items() if noisy else ():
            found[axis, level] = Marginal(views[axis, level].level, counts, noisy[level][1])
    return found


def _calibrated(job: Job, margins: Marginals) -> Iterator[IntArray]:
    """Yield the counts of levels 0 to T, each with a count for every node that is left, shape (nodes,)."""
    tree, totals = job.tree, _released(job, 0).counts
    yield totals
    for level in range(1, tree.depth + 1):
        job.check_going_on()
        nodes, axis = _released(job, level), tree.steps[level - 1]
        if level <= leading_levels(tree):
            counts = nodes.counts
        else:
            first = np.append(np.flatnonzero(begins_run(tree.areas_above(level, nodes.areas))), len(nodes))
            counts = nearest_in_euclid(nodes.counts, first, totals)
            if margin := margins.get((axis, tree.axis_levels(level)[axis])):
                variance = noise_of(job.record.release.levels[level]).variance
                family, area = np.repeat(np.arange(len(totals)), np.diff(first)), nodes.areas[axis]
                values = balanced(counts, family, totals, area, margin.counts, margin.variance / variance)
                counts = swapped(*share_out(values, nodes.counts, first, totals), family, area)
        yield counts
        totals = counts


def _released(job: Job, level: int) -> Frontier:
    """Return all nodes of a level as they are before calibration, in the order of the tree."""
    return joined(level, job.level(level, job.record.released))


def _write_level(job: Job, shard: Shard, counts: IntArray) -> Shard:
    """Write the calibrated counts of one level of one branch, without zeros below level 0."""
    every = np.arange(len(counts))
    columns = job.columns(shard) | {"count": counts}
    return job.write_rows(
        "calibrated", *shard.place, {"row": every} | columns, np.flatnonzero(counts) if shard.level else every
    )


def _write_view(job: Job, margin: Marginal) -> Shard:
    """Write the counts of all cells of a view, in the order of their areas."""
    parts = range(0, len(margin.counts), CHUNK_CELLS)
    groups = ({"count": margin.counts[start : start + CHUNK_CELLS]} for start in parts)
    sha256 = job.shard_store.write(shard_name("calibrated", margin.number, TRUNK), ("count",), groups)
    return Shard("calibrated", margin.number, TRUNK, sha256, int(np.count_nonzero(margin.counts)))

"""The stages that settle what was measured: all of it into one table of leaves, or the totals of axes, towards which the levels are moved."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage.releases.parts import Part
from storage.releases.shards import TRUNK, Shard, shard_name
from tasks.laws.named import noise_of
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import UpDown
from tasks.optimize.shrink import Shrink
from tasks.settle.controlled import round_controlled
from tasks.settle.margins import balanced, settle_axis, share_out, swapped
from tasks.settle.newton_step import cells_factored
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.settle.priors import drawn_totals, leaves_by_priors
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, joined
from tasks.tree.job import Job
from tasks.tree.keys import begins_run
from tasks.tree.order import Tree, innermost
from tasks.tree.views import Partition, View, leading_levels

# bytes: of each leaf, and of each grouping in which it lies; of each pair of cells in a dense matrix; of a mixed-integer program
_OF_LEAF, _OF_LABEL, _OF_PAIR, _OF_PROGRAM = 400, 16, 24, 50_000_000

# the weight of leaves that count 0 by priors, relative to 1/σ²: few of them are to have a record after all
_OF_ZEROS = 100.0
# the least weight of the totals of a single axis beside priors, which know them already, relative to 1/σ²; and from how many σ on, in the
# mean, they have all of it
_OF_TOTALS, _CLEAR_TOTALS = 0.2, 10.0
# of what all records within one area come to: the weight, relative to the inverse variance of its noise, and the square of how many
# deviations are noise
_OF_WITHIN, _CLEAR_WITHIN = 10.0, 4.0


@dataclass(frozen=True, slots=True)
class Together:
    r"""A finish: the leaves are settled together with everything else that was measured; levels and views are their sums.

    .. math:: \min_{y \ge 0} w_1 \|y - x_1\|^2 + \sum_i w_i \|A_i y - x_i\|^2, \qquad w_i = \frac{1}{\sqrt{n_i} \sigma_i^2}

    with the noisy counts :math:`x_i` of the :math:`n_i` cells of level or view i; exact counts are met. Then y is rounded to
    whole counts.

    Attributes:
        by_priors: how leaves are counted first by priors that are fitted to the levels of the tree; None where they are not. Then x of the leaves
            are these counts, x of a level their sums, and all weights are 1/σ². The totals of a single axis are drawn to one another first, and
            weigh less where they are few σ.

    Source:
        Fioretto, Lee and Van Hentenryck (2018), with the weights :math:`1 / n_i`. With :math:`1 / \sigma_i^2`, the bias of
        leaves that end at zero shows in the sums. The weights here lie between the two: docs/proofs/mechanisms.md.
    """

    by_priors: Shrink | None = None


def memory_to_settle(tree: Tree, views: Sequence[View]) -> int:
    """Return how many bytes the arrays of settling take at most, as `benchmarks/settling_size.py` measures them.

    Args:
        views: the levels and views that are measured, or exact, beside the leaves.
    """
    lowered, sizes = [view.lowered(tree) for view in views], [len(Partition(tree, view)) for view in views]
    factored = cells_factored(sizes, lambda one, other: lowered[one].refines(lowered[other]))
    leaves = tree.possible_cells(tree.depth)
    return leaves * (_OF_LEAF + _OF_LABEL * len(views)) + _OF_PAIR * factored**2 + _OF_PROGRAM


def settle_together(job: Job, finish: Together) -> list[Shard]:
    """Settle all sealed noisy counts together, and return the counts of all levels and views, and how far rounding has moved them.

    It reads only sealed counts. It measures nothing and charges nothing.
    """
    finest = job.record.finest
    measured = sorted({level for level, _ in job.record.shards["noisy"]} - {finest})
    labels = {number: _labels(job, number) for number in measured}
    job.check_going_on()
    leaves, weights, groupings = (
        _by_priors(job, labels, finish.by_priors) if finish.by_priors else _as_measured(job, labels)
    )
    values = settle_overlapping(leaves, weights, groupings)
    job.check_going_on()
    if of_sums := _of_sums(job, values):
        values = settle_overlapping(leaves, weights, [*groupings, *of_sums])
        job.check_going_on()
    rounded = round_controlled(values, list(labels.values()))
    made: list[Shard] = [job.write_numbers("estimates", finest, TRUNK, {"deviation": np.array(rounded.deviations)})]
    for number in (terms.level for terms in job.record.release.parts if terms.level != finest):
        cell, partition = labels.pop(number) if number in labels else _labels(job, number), job.partition(number)
        sums = np.zeros(len(partition), dtype=np.int64)
        np.add.at(sums, cell, rounded.counts)
        made.append(write_counts(job, partition, number, sums))
    return [*made, write_counts(job, job.partition(finest), finest, rounded.counts)]


def _as_measured(job: Job, labels: Mapping[int, NDArray[np.int32]]) -> tuple[FloatArray, float, list[Grouping]]:
    """Return what `settle_overlapping` takes: the noisy counts of leaves, their weight, and those of all else."""
    finest = job.record.finest
    groupings = [
        Grouping(cell, job.all_noisy(number).astype(np.float64), _weight(job, number))
        for number, cell in labels.items()
    ]
    return job.all_noisy(finest).astype(np.float64), _weight(job, finest), groupings


def _of_sums(job: Job, values: FloatArray) -> list[Grouping]:
    """Return what noisy leaves say of levels that are not measured, given the leaves as they are settled with everything that was.

    Levels of at most √N cells have a part that no view refines: finer ones have few leaves to a cell, and little bias.
    """
    finest = job.record.finest
    noisy, variance = job.all_noisy(finest), noise_of(job.record.release.parts[finest]).variance
    mended = (
        mended_sums(_labels(job, terms.level), values, noisy, variance, job.tree.possible_cells(terms.level))
        for terms in job.record.release.levels
        if terms.is_summed and terms.source == finest and job.tree.possible_cells(terms.level) ** 2 <= len(noisy)
    )
    return [grouping for grouping in mended if grouping]


def mended_sums(
    cell: NDArray[np.int32], values: FloatArray, noisy: IntArray, variance: float, size: int
) -> Grouping | None:
    r"""Return sums of settled leaves, without the part of their bias that noise does not explain; None where noise explains all.

    Leaves that end at 0 instead of below it make sums too large where most leaves are empty, and too small elsewhere. Sums x of noisy leaves have
    no such bias, but more noise. With sums s of settled leaves, and N leaves of variance σ², the mended ones are

    .. math:: s + \max\Bigl(0, 1 - \frac{N \sigma^2}{\|x - s\|^2}\Bigr) (x - s)

    Args:
        cell: of each leaf, shape (leaves,), from 0 to size - 1.
        values: of the leaves as they are settled, shape (leaves,), records.
        noisy: what was measured of them, shape (leaves,), records.
        variance: σ², records squared.
    Guarantees:
        Post-processing: reads no true count.
    Source:
        James and Stein (1961).
    """
    settled, noise = np.bincount(cell, values, size), variance * len(noisy)
    apart = np.bincount(cell, noisy, size) - settled
    part = 1 - noise / max(float((apart**2).sum()), 1.0)
    return Grouping(cell, settled + part * apart, math.sqrt(size) / noise) if part > 0 else None


def _by_priors(
    job: Job, labels: Mapping[int, NDArray[np.int32]], finish: Shrink
) -> tuple[FloatArray, FloatArray, list[Grouping]]:
    """Return the same where leaves are counted by priors first: these counts, their weight, their sums by level, and what is known of views."""
    finest = job.record.finest
    noises = {number: noise_of(job.record.release.parts[number]) for number in (*labels, finest)}
    variances = {number: noise.variance if noise else 0.0 for number, noise in noises.items()}
    noisy = {number: (job.all_noisy(number), variance) for number, variance in variances.items()}
    places = {number: place for number in labels if (place := _place_on_axis(job, number))}
    margins = dict[int, dict[int, tuple[IntArray, float]]]()
    for number, (axis, own) in places.items():
        margins.setdefault(axis, {})[own] = noisy[number]
    totals = drawn_totals(job.tree, margins)
    levels = {level: of for level, of in noisy.items() if level <= finest}
    leaves = leaves_by_priors(job.tree, levels, finish, margins)
    groupings = []
    for number, cell in labels.items():
        counts, variance = noisy[number]
        values, weight = counts.astype(np.float64), 1 / variance if variance else np.inf
        if number <= finest:
            values = np.bincount(cell, leaves, len(counts)).astype(np.float64)
        elif number in places:
            axis, own = places[number]
            values = totals[axis][own]
            weight *= np.clip(values.mean() / (_CLEAR_TOTALS * math.sqrt(variance)), _OF_TOTALS, 1.0)
        groupings.append(Grouping(cell, values, weight))
    for level in sorted(levels.keys() - {0}):
        groupings += _within_areas(job, level, labels.get(level, np.arange(len(leaves))), leaves, *noisy[level])
    weights = np.where(leaves > 0, 1, _OF_ZEROS) / variances[finest]
    return leaves.astype(np.float64), weights, groupings


def _within_areas(
    job: Job, level: int, cell: NDArray[np.integer], leaves: IntArray, noisy: IntArray, variance: float
) -> list[Grouping]:
    """Return what is known of all records within one area of a level, which priors leave too low: nothing where no axes share a codebook.

    The difference of the sum of their noisy counts from that of the counts by priors is taken but for the part that noise explains.

    Args:
        cell: the cell of the level that holds each leaf, shape (leaves,).
        noisy: the level's noisy counts, shape (cells,), and their variance.
    """
    partition, tells = job.partition(level), innermost(job.tree, level)
    within = np.concatenate([tells(partition.cells(some).areas) for some in _in_chunks(len(partition))])
    total = float(np.bincount(cell, leaves, len(noisy))[within].sum())
    missing, noise = float(noisy[within].sum()) - total, variance * np.count_nonzero(within)
    if missing**2 <= _CLEAR_WITHIN * noise:
        return []
    total += missing * (1 - _CLEAR_WITHIN * noise / missing**2)
    return [Grouping(np.where(within[cell], 0, -1).astype(np.int32), np.array([max(total, 0.0)]), _OF_WITHIN / noise)]


def _place_on_axis(job: Job, number: int) -> tuple[int, int] | None:
    """Return the axis and its level of which a view measures the totals beside the tree; None where it is no such view."""
    view = job.view(number)
    refined = [(axis, own) for axis, own in enumerate(view.axis_levels) if own]
    return refined[0] if number > job.record.finest and len(refined) == 1 and not view.derived else None


def _labels(job: Job, number: int) -> NDArray[np.int32]:
    """Return the cell of a level or view that holds each leaf, int32, shape (leaves,)."""
    leaves, partition = job.partition(job.record.finest), job.partition(number)
    labels = np.empty(len(leaves), dtype=np.int32)
    for some in _in_chunks(len(leaves)):
        labels[some] = partition.places(leaves.cells(some))
    return labels


def _in_chunks(leaves: int) -> Iterator[IntArray]:
    """Yield the places of leaves in their order, some at a time."""
    return (np.arange(first, min(first + CHUNK_CELLS, leaves)) for first in range(0, leaves, CHUNK_CELLS))


def _weight(job: Job, number: int) -> float:
    """Return w of a level or view; infinite where its counts are exact."""
    noise, seal = noise_of(job.record.release.parts[number]), job.record.shards["noisy"][number, TRUNK]
    return 1 / (noise.variance * math.sqrt(seal.rows)) if noise else np.inf


def write_counts(job: Job, partition: Partition, number: int, counts: IntArray) -> Shard:
    """Write the counts of a level, those other than 0 with their areas, or of all cells of a view, in the order of their areas."""
    is_level = number <= job.record.finest
    rows = np.flatnonzero(counts) if is_level and number else np.arange(len(counts))
    axes = [f"area_{axis}" for axis in range(len(job.tree.axes))] if is_level else []

    def groups() -> Iterator[dict[str, IntArray]]:
        for first in range(0, max(len(rows), 1), CHUNK_CELLS):
            part = rows[first : first + CHUNK_CELLS]
            areas = partition.cells(part).areas if axes else ()
            yield dict(zip(axes, areas, strict=True)) | {"count": counts[part]}

    sha256 = job.shard_store.write(shard_name("counts", number, TRUNK), (*axes, "count"), groups())
    nonzero = len(rows) if is_level else int(np.count_nonzero(counts))
    return Shard("counts", number, TRUNK, sha256, nonzero)


@dataclass(frozen=True, slots=True)
class Calibrate:
    """A finish: totals of single axes are settled, each axis as a tree of its own, and the leaves are calibrated to them.

    Only the nodes that are left in the tree take part, so that a total without enough of them is not met: then its table and the
    sums of the leaves differ.

    Attributes:
        second_pass: the tree's own finish, which comes first; None if it has none.
    """

    second_pass: UpDown | Shrink | None = None


class Marginal(NamedTuple):
    """The totals of one level of one axis.

    Attributes:
        terms: of the view that measures them.
        counts: settled, int64, shape (areas of the level,), records.
    """

    terms: Part
    counts: IntArray


Marginals = Mapping[tuple[int, int], Marginal]  # by the number of an axis, and one of its levels


def calibrate(job: Job) -> list[Shard]:
    """Settle the totals of single axes, calibrate the levels to them, and return the counts of all levels and views.

    Level 0 and the levels of the first axis alone stay as they are. It reads only sealed and released counts. It measures nothing and charges nothing.
    """
    margins = _settled_margins(job)
    views = [_write_view(job, margin) for margin in sorted(margins.values(), key=lambda margin: margin.terms.level)]
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
    margins = dict[tuple[int, int], Marginal]()
    for axis, known in fixed.items():
        noisy = {
            level: (job.all_noisy(terms.level), noise_of(terms).variance)
            for (of, level), terms in views.items()
            if of == axis
        }
        for level, counts in settle_axis(tree.axes[axis], known, noisy).items() if noisy else ():
            margins[axis, level] = Marginal(views[axis, level], counts)
    return margins


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
                ratio = noise_of(margin.terms).variance / noise_of(job.record.release.levels[level]).variance
                family, area = np.repeat(np.arange(len(totals)), np.diff(first)), nodes.areas[axis]
                values = balanced(counts, family, totals, area, margin.counts, ratio)
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
    number, counts = margin.terms.level, margin.counts
    shard = job.write_rows("calibrated", number, TRUNK, {"count": counts}, np.arange(len(counts)))
    return replace(shard, rows=int(np.count_nonzero(counts)))

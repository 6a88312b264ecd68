"""Coverage: how many intervals of a level hold the truth, and how wide they are. For data that may be seen, never beside a release.

Every possible cell of a level counts, also those that were never measured, because the promise holds for each of them. There
may be too many to list, so unlisted cells are counted by the part of the level in which they lie.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import BoolArray, FloatArray, IntArray
from tasks.tree.frontier import Cells, Frontier, locate
from tasks.tree.keys import AreaArray, begins_run
from tasks.tree.order import Tree
from tasks.uncertainty.intervals import NO_CAP, Margins, caps, intervals, rounded_outwards, sum_margins

# groups that are fixed before any noise is drawn: what is promised holds for them
TRUE_COUNTS = ("0", "1", "2 to 10", "more")
ZEROED = "zeroed"  # a group that noise has chosen: nothing is promised
GROUPS = (*TRUE_COUNTS, "all", ZEROED)

FEW_INTERVALS = 100  # of which a share says little: one that is not covered moves it by more than a hundredth

_FIRST_OF_GROUP = (1, 2, 11)  # the least true count of each group but the first


def are_few(intervals: float) -> bool:
    """Return whether a number of intervals, a mean over runs times their number, is too small to say which share is covered."""
    return round(intervals) < FEW_INTERVALS


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCells:
    """What was measured of a level.

    Attributes:
        cells: all children of the nodes that are left of the level above; at level 0 the root.
        noisy: int64, shape (cells,), records.
        kept: which cells are left, shape (cells,).
    """

    cells: Cells
    noisy: IntArray
    kept: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The intervals of all cells of a level: some cells are listed; the others are released as 0 and counted by part.

    Attributes:
        areas: per axis, int64, shape (listed,).
        counts: released, int64, shape (listed,), records; 0 where a cell is not released.
        low: int64, shape (listed,), records.
        high: int64, shape (listed,), records.
        most: int64, shape (parts,), records: cells that are not listed are stated to count from 0 to their part's.
        others: float64, shape (parts,): how many cells of a part are not listed. There may be more than 64 bits count.
        part_below: int64, shape (listed,): the part in which the cells below one lie at the next level, -1 where they are
            listed there; parts keep their numbers from level to level.
        part_of: from areas of cells that are not listed to their parts; None where a cell lies in that of the node above it.
    """

    level: int
    areas: tuple[IntArray, ...]
    counts: IntArray
    low: IntArray
    high: IntArray
    most: IntArray
    others: FloatArray
    part_below: IntArray | None = None
    part_of: Callable[[Sequence[IntArray]], IntArray] | None = None


@dataclass(frozen=True, slots=True)
class Covered:
    """How some cells are covered.

    Attributes:
        coverage: the share of those whose interval holds the truth; None where there is no cell.
        width: the mean of high - low, records; None where there is no cell.
    """

    cells: float
    coverage: float | None
    width: float | None


def measured_bounds(
    tree: Tree,
    levels: Sequence[MeasuredCells],
    released: Sequence[Frontier],
    margins: Sequence[Margins],
    steps: Sequence[int],
) -> list[Bounds]:
    """Return the bounds of levels 0 to T, where every level is measured.

    Args:
        levels: measured, 0 to T.
        released: their released nodes, each of which was measured.
        margins: as `margins_of` returns them.
        steps: per level, the multiples at which intervals end, records; 1 where they are not rounded.
    """
    bounds: list[Bounds] = []
    pruned: list[tuple[int, tuple[IntArray, ...]]] = []  # per level above, the areas of the nodes that it has not kept
    most = np.zeros(0, dtype=np.int64)
    caps_of_kept = np.full(1, NO_CAP)
    for level, (measured, nodes, margin, step) in enumerate(zip(levels, released, margins, steps, strict=True)):
        cells, kept = measured.cells, measured.kept
        above = np.repeat(caps_of_kept, np.diff(cells.first_cell))
        counts = np.zeros(len(cells), dtype=np.int64)
        counts[locate(nodes.areas, cells.areas, tree.sizes(level))] = nodes.counts
        ends = rounded_outwards(*intervals(measured.noisy, margin.own, above, counts), step)
        others = [_cells_below(tree, of, level, areas) for of, areas in pruned]
        part_below = np.full(len(cells), -1)
        part_below[~kept] = len(most) + np.arange(np.count_nonzero(~kept))
        bounds.append(Bounds(level, cells.areas, counts, *ends, most, np.concatenate([*others, []]), part_below))
        most_of_cells = caps(measured.noisy, margin.cap, above)
        caps_of_kept = most_of_cells[kept]
        pruned.append((level, tuple(areas[~kept] for areas in cells.areas)))
        _, rounded = rounded_outwards(most_of_cells[~kept], most_of_cells[~kept], step)
        most = np.concatenate((most, rounded))
    return bounds


def summed_bounds(tree: Tree, released: Frontier, noise: LevelNoise, confidence: float) -> Bounds:
    """Return the bounds of a level whose cells are sums of noisy leaves, or of the leaves themselves; all leaves are measured.

    Args:
        released: the nodes of the level that do not add up to 0.
    """
    level, tail = released.level, log((1 - confidence) / 2)
    reached = zip(tree.axes, tree.axis_levels(level), tree.axis_levels(tree.depth), strict=True)
    alike = [
        np.unique(np.diff(axis.first_descendants(own, finest)), return_inverse=True, return_counts=True)
        for axis, own, finest in reached
    ]
    leaves, others = np.ones(1, dtype=np.int64), np.ones(1)
    for of_axis, _, areas in alike:  # parts are cells with as many finest areas below on each axis
        leaves, others = np.outer(leaves, of_axis).ravel(), np.outer(others, areas).ravel()

    def part_of(areas: Sequence[IntArray]) -> IntArray:
        part = np.zeros(len(areas[0]), dtype=np.int64)
        for (values, which, _), of_axis in zip(alike, areas, strict=True):
            part = part * len(values) + which[of_axis]
        return part

    margins = sum_margins(noise, leaves, tail)
    part = part_of(released.areas)
    ends = intervals(released.counts, margins[part], NO_CAP, released.counts)
    others -= np.bincount(part, minlength=len(others))
    return Bounds(level, released.areas, released.counts, *ends, margins, others, part_of=part_of)


def thresholded_bounds(tree: Tree, released: Frontier, noise: LevelNoise, threshold: int, confidence: float) -> Bounds:
    """Return the bounds of leaves that are released where their noisy counts reach a threshold.

    A leaf that is not was below the threshold, or counts nothing, so that it counts at most θ - 1 + z.

    Args:
        threshold: θ, records.
    """
    margin = noise.quantile(log((1 - confidence) / 2))
    ends = intervals(released.counts, margin, NO_CAP, released.counts)
    most = np.array([threshold - 1 + margin], dtype=np.int64)
    others = np.array([float(tree.possible_cells(released.level)) - len(released)])
    return Bounds(
        *(released.level, released.areas, released.counts, *ends, most, others),
        part_of=lambda areas: np.zeros(len(areas[0]), dtype=np.int64),
    )


def level_coverages(
    tree: Tree, truth: Sequence[Frontier], bounds: Sequence[Bounds | None]
) -> Iterator[dict[str, Covered] | None]:
    """Yield, for each level from 0 on, how its cells are covered, by group; None where no intervals are stated.

    The groups are cells with a true count of 0, of 1, of 2 to 10 and of more; all cells; and those that are zeroed: released as
    0, measured or not, while their true count is not 0.

    Args:
        truth: per level, the nodes with a true count, in the order of the tree.
        bounds: per level, of all of its cells.
    """
    part_below = np.full(1, -1)  # of the true nodes of the level above: as `Bounds.part_below`, listed or not
    for level, (of_truth, bound) in enumerate(zip(truth, bounds, strict=True)):
        # an empty table's root has no count
        true = of_truth if len(of_truth) and of_truth.counts.all() else of_truth[:0]
        if bound is None:
            yield None
            continue
        row = locate(true.areas, bound.areas, tree.sizes(level))
        part = bound.part_of(true.areas) if bound.part_of else part_below[_parents(tree, true)]
        yield _covered(bound, true.counts, row, part)
        if bound.part_below is not None:
            part_below = np.where(row >= 0, np.append(bound.part_below, -1)[row], part)


def rows_covered(
    tree: Tree, truth: Frontier, areas: Sequence[AreaArray], low: IntArray, high: IntArray
) -> Covered | None:
    """Return how the published rows of a level are covered; None where there is no row.

    Args:
        truth: the nodes of the level with a true count.
        areas: per axis, of the rows, shape (rows,).
        low: shape (rows,), int64, records; likewise `high`.
    """
    if not len(low):
        return None
    return cells_covered(_true_counts(tree, truth, areas), low, high)


def cells_covered(true: IntArray, low: IntArray, high: IntArray) -> Covered:
    """Return how some cells are covered, given their true counts and the ends of their intervals, shape (cells,)."""
    return _of(float(len(true)), float(((low <= true) & (true <= high)).sum()), float((high - low).sum()))


def false_share(tree: Tree, truth: Frontier, areas: Sequence[AreaArray]) -> float | None:
    """Return the share of some cells whose true count is 0; None where there is no cell. Arguments are those of `rows_covered`."""
    true = _true_counts(tree, truth, areas)
    return float((true == 0).mean()) if len(true) else None


def _true_counts(tree: Tree, truth: Frontier, areas: Sequence[AreaArray]) -> IntArray:
    """Return the true counts of some cells of a level, shape (cells,), records."""
    row = locate([of_axis.astype(np.int64) for of_axis in areas], truth.areas, tree.sizes(truth.level))
    counts: IntArray = np.append(truth.counts, 0)[row]  # the last one, of cells that are not there
    return counts


def _covered(bounds: Bounds, true_counts: IntArray, row: IntArray, part: IntArray) -> dict[str, Covered]:
    """Return how the cells of a level are covered, by group.

    Args:
        true_counts: > 0, shape (nodes,).
        row: of each such node among the listed cells, -1 where it is not listed, shape (nodes,).
        part: of those that are not listed, shape (nodes,).
    """
    is_listed = row >= 0
    listed, other = row[is_listed], part[~is_listed]
    is_empty = np.ones(len(bounds.counts), dtype=bool)
    is_empty[listed] = False
    empty_others = bounds.others - np.bincount(other, minlength=len(bounds.others))
    nothing, empty = np.zeros(len(other), dtype=np.int64), np.zeros(len(empty_others), dtype=np.int64)
    true = np.concatenate(
        (true_counts[is_listed], np.zeros(np.count_nonzero(is_empty), np.int64), true_counts[~is_listed], empty)
    )
    counts, low = (
        np.concatenate((column[listed], column[is_empty], nothing, empty)) for column in (bounds.counts, bounds.low)
    )
    high = np.concatenate((bounds.high[listed], bounds.high[is_empty], bounds.most[other], bounds.most))
    cells = np.concatenate((np.ones(len(true) - len(empty)), empty_others))
    covered, width = cells * ((low <= true) & (true <= high)), cells * (high - low)
    group = np.searchsorted(_FIRST_OF_GROUP, true, side="right")
    among = [group == number for number in range(len(TRUE_COUNTS))]
    among += [np.ones(len(true), dtype=bool), (counts == 0) & (true > 0)]
    return {
        name: _of(float(cells[which].sum()), float(covered[which].sum()), float(width[which].sum()))
        for name, which in zip(GROUPS, among, strict=True)
    }


def _of(cells: float, covered: float, width: float) -> Covered:
    return Covered(cells, covered / cells, width / cells) if cells else Covered(0.0, None, None)


def _cells_below(tree: Tree, level: int, below: int, areas: Sequence[IntArray]) -> FloatArray:
    """Return how many cells of the level `below` lie in each of some nodes of a level, float64, shape (nodes,)."""
    cells = np.ones(len(areas[0]))
    for axis, own, reached, of_axis in zip(
        tree.axes, tree.axis_levels(level), tree.axis_levels(below), areas, strict=True
    ):
        if own < reached:
            cells *= np.diff(axis.first_descendants(own, reached))[of_axis]
    return cells


def _parents(tree: Tree, nodes: Frontier) -> IntArray:
    """Return, for each of all nodes of a level, in their order, which of the level above holds it, shape (nodes,); 0 for the root."""
    if nodes.level == 0:
        return np.zeros(len(nodes), dtype=np.int64)
    return np.cumsum(begins_run(tree.areas_above(nodes.level, nodes.areas))) - 1

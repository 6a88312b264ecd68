"""Mechanisms in memory, without vault, seals or store, to compare them on data that may be seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tasks.noise.leaves import frontiers_of_histogram, frontiers_of_universe
from tasks.optimize.reconcile import (
    BoolArray,
    Estimates,
    Settling,
    combined,
    first_kept,
    measured,
    root_total,
    settle,
    summed_children,
)
from tasks.optimize.siblings import as_they_are
from tasks.optimize.task import Optimiser
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Cells, Frontier, expand, keep_positive
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueFamilies, TrueLevel, grow, true_counts_of

# from a level and true counts to noisy counts, exact ones if the level is exact; or to the kept rows and their counts
Measure = Callable[[int, IntArray], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A table that may be seen.

    Attributes:
        tree: the axes and their order.
        levels: the true levels from 0 to T.
    """

    tree: Tree
    levels: tuple[TrueLevel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredLevel:
    """One level of a first pass.

    Attributes:
        cells: all children of the nodes that the level above has kept; at level 0 the root.
        noisy: int64, shape (cells,), records.
        counts: int64, shape (cells,), records, >= 0: consistent with those of the level above.
    """

    cells: Cells
    noisy: IntArray
    counts: IntArray

    @property
    def kept(self) -> BoolArray:
        """Which cells have a count and stay, shape (cells,); the root always does."""
        return self.counts > 0 if self.cells.level else np.ones(1, dtype=bool)

    @property
    def frontier(self) -> Frontier:
        """The nodes that stay."""
        return _frontier(self.cells, self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The result of a trial.

    Attributes:
        released: the nodes of levels 0 to T.
        measured: what its first pass measured of levels 0 to T, from which intervals come; none where only leaves are
            measured, whose noisy counts are released themselves.
    """

    released: list[Frontier]
    measured: tuple[MeasuredLevel, ...] = ()


Trial = Callable[[Truth, Measure, Sequence[float], Any], Tried]


def truth_of(tree: Tree, leaf_areas: Sequence[IntArray], true_counts: IntArray) -> Truth:
    """Return the truth of a table.

    Args:
        tree: the axes and their order.
        leaf_areas: per axis, int64, shape (records,): area at the axis' finest level; no combination twice.
        true_counts: int64, shape (records,), > 0; it may be empty.
    """
    return Truth(tree, tuple(grow(tree, leaf_areas, true_counts)))


def measured_below(truth: Truth, parents: Frontier, measure: Measure) -> tuple[Cells, IntArray]:
    """Return all children of some nodes, and their noisy counts."""
    cells = expand(truth.tree, parents)
    true_counts = true_counts_of(truth.tree, parents, _true_families(truth, parents))
    return cells, measure(cells.level, true_counts)


def first_pass(truth: Truth, measure: Measure, sigmas: Sequence[float], optimiser: Optimiser) -> list[MeasuredLevel]:
    """Measure every level from 0 to T once, and make each consistent with the one above before the next is measured.

    Args:
        truth: the table.
        measure: the noise; at exact levels it returns the true counts.
        sigmas: its scale at levels 0 to T; 0 where a level is exact, and its counts stay as they are.
        optimiser: from noisy counts and their parents' totals to consistent counts.
    """
    root = truth.levels[0]
    noisy = measure(0, root.true_counts)
    levels = [MeasuredLevel(Cells(0, np.array([0, 1]), root.areas), noisy, np.maximum(noisy, 0))]
    for _ in truth.tree.steps:
        parents = levels[-1].frontier
        cells, noisy = measured_below(truth, parents, measure)
        repair = optimiser if sigmas[cells.level] else as_they_are
        levels.append(MeasuredLevel(cells, noisy, repair(noisy, cells.first_cell, parents.counts)))
    return levels


def top_down(truth: Truth, measure: Measure, sigmas: Sequence[float], optimiser: Optimiser) -> Tried:
    """Return what mechanisms with one pass, from the top down, release of levels 0 to T; arguments as in `reconciled`."""
    levels = first_pass(truth, measure, sigmas, optimiser)
    return Tried([level.frontier for level in levels], tuple(levels))


def universe(truth: Truth, measure: Measure, _sigmas: Sequence[float], _optimiser: object) -> Tried:
    """Return what `gaussian` releases of levels 0 to T: it measures every leaf of the universe and sums them up."""
    return Tried(frontiers_of_universe(truth.tree, truth.levels, partial(measure, truth.tree.depth)))


def histogram(truth: Truth, measure: Measure, _sigmas: Sequence[float], _optimiser: object) -> Tried:
    """Return what `stability_histogram` releases of levels 0 to T: the true leaves that it keeps, and their sums."""
    return Tried(frontiers_of_histogram(truth.tree, truth.levels[-1], partial(measure, truth.tree.depth)))


def reconciled(
    truth: Truth,
    measure: Measure,
    sigmas: Sequence[float],
    optimiser: Optimiser,
    *,
    first_optimiser: Optimiser | None = None,
    settling: Settling = settle,
) -> Tried:
    """Return what mechanisms of two passes release of levels 0 to T: the second goes over the noisy counts of the first.

    Args:
        truth: the table.
        measure: the noise; only the first pass calls it, once per level.
        sigmas: its scale at levels 0 to T; 0 where a level is exact.
        optimiser: of the second pass.
        first_optimiser: of the first pass; that of the second if left out.
        settling: what the second pass does with its optimiser on the way down.
    """
    levels = first_pass(truth, measure, sigmas, first_optimiser or optimiser)
    return Tried(second_pass(levels, sigmas, optimiser, settling), tuple(levels))


def second_pass(
    levels: Sequence[MeasuredLevel], sigmas: Sequence[float], optimiser: Optimiser, settling: Settling = settle
) -> list[Frontier]:
    """Return levels 0 to T, settled again from the noisy counts of all levels together; reads no true count."""
    totals = np.array([], dtype=np.int64)
    frontiers = []
    for level, estimates in zip(levels, estimated(levels, sigmas), strict=True):
        if level.cells.level == 0:
            totals = np.array([root_total(estimates, int(level.counts[0]))])
        else:
            totals = settling(estimates, first_kept(level.kept, level.cells.first_cell), totals, optimiser)
        counts = np.zeros_like(level.counts)
        counts[level.kept] = totals
        frontiers.append(_frontier(level.cells, counts))
    return frontiers


def estimated(levels: Sequence[MeasuredLevel], sigmas: Sequence[float]) -> list[Estimates]:
    """Return the combined estimates of the nodes that each level has kept, levels 0 to T."""
    variances = [sigma**2 for sigma in sigmas]
    finest = levels[-1]
    upwards = [measured(finest.noisy[finest.kept], variances[-1])]
    for level in reversed(range(len(levels) - 1)):
        nodes, children = levels[level], levels[level + 1]
        sums = summed_children(
            children.noisy, variances[level + 1], children.cells.first_cell, children.kept, upwards[-1]
        )
        upwards.append(combined(nodes.noisy[nodes.kept], variances[level], sums))
    return upwards[::-1]


def _frontier(cells: Cells, counts: IntArray) -> Frontier:
    """Return the cells with a count, and the root always."""
    return keep_positive(cells, counts) if cells.level else Frontier(0, cells.areas, counts)


def _true_families(truth: Truth, parents: Frontier) -> TrueFamilies:
    """Return the true nodes that may be among some nodes, with their children."""
    nodes, children = truth.levels[parents.level : parents.level + 2]
    within = np.ones(len(nodes), dtype=bool)
    if len(parents):
        for areas, wanted in zip(nodes.areas, parents.areas, strict=True):
            within &= (areas >= wanted.min()) & (areas <= wanted.max())
    around = tuple(areas[within] for areas in nodes.areas)
    refined = children.areas[truth.tree.steps[parents.level]]
    return TrueFamilies(around, nodes.first_child[within], nodes.children[within], refined, children.true_counts)

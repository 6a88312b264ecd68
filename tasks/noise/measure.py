"""Measuring: the truth that it reads, node by node, and the noise that it adds, once. The trust line runs through `measure`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from tasks.accounting.sensitivity import Sensitivity
from tasks.laws.days import Days
from tasks.laws.law import LevelCost, LevelNoise, Sampler, ThresholdedSampler
from tasks.laws.thresholded import Thresholded, privacy_cost
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks
from tasks.tree.order import Tree
from tasks.tree.true_tree import LARGEST_TOTAL, TrueFamilies, TrueLevel, true_counts_of
from tasks.unbiased.dense import Combined


class Truth(Protocol):
    """The true counts of a table. Only measuring may ask."""

    def root(self) -> IntArray:
        """Return the true count of level 0, shape (1,)."""

    def families(self, level: int, refined: int, lowest: Sequence[int], highest: Sequence[int]) -> TrueFamilies:
        """Return the true nodes of a level whose areas lie within bounds, with their children on the axis that is refined."""

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:
        """Yield the areas per axis and the true counts of the leaves with records, at most `most` leaves at a time."""

    @property
    def before(self) -> "Sequence[Truth]":
        """The truth of the earlier days that are measured with this one, the latest first; none where a release stands alone."""

    def codes(self) -> Mapping[int, pl.DataFrame]:
        """Return, by axis number, the sorted codes of the records on every axis that has no codebook."""


def true_counts_below(truth: Truth, tree: Tree, parents: Frontier) -> Iterator[IntArray]:
    """Yield the true counts of all cells below some nodes, zeros included, in the order of `expand`, in chunks."""
    for nodes in chunks(cell_counts(tree, parents), CHUNK_CELLS):
        chunk = parents[nodes]
        lowest, highest = [int(areas.min()) for areas in chunk.areas], [int(areas.max()) for areas in chunk.areas]
        yield true_counts_of(tree, chunk, truth.families(chunk.level, tree.steps[chunk.level], lowest, highest))


@dataclass(frozen=True, slots=True, eq=False)
class TruthInMemory:
    """The truth of a table that may be seen: the true levels from 0 to T, and those of days before it."""

    levels: tuple[TrueLevel, ...]
    before: tuple["TruthInMemory", ...] = ()

    def root(self) -> IntArray:
        """Return the true count of level 0."""
        return self.levels[0].true_counts

    def families(self, level: int, refined: int, lowest: Sequence[int], highest: Sequence[int]) -> TrueFamilies:
        """Return some nodes with their children."""
        nodes, children = self.levels[level : level + 2]
        within = np.ones(len(nodes), dtype=bool)
        for areas, least, most in zip(nodes.areas, lowest, highest, strict=True):
            within &= (areas >= least) & (areas <= most)
        around = tuple(areas[within] for areas in nodes.areas)
        of_children = children.areas[refined], children.true_counts
        return TrueFamilies(around, nodes.first_child[within], nodes.children[within], *of_children)

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:  # noqa: ARG002
        """Yield the leaves with records."""
        areas, true_counts = self.levels[level].areas, self.levels[level].true_counts
        for first in range(0, len(true_counts), most):
            yield [of_axis[first : first + most] for of_axis in areas], true_counts[first : first + most]

    def codes(self) -> Mapping[int, pl.DataFrame]:
        """Return nothing: the tree of a table that may be seen has all codes."""
        return {}


def measure(
    true_counts: IntArray,
    noise: LevelNoise,
    charged: LevelCost,
    sensitivity: Sensitivity,
    sampler: Sampler,
    combined: Combined | None = None,
    days: Days | None = None,
    portions: FloatArray | None = None,
) -> IntArray:
    """Return the noisy counts of some cells of one level, or their noisy combinations by strategies, or over days.

    Args:
        true_counts: int64, shape (cells,), records; over days of shape (days, cells), the day itself first. Confidential.
        charged: what the level may cost alone. That is its charge, but for levels beside a measured total: these are charged what
            they cost any unit together.
        sensitivity: how far one unit moves the level; the law takes its own norm.
        sampler: of the law of the noise, outside of tests.
        combined: the combinations of all counts of the level that are measured in their place; None where the counts are.
        days: the weights of days that are measured together; None where the counts of one day are measured.
        portions: how precisely each cell is measured, as a part of what the noise says, from 0 to 1, shape (cells,); None where all are by it.
    Guarantees:
        Nothing is drawn unless the privacy map of exactly this scale is finite and within the charge. A cell with a portion p has the scale
        divided by √p; one with none has nothing measured, and 0 for it.
    Raises:
        ValueError: the level is charged nothing or no unit moves it, the scale is not finite and positive, it would cost more
            than is charged, or a true count is so large that noise could carry it beyond 64 bits.
    """
    if noise.law is None or not (charged.rho > 0 or charged.epsilon > 0):
        raise ValueError("rho or epsilon must be > 0: nothing is drawn that is not charged.")
    if sensitivity.l2_squared <= 0 or sensitivity.l1 <= 0:
        raise ValueError(f"sensitivities must be > 0, got {sensitivity}.")
    if not charged.covers(cost := noise.law.cost(noise.scale, 0, sensitivity)):
        raise ValueError(f"scale {noise.scale} costs {cost}, which exceeds the level's share, {charged}.")
    if true_counts.size and not (true_counts.min() >= 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 0 to 2**40: noise could carry others beyond 64 bits.")
    counts = true_counts if combined is None else _combined(combined, true_counts)
    counts = counts if days is None else days.combined(true_counts)
    if portions is None:
        return sampler(counts, noise.scale)
    if portions.shape != counts.shape or not (portions.min(initial=1) >= 0 and portions.max(initial=0) <= 1):
        raise ValueError(
            "there must be a portion for every cell, from 0 to 1: no cell may be measured more precisely than is charged."
        )
    noisy = np.zeros_like(counts)
    for portion in np.unique(portions[portions > 0]).tolist():
        noisy[portions == portion] = sampler(counts[portions == portion], noise.scale / math.sqrt(portion))
    return noisy


def _combined(combined: Combined, true_counts: IntArray) -> IntArray:
    """Return the combinations of the true counts of all cells, int64, shape (numbers,). Confidential."""
    if len(true_counts) != math.prod(combined.sizes) or true_counts.sum() > LARGEST_TOTAL:
        raise ValueError(
            "there must be a true count for every cell, together at most 2**40: no combination is larger than 2**62 then."
        )
    return combined.of(true_counts).ravel()


def measure_thresholded(
    true_counts: IntArray, noise: Thresholded, sensitivity: Sensitivity, sampler: ThresholdedSampler
) -> tuple[IntArray, IntArray]:
    """Return which of some cells with records are kept, and their noisy counts.

    Args:
        true_counts: int64, shape (cells,), records, > 0. Confidential.
        sampler: the noise; `thresholded_laplace` outside of tests.
    Guarantees:
        Nothing is drawn unless OpenDP's map of exactly this scale and threshold is within the charge.
    Raises:
        ValueError: the cost would exceed the charge, or a true count is out of range.
    """
    epsilon, delta = privacy_cost(sensitivity, noise.scale, noise.threshold)
    if not (epsilon <= noise.epsilon and delta <= noise.delta):
        raise ValueError(f"scale {noise.scale} and threshold {noise.threshold} cost more than the level is charged.")
    if len(true_counts) and not (true_counts.min() > 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 1 to 2**40: only cells with records are measured.")
    return sampler(true_counts, noise.scale, noise.threshold)

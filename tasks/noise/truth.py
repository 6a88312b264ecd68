"""The truth that measuring reads: true counts, node by node. Everything here is confidential."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueFamilies, TrueLevel, true_counts_of


class Truth(Protocol):
    """The true counts of a table. Only measuring may ask."""

    def root(self) -> IntArray:
        """Return the true count of level 0, shape (1,)."""

    def families(self, level: int, refined: int, lowest: Sequence[int], highest: Sequence[int]) -> TrueFamilies:
        """Return the true nodes of a level whose areas lie within bounds, with their children on the axis that is refined."""

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:
        """Yield the areas per axis and the true counts of the leaves with records, so many at a time at most."""

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
    """The truth of a table that may be seen: the true levels from 0 to T."""

    levels: tuple[TrueLevel, ...]

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

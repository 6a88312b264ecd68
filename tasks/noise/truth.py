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

    def below(self, tree: Tree, parents: Frontier) -> Iterator[IntArray]:
        """Yield the true counts of all cells below some nodes, zeros included, in the order of `expand`, in chunks."""

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:
        """Yield the areas per axis and the true counts of the leaves with records, so many at a time at most."""

    def codes(self) -> Mapping[int, pl.DataFrame]:
        """Return, by axis number, the sorted codes of the records on every axis that has no codebook."""


@dataclass(frozen=True, slots=True, eq=False)
class TruthInMemory:
    """The truth of a table that may be seen.

    Attributes:
        levels: the true levels from 0 to T.
    """

    levels: tuple[TrueLevel, ...]

    def root(self) -> IntArray:
        """Return the true count of level 0, shape (1,)."""
        return self.levels[0].true_counts

    def below(self, tree: Tree, parents: Frontier) -> Iterator[IntArray]:
        """Yield the true counts of all cells below some nodes, in chunks."""
        for nodes in chunks(cell_counts(tree, parents), CHUNK_CELLS):
            chunk = parents[nodes]
            yield true_counts_of(tree, chunk, self._families(tree, chunk))

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:  # noqa: ARG002 (their arrays say it)
        """Yield the areas per axis and the true counts of the leaves with records."""
        finest = self.levels[level]
        for first in range(0, len(finest), most):
            rows = slice(first, first + most)
            yield [areas[rows] for areas in finest.areas], finest.true_counts[rows]

    def codes(self) -> Mapping[int, pl.DataFrame]:
        """Return nothing: the tree of a table that may be seen has all codes."""
        return {}

    def _families(self, tree: Tree, parents: Frontier) -> TrueFamilies:
        """Return the true nodes that may be among some nodes, with their children."""
        nodes, children = self.levels[parents.level : parents.level + 2]
        within = np.ones(len(nodes), dtype=bool)
        if len(parents):
            for areas, wanted in zip(nodes.areas, parents.areas, strict=True):
                within &= (areas >= wanted.min()) & (areas <= wanted.max())
        around = tuple(areas[within] for areas in nodes.areas)
        refined = children.areas[tree.steps[parents.level]]
        return TrueFamilies(around, nodes.first_child[within], nodes.children[within], refined, children.true_counts)

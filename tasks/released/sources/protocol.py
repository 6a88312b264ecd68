"""Where an estimate reads: the sealed shards of a release while its folder is written, or the published folder afterwards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from storage.errors import TrellisError
from storage.releases.terms import DENSE, GRID, VIEWS, Covariance, Intervals
from tasks.format.entries import LevelEntry
from tasks.format.tables import Rows
from tasks.released.sources.rows_kept import WalkedRows
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, expand, nodes_above, root_of
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View
from tasks.unbiased.dense import Strategies
from tasks.uncertainty.intervals import Margins


class Misfit(TrellisError):
    """What was measured does not fit the released counts of a folder; the message says where, as a sentence."""


class Source(Protocol):
    """The released and the noisy counts of a release, and what is known of them.

    Attributes:
        disk: a folder with room for the rows of a large level; None to have all rows in memory.
        threads: how many files are read at once.
        is_in_order: whether the rows of runs are in the order of their codes.
        covariance: by which rule the variance of any sum of counts follows from the noise of the levels; empty where by none.
        statistic: of group sizes, what was measured of each region and size; empty for others.
        is_together: whether everything that was measured was settled together.
        intervals: which intervals are stated.
        parts: what is stated of levels 0 to T, and of the views that have not the cells of a level, by their numbers.
        levels: what is stated of levels 0 to T, in this order.
    """

    disk: Path | None
    threads: int
    is_in_order: bool
    covariance: Covariance
    statistic: str
    is_together: bool
    intervals: Intervals
    parts: Mapping[int, LevelEntry]
    levels: Sequence[LevelEntry]

    @property
    def has_groups(self) -> bool:
        """Whether a public list says how many groups there are."""

    @property
    def has_whole_parts(self) -> bool:
        """Whether every cell of each level and view was measured that was measured at all, in an order that is known."""
        return bool(self.covariance or self.statistic or self.is_together)

    @property
    def tree(self) -> Tree:
        """The axes and their order."""

    @property
    def total(self) -> int | None:
        """The exact count of everything; None where it is not published exactly."""
        return int(self.nodes(0).counts[0]) if self.parts[0].is_exact else None

    @property
    def strategies(self) -> Strategies:
        """What was measured of axes in place of the counts of their leaves, by the numbers of the axes; nothing where counts were."""

    def nodes(self, level: int) -> Rows:
        """Return the released nodes of a level in the order of their codes."""

    def counts(self, number: int) -> IntArray:
        """Return the released counts of all cells of a level or view, zeros too, in the order of their areas."""

    def noisy(self, number: int) -> IntArray:
        """Return the noisy counts of a level or view in the order in which they were measured, int64."""

    def view(self, number: int) -> View:
        """Return a level or view as it was measured."""

    def partition(self, number: int) -> Partition:
        """Return a level or view with all its cells."""
        return Partition(self.tree, self.view(number))

    def possible_cells(self, level: int) -> int | None:
        """Return how many cells a level can have; None where no codebook lists them."""

    def runs(
        self, level: int, margins: Sequence[Sequence[Margins]], begin: Callable[[], WalkedRows]
    ) -> Iterator[WalkedRows]:
        """Yield the rows of a level that was walked, in runs; levels are read one after the other.

        Args:
            margins: per kind of interval, of levels 0 to T.
            begin: returns a run that was not read, in any thread.
        Raises:
            Misfit: the noisy counts do not fit the rows.
        """

    def repeat(self, level: int) -> None:
        """Go past a level that repeats the one above it.

        Raises:
            Misfit: its noisy counts do not repeat those above.
        """


def measured_cells(source: Source, number: int) -> Iterator[Sequence[IntArray]]:
    """Yield the areas of all cells of a level or view, per axis, in the order in which they were measured, in parts."""
    tree = source.tree
    if source.is_together or source.covariance in {GRID, VIEWS, DENSE}:
        yield source.partition(number).cells().areas
    elif number:
        yield from (expand(tree, above).areas for above in nodes_above(tree, number, CHUNK_CELLS))
    else:
        yield root_of(tree, 0).areas

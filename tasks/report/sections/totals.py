"""The totals of areas, for maps, and which of them stand out from the noise."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tasks.atlas.shapes import Shapes
from tasks.format.rows import SlicedRows, slices
from tasks.report.sections.largest import CHUNK, Path, paths_of
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.order import Tree

_STANDING_OUT = 0.5  # of the areas with a shape; where fewer stand out, a map shows a coarser level


class TermsOfLevel(Protocol):
    """What a report needs to know of how a level was measured.

    Attributes:
        sigma: the standard deviation of its noise, records.
        possible_cells: the cells if every node survived; None where no codebook lists them.
        threshold: the least count that a leaf is kept with, records; 0 where every leaf is.
        is_summed: whether its counts are sums of those of finer levels or views.
    """

    @property
    def sigma(self) -> float: ...  # noqa: D102
    @property
    def possible_cells(self) -> int | None: ...  # noqa: D102
    @property
    def threshold(self) -> int: ...  # noqa: D102
    @property
    def is_summed(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """The totals of the areas of one axis level, with their intervals, as queries of the folder are answered.

    Attributes:
        counts: int64, shape (areas,), records.
        low: the lower ends of the intervals, int64, shape (areas,), records; likewise `high`.
        high: the upper ends.
    """

    counts: IntArray
    low: IntArray
    high: IntArray


# of an axis, by its number, and one of its levels; None where they are not known
RangesOf = Callable[[int, int], Ranges | None]


@dataclass(frozen=True, slots=True, eq=False)
class AreaTotals:
    """The totals of the areas of one axis level, over everything else.

    Attributes:
        axis: the axis.
        level: its level, from 1 on.
        level_name: the name of that level.
        of_level: the tree level whose rows are added up.
        paths: the areas, in the order of the codebook.
        counts: int64, shape (areas,), records; 0 for an area without a row.
        noise: the standard deviation of the noise in such a sum, records, if every cell of it is measured; None where the level was not
            measured by itself, or leaves are missing from it.
        ranges: the same counts with their intervals; None where these are not known.
    """

    axis: str
    level: int
    level_name: str
    of_level: int
    paths: tuple[Path, ...]
    counts: IntArray
    noise: float | None
    ranges: Ranges | None = None

    @property
    def stands_out(self) -> BoolArray:
        """Which totals have an interval that does not reach 0, or else are above twice their noise, or above 0 if that is unknown too."""
        found: BoolArray = self.ranges.low > 0 if self.ranges else self.counts > 2 * (self.noise or 0.0)
        return found


def totals_at(tree: Tree, terms: Sequence[TermsOfLevel], level: int, rows: SlicedRows) -> Iterator[AreaTotals]:
    """Yield the totals of the areas of each axis that a tree level refines and no tree level above it refines as far."""
    reached, above = tree.axis_levels(level), tree.axis_levels(level - 1)
    sizes = tree.sizes(level)
    for number, axis in enumerate(tree.axes):
        own = reached[number]
        if own == above[number] or not axis.is_listed:
            continue
        counts = np.zeros(sizes[number], dtype=np.int64)
        for part in slices(rows, CHUNK):
            np.add.at(counts, part.areas[number], part.counts)
        cells = math.prod(size for other, size in enumerate(sizes) if other != number)
        name, paths = axis.level_names[own - 1], paths_of(axis, own, np.arange(sizes[number]))
        is_measured = not (terms[level].is_summed or terms[-1].threshold)
        noise = terms[level].sigma * math.sqrt(cells) if is_measured else None
        yield AreaTotals(axis.name, own, name, level, paths, counts, noise)


def shown_on_maps(
    found: Sequence[AreaTotals], shapes: Shapes, axes: Sequence[str], ranges_of: RangesOf
) -> tuple[AreaTotals, ...]:
    """Return, of each of the axes that has shapes, the finest level at which half of the areas or more stand out, or its coarsest."""
    shown: dict[str, AreaTotals] = {}
    for added_up in found:
        if (added_up.axis, added_up.level) not in shapes.tables:
            continue
        totals = _with_ranges(added_up, ranges_of(axes.index(added_up.axis), added_up.level))
        shaped = np.isin(_joined(totals.paths), _joined(shapes.paths(totals.axis, totals.level)))
        if totals.axis not in shown or totals.stands_out[shaped].mean() >= _STANDING_OUT:
            shown[totals.axis] = totals
    return tuple(sorted(shown.values(), key=lambda totals: axes.index(totals.axis)))


def _with_ranges(totals: AreaTotals, ranges: Ranges | None) -> AreaTotals:
    return replace(totals, counts=ranges.counts, ranges=ranges) if ranges else totals


def _joined(paths: Sequence[Path]) -> list[str]:
    return ["\0".join(path) for path in paths]

"""The numbers of groups by size of the regions with the most groups, with their intervals, and their section of a report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.format.rows import Rows
from tasks.groups.task import region_axis
from tasks.report.sections.largest import Path, paths_of
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree

_MOST_REGIONS = 6  # of a level

Ends = NDArray[np.float64]  # of intervals, records; not a number where none is stated


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """The released numbers of groups of one region by size.

    Attributes:
        region: its number; 0 for everything.
        path: the codes of the region, coarse to fine; empty for everything.
        counts: int64, shape (sizes,), groups; 0 where there is no row.
        low: the lower ends of their intervals, float64, shape (sizes,); likewise `high`.
        high: the upper ends.
    """

    region: int
    path: Path
    counts: IntArray
    low: Ends
    high: Ends


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """The regions of a level with the most groups.

    Attributes:
        level: the tree level.
        region_level: the axis level of its regions.
        sizes: the codes of the sizes, up to the last one that any of these regions has.
        regions: those that are shown, those with the most groups first.
        there: how many regions have groups.
    """

    level: int
    region_level: int
    sizes: tuple[str, ...]
    regions: tuple[Histogram, ...]
    there: int


# of some regions of an axis level, and the first sizes, the ends of all intervals, shape (2, regions, sizes), as questions about them are
# answered; None where these are not known
EndsOf = Callable[[int, Sequence[int], int], Ends | None]


def histograms_of(tree: Tree, level: int, rows: Rows) -> Histograms | None:
    """Return the numbers of groups by size of the regions of a level with the most groups, with the intervals of their rows; None without rows."""
    axis = region_axis(tree)
    region, size = (rows.areas[number].astype(np.int64) for number in (axis, 1 - axis))
    if not len(rows):
        return None
    per_region = np.bincount(region, weights=rows.counts)
    shown = np.argsort(-per_region, kind="stable")[:_MOST_REGIONS]
    shown = shown[per_region[shown] > 0]
    sizes = int(size[np.isin(region, shown)].max()) + 1
    own, reached = tree.axes[axis], tree.axis_levels(level)[axis]
    paths, found = paths_of(own, reached, shown) if reached else [()], list[Histogram]()
    for number, path in zip(shown.tolist(), paths, strict=True):
        of_region = region == number
        counts, ends = np.zeros(sizes, dtype=np.int64), np.full((2, sizes), np.nan)
        counts[size[of_region]] = rows.counts[of_region]
        for end, of_rows in zip(ends, rows.bounds[:2], strict=False):
            end[size[of_region]] = of_rows[of_region]
        found.append(Histogram(number, path, counts, *ends))
    codes = tuple(tree.axes[1 - axis].codes[-1].head(sizes).to_list())
    return Histograms(level, reached, codes, tuple(found), len(per_region[per_region > 0]))


def as_asked(histograms: Histograms, ends_of: EndsOf) -> Histograms:
    """Return histograms with the intervals of questions about all their numbers, also those without a row, where these are known."""
    shown = histograms.regions
    ends = ends_of(histograms.region_level, [of.region for of in shown], len(histograms.sizes))
    if ends is None:
        return histograms
    found = [replace(of, low=low, high=high) for of, low, high in zip(shown, *ends, strict=True)]
    return replace(histograms, regions=tuple(found))

"""The totals of areas, with everything of the other axes, as a published folder answers questions about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.released.boxes import AxisLevels, Boxes
from tasks.released.estimate import Answers, Estimate
from tasks.tree.axis import IntArray

MOST_CELLS = 5_000_000  # of a table that is added up for a map

Ends = NDArray[np.float64]  # of intervals, records; not a number where none is stated

# of some regions of an axis level, and the first sizes, the ends of all intervals, shape (2, regions, sizes), as questions about them are
# answered; None where these are not known
EndsOf = Callable[[int, Sequence[int], int], Ends | None]


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


def area_totals(estimate: Estimate, axis: int, level: int) -> Answers:
    """Return what a question about each area of an axis level is answered, in the order of the areas."""
    levels, many = _levels(estimate, axis, level), estimate.folder.tree.axes[axis].areas(level)
    areas = tuple(np.arange(many) if own == axis else np.zeros(many, dtype=np.int64) for own in range(len(levels)))
    return estimate.answers(Boxes(levels, areas))


def ranges_of_areas(estimate: Estimate) -> RangesOf:
    """Return the function that yields the totals of an axis level with their intervals.

    It yields None where the folder does not have the noisy counts from which the intervals of sums follow, where it states none, and
    where more cells would be added up than a page is worth.
    """

    def ranges_of(axis: int, level: int) -> Ranges | None:
        if not estimate.folder.folder.has_tree:
            return None
        if estimate.rows_added(_levels(estimate, axis, level)) > MOST_CELLS:
            return None
        found = area_totals(estimate, axis, level)
        return Ranges(found.count, found.low, found.high) if found.stated.all() else None

    return ranges_of


def ends_of_groups(estimate: Estimate) -> EndsOf:
    """Return the function that yields the intervals of numbers of groups by region and size, as questions about them are answered.

    It yields None where some have none, and where more cells would be added up than a page is worth.
    """

    def ends_of(level: int, regions: Sequence[int], sizes: int) -> Ends | None:
        if max(entry.cells for entry in estimate.folder.folder.manifest.levels) > MOST_CELLS:
            return None
        areas = np.repeat(np.array(regions, dtype=np.int64), sizes), np.tile(np.arange(sizes), len(regions))
        found = estimate.answers(Boxes((level, 1), areas))
        return np.array([found.low, found.high], dtype=np.float64).reshape(2, -1, sizes) if found.stated.all() else None

    return ends_of


def _levels(estimate: Estimate, axis: int, level: int) -> AxisLevels:
    return tuple(level if own == axis else 0 for own in range(len(estimate.folder.folder.axes)))

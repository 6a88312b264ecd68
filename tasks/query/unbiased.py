"""Answers where every node was measured: a sum of unbiased counts, its standard deviation, and its interval, from the folder alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.counts.columns import COUNT
from tasks.query.areas import Area
from tasks.query.boxes import level_of
from tasks.query.folder import PublishedFolder
from tasks.query.ranges import AreaRange, fewest_areas, leaves_of_areas
from tasks.uncertainty.intervals import NO_CAP, intervals

_SHOWN = 6  # areas that an explanation names


@dataclass(frozen=True, slots=True)
class UnbiasedAnswer:
    """The count of a box, records; its standard deviation and interval, None where no area without a count is known; and how.

    Attributes:
        count: the released count.
        level: the coarsest tree level whose whole cells make up the box.
        deviation: its standard deviation.
        low: the lower end of the interval; likewise `high`.
        high: the upper end.
        leaves: how many leaves are in the box.
        how: how the count and the interval were put together, in words.
    """

    count: int
    level: int
    deviation: float | None
    low: int | None
    high: int | None
    leaves: int
    how: str


def unbiased_answer(
    folder: PublishedFolder, asked: Sequence[Area | AreaRange], *, simultaneous: bool
) -> UnbiasedAnswer:
    """Return what a folder says about a box of areas and ranges, one per axis.

    Args:
        folder: the published folder, of which every node was measured.
        asked: an area or a range per axis.
        simultaneous: whether the interval must hold together with those of all other boxes. It is then the sum of those of the fewest
            nodes, each by a bound that takes no normal law.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    level = level_of(folder.steps, [of.level for of in asked])
    count = _count(folder, level, asked)
    if not folder.has_tree:
        how = "sum of rows; no interval: the folder has no codebook, since the noisy counts are not published"
        return UnbiasedAnswer(count, level, None, None, None, 0, how)
    released = folder.released
    box = [leaves_of_areas(axis, of) for axis, of in zip(folder.tree.axes, asked, strict=True)]
    first, stop = ([np.array([end[side]]) for end in box] for side in (0, 1))
    deviation = released.box_deviation(first, stop)
    if simultaneous:
        margin, pieces = released.whole_margins(first, stop)
        how = f"sum of {pieces:,} {'node' if pieces == 1 else 'nodes'}, whose intervals all hold at once"
    else:
        margin = int(released.box_margin(deviation)[0])
        of_what = "pairs of levels" if released.is_grid else "levels"
        follows = f"its standard deviation follows from least squares over all {of_what}"
        how = f"{_pieces(folder, asked)}{f'; {follows}' if deviation[0] else ', published exactly'}"
    counts = np.array([count])
    low, high = intervals(counts, margin, NO_CAP if released.total is None else released.total, counts)
    leaves = math.prod(end - begin for begin, end in box)
    return UnbiasedAnswer(count, level, float(deviation[0]), int(low[0]), int(high[0]), leaves, how)


def _count(folder: PublishedFolder, level: int, asked: Sequence[Area | AreaRange]) -> int:
    """Return what the released rows of a level add up to in a box."""
    table, wanted = folder.table(level), list[pl.Expr]()
    for axis, of in zip(folder.axes, asked, strict=True):
        columns = folder.columns(axis, of.level)
        if isinstance(of, AreaRange):
            codes = folder.ordered[axis].codes[of.level - 1][of.first : of.stop]
            wanted.append(pl.col(columns[-1]).is_in(codes.implode()))
        else:
            wanted += [pl.col(column) == code for column, code in zip(columns, of.path, strict=True)]
    (found,) = folder.collect([(table.filter(*wanted) if wanted else table).select(pl.col(COUNT).sum())])
    return int(found[COUNT].item())


def _pieces(folder: PublishedFolder, asked: Sequence[Area | AreaRange]) -> str:
    """Return the fewest areas that a box is made of, in words."""
    texts = []
    for axis, of in zip(folder.tree.axes, asked, strict=True):
        areas = list(fewest_areas(axis, of)) if isinstance(of, AreaRange) else [of]
        named = [area.path[-1] for area in areas if area.path]
        more = f" and {len(named) - _SHOWN:,} more" if len(named) > _SHOWN else ""
        if named:
            texts.append(f"{axis.name} {', '.join(named[:_SHOWN])}{more}")
    return f"sum over {' × '.join(texts)}" if texts else "the total"

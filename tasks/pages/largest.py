"""The largest counts of a level."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.format.rows import Rows, joined
from tasks.tree.axis import Axis, Path
from tasks.tree.order import Tree

MOST_LARGEST = 15  # rows
CHUNK = 250_000  # rows read at once


@dataclass(frozen=True, slots=True)
class LargeCount:
    """One of the largest counts.

    Attributes:
        codes: per refined axis, the area: its code alone if no two areas of the level share a code, otherwise its path.
        count: records.
        low: the lower end of its interval, records; None without an interval. Of the simultaneous intervals if there are any,
            because a count that is chosen by its size needs those.
        high: the upper end.
        paths: per refined axis, the whole path of the area.
    """

    codes: tuple[Path, ...]
    count: int
    low: int | None
    high: int | None
    paths: tuple[Path, ...] = ()


def largest_rows(rows: Rows) -> Rows:
    """Return the rows with the largest counts, the largest first; of equal counts, the first comes first."""
    counts = rows.counts
    if len(counts) > MOST_LARGEST:
        least = np.partition(counts, -MOST_LARGEST)[-MOST_LARGEST]
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        positions = np.concatenate((above, equal[: MOST_LARGEST - len(above)]))
    else:
        positions = np.arange(len(counts))
    return rows[positions[np.lexsort((positions, -counts[positions]))]]


def largest(tree: Tree, level: int, parts: Sequence[Rows]) -> tuple[LargeCount, ...]:
    """Return the rows of a level with the largest counts, in the order of `largest_rows`, from those of its parts."""
    if not parts:
        return ()
    rows = largest_rows(joined(parts))
    of_axes = [
        axis.paths(own, of_axis).rows()
        for axis, own, of_axis in zip(tree.axes, tree.axis_levels(level), rows.areas, strict=True)
        if own
    ]
    refined = [(axis, own) for axis, own in zip(tree.axes, tree.axis_levels(level), strict=True) if own]
    short = [_shortest(axis, own, paths) for (axis, own), paths in zip(refined, of_axes, strict=True)]
    return tuple(
        LargeCount(codes, int(rows.counts[position]), *_interval(rows, position), paths)
        for position, codes, paths in zip(
            range(len(rows)), zip(*short, strict=True), zip(*of_axes, strict=True), strict=True
        )
    )


def _interval(rows: Rows, position: int) -> tuple[int | None, int | None]:
    if not rows.bounds:
        return None, None
    low, high = rows.bounds[-2:]
    return int(low[position]), int(high[position])


def _shortest(axis: Axis, level: int, paths: Sequence[Path]) -> Sequence[Path]:
    """Return what identifies areas within a level: their codes, or their paths if two areas share a code."""
    codes = axis.codes[level - 1]
    return tuple(path[-1:] for path in paths) if codes.n_unique() == len(codes) else paths

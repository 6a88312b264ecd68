"""The largest counts of a release: of which level they are, and which of them are flows within one area."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tasks.format.rows import Rows, joined
from tasks.tree.axis import Axis, BoolArray, IntArray
from tasks.tree.keys import AreaArray
from tasks.tree.order import Tree

MOST_LARGEST = 15  # rows
CHUNK = 250_000  # rows read at once

Path = tuple[str, ...]  # codes of an area and of those that contain it, coarse to fine


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


def flows_within(tree: Tree, level: int) -> Callable[[Sequence[AreaArray]], BoolArray]:
    """Return a function that tells which cells of a level count trips within one area, or between an area and one that contains it.

    It takes the areas of cells per axis, as `Rows` has them.
    """
    reached = tree.axis_levels(level)
    origin, destination = tree.axes
    common = min(reached)
    if not (common and are_the_same(origin, destination, common)):
        return lambda areas: np.zeros(len(areas[0]), dtype=bool)
    at_the_other_end = _number_at_the_other_end(origin, destination, common)

    def within(areas: Sequence[AreaArray]) -> BoolArray:
        ends = [
            axis.ancestors(of_axis.astype(np.int64), own, common)
            for axis, of_axis, own in zip(tree.axes, areas, reached, strict=True)
        ]
        found: BoolArray = at_the_other_end[ends[0]] == ends[1]
        return found

    return within


def are_the_same(origin: Axis, destination: Axis, level: int) -> bool:
    """Return whether two ends have the same areas down to a level, by the names of their levels or by all their codes."""
    if origin.level_names[:level] == destination.level_names[:level]:
        return True
    return all(
        set(one) == set(other) for one, other in zip(origin.codes[:level], destination.codes[:level], strict=True)
    )


def _number_at_the_other_end(origin: Axis, destination: Axis, level: int) -> IntArray:
    """Return, for every area of a level of the one end, its number at the other end; -1 for an area that is not there."""
    numbers = [np.arange(axis.areas(level)) for axis in (origin, destination)]
    schema = {f"code_{own}": pl.String for own in range(1, level + 1)}
    one, other = (
        pl.DataFrame(paths_of(axis, level, of_axis), schema, orient="row").with_columns(number=of_axis)
        for axis, of_axis in zip((origin, destination), numbers, strict=True)
    )
    codes = one.columns[:-1]
    joined = one.join(other, on=codes, how="left", suffix="_there", maintain_order="left")
    return joined["number_there"].fill_null(-1).to_numpy()


def largest_rows(rows: Rows) -> Rows:
    """Return the rows with the largest counts, the largest first; of equal counts, the first comes first."""
    return rows[_positions_of_largest(rows.counts)]


def largest(tree: Tree, level: int, parts: Sequence[Rows]) -> tuple[LargeCount, ...]:
    """Return the rows of a level with the largest counts, in the order of `largest_rows`, from those of its parts."""
    if not parts:
        return ()
    rows = largest_rows(joined(parts))
    of_axes = [
        paths_of(axis, own, of_axis)
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


def _positions_of_largest(counts: IntArray) -> IntArray:
    """Return the positions of the largest counts, the largest first; of equal counts, the first comes first."""
    if len(counts) > MOST_LARGEST:
        least = np.partition(counts, -MOST_LARGEST)[-MOST_LARGEST]
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        positions = np.concatenate((above, equal[: MOST_LARGEST - len(above)]))
    else:
        positions = np.arange(len(counts))
    return positions[np.lexsort((positions, -counts[positions]))]


def _interval(rows: Rows, position: int) -> tuple[int | None, int | None]:
    if not rows.bounds:
        return None, None
    low, high = rows.bounds[-2:]
    return int(low[position]), int(high[position])


def _shortest(axis: Axis, level: int, paths: Sequence[Path]) -> Sequence[Path]:
    """Return what identifies areas within a level: their codes, or their paths if two areas share a code."""
    codes = axis.codes[level - 1]
    return tuple(path[-1:] for path in paths) if codes.n_unique() == len(codes) else paths


def paths_of(axis: Axis, level: int, areas: AreaArray | NDArray[np.int64]) -> tuple[Path, ...]:
    """Return the paths of areas of a level: the codes of the areas that contain each one, then its own."""
    columns = [
        axis.codes[own - 1].gather(axis.ancestors(areas.astype(np.int64), level, own)).to_list()
        for own in range(1, level + 1)
    ]
    return tuple(zip(*columns, strict=True))

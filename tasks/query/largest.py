"""The largest counts of a published folder, by the names of their areas: what to show of a release where there is little room."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.counts.columns import COUNT
from tasks.query.folder import PublishedFolder

_MOST_ROWS = 0.5  # of a level, that stand above the noise


@dataclass(frozen=True, slots=True)
class LargestCounts:
    """The largest counts of a level.

    Attributes:
        level: the tree level.
        axes: those that are refined there.
        rows: per count what its areas are called, one per axis, and the count; the largest first.
        without_within: whether trips that stay within one area are left out.
    """

    level: int
    axes: tuple[str, ...]
    rows: Sequence[tuple[Sequence[str], int]]
    without_within: bool


def largest_counts(folder: PublishedFolder, most: int) -> LargestCounts | None:
    """Return the largest counts of the finest level that stands above the noise, and for trips refines both ends alike.

    Args:
        folder: the published folder.
        most: how many, at most.
    Returns:
        The counts; None where no level below the total has a row.
    """
    level = _level(folder)
    if level is None:
        return None
    names = list(folder.axes)
    refined = [(number, own) for number, own in enumerate(folder.reached(level)) if own]
    paths = [folder.columns(names[number], own) for number, own in refined]
    rows, within = folder.table(level), _is_within(folder, level, paths)
    if within is not None:
        rows = rows.filter(~within)
    (found,) = folder.collect(
        [rows.select(*(column for path in paths for column in path), COUNT).top_k(most, by=COUNT)]
    )
    found = found.sort(
        COUNT, *(column for path in paths for column in path), descending=[True, *[False] * (found.width - 1)]
    )
    return LargestCounts(
        level,
        tuple(names[number] for number, _ in refined),
        [
            (
                [
                    folder.names.called(names[of[0]], [row[c] for c in path])
                    for of, path in zip(refined, paths, strict=True)
                ],
                row[COUNT],
            )
            for row in found.iter_rows(named=True)
        ],
        without_within=within is not None,
    )


def _level(folder: PublishedFolder) -> int | None:
    """Return the level to show: the finest of those that fit down to which most rows stand above the noise, or the first that fits."""
    entries, is_of_trips = folder.manifest.levels, list(folder.axes) == ["origin", "destination"]
    reached = [folder.reached(entry.level) for entry in entries]
    alike = [entry.level for entry in entries if entry.level and len(set(reached[entry.level])) == 1]
    fit = (alike if is_of_trips and alike else [entry.level for entry in entries[1:]]) or []
    if entries[-1].threshold:
        return fit[-1] if fit else None
    clear = 0
    for entry in entries[1:]:
        if entry.above_noise is None or entry.above_noise.rows < _MOST_ROWS:
            break
        clear = entry.level
    return max((level for level in fit if level <= clear), default=fit[0] if fit else None)


def _is_within(folder: PublishedFolder, level: int, paths: Sequence[Sequence[str]]) -> pl.Expr | None:
    """Return which rows are of trips within one area; None where two ends have no common levels."""
    if list(folder.axes) != ["origin", "destination"] or len(paths) < 2:
        return None
    common = min(folder.reached(level))
    origin, destination = folder.axes.values()
    if origin[:common] != destination[:common]:
        return None
    return pl.all_horizontal(
        pl.col(one) == pl.col(other) for one, other in zip(paths[0][:common], paths[1][:common], strict=True)
    )

"""The largest counts of a published folder, by the names of their areas: what to show of a release where there is little room."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.counts.columns import COUNT, ends_of
from tasks.format.published_tree import axes_by_path
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.tree.order import are_the_same, finest_clear, levels_of_flows

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
    level = level_shown(folder)
    if level is None:
        return None
    names, by_path = list(folder.axes), axes_by_path(folder.manifest)
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
                    folder.names.called(
                        names[of[0]], [row[c] for c in path], codes=len(path) if names[of[0]] in by_path else 1
                    )
                    for of, path in zip(refined, paths, strict=True)
                ],
                row[COUNT],
            )
            for row in found.iter_rows(named=True)
        ],
        without_within=within is not None,
    )


def level_shown(folder: PublishedFolder, most: int | None = None) -> int | None:
    """Return the level to show first: the finest of those that fit down to which most rows stand above the noise, or the first that fits.

    Of trips, those fit that refine both ends alike, where there are any.

    Args:
        folder: the published folder.
        most: the finest level that may be shown; None for the finest of all.
    Returns:
        The level; None where there is none below the total.
    """
    entries = folder.manifest.levels[: None if most is None else most + 1]
    flows = levels_of_flows(
        _ends(folder), list(folder.axes.values()), [folder.reached(entry.level) for entry in entries]
    )
    fit = flows or [entry.level for entry in entries[1:]]
    if not fit:
        return None
    if folder.manifest.levels[-1].threshold:
        return fit[-1]
    clear = 0
    for entry in entries[1:]:
        if entry.above_noise is None or entry.above_noise.rows < _MOST_ROWS:
            break
        clear = entry.level
    return finest_clear(fit, clear)


def _ends(folder: PublishedFolder) -> tuple[int, int] | None:
    return ends_of(list(folder.manifest.roles.values()))


def _is_within(folder: PublishedFolder, level: int, paths: Sequence[Sequence[str]]) -> pl.Expr | None:
    """Return which rows are of trips within one area; None where two ends have no common levels."""
    if _ends(folder) is None or len(paths) < 2:
        return None
    common = min(folder.reached(level))
    origin, destination = folder.axes.values()
    if origin[:common] != destination[:common]:
        begin, end = FolderSource(folder).tree.axes
        if not are_the_same(begin, end, common):
            return None
    return pl.all_horizontal(
        pl.col(one) == pl.col(other) for one, other in zip(paths[0][:common], paths[1][:common], strict=True)
    )

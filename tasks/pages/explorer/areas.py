"""The areas that the explorer knows: their codes, names, parents and places, and the tables of views as they are published."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from storage.tables import COUNT, HIGH, LOW, domains_of
from tasks.format.entries import ViewEntry
from tasks.format.published_tree import axis_columns, view_columns
from tasks.released.estimate import Estimate
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Axis, AxisLevels, Path
from tasks.tree.ordered import codes_apart, codes_beside, goes_round
from tasks.words.drawings import drawn_shapes
from tasks.words.levels import level_called, view_called

_MOST_DRAWN = 1_000_000  # characters of the page that shapes take


def axes_shown(estimate: Estimate, finest: AxisLevels) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the axes with their levels and areas, and the drawings of their shapes by key.

    Args:
        finest: per axis, the finest level that is shown; of finer ones, only the name is.
    """
    folder = estimate.folder.folder
    paths = {
        (axis.name, level): axis.paths(level).rows()
        for axis, last in zip(estimate.folder.tree.axes, finest, strict=True)
        for level in range(1, last + 1)
    }
    keys, drawings = drawn_shapes(folder.shapes, paths, _MOST_DRAWN)
    axes = [
        {
            "name": axis.name,
            "role": folder.manifest.roles[axis.name],
            "ordered": axis.name in folder.ordered,
            "round": axis.name in folder.ordered and goes_round(axis.name, domains_of(folder.manifest.spec)[axis.name]),
            "apart": _codes_apart(folder, axis, finest[number]),
            "levels": [
                {
                    "name": name,
                    "called": level_called(folder.manifest.spec, axis.name, name),
                    "codes": [path[-1] for path in paths.get((axis.name, level), [])],
                    "names": names_of(folder, axis.name, paths.get((axis.name, level), [])),
                    "parent": axis.parent[level - 1].tolist() if level > 1 and (axis.name, level) in paths else None,
                    "shape": keys.get((axis.name, level)),
                }
                for level, name in enumerate(folder.axes[axis.name], 1)
            ],
        }
        for number, axis in enumerate(estimate.folder.tree.axes)
    ]
    return axes, drawings


def _codes_apart(folder: PublishedFolder, axis: Axis, level: int) -> int:
    """Return how many areas of a level are in no range, behind all others, where the axis is ordered."""
    if axis.name not in folder.ordered:
        return 0
    domain = domains_of(folder.manifest.spec)[axis.name]
    return codes_apart(domain) if level == axis.depth or codes_beside(domain["ordered"]) else 0


def names_of(folder: PublishedFolder, axis: str, paths: Sequence[Path]) -> list[str | None] | None:
    """Return the names of areas; None where none of them has one."""
    names = [folder.names.name_of(axis, path) for path in paths] if folder.manifest.names else []
    return names if any(name is not None for name in names) else None


def views_shown(
    estimate: Estimate, views: Sequence[ViewEntry], most_rows: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the views that have room, in their order, and sentences about those that have none.

    Args:
        most_rows: the most rows that they may have together.
    """
    shown, left_out = list[dict[str, Any]](), list[str]()
    for view in views:
        if view.nonzero > most_rows or (rows := estimate.folder.table(view).columns).height > most_rows:
            rows_there = f"{view.nonzero:,} rows"
            left_out.append(f"The view {view.name} ({rows_there}) is not in this page; it is in {view.path}.")
            continue
        most_rows -= rows.height
        shown.append(
            {
                "name": view.name,
                "called": view_called(estimate.folder.manifest.spec, view.axes),
                "axes": dict(view.axes),
                "columns": _columns(estimate.folder.folder, view, rows),
                **{end: rows[end].to_list() if end in rows.columns else None for end in (COUNT, LOW, HIGH)},
            }
        )
    return shown, left_out


def _columns(folder: PublishedFolder, view: ViewEntry, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the columns of codes of a view, each with the names of its areas, None where there are none, and its axis and level."""
    of_axis = {
        column: (axis, axis_columns(folder.manifest, axis)[: level + 1])
        for axis in folder.axes
        for level, column in enumerate(axis_columns(folder.manifest, axis))
    }
    columns = []
    for column in view_columns(folder.manifest, view):
        axis, path = of_axis.get(column, ("", []))
        names = names_of(folder, axis, list(rows.select(path).iter_rows())) if path else None
        place = {"axis": list(folder.axes).index(axis), "level": len(path)} if path else {"axis": None, "level": None}
        columns.append({"title": column, "values": rows[column].to_list(), "names": names} | place)
    return columns

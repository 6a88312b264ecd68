"""The views as the explorer shows them: their tables as they are published."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from storage.counts.columns import COUNT, HIGH, LOW
from tasks.explore.areas import names_of
from tasks.format.manifest import ViewEntry
from tasks.format.published_tree import axis_columns, view_columns
from tasks.released.estimate import Estimate
from tasks.released.sources.folder import PublishedFolder


def views_shown(
    estimate: Estimate, views: Sequence[ViewEntry], most_rows: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the views that have room, in their order, and those that have none.

    Args:
        estimate: of a published folder.
        views: some of its views.
        most_rows: so many rows they may have together.
    """
    shown, left_out = list[dict[str, Any]](), list[dict[str, Any]]()
    for view in views:
        if view.nonzero > most_rows or (rows := estimate.folder.table(view).columns).height > most_rows:
            left_out.append({"name": view.name, "rows": view.nonzero, "file": f"views/{view.name}.parquet"})
            continue
        most_rows -= rows.height
        shown.append(
            {
                "name": view.name,
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
    found = []
    for column in view_columns(folder.manifest, view):
        axis, path = of_axis.get(column, ("", []))
        names = names_of(folder, axis, list(rows.select(path).iter_rows())) if path else None
        place = {"axis": list(folder.axes).index(axis), "level": len(path)} if path else {"axis": None, "level": None}
        found.append({"title": column, "values": rows[column].to_list(), "names": names} | place)
    return found

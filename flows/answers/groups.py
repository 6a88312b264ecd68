"""Groups of areas, or of codes of a derived column, that a question names by a public table of codes, with the name of a group."""

import os
from pathlib import Path
from typing import Any

import polars as pl

from storage.errors import UsageError
from storage.tables import ENDS
from tasks.ingest.sources.csv_files import Dialect, OtherDialect
from tasks.ingest.sources.locations import table_at
from tasks.ingest.tables import check_columns, is_blank, opened, reader, text_columns
from tasks.released.query.areas import Area, find_area
from tasks.released.query.sets import TOGETHER, AreaSet, find_code, is_known, set_of
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.ordered import RANGE

CODE, GROUP, LEVEL, AXIS = "code", "group", "level", "axis"

_FIELD = "--areas"
_SHOWN = 6  # codes of a group that an answer names


def groups_of(published: PublishedFolder, table: Any, axis: str | None) -> dict[str, list[AreaSet]]:
    """Return groups of areas by axis or derived column, in the order in which they first come.

    Args:
        table: its path, or a data frame: a row for each area, with its `code`, the name of its `group`, and where they are needed the `level` and
            the `axis` of the code.
        axis: of all codes, or a derived column; None where a column says it, or only one axis or derived column has the first code.
    Raises:
        UsageError: there is no such axis or area, an area is in a group twice, or a cell is blank.
    """
    listed, groups = _read(table), dict[str, dict[str, list[Area]]]()
    axis = axis or (None if AXIS in listed.columns else _only_axis(published, listed.row(0, named=True)))
    known = [*published.axes, *published.manifest.derived]
    for row in listed.iter_rows(named=True):
        name = row.get(AXIS) or axis or ""
        if name not in known:
            hint = f"Its axes are {', '.join(known)}."
            raise UsageError(f"{_FIELD}: the release has no axis {name}.", field=_FIELD, hint=hint)
        code = {row[LEVEL]: row[CODE]} if row.get(LEVEL) else row[CODE]
        is_axis = name in published.axes
        try:
            area = find_area(published, name, code) if is_axis else find_code(published, name, row[CODE])
        except UsageError as fault:
            hint = f"{fault.hint}{_one_by_one(row[CODE])}".strip()
            raise UsageError(str(fault), field=fault.field, hint=hint) from None
        groups.setdefault(name, {}).setdefault(row[GROUP], []).append(area)
    return {
        name: [set_of(published, name, areas, _written(areas), group) for group, areas in of_axis.items()]
        for name, of_axis in groups.items()
    }


def _read(table: Any) -> pl.DataFrame:
    """Return a table of groups as text."""
    if isinstance(table, str | os.PathLike):
        listed = _listed(os.fspath(table))
    elif hasattr(table, "__arrow_c_stream__") and {CODE, GROUP} <= {*(frame := pl.DataFrame(table)).columns}:
        listed = frame.select(pl.all().cast(pl.String).str.normalize("NFC"))
    else:
        raise UsageError(f"{_FIELD} must be a table with the columns {CODE} and {GROUP}.", field=_FIELD)
    for name in (CODE, GROUP):
        blank = is_blank(listed[name])
        if blank.any() or not len(blank):
            where = f"; see row {int(blank.arg_true()[0]) + 1}" if len(blank) else ": the table has no rows"
            raise UsageError(f"{_FIELD}: column {name} must not be empty{where}.", field=_FIELD)
    return listed


def _listed(location: str, written: Dialect | None = None) -> pl.DataFrame:
    """Return the columns of a table of groups as text; a CSV file may be written in whatever way its first line shows."""
    file = table_at(_FIELD, location, Path(), written)
    try:
        with reader(file) as con, opened(con, file) as rows:
            check_columns(file, rows, [CODE, GROUP])
            names = [name for name in (CODE, GROUP, LEVEL, AXIS) if name in rows.names]
            listed: pl.DataFrame = con.sql(f"SELECT {text_columns(names)} FROM {rows.scan(names)}").pl()
            return listed
    except OtherDialect as other:
        if other.dialect == written:
            raise
        return _listed(location, other.dialect)


def _only_axis(published: PublishedFolder, row: dict[str, str]) -> str:
    """Return the only axis or derived column that has a code; refuse one that several or none have."""
    level, columns = row.get(LEVEL), {name: (name,) for name in published.manifest.derived}
    axes = published.axes | columns
    found = [
        axis for axis, names in axes.items() if (level in names if level else is_known(published, axis, row[CODE]))
    ]
    if len(found) == 1 or len(axes) == 1:
        return [*found, *axes][0]
    code = f"{row[CODE]}{f' of level {level}' if level else ''}"
    which = f"is a code of {' and '.join(found)}" if found else f"is no code of {', '.join(axes)}"
    each = " or ".join(f"{_FIELD} {axis}=FILE" for axis in found or axes)
    of_ends = {published.manifest.roles.get(axis) for axis in found} >= {*ENDS}
    hint = f"Write {each}, or give the table a column {AXIS}."
    hint += " For what goes from group to group, give both." if of_ends else ""
    hint += _one_by_one(row[CODE])
    raise UsageError(f"{_FIELD}: {code} {which}.", field=_FIELD, hint=hint)


def _one_by_one(code: str) -> str:
    """Return what to do about text that is no code but looks like several codes; empty for other text."""
    looks_like_several = RANGE in code or TOGETHER in code
    return f" A table names codes one by one: a row for each code of {code}." if looks_like_several else ""


def _written(areas: list[Area]) -> str:
    shown = TOGETHER.join(area.path[-1] if area.level else "all" for area in areas[:_SHOWN])
    return f"{shown} and {len(areas) - _SHOWN:,} more" if len(areas) > _SHOWN else shown

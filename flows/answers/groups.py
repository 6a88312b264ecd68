"""Groups of areas that a question names by a public table of codes, with the name of a group."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from storage.errors import UsageError
from tasks.ingest.sources.locations import table_at
from tasks.ingest.tables import check_columns, opened, text_columns
from tasks.released.query.areas import Area, find_area
from tasks.released.query.sets import TOGETHER, AreaSet, Numbered, axis_of, set_by_paths, set_of
from tasks.released.sources.folder import PublishedFolder

CODE, GROUP, LEVEL, AXIS = "code", "group", "level", "axis"

_FIELD = "--areas"
_SHOWN = 6  # codes of a group that an answer names


@dataclass(frozen=True, slots=True)
class Group:
    """A group of areas: of one axis, or of several, of which it then has every combination."""

    name: str
    sets: Mapping[str, AreaSet]


def read_groups(published: PublishedFolder, location: str | os.PathLike[str], axis: str | None) -> list[Group]:
    """Return the groups of a table, in the order in which they first come; arguments as in `groups_of`."""
    table = table_at(_FIELD, os.fspath(location), Path())
    with duckdb.connect() as con, opened(con, table) as rows:
        check_columns(table, rows, [CODE, GROUP])
        columns = [CODE, GROUP, *(name for name in (LEVEL, AXIS) if name in rows.names)]
        listed: pl.DataFrame = con.sql(f"SELECT {text_columns(columns)} FROM {rows.scan(columns)}").pl()
    return groups_of(published, listed, axis)


def groups_of(published: PublishedFolder, listed: pl.DataFrame, axis: str | None) -> list[Group]:
    """Return groups of areas, in the order in which they first come.

    Args:
        published: the folder.
        listed: a row for each area: its `code`, the name of its `group`, and where they are needed the `level` and the `axis` of the code, text.
        axis: of all codes; None where a column says it, or only one axis has such codes.
    Raises:
        UsageError: there is no such axis or area, an area is in a group twice, or a cell is blank.
    """
    for name in (CODE, GROUP):
        if name not in listed.columns:
            raise UsageError(f"{_FIELD}: the table must have the columns {CODE} and {GROUP}.", field=_FIELD)
        blank = listed[name].fill_null("").str.strip_chars() == ""
        if blank.any():
            raise UsageError(
                f"{_FIELD}: column {name} must not be empty; see row {int(blank.arg_true()[0]) + 1}.", field=_FIELD
            )
    if listed.is_empty():
        raise UsageError(f"{_FIELD}: the table has no rows.", field=_FIELD)
    if axis is not None and AXIS in listed.columns:
        raise UsageError(f"{_FIELD}: the table has a column {AXIS}, so name the file alone.", field=_FIELD)
    if AXIS not in listed.columns:
        listed = listed.with_columns(pl.lit(axis or _only_axis(published, listed)).alias(AXIS))
    groups = dict[str, dict[str, list[Area]]]()
    for row in listed.iter_rows(named=True):
        name = row[AXIS] or ""
        if name not in published.axes:
            hint = f"Its axes are {', '.join(published.axes)}."
            raise UsageError(f"{_FIELD}: the release has no axis {name}.", field=_FIELD, hint=hint)
        code = {row[LEVEL]: row[CODE]} if row.get(LEVEL) else row[CODE]
        groups.setdefault(row[GROUP], {}).setdefault(name, []).append(find_area(published, name, code))
    return [
        Group(name, {of: replace(_set(published, of, areas, name), name=name) for of, areas in axes.items()})
        for name, axes in groups.items()
    ]


def _only_axis(published: PublishedFolder, listed: pl.DataFrame) -> str:
    """Return the only axis that has the first code; refuse a table whose codes may be of several."""
    first, found = listed.row(0, named=True), list[str]()
    code = {first[LEVEL]: first[CODE]} if first.get(LEVEL) else first[CODE]
    for axis in published.axes:
        try:
            find_area(published, axis, code)
        except UsageError as fault:
            if len(published.axes) == 1:
                raise
            found += [axis] if fault.hint.startswith("Write ") else []  # there are several
        else:
            found.append(axis)
    if len(found) == 1:
        return found[0]
    of_level = f" of level {first[LEVEL]}" if first.get(LEVEL) else ""
    which = f"is a code of {' and '.join(found)}" if found else f"is no code of {', '.join(published.axes)}"
    each = " or ".join(f"{_FIELD} {axis}=FILE" for axis in found or published.axes)
    raise UsageError(
        f"{_FIELD}: {first[CODE]}{of_level} {which}.",
        field=_FIELD,
        hint=f"Write {each}, or give the table a column {AXIS}. For what goes from group to group, give both.",
    )


def _set(published: PublishedFolder, axis: str, areas: Sequence[Area], group: str) -> AreaSet:
    """Return the areas of a group."""
    written = TOGETHER.join([*(area.path[-1] if area.level else "all" for area in areas[:_SHOWN])])
    written += f" and {len(areas) - _SHOWN:,} more" if len(areas) > _SHOWN else ""
    of, by_level = axis_of(published, axis), dict[int, list[int]]()
    if of is None:
        return set_by_paths(axis, areas, written, group)
    for area in areas:
        by_level.setdefault(area.level, []).append(area.number)
    numbered: list[Numbered] = [(level, np.array(numbers)) for level, numbers in by_level.items()]
    return set_of(of, numbered, written, group)

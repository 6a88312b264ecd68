"""Groups of records, such as households: the confidential table becomes counts of groups of at least each size. Shows no value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from storage.database.connections import Connection
from storage.errors import InputError
from storage.machine.caller import tell_caller
from tasks.ingest.tables import Table, check_columns, identifier, is_blank, opened, reader, rows_named
from tasks.ingest.trips import End, Units, area_of_codes, area_of_others, sum_table
from tasks.tree.axis import IntArray


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """A public list of all groups, also of those without a record.

    Attributes:
        columns: those of the group's code.
        places: that of the finest region of a group, and those of its attributes.
    """

    table: Table
    columns: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupSource:
    """What groups are, and how large they are counted.

    Attributes:
        columns: of the confidential table, which together hold the code of a row's group.
        largest: N, the size as which all larger groups count.
        listed: the public list of groups; None where the number of groups is protected.
    """

    columns: tuple[str, ...]
    largest: int
    listed: ListedGroups | None = None


def read_listed(listed: ListedGroups, ends: Sequence[End]) -> tuple[pl.DataFrame, IntArray]:
    """Return the codes of all listed groups with their places, and how many groups each finest released place has.

    Args:
        ends: the axis of the regions and those of the attributes, with their codebooks.
    Returns:
        Columns code_0, code_1, …, and area, the number of the place those of the last attribute follow each other, and place, which is 0; and int64, shape (places,).
    Raises:
        InputError: the list cannot be read, lacks a column, has a blank code, repeats a group or names an unknown region or value.
    """
    wanted = [*listed.columns, *listed.places]
    with reader(listed.table) as con, opened(con, listed.table) as rows:
        check_columns(listed.table, rows, wanted)
        texts = [f"{identifier(name)}::VARCHAR AS code_{part}" for part, name in enumerate(listed.columns)]
        texts += [f"{identifier(name)}::VARCHAR AS of_{number}" for number, name in enumerate(listed.places)]
        groups: pl.DataFrame = con.sql(f"SELECT {', '.join(texts)} FROM {rows.scan(wanted)}").pl()
    keys = [f"code_{part}" for part in range(len(listed.columns))]
    for name, column in zip(wanted, groups.columns, strict=True):
        _refuse_rows(is_blank(groups[column]), listed.table, f"column {name} must not be empty")
    _refuse_rows(
        groups.select(keys).is_duplicated(),
        listed.table,
        f"column {' and '.join(listed.columns)} must list each group once",
    )
    place, places = np.zeros(groups.height, dtype=np.int64), 1
    for number, (name, end) in enumerate(zip(listed.places, ends, strict=True)):
        end = replace(end, axis=replace(end.axis, columns=(name,), take=None))
        areas = area_of_codes(end).select(pl.col("code_0").alias(f"of_{number}"), "area")
        area = groups.join(areas, on=f"of_{number}", how="left", maintain_order="left")["area"]
        if others := area_of_others(end):
            area = area.fill_null(others[0])
        what = "the regions" if not number else end.name
        _refuse_rows(area.is_null(), listed.table, f"column {name} must hold codes of the codebook of {what}")
        many = end.released_codebook.height
        place, places = place * many + area.to_numpy().astype(np.int64), places * many
    per_place = np.bincount(place, minlength=places)
    return groups.select(keys).with_columns(area=place, place=0), per_place.astype(np.int64)


def ingest_groups(
    con: Connection, table: Table, ends: Sequence[End], count: str | None, units: Units, groups: GroupSource
) -> IntArray | None:
    """Write the table `records` of the vault: region, attributes, rank and, as true count, how many groups of the place have that many records.

    So the true count of rank s in a place is the number of groups of at least s records. A record that leaves a group lowers only
    the count of the group's last rank, and only in the one place where the group lies. Where the public list has groups without a
    record, rank 0 counts all groups.

    Args:
        ends: the axis of the regions, those of the attributes, and that of the sizes.
        count: the column of counts; None where each row is one record.
        units: the bound on contributions, which is met before records are grouped.
    Returns:
        How many groups each place has, int64, shape (places,), where a public list says so; None otherwise.
    Raises:
        InputError: as `ingest_trips`; or a group is in two regions, has two values of an attribute, or is not in the list.
    """
    ends, listed = ends[:-1], None
    sizes = [end.released_codebook.height for end in ends]
    if groups.listed is None:
        read, codes = ends, [area_of_codes(end) for end in ends]
    else:
        of_group, listed = read_listed(groups.listed, ends)
        axis = replace(ends[0].axis, field="input.group", columns=groups.columns, take=None, unlisted=None)
        read, codes = [replace(ends[0], axis=axis, listed_by="input.groups")], [of_group]
    sum_table(con, table, read, codes, count, units, groups.columns)
    keys = ", ".join(f"group_{part}" for part in range(len(groups.columns)))
    if listed is None:
        for number, end in enumerate(ends):
            _refuse_groups_in_two(con, table, groups, keys, number, end)
    place = "area_0"
    for number, size in enumerate(sizes[1 : len(read)], 1):
        place = f"({place} * {size} + area_{number})"
    sized = (
        f"SELECT {place} AS place, least(sum(true_count), {groups.largest})::BIGINT AS size FROM summed"
        f" WHERE true_count > 0 GROUP BY place, {keys}"
    )
    found = con.execute(f"SELECT place, size, count(*)::BIGINT AS groups FROM ({sized}) GROUP BY ALL").fetchnumpy()
    offset = 0 if listed is None else 1
    tails = np.zeros((math.prod(sizes), groups.largest + offset), dtype=np.int64)
    tails[found["place"], found["size"] - 1 + offset] = found["groups"]
    np.cumsum(tails[:, ::-1], axis=1, out=tails[:, ::-1])
    if listed is not None:
        tails[:, 0] = listed
    at, rank = np.nonzero(tails)
    areas = [*np.unravel_index(at, sizes), rank]
    records = pl.DataFrame({f"area_{number}": of for number, of in enumerate(areas)} | {"true_count": tails[at, rank]})  # noqa: F841 (DuckDB finds it)
    con.execute(
        f"CREATE TABLE records AS SELECT {', '.join(f'area_{number}' for number in range(len(areas)))}, true_count FROM records"
    )
    con.execute("DROP TABLE summed")
    return listed


def _refuse_groups_in_two(con: Connection, table: Table, groups: GroupSource, keys: str, number: int, end: End) -> None:
    """Refuse a table in which a group has two areas of an axis: it would count in two places, and a record could move the counts of both."""
    twice = f"SELECT 1 FROM summed GROUP BY {keys} HAVING count(DISTINCT area_{number}) > 1"
    at_fault = con.execute(f"SELECT count(*) FROM ({twice})").fetchall()[0][0]
    if not at_fault:
        return
    tell_caller(f"{at_fault:,} {'group is' if at_fault == 1 else 'groups are'} at fault.")
    column = " and ".join(groups.columns)
    if not number:
        raise InputError(
            f"{table.field}: column {column} has a group in two regions; a group must lie in one.",
            field="input.group",
            hint="Correct the table; or, to count the part of a group in each region as a group of its own, name the column of the"
            " region in input.group too.",
        )
    raise InputError(
        f"{table.field}: column {' and '.join(end.axis.columns)} has two values in one group of column {column}; an attribute must"
        " be of the group, with one value in all its rows.",
        field="input.features",
        hint="An attribute of a record, such as the age of a member, is not of its group: the group would count in several places, and one"
        f" record could move up to {groups.largest + min(end.released_codebook.height, groups.largest) - 1:,} numbers of groups, where the noise hides that one is"
        " moved. Leave it out; or, to count the records of a group with each value as a group of their own, name"
        f" {' and '.join(end.axis.columns)} in input.group too.",
    )


def _refuse_rows(at_fault: pl.Series, table: Table, rule: str) -> None:
    """Refuse rows of the public list, by their numbers."""
    if at_fault.any():
        raise table.fault(f"{rule}; see row {rows_named(at_fault)}, not counting the header.")

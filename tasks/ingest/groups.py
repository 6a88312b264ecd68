"""Groups of records, such as households: the confidential table becomes counts of groups of at least each size. Shows no value."""

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
        region: that of the finest region of a group.
    """

    table: Table
    columns: tuple[str, ...]
    region: str


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


def read_listed(listed: ListedGroups, region: End) -> tuple[pl.DataFrame, IntArray]:
    """Return the codes of all listed groups with their regions, and how many groups each finest released region has.

    Args:
        region: the axis of the regions, with its codebook.
    Returns:
        Columns code_0, code_1, …, area and place, as `area_of_codes` returns them; and int64, shape (regions,).
    Raises:
        InputError: the list cannot be read, lacks a column, has a blank code, repeats a group or names an unknown region.
    """
    wanted = [*listed.columns, listed.region]
    with reader(listed.table) as con, opened(con, listed.table) as rows:
        check_columns(listed.table, rows, wanted)
        texts = [f"{identifier(name)}::VARCHAR AS code_{part}" for part, name in enumerate(listed.columns)]
        groups: pl.DataFrame = con.sql(
            f"SELECT {', '.join(texts)}, {identifier(listed.region)}::VARCHAR AS region FROM {rows.scan(wanted)}"
        ).pl()
    keys = [f"code_{part}" for part in range(len(listed.columns))]
    for name, column in zip((*listed.columns, listed.region), (*keys, "region"), strict=True):
        _refuse_rows(is_blank(groups[column]), listed.table, f"column {name} must not be empty")
    _refuse_rows(
        groups.select(keys).is_duplicated(),
        listed.table,
        f"column {' and '.join(listed.columns)} must list each group once",
    )
    region = replace(region, axis=replace(region.axis, columns=(listed.region,)))
    areas = area_of_codes(region).rename({"code_0": "region"})
    groups = groups.join(areas, on="region", how="left", maintain_order="left")
    if others := area_of_others(region):
        groups = groups.with_columns(pl.col("area").fill_null(others[0]), pl.col("place").fill_null(others[1]))
    _refuse_rows(
        groups["area"].is_null(), listed.table, f"column {listed.region} must hold codes of the codebook of the regions"
    )
    per_region = np.bincount(groups["area"].to_numpy().astype(np.int64), minlength=region.released_codebook.height)
    return groups.select(*keys, "area", "place"), per_region.astype(np.int64)


def ingest_groups(
    con: Connection, table: Table, ends: Sequence[End], count: str | None, units: Units, groups: GroupSource
) -> IntArray | None:
    """Write the table `records` of the vault: region, rank and, as true count, how many groups of the region have that many records.

    So the true count of rank s in a region is the number of groups of at least s records. A record that leaves a group lowers only
    the count of the group's last rank. Where the public list has groups without a record, rank 0 counts all groups.

    Args:
        ends: the axis of the regions, and that of the sizes.
        count: the column of counts; None where each row is one record.
        units: the bound on contributions, which is met before records are grouped.
    Returns:
        How many groups each region has, int64, shape (regions,), where a public list says so; None otherwise.
    Raises:
        InputError: as `ingest_trips`; or a group is in two regions, or not in the list.
    """
    region, _ = ends
    listed = None
    if groups.listed is None:
        codes = area_of_codes(region)
    else:
        codes, listed = read_listed(groups.listed, region)
        axis = replace(region.axis, field="input.group", columns=groups.columns, take=None, unlisted=None)
        region = replace(region, axis=axis, listed_by="input.groups")
    sum_table(con, table, [region], [codes], count, units, groups.columns)
    keys = ", ".join(f"group_{part}" for part in range(len(groups.columns)))
    if listed is None:
        _refuse_groups_in_two_regions(con, table, groups, keys)
    sized = f"SELECT area_0, least(sum(true_count), {groups.largest})::BIGINT AS size FROM summed WHERE true_count > 0 GROUP BY area_0, {keys}"
    sizes = con.execute(f"SELECT area_0, size, count(*)::BIGINT AS groups FROM ({sized}) GROUP BY ALL").fetchnumpy()
    regions, offset = region.released_codebook.height, 0 if listed is None else 1
    tails = np.zeros((regions, groups.largest + offset), dtype=np.int64)
    tails[sizes["area_0"], sizes["size"] - 1 + offset] = sizes["groups"]
    np.cumsum(tails[:, ::-1], axis=1, out=tails[:, ::-1])
    if listed is not None:
        tails[:, 0] = listed
    area, rank = np.nonzero(tails)
    records = pl.DataFrame({"area_0": area, "area_1": rank, "true_count": tails[area, rank]})  # noqa: F841 (DuckDB finds it)
    con.execute("CREATE TABLE records AS SELECT area_0, area_1, true_count FROM records")
    con.execute("DROP TABLE summed")
    return listed


def _refuse_groups_in_two_regions(con: Connection, table: Table, groups: GroupSource, keys: str) -> None:
    twice = f"SELECT 1 FROM summed GROUP BY {keys} HAVING count(DISTINCT area_0) > 1"
    at_fault = con.execute(f"SELECT count(*) FROM ({twice})").fetchall()[0][0]
    if at_fault:
        tell_caller(f"{at_fault:,} {'group is' if at_fault == 1 else 'groups are'} at fault.")
        raise InputError(
            f"{table.field}: column {' and '.join(groups.columns)} has a group in two regions; a group must lie in one.",
            field="input.group",
            hint="Correct the table; or, to count the part of a group in each region as a group of its own, name the column of the"
            " region in input.group too.",
        )


def _refuse_rows(at_fault: pl.Series, table: Table, rule: str) -> None:
    """Refuse rows of the public list, by their numbers."""
    if at_fault.any():
        raise table.fault(f"{rule}; see row {rows_named(at_fault)}, not counting the header.")

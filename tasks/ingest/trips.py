"""The confidential table: checked, coded by the codebooks, and summed into the vault. Nothing of it is shown."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.database import Connection
from storage.errors import InputError
from tasks.ingest.tables import Table, check_columns, identifier, opened
from tasks.tree.axis import axis_from_codebook

LARGEST_TOTAL = 2**40  # records; with it and sigma <= 2**32 no arithmetic on noisy counts can overflow


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """One axis of the table: where its codes stand, and what they mean.

    Attributes:
        name: the axis, such as `origin`.
        columns: the confidential table's columns: one with the codebook's finest code, or one per level.
        codebook: every finest area, as `read_codebook` returns it.
        finest: the level of the codebook down to which the axis is released.
    """

    name: str
    columns: tuple[str, ...]
    codebook: pl.DataFrame
    finest: str


def ingest_trips(con: Connection, table: Table, ends: Sequence[End], count: str | None) -> None:
    """Write the table `records` of the vault: area_0, area_1, … and true_count, summed over equal areas.

    Args:
        con: the vault.
        table: the confidential table.
        ends: its axes.
        count: the column of counts; None where a row is a record.
    Raises:
        InputError: names the column and the rule that some rows break; how many is said on the terminal only.
    """
    for number, end in enumerate(ends):
        con.register(f"codes_{number}", _codes(end))
    with opened(con, table) as rows:
        check_columns(
            con, table, rows, [*(column for end in ends for column in end.columns), *([count] if count else [])]
        )
        con.execute(_summed(rows, ends, count))
    _refuse_faults(con, table, ends, count)
    total = con.execute("SELECT coalesce(sum(true_count), 0)::HUGEINT FROM summed").fetchall()[0][0]
    if total == 0:
        raise InputError(f"{table.field} holds no records: there is nothing to release.", field=table.field)
    if total > LARGEST_TOTAL:
        raise InputError(f"{table.field}: the counts must add up to at most 2**40.", field="input.count")
    areas = ", ".join(f"area_{number}" for number in range(len(ends)))
    con.execute(
        f"CREATE TABLE records AS SELECT {areas}, true_count::BIGINT AS true_count FROM summed WHERE true_count > 0"
    )
    con.execute("DROP TABLE summed")


def _codes(end: End) -> pl.DataFrame:
    """Return, for each code (or path of codes) that a row may have, the number of the released area that holds it."""
    axis = axis_from_codebook(end.name, end.codebook)
    finest_area = pl.int_range(end.codebook.height, eager=True).to_numpy()
    area = axis.ancestors(finest_area, axis.depth, end.codebook.columns.index(end.finest) + 1)
    levels = end.codebook.columns[-len(end.columns) :]
    keys = {f"code_{number}": end.codebook[level] for number, level in enumerate(levels)}
    return pl.DataFrame(keys | {"area": area})


def _summed(rows: str, ends: Sequence[End], count: str | None) -> str:
    """Return the one query over the confidential table: sums per pair of areas, and how many rows break each rule."""
    digits = f"trim({_text_of(count)})" if count else "'1'"
    joins, faults = [], {}
    for number, end in enumerate(ends):
        code = [_text_of(column) for column in end.columns]
        on = " AND ".join(f"codes_{number}.code_{part} = {text}" for part, text in enumerate(code))
        joins.append(f"LEFT JOIN codes_{number} ON {on}")
        blank = " OR ".join(f"{text} IS NULL OR trim({text}) = ''" for text in code)
        faults[f"blank_{number}"] = blank
        faults[f"unknown_{number}"] = f"NOT ({blank}) AND codes_{number}.area IS NULL"
    whole = f"regexp_full_match({digits}, '[+]?[0-9]+([.]0*)?')"
    value = f"TRY_CAST(regexp_extract({digits}, '[0-9]+') AS BIGINT)"
    faults["no_count"] = f"{digits} IS NULL OR {digits} = ''"
    faults["negative"] = f"{digits} LIKE '-%'"
    faults["fractional"] = f"{digits} <> '' AND NOT {digits} LIKE '-%' AND NOT {whole}"
    faults["overflow"] = f"{whole} AND {value} IS NULL"
    areas = ", ".join(f"codes_{number}.area AS area_{number}" for number in range(len(ends)))
    counted = ", ".join(f"count(*) FILTER (WHERE {fault}) AS {name}" for name, fault in faults.items())
    return (
        f"CREATE TABLE summed AS SELECT {areas}, sum(CASE WHEN {whole} THEN {value} END) AS true_count, {counted}"
        f" FROM {rows} AS confidential {' '.join(joins)} GROUP BY ALL"
    )


def _text_of(column: str) -> str:
    return f"confidential.{identifier(column)}::VARCHAR"


def _refuse_faults(con: Connection, table: Table, ends: Sequence[End], count: str | None) -> None:
    rules = {}
    for number, end in enumerate(ends):
        columns = " and ".join(end.columns)
        rules[f"blank_{number}"] = f"input.{end.name}", f"column {columns} must not be empty."
        rules[f"unknown_{number}"] = f"input.{end.name}", f"column {columns} has codes that the codebook lacks."
    rules |= {
        "no_count": ("input.count", f"column {count} must not be empty."),
        "negative": ("input.count", f"column {count} must be >= 0."),
        "fractional": ("input.count", f"column {count} must hold whole numbers."),
        "overflow": ("input.count", f"column {count} must hold numbers below 2**63."),
    }
    found = con.execute(
        f"SELECT {', '.join(f'coalesce(sum({name}), 0)::BIGINT' for name in rules)} FROM summed"
    ).fetchall()[0]
    for (field, rule), rows in zip(rules.values(), found, strict=True):
        if rows:
            tell_operator(f"{rows:,} {'row is' if rows == 1 else 'rows are'} at fault.")
            raise InputError(f"{table.field}: {rule}", field=field)


def tell_operator(text: str) -> None:
    """Say something about the confidential table where only the caller reads it: on the terminal."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (the one place for it)

"""The ingest stage: table and codebooks in, records in the vault out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import polars as pl

from storage.counts.shards import write_codebook
from storage.counts.vault import remove_vault, vault, write_true_codebook
from storage.database.connections import Connection
from storage.errors import InputError
from storage.machine.files import sha256_of
from tasks.ingest.codebook import Unlisted, Values, down_to, read_codebook
from tasks.ingest.tables import Table, same_content, same_table
from tasks.ingest.trips import End, Units, codes_of_records, ingest_trips
from tasks.stage import stage


@dataclass(frozen=True, slots=True)
class AxisSource:
    """Where an axis comes from.

    Attributes:
        name: the axis.
        field: the spec's key that names its columns, for errors.
        columns: of the confidential table: one with finest codes, or one per level.
        codebook: the public table, or the codes that the spec itself says, or none of both.
        sha256: of the table's file, when the release was planned, or of the codes; where no codebook lists them, what is
            said in its place.
        levels: the codebook's columns, coarse to fine.
        finest: the level down to which the axis is released.
    """

    name: str
    field: str
    columns: tuple[str, ...]
    codebook: Table | Values | Unlisted
    sha256: str
    levels: tuple[str, ...]
    finest: str


@dataclass(frozen=True, slots=True)
class Source:
    """The confidential table and the axes on which its records lie.

    Attributes:
        count: the column of counts; None where a row is a record.
    """

    table: Table
    count: str | None
    axes: tuple[AxisSource, ...]


def read_ends(source: Source) -> tuple[End, ...]:
    """Return the axes of a table with their codebooks, empty where none lists the codes; the confidential table is not opened.

    Raises:
        InputError: a codebook breaks a rule, or is the confidential table by its name or its columns.
    """
    confidential = frozenset(column for axis in source.axes for column in axis.columns)
    for codebook in _tables(source):
        if same_table(codebook, source.table):
            raise _confidential_codebook(codebook)
    read = cache(read_codebook)  # one codebook often serves both ends

    def codebook_of(axis: AxisSource) -> pl.DataFrame:
        if not isinstance(axis.codebook, Table):
            return axis.codebook.codebook()
        by_path = len(axis.columns) > 1
        # The codebook of a table's only feature may well have a column of its name.
        not_all_of = confidential if len(confidential) > 1 else None
        return read(axis.codebook, axis.levels, by_path=by_path, not_all_of=not_all_of)

    return tuple(
        End(
            axis.name,
            axis.field,
            axis.columns,
            codebook_of(axis),
            axis.finest,
            listed_by=f"hierarchy.{axis.name}" if isinstance(axis.codebook, Values) else "",
        )
        for axis in source.axes
    )


def with_codes_of_records(con: Connection, source: Source, ends: Sequence[End]) -> tuple[End, ...]:
    """Return axes with the codes that the records have, where no codebook lists them. Confidential.

    Args:
        con: the vault, or what is in memory alone where the table may be seen.
        source: the table, which is opened.
        ends: its axes, from `read_ends`.
    Raises:
        InputError: the table cannot be read, or lacks a column.
    """
    return tuple(
        replace(end, codebook=codes_of_records(con, source.table, end)) if isinstance(axis.codebook, Unlisted) else end
        for axis, end in zip(source.axes, ends, strict=True)
    )


def _tables(source: Source) -> list[Table]:
    """Return the codebooks that are tables."""
    return [axis.codebook for axis in source.axes if isinstance(axis.codebook, Table)]


def _confidential_codebook(codebook: Table) -> InputError:
    return InputError(
        f"{codebook.field} must not be the confidential table: its areas would tell who travels.",
        field=codebook.field,
        hint="Name a public codebook of all areas.",
    )


@stage("ingest")
def ingest(release_id: str, source: Source, units: Units, promised: Sequence[int], memory: int) -> None:
    """Check the table and write its records to the vault of a release, and the codebooks beside its shards.

    Codes that no codebook lists go to the vault, like the records that they are known from.

    Args:
        release_id: the release.
        source: where the table and the codebooks are.
        units: the bound on contributions.
        promised: per axis, the axis level at which a unit's records are promised distinct.
        memory: bytes that it may take.
    Raises:
        InputError: a table or a codebook breaks a rule, or a codebook has changed since it was planned, or is the table itself.
    """
    remove_vault(release_id)
    for axis in source.axes:
        if not isinstance(axis.codebook, Table):
            continue
        if same_content(axis.codebook, source.table):
            raise _confidential_codebook(axis.codebook)
        if sha256_of(axis.codebook.path) != axis.sha256:
            raise InputError(f"{axis.codebook.field} has changed since it was planned.", field=axis.codebook.field)
    ends = read_ends(source)
    with vault(release_id, read_only=False, memory=memory) as con:
        ends = with_codes_of_records(con, source, ends)
        for number, (axis, end) in enumerate(zip(source.axes, ends, strict=True)):
            codebook = down_to(end.codebook, end.finest)
            if isinstance(axis.codebook, Unlisted):
                write_true_codebook(con, number, codebook)
            else:
                write_codebook(release_id, end.name, codebook)
        ends = tuple(replace(end, promised=level) for end, level in zip(ends, promised, strict=True))
        ingest_trips(con, source.table, ends, source.count, units)

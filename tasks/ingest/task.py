"""The ingest stage: reads the table and the codebooks, and writes the records to the vault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import duckdb
import numpy as np
import polars as pl

from storage.counts.shard_files import write_area_table, write_codebook, write_derived, write_groups
from storage.counts.vault import read_records, remove_vault, vault, write_true_codebook
from storage.database.connections import Connection
from storage.errors import InputError
from storage.ledger.recognition import Columns
from tasks.ingest.areas import read_names, read_shapes
from tasks.ingest.codebook import Unlisted, read_codebook, read_recode, with_unlisted_area
from tasks.ingest.contents import same_content
from tasks.ingest.derived import DerivedSource, check_derived, read_derived
from tasks.ingest.groups import GroupSource, ingest_groups, read_listed
from tasks.ingest.shape_files import read_features
from tasks.ingest.tables import Table, same_table
from tasks.ingest.trips import AxisSource, End, Units, codes_of_records, ingest_trips
from tasks.tree.axis import IntArray, axis_from_codebook
from tasks.tree.order import Tree
from tasks.work.stage import stage

_CODEBOOK = "its areas would reveal who is in it.", "Give a public codebook of all areas, in a file of its own."
_TAKEN = "List what records can have: without its code, a record would be refused, or be in the area of all others."


@dataclass(frozen=True, slots=True)
class TableSource:
    """The confidential table, with the columns and codes of its axes, and all public tables.

    Attributes:
        count: the column of counts; None where each row is one record.
        groups: what groups are, where their sizes are released; the axes are then the regions and the sizes.
        hashes: the sha256 of every public table at the time of planning, by the spec's key that names it.
    """

    table: Table
    count: str | None
    axes: tuple[AxisSource, ...]
    groups: GroupSource | None = None
    derived: tuple[DerivedSource, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def public_tables(self) -> dict[str, Table]:
        """Every table that a release reads, by the spec's key that names it, except the confidential one."""
        return {table.field: table for table in [*_public(self), *(column.table for column in self.derived)]}

    @property
    def codebooks(self) -> dict[str, str]:
        """Per axis the sha256 of its codebook, or of the codes that the spec lists; without either, the text that replaces it."""
        return {
            axis.name: self.hashes[axis.codebook.field] if isinstance(axis.codebook, Table) else axis.codebook.sha256
            for axis in self.axes
        }

    @property
    def columns(self) -> Columns:
        """The columns by which the records of the confidential table are recognised; not that of units, which may have other names."""
        of_axes = () if self.groups and self.groups.listed else (name for axis in self.axes for name in axis.columns)
        of_groups = self.groups.columns if self.groups else ()
        return Columns(tuple(dict.fromkeys([*of_axes, *of_groups])), self.count)


def read_ends(source: TableSource) -> tuple[End, ...]:
    """Return the axes with their codebooks, empty for an axis without one. Does not open the confidential table.

    Raises:
        InputError: a codebook breaks a rule, is the confidential table by its place or its columns, or has no code that is taken.
    """
    of_groups = source.groups.columns if source.groups else ()
    confidential = frozenset([*(column for axis in source.axes for column in axis.columns), *of_groups])
    for codebook in _public(source):
        if same_table(codebook, source.table):
            raise codebook.confidential(*_CODEBOOK)
    read = cache(read_codebook)  # both ends often use the same codebook

    def end_of(axis: AxisSource) -> End:
        if not isinstance(axis.codebook, Table):
            listed_by = "" if isinstance(axis.codebook, Unlisted) else f"hierarchy.{axis.name}"
            return End(axis, axis.codebook.codebook(), listed_by=listed_by)
        by_path = len(axis.columns) > 1
        # With a single feature, its codebook may have a column of the same name.
        not_all_of = confidential if len(confidential) > 1 else None
        areas = read(axis.codebook, axis.levels, by_path=by_path, not_all_of=not_all_of, own_area=axis.own_area)
        return End(axis, areas if axis.unlisted is None else with_unlisted_area(areas, axis.unlisted, axis.codebook))

    ends = tuple(map(end_of, source.axes))
    for end in ends:
        take = None if end.codebook.is_empty() else end.axis.take
        if take and (fault := take.fault(end.own_codes, end.axis.unlisted)):
            field = end.axis.codebook.field if isinstance(end.axis.codebook, Table) else end.listed_by
            raise InputError(f"{field} {fault}.", field=field, hint=_TAKEN)
    return tuple(
        replace(end, recoded=read_recode(end.axis.recode, end.codebook)) if end.axis.recode else end for end in ends
    )


def with_codes_of_records(con: Connection, source: TableSource, ends: Sequence[End]) -> tuple[End, ...]:
    """Return the axes; those without a codebook get the codes in the records. Confidential.

    Args:
        con: the vault, or a database in memory if anybody may see the table.
        ends: its axes, from `read_ends`.
    Raises:
        InputError: the table cannot be read, or lacks a column.
    """
    return tuple(
        replace(end, codebook=codes_of_records(con, source.table, end))
        if isinstance(end.axis.codebook, Unlisted)
        else end
        for end in ends
    )


def names_of(ends: Sequence[End]) -> dict[tuple[str, int], pl.DataFrame]:
    """Return the names of the areas down to the finest released levels, as in `Names`. Does not open the confidential table.

    Raises:
        InputError: as `read_names`.
    """
    names: dict[tuple[str, int], pl.DataFrame] = {}
    for end in ends:
        if end.axis.labels:
            table = end.axis.codebook if isinstance(end.axis.codebook, Table) else None
            by_level = read_names(end.axis.labels, end.released_codebook, table, own_area=end.axis.own_area)
            names |= {(end.name, level): areas for level, areas in by_level.items()}
    return names


def shapes_of(ends: Sequence[End]) -> dict[tuple[str, int], pl.DataFrame]:
    """Return the shapes of the areas down to the finest released levels, as in `Shapes`. Does not open the confidential table.

    Raises:
        InputError: as `read_shapes`.
    """
    read = cache(read_features)  # both ends often use the same file
    shapes: dict[tuple[str, int], pl.DataFrame] = {}
    done: list[tuple[End, dict[int, pl.DataFrame]]] = []
    for end in ends:
        if end.axis.boundaries:
            by_level = next((of_other for other, of_other in done if _have_same_shapes(other, end)), None)
            if by_level is None:
                by_level = read_shapes(end.axis.boundaries, end.codebook, end.released_codebook.width, read)
                done.append((end, by_level))
            shapes |= {(end.name, level): areas for level, areas in by_level.items()}
    return shapes


def _have_same_shapes(one: End, other: End) -> bool:
    same_files = one.axis.boundaries == other.axis.boundaries and one.axis.finest == other.axis.finest
    return same_files and one.codebook.equals(other.codebook)


def check_areas(ends: Sequence[End]) -> dict[tuple[str, int], int]:
    """Refuse names and shapes of areas that break a rule, and return how many areas of each axis level have a shape.

    Raises:
        InputError: as `names_of` and `shapes_of`.
    """
    names_of(ends)
    return {place: shapes.height for place, shapes in shapes_of(ends).items()}


def _public(source: TableSource) -> list[Table]:
    """Return the public tables: codebooks, codes that have changed, names and shapes in files of their own, and a list of groups."""
    tables = [axis.codebook for axis in source.axes if isinstance(axis.codebook, Table)]
    tables += [axis.recode.table for axis in source.axes if axis.recode]
    tables += [axis.labels.table for axis in source.axes if axis.labels and axis.labels.table]
    tables += [file for axis in source.axes if axis.boundaries for file in axis.boundaries.files.values()]
    return tables + ([source.groups.listed.table] if source.groups and source.groups.listed else [])


@stage("ingest")
def ingest(release_id: str, source: TableSource, units: Units, promised: Sequence[int], memory: int) -> None:
    """Check the table and write its records to the vault of a release, and the codebooks beside its shards.

    Codes without a codebook go to the vault, like the records from which they come.

    Args:
        promised: per axis, the axis level at which a unit's records are promised distinct.
        memory: the most memory to use, in bytes.
    Raises:
        InputError: a table breaks a rule, or a public one has changed since the release was planned, or is the confidential
            table itself.
    """
    remove_vault(release_id)
    for public in dict.fromkeys(_public(source)):  # both ends often use the same ones
        if same_content(public, source.table, source.columns):
            raise public.confidential(*_CODEBOOK)
    for key, public in source.public_tables.items():
        if public.sha256() != source.hashes[key]:
            raise InputError(f"{key} has changed since the release was planned.", field=key)
    ends = read_ends(source)
    with source.table.held() as table, vault(release_id, read_only=False, memory=memory) as con:
        source = replace(source, table=table)
        ends = with_codes_of_records(con, source, ends)
        for number, end in enumerate(ends):
            if isinstance(end.axis.codebook, Unlisted):
                write_true_codebook(con, number, end.released_codebook)
            else:
                write_codebook(release_id, end.name, end.released_codebook)
        _write_derived(release_id, source, ends)
        for (name, level), names in names_of(ends).items():
            write_area_table(release_id, "names", name, level, names)
        for (name, level), shapes in shapes_of(ends).items():
            write_area_table(release_id, "shapes", name, level, shapes)
        ends = tuple(replace(end, promised=level) for end, level in zip(ends, promised, strict=True))
        if source.groups is None:
            ingest_trips(con, source.table, ends, source.count, units)
            return
        listed = ingest_groups(con, source.table, ends, source.count, units, source.groups)
        if listed is not None:
            write_groups(release_id, listed)


def listed_groups(source: TableSource, ends: Sequence[End]) -> IntArray | None:
    """Return how many groups each finest place has by a public list, if there is one; does not read the confidential table.

    Raises:
        InputError: as `read_listed`.
    """
    return read_listed(source.groups.listed, ends[:-1])[1] if source.groups and source.groups.listed else None


def _write_derived(release_id: str, source: TableSource, ends: Sequence[End]) -> None:
    """Write the codes of derived columns beside the shards of a release."""
    tree = Tree(tuple(axis_from_codebook(end.name, end.released_codebook) for end in ends), ())
    for column in source.derived:
        check_derived(column, source.table, source.columns)
        read = read_derived(
            column, source.table, {name for axis in source.axes for name in axis.columns}, source.count, tree
        )
        write_derived(release_id, column.name, pl.DataFrame({"code": read.codes.gather(read.code_of)}))


def read_in_memory(
    source: TableSource, units: Units, promised: Sequence[int]
) -> tuple[dict[str, pl.DataFrame], list[IntArray], IntArray]:
    """Return the codebooks of a table, per axis the area of each record at the finest released level, and the true counts.

    Only for data that anybody may see. Nothing is stored.

    Args:
        promised: per axis, the axis level at which a unit's records are promised distinct.

    Raises:
        InputError: as `ingest_trips`.
    """
    with source.table.held() as table, duckdb.connect() as con:
        source = replace(source, table=table)
        ends = with_codes_of_records(con, source, read_ends(source))
        ends = tuple(replace(end, promised=level) for end, level in zip(ends, promised, strict=True))
        if source.groups is None:
            ingest_trips(con, source.table, ends, source.count, units)
        else:
            ingest_groups(con, source.table, ends, source.count, units, source.groups)
        areas, true_counts = read_records(con, len(source.axes))
    codebooks = {end.name: end.released_codebook for end in ends}
    return codebooks, [np.asarray(of_axis) for of_axis in areas], np.asarray(true_counts)

"""Counts with shapes, for maps: a GeoParquet table (1.1) for each level whose areas have shapes.

Where both ends of trips, or two features, have shapes, a row is a line from a point inside one area to a point inside the other; trips
inside one area have no line. Where one axis has, a row is the shape of its area. A row whose area has no shape has none either.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.tables import ENDS, ends_of
from tasks.folder.export.tables import PublishedTable, PublishedTables
from tasks.format.csv import of_rows
from tasks.format.manifest import Manifest
from tasks.format.published_tree import published_shapes
from tasks.format.tables import UNREADABLE
from tasks.words.areas import GEOMETRY, code_columns

FOLDER, ENDING = "geo", "parquet"

_NUMBER = "\0number"  # no column of codes has such a name
_LINE_STRING = 1  # as shapely numbers kinds of geometries
_LINES = 2  # axes with shapes, of which a row connects the areas


def shaped_axes(manifest: Manifest, axes: Any) -> list[str]:
    """Return the axes of which the rows of a level have a shape: one or two; none where the level gets no table.

    Args:
        axes: per axis, the name of the level that is reached.
    """
    roles = manifest.roles
    is_of_trips = ends_of(list(roles.values())) is not None
    refined = [axis for axis, level in axes.items() if level and (roles[axis] in ENDS or not is_of_trips)]
    shaped = [axis for axis in refined if axes[axis] in manifest.boundaries.get(axis, [])]
    if is_of_trips and shaped != refined:
        return []  # a line that has one end is none
    return shaped[:_LINES]


def write_maps(tables: PublishedTables, levels: Sequence[PublishedTable]) -> None:
    """Write the tables with shapes of some levels of a folder."""
    (tables.folder / FOLDER).mkdir()
    for table in levels:
        schema = tables.schema(table).append(pa.field(GEOMETRY, pa.binary()))
        geometries = _Geometries(tables, table)
        with pq.ParquetWriter(
            tables.folder / table.path_in(FOLDER, ENDING), schema, compression="zstd", store_schema=False
        ) as writer:
            for part in tables.parts(table):
                writer.write_table(part.append_column(GEOMETRY, geometries.of(part)).cast(schema))
            writer.add_key_value_metadata({"geo": geometries.metadata()})


class _Geometries:
    """The geometries of the rows of a level, and what the file says about them."""

    def __init__(self, tables: PublishedTables, table: PublishedTable) -> None:
        """Read the shapes of the areas of a level, and find a point inside each where lines connect them."""
        import shapely

        axes = shaped_axes(tables.manifest, table.axes)
        self._are_lines = len(axes) == _LINES
        self._bounds = np.full(4, np.nan)
        self._kinds: set[str] = set()
        shapes = published_shapes(tables.folder, tables.manifest)
        self._shapes = []
        for axis in axes:
            columns = tables.codes_of(table, axis)
            areas = shapes.tables[axis, len(columns)]
            codes = areas.select(code_columns(len(columns)))
            codes.columns = columns
            of_areas = np.asarray(shapely.from_wkb(areas[GEOMETRY].to_list()), dtype=object)
            self._shapes.append((codes.with_row_index(_NUMBER), of_areas))
        self._points = [shapely.point_on_surface(of_areas) for _, of_areas in self._shapes]

    def of(self, part: pa.Table) -> pa.Array:
        """Return the geometries of some rows, as WKB; missing where there is none."""
        import shapely

        made = self._made(part)
        self._note(made)
        return pa.array(shapely.to_wkb(made, byte_order=1).tolist(), pa.binary())

    def are_of(self, part: pa.Table, there: pa.Array) -> bool:
        """Return whether geometries are those of some rows. A line may end at any point of an area: versions of GEOS choose others."""
        import shapely

        expected, own = self._made(part), np.asarray(shapely.from_wkb(there.to_pylist()), dtype=object)
        self._note(own)
        known = ~shapely.is_missing(own)
        if not np.array_equal(known, ~shapely.is_missing(expected)):
            return False
        if np.all(own[known] == expected[known]):
            return True
        is_line = (shapely.get_type_id(own[known]) == _LINE_STRING) & (shapely.get_num_points(own[known]) == _LINES)
        if not (self._are_lines and is_line.all()):
            return False
        areas = (_taken(of, numbers)[known] for (_, of), numbers in zip(self._shapes, self._areas(part), strict=True))
        ends = (shapely.get_point(own[known], end) for end in (0, -1))
        return all(shapely.covers(area, end).all() for area, end in zip(areas, ends, strict=True))

    def _made(self, part: pa.Table) -> Any:
        places = self._areas(part)
        if self._are_lines:
            return _lines(*(_taken(of, numbers) for of, numbers in zip(self._points, places, strict=True)))
        return _taken(self._shapes[0][1], places[0])

    def _areas(self, part: pa.Table) -> list[pl.Series]:
        """Return, per axis with shapes, the numbers of the areas of some rows; null where an area has no shape."""
        rows, numbers = pl.DataFrame(part), []
        for codes, _ in self._shapes:
            columns = [column for column in codes.columns if column != _NUMBER]
            numbers.append(rows.select(columns).join(codes, on=columns, how="left", maintain_order="left")[_NUMBER])
        return numbers

    def _note(self, geometries: Any) -> None:
        import shapely

        there = geometries[~shapely.is_missing(geometries)]
        if len(there):
            self._kinds |= {shape.geom_type for shape in there}
            bounds = shapely.total_bounds(there)
            self._bounds = np.r_[np.fmin(self._bounds[:2], bounds[:2]), np.fmax(self._bounds[2:], bounds[2:])]

    def metadata(self) -> str:
        """Return what a GeoParquet file says about its geometries: degrees of longitude and latitude, their kinds and bounds."""
        column: dict[str, Any] = {"encoding": "WKB", "geometry_types": sorted(self._kinds)}
        if self._kinds:
            column["bbox"] = self._bounds.tolist()
        return json.dumps({"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})


def _taken(geometries: Any, numbers: pl.Series) -> Any:
    """Return the geometries with some numbers; None where a number is null."""
    taken = np.full(len(numbers), None, dtype=object)
    taken[numbers.is_not_null().to_numpy()] = geometries[numbers.drop_nulls().to_numpy()]
    return taken


def _lines(origins: Any, destinations: Any) -> Any:
    """Return the lines from points to points; None where a point is missing or both are the same."""
    import shapely

    lines = np.full(len(origins), None, dtype=object)
    both = ~(shapely.is_missing(origins) | shapely.is_missing(destinations))
    both[both] = ~shapely.equals(origins[both], destinations[both])
    if both.any():
        ends = np.stack([shapely.get_coordinates(of[both]) for of in (origins, destinations)], axis=1)
        lines[both] = shapely.linestrings(ends)
    return lines


def map_failures(tables: PublishedTables, levels: Sequence[PublishedTable]) -> list[str]:
    """Return where the tables with shapes differ from the tables of their levels, one sentence per file."""
    import shapely

    failures = []
    for table in levels:
        name = table.path_in(FOLDER, ENDING)
        try:
            if not _is_same(tables, table):
                failures.append(f"{name} differs from {table.path} or from the shapes of boundaries/.")
        except (*UNREADABLE, KeyError, ValueError, shapely.GEOSException):
            failures.append(f"{name} is missing or is not a GeoParquet file of level {table.level}.")
    return failures


def _is_same(tables: PublishedTables, table: PublishedTable) -> bool:
    path, geometries = tables.folder / table.path_in(FOLDER, ENDING), _Geometries(tables, table)
    if pq.read_schema(path).names != [*tables.schema(table).names, GEOMETRY]:
        return False
    there = _batches(path)
    for part in of_rows(tables.parts(table)):
        own = next(there, None)
        if own is None or own.num_rows != part.num_rows or not own.drop_columns(GEOMETRY).equals(part):
            return False
        if not geometries.are_of(part, own[GEOMETRY].combine_chunks()):
            return False
    stated = json.loads((pq.read_metadata(path).metadata or {})[b"geo"])
    return next(there, None) is None and stated == json.loads(geometries.metadata())


def _batches(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        yield from of_rows(pa.Table.from_batches([batch]) for batch in file.iter_batches())

"""The checks of what a published folder says of its areas: their names, and their shapes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import shapely

from tasks.format.csv import NAMES
from tasks.format.manifest import Manifest
from tasks.format.published_tree import BOUNDARIES, axes_of, axis_columns, names_path, shapes_path
from tasks.format.tables import UNREADABLE
from tasks.words.areas import GEOMETRY, geo_metadata, name_column


def atlas_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where names and shapes of areas are not those that the manifest lists, or say less or other than they should."""
    for name, check in ((NAMES, _names_failures), (BOUNDARIES, _shapes_failures)):
        try:
            if failures := check(folder, manifest):
                return failures
        except (*UNREADABLE, pl.exceptions.PolarsError):
            return [f"A table of {name}/ is not a Parquet file."]
    return []


def _names_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where the tables of names are not those that the manifest lists, or do not name each area once."""
    columns_of = _columns_by_level(manifest, manifest.names)
    if columns_of is None:
        return ["manifest.json: names must list levels that are released."]
    listed = {names_path(folder, columns[-1]): columns for columns in columns_of}
    if _files_in(folder / NAMES) != listed.keys():
        return [f"{NAMES}/ does not hold the tables that manifest.json lists."]
    return [
        f"{NAMES}/{path.name} does not name each area once, in the order of codes."
        for path, columns in listed.items()
        if not _names_each_once(pl.read_parquet(path, glob=False), columns)
    ]


def _shapes_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where the files of shapes are not those that the manifest lists, or do not have a shape for each of their areas."""
    columns_of = _columns_by_level(manifest, manifest.boundaries)
    if columns_of is None:
        return ["manifest.json: boundaries must list levels that are released."]
    listed = {shapes_path(folder, columns[-1]): columns for columns in columns_of}
    if _files_in(folder / BOUNDARIES) != listed.keys():
        return [f"{BOUNDARIES}/ does not hold the files that manifest.json lists."]
    return [
        f"{BOUNDARIES}/{path.name} {failure}"
        for path, columns in listed.items()
        if (failure := _misshapen(path, columns))
    ]


def _columns_by_level(manifest: Manifest, listed: Mapping[str, Sequence[str]]) -> list[list[str]] | None:
    """Return the columns of codes of each listed level, those of the levels above it first; None if one is not released."""
    axes = axes_of(manifest)
    if any(level not in axes.get(axis, ()) for axis, levels in listed.items() for level in levels):
        return None
    places = [(axis, axes[axis].index(level) + 1) for axis, levels in listed.items() for level in levels]
    return [axis_columns(manifest, axis)[:level] for axis, level in places]


def _files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _names_each_once(areas: pl.DataFrame, columns: Sequence[str]) -> bool:
    name = name_column(columns[-1])
    if areas.schema != dict.fromkeys([*columns, name], pl.String) or not areas.height:
        return False
    is_complete = areas.null_count().sum_horizontal().item() == 0 and (areas[name].str.strip_chars() != "").all()
    return is_complete and _are_sorted(areas.select(columns))


def _are_sorted(codes: pl.DataFrame) -> bool:
    """Return whether each area is there once, in the order of codes."""
    return not codes.is_duplicated().any() and codes.equals(codes.sort(codes.columns))


def _misshapen(path: Path, columns: Sequence[str]) -> str:
    """Return what is wrong with a file of shapes, as the end of a sentence; empty if nothing is."""
    areas = pl.read_parquet(path, glob=False)
    if areas.schema != dict.fromkeys(columns, pl.String) | {GEOMETRY: pl.Binary} or not areas.height:
        return "must have columns of codes, and geometry."
    if areas.null_count().sum_horizontal().item() or not _are_sorted(areas.select(columns)):
        return "does not have each area once, in the order of codes."
    shapes = shapely.from_wkb(areas[GEOMETRY].to_numpy(), on_invalid="ignore")
    kinds = {shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON}
    if not kinds.issuperset(shapely.get_type_id(shapes)) or not shapely.is_valid(shapes).all():
        return "has a shape that is not a valid polygon or several."
    if shapely.is_empty(shapes).any():
        return "has an area whose shape is empty."
    stated = (pq.read_schema(path).metadata or {}).get(b"geo", b"")
    if stated != geo_metadata(GEOMETRY, areas[GEOMETRY].to_list())[b"geo"]:
        return "does not say what its shapes are, as GeoParquet does."
    return ""

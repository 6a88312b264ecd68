"""The checks of what a published folder says of its areas: their names, and their shapes."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import shapely

from tasks.format.csv import NAMES
from tasks.format.manifest import Manifest
from tasks.format.published_tree import BOUNDARIES, axes_of, axis_columns, names_path, shapes_path
from tasks.format.tables import UNREADABLE
from tasks.words.areas import GEOMETRY, geo_metadata, name_column


def area_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where names and shapes of areas are not those that the manifest lists, or say less or other than they should."""
    for place, listed, path_of, fault_of in (
        (NAMES, manifest.names, names_path, _misnamed),
        (BOUNDARIES, manifest.boundaries, shapes_path, _misshapen),
    ):
        axes = axes_of(manifest)
        if any(level not in axes.get(axis, ()) for axis, levels in listed.items() for level in levels):
            return [f"manifest.json: {place} must list levels that are released."]
        codes = [
            axis_columns(manifest, axis)[: axes[axis].index(level) + 1]
            for axis, levels in listed.items()
            for level in levels
        ]
        columns_of = {path_of(folder, columns[-1]): columns for columns in codes}
        if {path for path in (folder / place).rglob("*") if path.is_file()} != columns_of.keys():
            return [f"{place}/ does not hold the files that manifest.json lists."]
        try:
            faults = {path.name: fault_of(path, columns) for path, columns in columns_of.items()}
        except UNREADABLE:
            return [f"A table of {place}/ is not a Parquet file."]
        if failures := [f"{place}/{name} {fault}" for name, fault in faults.items() if fault]:
            return failures
    return []


def _misnamed(path: Path, columns: Sequence[str]) -> str:
    """Return what is wrong with a table of names, as the end of a sentence; empty if nothing is."""
    areas, name = pl.read_parquet(path, glob=False), name_column(columns[-1])
    has_columns = areas.schema == dict.fromkeys([*columns, name], pl.String)
    is_named = has_columns and areas.height and (areas[name].str.strip_chars().fill_null("") != "").all()
    is_right = is_named and not areas.null_count().sum_horizontal().item() and _are_sorted(areas.select(columns))
    return "" if is_right else "does not name each area once, in the order of codes."


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

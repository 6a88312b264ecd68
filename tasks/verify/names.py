"""The check of the names of areas in a published folder."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tasks.atlas.names import name_column
from tasks.format.csv import NAMES
from tasks.format.manifest import Manifest
from tasks.format.published_tree import axes_of, axis_columns, names_path


def names_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where the tables of names are not those that the manifest lists, or do not name each area once."""
    axes = axes_of(manifest)
    if any(level not in axes.get(axis, ()) for axis, named in manifest.names.items() for level in named):
        return ["manifest.json: names must list levels that are released."]
    places = [(axis, axes[axis].index(level) + 1) for axis, named in manifest.names.items() for level in named]
    paths = [axis_columns(manifest, axis)[:level] for axis, level in places]
    listed = {names_path(folder, columns[-1]): columns for columns in paths}
    there = {path for path in (folder / NAMES).rglob("*") if path.is_file()}
    if there != listed.keys():
        return [f"{NAMES}/ does not hold the tables that manifest.json lists."]
    return [
        f"{NAMES}/{path.name} does not name each area once, in the order of codes."
        for path, columns in listed.items()
        if not _names_each_once(pl.read_parquet(path, glob=False), columns)
    ]


def _names_each_once(areas: pl.DataFrame, columns: Sequence[str]) -> bool:
    name = name_column(columns[-1])
    if areas.schema != dict.fromkeys([*columns, name], pl.String) or not areas.height:
        return False
    is_complete = areas.null_count().sum_horizontal().item() == 0 and (areas[name].str.strip_chars() != "").all()
    return is_complete and not areas.select(columns).is_duplicated().any() and areas.equals(areas.sort(columns))

"""The tree, the derived columns and the views of a published folder, from its manifest and what is published with noisy counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from storage.tables import column_name, domains_of, flat_features, is_ordered
from tasks.format.csv import NAMES
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.tree.axis import Axis, IntArray, axis_from_codebook
from tasks.tree.order import Tree
from tasks.tree.ordered import ordered_axis, with_unlisted
from tasks.tree.views import Derived, View, numbered_codes
from tasks.words.areas import GEOMETRY, NAME, Names, Shapes, code_columns

_AREA = "\0area"  # no column of codes has such a name

DERIVED = "derived"  # the folder of derived columns
BOUNDARIES = "boundaries"  # the folder of shapes


def derived_path(folder: Path, name: str) -> Path:
    """Return the path of a derived column in a published folder: a row for every combination of codes, in their order."""
    return folder / DERIVED / f"{name}.parquet"


def axes_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Return the axes, and the names of their released levels, coarse to fine."""
    return {
        axis: tuple(dict.fromkeys(name for entry in manifest.levels if (name := entry.axes[axis])))
        for axis in manifest.levels[0].axes
    }


def axes_by_path(manifest: Manifest) -> frozenset[str]:
    """Return the axes whose areas may share a code within a level, because a column per level identifies them: by their paths."""
    columns = manifest.spec.get("input")
    given = columns if isinstance(columns, dict) else {}
    return frozenset(axis for axis in axes_of(manifest) if isinstance(of := given.get(axis), list) and len(of) > 1)


def levels_named(manifest: Manifest, names: Mapping[str, str | None]) -> tuple[int, ...]:
    """Return, per axis, the axis level that an entry names; 0 for everything."""
    return tuple(
        levels.index(name) + 1 if (name := names.get(axis)) else 0 for axis, levels in axes_of(manifest).items()
    )


def steps_of(manifest: Manifest) -> tuple[int, ...]:
    """Return the order in which the axes are refined, as in `Tree`."""
    reached = [list(entry.axes.values()) for entry in manifest.levels]
    return tuple(
        next(axis for axis, name in enumerate(level) if name != above[axis]) for above, level in pairwise(reached)
    )


def tree_of_codebook(manifest: Manifest, codebook: pl.DataFrame) -> Tree:
    """Return the tree of a release, from the codebook that is published with its noisy counts."""
    axes = axes_of(manifest)
    return Tree(
        tuple(
            replace(_axis(codebook, axis, names), role=manifest.roles[axis], is_listed=axis not in manifest.unlisted)
            for axis, names in axes.items()
        ),
        steps_of(manifest),
    )


def tree_of_spec(manifest: Manifest) -> Tree | None:
    """Return the tree of a release whose spec lists the codes of every axis; None where a table does."""
    domains, axes = domains_of(manifest.spec), list[Axis]()
    for name, levels in axes_of(manifest).items():
        codebook = codebook_of_spec(name, domains.get(name))
        if codebook is None:
            return None
        axes.append(axis_from_codebook(name, codebook.select(levels).unique(maintain_order=True), manifest.roles[name]))
    return Tree(tuple(axes), steps_of(manifest))


def codebook_of_spec(name: str, domain: Any) -> pl.DataFrame | None:
    """Return the codebook of an axis whose codes its spec lists, in the order of its areas; None where a table does."""
    if is_ordered(domain):
        return ordered_axis(name, domain).codebook()
    values = domain.get("values") if isinstance(domain, dict) else domain
    if not isinstance(values, int | list):
        return None
    unlisted = domain.get("unlisted") if isinstance(domain, dict) else None
    return pl.DataFrame({name: sorted(with_unlisted(values, unlisted))})


def names_path(folder: Path, column: str) -> Path:
    """Return the path of the names of the areas that a column of codes holds, in a published folder."""
    return folder / NAMES / f"{column}.parquet"


def published_names(folder: Path, manifest: Manifest) -> Names:
    """Return the names of the areas of a published folder.

    Raises:
        OSError: a table is missing, or is not a Parquet file.
        polars.exceptions.PolarsError: likewise.
    """
    return Names(_of_areas(folder, manifest, manifest.names, names_path, NAME))


def _of_areas(
    folder: Path, manifest: Manifest, listed: Mapping[str, Sequence[str]], path: Callable[[Path, str], Path], value: str
) -> dict[tuple[str, int], pl.DataFrame]:
    """Return the tables of what areas have, by axis and axis level: columns of codes as in `Names`, and one of values."""
    tables = {}
    for axis, names in listed.items():
        levels, columns = axes_of(manifest)[axis], axis_columns(manifest, axis)
        for level in (levels.index(name) + 1 for name in names):
            areas = pl.read_parquet(path(folder, columns[level - 1]), glob=False)
            tables[axis, level] = areas.rename(dict(zip(areas.columns, [*code_columns(level), value], strict=True)))
    return tables


def shapes_path(folder: Path, column: str) -> Path:
    """Return the path of the shapes of the areas that a column of codes holds, in a published folder: GeoParquet."""
    return folder / BOUNDARIES / f"{column}.parquet"


def published_shapes(folder: Path, manifest: Manifest) -> Shapes:
    """Return the shapes of the areas of a published folder.

    Raises:
        OSError: a table is missing, or is not a Parquet file.
        polars.exceptions.PolarsError: likewise.
    """
    return Shapes(_of_areas(folder, manifest, manifest.boundaries, shapes_path, GEOMETRY))


def derived_columns(folder: Path, manifest: Manifest) -> dict[str, Derived]:
    """Return the derived columns of a release, by name.

    Raises:
        OSError: a table is missing, or is not a Parquet file.
        polars.exceptions.PolarsError: likewise.
    """
    return {
        name: numbered_codes(name, of, pl.read_parquet(derived_path(folder, name), glob=False)[name])
        for name, of in derived_places(manifest).items()
    }


def derived_places(manifest: Manifest) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the axis levels on which each derived column depends, as in `Derived`."""
    places = {
        column: (number, level)
        for number, axis in enumerate(axes_of(manifest))
        for level, column in enumerate(axis_columns(manifest, axis), 1)
    }
    return {name: tuple(places[column] for column in entry.of) for name, entry in manifest.derived.items()}


def view_of(manifest: Manifest, entry: LevelEntry, derived: Mapping[str, Derived]) -> View:
    """Return a level or view as it was measured, by its entry in the manifest and the derived columns by name."""
    columns = tuple(column for name, column in derived.items() if name in entry.axes)
    return View(entry.level, levels_named(manifest, entry.axes), entry.axes, columns)


def view_columns(manifest: Manifest, entry: LevelEntry) -> list[str]:
    """Return the columns of codes that the table of a level or view has: those of its axes, coarse to fine, then derived ones."""
    reached = zip(axes_of(manifest), levels_named(manifest, entry.axes), strict=True)
    codes = [column for axis, level in reached for column in axis_columns(manifest, axis)[:level]]
    return [*codes, *(name for name in manifest.derived if name in entry.axes)]


def axis_columns(manifest: Manifest, axis: str) -> list[str]:
    """Return the columns of codes of an axis, coarse to fine."""
    flat = flat_features(manifest.spec)
    return [column_name(axis, name, flat) for name in axes_of(manifest)[axis]]


def areas_of_rows(manifest: Manifest, tree: Tree, levels: Sequence[int], table: pl.DataFrame) -> tuple[IntArray, ...]:
    """Return, per axis, the numbers of the areas of some rows of a published table, int64, shape (rows,); -1 where there is no such area.

    The rows have the codes of these axis levels; 0 where they have none of an axis.
    """
    return tuple(
        _areas(axis, level, axis_columns(manifest, axis.name)[:level], table)
        for axis, level in zip(tree.axes, levels, strict=True)
    )


def _areas(axis: Axis, level: int, columns: list[str], table: pl.DataFrame) -> IntArray:
    if not level:
        return np.zeros(table.height, dtype=np.int64)
    numbers = axis.paths(level)
    numbers.columns = columns
    numbers = numbers.with_columns(pl.Series(_AREA, np.arange(numbers.height)))
    areas = table.select(columns).join(numbers, on=columns, how="left", maintain_order="left")[_AREA]
    return areas.fill_null(-1).to_numpy().astype(np.int64)


def _axis(codebook: pl.DataFrame, name: str, level_names: tuple[str, ...]) -> Axis:
    """Return an axis of a codebook that lists areas in the order of their numbers, each with the number of its parent."""
    of_axis = codebook.filter(pl.col("axis") == name)
    levels = [of_axis.filter(pl.col("level") == level) for level in level_names]
    parents = [level["parent"].to_numpy().astype(np.int64) for level in levels]
    return axis_of_levels(name, level_names, parents, [level["code"] for level in levels])


def axis_of_levels(
    name: str, level_names: tuple[str, ...], parents: Sequence[IntArray], codes: Sequence[pl.Series]
) -> Axis:
    """Return an axis by the parents and the codes of the areas of each level, which are sorted by their parents."""
    sizes = [1, *map(len, parents)]
    first_child = tuple(np.searchsorted(of, np.arange(size + 1)) for of, size in zip(parents, sizes, strict=False))
    return Axis(name, level_names, first_child, tuple(parents), tuple(codes))

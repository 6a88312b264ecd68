"""The names and shapes of areas as they are published: a table of each for each level that has some, with the codes of the counts' tables."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.tables import column_name
from tasks.format.csv import NAMES
from tasks.format.published_tree import BOUNDARIES, names_path, shapes_path
from tasks.tree.order import Tree
from tasks.words.areas import GEOMETRY, Names, Shapes, code_columns, geo_metadata, name_column


def write_names(folder: Path, tree: Tree, names: Names, flat: Collection[str]) -> dict[str, list[str]]:
    """Write the tables of names, and return per axis the levels that have one.

    Args:
        folder: the folder being published.
        tree: the axes.
        names: of their areas.
        flat: the features that have one level.
    """
    if names:
        (folder / NAMES).mkdir()
    written = {}
    for axis in tree.axes:
        columns = [column_name(axis.name, level, flat) for level in axis.level_names]
        for level in names.levels(axis.name):
            *path, last = columns[:level]
            as_published = dict(zip(code_columns(level), [*path, last], strict=True)) | {"name": name_column(last)}
            names.tables[axis.name, level].rename(as_published).write_parquet(names_path(folder, last))
        if found := names.levels(axis.name):
            written[axis.name] = [axis.level_names[level - 1] for level in found]
    return written


def write_boundaries(folder: Path, tree: Tree, shapes: Shapes, flat: Collection[str]) -> dict[str, list[str]]:
    """Write the files of shapes, and return per axis the levels that have one.

    Args:
        folder: the folder being published.
        tree: the axes.
        shapes: of their areas.
        flat: the features that have one level.
    """
    if shapes:
        (folder / BOUNDARIES).mkdir()
    written = {}
    for axis in tree.axes:
        columns = [column_name(axis.name, level, flat) for level in axis.level_names]
        for level in shapes.levels(axis.name):
            areas = shapes.tables[axis.name, level]
            table = pa.table(
                {
                    column: areas[own].to_arrow().cast(pa.string())
                    for column, own in zip(columns, areas.columns[:-1], strict=False)
                }
                | {GEOMETRY: areas[GEOMETRY].to_arrow().cast(pa.binary())},
                metadata=geo_metadata(GEOMETRY, areas[GEOMETRY].to_list()),
            )
            pq.write_table(table, shapes_path(folder, columns[level - 1]), compression="zstd")
        if found := shapes.levels(axis.name):
            written[axis.name] = [axis.level_names[level - 1] for level in found]
    return written

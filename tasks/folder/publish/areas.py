"""The names and shapes of areas as they are published: a table of each for each level that has some, with the codes of the counts' tables."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.tables import column_name
from tasks.format.csv import NAMES
from tasks.format.published_tree import BOUNDARIES, names_path, shapes_path
from tasks.tree.order import Tree
from tasks.words.areas import GEOMETRY, Names, Shapes, geo_metadata, name_column


def write_areas(
    folder: Path, tree: Tree, names: Names, shapes: Shapes, flat: Collection[str]
) -> dict[str, dict[str, list[str]]]:
    """Write the tables of names and of shapes, and return what the manifest lists of both: per axis the levels that have one."""
    listed = dict[str, dict[str, list[str]]]()
    for place, of_areas in ((NAMES, names), (BOUNDARIES, shapes)):
        listed[place] = {
            axis.name: [axis.level_names[level - 1] for level in levels]
            for axis in tree.axes
            if (levels := of_areas.levels(axis.name))
        }
        if of_areas:
            (folder / place).mkdir()
    for axis in tree.axes:
        columns = [column_name(axis.name, level, flat) for level in axis.level_names]
        for level in names.levels(axis.name):
            areas = names.tables[axis.name, level]
            published = dict(zip(areas.columns, [*columns[:level], name_column(columns[level - 1])], strict=True))
            areas.rename(published).write_parquet(names_path(folder, columns[level - 1]))
        for level in shapes.levels(axis.name):
            *codes, geometries = shapes.tables[axis.name, level].get_columns()
            table = {column: of.to_arrow().cast(pa.string()) for column, of in zip(columns, codes, strict=False)}
            table[GEOMETRY] = geometries.to_arrow().cast(pa.binary())
            metadata = geo_metadata(GEOMETRY, geometries.to_list())
            path = shapes_path(folder, columns[level - 1])
            pq.write_table(pa.table(table, metadata=metadata), path, compression="zstd")
    return listed

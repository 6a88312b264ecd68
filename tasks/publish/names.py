"""The names of areas as they are published: a table for each level that has some, with the codes of the counts' tables."""

from collections.abc import Collection
from pathlib import Path

from storage.counts.columns import column_name
from tasks.atlas.names import Names, code_columns, name_column
from tasks.format.csv import NAMES
from tasks.format.published_tree import names_path
from tasks.tree.order import Tree


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

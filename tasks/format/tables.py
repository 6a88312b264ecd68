"""Published tables: codes in place of area numbers, one table per level, written a row group at a time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.counts.columns import COUNT, column_name
from tasks.format.rows import Rows
from tasks.tree.axis import Axis
from tasks.tree.keys import AreaArray
from tasks.tree.order import Tree

ROW_GROUP = 1_000_000  # rows

_CODES = pa.dictionary(pa.int32(), pa.string())


def level_tables(
    tree: Tree,
    level: int,
    rows: Rows,
    row_group: int = ROW_GROUP,
    flat: Collection[str] = (),
    bounds: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Yield a level as readers get it, a row group at a time and at least one.

    Args:
        tree: the axes and their order.
        level: the tree level.
        rows: its nodes with a count above zero, in the order of their areas, which is that of their codes.
        row_group: the most rows of a row group.
        flat: the features that have one level.
        bounds: what the ends of the rows' intervals are called; where the rows have none, they are missing.
    Yields:
        One text column per axis and axis level reached, called by `column_name`, coarse to fine, then `count` and the bounds,
        int64; a row per node with a count above zero. Level 0 has no codes and one row. Text is encoded as a dictionary of
        the codes that occur, each once.
    """
    reached = tree.axis_levels(level)
    columns = {
        column_name(axis.name, axis.level_names[own_level - 1], flat): (
            number,
            _Codes(axis, reached[number], own_level),
        )
        for number, axis in enumerate(tree.axes)
        for own_level in range(1, reached[number] + 1)
    }
    schema = pa.schema([(name, _CODES) for name in columns] + [(name, pa.int64()) for name in (COUNT, *bounds)])
    for first in range(0, max(len(rows), 1), row_group):
        part = rows[first : first + row_group]
        texts = [codes.text(part.areas[axis]) for axis, codes in columns.values()]
        nothing = pa.nulls(len(part), pa.int64())
        ends = [pa.array(end) for end in part.bounds] if part.bounds else [nothing] * len(bounds)
        yield pa.table([*texts, pa.array(part.counts), *ends], schema=schema)


def write_parquet(path: Path, tables: Iterable[pa.Table], sorted_by: str) -> None:
    """Write tables of one schema as the row groups of one file, whose dictionaries read as plain text.

    Args:
        path: its place.
        tables: from `level_tables`.
        sorted_by: the first axis. Readers pass over row groups by what is known of its codes and of the counts; the
            codes of the others range over nearly all of their axis in every row group.
    """
    tables = iter(tables)
    first = next(tables)
    own = column_name(sorted_by, "")
    known = [name for name in first.column_names if name.startswith(own) or name in {sorted_by, COUNT}]
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        compression_level=1,
        dictionary_pagesize_limit=2**30,  # a dictionary that is given up in the middle makes the rest plain text
        write_statistics=known,
        store_schema=False,  # readers would be told that the codes are categories
    ) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


class _Codes:
    """The codes of one axis level, ready to be written for areas of the same level or a finer one."""

    def __init__(self, axis: Axis, level: int, own_level: int) -> None:
        distinct = axis.codes[own_level - 1].to_arrow().cast(pa.string()).dictionary_encode()  # a code may lie twice
        held_by = axis.ancestors(np.arange(axis.areas(level)), level, own_level)
        self._of_area: NDArray[np.int32] = distinct.indices.to_numpy()[held_by]
        self._codes = distinct.dictionary

    def text(self, areas: AreaArray) -> pa.DictionaryArray:
        """Return the codes of some areas as indices into a dictionary of those that occur."""
        codes = self._of_area[areas]
        occurs = np.zeros(len(self._codes), dtype=bool)
        occurs[codes] = True
        position = np.cumsum(occurs, dtype=np.int32) - 1
        return pa.DictionaryArray.from_arrays(position[codes], self._codes.filter(pa.array(occurs)))

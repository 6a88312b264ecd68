"""Published tables: one per level, with codes in place of area numbers, written one row group at a time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.counts.columns import COUNT, SIGNAL, column_name
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
    """Yield a level as it is published, one row group at a time, at least one.

    Args:
        tree: the axes and their order.
        level: the tree level.
        rows: its nodes with a count above zero, in the order of their areas, which is the order of their codes.
        row_group: the largest number of rows in a row group.
        flat: the features that have one level.
        bounds: the names of the columns for the ends of intervals; their values are missing if the rows have no intervals.
    Yields:
        One text column per axis and axis level reached, named by `column_name`, coarse to fine, then `count` and the bounds,
        int64, then `signal`, bool, missing if the rows do not have it; one row per node with a count above zero. Level 0 has no
        codes and one row. Text is encoded as a dictionary that has each occurring code once.
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
    numbers = [(name, pa.int64()) for name in (COUNT, *bounds)]
    schema = pa.schema([(name, _CODES) for name in columns] + numbers + [(SIGNAL, pa.bool_())])
    for first in range(0, max(len(rows), 1), row_group):
        part = rows[first : first + row_group]
        texts = [codes.text(part.areas[axis]) for axis, codes in columns.values()]
        nothing = pa.nulls(len(part), pa.int64())
        ends = [pa.array(end) for end in part.bounds] if part.bounds else [nothing] * len(bounds)
        signal = pa.nulls(len(part), pa.bool_()) if part.signal is None else pa.array(part.signal)
        yield pa.table([*texts, pa.array(part.counts), *ends, signal], schema=schema)


def write_parquet(path: Path, tables: Iterable[pa.Table], sorted_by: str) -> None:
    """Write tables of one schema as the row groups of one file; readers see its dictionaries as plain text.

    Args:
        path: the file.
        tables: the tables, from `level_tables`.
        sorted_by: the first axis. The file has statistics of its codes and of the counts, by which readers skip row groups. The
            codes of the other axes range over nearly the whole axis in every row group.
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
        dictionary_pagesize_limit=2**30,  # a full dictionary would make the rest of the column plain text
        write_statistics=known,
        store_schema=False,  # otherwise readers would take the codes for categories
    ) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


class _Codes:
    """The codes of one axis level, ready to write for areas of the same or a finer level."""

    def __init__(self, axis: Axis, level: int, own_level: int) -> None:
        distinct = axis.codes[own_level - 1].to_arrow().cast(pa.string()).dictionary_encode()  # a code may occur twice
        held_by = axis.ancestors(np.arange(axis.areas(level)), level, own_level)
        self._of_area: NDArray[np.int32] = distinct.indices.to_numpy()[held_by]
        self._codes = distinct.dictionary

    def text(self, areas: AreaArray) -> pa.DictionaryArray:
        """Return the codes of areas as indices into a dictionary of the codes that occur."""
        codes = self._of_area[areas]
        occurs = np.zeros(len(self._codes), dtype=bool)
        occurs[codes] = True
        position = np.cumsum(occurs, dtype=np.int32) - 1
        return pa.DictionaryArray.from_arrays(position[codes], self._codes.filter(pa.array(occurs)))

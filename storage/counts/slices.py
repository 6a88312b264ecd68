"""Slices of a vault: the true nodes of one level of one branch of the trunk, encrypted, for the workers of a cluster.

A slice is Parquet inside of a file of ciphertext (`storage.mailbox.ciphertext`), with the columns `area_<axis>`, `true_count`,
`first_child` and `children`, a row per true node, in row groups of 131,072. The nodes are at consecutive positions of the level;
the first of them is in the file's metadata. Positions of children are those of the vault.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.counts.shard_files import IntArray
from storage.counts.vault import read_true_rows
from storage.database.connections import Connection
from storage.errors import StoreError
from storage.machine.files import beside
from storage.mailbox.ciphertext import EncryptedReader, EncryptedWriter
from storage.mailbox.keys import key_name

SLICE_ROWS = 2**17  # of a row group, and at a time

_FIRST = b"first_position"


def slice_name(release_id: str, key: bytes, level: int, branch: str) -> str:
    """Return the name of a slice in the mailbox, other than under any other key of the release.

    Args:
        branch: a branch of the trunk; branches into which it is cut read its slices.
    """
    return f"{release_id}/slices/{key_name(key)}/level_{level}_{branch}.slice"


def write_slice(path: Path, con: Connection, level: int, axes: int, nodes: range, key: bytes, name: str) -> None:
    """Write the true nodes of a level at some positions to an encrypted file, a part of them at a time. Confidential.

    Args:
        path: the file, which is complete or absent.
        nodes: the positions, without gaps.
    Raises:
        StoreError: the level is not complete in the vault.
    """
    columns = [*(f"area_{axis}" for axis in range(axes)), "true_count", "first_child", "children"]
    metadata = {_FIRST: str(nodes.start).encode()}
    schema = pa.schema([(column, pa.int64()) for column in columns], metadata)
    with beside(path) as file:
        encrypted = EncryptedWriter(file, key, name)
        with pq.ParquetWriter(encrypted, schema, compression="zstd", compression_level=1) as writer:
            for first in range(nodes.start, nodes.stop, SLICE_ROWS):
                rows = read_true_rows(con, level, range(axes), first, min(first + SLICE_ROWS, nodes.stop))
                writer.write_table(pa.table([rows[column] for column in columns], schema=schema), SLICE_ROWS)
        encrypted.finish()


@contextmanager
def open_slice(path: Path, key: bytes, name: str) -> Iterator["Slice"]:
    """Open a slice.

    Raises:
        StoreError: the file is not what was written under this name with this key; reading a part of it raises it too.
    """
    with EncryptedReader(path, key, name) as reader, pq.ParquetFile(reader, pre_buffer=False) as file:
        first = int((file.schema_arrow.metadata or {})[_FIRST])
        yield Slice(file, name, first)


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """An open slice: its Parquet, its name in the mailbox, and the position of its first node."""

    file: pq.ParquetFile
    name: str
    first: int

    def nodes(self, lowest: Sequence[int], highest: Sequence[int]) -> tuple[list[IntArray], IntArray, IntArray]:
        """Return the areas per axis, `first_child` and `children` of the nodes between the first and last area of each axis. Confidential."""
        bounds = list(zip(lowest, highest, strict=True))
        names = [f"area_{axis}" for axis in range(len(bounds))]
        parts = []
        for group in self._groups_within(bounds):
            table = self.file.read_row_group(group, [*names, "first_child", "children"], use_threads=False)
            columns = [table.column(name).to_numpy() for name in table.column_names]
            within = np.ones(table.num_rows, dtype=bool)
            for areas, (least, most) in zip(columns, bounds, strict=False):
                within &= (areas >= least) & (areas <= most)
            parts.append([column[within] for column in columns])
        nothing = [np.zeros(0, dtype=np.int64) for _ in (*names, "first_child", "children")]
        *areas, first_child, children = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
        return areas, first_child, children

    def counts(self, axis: int, first: int, end: int) -> tuple[IntArray, IntArray]:
        """Return the areas on one axis and the true counts of the nodes from a first position to an end. Confidential.

        Raises:
            StoreError: the slice does not hold all of them.
        """
        if first >= end:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        begin, stop = first - self.first, end - self.first
        if begin < 0 or stop > self.file.metadata.num_rows:
            raise StoreError(f"{self.name} does not hold the children of the level above.", field="mailbox")
        groups = range(begin // SLICE_ROWS, (stop - 1) // SLICE_ROWS + 1)
        table = self.file.read_row_groups(list(groups), [f"area_{axis}", "true_count"], use_threads=False)
        rows = slice(begin - groups.start * SLICE_ROWS, stop - groups.start * SLICE_ROWS)
        return table.column(f"area_{axis}").to_numpy()[rows], table.column("true_count").to_numpy()[rows]

    def _groups_within(self, bounds: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yield the row groups that may have areas within bounds, by the extremes that Parquet keeps of each."""
        for number in range(self.file.num_row_groups):
            group = self.file.metadata.row_group(number)
            extremes = (group.column(axis).statistics for axis in range(len(bounds)))
            if all(
                of is None or (of.max >= least and of.min <= most)
                for of, (least, most) in zip(extremes, bounds, strict=True)
            ):
                yield number

"""Shelves: where the shards of one release are kept, by name. A release has a folder; a comparison keeps them in memory."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from storage.counts.shards import WHOLE, read_row_groups, read_shard_table, shard_path, write_codebook, write_shard

Group = Mapping[str, Any]  # arrays of equal length by the names of their columns


class Shelf(Protocol):
    """Where the shards of one release are kept. A shard is complete or absent, and identified by its hash."""

    def write(
        self,
        name: str,
        columns: tuple[str, ...],
        groups: Iterable[Group],
        kind: pa.DataType = WHOLE,
        texts: Collection[str] = (),
    ) -> str:
        """Write a shard, as `write_shard` does, and return its hash."""

    def groups(self, name: str, digest: str) -> Iterator[dict[str, Any]]:
        """Yield the columns of a shard whose hash is the recorded one, a row group at a time, as `read_row_groups` does."""

    def table(self, name: str, digest: str) -> pa.Table:
        """Return a shard whose hash is the recorded one."""

    def keep_codebook(self, axis: str, codebook: pl.DataFrame) -> None:
        """Keep the codebook of an axis whose codes come from the released counts."""


def read_columns(shelf: Shelf, name: str, digest: str) -> dict[str, Any]:
    """Return the columns of a shard: whole numbers, or floats where it holds estimates."""
    table = shelf.table(name, digest)
    return {column: table.column(column).to_numpy() for column in table.column_names}


@dataclass(frozen=True, slots=True)
class FolderShelf:
    """The shelf of a release that the store knows: a folder of Parquet files."""

    release_id: str

    def write(
        self,
        name: str,
        columns: tuple[str, ...],
        groups: Iterable[Group],
        kind: pa.DataType = WHOLE,
        texts: Collection[str] = (),
    ) -> str:
        """Write a file, forced to disk before it has its name."""
        return write_shard(shard_path(self.release_id, name), columns, groups, kind, texts)

    def groups(self, name: str, digest: str) -> Iterator[dict[str, Any]]:
        """Yield a file's row groups.

        Raises:
            StoreError: the file is missing or has another hash.
        """
        return read_row_groups(shard_path(self.release_id, name), digest)

    def table(self, name: str, digest: str) -> pa.Table:
        """Return a file's table.

        Raises:
            StoreError: the file is missing or has another hash.
        """
        return read_shard_table(shard_path(self.release_id, name), digest)

    def keep_codebook(self, axis: str, codebook: pl.DataFrame) -> None:
        """Write the codebook beside the shards."""
        write_codebook(self.release_id, axis, codebook)


@dataclass(frozen=True, slots=True, eq=False)
class MemoryShelf:
    """A shelf for counts that may be seen: arrays in memory, whose hashes are of their names alone."""

    kept: dict[str, list[dict[str, NDArray[Any]]]] = field(default_factory=dict)

    def write(
        self,
        name: str,
        columns: tuple[str, ...],
        groups: Iterable[Group],
        kind: pa.DataType = WHOLE,
        texts: Collection[str] = (),  # noqa: ARG002 (no shard in memory holds text)
    ) -> str:
        """Keep the arrays as they are."""
        kept = [{column: np.asarray(group[column]) for column in columns} for group in groups]
        self.kept[name] = kept or [{column: np.zeros(0, dtype=kind.to_pandas_dtype()) for column in columns}]
        return sha256(name.encode()).hexdigest()

    def groups(self, name: str, digest: str) -> Iterator[dict[str, Any]]:  # noqa: ARG002 (nothing changes them)
        """Yield the arrays as they were written."""
        return iter(self.kept[name])

    def table(self, name: str, digest: str) -> pa.Table:
        """Return the arrays as one table."""
        return pa.concat_tables([pa.table(group) for group in self.groups(name, digest)])

    def keep_codebook(self, axis: str, codebook: pl.DataFrame) -> None:
        """Keep nothing: the tree of a comparison has all codes."""

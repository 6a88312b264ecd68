"""Where the shards of one release are kept, by name. A release has a folder; a comparison keeps them in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.counts.shard_files import WHOLE, read_row_groups, read_shard_table, shard_path, write_codebook, write_shard


@dataclass(frozen=True, slots=True, eq=False)
class ShardStore:
    """Where the shards of one release are kept. A shard is complete or absent, and identified by its hash.

    Attributes:
        write: writes a shard of a name, with the other arguments of `write_shard`, and returns its hash.
        groups: from a name and the recorded hash to the columns of the shard, a row group at a time.
        table: from a name and the recorded hash to the shard.
        keep_codebook: keeps the codebook of an axis whose codes come from the released counts.
    """

    write: Callable[..., str]
    groups: Callable[[str, str], Iterator[dict[str, Any]]]
    table: Callable[[str, str], pa.Table]
    keep_codebook: Callable[[str, pl.DataFrame], None]

    def columns(self, name: str, sha256: str) -> dict[str, Any]:
        """Return the columns of a shard: whole numbers, or floats where it holds estimates."""
        table = self.table(name, sha256)
        return {column: table.column(column).to_numpy() for column in table.column_names}


def shards_in_folder(release_id: str) -> ShardStore:
    """Return the shard store of a release that the store knows: a folder of Parquet files."""
    path = partial(shard_path, release_id)
    return ShardStore(
        lambda name, *content, **kinds: write_shard(path(name), *content, **kinds),
        lambda name, sha256: read_row_groups(path(name), sha256),
        lambda name, sha256: read_shard_table(path(name), sha256),
        partial(write_codebook, release_id),
    )


def shards_in_memory() -> ShardStore:
    """Return a shard store for counts that may be seen: arrays in memory. The hash of a shard is its name."""
    kept: dict[str, list[dict[str, Any]]] = {}

    def write(name: str, columns: tuple[str, ...], groups: Any, kind: pa.DataType = WHOLE, **_: Any) -> str:
        nothing = {column: np.zeros(0, dtype=kind.to_pandas_dtype()) for column in columns}
        kept[name] = [{column: group[column] for column in columns} for group in groups] or [nothing]
        return name

    return ShardStore(
        write,
        lambda name, _: iter(kept[name]),
        lambda name, _: pa.concat_tables([pa.table(group) for group in kept[name]]),
        lambda axis, codebook: None,  # noqa: ARG005 (its tree has all codes)
    )

"""Shards: Parquet files of one level of one branch, complete or absent, identified by their hash, and the shelves where those of a release are kept."""

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.errors import StoreError
from storage.machine.files import beside, put_new, sha256_of
from storage.machine.home import shard_folder
from storage.releases.shards import shard_name

IntArray = NDArray[np.int64]

_NOISY = re.compile(r"level_(\d+)_([^.]+)(?:\.\d+)?\.noisy\.parquet")

WHOLE, _TEXT = pa.int64(), pa.large_string()


def shard_path(release_id: str, name: str) -> Path:
    """Return the path of a shard of a release."""
    return shard_folder(release_id) / f"{name}.parquet"


def noisy_path(release_id: str, level: int, branch: str, turn: int = 0) -> Path:
    """Return the path of the noisy counts of a level of a branch that a turn draws."""
    return shard_path(release_id, shard_name("noisy", level, branch, turn))


def shards_of_levels(release_id: str) -> list[Path]:
    """Return the shards of levels that are there, of whatever turn, and what their writers left unfinished."""
    return sorted(path for path in shard_folder(release_id).glob("level_*.parquet*") if path.is_file())


def place_of_noisy(path: Path) -> tuple[int, str] | None:
    """Return which level of which branch has its noisy counts in a file, of whatever turn; None of other files."""
    place = _NOISY.fullmatch(path.name)
    return (int(place[1]), place[2]) if place else None


def write_shard(
    path: Path,
    columns: tuple[str, ...],
    row_groups: Iterable[Mapping[str, NDArray[np.int64 | np.float64] | pa.Array]],
    kind: pa.DataType = WHOLE,
    texts: Collection[str] = (),
) -> str:
    """Write a shard under a name of its own, force it to disk and link it to its path; return its sha256. If that fails, no file remains.

    Args:
        path: what is there stays.
        row_groups: arrays of equal length per column, a row group each, taken one at a time.
        kind: the type of all columns but `texts`.
        texts: the columns that hold text.
    Raises:
        StoreError: another shard is there.
    """
    with put_new(path) as file:
        write_row_groups(file, columns, row_groups, kind, texts)
    return sha256_of(path)


def write_row_groups(
    file: IO[bytes] | io.RawIOBase,
    columns: tuple[str, ...],
    row_groups: Iterable[Mapping[str, NDArray[np.int64 | np.float64] | pa.Array]],
    kind: pa.DataType = WHOLE,
    texts: Collection[str] = (),
) -> None:
    """Write the Parquet of a shard to an open file; the same groups give the same bytes. Other arguments are those of `write_shard`."""
    schema = pa.schema([(column, _TEXT if column in texts else kind) for column in columns])
    with pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as writer:
        for group in row_groups:
            writer.write_table(pa.table([group[column] for column in columns], schema=schema))


def codebook_path(release_id: str, axis: str) -> Path:
    """Return the path of the codebook of an axis."""
    return shard_path(release_id, f"codebook_{axis}")


def write_codebook(release_id: str, axis: str, codebook: pl.DataFrame) -> None:
    """Write the codebook of an axis to the folder of a release's shards."""
    _write(codebook_path(release_id, axis), codebook)


def read_codebook(shards: Path, axis: str) -> pl.DataFrame:
    """Return the codebook of an axis from the folder of a release's shards."""
    return pl.read_parquet(shards / f"codebook_{axis}.parquet", glob=False)


AreaTable = Literal["names", "shapes"]  # of areas


def write_area_table(release_id: str, kind: AreaTable, axis: str, level: int, areas: pl.DataFrame) -> None:
    """Write the names or the shapes of the areas of an axis level to the folder of a release's shards."""
    _write(shard_path(release_id, f"{kind}_{level}_{axis}"), areas)


def read_area_table(release_id: str, kind: AreaTable, axis: str, level: int) -> pl.DataFrame | None:
    """Return the names or the shapes of the areas of an axis level from the folder of a release's shards; None where they have none."""
    return _read(shard_path(release_id, f"{kind}_{level}_{axis}"))


def write_groups(release_id: str, groups: IntArray) -> None:
    """Write how many groups there are in each finest region, by a public list, to the folder of a release's shards."""
    _write(shard_path(release_id, "groups"), pl.DataFrame({"groups": groups}))


def read_groups(release_id: str) -> IntArray | None:
    """Return how many groups there are in each finest region, int64, shape (regions,); None where no public list says so."""
    table = _read(shard_path(release_id, "groups"))
    return None if table is None else table["groups"].to_numpy()


def derived_path(release_id: str, name: str) -> Path:
    """Return the path of the codes of a derived column."""
    return shard_path(release_id, f"derived_{name}")


def write_derived(release_id: str, name: str, codes: pl.DataFrame) -> None:
    """Write the codes of a derived column to the folder of a release's shards, one row per combination in their order."""
    _write(derived_path(release_id, name), codes)


def _write(path: Path, table: pl.DataFrame) -> None:
    with beside(path) as file:
        table.write_parquet(file)


def _read(path: Path) -> pl.DataFrame | None:
    return pl.read_parquet(path, glob=False) if path.exists() else None


def read_shard_table(path: Path, sha256: str) -> pa.Table:
    """Return the table of a shard whose hash is the recorded one: whole numbers, floats where it holds estimates, or texts."""
    check_shard(path, sha256)
    with pq.ParquetFile(path) as file:
        return file.read()


def read_row_groups(path: Path, sha256: str) -> Iterator[dict[str, IntArray]]:
    """Yield the columns of a shard, one row group at a time; an empty shard yields one empty group.

    Raises:
        StoreError: the file is missing or has another hash, before anything is yielded; it is never drawn again.
    """
    check_shard(path, sha256)
    yield from row_groups_in(path)


def row_groups_in(source: Path | io.RawIOBase) -> Iterator[dict[str, IntArray]]:
    """Yield the columns of the Parquet of a shard, as `read_row_groups` does."""
    with pq.ParquetFile(source) as file:
        if not file.num_row_groups:
            yield {name: np.empty(0, dtype=np.int64) for name in file.schema_arrow.names}
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            yield {name: group.column(name).to_numpy() for name in group.column_names}


def check_shard(path: Path, sha256: str) -> None:
    """Refuse a shard that is not the recorded one.

    Raises:
        StoreError: the file is missing or has another hash; it is never drawn again.
    """
    if not is_shard(path, sha256):
        raise StoreError(
            f"{path.name} is {'not what was sealed' if path.exists() else 'missing'}.",
            field="TRELLIS_HOME",
            hint="Restore the store and its shards from the same backup. A measurement is never drawn again.",
        )


def is_shard(path: Path, sha256: str) -> bool:
    """Return whether a shard exists and has the recorded hash."""
    return path.is_file() and sha256_of(path) == sha256


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

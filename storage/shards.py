"""Shards: Parquet files of one level of one branch, whole or absent, known by their hash."""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.errors import StoreError
from storage.home import subfolder

IntArray = NDArray[np.int64]


def shard_folder(release_id: str) -> Path:
    """Return the folder of a release's shards and codebooks, made with mode 700 if it is not there yet."""
    folder = subfolder("shards") / release_id
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def claim_shard_folder(release_id: str) -> bool:
    """Make the folder of a new release's shards; return False where another run has made it already."""
    try:
        (subfolder("shards") / release_id).mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def give_up_claim(release_id: str) -> None:
    """Remove the folder that a new release has claimed, unless something is in it."""
    with suppress(OSError):
        (subfolder("shards") / release_id).rmdir()


@contextmanager
def held(release_id: str) -> Iterator[None]:
    """Hold the folder of a release's shards while its table is read: a lock that ends with the process, however it ends."""
    folder = os.open(shard_folder(release_id), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def is_held(release_id: str) -> bool:
    """Return whether a process holds the folder of a release's shards."""
    folder = os.open(shard_folder(release_id), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False


def noisy_path(release_id: str, level: int, branch: str) -> Path:
    """Return where the noisy counts of a level of a branch are."""
    return shard_folder(release_id) / f"level_{level}_{branch}.noisy.parquet"


def counts_path(release_id: str, level: int, branch: str) -> Path:
    """Return where the released counts of a level of a branch are."""
    return shard_folder(release_id) / f"level_{level}_{branch}.counts.parquet"


def write_shard(path: Path, columns: tuple[str, ...], row_groups: Iterable[Mapping[str, IntArray]]) -> str:
    """Write a shard beside its place, force it to disk and rename it; return its sha256. One that fails leaves nothing.

    Args:
        path: its place; whatever is there is replaced.
        columns: the int64 columns.
        row_groups: arrays of equal length per column, a row group each, taken one at a time.
    """
    schema = pa.schema([(column, pa.int64()) for column in columns])
    with _beside(path) as file, pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as writer:
        for group in row_groups:
            writer.write_table(pa.table([group[column] for column in columns], schema=schema))
    return sha256_of(path)


def write_codebook(release_id: str, axis: str, codebook: pl.DataFrame) -> None:
    """Keep the codebook of an axis among the shards of a release."""
    with _beside(shard_folder(release_id) / f"codebook_{axis}.parquet") as file:
        codebook.write_parquet(file)


@contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes its place once it is written and forced to disk, and is removed where that fails."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_codebook(shards: Path, axis: str) -> pl.DataFrame:
    """Return the codebook of an axis from the folder of a release's shards."""
    return pl.read_parquet(shards / f"codebook_{axis}.parquet", glob=False)


def read_shard(path: Path, sha256: str) -> dict[str, IntArray]:
    """Return the columns of a shard whose hash is the recorded one.

    Raises:
        StoreError: the file is missing or not what was recorded; it is never drawn again.
    """
    if not is_shard(path, sha256):
        raise StoreError(
            f"{path.name} is {'not what was sealed' if path.exists() else 'missing'}.",
            field="TRELLIS_HOME",
            hint="Restore the store and its shards from one backup; what was measured is never drawn again.",
        )
    table = pq.read_table(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def is_shard(path: Path, sha256: str) -> bool:
    """Return whether a shard is there and is what was recorded."""
    return path.is_file() and sha256_of(path) == sha256


def replace(partial: Path, path: Path) -> None:
    """Rename a finished file or folder into its place, and make the rename last."""
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Shards on their way: files of ciphertext in a mailbox, which the workers of a cluster read and leave there.

A shard's name there ends with a keyed hash of its content. So nobody puts another shard under a name that is taken, and one that was
drawn twice has two names. The key keeps whoever lists the mailbox from testing guesses of a small shard, and from choosing by its
value which one to spoil. Workers write and read ciphertext alone: nothing of a shard is in clear on their disks.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.counts.shard_files import WHOLE, ShardStore, row_groups_in, write_row_groups
from storage.errors import StoreError, TakenAlready, WorkerLost
from storage.mailbox.ciphertext import EncryptedReader, EncryptedWriter
from storage.mailbox.keys import keyed_name
from storage.mailbox.places import Mailbox

_BLOCK = 2**20  # bytes that are copied at once


@dataclass(frozen=True, slots=True, eq=False)
class EncryptedFiles:
    """What lies in a mailbox for one release, besides its slices.

    Attributes:
        folder: where a worker keeps what it has fetched and made, as it is in the mailbox.
    """

    place: Mailbox
    key: bytes
    release_id: str
    folder: Path

    def name_of(self, shard: str, sha256: str) -> str:
        """Return the name of a shard in the mailbox."""
        return f"{self.release_id}/shards/{shard}.{self._tag(shard, sha256)}"

    def claim(self, of: str) -> None:
        """Claim a shard: of all that try, in whatever processes, one succeeds, and for the others it is `TakenAlready`."""
        with self._partial() as file:
            file.write_text(uuid4().hex)
            self.place.put_new(f"{self.release_id}/claims/{of}", file)

    def put(self, shard: str, sha256: str, path: Path) -> None:
        """Put a shard of home into the mailbox, unless it is there."""
        with self._partial() as file:
            with file.open("wb") as target, path.open("rb") as source:
                encrypted = EncryptedWriter(target, self.key, self._bound(shard))
                while block := source.read(_BLOCK):
                    encrypted.write(block)
                encrypted.finish()
            with suppress(TakenAlready):  # by this process, whose answer was lost
                self.place.put_new(self.name_of(shard, sha256), file)

    def bring(self, shard: str, sha256: str, target: BinaryIO) -> None:
        """Copy what a worker has made from the mailbox to an open file of home, in clear.

        Raises:
            StoreError: it is not there.
            WorkerLost: it is not what the worker said that it is; it is deleted there.
        """
        name = self.name_of(shard, sha256)
        with self._partial() as file:
            self.place.get(name, file)
            try:
                self._decrypt(file, shard, sha256, target)
            except StoreError as fault:
                self.place.delete(name)
                raise WorkerLost(str(fault)) from None

    def copy(self, shard: str, sha256: str, target: BinaryIO) -> None:
        """Copy what home has put into the mailbox to an open file of a worker, in clear; refuse what was altered."""
        self._decrypt(self._fetched(shard, sha256), shard, sha256, target)

    def shard_store(self) -> ShardStore:
        """Return the shard store of a worker: what is written to it is put into the mailbox, and what is read from it is fetched from there."""
        return ShardStore(self._write, self._groups, self._table, _keep_no_codebook)

    def _write(
        self,
        shard: str,
        columns: tuple[str, ...],
        row_groups: Iterable[Mapping[str, Any]],
        kind: pa.DataType = WHOLE,
        texts: Collection[str] = (),
    ) -> str:
        with self._partial() as made:
            with made.open("wb") as file:
                encrypted = _HashingWriter(file, self.key, self._bound(shard))
                write_row_groups(encrypted, columns, row_groups, kind, texts)
                encrypted.finish()
            sha256 = encrypted.digest.hexdigest()
            with suppress(TakenAlready):  # the same shard, from this worker or from one that was lost
                self.place.put_new(self.name_of(shard, sha256), made)
            made.replace(self._kept(shard, sha256))
        return sha256

    def _groups(self, shard: str, sha256: str) -> Iterator[dict[str, Any]]:
        with EncryptedReader(self._fetched(shard, sha256), self.key, self._bound(shard)) as file:
            yield from row_groups_in(file)

    def _table(self, shard: str, sha256: str) -> pa.Table:
        with EncryptedReader(self._fetched(shard, sha256), self.key, self._bound(shard)) as file:
            return pq.ParquetFile(file).read()

    def _fetched(self, shard: str, sha256: str) -> Path:
        """Return the file of ciphertext of a shard, which has been seen to have the hash that was recorded."""
        kept = self._kept(shard, sha256)
        if not kept.exists():
            with self._partial() as partial:
                self.place.get(self.name_of(shard, sha256), partial)
                self._decrypt(partial, shard, sha256, None)
                partial.replace(kept)
        return kept

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        """Yield the path of a new file, which is removed at the end unless it has another name by then."""
        path = self.folder / f"{uuid4().hex}.partial"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _decrypt(self, file: Path, shard: str, sha256: str, target: BinaryIO | None) -> None:
        """Decrypt a shard and compare its hash; write it to a file, if there is one."""
        digest = hashlib.sha256()
        with EncryptedReader(file, self.key, self._bound(shard)) as source:
            while block := source.read(_BLOCK):
                digest.update(block)
                if target:
                    target.write(block)
        if digest.hexdigest() != sha256:
            raise StoreError(
                f"{shard} in the mailbox is not what was recorded.",
                field="mailbox",
                hint="See who else can write there. Then run `trellis rerun`: home puts it again.",
            )

    def _kept(self, shard: str, sha256: str) -> Path:
        return self.folder / f"{shard}.{self._tag(shard, sha256)}"

    def _tag(self, shard: str, sha256: str) -> str:
        """Return what tells shards of one name apart, and tells nothing of their content without the key."""
        return keyed_name(self.key, f"{shard}.{sha256}")

    def _bound(self, shard: str) -> str:
        """Return the name to which the ciphertext of a shard is bound; its hash is known only once it is written."""
        return f"{self.release_id}/shards/{shard}"


def _keep_no_codebook(axis: str, _: pl.DataFrame) -> None:
    """Refuse to keep a codebook: what makes one is done at home."""
    raise StoreError(f"The codebook of {axis} is made at home.")


class _HashingWriter(EncryptedWriter):
    """Hashes what it encrypts."""

    def __init__(self, file: BinaryIO, key: bytes, name: str) -> None:
        super().__init__(file, key, name)
        self.digest = hashlib.sha256()

    def write(self, content: bytes | memoryview) -> int:  # type: ignore[override]
        self.digest.update(content)
        return super().write(content)

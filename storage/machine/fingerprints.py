"""Fingerprints of confidential tables: by them the ledger recognises a table that lies somewhere else.

A plain hash would let anybody who sees a ledger test a guess of the whole table. So a fingerprint is keyed; the key never
leaves TRELLIS_HOME.
"""

import gzip
import hashlib
import os
import secrets
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from storage.errors import StoreError
from storage.machine.home import home

_KEY_BYTES, _FINGERPRINT_BYTES = 32, 16
_BLOCK = 2**20


def fingerprint_of(path: Path, inner: str | None = None) -> str:
    """Return the fingerprint of a table, in hex: of the bytes of its file, of what a `.gz` unpacks to, and of its name inside a file.

    Args:
        path: the file.
        inner: the table inside a DuckDB file; None for other kinds of file.
    Raises:
        OSError: the file cannot be read.
        StoreError: the key has been altered.
    """
    seen = path.stat()
    return _fingerprint(
        _key(), path, inner, (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    )


@lru_cache(maxsize=8)
def _fingerprint(key: bytes, path: Path, inner: str | None, seen: tuple[int, ...]) -> str:  # noqa: ARG001 (for the cache)
    person = hashlib.blake2b((inner or "").casefold().encode(), digest_size=hashlib.blake2b.PERSON_SIZE).digest()

    def of(file: BinaryIO) -> str:
        digest = hashlib.blake2b(key=key, person=person, digest_size=_FINGERPRINT_BYTES)
        while block := file.read(_BLOCK):
            digest.update(block)
        return digest.hexdigest()

    if path.suffix == ".gz":
        try:
            with gzip.open(path) as unpacked:
                return of(unpacked)  # type: ignore[arg-type]  # all that is asked of it is read
        except (EOFError, gzip.BadGzipFile, zlib.error):  # not a gzip; whoever reads the table says so
            pass
    with path.open("rb") as file:
        return of(file)


def _key() -> bytes:
    """Return the key of this store's fingerprints; make it if there is none yet."""
    path = home() / "fingerprint.key"
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    while not path.is_file():
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(partial)  # which, unlike a rename, leaves the key that another process made a moment ago
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise StoreError(
            f"{path} must have {_KEY_BYTES} bytes.",
            field="TRELLIS_HOME",
            hint="Restore it from a backup: without it the ledger does not recognise a table that was copied.",
        )
    return key

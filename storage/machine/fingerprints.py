"""Fingerprints of confidential tables: by them the ledger recognises a table that lies somewhere else.

A plain hash would let anybody who sees a store test a guess of the whole table. So a fingerprint is keyed; the key never
leaves TRELLIS_HOME.
"""

import fcntl
import gzip
import hashlib
import os
import secrets
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from storage.errors import StoreError
from storage.machine.files import beside
from storage.machine.home import home

KEY = "fingerprint.key"  # in TRELLIS_HOME

_KEY_BYTES, _FINGERPRINT_BYTES = 32, 16
_BLOCK = 2**20


def fingerprint_of_file(path: Path, inner: str | None = None) -> str:
    """Return the fingerprint of a file, in hex: of its bytes, of what a `.gz` unpacks to, and of the name of a table in it.

    Args:
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


def key_of_records() -> str:
    """Return the key by which records are hashed before their hashes are added up, in hex; it must not leave this process.

    Raises:
        StoreError: the key of this store has been altered.
    """
    return hashlib.blake2b(key=_key(), person=b"record", digest_size=_FINGERPRINT_BYTES).hexdigest()


def fingerprint_of_records(records: int, sums: Sequence[int]) -> str:
    """Return the fingerprint of records, in hex, given their number and what their keyed hashes add up to.

    That of no records is drawn anew each time: it is like no other, and as long as others.
    """
    if not records:
        return secrets.token_hex(_FINGERPRINT_BYTES)
    added = f"{records}:{':'.join(map(str, sums))}".encode()
    return hashlib.blake2b(added, key=_key(), person=b"records", digest_size=_FINGERPRINT_BYTES).hexdigest()


def keyed_hash(text: bytes) -> str:
    """Return a hash of a text that only who has the key of this store can make, in hex.

    Raises:
        StoreError: the key has been altered.
    """
    return hashlib.blake2b(text, key=_key(), person=b"text").hexdigest()


def name_of_home() -> str:
    """Return a name for this store, in hex, which stays the same and tells nothing of it."""
    return hashlib.blake2b(key=_key(), person=b"home", digest_size=_FINGERPRINT_BYTES).hexdigest()


def _key() -> bytes:
    """Return the key of this store's fingerprints; make it if there is none yet, and refuse one that was altered."""
    path = home() / KEY
    if not path.is_file():
        folder = os.open(home(), os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # of two processes that need it first, one makes it
            if not path.is_file():
                with beside(path, closed=True) as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
        finally:
            os.close(folder)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise StoreError(
            f"{path} must have {_KEY_BYTES} bytes.",
            field="TRELLIS_HOME",
            hint="Restore it from a backup: without it the ledger does not recognise a table that was copied.",
        )
    return key

"""Files that are complete or absent, and identified by their hash."""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from storage.errors import StoreError, TakenAlready

_BLOCK = 2**20  # bytes that are hashed at once
_LONGEST_NAME = 200  # bytes; systems take 255


@contextmanager
def beside(path: Path, *, closed: bool = False) -> Iterator[BinaryIO]:
    """Yield a file beside a path; once it is written and forced to disk it takes that path, and if that fails it is removed.

    One that is `closed` is its owner's alone, whatever the umask.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            if closed:
                os.fchmod(file.fileno(), 0o600)
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def put_new(path: Path) -> Iterator[BinaryIO]:
    """Yield a file with a name of its own; once it is written and forced to disk it takes a path that is free.

    Of several writers, in whatever processes, one takes the path, and no other ever writes to that file. Those that have written
    the same bytes are content with it.

    Raises:
        TakenAlready: the path is taken by other bytes, which stay.
        StoreError: the file system has no hard links.
    """
    partial = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            if sha256_of(partial) != sha256_of(path):
                raise TakenAlready(
                    f"{path.name} is there already, with other contents.", field="TRELLIS_HOME"
                ) from None
        except OSError as fault:
            if fault.errno not in {errno.EPERM, errno.EOPNOTSUPP}:
                raise
            raise StoreError(
                f"{path.parent} is on a file system without hard links.",
                field="TRELLIS_HOME",
                hint="Put TRELLIS_HOME on a file system of Linux or macOS.",
            ) from None
    finally:
        partial.unlink(missing_ok=True)
    force(path.parent)


def replace(partial: Path, path: Path) -> None:
    """Rename a finished file or folder to its path, and force the rename to disk."""
    partial.rename(path)
    force(path.parent)


def make_closed(folder: Path) -> None:
    """Make a folder and those above it, closed to others, which `mkdir(parents=True)` does not see to."""
    if not folder.is_dir():
        make_closed(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def force(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def short_hash(sha256: str) -> str:
    """Return the beginning of a sha256 in groups of four, for people to compare."""
    return " ".join(sha256[at : at + 4] for at in range(0, 16, 4))


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    digest, block = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(block):
            digest.update(block[:read])
    return digest.hexdigest()


def sha256_of_all(paths: Iterable[Path], workers: int = 2) -> list[str]:
    """Return the sha256 of each file, some at a time: hashing releases the interpreter lock."""
    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(sha256_of, paths))


def is_file_name(name: str) -> bool:
    """Return whether a name, with a short ending, can be that of a file on any system."""
    return name.isprintable() and not set(name) & set('/\\:*?"<>|') and len(name.encode()) <= _LONGEST_NAME

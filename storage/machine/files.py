"""Files that are complete or absent, and identified by their hash."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_BLOCK = 2**20  # bytes that are hashed at once
_LONGEST_NAME = 200  # bytes; systems take 255


@contextmanager
def beside(path: Path) -> Iterator[BinaryIO]:
    """Yield a file beside a path; once it is written and forced to disk it takes that path, and if that fails it is removed."""
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


def replace(partial: Path, path: Path) -> None:
    """Rename a finished file or folder to its path, and force the rename to disk."""
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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

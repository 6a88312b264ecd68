"""Files that are whole or absent, and known by their hash."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def beside(path: Path) -> Iterator[BinaryIO]:
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

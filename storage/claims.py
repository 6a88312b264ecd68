"""The folder of a release's shards: where it is, which run it belongs to, and which process holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.home import subfolder


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

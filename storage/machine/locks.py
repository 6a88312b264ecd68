"""Who runs what: an operating-system lock on a file, which ends with its process, however that ends.

The file says which process has it, for people to read; that it is locked is what counts.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from storage.errors import HeldElsewhere, Interrupted, disk_fault
from storage.machine.home import subfolder

_TRY_FOR = 1.0  # seconds: whoever only looks has the lock for a moment
_SAY_WHO_IS_AHEAD_AFTER = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock.

    Attributes:
        process: its id.
        run: Prefect's id of the flow run; empty where there is none.
    """

    process: int
    run: str = ""


@contextmanager
def held(name: str, run: str = "") -> Iterator[None]:
    """Hold what has a name, such as a release that is run.

    Raises:
        HeldElsewhere: another run holds it, in this process or another; names the process.
    """
    deadline = time.monotonic() + _TRY_FOR
    while (lock := _lock(name)) is None:
        if time.monotonic() > deadline:
            raise HeldElsewhere(f"{name} is run by process {_process_of(name)}.", field="ID")
        time.sleep(0.05)
    with _written(lock, name, run):
        yield


@contextmanager
def in_turn(name: str, ahead: Callable[[str], None], going_on: Callable[[], None]) -> Iterator[None]:
    """Hold what has a name, after whoever holds it now.

    Args:
        name: what is to be held.
        ahead: is told the process that holds it, once the wait is long enough to be noticed.
        going_on: is called while waiting; what it raises ends the wait.
    """
    began, told = time.monotonic(), False
    while (lock := _lock(name)) is None:
        going_on()
        if not told and time.monotonic() - began > _SAY_WHO_IS_AHEAD_AFTER:
            told = True
            ahead(_process_of(name))
        time.sleep(0.1)
    with _written(lock, name, ""):
        yield


def holder_of(name: str) -> Holder | None:
    """Return who holds what has a name, None where nobody does."""
    path = _path(name)
    if not path.exists():
        return None
    lock = _lock(name)
    if lock is not None:
        os.close(lock)
        return None
    try:
        process, _, run = path.read_text().partition("\n")
        return Holder(int(process), run.strip())
    except (OSError, ValueError):  # it was just given up, or is just being written
        return Holder(0)


def ask_to_stop(release_id: str) -> None:
    """Ask all stages of a release, in whatever process, to stop at their next chunk."""
    _stop_path(release_id).touch(mode=0o600)


def forget_to_stop(release_id: str) -> None:
    """Take back what `ask_to_stop` asked for."""
    _stop_path(release_id).unlink(missing_ok=True)


def check_going_on(release_id: str) -> None:
    """Let a stage go on, unless its release was asked to stop.

    Raises:
        Interrupted: it was.
    """
    if _stop_path(release_id).exists():
        raise Interrupted("It was interrupted.", hint=f"`trellis rerun {release_id}` goes on where it stopped.")


def while_going_on(release_id: str, parts: Iterator[T]) -> Iterator[T]:
    """Yield parts until the release is asked to stop. What was made of them by then is in no shard, and is made again.

    Raises:
        Interrupted: it was.
    """
    for part in parts:
        check_going_on(release_id)
        yield part


def sweep_locks() -> None:
    """Remove the files of locks that dead processes have left, and what was asked of them."""
    for path in subfolder("running").glob("*.lock"):
        lock = _lock(path.stem)
        if lock is not None:
            forget_to_stop(path.stem)
            path.unlink(missing_ok=True)
            os.close(lock)


def _lock(name: str) -> int | None:
    """Return a handle that holds the lock, None where somebody else has it."""
    path = _path(name)
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as fault:
            raise disk_fault(fault) or fault from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass  # its last holder removed it between the two steps: there is another file to lock
        except BlockingIOError:
            os.close(handle)
            return None
        os.close(handle)


@contextmanager
def _written(lock: int, name: str, run: str) -> Iterator[None]:
    """Say in the locked file who has it, and remove it at the end."""
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n{run}\n".encode(), 0)
        yield
    finally:
        _path(name).unlink(missing_ok=True)
        os.close(lock)


def _process_of(name: str) -> str:
    holder = holder_of(name)
    return str(holder.process) if holder and holder.process else "?"


def _path(name: str) -> Path:
    return subfolder("running") / f"{name}.lock"


def _stop_path(release_id: str) -> Path:
    return subfolder("running") / f"{release_id}.stop"

"""Locks that say which process runs what: operating-system locks on files, which end with their process, however it ends.

The file names the process, for people to read. Only the lock itself decides.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.errors import HeldElsewhere, Interrupted, disk_fault
from storage.machine.home import subfolder

_TRY_FOR = 1.0  # seconds: `holder_of` has the lock for a moment
_SAY_WHO_IS_AHEAD_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock: the id of a process, and Prefect's id of its flow run, empty where there is none."""

    process: int
    run: str = ""


@contextmanager
def held(name: str, run: str = "") -> Iterator[None]:
    """Hold the lock of a name, such as the id of a release that is run.

    Raises:
        HeldElsewhere: another run holds it, in this process or another; the message names the process.
    """
    deadline = time.monotonic() + _TRY_FOR
    while (lock := _lock(name)) is None:
        if time.monotonic() > deadline:
            raise HeldElsewhere(f"{name} is run by process {_process_of(name)}.", field="ID")
        time.sleep(0.05)
    with _written(lock, name, run):
        yield


@contextmanager
def held_when_free(
    name: str, ahead: Callable[[str], None] = lambda _: None, going_on: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock of a name; wait until its present holder releases it.

    Args:
        ahead: called once with the process that holds the lock, after the wait has lasted a second.
        going_on: called again and again during the wait; an exception that it raises ends the wait.
    """
    began, has_named_holder = time.monotonic(), False
    while (lock := _lock(name)) is None:
        going_on()
        if not has_named_holder and time.monotonic() - began > _SAY_WHO_IS_AHEAD_AFTER:
            has_named_holder = True
            ahead(_process_of(name))
        time.sleep(0.1)
    with _written(lock, name, ""):
        yield


def holder_of(name: str) -> Holder | None:
    """Return who holds the lock of a name; None where nobody does."""
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
    except (OSError, ValueError):  # its holder has just released it, or is just writing it
        return Holder(0)


def ask_to_stop(release_id: str) -> None:
    """Ask all stages of a release, in whatever process, to stop at their next chunk."""
    _stop_path(release_id).touch(mode=0o600)


def forget_to_stop(release_id: str) -> None:
    """Withdraw the request of `ask_to_stop`."""
    _stop_path(release_id).unlink(missing_ok=True)


def check_going_on(release_id: str) -> None:
    """Raise `Interrupted` in a stage whose release was asked to stop."""
    if _stop_path(release_id).exists():
        raise Interrupted("It was interrupted.")


def sweep_locks() -> None:
    """Remove the lock files of dead processes, and the requests that they stop."""
    for path in subfolder("running").glob("*.lock"):
        lock = _lock(path.stem)
        if lock is not None:
            forget_to_stop(path.stem)
            path.unlink(missing_ok=True)
            os.close(lock)


def _lock(name: str) -> int | None:
    """Return a handle that holds the lock; None where another handle holds it."""
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
            pass  # its last holder removed it between the two steps: lock the new file
        except BlockingIOError:
            os.close(handle)
            return None
        os.close(handle)


@contextmanager
def _written(lock: int, name: str, run: str) -> Iterator[None]:
    """Write to the locked file who holds it, and remove the file at the end."""
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

"""A mailbox in a folder that several machines share. Made for NFS: it never renames, and waits where a client's memory is stale."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar
from uuid import uuid4

from storage.errors import StoreError, TakenAlready, disk_fault
from storage.machine.files import beside, force, make_closed
from storage.machine.home import place_of_home
from storage.mailbox.places import PATIENCE, check_name

R = TypeVar("R")

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0  # seconds between two tries
_STALE = frozenset({errno.ESTALE})  # what a client says of a folder that another machine has changed
_NOT_THERE = frozenset({errno.ENOENT, errno.ESTALE})  # what it says of a name that another machine has just made
_PARTIAL = ".partial"  # ends the name of a file that is being written, which begins with a dot
_MANIFEST = "manifest.json"  # in every published folder


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder, whose readers wait for a name for some seconds."""

    folder: Path
    patience: float = PATIENCE

    def put_new(self, name: str, file: Path) -> None:
        """Write a copy beside the name, force it to disk, and link it to the name, which fails where something lies there."""
        path = self._path(name)
        with self._public("written"):
            partial = self._retried(lambda: _copied(file, path.parent), _STALE)
            try:
                self._retried(lambda: _link(partial, path, name), _STALE)
                force(path.parent)
            finally:
                with suppress(OSError):
                    partial.unlink()

    def get(self, name: str, file: Path) -> None:
        """Copy what lies under a name; wait a while for it to appear, since another machine may just have put it there."""
        path = self._path(name)
        with self._public("read"):
            try:
                self._retried(lambda: _fetch(path, file), _NOT_THERE)
            except OSError as fault:
                if fault.errno not in _NOT_THERE:
                    raise
                raise StoreError(
                    f"{name} is not in the mailbox.",
                    field="mailbox",
                    hint="Has somebody emptied it? Run `trellis rerun`.",
                ) from None

    def exists(self, name: str) -> bool:
        """Return whether something lies under a name."""
        path = self._path(name)
        with self._public("read"):
            return self._retried(lambda: _is_there(path), _STALE)

    def list(self, prefix: str = "") -> list[str]:
        """Return the names that begin with a prefix."""
        above = self.folder / prefix.rpartition("/")[0]
        with self._public("read"):
            names = self._retried(lambda: [path for path in _files(above) if not path.name.startswith(".")], _STALE)
        relative = sorted(path.relative_to(self.folder).as_posix() for path in names)
        return [name for name in relative if name.startswith(prefix)]

    def delete(self, name: str) -> None:
        """Delete what lies under a name."""
        path = self._path(name)
        with self._public("written"):
            self._retried(lambda: path.unlink(missing_ok=True), _STALE)

    def clear(self, prefix: str) -> None:
        """Delete a folder of names and all that is in it, files of killed writers too."""
        folder = self._path(prefix)
        with self._public("written"):
            self._retried(lambda: _remove(folder), _STALE)

    def _path(self, name: str) -> Path:
        return self.folder / check_name(name)

    def _retried(self, work: Callable[[], R], errors: frozenset[int]) -> R:
        """Do something again and again until it succeeds, or fails otherwise than by some errors, or patience ends."""
        deadline, wait = time.monotonic() + self.patience, _FIRST_WAIT
        while True:
            try:
                return work()
            except OSError as fault:
                if fault.errno not in errors or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    @contextmanager
    def _public(self, done: str) -> Iterator[None]:
        """Turn what the system says into an error that may be shown."""
        try:
            yield
        except OSError as fault:
            raise disk_fault(fault, "mailbox", str(self.folder)) or StoreError(
                f"The mailbox {self.folder} cannot be {done} ({os.strerror(fault.errno or errno.EIO)}).",
                field="mailbox",
                hint="It must be a folder that you own, on a file system that has hard links and whose server answers.",
            ) from None


def open_folder(folder: Path, patience: float) -> FolderPlace:
    """Return a folder as a place; errors are those of `open_place`."""
    folder, home = folder.absolute(), place_of_home()
    if not folder.is_dir():
        raise _refused(f"There is no folder {folder}.", f"Mount its disk, or run `mkdir -m 700 {folder}`.")
    if folder.stat().st_mode & 0o077:
        raise _refused(f"The mailbox {folder} is open to other users.", f"Run `chmod 700 {folder}`.")
    whole = folder.resolve()
    if whole.is_relative_to(home.resolve()) or home.resolve().is_relative_to(whole):
        raise _refused(
            f"The mailbox {folder} and TRELLIS_HOME must not lie in each other: workers may not see true counts.",
            "Name a folder of its own.",
        )
    published = next((above for above in (whole, *whole.parents) if (above / _MANIFEST).exists()), None)
    if published:
        raise _refused(f"The mailbox {folder} is inside of a published folder.", "Name a folder of its own.")
    return FolderPlace(folder, patience)


def _refused(message: str, hint: str) -> StoreError:
    return StoreError(message, field="mailbox", hint=hint)


def _copied(file: Path, folder: Path) -> Path:
    """Copy a file to a name of this writer's own, forced to disk; leave nothing there if that fails."""
    make_closed(folder)
    partial = folder / f".{uuid4().hex}{_PARTIAL}"
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with file.open("rb") as source, open(handle, "wb") as target:  # noqa: PTH123 (a handle has no path)
            shutil.copyfileobj(source, target, 2**20)
            target.flush()
            os.fsync(target.fileno())
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    return partial


def _link(partial: Path, path: Path, name: str) -> None:
    """Give a file its name, if that is free.

    A server that answers too late is asked again, and then says that the name is taken. So the number of the file's names
    decides, not what the server said.
    """
    try:
        os.link(partial, path)
    except OSError as fault:
        if partial.stat().st_nlink > 1:
            return
        if fault.errno == errno.EEXIST:
            raise TakenAlready(f"{name} is taken in the mailbox.", field="mailbox") from None
        raise


def _fetch(path: Path, file: Path) -> None:
    with path.open("rb") as source, beside(file) as target:
        shutil.copyfileobj(source, target, 2**20)


def _is_there(path: Path) -> bool:
    try:
        return S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _files(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder, onerror=_unless_gone):
        yield from (Path(above) / name for name in names)


def _unless_gone(fault: OSError) -> None:
    if fault.errno != errno.ENOENT:
        raise fault


def _remove(path: Path) -> None:
    """Delete a file or a folder; what others delete meanwhile is gone all the same, and what they make stays."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for above, folders, names in os.walk(path, topdown=False, onerror=_unless_gone):
        for name in names:
            (Path(above) / name).unlink(missing_ok=True)
        for name in folders:
            _remove_empty(Path(above) / name)
    _remove_empty(path)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as fault:
        if fault.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
            raise

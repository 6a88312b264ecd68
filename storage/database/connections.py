"""Connections to DuckDB: short transactions, waiting for the lock, and the store's migrations."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from storage.database.schema import STEPS
from storage.errors import StoreError, disk_fault
from storage.machine.files import replace
from storage.machine.home import STORE, home, subfolder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    Connection = DuckDBPyConnection
else:
    Connection = Any  # DuckDB is imported where a file is opened: what reads published folders opens none

_SAY_WHO_HOLDS_IT_AFTER = 10.0  # seconds
_GIVE_UP_AFTER = 120.0  # seconds
# Seconds for which Trellis waits for a file that is not a database yet: another process may just be creating it.
_BEING_MADE = 2.0
_TRY_EVERY = 0.05  # seconds, while another process has the file open

# To open a file takes DuckDB twenty milliseconds, more than most of what is done with it, and with the tables of 500 releases a third of a
# second. So the store of a command that makes a release stays open for a moment after its last user. Other processes get their turn: what was
# open for a while is closed at once when nobody uses it, and stays closed for longer than they wait between two tries. Who waits says so in a
# file beside the store; where nobody does, moment and while are longer. A vault that is only read has nobody who waits.
_LINGER = 0.1  # seconds
_WHILE = 0.5  # seconds
_ALONE = 20.0  # times as long
_WANTED = 1.0  # seconds, for which what a process says holds
_TURN = 1.2 * _TRY_EVERY  # seconds


@dataclass(slots=True, eq=False)
class _Shared:
    """An open file.

    Attributes:
        connection: of which every user has a cursor.
        file: its device and inode.
        opened: when, on the monotonic clock.
        users: who have a cursor now.
        left: when the last of them left, on the monotonic clock.
        timer: that closes it once nobody has used it for a moment; None while nobody has to.
        is_current: whether it is known to be of this version; nobody else can change it while it is open.
    """

    connection: Connection
    file: tuple[int, int]
    read_only: bool
    opened: float
    users: int = 0
    left: float = 0.0
    timer: Timer | None = None
    is_current: bool = False


_OPEN: dict[Path, _Shared] = {}
_FREED: dict[Path, float] = {}  # when a file was closed so that other processes get their turn
_SHARING = Lock()
_lingering = 0  # how many blocks of `lingering` are entered
_SEEN: set[Path] = set()  # stores that this process has opened: if one disappears, it must not be created again, empty
_WRITING = Lock()  # one writer at a time: two transactions of one process would conflict


@contextmanager
def store() -> Iterator[Connection]:
    """Open `store.duckdb` for one short piece of work; wait while another process has it open.

    A store on a read-only disk is opened read-only.

    Raises:
        StoreError: the store cannot be opened or has disappeared, another process keeps it open, a newer version of Trellis
            wrote it, or its disk is full or read-only.
    """
    import duckdb

    path = home() / STORE
    if path in _SEEN and not path.exists():
        raise StoreError(
            f"{path} was there a moment ago and is gone.",
            field="TRELLIS_HOME",
            hint="Mount its disk again, or put the file back. Trellis does not start a new ledger here: it would be missing what"
            " this one has charged.",
        )
    read_only = path.exists() and not os.access(path, os.W_OK)
    try:
        with connect(path, spill=subfolder("tmp"), read_only=read_only, lingers=True) as con:
            if not _OPEN[path].is_current:  # it was opened just now: its users in turn do not ask again
                with _WRITING:
                    _migrate(con)
                _OPEN[path].is_current = True
            _SEEN.add(path)
            yield con
    except (OSError, duckdb.Error) as fault:
        public = disk_fault(fault)
        if public is None:
            raise
        raise public from None


@contextmanager
def connect(path: Path, *, spill: Path, read_only: bool = False, lingers: bool = False) -> Iterator[Connection]:
    """Open a DuckDB file that only its owner can read; DuckDB writes to the folder `spill` what does not fit in memory.

    Threads that open the same file at the same time share one instance, since DuckDB refuses a second one; each has its own
    cursor. Other processes can open the file as soon as the last thread closes it; one that `lingers` may stay open for a moment
    longer inside of `lingering`.
    """
    with _SHARING:
        shared = _still_open(path, read_only)
        if shared is None:
            time.sleep(max(0.0, _FREED.pop(path, 0.0) + _TURN - time.monotonic()))
            connection, file = _open_when_free(path, spill, read_only), path.stat()
            with suppress(OSError):
                _wanted(path).unlink()  # others who wait write it again
            opened = time.monotonic()
            shared = _OPEN[path] = _Shared(connection, (file.st_dev, file.st_ino), read_only, opened)
        shared.users += 1
        con = shared.connection.cursor()
    try:
        yield con
    finally:
        con.close()
        with _SHARING:
            shared.users -= 1
            shared.left = time.monotonic()
            if not shared.users and not (lingers and _lingering):
                _close(path, shared)
            elif not shared.users and not read_only and shared.left - shared.opened > _WHILE * _patience(path):
                _close(path, shared)
                _FREED[path] = time.monotonic()
            elif not shared.users and shared.timer is None:
                _close_later(path, shared)


def _still_open(path: Path, read_only: bool) -> _Shared | None:
    """Return the open instance of a file; close one that nobody uses and that is of another file by now, or opened otherwise."""
    shared = _OPEN.get(path)
    if shared is None or shared.users:
        return shared
    try:
        file = path.stat()
        is_same = (file.st_dev, file.st_ino) == shared.file
    except FileNotFoundError:
        is_same = False
    if is_same and shared.read_only == read_only:
        return shared
    _close(path, shared)
    return None


def let_go(path: Path) -> None:
    """Close a file that lingers, before it is removed."""
    with _SHARING:
        if (shared := _OPEN.get(path)) and not shared.users:
            _close(path, shared)


def _wanted(path: Path) -> Path:
    return path.with_name(path.name + ".wanted")


def _patience(path: Path) -> float:
    """Return 1 where another process has just said that it waits for a file, and otherwise how many times as long it stays open."""
    try:
        return 1.0 if time.time() - _wanted(path).stat().st_mtime < _WANTED else _ALONE
    except OSError:
        return _ALONE


def _close_later(path: Path, shared: _Shared) -> None:
    shared.timer = Timer(_TRY_EVERY, _close_if_unused, (path, shared))
    shared.timer.daemon = True
    shared.timer.start()


def _close_if_unused(path: Path, shared: _Shared) -> None:
    """Close a file that nobody has used for a moment; come back where somebody has, or nobody waits for it."""
    with _SHARING:
        shared.timer = None
        if _OPEN.get(path) is not shared or shared.users:
            return
        if shared.left + _LINGER * _patience(path) > time.monotonic():
            _close_later(path, shared)
        else:
            _close(path, shared)


def _close(path: Path, shared: _Shared) -> None:
    del _OPEN[path]
    shared.connection.close()


@contextmanager
def lingering() -> Iterator[None]:
    """Let the store stay open between uses that follow one another closely, and close it at the end."""
    global _lingering
    with _SHARING:
        _lingering += 1
    try:
        yield
    finally:
        with _SHARING:
            _lingering -= 1
            unused = {} if _lingering else {path: shared for path, shared in _OPEN.items() if not shared.users}
            for path, shared in unused.items():
                _close(path, shared)
        for timer in [shared.timer for shared in unused.values() if shared.timer]:
            timer.cancel()
            timer.join()


@contextmanager
def transaction(con: Connection) -> Iterator[Connection]:
    """Commit everything that is done inside, or nothing; other threads that write wait."""
    with _WRITING, _all_or_nothing(con):
        yield con


@contextmanager
def _all_or_nothing(con: Connection) -> Iterator[None]:
    import duckdb

    con.execute("BEGIN")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # a commit that fails has rolled back already
            con.execute("ROLLBACK")
        raise


def _open_when_free(path: Path, spill: Path, read_only: bool) -> Connection:
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "allow_community_extensions": False,
    }
    began, has_named_holder = time.monotonic(), False
    while True:
        before = os.umask(0o077)
        try:
            return duckdb.connect(str(path), read_only=read_only, config=settings)
        except duckdb.IOException as fault:
            holder = re.search(r"PID (\d+)", str(fault))
            if time.monotonic() - began > _patience_with(str(fault)):
                reason = f"process {holder[1]} holds it" if holder else "it cannot be read or written"
                hint = "Wait for that process, or end it." if holder else "It must be a DuckDB file that you own."
                unopened = StoreError(f"{path} cannot be opened: {reason}.", field="TRELLIS_HOME", hint=hint)
                raise disk_fault(fault) or unopened from None
            if path.name == STORE:
                with suppress(OSError):  # on a disk that is full or read-only nobody is told
                    _wanted(path).touch()
        finally:
            os.umask(before)
        if not has_named_holder and time.monotonic() - began > _SAY_WHO_HOLDS_IT_AFTER:
            has_named_holder = True
            print(f"Waiting for {path.name}, held by process {holder[1] if holder else '?'}.", file=sys.stderr)  # noqa: T201 (the caller's terminal)
        time.sleep(_TRY_EVERY)


def _patience_with(fault: str) -> float:
    """Return for how many seconds to try again, after DuckDB failed to open a file."""
    if "Could not set lock" in fault:
        return _GIVE_UP_AFTER
    return _BEING_MADE if "not a valid DuckDB" in fault else 0.0


def _migrate(con: Connection) -> None:
    """Bring the store to this version: each step is one transaction with its record. An older store is copied first.

    A new store takes all steps in one transaction: had it only some, whoever opens it next would copy it.
    """
    import duckdb

    try:
        version = con.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchall()[0][0]
    except duckdb.CatalogException:
        con.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
        version = 0
    if version > len(STEPS):
        raise StoreError(
            f"The store has version {version}; this Trellis knows versions up to {len(STEPS)}.",
            field="TRELLIS_HOME",
            hint="Use the version of Trellis that wrote it.",
        )
    if version == len(STEPS):
        return
    backup = _back_up(con, version) if version else None
    ends = range(version + 1, len(STEPS) + 1) if version else [len(STEPS)]
    for first, end in pairwise([version, *ends]):
        try:
            with _all_or_nothing(con):
                for number in range(first, end):
                    con.execute(STEPS[number])
                    con.execute("INSERT INTO migrations VALUES (?, now()::TIMESTAMP)", [number + 1])
        except duckdb.Error as fault:
            raise disk_fault(fault) or StoreError(
                f"The store cannot be brought from version {first} to {end} ({type(fault).__name__}).",
                field="TRELLIS_HOME",
                hint="The store stays as it was before that step." + (f" {backup} is a copy of it." if backup else ""),
            ) from None


def _back_up(con: Connection, version: int) -> Path:
    """Copy the store to a file beside it, and return the copy's path."""
    if con.execute("SELECT readonly FROM duckdb_databases() WHERE database_name = 'store'").fetchall()[0][0]:
        raise StoreError(
            f"The store has version {version} and must be brought to version {len(STEPS)}, but it is mounted read-only.",
            field="TRELLIS_HOME",
            hint="Mount its disk for writing, or use the version of Trellis that wrote it.",
        )
    path = home() / f"{STORE}.version-{version}.backup"
    copy_store(con, path)
    return path


def copy_store(con: Connection, path: Path) -> None:
    """Copy what is committed in the store to a file, closed to others, completely or not at all.

    Reading the store's file instead would release it to other processes: closing any handle of a file ends all locks that
    this process has on it.
    """
    partial = path.with_name(path.name + ".partial")
    log = partial.with_name(partial.name + ".wal")
    before = os.umask(0o077)
    try:
        partial.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        con.execute(f"ATTACH {_text(partial)} AS backup")
        try:
            con.execute("COPY FROM DATABASE store TO backup")
            con.execute("CHECKPOINT backup")
        finally:
            con.execute("DETACH backup")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        replace(partial, path)
    finally:
        os.umask(before)
        partial.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def file_literal(path: Path) -> str:
    """Return a path as SQL text that DuckDB reads as this one file, not as a pattern that may match others."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"

"""Connections to DuckDB: short transactions, a wait for the lock, and the store's migrations."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import duckdb

from storage.errors import StoreError
from storage.home import home, subfolder
from storage.migrations import MIGRATIONS

Connection = duckdb.DuckDBPyConnection

_SAY_WHO_HOLDS_IT_AFTER = 10.0  # seconds
_GIVE_UP_AFTER = 120.0  # seconds


@dataclass(slots=True)
class _Shared:
    connection: Connection
    users: int = 0


_OPEN: dict[Path, _Shared] = {}
_SHARING = Lock()
_WRITING = Lock()  # one writer: two transactions of one process would only end in conflict


@contextmanager
def store() -> Iterator[Connection]:
    """Open `store.duckdb` for one short piece of work, waiting for another process that holds it.

    Raises:
        StoreError: the store cannot be opened, another process keeps it, or a newer version wrote it.
    """
    with connect(home() / "store.duckdb", spill=subfolder("tmp")) as con:
        with _WRITING:
            _migrate(con)
        yield con


@contextmanager
def connect(path: Path, *, spill: Path, read_only: bool = False) -> Iterator[Connection]:
    """Open a DuckDB file that only its owner can read; what does not fit in memory spills to a folder.

    Threads that have the same file open at the same time share one instance, each with a cursor of its own: DuckDB
    refuses a second instance. The file is free for other processes as soon as the last of them is done.
    """
    with _SHARING:
        shared = _OPEN.get(path)
        if shared is None:
            shared = _OPEN[path] = _Shared(_open_when_free(path, spill, read_only))
        shared.users += 1
        con = shared.connection.cursor()
    try:
        yield con
    finally:
        con.close()
        with _SHARING:
            shared.users -= 1
            if not shared.users:
                del _OPEN[path]
                shared.connection.close()


@contextmanager
def transaction(con: Connection) -> Iterator[Connection]:
    """Commit what is done inside as one, or nothing of it; other threads that write wait."""
    with _WRITING:
        con.execute("BEGIN")
        try:
            yield con
        except BaseException:
            con.execute("ROLLBACK")
            raise
        con.execute("COMMIT")


def _open_when_free(path: Path, spill: Path, read_only: bool) -> Connection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "allow_community_extensions": False,
    }
    began, told = time.monotonic(), False
    while True:
        before = os.umask(0o077)
        try:
            return duckdb.connect(str(path), read_only=read_only, config=settings)
        except duckdb.IOException as fault:
            holder = re.search(r"PID (\d+)", str(fault))
            if "Could not set lock" not in str(fault) or time.monotonic() - began > _GIVE_UP_AFTER:
                reason = f"process {holder[1]} holds it" if holder else "it cannot be read or written"
                raise StoreError(f"{path} cannot be opened: {reason}.", field="TRELLIS_HOME") from None
        finally:
            os.umask(before)
        if not told and time.monotonic() - began > _SAY_WHO_HOLDS_IT_AFTER:
            told = True
            print(f"Waiting for {path.name}, held by process {holder[1] if holder else '?'}.", file=sys.stderr)  # noqa: T201 (the caller's terminal)
        time.sleep(0.05)


def _migrate(con: Connection) -> None:
    """Bring the store to this version, each step in one transaction with its record."""
    try:
        version = con.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchall()[0][0]
    except duckdb.CatalogException:
        con.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
        version = 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"The store has version {version}; this Trellis knows versions up to {len(MIGRATIONS)}.",
            field="TRELLIS_HOME",
            hint="Use the newer Trellis that wrote it.",
        )
    for number in range(version, len(MIGRATIONS)):
        con.execute("BEGIN")
        con.execute(MIGRATIONS[number])
        con.execute("INSERT INTO migrations VALUES (?, now()::TIMESTAMP)", [number + 1])
        con.execute("COMMIT")


def file_literal(path: Path) -> str:
    """Return a path as SQL text that DuckDB takes for this one file, and for no pattern that matches others."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"

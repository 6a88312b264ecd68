"""Runs: which Prefect flow run has worked on which release. Prefect may forget this; the store does not."""

from datetime import datetime
from typing import NamedTuple

from storage.database.connections import Connection
from storage.machine.clock import utc_now


class OpenRun(NamedTuple):
    """A flow run that has not ended, as far as the store knows.

    Attributes:
        release_id: the release on which it works.
        began: when it last began, in UTC, to the second.
    """

    release_id: str
    began: datetime


def open_run(con: Connection, run: str, release_id: str) -> None:
    """Record that a flow run has begun to work on a release, for the first time or again."""
    con.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, true)", [run, release_id, utc_now()])


def close_run(con: Connection, run: str) -> None:
    """Record that a flow run has ended, in whatever way."""
    con.execute("UPDATE runs SET is_open = false WHERE run = ?", [run])


def open_runs(con: Connection) -> dict[str, OpenRun]:
    """Return the flow runs that have not ended, as far as the store knows."""
    rows = con.execute("SELECT run, release_id, began FROM runs WHERE is_open ORDER BY began").fetchall()
    return {run: OpenRun(release_id, datetime.fromisoformat(began)) for run, release_id, began in rows}


def has_run(con: Connection, release_id: str) -> bool:
    """Return whether a flow run has ever worked on a release."""
    return bool(con.execute("SELECT 1 FROM runs WHERE release_id = ? LIMIT 1", [release_id]).fetchone())


def release_of(con: Connection, run: str) -> str | None:
    """Return the release that a flow run has worked on, None if it never began to."""
    row = con.execute("SELECT release_id FROM runs WHERE run = ?", [run]).fetchone()
    return row[0] if row else None

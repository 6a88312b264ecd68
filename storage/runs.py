"""Runs: which flow run of Prefect's has worked on which release. Prefect may forget; the store does not."""

from storage.clock import utc_now
from storage.database import Connection


def open_run(con: Connection, run: str, release_id: str) -> None:
    """Record that a flow run works on a release, for the first time or again."""
    con.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, true)", [run, release_id, utc_now()])


def close_run(con: Connection, run: str) -> None:
    """Record that a flow run has ended, however it did."""
    con.execute("UPDATE runs SET is_open = false WHERE run = ?", [run])


def open_runs(con: Connection) -> dict[str, str]:
    """Return the flow runs that have not ended, as far as the store knows, with their releases."""
    return dict(con.execute("SELECT run, release_id FROM runs WHERE is_open ORDER BY began").fetchall())


def release_of(con: Connection, run: str) -> str | None:
    """Return the release that a flow run has worked on, None if it has not come so far."""
    row = con.execute("SELECT release_id FROM runs WHERE run = ?", [run]).fetchone()
    return row[0] if row else None

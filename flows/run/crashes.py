"""Releases whose process has died: they count as failed, and `trellis rerun` can finish them."""

from contextlib import suppress

from flows.run.notices import tell
from storage.database.connections import Connection, store
from storage.errors import HeldElsewhere, StoreError
from storage.machine.locks import held, holder_of
from storage.releases.register import Release, find_release, list_releases, set_state

_CRASHED = "It crashed: the process that ran it ended before it was done."


def note_crashes() -> None:
    """Record as failed every release that the store calls running or reserved and that no process holds: it has crashed.

    Where the store cannot be written, nothing is recorded, so that commands that only read still answer.
    """
    crashed = list[Release]()
    with suppress(StoreError, OSError), store() as con:
        for release in list_releases(con):
            if release.state in {"reserved", "running"} and holder_of(release.id) is None:
                crashed += _record_crash(con, release.id)
    for dead in crashed:
        tell(dead.id, dead.dataset, "failed", f"{_CRASHED}\n`trellis rerun {dead.id}` continues it.")


def _record_crash(con: Connection, release_id: str) -> list[Release]:
    """Return the release if it was recorded as failed just now."""
    try:
        with held(release_id):
            release = find_release(con, release_id)
            waits = release.state == "reserved" and release.terms.series  # for its day
            if release.state in {"reserved", "running"} and not waits:
                set_state(con, release_id, "failed", _CRASHED)
                return [release]
    except HeldElsewhere:
        pass  # another process has just begun to run it
    return []

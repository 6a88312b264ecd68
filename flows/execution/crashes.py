"""Releases whose process is dead: they are failed, and can be gone on with."""

from contextlib import suppress

from storage.database.connections import Connection, store
from storage.errors import HeldElsewhere, StoreError
from storage.machine.locks import held, holder_of
from storage.releases.register import find_release, list_releases, set_state


def note_crashes() -> None:
    """Record as failed what is called running, or reserved just before, and is run by nobody: its process is dead.

    Where the disk takes no record, nothing is recorded: who only looks is answered all the same.
    """
    with suppress(StoreError, OSError), store() as con:
        for release in list_releases(con):
            if release["state"] in {"reserved", "running"} and holder_of(release["id"]) is None:
                _note_crash(con, release["id"])


def _note_crash(con: Connection, release_id: str) -> None:
    try:
        with held(release_id):
            release = find_release(con, release_id)
            waits = release.state == "reserved" and release.terms.series
            if release.state in {"reserved", "running"} and not waits:
                set_state(con, release_id, "failed", "It crashed: the process that ran it ended before it was done.")
    except HeldElsewhere:
        pass  # somebody has just begun to run it

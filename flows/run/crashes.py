"""Releases whose process has died: they count as failed, and `trellis rerun` can finish them."""

from contextlib import suppress

from flows.run.notices import send_notice
from storage.database.connections import store
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
        for listed in list_releases(con):
            if listed.state in {"reserved", "running"} and holder_of(listed.id) is None:
                with suppress(HeldElsewhere), held(listed.id):  # held where another process has just begun to run it
                    release = find_release(con, listed.id)
                    waits = release.state == "reserved" and release.terms.series  # for its day
                    if release.state in {"reserved", "running"} and not waits:
                        set_state(con, release.id, "failed", _CRASHED)
                        crashed.append(release)
    for release in crashed:
        send_notice(release.id, release.dataset, "failed", f"{_CRASHED}\n`trellis rerun {release.id}` continues it.")

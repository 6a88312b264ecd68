"""Releases whose process has died: they count as failed, and `trellis rerun` can finish them."""

from contextlib import suppress

from flows.run.notices import send_notice
from storage.database.connections import store
from storage.errors import HeldElsewhere, StoreError
from storage.machine.locks import held, holder_of
from storage.releases.register import (
    find_release,
    forget_notice,
    keep_notice,
    list_releases,
    set_state,
    waiting_notices,
)

_CRASHED = "It crashed: the process that ran it ended before it was done."


def note_crashes() -> None:
    """Record as failed every release that the store calls running or reserved and that no process holds: it has crashed.

    The notice of a crash waits in the store until somebody with TRELLIS_NOTIFY looks: it need not be whoever looks first. Where the store
    cannot be written, nothing is recorded, so that commands that only read still answer.
    """
    with suppress(StoreError, OSError), store() as con:
        for listed in list_releases(con):
            if listed.state in {"reserved", "running"} and holder_of(listed.id) is None:
                with suppress(HeldElsewhere), held(listed.id):  # held where another process has just begun to run it
                    release = find_release(con, listed.id)
                    waits = release.state == "reserved" and release.terms.series  # for its day
                    if release.state in {"reserved", "running"} and not waits:
                        keep_notice(con, release.id)
                        set_state(con, release.id, "failed", _CRASHED)
    with suppress(StoreError, HeldElsewhere, OSError):
        with store() as con:
            is_untold = bool(waiting_notices(con))
        if is_untold:
            _tell_crashes()


def _tell_crashes() -> None:
    """Send the notices that wait, and forget those that were sent, or whose release somebody has taken up since."""
    with held("notices"):  # one process sends each
        with store() as con:
            waiting = waiting_notices(con)
        for release_id, dataset, state in waiting:
            text = f"{_CRASHED}\n`trellis rerun {release_id}` continues it."
            if state != "failed" or send_notice(release_id, dataset, "failed", text):
                with store() as con:
                    forget_notice(con, release_id)

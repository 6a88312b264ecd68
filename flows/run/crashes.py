"""Releases whose process has died: they count as failed, and `trellis rerun` can finish them."""

import os
from contextlib import suppress

from flows.run.notices import NOTIFY, send_notice
from storage.database.connections import store
from storage.errors import HeldElsewhere, StoreError
from storage.machine.locks import held, holder_of
from storage.releases.register import failed_because, find_release, list_releases, set_state

_CRASHED = "It crashed: the process that ran it ended before it was done."
_TOLD = f"{_CRASHED} A notice of it was sent."


def note_crashes() -> None:
    """Record as failed every release that the store calls running or reserved and that no process holds: it has crashed.

    The notice of it waits until somebody who has TRELLIS_NOTIFY looks, which need not be who looks first. Where the store cannot be
    written, nothing is recorded, so that commands that only read still answer.
    """
    with suppress(StoreError, OSError), store() as con:
        for listed in list_releases(con):
            if listed.state in {"reserved", "running"} and holder_of(listed.id) is None:
                with suppress(HeldElsewhere), held(listed.id):  # held where another process has just begun to run it
                    release = find_release(con, listed.id)
                    waits = release.state == "reserved" and release.terms.series  # for its day
                    if release.state in {"reserved", "running"} and not waits:
                        set_state(con, release.id, "failed", _CRASHED)
    if os.environ.get(NOTIFY):
        with suppress(StoreError, OSError):
            _tell()


def _tell() -> None:
    """Send a notice of every crash of which none was sent; a release that somebody has taken up since is not failed any more."""
    with held("notices"):  # one process sends each
        with store() as con:
            untold = failed_because(con, _CRASHED)
        for release_id, dataset in untold:
            if send_notice(release_id, dataset, "failed", f"{_CRASHED}\n`trellis rerun {release_id}` continues it."):
                with store() as con:
                    if (release_id, dataset) in failed_because(con, _CRASHED):
                        set_state(con, release_id, "failed", _TOLD)

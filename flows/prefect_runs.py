"""Flow runs whose end Prefect has not seen: it calls those that were started directly Running for ever."""

import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from storage.database import store
from storage.running import holder_of
from storage.runs import close_run, open_runs

UP = "TRELLIS_UP"  # the process of `trellis up`, for the runs that it starts
_LOOK_EVERY = 1.0  # seconds, whether it is still there
_JUST_BEGUN = timedelta(seconds=10)  # a run that is tried again takes some seconds until it holds its release

_ALIVE = {StateType.PENDING, StateType.RUNNING, StateType.CANCELLING}


def tell_prefect_of_crashes() -> None:
    """Mark as crashed every flow run that Prefect takes for running and that holds no release any more."""
    with store() as con:
        runs = open_runs(con)
    for run, release_id in runs.items():
        holder = holder_of(release_id)
        if (holder is None or holder.run != run) and _has_ended(run, release_id):
            with store() as con:
                close_run(con, run)


def end_with_up() -> None:
    """Let this process, if `trellis up` has started it, end soon after that, however that ended.

    Its server ends too, and nobody could see, cancel or end the run any more. What is sealed is kept, as after any kill.
    """
    up = os.environ.get(UP)
    if up:
        threading.Thread(target=_end_without, args=[int(up)], daemon=True).start()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGKILL)


def end_cancelled(run: str) -> None:
    """Call a flow run of this process cancelled that has ended while the UI waited for it to be."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(run), Cancelled(message="It ended while it was being cancelled."), force=True)


def _has_ended(run: str, release_id: str) -> bool:
    """Return whether Prefect knows that a run has ended, having told it if need be; one that has just begun may go on."""
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(UUID(run)).state
        except ObjectNotFound:
            return True  # Prefect has lost it
        if state and state.type in _ALIVE:
            if datetime.now(UTC) - state.timestamp < _JUST_BEGUN:
                return False
            message = (
                f"The process that ran {release_id} ended before it was done: `trellis rerun {release_id}` goes on."
            )
            client.set_flow_run_state(UUID(run), Crashed(message=message), force=True)
        return True

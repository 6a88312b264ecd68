"""Prefect's list of runs: names and tags by which runs are found, runs whose end it did not see, and the end of old ones.

Prefect shows a run of the first kind as Running for ever if it was started directly. It gives up a run of the second kind.
"""

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from httpx import HTTPError
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterEndTime,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Completed, Crashed

from flows.run.crashes import note_crashes
from flows.server.handover import hand_over, tags_of
from flows.specification.sections.schedule import day_of, scheduled_id
from storage.database.connections import store
from storage.errors import HeldElsewhere, StoreError, TrellisError
from storage.machine.locks import held, held_when_free, holder_of
from storage.releases.register import OpenRun, close_run, how_to_go_on, open_runs, release_of, state_of

_AT_ONCE = 200  # runs that a server lists at most


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A spec whose deployment runs on a schedule, by its name, with the schedule's time zone."""

    name: str
    timezone: str
    dataset: str


def describe_run(run: str, release_id: str, dataset: str = "") -> None:
    """Name a flow run after its release unless its name says it, and tag it with release and dataset: people look for them.

    If the server does not answer, the run goes on as it is.
    """
    with suppress(HTTPError, RuntimeError, ObjectNotFound), get_client(sync_client=True) as client:
        known = client.read_flow_run(UUID(run))
        name = known.name if release_id in known.name else release_id
        client.update_flow_run(UUID(run), name=name, tags=sorted({*known.tags, *tags_of(release_id, dataset)}))


def name_scheduled_runs(schedules: Sequence[Scheduled]) -> None:
    """Name the runs that are scheduled after the releases that they will make."""
    with suppress(HTTPError, RuntimeError, ObjectNotFound), get_client(sync_client=True) as client:
        for schedule in schedules:
            deployment = client.read_deployment_by_name(f"release/{schedule.name}")
            coming = FlowRunFilter(
                deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
                state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Scheduled"])),
            )
            for run in client.read_flow_runs(flow_run_filter=coming, limit=_AT_ONCE):
                if run.auto_scheduled and run.expected_start_time:
                    release_id = scheduled_id(schedule.name, day_of(run.expected_start_time, schedule.timezone))
                    if run.name != release_id:
                        tags = sorted(set(run.tags) | tags_of(release_id, schedule.dataset))
                        client.update_flow_run(run.id, name=release_id, tags=tags)


def delete_old_runs(older_than: timedelta) -> int:
    """Delete from Prefect's database the runs that ended so long ago, with their task runs, logs and artifacts; return how many.

    The store keeps every release, and `trellis show` shows it.
    """
    ended = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=sorted(TERMINAL_STATES))),
        end_time=FlowRunFilterEndTime.model_validate({"before_": datetime.now(UTC) - older_than}),
    )
    deleted = 0
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(flow_run_filter=ended, limit=_AT_ONCE):
            for run in runs:
                of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
                while artifacts := client.read_artifacts(artifact_filter=of_run):
                    for artifact in artifacts:
                        with suppress(ObjectNotFound):  # another command deletes too
                            client.delete_artifact(artifact.id)
                with suppress(ObjectNotFound):
                    client.delete_flow_run(run.id)
                deleted += 1
    return deleted


UP = "TRELLIS_UP"  # the process of `trellis up`, for the runs that it starts
_LOOK_EVERY = 1.0  # seconds, whether it is still there
_FIRST_LOOK, _LOOK_FOR_CRASHES_EVERY = 5.0, 30.0  # seconds
# A retried run takes some seconds from one state to the next before it holds its release.
_JUST_PENDING, _JUST_RUNNING = timedelta(minutes=3), timedelta(seconds=10)
_SECOND = timedelta(seconds=1)

# A run that crashed before it began is tried again, but not later than this: by then somebody may have triggered another
# run in its place, and each makes a release of its own.
TRIES_AGAIN = 3
_TRIED_WITHIN = timedelta(hours=1)
_APART = timedelta(seconds=5)  # so that runs that crashed together do not begin together
_TRIED = ["release", "rerun"]  # the flows of deployments

_ALIVE = {StateType.PENDING, StateType.RUNNING, StateType.CANCELLING}


def seen_alive(run: str) -> AbstractContextManager[None]:
    """Show that a flow run is alive, also while it has no release: while it plans, and until Prefect knows its end.

    Wait for an earlier process of the run that was just cancelled.
    """
    return held_when_free(run)


def begin_deployed(run: str) -> None:
    """Begin a deployment's run in the process that was started for it. The run counts as alive until that process ends."""
    atexit.register(_close_stderr)
    logging.getLogger("prefect.flow_runs").addFilter(_is_news)
    if up := os.environ.get(UP):
        threading.Thread(target=_end_without, args=[int(up)], daemon=True).start()
    lasting = ExitStack()
    lasting.enter_context(seen_alive(run))
    atexit.register(lasting.close)
    look_for_crashes()


def look_for_crashes() -> None:
    """Record the releases of dead processes as failed, here and in Prefect, and retry runs that crashed before they began.

    First hand over the runs that no server has seen.

    If the store or the server does not answer, the next look does it.
    """
    note_crashes()
    with suppress(StoreError, HTTPError, RuntimeError):
        hand_over()
    with suppress(StoreError, HTTPError, RuntimeError):  # RuntimeError: what the client makes of a server that is gone
        tell_prefect_of_crashes()
        try_again()


@contextmanager
def looking_after(*also: Callable[[], None]) -> Iterator[None]:
    """Look for crashes from time to time while Trellis is up, and do what else has to be done."""
    ended = threading.Event()

    def look() -> None:
        wait = _FIRST_LOOK
        while not ended.wait(wait):
            wait = _LOOK_FOR_CRASHES_EVERY
            for work in (look_for_crashes, *also):
                work()

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def tell_prefect_of_crashes() -> None:
    """Mark every flow run as crashed, with its task runs, if Prefect shows it as running but no process runs it."""
    with store() as con:
        runs = open_runs(con)
    for run, known in runs.items():
        holder = holder_of(known.release_id)
        is_alive = holder_of(run) or (holder and holder.run == run)
        if not is_alive and _has_ended(run, known):
            with store() as con:
                close_run(con, run)


def try_again() -> None:
    """Schedule again the runs of deployments that crashed before they began, each at most `TRIES_AGAIN` times.

    A run has not begun if Prefect never set it to Running and the store knows no release of it. Prefect keeps every state
    of a run, so the UI shows each try with its reason, and the states count the tries.
    """
    crashed = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
        end_time=FlowRunFilterEndTime.model_validate({"after_": datetime.now(UTC) - _TRIED_WITHIN}),
    )
    flows = FlowFilter(name=FlowFilterName(any_=_TRIED))
    # One process at a time looks and schedules. A second one could reset a run that has just begun.
    with suppress(HeldElsewhere), held("tries"), get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_filter=flows, flow_run_filter=crashed)
        for number, run in enumerate([run for run in runs if run.deployment_id and not _has_begun(run)], start=1):
            tried = sum(state.type == StateType.CRASHED for state in client.read_flow_run_states(run.id))
            if tried <= TRIES_AGAIN:
                message = f"It crashed before it began. Try {tried} of {TRIES_AGAIN} follows."
                again: State[None] = AwaitingRetry(scheduled_time=datetime.now(UTC) + number * _APART, message=message)
                client.set_flow_run_state(run.id, again)


def _has_begun(run: FlowRun) -> bool:
    """Return whether a flow run has ever begun, or is still alive."""
    with store() as con:
        return run.run_count > 0 or release_of(con, str(run.id)) is not None or holder_of(str(run.id)) is not None


def is_cancelled(run: str) -> bool:
    """Return whether a flow run was cancelled in the UI; False if the server does not answer."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run)).state
    except (HTTPError, RuntimeError, ObjectNotFound):
        return False
    return state is not None and state.type in {StateType.CANCELLING, StateType.CANCELLED}


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of a run's log is more than what its failed state says: Prefect repeats that with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], TrellisError))


def _close_stderr() -> None:
    """Close stderr at the very end, so that DuckDB's extension does not fill the log with what was not freed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def _end_without(parent: int) -> None:
    """End this process soon after `trellis up`, its parent, ends for whatever reason.

    The server ends too, so nobody could see, cancel or end the run any more. Sealed levels stay, as after any kill.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGKILL)


def end_cancelled(run: str) -> None:
    """Mark a flow run of this process as cancelled if it ended while the UI waited for its cancellation."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(run), Cancelled(message="It ended while it was being cancelled."), force=True)


def _has_ended(run: str, known: OpenRun) -> bool:
    """Return whether Prefect knows that a run has ended, after telling it if needed. A run that begins again may continue."""
    release_id = known.release_id
    with store() as con:
        how = how_to_go_on(con, release_id)
    message = f"The process that ran {release_id} ended before the release was complete. {how}"
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(UUID(run)).state
        except ObjectNotFound:
            return True  # Prefect has lost it
        if state and state.type in _ALIVE:
            just_begun = _JUST_PENDING if state.type == StateType.PENDING else _JUST_RUNNING
            begins_again = state.timestamp > known.began + _SECOND
            if begins_again and timedelta(0) <= datetime.now(UTC) - state.timestamp < just_begun:
                return False
            with store() as con:
                is_published = state_of(con, release_id) == "published"
            gone: State[None] = Completed(message="The server was gone when the run ended.")
            state = gone if is_published else Crashed(message=message)
            client.set_flow_run_state(UUID(run), state, force=True)
        if state and state.type == StateType.CRASHED:
            _end_task_runs(client, run, message)
        return True


def _end_task_runs(client: SyncPrefectClient, run: str, message: str) -> None:
    """Mark the task runs that a crashed flow run left running as crashed."""
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(run)]))
    alive = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=sorted(_ALIVE))))
    for task_run in client.read_task_runs(flow_run_filter=of_run, task_run_filter=alive):
        client.set_task_run_state(task_run.id, Crashed(message=message), force=True)

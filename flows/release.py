"""The Prefect flows, a screen of wiring around the plain driver: make a release, and go on with one.

The command line says what it wants by `ordering`; a flow run without an order comes from a deployment, which anybody who
reaches the server can trigger: it takes only specs below the folder named at `trellis up`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from httpx import HTTPError
from prefect import flow, get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.artifacts import Progress, show_failure, show_published, show_refusal
from flows.driver import finish_release, make_release
from flows.plan import Plan, make_plan
from flows.prefect_runs import end_with_up
from flows.reservation import declare_series, new_release
from flows.runner import Future, Report, Submit, report_nothing
from flows.schedule import day_of, scheduled_id
from flows.spec import SpecFile, load_spec
from storage.database import store
from storage.errors import BudgetExceeded, HeldElsewhere, Interrupted, SpecError, StoreError, public_errors
from storage.releases import Release, find_release, state_of
from storage.runs import release_of
from tasks.machine import cores
from tasks.stage import in_processes

SPECS = "TRELLIS_SPECS"  # the folder below which specs are taken from whoever reaches the server

_SIGNALS = (KeyboardInterrupt, SystemExit, TerminationSignal, Abort, Pause)

Work = Callable[[Submit, Report], dict[str, float]]


@dataclass(slots=True)
class Order:
    """What the process that calls a flow wants, and what it sees of the run. Prefect stores none of this.

    Attributes:
        report: is told of progress.
        plan: what is to be released, and `made`, from `new_release`; None for a rerun.
        flow_run_id: Prefect's id of the run, once it has begun.
        task_runs: how many task runs have ended; Prefect does not record those that it cancels before they begin.
        seconds: thread seconds per room, at the end.
    """

    report: Report = report_nothing
    plan: Plan | None = None
    made: Release | None = None
    flow_run_id: str = ""
    task_runs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, future: Any) -> None:
        """Count a task run that has ended."""
        self.task_runs += not future.wrapped_future.cancelled()


_ORDER: ContextVar[Order | None] = ContextVar("order", default=None)


@contextmanager
def ordering(order: Order) -> Iterator[Order]:
    """Order what the flows that are called inside do."""
    token = _ORDER.set(order)
    try:
        yield order
    finally:
        _ORDER.reset(token)


def _name_of_release() -> str:
    order = _ORDER.get()
    return order.made.id if order and order.made else Path((flow_run.parameters or {})["spec"]).stem


def _name_of_rerun() -> str:
    parameters = flow_run.parameters or {}
    branch = f", {parameters['branch']} only" if parameters.get("branch") else ""
    return f"{parameters['release_id']} again{branch}"


@flow(
    name="release",
    flow_run_name=_name_of_release,
    task_runner=ThreadPoolTaskRunner(max_workers=cores()),  # type: ignore[arg-type]
    persist_result=False,
    log_prints=False,
)
@partial(public_errors, passing=_SIGNALS)
def release(spec: str) -> State[Any] | str:
    """Release the table of a spec at every level, and return the release's id.

    Run again, as by Retry, it goes on with the same release where that stopped.

    Args:
        spec: path of the spec; in a deployment below the folder of specs that was named at `trellis up`.
    """
    order = _ORDER.get()
    if order and order.plan and order.made:
        return _run(order.made.id, partial(make_release, order.plan, order.made, run=str(flow_run.id)))
    end_with_up()
    file = load_spec(_below_the_folder_of_specs(spec))
    try:
        return _release_deployed(file)
    except BudgetExceeded as refusal:
        show_refusal(file.spec.name, refusal)
        return Completed(name="Refused", message=str(refusal))


@flow(
    name="rerun",
    flow_run_name=_name_of_rerun,
    task_runner=ThreadPoolTaskRunner(max_workers=cores()),  # type: ignore[arg-type]
    persist_result=False,
    log_prints=False,
)
@partial(public_errors, passing=_SIGNALS)
def rerun(release_id: str, branch: str | None = None) -> State[Any] | str:
    """Go on with a release that has failed: only what is missing runs again, and nothing is charged again.

    Args:
        release_id: the release, as `trellis releases` lists it.
        branch: only this branch; all that are missing if left out.
    """
    if _ORDER.get() is None:
        end_with_up()
    return _go_on(release_id, branch)


def _release_deployed(file: SpecFile) -> State[Any] | str:
    """Make the release that a deployment's run is for: that of its day, or the one that the run has begun before."""
    spec, run = file.spec, str(flow_run.id)
    with store() as con:
        release_id = release_of(con, run)
    if release_id is None and spec.schedule:
        day = day_of(_scheduled_time(), spec.schedule.timezone)
        release_id = scheduled_id(spec.name, day)
        if spec.schedule.until:
            # The first run may be what declares it, and then is of its first day.
            series = declare_series(make_plan(file), _scheduled_time() - timedelta(seconds=1))
            if release_id not in series.releases:
                return Completed(
                    name="Refused",
                    message=f"{day} is no day of the declared series {series.name}: it has {_from_to(series)}.",
                )
    with store() as con:
        state = state_of(con, release_id) if release_id else None
    if release_id and state not in {None, "refused"}:
        _rename_run(release_id)
        return _go_on(release_id)
    plan = make_plan(file)
    made = new_release(plan, None, release_id)
    _rename_run(made.id)
    return _run(made.id, partial(make_release, plan, made, run=run))


def _go_on(release_id: str, branch: str | None = None) -> State[Any] | str:
    with store() as con:
        state = find_release(con, release_id).state
    if state == "published":
        return Completed(message=f"{release_id} is published already.")
    return _run(release_id, partial(finish_release, release_id, only=branch, run=str(flow_run.id)))


def _run(release_id: str, work: Work) -> State[Any] | str:
    """Run a release, and show in the UI how far it is and how it ends."""
    order, deployed = _ORDER.get() or Order(), _ORDER.get() is None
    order.flow_run_id = str(flow_run.id)

    def submit(stage: Any, *arguments: Any) -> Future:
        try:
            future = stage.submit(*arguments)
        except (HTTPError, RuntimeError) as fault:  # RuntimeError: what Prefect's client makes of a server that is gone
            raise StoreError(f"The Prefect server does not answer any more ({type(fault).__name__}).") from None
        future.add_done_callback(order.count)
        return future  # type: ignore[no-any-return]

    with store() as con:
        known = find_release(con, release_id) if state_of(con, release_id) else order.made
    levels = len(known.levels) if known else 1
    progress = Progress(release_id, levels, order.report)
    try:
        with in_processes() if known and known.terms.get("workers") == "processes" else nullcontext():
            order.seconds = work(submit, progress)
    except HeldElsewhere as fault:
        if not deployed:
            raise
        return Completed(name="Elsewhere", message=str(fault))
    except (Exception, KeyboardInterrupt, TerminationSignal) as fault:
        _tell_failure(release_id, fault, deployed=deployed)
        if isinstance(fault, Interrupted | KeyboardInterrupt) or (
            isinstance(fault, TerminationSignal) and not deployed
        ):
            return Cancelled(message=f"{release_id} was interrupted: `trellis rerun {release_id}` goes on with it.")
        raise
    with store() as con:
        state = find_release(con, release_id)
    if state.state != "published":
        return Completed(name="Branch done", message=state.reason)
    progress.tell(100.0)
    show_published(release_id)
    return release_id


def _tell_failure(release_id: str, fault: BaseException, *, deployed: bool) -> None:
    with store() as con:
        state = state_of(con, release_id)
    if state not in {None, "refused"}:
        show_failure(release_id, fault, deployed=deployed)


def _below_the_folder_of_specs(spec: str) -> Path:
    folder = os.environ.get(SPECS)
    if not folder:
        raise SpecError(
            f"spec: {SPECS} names no folder of specs, so that none is taken from a deployment.",
            field="spec",
            hint="`trellis up FOLDER` sets it.",
        )
    path = (Path(folder) / spec).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise SpecError(f"spec must be below the folder {folder} that was named at `trellis up`.", field="spec")
    return path


def _scheduled_time() -> datetime:
    moment = flow_run.scheduled_start_time
    return datetime.fromisoformat(str(moment)) if moment else datetime.now(UTC)


def _from_to(series: Any) -> str:
    return f"{len(series.releases)} releases, {series.releases[0]} to {series.releases[-1]}"


def _rename_run(release_id: str) -> None:
    """Name the flow run after its release: that is how people look for it."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_name(flow_run.id, release_id)

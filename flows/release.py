"""The Prefect flows around the plain driver: make a release, and continue one.

The command line passes its wishes with `requesting`. A flow run without a request comes from a deployment. Everybody who
reaches the server can trigger a deployment, so it accepts only specs below the folder named at `trellis up`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from httpx import HTTPError
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.cluster.choice import by_workers
from flows.forecast.answer import made_before
from flows.planning.plan import Plan, make_plan
from flows.run.driver import finish_release, make_release
from flows.run.notices import refusals_announced, send_notice_of
from flows.run.reservation import new_release, refresh_run_keys
from flows.run.runner import Future, Report, Submit, report_nothing
from flows.run.series import declare_series, foresee_series
from flows.server.artifacts import (
    Progress,
    show_failure,
    show_nothing_reserved,
    show_published,
    show_refusal,
    what_to_press,
)
from flows.server.runs import begin_deployed, describe_run, seen_alive
from flows.specification.file import SpecFile, load_spec
from flows.specification.sections.schedule import day_of, scheduled_id
from storage.database.connections import store
from storage.errors import (
    BudgetExceeded,
    HeldElsewhere,
    Interrupted,
    MadeAlready,
    SpecError,
    StoreError,
    TrellisError,
    public_error,
    public_errors,
)
from storage.machine.locks import holder_of
from storage.releases.register import Release, find_release, how_to_go_on, is_reserved, release_of, state_of
from tasks.work.capacity import cores
from tasks.work.stage import width

SPECS = "TRELLIS_SPECS"  # the folder of the specs that a deployment may release

_SIGNALS = (KeyboardInterrupt, SystemExit, TerminationSignal, Abort, Pause)
_UNFINISHED = {"reserved", "running", "failed"}

Work = Callable[[Submit, Report], dict[str, float]]


@dataclass(slots=True)
class RunRequest:
    """What the process that calls a flow wants, and what it learns of the run. Prefect stores none of this.

    Attributes:
        planned: the plan of the release, and the release, from `new_release`; None for a rerun.
        flow_run_id: Prefect's id of the run, once it has begun.
        task_runs: how many task runs have ended. Prefect does not record those that it cancels before they begin.
        seconds: thread seconds per stage, at the end.
        alive: the lock that shows that the run is alive, until the request ends.
    """

    report: Report = report_nothing
    planned: tuple[Plan, Release] | None = None
    flow_run_id: str = ""
    task_runs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    alive: ExitStack = field(default_factory=ExitStack)

    def count(self, future: Any) -> None:
        """Count a task run that has ended."""
        self.task_runs += not future.wrapped_future.cancelled()


_REQUEST: ContextVar[RunRequest | None] = ContextVar("request", default=None)


@contextmanager
def requesting(request: RunRequest) -> Iterator[RunRequest]:
    """Give a request to the flows that are called inside."""
    token = _REQUEST.set(request)
    try:
        with request.alive:
            yield request
    finally:
        _REQUEST.reset(token)


def _name_of_release() -> str:
    request = _REQUEST.get()
    if request and request.planned:
        return request.planned[1].id
    with suppress(StoreError), store() as con:  # a retried run keeps its name
        if begun := release_of(con, str(flow_run.id)):
            return begun
    return Path((flow_run.parameters or {})["spec"]).stem


def _name_of_rerun() -> str:
    parameters = flow_run.parameters or {}
    branch = f", {parameters['branch']} only" if parameters.get("branch") else ""
    return f"{parameters['release_id']} again{branch}"


_SETTINGS: dict[str, Any] = {
    "task_runner": ThreadPoolTaskRunner(max_workers=cores()),
    "persist_result": False,
    "log_prints": False,
}


@flow(name="release", flow_run_name=_name_of_release, **_SETTINGS)
@partial(public_errors, passing=_SIGNALS)
def release(spec: str, measure_again: bool = False) -> State[Any] | str:
    """Release the table of a spec at every level, and return the release's id.

    When it runs again, for example with Retry, it continues the same release from where that stopped.

    Args:
        spec: the path of the spec. In a deployment it is relative to the folder of specs named at `trellis up`.
        measure_again: confirms that a spec that was released already is measured again, and charged again.
    """
    request, run = _REQUEST.get(), _begin()
    if request and request.planned:
        return _run(request.planned[1], partial(make_release, *request.planned, run=run))
    if not measure_again and (question := _question(spec, run)):
        return Completed(name="Asks", message=question)
    try:
        wanted, work = _wanted(spec, run)
    except BudgetExceeded as refusal:
        return _refused(refusal, Path(spec).stem)
    except Exception as fault:  # noqa: BLE001 (shown without its text if that is not public)
        show_nothing_reserved(Path(spec).stem, fault, deployed=True)
        send_notice_of(fault, Path(spec).stem, "")
        return _failed(what_to_press("", fault, deployed=True), fault)
    return _run(wanted, work)


@flow(name="rerun", flow_run_name=_name_of_rerun, **_SETTINGS)
@partial(public_errors, passing=_SIGNALS)
def rerun(release_id: str, branch: str | None = None) -> State[Any] | str:
    """Continue a release that failed. Only what is missing runs again, and nothing is charged again.

    Args:
        release_id: the release, as `trellis releases` lists it.
        branch: only this branch; all missing branches if left out.
    """
    return _run(*_continued(release_id, _begin(), branch))


def _begin() -> str:
    """Show that this run is alive until Prefect knows how it ended, and return its id."""
    request, run = _REQUEST.get(), str(flow_run.id)
    if request:
        request.alive.enter_context(seen_alive(run))
    else:
        begin_deployed(run)
    return run


def _question(spec: str, run: str) -> str:
    """Return what to ask a person who runs a spec again that was released, or is being; empty for a first run, a retry and a schedule.

    It depends on specs alone: whether the table has changed since is confidential.
    """
    with suppress(TrellisError):
        with store() as con:
            if release_of(con, run):
                return ""
        file = load_spec(_below_the_folder_of_specs(spec))
        with store() as con:
            if known := made_before(con, file, "published", "running", "reserved"):
                return (
                    f"{known} was made from the same spec. Another release is a new measurement of the same people, and is charged again."
                    " Nothing was measured or charged. To measure again, run this deployment with measure_again."
                )
    return ""


def _wanted(spec: str, run: str) -> tuple[Release, Work]:
    """Return the release that a deployment's run is for, and the work that makes it.

    It is the release that this run began before (its files may be gone by now), or the release of the run's day, or a
    new one. If the store knows the release, the run continues it, whoever began it.
    """
    with store() as con:
        release_id = release_of(con, run)
        is_known = release_id and is_reserved(con, release_id)
    if release_id and is_known:
        return _continued(release_id, run)
    file = load_spec(_below_the_folder_of_specs(spec))
    if release_id is None and file.spec.schedule:
        release_id = _release_of_day(file)
    with store() as con:
        is_known = release_id and is_reserved(con, release_id)
    if release_id and is_known:
        return _continued(release_id, run)
    plan = make_plan(file)
    try:
        made = new_release(plan, None, release_id)
    except MadeAlready:  # another run of its day made it a moment ago
        if release_id is None:
            raise
        return _continued(release_id, run)
    return made, partial(_make_once, plan, made, run)


def _release_of_day(file: SpecFile) -> str:
    """Return the id of the release of a run's day. Declare its series if the spec has one that is not declared yet.

    Raises:
        BudgetExceeded: the cap would be passed, or the day is not in the series, and only the series is paid for.
    """
    schedule, start = file.spec.schedule, flow_run.scheduled_start_time
    moment = datetime.fromisoformat(str(start)) if start else datetime.now(UTC)
    if schedule is None:
        raise ValueError("the spec has no schedule.")
    day = day_of(moment, schedule.timezone)
    release_id = scheduled_id(file.spec.name, day)
    if schedule.until:
        with refusals_announced(release_id, file.spec.dataset):
            # The run of the first day declares the series. One of another day reserves nothing.
            plan, before = make_plan(file), moment - timedelta(seconds=1)
            ids, _ = foresee_series(plan, before)
            if release_id not in ids:
                days = f"{len(ids)} releases, {ids[0]} to {ids[-1]}"
                refusal = BudgetExceeded(
                    f"{day} is not a day of the declared series {file.spec.name}, which has {days}."
                )
                refusal.release_id = release_id
                raise refusal
            declare_series(plan, before)
    return release_id


def _continued(release_id: str, run: str, branch: str | None = None) -> tuple[Release, Work]:
    """Return a reserved release, and the work that continues it."""
    return refresh_run_keys(release_id), partial(finish_release, release_id, only=branch, run=run)


def _make_once(plan: Plan, made: Release, run: str, submit: Submit, report: Report) -> dict[str, float]:
    """Make the release of a day, or continue it if another run reserved it in the meantime."""
    try:
        return make_release(plan, made, submit, report, run)
    except MadeAlready:
        return finish_release(made.id, submit, report, run=run)


def _run(release: Release, work: Work) -> State[Any] | str:
    """Run a release, and show its progress and its end in the UI."""
    describe_run(str(flow_run.id), release.id, release.dataset)
    if release.state == "published":
        return Completed(message=f"{release.id} is already published.")
    request, deployed = _REQUEST.get() or RunRequest(), _REQUEST.get() is None
    request.flow_run_id = str(flow_run.id)

    def submit(stage: Any, *arguments: Any) -> Future:
        try:
            future = stage.submit(*arguments)
        except (HTTPError, RuntimeError) as fault:  # Prefect's client raises RuntimeError if the server is gone
            raise StoreError(f"The Prefect server no longer answers ({type(fault).__name__}).") from None
        future.add_done_callback(request.count)
        return future  # type: ignore[no-any-return]

    progress = Progress(release, request.report)
    try:
        with by_workers(release.terms.run.workers), _threads(width()):
            request.seconds = work(submit, progress)
    except HeldElsewhere as fault:
        if not deployed:
            raise
        return Completed(name="Elsewhere", message=str(fault))
    except BudgetExceeded as refusal:
        if not deployed:
            raise
        return _refused(refusal, release.id)
    except (Exception, KeyboardInterrupt, TerminationSignal) as fault:
        _show_failure(release.id, fault, deployed=deployed)
        with store() as con:
            is_known, how = is_reserved(con, release.id), how_to_go_on(con, release.id)
        if isinstance(fault, Interrupted | KeyboardInterrupt) or (
            isinstance(fault, TerminationSignal) and not deployed
        ):
            return Cancelled(message=f"{release.id} was interrupted. {how}")
        if not isinstance(fault, Exception):
            raise
        return _failed(what_to_press(release.id if is_known else "", fault, deployed=deployed), fault)
    with store() as con:
        ended = find_release(con, release.id)
    if ended.state != "published":
        return Completed(name="Branch done", message=ended.reason)
    progress.show(100.0)
    show_published(release.id)
    return release.id


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Let task runs that are submitted inside run in `number` threads; the flow itself has one for each core."""
    context = FlowRunContext.get()
    if number <= cores() or context is None:
        yield
        return
    with (
        ThreadPoolTaskRunner(max_workers=number) as runner,  # type: ignore[var-annotated]
        context.model_copy(update={"task_runner": runner}),
    ):
        yield


def _show_failure(release_id: str, fault: BaseException, *, deployed: bool) -> None:
    """Show what stopped a run, unless its release is published, or somebody else runs it."""
    with store() as con:
        state = state_of(con, release_id)
    if state in {None, "refused"}:
        show_nothing_reserved(release_id, fault, deployed=deployed)
    elif state in _UNFINISHED and holder_of(release_id) is None:
        show_failure(release_id, fault, deployed=deployed)


def _failed(message: str, fault: Exception) -> State[Any]:
    """End a run as failed, so that its log ends with what to do; Prefect would log an exception that is raised with its traceback."""
    return Failed(message=message, data=public_error(fault, "release"))


def _refused(refusal: BudgetExceeded, name: str) -> State[Any]:
    """End a deployment's run that the budget refuses. It is not a failure, and Retry would not help."""
    if refusal.release_id:
        name = refusal.release_id
        describe_run(str(flow_run.id), name)
    show_refusal(name, refusal)
    return Completed(name="Refused", message=str(refusal))


def _below_the_folder_of_specs(spec: str) -> Path:
    folder = os.environ.get(SPECS)
    if not folder:
        raise SpecError(
            f"spec: {SPECS} is not set, so a deployment cannot accept any spec.",
            field="spec",
            hint="`trellis up FOLDER` sets it to the folder of specs.",
        )
    path = (Path(folder) / spec).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise SpecError(f"spec must be below the folder {folder}, which was named at `trellis up`.", field="spec")
    return path

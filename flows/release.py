"""The Prefect flow of a release: a screen of wiring around the plain driver."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from flows.driver import make_release
from flows.plan import make_plan
from flows.reservation import new_release
from flows.runner import Future, Report, report_nothing
from flows.spec import load_spec
from storage.errors import public_errors


@dataclass(slots=True)
class Watch:
    """What the process that calls the flow sees of it. Prefect stores none of this.

    Attributes:
        report: is told of progress.
        flow_run_id: Prefect's id of the run, once it has begun.
        task_runs: how many task runs have ended; Prefect does not record those that it cancels before they begin.
        seconds: thread seconds per room, at the end.
    """

    report: Report = report_nothing
    flow_run_id: str = ""
    task_runs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, future: Any) -> None:
        """Count a task run that has ended."""
        self.task_runs += not future.wrapped_future.cancelled()


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Watch the releases that are made inside."""
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def _run_name() -> str:
    parameters = flow_run.parameters or {}
    return str(parameters.get("release_id") or Path(parameters["spec"]).stem)


@flow(
    name="release",
    flow_run_name=_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=os.cpu_count() or 1),  # type: ignore[arg-type]
    persist_result=False,
    log_prints=False,
)
@public_errors
def release(spec: str, output: str | None = None, release_id: str | None = None, different_people: bool = False) -> str:
    """Release the table of a spec and return the release's id.

    Args:
        spec: path of the spec.
        output: the folder below which it is published; the spec's if left out.
        release_id: the id it is to have; a new one if left out.
        different_people: whether a table that other datasets have used is said to hold other people's records.
    """
    watch = _WATCH.get() or Watch()
    watch.flow_run_id = str(flow_run.id)

    def submit(stage: Any, *arguments: Any) -> Future:
        future = stage.submit(*arguments)
        future.add_done_callback(watch.count)
        return future  # type: ignore[no-any-return]

    plan = make_plan(load_spec(Path(spec)))
    made = new_release(plan, Path(output) if output else None, release_id, different_people=different_people)
    watch.seconds = make_release(plan, made, submit, watch.report)
    return made.id

"""Releases without Prefect: the same driver, store, seals and ledger, in threads of this process. The UI does not list them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from flows.execution.driver import finish_release, make_release
from flows.planning.plan import Plan
from flows.walks.processes import in_processes
from flows.walks.runner import Report, Submit, submit_to
from storage.database.connections import store
from storage.releases.register import Release, find_release
from tasks.capacity import cores

Seconds = dict[str, float]


def make_plainly(plan: Plan, made: Release, report: Report) -> Seconds:
    """Make a release from its plan; as `driver.make_release`."""
    return _plainly(made.terms.run.workers, lambda submit: make_release(plan, made, submit, report))


def finish_plainly(release_id: str, report: Report, only: str | None = None) -> Seconds:
    """Finish a reserved or failed release; as `driver.finish_release`."""
    with store() as con:
        workers = find_release(con, release_id).terms.run.workers
    return _plainly(workers, lambda submit: finish_release(release_id, submit, report, only=only))


def _plainly(workers: str, work: Callable[[Submit], Seconds]) -> Seconds:
    processes = in_processes() if workers == "processes" else nullcontext()
    with processes, ThreadPoolExecutor(cores()) as threads:
        return work(submit_to(threads))

"""Releases without Prefect: the same driver, store, seals and ledger, in threads of this process. The UI does not list them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from flows.cluster.choice import by_workers
from flows.execution.driver import finish_release, make_release
from flows.planning.plan import Plan
from flows.walks.runner import Report, Submit, submit_to
from storage.database.connections import store
from storage.releases.register import Release, find_release
from tasks.stage import width

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
    with by_workers(workers), ThreadPoolExecutor(width()) as threads:
        return work(submit_to(threads))

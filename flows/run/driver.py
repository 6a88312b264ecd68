"""The driver of a whole release, and what holds while one runs. It does not know Prefect: the caller passes a `submit`, or threads of this process do.

ingest → grow tree → reserve → walk (measure, seal, optimise) → validate → publish → close the books
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from flows.cluster.choice import by_workers, check_workers
from flows.planning.admission import check_still_supersedes, resumable_release
from flows.planning.plan import Plan
from flows.run.ending import close_the_books, remove_all, remove_what_is_not_kept
from flows.run.notices import send_notice, send_notice_of
from flows.run.reservation import admission_now, plan_again, reserve_release
from flows.run.runner import Report, Submit, in_thread, result_of, submit_to
from flows.run.walk import walk_release
from storage.database.connections import lingering, store, transaction
from storage.errors import ChecksFailed, MadeAlready, StoreError, TrellisError
from storage.machine.locks import check_going_on, forget_to_stop, held, held_when_free
from storage.record import load_record
from storage.releases.register import Release, check_unmade, claim_id, open_run, record_checks, set_state, state_of
from tasks.folder.publish.task import publish
from tasks.ingest.task import ingest
from tasks.mechanisms import mechanism_of
from tasks.tree.task import grow_tree, is_grown
from tasks.validate.task import CheckRow, validate_level, validate_views
from tasks.work.capacity import memory_of
from tasks.work.stage import Outcome, width


@contextmanager
def running(release_id: str, dataset: str, run: str = "") -> Iterator[None]:
    """Hold a release while the body runs it, wait for the turn of its dataset, and record a failure.

    A release that stops before it is reserved leaves nothing behind. Afterwards it is failed and keeps what it has.

    Args:
        dataset: whose releases run one after the other.
        run: Prefect's id of the flow run, if there is one.
    Raises:
        HeldElsewhere: another run has it.
    """

    def ahead(process: str) -> None:
        print(  # noqa: T201 (the caller's terminal)
            f"{release_id} waits: process {process} runs another release of dataset {dataset}.", file=sys.stderr
        )

    with lingering(), held(release_id, run):
        forget_to_stop(release_id)
        try:
            if run:
                with store() as con:  # the run stays open until Prefect is seen to know its end
                    open_run(con, run, release_id)
            with (
                _failures_recorded(release_id, dataset),
                held_when_free(f"dataset.{dataset}", ahead, lambda: check_going_on(release_id)),
            ):
                yield
        finally:
            forget_to_stop(release_id)


@contextmanager
def _failures_recorded(release_id: str, dataset: str) -> Iterator[None]:
    """Record a failure, tell those who want to know, and say what to do next."""
    try:
        yield
    except MadeAlready:
        raise  # another run has made it
    except BaseException as fault:
        reason = str(fault) if isinstance(fault, TrellisError) else "It was interrupted."
        state = _record_failure(release_id, reason)
        if state in {None, "refused"}:
            remove_all(release_id)
        elif state in {"reserved", "running", "failed"} and isinstance(fault, TrellisError) and not fault.hint:
            fault.hint = f"What was sealed is kept; `trellis rerun {release_id}` continues from there."
        if isinstance(fault, Exception):
            send_notice_of(fault, release_id, dataset)
        raise


def _record_failure(release_id: str, reason: str) -> str | None:
    """Record a reserved release as failed and return the state it had, `unknown` where the store cannot be read or written."""
    state: str | None = "unknown"
    with suppress(StoreError), store() as con:
        state = state_of(con, release_id)
        if state in {"reserved", "running"}:
            set_state(con, release_id, "failed", reason)
    return state


def make_release(plan: Plan, release: Release, submit: Submit, report: Report, run: str = "") -> dict[str, float]:
    """Make a release from its plan and return the thread seconds spent in each stage.

    Args:
        release: from `new_release`.
        run: Prefect's id of the flow run, if there is one.
    Raises:
        MadeAlready: it is in the store.
        HeldElsewhere: another run has it.
        TrellisError: what stopped it; public. Before the reservation it leaves nothing behind; afterwards the store
            records the release as failed and keeps what was sealed.
    """
    with running(release.id, release.dataset, run):
        with store() as con, transaction(con):
            check_unmade(con, release.id)
        outcomes = _grow(plan, release.id, submit)
        reserve_release(release, plan)
        outcomes += _finish(release, submit, report)
    return seconds_per_stage(outcomes)


def finish_release(
    release_id: str, submit: Submit, report: Report, *, only: str | None = None, run: str = ""
) -> dict[str, float]:
    """Finish a reserved or failed release; do only what the store does not hold yet. Other arguments are those of `make_release`.

    Errors are those of `resumable_release` and `make_release`.

    Args:
        only: the one branch to finish; the others keep what they lack. All branches if left out.
    Returns:
        The thread seconds spent in each stage; none if it was published already.
    """
    dataset = resumable_release(release_id, only).dataset
    with running(release_id, dataset, run):
        release = resumable_release(release_id, only)
        if release.state == "published":
            remove_what_is_not_kept(release)
            return {}
        with store() as con, transaction(con):
            check_still_supersedes(con, release)
            set_state(con, release_id, "running")  # before anything confidential exists, so that a crash shows
        outcomes = list[Outcome]()
        with store() as con:
            is_drawn = load_record(con, release_id).is_drawn  # then the tree must not be grown again
        if not (is_drawn or is_grown(release_id, len(release.levels) - 1)):  # as in a declared series, or after a crash
            remove_all(release.id)
            outcomes += _grow(plan_again(release), release.id, submit)
        outcomes += _finish(release, submit, report, only)
    return seconds_per_stage(outcomes)


def _grow(plan: Plan, release_id: str, submit: Submit) -> list[Outcome]:
    """Ingest the table and grow the true tree in the vault."""
    terms, memory = plan.terms, memory_of(plan.terms.run)
    ingested = result_of(release_id, submit(ingest, release_id, plan.source, plan.units, plan.promised, memory))
    return [ingested, result_of(release_id, submit(grow_tree, release_id, terms.axes, terms.steps, memory // 2))]


def _finish(release: Release, submit: Submit, report: Report, only: str | None = None) -> list[Outcome]:
    """Walk, validate and publish; with `only`, publish if no other branch is missing."""
    with store() as con:
        set_state(con, release.id, "running")
    walked = partial(walk_release, release, mechanism_of(release), submit, report, only)
    outcomes, missing = in_thread(release.id, walked)
    if missing:
        with store() as con:
            set_state(con, release.id, "failed", f"Still missing: {', '.join(missing)}.")
        return outcomes
    outcomes += _validate(release, submit)
    outcomes.append(result_of(release.id, submit(publish, release.id)))
    is_new = close_the_books(release, is_stored=outcomes[-1].value)
    remove_what_is_not_kept(release)
    if is_new:
        send_notice(release.id, release.dataset, "published", f"Folder: {release.folder}")
    return outcomes


def rehearse(plan: Plan, submit: Submit, output: Path | None = None, *, different_people: bool = False) -> None:
    """Do everything that comes before the first draw and leave nothing behind: check terms, budget, table and codebooks.

    Arguments are those of `make_release` and `new_release`.

    Raises:
        TrellisError: what would stop the release.
    """
    check_workers(plan.terms.run.workers)
    admission_now(plan, (output or plan.file.output()).absolute(), different_people=different_people).check()
    with store() as con:
        rehearsal = claim_id(con, f"{plan.file.spec.name}-rehearsal")
    with held(rehearsal):
        try:
            _grow(plan, rehearsal, submit)
        finally:
            remove_all(rehearsal)


def seconds_per_stage(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the thread seconds that each stage took."""
    seconds = defaultdict[str, float](float)
    for outcome in outcomes:
        seconds[outcome.stage] += outcome.seconds
    return dict(seconds)


def _validate(release: Release, submit: Submit) -> list[Outcome]:
    """Run every check, record the results, and stop if one failed."""
    from_below = reversed(release.levels)  # the largest begin while others can run beside them
    futures = [submit(validate_views, release.id)] if release.views else []
    futures += [submit(validate_level, release.id, terms.level) for terms in from_below]
    outcomes, failures, checks = list[Outcome](), list[ChecksFailed](), list[CheckRow]()
    for future in reversed(futures):
        try:
            outcomes.append(result_of(release.id, future))
            checks += outcomes[-1].value
        except ChecksFailed as failure:
            failures.append(failure)
            checks += failure.checks
    with store() as con, transaction(con):
        record_checks(con, release.id, checks)
    if failures:
        failed = [f"{check} at level {level}" for check, level, passed in checks if not passed]
        raise ChecksFailed(f"Not published: {', '.join(failed)} failed.", hint=failures[0].hint)
    return outcomes


@contextmanager
def without_prefect(workers: str) -> Iterator[Submit]:
    """Yield a `submit` for the driver, which carries out orders where `run.workers` of a spec says."""
    with by_workers(workers), ThreadPoolExecutor(width()) as threads:
        yield submit_to(threads)

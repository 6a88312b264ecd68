"""One plain driver for a whole release. It knows no Prefect: it is given a `submit`.

ingest → grow tree → reserve → walk (measure, seal, optimise) → validate → publish → close the books
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.ending import close_the_books, remove_all, remove_what_is_not_kept, sweep_orphans
from flows.mechanisms import MECHANISMS
from flows.plan import Plan
from flows.reservation import check_budget, check_writable, different_people_from, reserve_release
from flows.runner import Report, Submit, result_of
from storage.database import store, transaction
from storage.errors import StoreError, TrellisError
from storage.ledger import read_books
from storage.releases import Release, claim_id, find_release, record_checks, set_state, state_of
from storage.shards import held
from tasks.ingest.task import ingest
from tasks.publish.task import publish
from tasks.stage import Outcome
from tasks.tree.task import grow_tree
from tasks.validate.task import validate_level


def make_release(plan: Plan, release: Release, submit: Submit, report: Report) -> dict[str, float]:
    """Make a release from its plan and return the thread seconds spent in each room.

    Args:
        plan: what was planned.
        release: from `new_release`.
        submit: runs a stage and returns its future.
        report: is told of progress.
    Raises:
        TrellisError: what stopped it; public. Before the reservation nothing is left behind, afterwards the release
            is recorded as failed and keeps what was sealed.
    """
    with store() as con:
        if state_of(con, release.id) is not None:
            raise StoreError(f"{release.id} is in the store already; a release is made once.")
    with held(release.id), _failures_recorded(release.id):
        outcomes = [
            result_of(submit(ingest, release.id, plan.source, plan.units, plan.promised)),
            result_of(submit(grow_tree, release.id, release.terms["axes"], release.terms["steps"])),
        ]
        reserve_release(release, plan)
        outcomes += finish_release(release.id, submit, report)
    return seconds_per_room(outcomes)


def finish_release(release_id: str, submit: Submit, report: Report) -> list[Outcome]:
    """Walk, validate and publish a reserved release, doing only what the store does not hold already."""
    with store() as con:
        release = find_release(con, release_id)
        set_state(con, release_id, "running")
    mechanism = MECHANISMS[release.terms["mechanism"]]
    with _failures_recorded(release_id):
        outcomes = mechanism.traverse(release_id, mechanism.sampler, mechanism.optimiser, submit, report)
        outcomes += _validate(release, submit)
        outcomes.append(result_of(submit(publish, release_id)))
        close_the_books(release)
    remove_what_is_not_kept(release)
    return outcomes


def rehearse(plan: Plan, submit: Submit, output: Path | None = None, *, different_people: bool = False) -> None:
    """Do all that comes before the first draw, and leave nothing: check terms, budget, table and codebooks.

    Args:
        plan: what was planned.
        submit: runs a stage and returns its future.
        output: as in `new_release`.
        different_people: as in `new_release`.
    Raises:
        TrellisError: what would stop the release.
    """
    check_writable((output or plan.file.output()).absolute())
    sweep_orphans()
    with store() as con:
        books = read_books(con)
        different_people_from(plan, books, different_people=different_people)
        check_budget(plan, books)
        rehearsal = claim_id(con, f"{plan.file.spec.name}-rehearsal")
    terms = plan.stage_terms()
    with held(rehearsal):
        try:
            result_of(submit(ingest, rehearsal, plan.source, plan.units, plan.promised))
            result_of(submit(grow_tree, rehearsal, terms["axes"], terms["steps"]))
        finally:
            remove_all(rehearsal)


@contextmanager
def _failures_recorded(release_id: str) -> Iterator[None]:
    """Leave nothing of a release that stops before it is reserved; record it as failed afterwards, with what it has."""
    try:
        yield
    except BaseException as fault:
        reason = str(fault) if isinstance(fault, TrellisError) else "It was interrupted."
        state = _record_failure(release_id, reason)
        if state in {None, "refused"}:
            remove_all(release_id)
        elif isinstance(fault, TrellisError) and not fault.hint:
            fault.hint = f"What was sealed is kept: `trellis show {release_id}` says how far it is."
        raise


def _record_failure(release_id: str, reason: str) -> str | None:
    """Record a reserved release as failed and return how far it is; what the disk does not take is not told, but why."""
    state: str | None = "unknown"
    with suppress(StoreError), store() as con:
        state = state_of(con, release_id)
        if state in {"reserved", "running"}:
            set_state(con, release_id, "failed", reason)
    return state


def seconds_per_room(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the thread seconds that each room took."""
    seconds: Counter[str] = Counter()
    for outcome in outcomes:
        seconds[outcome.room] += outcome.seconds  # type: ignore[assignment]  # a Counter of floats
    return dict(seconds)


def _validate(release: Release, submit: Submit) -> list[Outcome]:
    """Run every check, record what was found, and stop where one failed."""
    futures = [submit(validate_level, release.id, terms.level) for terms in release.levels]
    outcomes = [result_of(future) for future in futures]
    checks = [check for outcome in outcomes for check in outcome.value]
    with store() as con, transaction(con):
        record_checks(con, release.id, checks)
    failed = [f"{check} at level {level}" for check, level, passed in checks if not passed]
    if failed:
        raise StoreError(f"Not published: {', '.join(failed)} failed.", hint=f"`trellis show {release.id}` lists all.")
    return outcomes

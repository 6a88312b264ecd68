"""The reservation of a whole release, before its first draw: enough budget, and known people."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flows.approvals.checks import check_approved, check_budget_approved
from flows.execution.ending import sweep_orphans
from flows.execution.notices import refusals_told
from flows.planning.admission import (
    check_budget,
    check_not_of_series,
    check_supersedes,
    check_writable,
    different_people_from,
    stating_the_fitting_epsilon,
)
from flows.planning.budget import agreed_terms, reserve
from flows.planning.plan import Plan
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded
from storage.ledger.events import note, read_books
from storage.ledger.recognition import keep_recognised
from storage.machine.claims import give_up_claim
from storage.machine.clock import utc_now
from storage.releases.approvals import keep_approved_plan
from storage.releases.register import Release, add_release, check_unmade, claim_id


def new_release(
    plan: Plan, output: Path | None = None, release_id: str | None = None, *, different_people: bool = False
) -> Release:
    """Return a release that can be made; refuse early one that could not be published.

    Args:
        plan: the plan of the release.
        output: the folder below which it is published; the spec's if left out.
        release_id: its id; a new one, from the spec's name and the time, if left out.
        different_people: whether the data owner states that a table which other datasets have used holds other people's
            records.
    Raises:
        BudgetExceeded: the dataset's cap would be passed, or its budget is not as it was approved. The refusal is recorded.
        MadeAlready: another run has reserved the release meanwhile.
        SpecError: the spec's unit, neighbours or budget are not the dataset's, it is the spec of a declared series and the
            caller names no day of it, it supersedes a release that it cannot supersede, or it is not the spec that was approved.
        InputError: the output folder cannot be written, or a codebook is not the one that was approved.
        UsageError: another dataset has used the table, and the caller does not state whose records it holds.
    """
    spec = plan.file.spec
    output = (output or plan.file.output()).absolute()
    check_writable(output)
    sweep_orphans()
    table = plan.read_table()
    with store() as con:
        books = read_books(con)
        if release_id is None:
            check_not_of_series(con, plan, books)
        check_approved(plan, books)
        agreed_terms(books, plan.asked())
        check_supersedes(con, plan, books)
        different_people_from(plan, books, table.with_copies(con), different_people=different_people)
        made = release_id or claim_id(con, spec.name)
    release = reserved_release(plan, made, output, different_people=different_people)
    with refusals_told(release.id, spec.dataset), _refusals_recorded(release):
        check_budget_approved(plan, books)
        check_budget(plan, books)
    return release


def reserved_release(
    plan: Plan, release_id: str, output: Path, *, different_people: bool = False, series: str = ""
) -> Release:
    """Return a release of a plan as the store keeps it once it is reserved."""
    spec = plan.file.spec
    return Release(
        id=release_id,
        name=spec.name,
        dataset=spec.dataset,
        state="reserved",
        reason="",
        created=utc_now(),
        spec=plan.file.text,
        terms=replace(plan.terms, different_people=different_people, series=series),
        folder=str(output / release_id),
        levels=plan.levels,
        supersedes=spec.supersedes,
        views=plan.views,
    )


def reserve_release(release: Release, plan: Plan) -> None:
    """Reserve a release and add it to the store, in one transaction; a refusal is recorded."""
    table = plan.read_table()
    with store() as con:
        books = read_books(con)
        table = table.with_copies(con)
        others = different_people_from(plan, books, table, different_people=release.terms.different_people)
        terms = agreed_terms(books, plan.asked())
        account = books.accounts.get(terms.dataset)
        with _refusals_recorded(release), stating_the_fitting_epsilon(plan, account, terms), transaction(con):
            check_unmade(con, release.id)  # the budget may have refused another run of its day meanwhile
            check_supersedes(con, plan, books)  # likewise, another release that does may be reserved by now
            check_budget_approved(plan, read_books(con))  # and another release may have used this approval
            reserve(con, plan.reservation(release.id, different_people=release.terms.different_people))
            add_release(con, release)
            keep_recognised(con, release.id, table, others)
            if plan.approved:
                keep_approved_plan(con, release.id, plan.approved)
                note(con, "approved plan", release.id, fingerprint=plan.approved.approval.fingerprint)


@contextmanager
def _refusals_recorded(release: Release) -> Iterator[None]:
    """Record a release that its dataset's cap refuses, name it in the refusal, and raise the refusal again.

    Raises:
        MadeAlready: the cap refuses it because another run has reserved it meanwhile.
    """
    try:
        yield
    except BudgetExceeded as refusal:
        refusal.release_id = release.id
        with store() as con, transaction(con):
            check_unmade(con, release.id)
            add_release(con, replace(release, state="refused", reason=str(refusal)))
        give_up_claim(release.id)
        raise

"""The reservation of a whole release, before its first draw: enough budget, and known people."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flows.approvals.admission import Admission, admission, check_writable
from flows.execution.ending import sweep_orphans
from flows.execution.notices import refusals_announced
from flows.planning.budget import reserve
from flows.planning.plan import Plan
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded
from storage.ledger.events import note
from storage.ledger.recognition import keep_recognised
from storage.machine.claims import give_up_claim
from storage.machine.clock import utc_now
from storage.releases.approvals import keep_approved_plan
from storage.releases.register import Release, add_release, check_unmade, claim_id


def admission_now(
    plan: Plan, output: Path, *, release_id: str | None = None, different_people: bool = False
) -> Admission:
    """Return whether a release may be made, by the ledger and by the whole table; remove first what killed runs have left.

    Args:
        plan: the plan of the release.
        output: the folder below which it is published.
        release_id: its id, if it has one yet.
        different_people: as in `new_release`.
    Raises:
        InputError: the output folder cannot be written.
        SpecError: the spec's unit, neighbours or budget are not the dataset's.
    """
    check_writable(output)
    sweep_orphans()
    table = plan.read_table()
    with store() as con:
        return admission(
            con, plan, table.with_copies(con), release_id=release_id or "", different_people=different_people
        )


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
        MadeAlready: another run has reserved the release meanwhile.
        TrellisError: as `admission_now` and `Admission.check` raise it; a refusal by the budget is recorded.
    """
    spec, output = plan.file.spec, (output or plan.file.output()).absolute()
    admitted = admission_now(plan, output, release_id=release_id, different_people=different_people)
    first = next(iter(admitted.refusals.values()), None)
    if first is not None and not isinstance(first, BudgetExceeded):
        raise first
    with store() as con:
        made = release_id or claim_id(con, spec.name)
    release = reserved_release(plan, made, output, different_people=different_people)
    with refusals_announced(release.id, spec.dataset), _refusals_recorded(release):
        admitted.check()
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
    table, different_people = plan.read_table(), release.terms.different_people
    with store() as con:
        table = table.with_copies(con)
        with _refusals_recorded(release), transaction(con):
            check_unmade(con, release.id)  # the budget may have refused another run of its day meanwhile
            # another release may have used what is left, or the same approval, or have superseded the same one
            admitted = admission(con, plan, table, release_id=release.id, different_people=different_people)
            admitted.check()
            reserve(con, plan.reservation(release.id, different_people=different_people))
            add_release(con, release)
            keep_recognised(con, release.id, table, admitted.others)
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

"""The reservation of a whole release before its first draw, and how a reserved release resumes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flows.planning.admission import (
    Admission,
    admission,
    check_tables_unchanged,
    check_writable,
    different_people_from,
)
from flows.planning.budget import reserve
from flows.planning.plan import Plan, make_plan, run_terms
from flows.planning.views import as_reserved
from flows.run.ending import sweep_orphans
from flows.run.notices import refusals_announced
from flows.specification.file import load_spec, parse_spec
from flows.specification.sections.run import RunKeys
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, SpecError, UsageError
from storage.ledger.events import note, read_books
from storage.ledger.recognition import Content, RecognisedTable, keep_recognised, known_contents, same_place
from storage.machine.caller import tell_caller
from storage.machine.clock import utc_now
from storage.machine.home import give_up_claim
from storage.releases.approvals import keep_approved_plan
from storage.releases.register import Release, add_release, check_unmade, claim_id, find_release, set_terms


def admission_now(
    plan: Plan, output: Path, *, release_id: str | None = None, different_people: bool = False
) -> Admission:
    """Return whether a release may be made, by the ledger and by the whole table; remove first what killed runs have left.

    Arguments are those of `new_release`.

    Raises:
        InputError: the output folder cannot be written.
        SpecError: the spec's unit, neighbours or budget are not the dataset's.
    """
    check_writable(output)
    sweep_orphans()
    if remark := plan.source.table.remark:
        tell_caller(remark)
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


def run_keys_of(release: Release) -> RunKeys:
    """Return the `run` section of a release's spec as it is now, or, if it cannot be read, as it was at the reservation."""
    spec = Path(release.terms.files.spec)
    try:
        return load_spec(spec).spec.run
    except SpecError:  # the file no longer exists, or the admission of the rerun refuses it next
        return parse_spec(release.spec, spec).spec.run


def refresh_run_keys(release_id: str) -> Release:
    """Record how a reserved release runs from now on, and return it."""
    with store() as con:
        release = find_release(con, release_id)
        terms = replace(release.terms, run=run_terms(run_keys_of(release)))
        if terms != release.terms:
            set_terms(con, release_id, terms)
    return replace(release, terms=terms)


def plan_again(release: Release) -> Plan:
    """Return the plan of a release that was reserved and has no tree yet, from the spec as the store keeps it.

    The table may be another one by now, for instance where a link points to each month's table, or a row was mended. The same
    question about its people is asked, and the ledger records the table.

    Raises:
        InputError: a public table is not what it was when the release was reserved, or no longer exists.
        UsageError: another dataset has used the table, or an earlier day with which this one is measured.
    """
    file = parse_spec(release.spec, Path(release.terms.files.spec))
    # before a plan finds what else is wrong with a table that changed
    check_tables_unchanged(release, file.source().hashes)
    spec = as_reserved(file.spec.model_copy(update={"run": run_keys_of(release)}), release.terms)
    plan = make_plan(replace(file, spec=spec))
    table = plan.read_table()
    with store() as con:
        books = read_books(con)
        account = books.account_of(release.id)
        claim = account.claims[release.id] if account else None
        contents = known_contents(con)
        if account and release.terms.days:
            _check_of_its_day(release.id, table, {day: contents.get(day) for day in account.declared_with(release.id)})
        if claim and (claim.table, contents.get(release.id)) != (table.place, table.content):
            # who said that a table holds other people said it of the table at that place
            confirmed = claim.different_people and same_place(claim.table, table.place)
            others = different_people_from(plan, books, table.with_copies(con), different_people=confirmed)
            with transaction(con):
                if claim.table != table.place:
                    note(con, "table", release.id, table=table.place)
                keep_recognised(con, release.id, table, others)
    return plan


def _check_of_its_day(release_id: str, table: RecognisedTable, contents: Mapping[str, Content | None]) -> None:
    """Refuse a table with the records of another day that is measured together with this one; nobody has m records in both.

    Args:
        contents: of all days, as they were read last; None for a day whose table was not read.
    """
    for day, known in contents.items():
        if known and day != release_id and table.content and known.records == table.content.records:
            raise UsageError(
                f"input.table has the same records as that of {day}. All days of the series are measured together, and"
                " privacy.max_records_per_unit holds for all of their tables, so each record may be in one of them only.",
                field="input.table",
                hint=f"Put the table of the day in place and run `trellis rerun {release_id}`, or run `trellis abandon {release_id}`.",
            )

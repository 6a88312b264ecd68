"""Before the first draw: is the budget there, whose people are these, and the reservation of the whole release."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from flows.execution.ending import sweep_orphans
from flows.planning.budget import epsilon_beside, standing_of
from flows.planning.guarantee import largest_epsilon_within, round_down
from flows.planning.plan import Plan, make_plan, run_terms
from flows.planning.revision import check_supersedes
from flows.spec.file import load_spec, parse_spec, says_the_same
from flows.spec.keys import RunKeys
from flows.spec.schedule import MOST_RELEASES, days_of_series, scheduled_id
from storage.database.connections import Connection, store, transaction
from storage.errors import BudgetExceeded, InputError, SpecError, StoreError, UsageError
from storage.ledger.books import Account, Books, DatasetTerms, Series
from storage.ledger.events import agreed_terms, check_fits, declare, note, read_books, reserve, users_of_table
from storage.machine.claims import give_up_claim
from storage.machine.clock import utc_now
from storage.machine.files import sha256_of
from storage.releases.register import (
    Release,
    add_release,
    check_unmade,
    claim_id,
    find_release,
    forget_refusal,
    set_terms,
    state_of,
)


def new_release(
    plan: Plan, output: Path | None = None, release_id: str | None = None, *, different_people: bool = False
) -> Release:
    """Return a release to be made; refuse early what could not end well.

    Args:
        plan: what was planned.
        output: the folder below which it is published; the spec's if left out.
        release_id: its id; a new one, from the spec's name and the time, if left out.
        different_people: whether a table that other datasets have used is said to hold other people's records.
    Raises:
        BudgetExceeded: the dataset's cap would be passed. The refusal is recorded.
        MadeAlready: another run has reserved the release meanwhile.
        SpecError: the spec's unit, neighbours or budget are not the dataset's, it is the spec of a declared series, and no
            day of it was named, or it supersedes what it cannot.
        InputError: the output folder cannot be written.
        UsageError: another dataset has used the table, and nobody said whose records it holds.
    """
    spec = plan.file.spec
    output = (output or plan.file.output()).absolute()
    check_writable(output)
    sweep_orphans()
    with store() as con:
        books = read_books(con)
        if release_id is None:
            check_not_of_series(con, plan, books)
        agreed_terms(books, plan.asked())
        check_supersedes(con, plan, books)
        different_people_from(plan, books, different_people=different_people)
        made = release_id or claim_id(con, spec.name)
    release = _reserved(plan, made, output, different_people=different_people)
    with _refusals_recorded(release):
        check_budget(plan, books)
    return release


def _reserved(
    plan: Plan, release_id: str, output: Path, *, different_people: bool = False, series: str = ""
) -> Release:
    spec, terms = plan.file.spec, plan.stage_terms() | {"different_people": different_people}
    return Release(
        id=release_id,
        name=spec.name,
        dataset=spec.dataset,
        state="reserved",
        reason="",
        created=utc_now(),
        spec=plan.file.text,
        terms=terms | {"series": series} if series else terms,
        folder=str(output / release_id),
        levels=plan.levels,
        supersedes=spec.supersedes,
    )


def check_unchanged(release: Release) -> None:
    """Refuse to go on with a release whose spec or codebooks are not what they were when it was reserved.

    Files that are gone do not matter here: the store keeps the spec, and the shards a copy of each codebook once it is
    ingested.

    Raises:
        SpecError: the spec was edited.
        InputError: a codebook was changed; names both hashes.
    """
    files = release.terms.get("files", {"spec": "", "codebooks": {}})
    spec = Path(files["spec"])
    if spec.is_file() and not says_the_same(spec.read_text(encoding="utf-8"), release.spec):
        raise SpecError(
            f"{spec} was edited since {release.id} was reserved; a release keeps the spec that it was reserved with.",
            field="SPEC",
            hint=f"Put it back (`trellis show {release.id} --spec` prints it), or `trellis abandon {release.id}`.",
        )
    for axis, path in files["codebooks"].items():
        if Path(path).is_file():
            _check_codebook(release, axis, release.terms["codebooks"][axis], sha256_of(Path(path)))


def run_keys_of(release: Release) -> RunKeys:
    """Return how a release is to be run: as its spec says now, which may be on another machine, or else as it said then."""
    spec = Path(release.terms.get("files", {"spec": ""})["spec"])
    try:
        return load_spec(spec).spec.run
    except SpecError:  # it is gone, or is refused in a moment
        return parse_spec(release.spec, spec).spec.run


def run_as_the_spec_says_now(release_id: str) -> None:
    """Record how a release that was reserved is to be run from now on."""
    with store() as con:
        release = find_release(con, release_id)
        terms = {**release.terms, **run_terms(run_keys_of(release))}
        if terms != release.terms:
            set_terms(con, release_id, terms)


def plan_again(release: Release) -> Plan:
    """Return the plan of a release that was reserved and has no tree yet, from the spec as the store keeps it.

    The table may be another by now, as by a link that names each month's: it is asked about like any other, and recorded.

    Raises:
        InputError: a codebook is not what it was when the release was reserved, or is gone.
        UsageError: another dataset has used the table.
    """
    file = parse_spec(release.spec, Path(release.terms["files"]["spec"]))
    plan = make_plan(replace(file, spec=file.spec.model_copy(update={"run": run_keys_of(release)})))
    for axis, reserved in release.terms["codebooks"].items():
        _check_codebook(release, axis, reserved, plan.codebooks[axis])
    with store() as con:
        books = read_books(con)
        account = books.account_of(release.id)
        if account and account.claims[release.id].table != plan.table:
            different_people_from(plan, books, different_people=False)
            with transaction(con):
                note(con, "table", release.id, table=plan.table)
    return plan


def _check_codebook(release: Release, axis: str, reserved: str, now: str) -> None:
    if now != reserved:
        raise InputError(
            f"The codebook of {axis}, {release.terms['files']['codebooks'].get(axis, 'in the spec')}, was changed since {release.id} was"
            f" reserved: its sha256 was {reserved} and is {now}.",
            field="hierarchy",
            hint=f"Put it back as it was, or `trellis abandon {release.id}`.",
        )


def check_budget(plan: Plan, books: Books) -> None:
    """Refuse a release that would pass its people's cap; nothing is reserved or recorded.

    Raises:
        BudgetExceeded: says what is left, and which ε would fit.
    """
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    with _fitting_epsilon_told(plan, account, terms):
        check_fits(account, terms, plan.reservation("").spending, standing_of)


def different_people_from(plan: Plan, books: Books, *, different_people: bool) -> tuple[str, ...]:
    """Return the datasets from whose people a table's are said to differ.

    Raises:
        UsageError: another dataset has used the table, and nobody said whose records it holds.
    """
    users = users_of_table(books, plan.asked(), plan.table)
    if users and not different_people:
        raise UsageError(
            f"input.table was used by dataset {', '.join(users)}; if it holds the same people, they share one budget.",
            field="input.table",
            hint=f"Say same_people_as: {users[0]} in the spec, or --different-people, which is recorded.",
        )
    return tuple(users)


def check_not_of_series(con: Connection, plan: Plan, books: Books) -> None:
    """Refuse to release by hand the spec of a declared series: it would be a spend beside those that are reserved.

    Raises:
        SpecError: names the next release of the series.
    """
    spec, series = plan.file.spec, books.declared_series(plan.file.spec.dataset, plan.file.spec.name)
    if series is None or spec.schedule is None or spec.schedule.until is None:
        return
    to_come = _to_come(con, series)
    if to_come:
        raise SpecError(
            f"schedule.until: the series {series.name} is declared, and its releases are reserved; one beside them would be"
            " charged by itself.",
            field="schedule.until",
            hint=f"`trellis rerun {to_come[0]}` makes the next one. For one beside them, give the spec another name.",
        )


def reserve_release(release: Release, plan: Plan) -> None:
    """Reserve a release and add it to the store, in one transaction; a refusal is recorded."""
    with store() as con:
        books = read_books(con)
        others = different_people_from(plan, books, different_people=release.terms["different_people"])
        terms = agreed_terms(books, plan.asked())
        account = books.accounts.get(terms.dataset)
        with _refusals_recorded(release), _fitting_epsilon_told(plan, account, terms), transaction(con):
            check_unmade(con, release.id)  # another run of its day may have been refused meanwhile
            check_supersedes(con, plan, books)  # likewise, another release may be reserved by now that does
            reserve(con, plan.reservation(release.id, others), standing_of)
            add_release(con, release)


def declare_series(plan: Plan, now: datetime) -> Series:
    """Return the series that a spec declares; reserve all its releases the first time that is asked.

    Args:
        plan: of a spec whose schedule has an end.
        now: the series begins after this moment.
    Raises:
        BudgetExceeded: the dataset's cap would be passed; nothing is reserved.
        SpecError: it was declared with another spec and is not over, it has no day left or too many, or releases of its
            name and days are there already.
        UsageError: another dataset has used the table.
    """
    spec, schedule = plan.file.spec, plan.file.spec.schedule
    with store() as con:
        declared = _declared_already(con, read_books(con), plan)
    if declared:
        return declared
    if schedule is None or schedule.until is None:
        raise ValueError("the spec declares no series.")
    days = days_of_series(schedule.cron, schedule.timezone, schedule.until, now)
    if not days:
        raise SpecError(f"schedule.until: there is no day left until {schedule.until}.", field="schedule.until")
    if len(days) > MOST_RELEASES:
        raise SpecError(
            f"schedule.until: a series has at most {MOST_RELEASES} releases; until {schedule.until} there are more.",
            field="schedule.until",
        )
    ids = [scheduled_id(spec.name, day) for day in days]
    output = plan.file.output()
    check_writable(output)
    with store() as con:
        delta = agreed_terms(read_books(con), plan.asked()).cap.delta  # which a dataset never changes
        whole = plan.spending(len(ids), delta)
        with transaction(con):
            books = read_books(con)
            if declared := _declared_already(con, books, plan):  # by somebody else, a moment ago
                return declared
            _check_not_taken(con, ids)
            others = different_people_from(plan, books, different_people=False)
            declare(con, spec.name, [plan.reservation(id_, others) for id_ in ids], whole, standing_of)
            for id_ in ids:
                forget_refusal(con, id_)
                add_release(con, _reserved(plan, id_, output, series=ids[0]))
        account = read_books(con).account_of(ids[0])
    if account is None:
        raise StoreError(f"{ids[0]} was declared and is not in the ledger.")
    return account.series[ids[0]]


def _declared_already(con: Connection, books: Books, plan: Plan) -> Series | None:
    """Return the series that was declared with this very spec; None if there is none, or another that is over.

    Raises:
        SpecError: it was declared with another spec and is not over.
    """
    declared = books.declared_series(plan.file.spec.dataset, plan.file.spec.name)
    return declared if declared and _is_unchanged(con, declared, plan) else None


def _check_not_taken(con: Connection, ids: Sequence[str]) -> None:
    """Refuse a series of which a release is in the store already: made by hand, or abandoned with an earlier series."""
    taken = [id_ for id_ in ids if state_of(con, id_) not in {None, "refused"}]
    if taken:
        raise SpecError(
            f"name: {taken[0]} is in the store already, {state_of(con, taken[0])}; a release is made once.",
            field="name",
            hint="Give the spec another name.",
        )


def _is_unchanged(con: Connection, series: Series, plan: Plan) -> bool:
    """Return whether a series was declared with this very spec; False if with another, and it is over."""
    first = find_release(con, series.id)
    if says_the_same(first.spec, plan.file.text):
        return True
    left = _to_come(con, series)
    if left:
        raise SpecError(
            f"The series {series.name} was declared with another spec, and {len(left)} of its releases are to come.",
            field="schedule",
            hint=f"Put the spec back (`trellis show {series.id} --spec` prints it), or `trellis abandon` those to come and"
            " give this one another name.",
        )
    return False


def _to_come(con: Connection, series: Series) -> list[str]:
    return [id_ for id_ in series.releases if state_of(con, id_) not in {"published", "abandoned"}]


@contextmanager
def _fitting_epsilon_told(plan: Plan, account: Account | None, terms: DatasetTerms) -> Iterator[None]:
    """Add to a refusal the ε with which a release like this one would fit: where it is the only one, the cap's own."""
    try:
        yield
    except BudgetExceeded as refusal:
        asked, before = plan.guarantee, account.spendings if account else []
        if asked.approximate:
            fits = round_down(epsilon_beside(before, terms.cap, asked.delta))
        else:
            fits = largest_epsilon_within(plan.scheme, refusal.left)
        if not before and asked.delta <= terms.cap.delta:
            fits = max(fits, terms.cap.epsilon)
        refusal.left_epsilon = fits
        refusal.hint = (
            f"At δ = {asked.delta:g} it asks for ε = {asked.epsilon:.6g};"
            f" {f'what is left is enough for ε = {fits:g}' if fits else 'nothing is left'}."
        )
        raise


@contextmanager
def _refusals_recorded(release: Release) -> Iterator[None]:
    """Record a release that its dataset's cap refuses; the refusal goes on and names it.

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


def check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot be written, or made; nothing is left there."""
    try:
        there = next(above for above in (folder, *folder.parents) if above.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as fault:
        raise InputError(
            f"output: {folder} cannot be written ({fault.strerror}).",
            field="output",
            hint="Name another with --output.",
        ) from None

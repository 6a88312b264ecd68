"""Whether a release may be made: whether it fits the budget, who its people are, what it replaces, and where it goes.

All who make a release or say what one would be ask `admission`, and who reserves one asks it again inside the transaction. Whether
a release that has stopped may go on is asked of `resumable_release`.

A revision replaces an earlier release, in a chain without forks. It measures the same people again and is charged like any
release. The earlier release stays charged.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.planning.approval import check_approved, check_budget_approved
from flows.planning.budget import agreed_terms, check_fits, users_of_table
from flows.planning.composition import epsilon_beside
from flows.planning.guarantee import largest_epsilon_within, round_down
from flows.planning.plan import Plan
from flows.specification.file import is_same_spec
from flows.specification.rules import wrong_key
from storage.database.connections import Connection, store
from storage.errors import BudgetExceeded, InputError, SpecError, TrellisError, UsageError
from storage.ledger.accounts import Account, DatasetTerms, Series
from storage.ledger.books import Books
from storage.ledger.events import read_books
from storage.ledger.recognition import RecognisedTable
from storage.ledger.spending import Spending, growth, weakest_promise
from storage.machine.locks import holder_of
from storage.record import load_record
from storage.releases.register import Release, find_release, has_folder, state_of, states_of, superseding
from storage.releases.shards import TRUNK
from tasks.ingest.sources.locations import sha256_at

Rule = Literal["series", "approval", "supersedes", "people", "approved budget", "budget"]

_LEAST = 1e-9  # an ε below it is what rounding leaves


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a release may be made, as the store is now: what it is charged, what refuses it, and what is remembered.

    Attributes:
        terms: those of the release's people; where it is their first release, those that its spec asks for.
        account: theirs; None before their first release.
        series: the last series that its spec has declared; None if it has declared none.
        others: the datasets that have used the same table. If the release is made, they are recorded as of other people.
        refusals: why it may not be made, by the rule that it breaks; those of the budget come last.
    """

    books: Books
    terms: DatasetTerms
    account: Account | None
    series: Series | None
    charge: Spending
    others: tuple[str, ...]
    refusals: Mapping[Rule, TrellisError]

    def check(self, *rules: Rule) -> None:
        """Raise the first refusal, of some rules or of all.

        Raises:
            BudgetExceeded: the release would exceed its people's cap, or their budget is not as it was approved. The message says
                what is left, and the hint which ε would fit.
            SpecError: it is the spec of a declared series, is not the spec that was approved, names a release that it cannot
                supersede, or contradicts what an earlier release promises of a unit.
            InputError: a codebook is not the one that was approved.
            UsageError: another dataset has used the table, and the caller does not confirm that it holds other people.
        """
        for rule, refusal in self.refusals.items():
            if not rules or rule in rules:
                raise refusal


def admission(
    con: Connection,
    plan: Plan,
    table: RecognisedTable,
    *,
    release_id: str = "",
    different_people: bool = False,
    series: Spending | None = None,
) -> Admission:
    """Return whether a release may be made. Nothing is reserved or recorded.

    Args:
        con: the store; inside the transaction that reserves the release, no other release comes in between.
        table: the confidential table; recognised by its content too if it was read.
        release_id: the id of the release; empty where it has none yet.
        different_people: whether the caller confirms that the table holds other people's records in this dataset.
        series: what a series costs that is reserved as a whole; a single release if left out.
    Raises:
        SpecError: the spec's unit, neighbours or budget are not those of its people, so that nobody knows whom to charge.
        StoreError: the ledger does not add up.
    """
    books = read_books(con)
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    declared = books.declared_series(plan.file.spec.dataset, plan.file.spec.name)
    others = different_people_from(plan, books, table, different_people=True)
    checks: dict[Rule, Callable[[], object]] = {
        "series": lambda: _check_not_of_series(con, plan, declared, release_id),
        "approval": lambda: check_approved(plan, books),
        "supersedes": lambda: _check_supersedes(con, plan, books, terms),
        "people": lambda: different_people_from(plan, books, table, different_people=different_people),
        "approved budget": lambda: check_budget_approved(plan, books),
        "budget": lambda: check_fits(account, terms, series) if series else _check_budget(plan, account, terms),
    }
    refusals: dict[Rule, TrellisError] = {}
    for rule, check in checks.items():
        try:
            check()
        except TrellisError as refusal:
            refusals[rule] = refusal
    return Admission(books, terms, account, declared, series or plan.spending, others, refusals)


def _check_budget(plan: Plan, account: Account | None, terms: DatasetTerms) -> None:
    """Refuse a release that would exceed its people's cap, and state the ε with which one like it would fit.

    If it is their only one, that is the cap's ε.
    """
    try:
        check_fits(account, terms, plan.spending)
    except BudgetExceeded as refusal:
        asked, before = plan.guarantee, account.spendings if account else []
        if asked.approximate:
            # noise without a δ of its own leaves all of the cap's to others
            delta = asked.delta if any(of for _, of in asked.approximate) else 0.0
            fits = round_down(epsilon_beside(before, terms.cap, delta, asked.tau, plan.contributions))
        else:
            unit = weakest_promise([plan.contributions, *(of.contributions for of in before)])
            fits = largest_epsilon_within(plan.scheme, refusal.left / growth(plan.contributions, unit))
        if not before and asked.delta <= terms.cap.delta:
            fits = max(fits, terms.cap.epsilon)
        refusal.left_epsilon = fits
        refusal.hint = (
            f"At δ = {asked.delta:g} it asks for ε = {asked.epsilon:.6g};"
            f" {f'what is left is enough for ε = {fits:g}' if fits > _LEAST else 'nothing is left'}."
        )
        raise


def different_people_from(
    plan: Plan, books: Books, table: RecognisedTable, *, different_people: bool
) -> tuple[str, ...]:
    """Return the datasets that used the same table and hold other people, as the caller confirms; arguments as in `admission`.

    Raises:
        UsageError: another dataset has used the table, and the caller does not confirm that it holds other people.
    """
    users = users_of_table(books, plan.asked(), table.is_of)
    if users and not different_people:
        at_place = users_of_table(books, plan.asked(), plan.place_of_table.is_of)
        seen = "input.table" if at_place else "input.table has the same content as a table that"
        raise UsageError(
            f"{seen} was used by dataset {', '.join(users)}; if it holds the same people, they share one budget.",
            field="input.table",
            hint=f"Add same_people_as: {users[0]} to the spec, or confirm with --different-people, which is recorded.",
        )
    return tuple(users)


def _check_not_of_series(con: Connection, plan: Plan, series: Series | None, release_id: str) -> None:
    """Refuse an additional release of the spec of a declared series: it would be charged besides the reserved releases."""
    schedule = plan.file.spec.schedule
    if schedule and schedule.cumulative and release_id not in (series.releases if series else ()):
        raise SpecError(
            "schedule.cumulative: a day is measured together with those before it, so that only a declared series has such releases.",
            field="schedule.cumulative",
            hint="`trellis up` declares the series. For a release that stands alone, leave schedule.cumulative out.",
        )
    if series is None or schedule is None or schedule.until is None or release_id in series.releases:
        return
    to_come = releases_to_come(con, series)
    if to_come:
        raise SpecError(
            f"schedule.until: the releases of the series {series.name} are already reserved; an additional one would be charged"
            " separately.",
            field="schedule.until",
            hint=f"`trellis rerun {to_come[0]}` makes the next one. For an additional release, give the spec another name.",
        )


def releases_to_come(con: Connection, series: Series) -> list[str]:
    """Return the releases of a series that are neither published nor abandoned, the next one first."""
    return [id_ for id_ in series.releases if state_of(con, id_) not in {"published", "abandoned"}]


def declared_already(con: Connection, plan: Plan) -> Series | None:
    """Return the series that was declared with this very spec; None if there is none, or if the last one is over."""
    books = read_books(con)
    series = books.declared_series(plan.file.spec.dataset, plan.file.spec.name)
    if series is None or is_same_spec(find_release(con, series.id).spec, plan.file.text):
        return series
    left = releases_to_come(con, series)
    if left:
        agreed_terms(books, plan.asked())  # a refusal of another unit, relation or cap has ways out of its own
        raise SpecError(
            f"The series {series.name} was declared with another spec, and {len(left)} of its releases are still due.",
            field="schedule",
            hint=f"Put the spec back (`trellis show {series.id} --spec` prints it), or abandon those with `trellis abandon` and"
            " give this spec another name.",
        )
    return None


def series_to_come(con: Connection, plan: Plan) -> Series | None:
    """Return the declared series of a spec that has one; refuse what `up` refuses of it, and `rerun` of its next release.

    Raises:
        SpecError: it was declared with another spec and is not over.
        InputError: a public table was changed since then.
    """
    series = declared_already(con, plan)
    for release in releases_to_come(con, series)[:1] if series else ():
        check_tables_unchanged(find_release(con, release), plan.source.hashes)
    return series


def check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot be written or created; nothing is left behind there."""
    try:
        there = next(above for above in (folder, *folder.parents) if above.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as fault:
        raise InputError(
            f"output: {folder} cannot be written ({fault.strerror}).",
            field="output",
            hint="Name another folder with --output.",
        ) from None


def _check_supersedes(con: Connection, plan: Plan, books: Books, terms: DatasetTerms) -> None:
    """Refuse a spec whose `supersedes` names a release that it cannot replace."""
    earlier = plan.file.spec.supersedes
    if earlier is None:
        return
    state = state_of(con, earlier)
    if state is None:
        raise wrong_key(
            "supersedes",
            f"must name a published release; there is no release {earlier}.",
            hint="`trellis releases` lists all releases.",
        )
    if state != "published":
        raise wrong_key(
            "supersedes",
            f"must name a published release; {earlier} is {state}.",
            hint="A release that is not published needs no revision. Remove supersedes.",
        )
    account = books.account_of(earlier)
    if account is None or account.terms.dataset != terms.dataset:
        raise wrong_key(
            "supersedes",
            f"must name a release about the same people; {earlier} belongs to dataset"
            f" {find_release(con, earlier).dataset}, which does not share the budget of {plan.file.spec.dataset}.",
            hint="If both datasets hold the same people, set same_people_as in the spec of a new dataset.",
        )
    for later, its_state, hint in _revisions_of(con, earlier):
        raise SpecError(
            f"supersedes: {earlier} is already superseded by {later}, which is {its_state}.",
            field="supersedes",
            hint=hint,
        )


def resumable_release(release_id: str, only: str | None = None) -> Release:
    """Return a release that can be finished, or is published.

    Raises:
        UsageError: there is no such release or branch, it was abandoned or refused, or another release now supersedes the
            one it revises.
        SpecError: its spec was edited since it was reserved.
        InputError: a public table was changed since then.
    """
    with store() as con:
        record = load_record(con, release_id)
    release, known = record.release, [TRUNK, *record.branches]
    if release.state == "abandoned":
        raise UsageError(f"{release_id} was abandoned: it has ended for good.", field="ID")
    if release.state == "refused":
        raise UsageError(
            f"The budget refused {release_id}, so Trellis reserved nothing.",
            field="ID",
            hint="Run `trellis release` again when the budget allows it.",
        )
    if only is not None and only not in known:
        raise UsageError(f"{release_id} has no branch {only}; it has {', '.join(known)}.", field="--branch")
    if release.state != "published":
        _check_turn(release)
        check_unchanged(release)
        with store() as con:
            check_still_supersedes(con, release)
    return release


def _check_turn(release: Release) -> None:
    """Refuse a day of a series that measures its days together before every earlier day is published or abandoned.

    Raises:
        UsageError: an earlier day has not ended.
    """
    if not release.terms.days:
        return
    with store() as con:
        account = read_books(con).account_of(release.id)
        together = account.declared_with(release.id) if account else ()
        before = together[: together.index(release.id)] if account else ()
        states = states_of(con, before)
        waits_for = next((day for day in before if states[day] not in {"published", "abandoned"}), None)
    if waits_for:
        raise UsageError(
            f"{release.id} is measured together with the days before it, and {waits_for} is not published yet.",
            field="ID",
            hint=f"Run `trellis rerun {waits_for}`, or `trellis abandon {waits_for}`: then the next day begins anew, without the days before.",
        )


def check_unchanged(release: Release) -> None:
    """Refuse to resume a release whose spec or public tables have changed since it was reserved.

    Files that no longer exist, and databases that do not answer, do not matter here: the store keeps the spec, and the shards keep what
    was read of each public table.

    Raises:
        SpecError: the spec was edited.
        InputError: a public table was changed; names both hashes.
    """
    spec = Path(release.terms.files.spec)
    if spec.is_file() and not is_same_spec(spec.read_text(encoding="utf-8"), release.spec):
        raise SpecError(
            f"{spec} was edited since {release.id} was reserved; a release keeps the spec that it was reserved with.",
            field="SPEC",
            hint=f"Put it back (`trellis show {release.id} --spec` prints it), or run `trellis abandon {release.id}`.",
        )
    check_tables_unchanged(
        release, {key: sha256_at(table.location) for key, table in release.terms.files.tables.items()}
    )


def check_tables_unchanged(release: Release, now: Mapping[str, str | None]) -> None:
    """Refuse public tables that changed, given the hash of each by its key; None for one that cannot be read."""
    for key, reserved in release.terms.files.tables.items():
        if now[key] not in {None, reserved.sha256}:
            raise InputError(
                f"{key}, {reserved.location}, was changed since {release.id} was reserved: its sha256 was {reserved.sha256} and is"
                f" {now[key]}.",
                field=key,
                hint=f"Put it back as it was, or run `trellis abandon {release.id}`.",
            )


def check_still_supersedes(con: Connection, release: Release) -> None:
    """Refuse to resume a release if another release has superseded the same one since it stopped.

    Raises:
        UsageError: another release has; the error names it.
    """
    for later, its_state, hint in _revisions_of(con, release.supersedes) if release.supersedes else ():
        if later != release.id:
            raise UsageError(
                f"{release.id} cannot supersede {release.supersedes}: {later} supersedes it now, and is {its_state}.",
                field="ID",
                hint=f"Run `trellis abandon {release.id}`. {hint}",
            )


def _revisions_of(con: Connection, earlier: str) -> Iterator[tuple[str, str, str]]:
    """Yield the releases that take the place of another, with their states, and how to supersede them in turn.

    They are published, or a process is making them. One is published once its folder exists, even if the ledger does not yet say so.
    """
    for later, state in superseding(con, earlier).items():
        if state in {"refused", "abandoned"}:
            continue
        if state == "published" or has_folder(find_release(con, later)) or holder_of(later) is not None:
            first = "" if state == "published" else "Once it is published, "
            yield later, state, f"{first}{'s' if first else 'S'}upersede that release: set supersedes: {later}."

"""Whether a plan may be released: whether it fits the budget, who its people are, what it replaces, and where it goes.

A revision replaces an earlier release, in a chain without forks. It measures the same people again and is charged like any
release. The earlier release stays charged.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.planning.budget import agreed_terms, check_fits, users_of_table
from flows.planning.composition import epsilon_beside
from flows.planning.guarantee import largest_epsilon_within, round_down
from flows.planning.plan import Plan
from storage.database.connections import Connection
from storage.errors import BudgetExceeded, BudgetNotAsApproved, InputError, SpecError, UsageError
from storage.ledger.books import Account, Books, DatasetTerms, Series
from storage.ledger.recognition import RecognisedTable
from storage.ledger.spending import growth, weakest_promise
from storage.machine.locks import holder_of
from storage.releases.register import Release, find_release, has_folder, state_of, superseding


def check_budget(plan: Plan, books: Books) -> None:
    """Refuse a release that would exceed its people's cap; nothing is reserved or recorded.

    Raises:
        BudgetExceeded: the message says what is left, and the hint which ε would fit.
    """
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    with stating_the_fitting_epsilon(plan, account, terms):
        check_fits(account, terms, plan.spending)


def different_people_from(
    plan: Plan, books: Books, table: RecognisedTable, *, different_people: bool
) -> tuple[str, ...]:
    """Return the datasets that used the same table and hold other people, as the caller confirms.

    Args:
        plan: what is to be released.
        books: the ledger.
        table: the confidential table; recognised by its content too if it was read.
        different_people: whether the caller confirms that the table holds other people's records in this dataset.
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


def check_not_of_series(con: Connection, plan: Plan, books: Books) -> None:
    """Refuse to release the spec of a declared series by hand: it would be charged in addition to the reserved releases.

    Raises:
        SpecError: the hint names the next release of the series.
    """
    spec, series = plan.file.spec, books.declared_series(plan.file.spec.dataset, plan.file.spec.name)
    if series is None or spec.schedule is None or spec.schedule.until is None:
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


@contextmanager
def stating_the_fitting_epsilon(plan: Plan, account: Account | None, terms: DatasetTerms) -> Iterator[None]:
    """Add to a refusal the ε with which a release like this one would fit; if it is the only one, that is the cap's ε."""
    try:
        yield
    except BudgetNotAsApproved:
        raise  # what would fit is not the question
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
            f" {f'what is left is enough for ε = {fits:g}' if fits else 'nothing is left'}."
        )
        raise


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


def check_supersedes(con: Connection, plan: Plan, books: Books) -> None:
    """Refuse a spec whose `supersedes` names a release that it cannot replace.

    Raises:
        SpecError: the named release does not exist, is not published, is about other people, or is already superseded.
    """
    earlier = plan.file.spec.supersedes
    if earlier is None:
        return
    state = state_of(con, earlier)
    if state is None:
        raise SpecError(
            f"supersedes must name a published release; there is no release {earlier}.",
            field="supersedes",
            hint="`trellis releases` lists all releases.",
        )
    if state != "published":
        raise SpecError(
            f"supersedes must name a published release; {earlier} is {state}.",
            field="supersedes",
            hint="A release that is not published needs no revision. Remove supersedes.",
        )
    account = books.account_of(earlier)
    if account is None or account.terms.dataset != agreed_terms(books, plan.asked()).dataset:
        raise SpecError(
            f"supersedes must name a release about the same people; {earlier} belongs to dataset"
            f" {find_release(con, earlier).dataset}, which does not share the budget of {plan.file.spec.dataset}.",
            field="supersedes",
            hint="If both datasets hold the same people, set same_people_as in the spec of a new dataset.",
        )
    for later, its_state in superseding(con, earlier).items():
        if _counts(con, later, its_state):
            raise SpecError(
                f"supersedes: {earlier} is already superseded by {later}, which is {its_state}.",
                field="supersedes",
                hint=_supersede(later, its_state),
            )


def check_still_supersedes(con: Connection, release: Release) -> None:
    """Refuse to resume a release if another release has superseded the same one since it stopped.

    Raises:
        UsageError: another release has; the error names it.
    """
    if release.supersedes is None:
        return
    for later, its_state in superseding(con, release.supersedes).items():
        if later != release.id and _counts(con, later, its_state):
            raise UsageError(
                f"{release.id} cannot supersede {release.supersedes}: {later} supersedes it now, and is {its_state}.",
                field="ID",
                hint=f"Run `trellis abandon {release.id}`. {_supersede(later, its_state)}",
            )


def _counts(con: Connection, later: str, state: str) -> bool:
    """Return whether a release that supersedes another counts: it is published, or a process is making it.

    It is published once its folder exists, even if the ledger does not yet say so.
    """
    if state in {"refused", "abandoned"}:
        return False
    return state == "published" or has_folder(find_release(con, later)) or holder_of(later) is not None


def _supersede(later: str, state: str) -> str:
    first = "" if state == "published" else "Once it is published, "
    return f"{first}{'s' if first else 'S'}upersede that release: set supersedes: {later}."

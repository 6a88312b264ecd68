"""Before the first draw: is the budget there, whose people are these, and the reservation of the whole release."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flows.budget import standing_of
from flows.ending import sweep_orphans
from flows.guarantee import largest_epsilon_within
from flows.plan import Plan
from storage.books import Account, Books, DatasetTerms
from storage.claims import give_up_claim
from storage.clock import utc_now
from storage.database import store, transaction
from storage.errors import BudgetExceeded, InputError, UsageError
from storage.ledger import agreed_terms, check_fits, read_books, reserve, users_of_table
from storage.releases import Release, add_release, claim_id


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
        SpecError: the spec's unit, neighbours or budget are not the dataset's.
        InputError: the output folder cannot be written.
        UsageError: another dataset has used the table, and nobody said whose records it holds.
    """
    spec = plan.file.spec
    output = (output or plan.file.output()).absolute()
    check_writable(output)
    sweep_orphans()
    with store() as con:
        books = read_books(con)
        agreed_terms(books, plan.asked())
        different_people_from(plan, books, different_people=different_people)
        made = release_id or claim_id(con, spec.name)
    release = Release(
        id=made,
        name=spec.name,
        dataset=spec.dataset,
        state="reserved",
        reason="",
        created=utc_now(),
        spec=plan.file.text,
        terms=plan.stage_terms() | {"different_people": different_people},
        folder=str(output / made),
        levels=plan.levels,
    )
    with _refusals_recorded(release):
        check_budget(plan, books)
    return release


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


def reserve_release(release: Release, plan: Plan) -> None:
    """Reserve a release and add it to the store, in one transaction; a refusal is recorded."""
    with store() as con:
        books = read_books(con)
        others = different_people_from(plan, books, different_people=release.terms["different_people"])
        terms = agreed_terms(books, plan.asked())
        account = books.accounts.get(terms.dataset)
        with _refusals_recorded(release), _fitting_epsilon_told(plan, account, terms), transaction(con):
            reserve(con, plan.reservation(release.id, others), standing_of)
            add_release(con, release)


@contextmanager
def _fitting_epsilon_told(plan: Plan, account: Account | None, terms: DatasetTerms) -> Iterator[None]:
    """Add to a refusal the ε with which a release like this one would fit: where it is the only one, the cap's own."""
    try:
        yield
    except BudgetExceeded as refusal:
        asked, fits = plan.guarantee, largest_epsilon_within(plan.scheme, refusal.left)
        if not (account and account.spendings) and asked.delta <= terms.cap.delta:
            fits = max(fits, terms.cap.epsilon)
        refusal.left_epsilon = fits
        refusal.hint = (
            f"At δ = {asked.delta:g} it asks for ε = {asked.epsilon:.6g};"
            f" {f'what is left is enough for ε = {fits:g}' if fits else 'nothing is left'}."
        )
        raise


@contextmanager
def _refusals_recorded(release: Release) -> Iterator[None]:
    """Record a release that its dataset's cap refuses; the refusal goes on and names it."""
    try:
        yield
    except BudgetExceeded as refusal:
        refusal.release_id = release.id
        give_up_claim(release.id)
        with store() as con, transaction(con):
            add_release(con, replace(release, state="refused", reason=str(refusal)))
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

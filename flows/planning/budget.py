"""Whose people a release is about, and whether their budget allows it: decided here, recorded in the ledger at once.

What writes to the ledger runs inside the caller's transaction: the decision and its record are one, and a refusal leaves no
trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isinf

from flows.planning.composition import standing_of
from flows.specification.rules import wrong_key
from storage.database.connections import Connection
from storage.errors import BudgetExceeded, SpecError, StoreError, UsageError
from storage.ledger.accounts import Account, Asked, Cap, Claim, DatasetTerms, Standing
from storage.ledger.books import Books
from storage.ledger.events import (
    Reservation,
    advance,
    open_account,
    read_books,
    record_abandonment,
    record_raise,
    record_reservation,
    record_series,
    share_account,
)
from storage.ledger.spending import Spending, claimed_units, for_one_unit, weakest_promise
from storage.releases.register import state_of


def agreed_terms(books: Books, asked: Asked) -> DatasetTerms:
    """Return the terms of a dataset's people; for their first release, those that its spec asks for.

    Raises:
        SpecError: the spec has other terms than the people's, or is their first and has no budget.
    """
    account = _account_for(books, asked)
    if account is None:
        if asked.cap is None:
            raise wrong_key("budget", "must be given by a dataset's first release.")
        return DatasetTerms(asked.dataset, asked.unit, asked.neighbours, asked.cap)
    terms = account.terms
    fixed_by = f"The first release of dataset {terms.dataset} fixed it."
    if asked.unit != terms.unit:
        hint = f"{fixed_by} {_ways_out(account)}"
        raise wrong_key("privacy.unit", f"must be “{terms.unit}”, got “{asked.unit}”.", hint=hint)
    if asked.neighbours != terms.neighbours:
        raise wrong_key(
            "privacy.neighbours",
            f"must be {terms.neighbours}, got {asked.neighbours}.",
            hint=f"{fixed_by} {_ways_out(account)}",
        )
    if asked.cap is not None and _key(asked.cap) not in {_key(terms.cap), _key(account.first_cap)}:
        raise wrong_key(
            "budget",
            f"must be {_written(terms.cap)} or left out, got {_written(asked.cap)}.",
            hint=f"{fixed_by} Only `trellis budget raise` raises it.",
        )
    return terms


def _ways_out(account: Account) -> str:
    """Return what can be done about a unit or relation of some people that another spec fixed."""
    ways = (
        f"Put it back; with same_people_as: {account.terms.dataset} another dataset has the same. For other people, name another"
        " dataset."
    )
    if any(charge.state not in {"reserved", "void"} for charge in account.charges.values()):
        return ways
    reserved = dict.fromkeys(charge.release for charge in account.charges.values() if charge.state == "reserved")
    give_back = f"run `trellis abandon` for {', '.join(reserved)}, then " if reserved else ""
    return f"{ways} Nothing is drawn yet: if these people need another unit, {give_back}name another dataset."


def _account_for(books: Books, asked: Asked) -> Account | None:
    """Return the account to which a spec is charged; None for the first release of its people."""
    account = books.account(asked.dataset)
    if asked.same_people_as is None:
        return account
    shared = books.account(asked.same_people_as)
    if shared is None:
        raise SpecError(
            f"same_people_as: the ledger has no dataset {asked.same_people_as}.",
            field="same_people_as",
            hint=f"Release dataset {asked.same_people_as} first, or remove same_people_as.",
        )
    if account is not None and account is not shared:
        raise SpecError(
            f"same_people_as: dataset {asked.dataset} is charged to dataset {account.terms.dataset}, not to"
            f" {shared.terms.dataset}.",
            field="same_people_as",
            hint="The first release of a dataset fixes to which account it is charged. Remove same_people_as.",
        )
    return shared


def users_of_table(books: Books, asked: Asked, is_of_table: Callable[[Claim], bool]) -> list[str]:
    """Return the datasets of other people that have used a table, without those already confirmed to be of other people.

    A release that gave back all that it reserved has used nothing, and never will: the ledger, which has one writer, moves a level from
    reserved either to drawing, before its first draw, or to void, and from void nowhere.
    """
    mine = _account_for(books, asked)
    my_names = {asked.dataset, *(mine.datasets if mine else ())}
    differing_from_mine = _different_from(books, mine, is_of_table)
    users, charged = list[str](), books.charged_on(is_of_table)
    for account in books.accounts.values():
        is_confirmed = not (
            my_names.isdisjoint(_different_from(books, account, is_of_table))
            and differing_from_mine.isdisjoint(account.datasets)
        )
        if account is not mine and not is_confirmed:
            users += [claim.dataset for claim in account.claims.values() if claim.release in charged]
    return list(dict.fromkeys(users))


def _different_from(books: Books, account: Account | None, is_of_table: Callable[[Claim], bool]) -> set[str]:
    """Return the datasets that used the same table as an account and are confirmed to hold other people."""
    claims = [claim for claim in account.claims.values() if is_of_table(claim)] if account else []
    return {other for claim in claims for other in books.others.get(claim.release, ())}


def check_fits(account: Account | None, terms: DatasetTerms, spending: Spending) -> Standing:
    """Refuse a release that would exceed its people's cap; return where they would stand with it.

    Raises:
        BudgetExceeded: names what the releases would spend together, the cap, and what is spent.
        SpecError: an earlier release contradicts what this one promises of a unit.
    """
    before, cap = account.spendings if account else [], terms.cap
    _check_same_total(before, spending)
    of_unit = for_one_unit([*before, spending])
    after = standing_of(of_unit, cap)
    if after.epsilon > cap.epsilon:
        now, charged = standing_of(of_unit[:-1], cap), standing_of(before, cap)
        spends = f"epsilon {after.epsilon:.8g} at delta {cap.delta:g}; its cap is {cap.epsilon:g}"
        if isinf(after.epsilon):
            spends = f"more than the delta of its cap, {cap.delta:g}"
        reason = f"With this release dataset {terms.dataset} would spend {spends}, and {_spent(now)} is spent."
        if of_unit != [*before, spending]:
            reason += f" That is for {claimed_units([of.contributions for of in of_unit])}."
            if now != charged:
                reason += f" For those that the releases so far promised, {_spent(charged)} is spent."
        refusal = BudgetExceeded(reason, field="privacy.epsilon", hint="`trellis ledger` shows what it was spent on.")
        refusal.left, refusal.left_epsilon = now.left_rho, now.left_epsilon
        raise refusal
    return after


def _spent(standing: Standing) -> str:
    """Return what is spent, in words: ε, or all of δ where no ε holds."""
    return "all of it" if isinf(standing.epsilon) else f"epsilon {standing.epsilon:.8g}"


def _check_same_total(before: Sequence[Spending], spending: Spending) -> None:
    """Refuse a promise of exactly `max_records_per_unit` beside one of at most `max_records_per_unit`: the first makes totals public.

    Where the second holds, a unit may have fewer records, and a total that was published exactly tells so.
    """
    promised = weakest_promise([spending.contributions])
    earlier = weakest_promise(of.contributions for of in before)
    if promised and earlier and promised.exact_records_per_unit != earlier.exact_records_per_unit:
        says = str(earlier.exact_records_per_unit).lower()
        raise wrong_key(
            "privacy.exact_records_per_unit",
            f"must be {says}, as in the earlier releases of these people, got"
            f" {str(promised.exact_records_per_unit).lower()}.",
            hint="A total is published exactly only if every release promises that all units have the same number of records."
            " Or let ingest bound the records of a unit: set input.unit.",
        )


def reserve(con: Connection, reservation: Reservation) -> None:
    """Reserve a whole release before anything is drawn; call it inside a transaction.

    Raises:
        BudgetExceeded: the cap would be exceeded; nothing is recorded.
        SpecError: the spec has other terms than the dataset.
        StoreError: the release is already reserved.
    """
    books = read_books(con)
    account = _account_to_charge(con, books, [reservation], reservation.spending)
    _charge(con, books, account, reservation)


def declare(con: Connection, name: str, reservations: Sequence[Reservation], whole: Spending) -> None:
    """Declare a series and reserve all its releases, in the order of their days, before anything is drawn; inside a transaction.

    `whole` is what they cost and guarantee together. Errors are those of `reserve`.
    """
    books = read_books(con)
    account = _account_to_charge(con, books, reservations, whole)
    series = record_series(con, books, name, reservations, whole)
    for reservation in reservations:
        _charge(con, books, account, replace(reservation, claim=replace(reservation.claim, series=series)))


def _account_to_charge(
    con: Connection, books: Books, reservations: Sequence[Reservation], spending: Spending
) -> Account:
    """Return the account to which releases may be charged together; open or share it if this is its first charge."""
    for reservation in reservations:
        if books.account_of(reservation.claim.release):
            raise StoreError(f"{reservation.claim.release} is already reserved; a release is charged once.")
    asked = reservations[0].asked
    terms = agreed_terms(books, asked)
    check_fits(books.accounts.get(terms.dataset), terms, spending)
    if terms.dataset not in books.accounts:
        open_account(con, books, terms)
    elif asked.dataset not in books.holder:
        share_account(con, books, asked.dataset, terms.dataset)
    return books.accounts[terms.dataset]


def _charge(con: Connection, books: Books, account: Account, reservation: Reservation) -> None:
    """Record a release, with where its people stand once it is charged."""
    spendings = account.with_reserved(reservation.claim, reservation.charges).spendings
    record_reservation(con, books, reservation, standing_of(spendings, account.terms.cap))


def abandon(con: Connection, release_id: str) -> None:
    """Give back what a release has reserved and not begun to draw; the rest stays charged for good. Inside a transaction."""
    books = read_books(con)
    account = books.account_of(release_id)
    if account is None:
        return
    for one in _given_back(con, account, release_id):
        for level, charge in account.charges_of(one).items():
            if charge.state == "reserved":
                advance(con, one, level, "void")
    books = read_books(con)
    account = books.accounts[account.terms.dataset]
    record_abandonment(con, books, release_id, standing_of(account.spendings, account.terms.cap))


def _given_back(con: Connection, account: Account, release_id: str) -> list[str]:
    """Return the releases whose charges are given back, as far as they are not drawn, once a release is abandoned.

    The first day of a series may pay for all. Its charge is given back once every day is abandoned and nothing was drawn on any.
    """
    together = account.declared_with(release_id)
    if not _is_paid_at_once(account, release_id):
        return [release_id] if _may_give_back(account, release_id) else []
    first, later = together[0], [one for one in together[1:] if one != release_id]
    is_over = release_id == first or state_of(con, first) == "abandoned"
    charges = [charge for one in later for charge in account.charges_of(one).values()]
    is_over = is_over and all(charge.state == "void" for charge in charges)
    is_drawn = any(charge.state not in {"reserved", "void"} for charge in account.charges_of(release_id).values())
    own = [release_id] if release_id != first else []
    return [*own, first] if is_over and not is_drawn else own


def _is_paid_at_once(account: Account, release_id: str) -> bool:
    """Return whether the first day of a release's series is charged for all its days."""
    series = account.series.get(account.claims[release_id].series)
    return series is not None and series.is_charged_once


def charge_in_words(books: Books, release_id: str) -> str:
    """Return what a release is charged as things are, and what of it is or can be given back."""
    account = books.account_of(release_id)
    if account is None:
        return "Nothing is charged."
    states = {charge.state for charge in account.charges_of(release_id).values()}
    if _is_paid_at_once(account, release_id) and account.claims[release_id].series != release_id:
        return "The first day of its series is charged for it."
    may_give_back = "reserved" in states and _may_give_back(account, release_id)
    if _is_paid_at_once(account, release_id) and may_give_back:
        return "Its charge is that of the whole series. It is given back once every day is abandoned, if nothing was drawn."
    if "void" not in states and not may_give_back:
        return "Its whole charge stays."
    rest = "was given back" if "void" in states else f"is given back if you run `trellis abandon {release_id}`"
    if states <= {"void", "reserved"}:
        return f"Nothing is drawn: its whole charge {rest}."
    return f"What it has drawn stays charged; the rest {rest}."


def _may_give_back(account: Account, release_id: str) -> bool:
    """Return whether an abandoned release may give back what it has not drawn.

    A release, or a declared series, that costs more ρ than the cap allows was admitted by its own guarantee, as the people's
    only one. Once any of it is drawn, nothing is given back and so nothing can follow it: what was seen of it might decide
    what follows.
    """
    together = [charge for one in account.declared_with(release_id) for charge in account.charges_of(one).values()]
    is_drawn = any(charge.state not in {"reserved", "void"} for charge in together)
    cost = sum((charge.rho for charge in together), Fraction(0))
    return not (is_drawn and cost > account.terms.cap.rho)


def raise_cap(con: Connection, dataset: str, cap: Cap, reason: str) -> None:
    """Raise the cap of a dataset's people; call it inside a transaction.

    Raises:
        UsageError: there is no such dataset, or the cap would not rise.
    """
    books = read_books(con)
    account = books.account(dataset)
    if account is None:
        raise UsageError(f"The ledger has no dataset {dataset}.", field="DATASET", hint="`trellis ledger` lists them.")
    before = account.terms.cap
    if not cap.epsilon > before.epsilon:
        raise UsageError(
            f"--epsilon must be more than the cap of {before.epsilon:g}, got {cap.epsilon:g}.", field="--epsilon"
        )
    record_raise(con, books, account.terms.dataset, cap, reason, standing_of(account.spendings, cap))


def _key(cap: Cap) -> tuple[float, float]:
    return cap.epsilon, cap.delta


def _written(cap: Cap) -> str:
    return f"{{epsilon: {cap.epsilon:g}, delta: {cap.delta:g}}}"

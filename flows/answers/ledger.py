"""What the ledger says: the accounts of all people, and what each release and each level costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from storage.database.connections import store, transaction
from storage.errors import UsageError
from storage.ledger.accounts import Account, CapRaise, Charge, Claim
from storage.ledger.books import Books
from storage.ledger.events import read_books
from storage.ledger.spending import CapTerms, Contributions, Cost, claimed_units, weakest_promise


@dataclass(frozen=True, slots=True)
class BudgetBalance:
    """What the people of a dataset have, have spent, and have left, as ε at the cap's δ."""

    delta: float
    cap: float
    spent: float
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCharge:
    """What one level of one release costs, and how far its drawing is.

    Attributes:
        release: left out where it is plain.
        rho: 0 for mechanisms that are only (ε, δ).
        sigma: the standard deviation of the noise, records.
        l2_sensitivity: Δ₂, records.
        epsilon: of a mechanism that is only (ε, δ), otherwise 0; likewise `delta`.
        view: the view that has its cells; left out where none has.
    """

    release: str | None = None
    level: int
    view: str | None = None
    state: str
    mechanism: str
    rho: float
    sigma: float
    l2_sensitivity: float
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """What one release states of itself in the ledger.

    Attributes:
        epsilon: of its own guarantee, with `delta`.
        unprotected: what it publishes exactly, in words.
        different_people: whether the caller said that the table holds other people than datasets that had used it.
        different_people_from: the datasets that were recognised then; they depend on the table, and are not in the ledger.
        contributions: how many records a unit has, and who bounds them.
    """

    release: str
    dataset: str
    epsilon: float
    delta: float
    accountant: str
    unprotected: Sequence[str]
    different_people: bool
    different_people_from: Sequence[str]
    contributions: Contributions


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatement:
    """What the ledger knows of some people.

    Attributes:
        dataset: the first dataset of these people.
        same_people: the other datasets that share its cap.
        holds_for: for which units the claim of all these releases together holds, in words.
        max_records_per_unit: of these units; None where ingest bounds the records of all.
        unprotected: what releases about them have published exactly, in words.
        spent: what they have spent or reserved.
        left: what one more release may cost.
        statement: what a raise of the cap means; left out otherwise.
    """

    dataset: str
    same_people: Sequence[str]
    unit: str
    neighbours: str
    holds_for: str
    max_records_per_unit: int | None
    unprotected: Sequence[str]
    cap: CapTerms
    spent: Cost
    left: Cost
    raises: Sequence[CapRaise]
    releases: Sequence[ReleaseClaim]
    charges: Sequence[LevelCharge]
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerStatement:
    """The accounts of the ledger."""

    datasets: Sequence[AccountStatement]

    def __repr__(self) -> str:
        return f"<ledger of {', '.join(of.dataset for of in self.datasets[:3])}{', …' * (len(self.datasets) > 3)}>"


def balance_answer(dataset: str) -> BudgetBalance:
    """Return what the people of a dataset have, have spent, and have left."""
    with store() as con:
        account = _known_account(read_books(con), dataset)
    cap, standing = account.terms.cap, account.standing
    return BudgetBalance(cap.delta, cap.epsilon, standing.epsilon, standing.left_epsilon)


def ledger_answer(dataset: str | None) -> LedgerStatement:
    """Return the accounts of all datasets, or of the one to which a dataset's releases are charged.

    Raises:
        UsageError: there is no such dataset.
    """
    with store() as con:
        books = read_books(con)
    accounts = books.accounts.values() if dataset is None else [_known_account(books, dataset)]
    return LedgerStatement([_account(books, account) for account in accounts])


def budget_answer(dataset: str, epsilon: float, reason: str) -> AccountStatement:
    """Raise the cap of a dataset's people and return their account.

    Raises:
        UsageError: there is no such dataset, the cap would not rise, or no reason is given.
    """
    from flows.planning.budget import raise_cap
    from flows.planning.composition import cap_of

    if not reason.strip():
        raise UsageError("--reason must not be empty: the ledger records it permanently.", field="--reason")
    with store() as con:
        delta = _known_account(read_books(con), dataset).terms.cap.delta
        try:
            cap = cap_of(epsilon, delta)
        except ValueError as fault:
            raise UsageError(f"--{fault}", field="--epsilon") from None
        with transaction(con):
            raise_cap(con, dataset, cap, reason.strip())
    (account,) = ledger_answer(dataset).datasets
    return replace(
        account,
        statement=f"From now on only the new cap holds: the releases about these people may together reach ε ="
        f" {cap.epsilon:g} at δ = {cap.delta:g}, whatever cap was stated before.",
    )


def _known_account(books: Books, dataset: str) -> Account:
    account = books.account(dataset)
    if account is None:
        raise UsageError(
            f"The ledger has no dataset {dataset}.", field="DATASET", hint="`trellis ledger` lists the datasets."
        )
    return account


def _account(books: Books, account: Account) -> AccountStatement:
    terms, standing, promised = account.terms, account.standing, weakest_promise(account.contributions)
    cap = terms.cap
    return AccountStatement(
        dataset=terms.dataset,
        same_people=account.datasets[1:],
        unit=terms.unit,
        neighbours=terms.neighbours,
        holds_for=claimed_units(account.contributions, days_together=account.days_together),
        max_records_per_unit=promised.max_records_per_unit if promised else None,
        unprotected=account.unprotected,
        cap=CapTerms(cap.epsilon, cap.delta, float(cap.rho)),
        spent=Cost(standing.epsilon, float(account.spent)),
        left=Cost(standing.left_epsilon, float(standing.left_rho)),
        raises=list(account.raises),
        releases=[_claim(books, claim) for claim in account.claims.values()],
        charges=[replace(charge_answer(charge), release=charge.release) for charge in account.charges.values()],
    )


def _claim(books: Books, claim: Claim) -> ReleaseClaim:
    shown = {field.name: getattr(claim, field.name) for field in fields(ReleaseClaim) if hasattr(claim, field.name)}
    return ReleaseClaim(**shown, different_people_from=books.others.get(claim.release, ()))


def charge_answer(charge: Charge) -> LevelCharge:
    """Return what one level costs and how far its drawing is, without its release."""
    return LevelCharge(
        level=charge.level,
        state=charge.state,
        mechanism=charge.mechanism,
        rho=float(charge.rho),
        sigma=charge.sigma,
        l2_sensitivity=math.sqrt(charge.l2_sensitivity_squared),
        epsilon=charge.epsilon,
        delta=charge.delta,
        view=charge.view or None,
    )

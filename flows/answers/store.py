"""What the store says of releases and of the ledger."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.answers.levels import ReleasedLevel, released_levels
from flows.execution.crashes import note_crashes
from flows.planning.costs import CapTerms, Cost
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, TrellisError, UsageError
from storage.ledger.books import Account, Books, Charge, Claim
from storage.ledger.events import read_books
from storage.machine.home import home
from storage.record import load_record
from storage.releases.register import REPORT, find_release, list_checks, list_releases, superseding


@dataclass(frozen=True, slots=True)
class BudgetBalance:
    """What the people of a dataset have, have spent, and have left, as ε at the cap's δ."""

    delta: float
    cap: float
    spent: float
    left: float


@dataclass(frozen=True, slots=True)
class MadeRelease:
    """A release that was made, or of which a branch was.

    Attributes:
        reason: why it is not published; empty where it is.
        folder: where it is published; None where it is not.
        report: the file of its report; None likewise.
        unprotected: what it publishes exactly, in words.
        statement: its guarantee, in words.
        seconds: thread seconds per stage, and the wall time as `total`.
        home: the store.
    """

    id: str
    state: str
    reason: str
    folder: str | None
    report: str | None
    levels: Sequence[ReleasedLevel]
    unprotected: Sequence[str]
    statement: str
    budget: BudgetBalance
    seconds: Mapping[str, float]
    home: str


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An error: what is wrong, the key, option or file at fault, and what to do next."""

    error: str
    field: str
    hint: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A release that its dataset's cap refuses."""

    id: str
    state: str
    reason: str
    left: Cost


@dataclass(frozen=True, slots=True)
class ListedRelease:
    """A release in the list of all."""

    id: str
    dataset: str
    state: str
    created: str
    supersedes: str | None
    superseded_by: str | None


@dataclass(frozen=True, slots=True)
class ReleaseList:
    """Every release, the newest last."""

    releases: Sequence[ListedRelease]


@dataclass(frozen=True, slots=True)
class BranchState:
    """A branch of a release.

    Attributes:
        state: `cut` into further branches, `open`, or `optimised`.
        holds: per axis the codes of its first and last areas.
    """

    branch: str
    state: str
    holds: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SealedShard:
    """The seal of one level of one branch."""

    level: int
    branch: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one consistency check found at one level."""

    check: str
    level: int
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCharge:
    """What one level of one release costs, and how far its drawing is.

    Attributes:
        release: whose level it is; left out where that is plain.
        rho: 0 for mechanisms that are only (ε, δ).
        sigma: the standard deviation of the noise, records.
        l2_sensitivity: Δ₂, records.
        epsilon: of a mechanism that is only (ε, δ), otherwise 0; likewise `delta`.
    """

    release: str | None = None
    level: int
    state: str
    mechanism: str
    rho: float
    sigma: float
    l2_sensitivity: float
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class ShownRelease:
    """One release as the store knows it.

    Attributes:
        reason: why it is not published; empty where it is.
        supersedes: the release whose place it takes; `superseded_by` the published one that takes its own.
        unprotected: what it publishes exactly, in words.
        unlisted: the axes whose codes no codebook lists.
        statement: its guarantee, in words.
        folder: where it is published; None where nothing is there.
        report: the file of its report; None likewise.
    """

    id: str
    dataset: str
    state: str
    reason: str
    created: str
    supersedes: str | None
    superseded_by: str | None
    levels: Sequence[ReleasedLevel]
    branches: Sequence[BranchState]
    seals: Sequence[SealedShard]
    checks: Sequence[CheckResult]
    charges: Sequence[LevelCharge]
    unprotected: Sequence[str]
    unlisted: Sequence[str]
    statement: str
    folder: str | None
    report: str | None


@dataclass(frozen=True, slots=True)
class CapRaise:
    """One raise of a cap: when, from and to which ε, and why."""

    at: str
    before: float
    epsilon: float
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """What one release states of itself in the ledger.

    Attributes:
        epsilon: None, like `delta`, where none was recorded.
        unprotected: what it publishes exactly, in words.
        different_people_from: datasets that used the same table; the owner declared that they hold other people.
        contributions: how many records a unit has, and who bounds them.
    """

    release: str
    dataset: str
    epsilon: float | None
    delta: float | None
    accountant: str
    unprotected: Sequence[str]
    different_people_from: Sequence[str]
    contributions: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatement:
    """What the ledger knows of some people.

    Attributes:
        dataset: the first dataset of these people.
        same_people: the other datasets that share its cap.
        unprotected: what releases about them have published exactly, in words.
        spent: what they have spent or reserved.
        left: what one more release may cost.
        statement: what a raise of the cap means; left out otherwise.
    """

    dataset: str
    same_people: Sequence[str]
    unit: str
    neighbours: str
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


def release_answer(release_id: str, seconds: Mapping[str, float]) -> MadeRelease:
    """Return a release that was just made.

    Args:
        release_id: its id.
        seconds: thread seconds per stage, and the wall time as `total`.
    """
    shown = show_answer(release_id)
    return MadeRelease(
        id=release_id,
        state=shown.state,
        reason=shown.reason,
        folder=shown.folder,
        report=shown.report,
        levels=shown.levels,
        unprotected=shown.unprotected,
        statement=shown.statement,
        budget=_balance(shown.dataset),
        seconds={stage: round(taken, 3) for stage, taken in seconds.items()},
        home=str(home()),
    )


def _balance(dataset: str) -> BudgetBalance:
    (account,) = ledger_answer(dataset).datasets
    return BudgetBalance(account.cap.delta, account.cap.epsilon, account.spent.epsilon, account.left.epsilon)


def error_answer(fault: TrellisError) -> ErrorMessage | Refusal:
    """Return the message of an error, or the refusal of a release that its dataset's cap forbids."""
    if isinstance(fault, BudgetExceeded):
        left = Cost(fault.left_epsilon, float(fault.left))
        return Refusal(fault.release_id, "refused", str(fault), left)
    return ErrorMessage(str(fault), fault.field, fault.hint)


def releases_answer() -> ReleaseList:
    """Return every release with its state, the newest last."""
    note_crashes()
    with store() as con:
        return ReleaseList([ListedRelease(**entry) for entry in list_releases(con)])


def show_answer(release_id: str) -> ShownRelease:
    """Return one release with its levels, branches, seals, checks and charges."""
    note_crashes()
    with store() as con:
        record, checks = load_record(con, release_id), list_checks(con, release_id)
        later = [id_ for id_, state in superseding(con, release_id).items() if state == "published"]
    release, last = record.release, record.branches_of(record.finest)

    def state_of_branch(name: str) -> str:
        if name not in last:
            return "cut"
        return "optimised" if (record.finest, name) in record.frontiers else "open"

    return ShownRelease(
        id=release.id,
        dataset=release.dataset,
        state=release.state,
        reason=release.reason,
        created=release.created,
        supersedes=release.supersedes,
        superseded_by=later[-1] if later else None,
        levels=released_levels(record),
        branches=[
            BranchState(branch.name, state_of_branch(branch.name), dict(branch.holds))
            for branch in record.branches.values()
        ],
        seals=[SealedShard(seal.level, seal.branch, seal.sha256) for seal in record.seals.values()],
        checks=[CheckResult(**check) for check in checks],
        charges=[_charge(charge) for charge in record.charges.values()],
        unprotected=list(release.terms.unprotected),
        unlisted=list(release.terms.unlisted),
        statement=release.terms.privacy.statement,
        folder=release.folder if Path(release.folder).is_dir() else None,
        report=str(report) if (report := Path(release.folder, REPORT)).is_file() else None,
    )


def reserved_spec(release_id: str) -> str:
    """Return the spec that a release was reserved with, as it was written."""
    with store() as con:
        return find_release(con, release_id).spec


def ledger_answer(dataset: str | None) -> LedgerStatement:
    """Return the accounts of all datasets, or of the one to which a dataset's releases are charged.

    Raises:
        UsageError: there is no such dataset.
    """
    with store() as con:
        books = read_books(con)
    if dataset is None:
        return LedgerStatement([_account(account) for account in books.accounts.values()])
    return LedgerStatement([_account(_known_account(books, dataset))])


def budget_answer(dataset: str, epsilon: float, reason: str) -> AccountStatement:
    """Raise the cap of a dataset's people and return their account.

    Raises:
        UsageError: there is no such dataset, the cap would not rise, or no reason is given.
    """
    from flows.planning.budget import cap_of
    from flows.planning.charging import raise_cap

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


def _account(account: Account) -> AccountStatement:
    terms, standing = account.terms, account.standing
    cap = terms.cap
    return AccountStatement(
        dataset=terms.dataset,
        same_people=account.datasets[1:],
        unit=terms.unit,
        neighbours=terms.neighbours,
        unprotected=account.unprotected,
        cap=CapTerms(cap.epsilon, cap.delta, float(cap.rho)),
        spent=Cost(standing.epsilon, float(account.spent)),
        left=Cost(standing.left_epsilon, float(standing.left_rho)),
        raises=[CapRaise(**raised) for raised in account.raises],
        releases=[_claim(claim) for claim in account.claims.values()],
        charges=[replace(_charge(charge), release=charge.release) for charge in account.charges.values()],
    )


def _claim(claim: Claim) -> ReleaseClaim:
    return ReleaseClaim(
        release=claim.release,
        dataset=claim.dataset,
        epsilon=claim.epsilon,
        delta=claim.delta,
        accountant=claim.accountant,
        unprotected=claim.unprotected,
        different_people_from=claim.different_people_from,
        contributions=dict(claim.contributions),
    )


def _charge(charge: Charge) -> LevelCharge:
    return LevelCharge(
        level=charge.level,
        state=charge.state,
        mechanism=charge.mechanism,
        rho=float(charge.rho),
        sigma=charge.sigma,
        l2_sensitivity=math.sqrt(charge.l2_sensitivity_squared),
        epsilon=charge.epsilon,
        delta=charge.delta,
    )

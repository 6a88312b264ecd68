"""The ledger: an append-only list of events, hashed one onto the other. What is spent is a view of it.

A charge goes reserved → drawing → sealed → released; void is reached from reserved only. Every charge that is not
void counts, so that nothing is drawn that is not paid for. Budgets are exact fractions of ρ.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from storage.clock import utc_now
from storage.database import Connection
from storage.errors import BudgetExceeded, SpecError, StoreError
from storage.releases import LevelTerms

_BEFORE = {"drawing": "reserved", "sealed": "drawing", "released": "sealed", "void": "reserved"}


@dataclass(frozen=True, slots=True)
class DatasetTerms:
    """Whose people a dataset holds, and the cap on what may be learned of them; fixed by its first release."""

    dataset: str
    unit: str
    neighbours: str
    cap_epsilon: float
    cap_delta: float
    cap_rho: Fraction


@dataclass(frozen=True, slots=True)
class Charge:
    """What one level of one release costs, and how far its drawing is."""

    release: str
    level: int
    state: str
    rho: Fraction
    sigma: float


@dataclass(slots=True)
class Account:
    """A dataset's terms and its charges, by release and level."""

    terms: DatasetTerms
    charges: dict[tuple[str, int], Charge] = field(default_factory=dict)

    @property
    def spent(self) -> Fraction:
        """ρ of all charges that are not void."""
        return sum((charge.rho for charge in self.charges.values() if charge.state != "void"), Fraction(0))

    @property
    def left(self) -> Fraction:
        """ρ that may still be reserved."""
        return self.terms.cap_rho - self.spent


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last event, and how many there are."""

    hash: str
    length: int


def read_accounts(con: Connection) -> dict[str, Account]:
    """Return every dataset's account, replayed from the events."""
    accounts: dict[str, Account] = {}
    dataset_of: dict[str, str] = {}
    for (text,) in con.execute("SELECT event FROM ledger ORDER BY position").fetchall():
        event = json.loads(text)
        if event["event"] == "dataset":
            terms = DatasetTerms(
                event["dataset"],
                event["unit"],
                event["neighbours"],
                event["cap"]["epsilon"],
                event["cap"]["delta"],
                Fraction(event["cap"]["rho"]),
            )
            accounts[terms.dataset] = Account(terms)
        elif event["event"] == "reserved":
            dataset_of[event["release"]] = event["dataset"]
            for level in event["levels"]:
                charge = Charge(event["release"], level["level"], "reserved", Fraction(level["rho"]), level["sigma"])
                accounts[event["dataset"]].charges[charge.release, charge.level] = charge
        elif event["event"] in _BEFORE:
            charges = accounts[dataset_of[event["release"]]].charges
            key = event["release"], event["level"]
            charges[key] = replace(charges[key], state=event["event"])
    return accounts


def charges_of(con: Connection, release_id: str) -> dict[int, Charge]:
    """Return the charges of one release, by level."""
    return {
        level: charge
        for account in read_accounts(con).values()
        for (release, level), charge in account.charges.items()
        if release == release_id
    }


def agreed_terms(account: Account | None, asked: DatasetTerms | None, *, unit: str, neighbours: str) -> DatasetTerms:
    """Return a dataset's terms, or for its first release those that are asked for.

    Args:
        account: what the ledger knows of the dataset; None before its first release.
        asked: the terms that the spec's budget asks for; None where the spec names no budget.
        unit: the spec's privacy unit.
        neighbours: the spec's neighbouring relation.
    Raises:
        SpecError: one of them differs, or a first release names no budget.
    """
    if account is None:
        if asked is None:
            raise SpecError("budget must be given by a dataset's first release.", field="budget")
        return asked
    terms = account.terms
    fixed_by = f"It was fixed by the first release of dataset {terms.dataset}."
    if unit != terms.unit:
        raise SpecError(f"privacy.unit must be “{terms.unit}”, got “{unit}”.", field="privacy.unit", hint=fixed_by)
    if neighbours != terms.neighbours:
        raise SpecError(
            f"privacy.neighbours must be {terms.neighbours}, got {neighbours}.",
            field="privacy.neighbours",
            hint=fixed_by,
        )
    if asked is not None and (asked.cap_epsilon, asked.cap_delta) != (terms.cap_epsilon, terms.cap_delta):
        raise SpecError(
            f"budget must be {{epsilon: {terms.cap_epsilon:g}, delta: {terms.cap_delta:g}}} or left out,"
            f" got {{epsilon: {asked.cap_epsilon:g}, delta: {asked.cap_delta:g}}}.",
            field="budget",
            hint=fixed_by,
        )
    return terms


def check_fits(account: Account | None, terms: DatasetTerms, cost: Fraction) -> None:
    """Refuse a release that would pass its dataset's cap.

    Raises:
        BudgetExceeded: says what it costs and what is left.
    """
    left = account.left if account else terms.cap_rho
    if cost > left:
        refusal = BudgetExceeded(
            f"The release costs rho {float(cost):.6g}; dataset {terms.dataset} has {float(left):.6g} left.",
            field="privacy.epsilon",
            hint="`trellis ledger` shows what it was spent on.",
        )
        refusal.left = left
        raise refusal


def reserve(con: Connection, release_id: str, terms: DatasetTerms, levels: Sequence[LevelTerms]) -> None:
    """Reserve a whole release before anything is drawn; call it inside a transaction.

    Args:
        con: the store.
        release_id: the release.
        terms: the dataset's, for its first release; later ones must agree with what the ledger has.
        levels: those with ρ > 0 are charged.
    Raises:
        BudgetExceeded: the dataset's cap would be passed; nothing is recorded.
        StoreError: the release is reserved already.
    """
    if charges_of(con, release_id):
        raise StoreError(f"{release_id} is reserved already: what it has drawn is charged once.")
    account = read_accounts(con).get(terms.dataset)
    check_fits(account, terms, sum((level.rho for level in levels), Fraction(0)))
    if account is None:
        cap = {"epsilon": terms.cap_epsilon, "delta": terms.cap_delta, "rho": str(terms.cap_rho)}
        _append(
            con,
            {
                "event": "dataset",
                "dataset": terms.dataset,
                "unit": terms.unit,
                "neighbours": terms.neighbours,
                "cap": cap,
            },
        )
    charged = [
        {
            "level": level.level,
            "rho": str(level.rho),
            "sigma": level.sigma,
            "l2_sensitivity_squared": level.l2_sensitivity_squared,
        }
        for level in levels
        if not level.is_invariant
    ]
    _append(con, {"event": "reserved", "release": release_id, "dataset": terms.dataset, "levels": charged})


def advance(con: Connection, release_id: str, level: int, state: str) -> None:
    """Move a charge to its next state.

    Raises:
        StoreError: that state does not follow the one it is in.
    """
    charge = charges_of(con, release_id).get(level)
    if charge is None or charge.state != _BEFORE[state]:
        raise StoreError(
            f"Level {level} of {release_id} cannot become {state}: it is {charge.state if charge else 'not charged'}."
        )
    _append(con, {"event": state, "release": release_id, "level": level})


def note(con: Connection, event: str, release_id: str, **facts: Any) -> None:
    """Append an event that changes no charge, such as a shard removed unread."""
    _append(con, {"event": event, "release": release_id, **facts})


def head(con: Connection) -> Head:
    """Return the hash of the last event and the number of events; an empty ledger has an empty hash."""
    row = con.execute("SELECT hash, position + 1 FROM ledger ORDER BY position DESC LIMIT 1").fetchone()
    return Head(*row) if row else Head("", 0)


def _append(con: Connection, event: dict[str, Any]) -> None:
    last = head(con)
    text = json.dumps(event | {"at": utc_now()}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    hashed = hashlib.sha256(f"{last.hash}\n{text}".encode()).hexdigest()
    con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [last.length, text, hashed])

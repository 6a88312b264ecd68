"""The ledger: an append-only list of events, hashed one onto the other. What is spent is a view of it, the books.

How charges compose into the ε that is held against a cap, the ledger is told: it computes nothing, it keeps.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from storage.database.connections import Connection
from storage.errors import BudgetExceeded, SpecError, StoreError, UsageError
from storage.ledger.books import (
    MALFORMED,
    Account,
    Asked,
    Books,
    Cap,
    Charge,
    Claim,
    DatasetTerms,
    Spending,
    Standing,
    StandingOf,
)
from storage.machine.clock import utc_now
from storage.releases.terms import LevelTerms


@dataclass(frozen=True, slots=True)
class Reservation:
    """A whole release, as it is reserved.

    Attributes:
        asked: what its spec says about the dataset.
        levels: those that are measured are charged.
        claim: what it says of itself.
    """

    asked: Asked
    levels: Sequence[LevelTerms]
    claim: Claim

    @property
    def spending(self) -> Spending:
        """What it costs."""
        rho = sum((level.rho for level in self.levels), Fraction(0))
        tau = sum((level.tau for level in self.levels), Fraction(0))
        only = tuple((level.epsilon, level.delta) for level in self.levels if level.is_charged and not level.rho)
        return Spending(rho, only, self.claim.epsilon, self.claim.delta, tau)


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last event, and how many there are; the first one's hash tells one ledger from another."""

    hash: str
    length: int
    first: str = ""


def read_books(con: Connection) -> Books:
    """Return all accounts, replayed from the events.

    Raises:
        StoreError: an event does not follow from those before: the ledger was tampered with.
    """
    books = Books()
    for position, text in con.execute("SELECT position, event FROM ledger ORDER BY position").fetchall():
        try:
            books.post(json.loads(text))
        except (StoreError, *MALFORMED):
            wrong = position
            break
    else:
        if not books.to_come:
            return books
        wrong = head(con).length
    raise StoreError(f"The ledger does not add up at event {wrong}.", hint="`trellis audit` says what is wrong.")


def charges_of(con: Connection, release_id: str) -> dict[int, Charge]:
    """Return the charges of one release, by level."""
    account = read_books(con).account_of(release_id)
    return account.charges_of(release_id) if account else {}


def agreed_terms(books: Books, asked: Asked) -> DatasetTerms:
    """Return the terms of a dataset's people, or for their first release those that are asked for.

    Raises:
        SpecError: one of them differs, or a first release names no budget.
    """
    account = _account_for(books, asked)
    if account is None:
        if asked.cap is None:
            raise SpecError("budget must be given by a dataset's first release.", field="budget")
        return DatasetTerms(asked.dataset, asked.unit, asked.neighbours, asked.cap)
    terms = account.terms
    fixed_by = f"It was fixed by the first release of dataset {terms.dataset}."
    if asked.unit != terms.unit:
        raise SpecError(
            f"privacy.unit must be “{terms.unit}”, got “{asked.unit}”.", field="privacy.unit", hint=fixed_by
        )
    if asked.neighbours != terms.neighbours:
        raise SpecError(
            f"privacy.neighbours must be {terms.neighbours}, got {asked.neighbours}.",
            field="privacy.neighbours",
            hint=fixed_by,
        )
    if asked.cap is not None and _key(asked.cap) not in {_key(terms.cap), _key(account.first_cap)}:
        raise SpecError(
            f"budget must be {_written(terms.cap)} or left out, got {_written(asked.cap)}.",
            field="budget",
            hint=f"{fixed_by} `trellis budget raise` is the only way up.",
        )
    return terms


def _account_for(books: Books, asked: Asked) -> Account | None:
    """Return the account that a spec is charged to, None for the first release of its people."""
    account = books.account(asked.dataset)
    if asked.same_people_as is None:
        return account
    shared = books.account(asked.same_people_as)
    if shared is None:
        raise SpecError(
            f"same_people_as: the ledger has no dataset {asked.same_people_as}.",
            field="same_people_as",
            hint="Its first release must come first.",
        )
    if account is not None and account is not shared:
        raise SpecError(
            f"same_people_as: dataset {asked.dataset} is charged to {account.terms.dataset} since its first release.",
            field="same_people_as",
            hint="Whose people a dataset holds is fixed by its first release.",
        )
    return shared


def users_of_table(books: Books, asked: Asked, table: str) -> list[str]:
    """Return the datasets of other people that have used a table, unless it was said to hold other people's records."""
    mine = _account_for(books, asked)
    my_names = {asked.dataset, *(mine.datasets if mine else ())}
    my_answers = _answers(mine, table)
    users: list[str] = []
    for account in books.accounts.values():
        answered = not my_names.isdisjoint(_answers(account, table)) or not my_answers.isdisjoint(account.datasets)
        if account is not mine and not answered:
            users += [claim.dataset for claim in account.claims.values() if claim.table == table]
    return list(dict.fromkeys(users))


def _answers(account: Account | None, table: str) -> set[str]:
    """Return the datasets from whose people an account's are said to differ, although they used the same table."""
    claims = [claim for claim in account.claims.values() if claim.table == table] if account else []
    return {other for claim in claims for other in claim.different_people_from}


def check_fits(account: Account | None, terms: DatasetTerms, spending: Spending, standing_of: StandingOf) -> Standing:
    """Refuse a release that would pass its people's cap; return where they would stand with it.

    Raises:
        BudgetExceeded: says what it costs and what is left.
    """
    before = account.spendings if account else []
    after = standing_of([*before, spending], terms.cap)
    if after.epsilon > terms.cap.epsilon:
        now = standing_of(before, terms.cap)
        refusal = BudgetExceeded(
            f"With this release dataset {terms.dataset} would come to epsilon {after.epsilon:.8g} at delta"
            f" {terms.cap.delta:g}; its cap is {terms.cap.epsilon:g}, and {now.epsilon:.8g} of it is spent.",
            field="privacy.epsilon",
            hint="`trellis ledger` shows what it was spent on.",
        )
        refusal.left, refusal.left_epsilon = now.left_rho, now.left_epsilon
        raise refusal
    return after


def reserve(con: Connection, reservation: Reservation, standing_of: StandingOf) -> None:
    """Reserve a whole release before anything is drawn; call it inside a transaction.

    Args:
        con: the store.
        reservation: the release.
        standing_of: composes what releases have spent.
    Raises:
        BudgetExceeded: the cap would be passed; nothing is recorded.
        SpecError: the spec's terms are not the dataset's.
        StoreError: the release is reserved already.
    """
    terms = _check_reservable(con, [reservation], reservation.spending, standing_of)
    _open_account(con, reservation.asked, terms)
    _append_reserved(con, read_books(con), reservation, "", standing_of)


def declare(
    con: Connection, name: str, reservations: Sequence[Reservation], whole: Spending, standing_of: StandingOf
) -> None:
    """Declare a series and reserve all its releases, before anything of any of them is drawn; inside a transaction.

    Args:
        con: the store.
        name: of the series.
        reservations: its releases, in the order of their days.
        whole: what they cost together, and what they promise together.
        standing_of: composes what releases have spent.
    Raises:
        BudgetExceeded: the cap would be passed; nothing is recorded.
        SpecError: the spec's terms are not the dataset's.
        StoreError: one of the releases is reserved already.
    """
    first = reservations[0]
    terms = _check_reservable(con, reservations, whole, standing_of)
    _open_account(con, first.asked, terms)
    ids = [reservation.claim.release for reservation in reservations]
    declared: dict[str, Any] = {"event": "series", "name": name, "dataset": first.claim.dataset, "releases": ids}
    declared |= {"epsilon": whole.epsilon, "delta": whole.delta}
    books = read_books(con)
    books.post(declared)
    _append(con, declared)
    for reservation in reservations:
        _append_reserved(con, books, reservation, ids[0], standing_of)


def _check_reservable(
    con: Connection, reservations: Sequence[Reservation], spending: Spending, standing_of: StandingOf
) -> DatasetTerms:
    books = read_books(con)
    for reservation in reservations:
        if books.account_of(reservation.claim.release):
            raise StoreError(f"{reservation.claim.release} is reserved already: what it has drawn is charged once.")
    terms = agreed_terms(books, reservations[0].asked)
    check_fits(books.accounts.get(terms.dataset), terms, spending, standing_of)
    return terms


def _open_account(con: Connection, asked: Asked, terms: DatasetTerms) -> None:
    """Record a dataset's terms, or whose people it shares, unless that is known."""
    books = read_books(con)
    if terms.dataset not in books.accounts:
        _append(
            con,
            {
                "event": "dataset",
                "dataset": terms.dataset,
                "unit": terms.unit,
                "neighbours": terms.neighbours,
                "cap": _recorded(terms.cap),
            },
        )
    elif asked.dataset not in books.holder:
        _append(con, {"event": "dataset", "dataset": asked.dataset, "same_people_as": terms.dataset})


def _append_reserved(
    con: Connection, books: Books, reservation: Reservation, series: str, standing_of: StandingOf
) -> None:
    claim = reservation.claim
    charged = [
        {
            "level": level.level,
            "mechanism": level.mechanism,
            "rho": str(level.rho),
            "sigma": level.sigma,
            "l2_sensitivity_squared": level.l2_sensitivity_squared,
            **({"tau": str(level.tau)} if level.tau else {}),
            **(_approximate(level) if level.epsilon else {}),
        }
        for level in reservation.levels
        if level.is_charged
    ]
    event = {
        "event": "reserved",
        "release": claim.release,
        "dataset": claim.dataset,
        "accountant": claim.accountant,
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "table": claim.table,
        "unprotected": list(claim.unprotected),
        "different_people_from": list(claim.different_people_from),
        "contributions": dict(claim.contributions),
        "levels": charged,
    }
    if series:
        event["series"] = series
    books.post(event)
    account = books.accounts[books.charged_to[claim.release]]
    _append(con, event | {"standing": _stated(standing_of(account.spendings, account.terms.cap))})


def _approximate(level: LevelTerms) -> dict[str, Any]:
    """Return what is recorded of a level whose mechanism is only (ε, δ)."""
    return {
        "epsilon": level.epsilon,
        "delta": level.delta,
        "scale": level.scale,
        "threshold": level.threshold,
    }


def advance(con: Connection, release_id: str, level: int, state: str, **facts: Any) -> None:
    """Move a charge to its next state.

    Args:
        con: the store.
        release_id: the release.
        level: its level.
        state: drawing, sealed, released or void.
        facts: what else the event records.
    Raises:
        StoreError: that state does not follow the one it is in.
    """
    event = {"event": state, "release": release_id, "level": level, **facts}
    read_books(con).post(event)
    _append(con, event)


def abandon(con: Connection, release_id: str, standing_of: StandingOf) -> None:
    """Give back what a release has reserved and not begun to draw; the rest stays charged for good.

    A release, or a declared series, that costs more than the cap's ρ was let in by its own statement alone, and as the
    only one. If it has drawn anything, nothing is given back, so that nothing can follow it: what was seen of it might
    decide what follows.
    """
    account = read_books(con).account_of(release_id)
    if account is None:
        return
    charges = account.charges_of(release_id)
    together = [charge for one in account.declared_with(release_id) for charge in account.charges_of(one).values()]
    drawn = any(charge.state not in {"reserved", "void"} for charge in together)
    cost = sum((charge.rho for charge in together), Fraction(0))
    if not (drawn and cost > account.terms.cap.rho):
        for level, charge in charges.items():
            if charge.state == "reserved":
                advance(con, release_id, level, "void")
    now = read_books(con).accounts[account.terms.dataset]
    standing = standing_of(now.spendings, now.terms.cap)
    _append(con, {"event": "abandoned", "release": release_id, "standing": _stated(standing)})


def raise_cap(con: Connection, dataset: str, cap: Cap, reason: str, standing_of: StandingOf) -> None:
    """Raise the cap of a dataset's people; call it inside a transaction.

    Raises:
        UsageError: there is no such dataset, or the cap would not rise.
    """
    account = read_books(con).account(dataset)
    if account is None:
        raise UsageError(f"The ledger has no dataset {dataset}.", field="DATASET", hint="`trellis ledger` lists them.")
    before = account.terms.cap
    if not cap.epsilon > before.epsilon:
        raise UsageError(
            f"--epsilon must be more than the cap of {before.epsilon:g}, got {cap.epsilon:g}.", field="--epsilon"
        )
    _append(
        con,
        {
            "event": "budget raised",
            "dataset": account.terms.dataset,
            "before": _recorded(before),
            "cap": _recorded(cap),
            "reason": reason,
            "standing": _stated(standing_of(account.spendings, cap)),
        },
    )


def note(con: Connection, event: str, release_id: str, **facts: Any) -> None:
    """Append an event that changes no charge, such as a shard removed unread."""
    _append(con, {"event": event, "release": release_id, **facts})


def head(con: Connection) -> Head:
    """Return the hash of the last event, how many there are, and the first one's hash; an empty ledger has none."""
    query = "SELECT arg_max(hash, position), max(position) + 1, arg_min(hash, position) FROM ledger"
    hashed, length, first = con.execute(query).fetchall()[0]
    return Head(hashed, length, first) if length else Head("", 0)


def hash_of(previous: str, text: str) -> str:
    """Return the hash of an event's canonical JSON, chained onto the hash of the event before."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _append(con: Connection, event: dict[str, Any]) -> None:
    last = head(con)
    text = json.dumps(event | {"at": utc_now()}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [last.length, text, hash_of(last.hash, text)])


def _recorded(cap: Cap) -> dict[str, Any]:
    return {"epsilon": cap.epsilon, "delta": cap.delta, "rho": str(cap.rho)}


def _stated(standing: Standing) -> dict[str, Any]:
    return {
        "epsilon": standing.epsilon,
        "left_rho": str(standing.left_rho),
        "left_epsilon": standing.left_epsilon,
    }


def _key(cap: Cap) -> tuple[float, float]:
    return cap.epsilon, cap.delta


def _written(cap: Cap) -> str:
    return f"{{epsilon: {cap.epsilon:g}, delta: {cap.delta:g}}}"

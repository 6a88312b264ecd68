"""The ledger: an append-only list of events, each hashed onto the one before. What is spent follows from it, in the books.

The ledger decides nothing: what a release may cost, and what may be given back, is decided by whoever appends the event, in
the same transaction.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from storage.database.connections import Connection
from storage.errors import StoreError
from storage.ledger.books import MALFORMED, Asked, Books, Cap, Charge, Claim, DatasetTerms, Standing, reserved_charges
from storage.ledger.recognition import confirmed_others
from storage.ledger.spending import Spending
from storage.machine.clock import utc_now
from storage.releases.parts import Part


@dataclass(frozen=True, slots=True)
class Reservation:
    """A whole release, as it is to be reserved: its levels that are measured are charged."""

    asked: Asked
    levels: Sequence[Part]
    claim: Claim

    @property
    def spending(self) -> Spending:
        """What it costs."""
        rho = sum((level.rho for level in self.levels), Fraction(0))
        tau = sum((level.tau for level in self.levels), Fraction(0))
        only = tuple((level.epsilon, level.delta) for level in self.levels if level.is_charged and not level.rho)
        return Spending(rho, only, self.claim.epsilon, self.claim.delta, tau, self.claim.contributions)

    @property
    def charges(self) -> list[Charge]:
        """The charges that it makes."""
        return reserved_charges(self.claim.release, self.levels)


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of the last event, and how many events there are; the hash of the first one identifies the ledger."""

    hash: str
    length: int
    first: str = ""


def read_books(con: Connection) -> Books:
    """Return all accounts, replayed from the events, with the datasets that are confirmed to hold other people.

    Raises:
        StoreError: an event contradicts those before it: the ledger was altered.
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
            books.others = confirmed_others(con)
            return books
        wrong = head(con).length
    raise StoreError(f"The ledger does not add up at event {wrong}.", hint="`trellis audit` says what is wrong.")


def open_account(con: Connection, books: Books, terms: DatasetTerms) -> None:
    """Record the terms of a dataset whose people have no account yet."""
    stated = {"dataset": terms.dataset, "unit": terms.unit, "neighbours": terms.neighbours}
    _post(con, books, {"event": "dataset", **stated, "cap": _recorded_cap(terms.cap)})


def share_account(con: Connection, books: Books, dataset: str, same_people_as: str) -> None:
    """Record that a new dataset holds the people of another, to whose account it is charged."""
    _post(con, books, {"event": "dataset", "dataset": dataset, "same_people_as": same_people_as})


def record_series(
    con: Connection, books: Books, name: str, reservations: Sequence[Reservation], whole: Spending
) -> str:
    """Record that releases are declared as a series, and return its id; each of them must be recorded next, in this order.

    Args:
        books: the ledger as it is; the event is posted to them too.
        reservations: in the order of their days.
        whole: what they cost and guarantee together.
    """
    ids = [reservation.claim.release for reservation in reservations]
    event: dict[str, Any] = {"event": "series", "name": name, "dataset": reservations[0].claim.dataset, "releases": ids}
    if any(charge.is_paid_before for of in reservations for charge in of.charges):
        event["charged_once"] = True
    _post(con, books, event | {"epsilon": whole.epsilon, "delta": whole.delta})
    return ids[0]


def record_reservation(con: Connection, books: Books, reservation: Reservation, standing: Standing) -> None:
    """Record that a release is reserved, and where its people stand with it.

    Raises:
        StoreError: it is already reserved, or it is charged nothing.
    """
    claim = reservation.claim
    event: dict[str, Any] = {
        "event": "reserved",
        "release": claim.release,
        "dataset": claim.dataset,
        "accountant": claim.accountant,
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "table": claim.table,
        "unprotected": list(claim.unprotected),
        "different_people": claim.different_people,  # and not from whom, which depends on the table
        "contributions": asdict(claim.contributions),
        "levels": [_recorded_level(level) for level in reservation.levels if level.is_charged],
        "standing": _recorded_standing(standing),
    }
    _post(con, books, event | ({"series": claim.series} if claim.series else {}))


def _recorded_level(level: Part) -> dict[str, Any]:
    recorded: dict[str, Any] = {
        "level": level.level,
        "mechanism": level.mechanism,
        "rho": str(level.rho),
        "sigma": level.sigma,
        "l2_sensitivity_squared": level.l2_sensitivity_squared,
    }
    if level.view:
        recorded["view"] = level.view
    if level.tau:
        recorded["tau"] = str(level.tau)
    if level.scale:
        recorded["scale"] = level.scale
    if level.epsilon:  # the mechanism is only (ε, δ)
        recorded |= {name: getattr(level, name) for name in ("epsilon", "delta", "threshold")}
    return recorded


def advance(con: Connection, release_id: str, level: int, state: str, **facts: Any) -> None:
    """Move a charge to its next state: drawing, sealed, released or void; the event records some more facts.

    Raises:
        StoreError: that state cannot follow the charge's present one.
    """
    _post(con, read_books(con), {"event": state, "release": release_id, "level": level, **facts})


def record_abandonment(con: Connection, books: Books, release_id: str, standing: Standing) -> None:
    """Record that a release is abandoned, and where that leaves its people."""
    _post(con, books, {"event": "abandoned", "release": release_id, "standing": _recorded_standing(standing)})


def record_raise(con: Connection, books: Books, dataset: str, cap: Cap, reason: str, standing: Standing) -> None:
    """Record a new cap of a dataset's people, named by their first dataset, and where they stand against it.

    Raises:
        StoreError: it is not above the old one.
    """
    event = {
        "event": "budget raised",
        "dataset": dataset,
        "before": _recorded_cap(books.accounts[dataset].terms.cap),
        "cap": _recorded_cap(cap),
        "reason": reason,
        "standing": _recorded_standing(standing),
    }
    _post(con, books, event)


def note(con: Connection, event: str, release_id: str, **facts: Any) -> None:
    """Append an event that changes no charge, such as the removal of a shard that nobody has read."""
    _append(con, {"event": event, "release": release_id, **facts, "at": utc_now()})


def head(con: Connection) -> Head:
    """Return the hash of the last event, how many there are, and the first one's hash; an empty ledger has none."""
    query = "SELECT arg_max(hash, position), max(position) + 1, arg_min(hash, position) FROM ledger"
    hashed, length, first = con.execute(query).fetchall()[0]
    return Head(hashed, length, first) if length else Head("", 0)


def hash_of(previous: str, text: str) -> str:
    """Return the hash of an event's canonical JSON, chained onto the hash of the event before."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _post(con: Connection, books: Books, event: dict[str, Any]) -> None:
    """Append an event that is posted to the books first, which refuse one that contradicts them."""
    timed = event | {"at": utc_now()}
    books.post(timed)
    _append(con, timed)


def _append(con: Connection, event: dict[str, Any]) -> None:
    last = head(con)
    text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [last.length, text, hash_of(last.hash, text)])


def _recorded_cap(cap: Cap) -> dict[str, Any]:
    return {"epsilon": cap.epsilon, "delta": cap.delta, "rho": str(cap.rho)}


def _recorded_standing(standing: Standing) -> dict[str, Any]:
    return {
        "epsilon": standing.epsilon,
        "left_rho": str(standing.left_rho),
        "left_epsilon": standing.left_epsilon,
    }

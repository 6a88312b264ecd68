"""The ledger: an append-only list of events, each hashed onto the one before. What is spent follows from it, in the books.

The ledger decides nothing: what a release may cost, and what may be given back, is decided by whoever appends the event, in
the same transaction.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from storage.database.connections import Connection
from storage.errors import StoreError
from storage.ledger.accounts import Asked, Cap, Charge, Claim, DatasetTerms, Standing, reserved_charges
from storage.ledger.books import MALFORMED, Books
from storage.ledger.checkpoint import NOTHING, Kept, usable_checkpoint, write_checkpoint
from storage.ledger.recognition import confirmed_others
from storage.ledger.spending import Spending
from storage.machine.clock import utc_now
from storage.releases.parts import Part

CHECKPOINT_EVERY = 2**8  # events, some twelve releases: posting more would take longer than to write down all books

_kept = NOTHING  # the books of this process, as they were read last; nobody posts to them


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
    """Return all accounts, as the events add up to them, with the datasets that are confirmed to hold other people.

    A process posts each event once: it goes on from the books that it had last, or from the checkpoint. Whether they are about the first
    events of this ledger, the hash of the last of these tells, which all events before it are part of.

    Raises:
        StoreError: an event contradicts those before it: the ledger was altered.
    """
    global _kept
    kept = _kept if _is_of(con, _kept) else usable_checkpoint(con)
    query = "SELECT position, event, hash FROM ledger WHERE position >= ? ORDER BY position"
    books, length, last = kept.books.copy(), kept.length, kept.hash
    for position, text, hashed in con.execute(query, [kept.length]).fetchall():
        try:
            books.post(json.loads(text))
        except (StoreError, *MALFORMED):
            raise _does_not_add_up(position) from None
        length, last = position + 1, hashed
    if books.to_come:
        raise _does_not_add_up(length)
    for account in books.accounts.values():  # which copies then know, but for what changes
        account.spendings  # noqa: B018 (remembered)
    kept = _kept = Kept(length, last, books, kept.written)
    if kept.length - kept.written >= CHECKPOINT_EVERY:
        _kept = replace(kept, written=kept.length)
        write_checkpoint(kept)
    books = books.copy()
    books.others = confirmed_others(con)
    return books


def _is_of(con: Connection, kept: Kept) -> bool:
    """Return whether books are about the first events of a ledger."""
    at = con.execute("SELECT hash FROM ledger WHERE position = ?", [kept.length - 1]).fetchone()
    return at == (kept.hash,)


def _does_not_add_up(position: int) -> StoreError:
    return StoreError(f"The ledger does not add up at event {position}.", hint="`trellis audit` says what is wrong.")


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
    length, last = _end(con)
    return (
        Head(last, length, *con.execute("SELECT arg_min(hash, position) FROM ledger").fetchall()[0])
        if length
        else Head("", 0)
    )


def _end(con: Connection) -> tuple[int, str]:
    """Return how many events there are and the hash of the last one, looked for from where this process has seen it."""
    query = "SELECT max(position) + 1, arg_max(hash, position) FROM ledger WHERE position >= ?"
    ends = (con.execute(query, [since]).fetchall()[0] for since in (_kept.length - 1, 0))
    return next(((length, last) for length, last in ends if length), (0, ""))


def hash_of(previous: str, text: str) -> str:
    """Return the hash of an event's canonical JSON, chained onto the hash of the event before."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _post(con: Connection, books: Books, event: dict[str, Any]) -> None:
    """Append an event that is posted to the books first, which refuse one that contradicts them."""
    timed = event | {"at": utc_now()}
    books.post(timed)
    _append(con, timed)


def _append(con: Connection, event: dict[str, Any]) -> None:
    length, last = _end(con)
    text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [length, text, hash_of(last, text)])


def _recorded_cap(cap: Cap) -> dict[str, Any]:
    return {"epsilon": cap.epsilon, "delta": cap.delta, "rho": str(cap.rho)}


def _recorded_standing(standing: Standing) -> dict[str, Any]:
    return {
        "epsilon": standing.epsilon,
        "left_rho": str(standing.left_rho),
        "left_epsilon": standing.left_epsilon,
    }

"""The ledger's chain, read row by row, and caps."""

import hashlib
import json
from functools import cache
from typing import Any

from flows.planning.composition import cap_of
from storage.database.connections import Connection
from storage.ledger.books import Cap
from storage.ledger.events import (
    Head,
    head,
)

DELTA = 1e-6


@cache
def cap_at(epsilon: float, delta: float = DELTA) -> Cap:
    """Return a cap, with the ρ that it allows."""
    return cap_of(epsilon, delta)


def rows_of(con: Connection) -> list[tuple[int, str, str]]:
    """Return the ledger as it stands in the store."""
    return con.execute("SELECT position, event, hash FROM ledger ORDER BY position").fetchall()


def read_chain(con: Connection) -> list[dict[str, Any]]:
    """Return all events, having recomputed every hash and every text."""
    last, events = "", []
    for position, (at, text, hashed) in enumerate(rows_of(con)):
        event = json.loads(text)
        assert at == position
        assert text == json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        last = hashlib.sha256((last + "\n" + text).encode()).hexdigest()
        assert hashed == last
        events.append(event)
    first = hashlib.sha256(("\n" + rows_of(con)[0][1]).encode()).hexdigest() if events else ""
    assert head(con) == Head(last, len(events), first)
    return events

"""The ledger's chain, read row by row, charges and shards as they are recorded, caps, and releases to be reserved."""

import hashlib
import json
import math
from dataclasses import replace
from functools import cache

from flows.planning.composition import cap_of
from storage.counts.shard_files import read_shard_table
from storage.database.connections import store, transaction
from storage.ledger.accounts import Asked, Claim
from storage.ledger.events import Head, Reservation, head, read_books
from storage.ledger.spending import Contributions
from storage.releases.parts import Part

NEVER_ALONE = math.inf  # the ε of a release whose own statement never helps it
ONE_RECORD = Contributions("promise", distinct=None, exact_records_per_unit=True, max_records_per_unit=1)
DELTA = 1e-6


@cache
def cap_at(epsilon, delta=DELTA):
    """Return a cap, with the ρ that it allows."""
    return cap_of(epsilon, delta)


def asked_of(dataset="jobs", cap=None, same_people_as=None):
    """Return what a spec says of a dataset."""
    return Asked(dataset, "one job", "substitution", cap, same_people_as)


def reservation_of(release_id, asked, shares, **claimed):
    """Return a release to be reserved, with these shares of ρ, of which 0 makes a level invariant, and what it claims beyond the least."""
    levels = [Part(level, {}, 2**level, not share, share, 1.5, 2, 3.0) for level, share in enumerate(shares)]
    table = f"{asked.dataset}.csv"
    claim = Claim(release_id, asked.dataset, "zcdp", NEVER_ALONE, DELTA, table, (), False, ONE_RECORD)
    return Reservation(asked, levels, replace(claim, **claimed))


def rows_of(con):
    """Return the ledger as it stands in the store."""
    return con.execute("SELECT position, event, hash FROM ledger ORDER BY position").fetchall()


def events_of(con):
    """Return all events as they stand in the store."""
    return [json.loads(text) for _, text, _ in rows_of(con)]


def replace_ledger(*events):
    """Replace the ledger by these events, with all hashes computed anew, as a forger would."""
    with store() as con, transaction(con):
        con.execute("DELETE FROM ledger")
        last = ""
        for position, event in enumerate(events):
            text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            last = hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()
            con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [position, text, last])


def read_chain(con):
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


def charges_of(con, release_id):
    """Return the charges of one release, by level."""
    account = read_books(con).account_of(release_id)
    return account.charges_of(release_id) if account else {}


def read_shard(path, sha256):
    """Return the columns of a shard whose hash is the recorded one."""
    table = read_shard_table(path, sha256)
    return {name: table.column(name).to_numpy() for name in table.column_names}

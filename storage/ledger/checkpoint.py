"""A checkpoint: the books as they stood after some event, kept so that the next process posts only the events that came later.

It decides nothing: the events do. It is used where it is as Trellis wrote it, by a hash under the key of this store, and where the chain of
hashes holds from the first event to the one that it names. Otherwise all events are posted, as `trellis audit` always does, which also says
where a checkpoint is not what the events add up to. It may be deleted.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any

from storage.database.connections import Connection
from storage.errors import StoreError
from storage.ledger.accounts import Account, Cap, CapRaise, Charge, Claim, DatasetTerms, Series, Standing
from storage.ledger.books import MALFORMED, Books
from storage.ledger.spending import Contributions
from storage.machine.files import beside
from storage.machine.fingerprints import keyed_hash
from storage.machine.home import place_of_home

CHECKPOINT = "books.json"  # in TRELLIS_HOME

_KINDS = (Account, Books, Cap, CapRaise, Charge, Claim, Contributions, DatasetTerms, Series, Standing)
_LAYOUT = {kind.__name__: [of.name for of in fields(kind)] for kind in _KINDS}  # another one is not read

_CONTRIBUTIONS = _LAYOUT["Claim"].index("contributions")
_FRACTIONS = [_LAYOUT["Charge"].index(name) for name in ("rho", "tau")]

# of a ledger, `?` its length: the hash of its last event, and how many hashes are not those of their event and the hash before
_CHAIN = r"""
    SELECT arg_max(hash, position), count(*), count(*) FILTER (hash <> chained) FROM (
        SELECT position, hash, sha256(lag(hash, 1, '') OVER (ORDER BY position) || chr(10) || event) AS chained
        FROM ledger WHERE position < ?
    )"""

_fraction = lru_cache(maxsize=2**14)(Fraction)  # of a text: releases of one spec cost the same


@dataclass(frozen=True, slots=True)
class Kept:
    """The books after some events.

    Attributes:
        length: how many events.
        hash: that of the last one; it stands for all of them.
        written: after how many of them the checkpoint was written that this goes back to; 0 without one.
    """

    length: int
    hash: str
    books: Books
    written: int = 0


NOTHING = Kept(0, "", Books())


def write_checkpoint(kept: Kept) -> None:
    """Keep books for the next process, where TRELLIS_HOME can be written."""
    accounts = [*kept.books.accounts.values()]
    content = {"layout": _LAYOUT, "length": kept.length, "hash": kept.hash, "holder": kept.books.holder}
    text = json.dumps(content | {"accounts": accounts}, default=_plain).encode()
    with suppress(OSError, StoreError), beside(place_of_home() / CHECKPOINT, closed=True) as file:
        file.write(keyed_hash(text).encode() + b"\n" + text)


def read_checkpoint() -> Kept | None:
    """Return the books of the checkpoint; None where there is none of this version.

    Raises:
        StoreError: it is not as Trellis wrote it.
    """
    try:
        stated, _, text = (place_of_home() / CHECKPOINT).read_bytes().partition(b"\n")
    except OSError:
        return None
    if stated.decode(errors="replace") != keyed_hash(text):
        raise StoreError(f"{CHECKPOINT} is not as Trellis wrote it.", hint=f"Delete {CHECKPOINT} in TRELLIS_HOME.")
    content = json.loads(text)
    if content["layout"] != _LAYOUT:
        return None
    accounts = [_account(*row) for row in content["accounts"]]
    charged_to = {claim: of.terms.dataset for of in accounts for claim in of.claims}
    books = Books({of.terms.dataset: of for of in accounts}, content["holder"], charged_to)
    return Kept(content["length"], content["hash"], books, content["length"])


def usable_checkpoint(con: Connection) -> Kept:
    """Return the checkpoint of a ledger whose chain holds up to it; nothing where there is none."""
    with suppress(StoreError, *MALFORMED):
        kept = read_checkpoint()
        if kept and con.execute(_CHAIN, [kept.length]).fetchall() == [(kept.hash, kept.length, 0)]:
            return kept
    return NOTHING


def _plain(value: Any) -> Any:
    """Return what JSON has for a fraction, a text, and for a value of the ledger, a list of its fields; a mapping is its values."""
    if isinstance(value, Fraction):
        return str(value)
    stated = [getattr(value, name) for name in _LAYOUT[type(value).__name__] if not name.startswith("_")]
    return [[*of.values()] if isinstance(of, dict) else of for of in stated]


def _account(terms: Any, first_cap: Any, datasets: Any, standing: Any, *rows: Any) -> Account:
    charges, claims, raises, series = rows
    terms[-1] = _cap(*terms[-1])
    account = Account(DatasetTerms(*terms), _cap(*first_cap), datasets, _standing(*standing))
    account.raises = [CapRaise(*of) for of in raises]
    account.series = {of[0]: Series(*_with_tuples(of)) for of in series}
    for of in claims:
        of[_CONTRIBUTIONS] = Contributions(*of[_CONTRIBUTIONS])
        account.claims[of[0]] = Claim(*_with_tuples(of))
    for of in charges:
        for at in _FRACTIONS:
            of[at] = _fraction(of[at])
        account.enter(Charge(*of))
    return account


def _with_tuples(row: list[Any]) -> list[Any]:
    return [tuple(of) if isinstance(of, list) else of for of in row]


def _cap(epsilon: float, delta: float, rho: str) -> Cap:
    return Cap(epsilon, delta, _fraction(rho))


def _standing(epsilon: float, left_rho: str, left_epsilon: float) -> Standing:
    return Standing(epsilon, _fraction(left_rho), left_epsilon)

"""Whether the ledger has seen a table before: at the same place, also through links, or with the same content.

What is recognised follows from confidential rows. It is kept beside the ledger and never in it: manifests publish the hash of the
ledger's last event.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from storage.database.connections import Connection
from storage.ledger.accounts import Claim


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by which its records are recognised.

    Attributes:
        codes: where a record belongs, in the order of the spec.
        count: how many records a row stands for; None where it is one.
    """

    codes: tuple[str, ...]
    count: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """What the content of a table is recognised by.

    Attributes:
        columns: of its records.
        records: the fingerprint of these columns of all records.
        file: the fingerprint of the file, where it may hold other tables of the same people; otherwise empty.
    """

    columns: Columns
    records: str
    file: str = ""

    @property
    def fingerprints(self) -> frozenset[str]:
        """Both fingerprints, as far as there are two."""
        return frozenset({self.records, self.file} - {""})


@dataclass(frozen=True, slots=True)
class RecognisedTable:
    """A confidential table as the ledger recognises it.

    Attributes:
        place: the path of its file, or the server and the name of its database; behind `::` its name inside of that.
        content: what is kept of its content; None if it was not read.
        fingerprints: those of its content, also by the columns that other releases used.
        copies: the releases whose table had one of them.
    """

    place: str
    content: Content | None = None
    fingerprints: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()

    def is_of(self, claim: Claim) -> bool:
        """Return whether a release was of this table, as far as can be seen."""
        return claim.release in self.copies or same_place(self.place, claim.table)

    def with_copies(self, con: Connection) -> "RecognisedTable":
        """Return it with the releases of its content that the store knows."""
        known = known_contents(con).items()
        return replace(self, copies=frozenset(id_ for id_, of in known if of.fingerprints & self.fingerprints))


def table_at_place(path: Path, inner: str | None) -> RecognisedTable:
    """Return a table as the ledger recognises it by its place alone."""
    return RecognisedTable(f"{path.resolve()}::{inner}" if inner else str(path.resolve()))


def same_place(one: str, other: str) -> bool:
    """Return whether two locations, in the form in which the ledger stores them, are the same table, also through links."""
    (file, _, inner), (other_file, _, other_inner) = one.partition("::"), other.partition("::")
    if inner.casefold() != other_inner.casefold():
        return False
    try:
        return file == other_file or Path(file).samefile(other_file)
    except OSError:  # a file no longer exists
        return False


def keep_recognised(con: Connection, release_id: str, table: RecognisedTable, others: tuple[str, ...]) -> None:
    """Keep what the table of a release is recognised by, as it was read, in place of what was kept before.

    With it go the datasets that used the same table, if the caller has confirmed that they hold other people.
    """
    content = table.content
    if content is None:
        raise ValueError("the table was not read.")
    columns = json.dumps(asdict(content.columns))
    con.execute(
        "INSERT OR REPLACE INTO recognised VALUES (?, ?, ?, ?, ?)",
        [release_id, columns, content.records, content.file, json.dumps(others)],
    )


def known_contents(con: Connection) -> Mapping[str, Content]:
    """Return what the tables of releases are recognised by, as they were read last."""
    rows = con.execute("SELECT release_id, columns, records, file FROM recognised").fetchall()
    read = ((id_, json.loads(columns), records, file) for id_, columns, records, file in rows)
    return {id_: Content(Columns(tuple(of["codes"]), of["count"]), records, file) for id_, of, records, file in read}


def confirmed_others(con: Connection) -> Mapping[str, tuple[str, ...]]:
    """Return, by release, the datasets that used the same table and hold other people, where the caller has confirmed some."""
    rows = con.execute(
        "SELECT release_id, different_people_from FROM recognised WHERE different_people_from <> '[]'"
    ).fetchall()
    return {id_: tuple(json.loads(others)) for id_, others in rows}

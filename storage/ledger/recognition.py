"""Whether the ledger has seen a table before: at the same place, also through links, or with the same content."""

from dataclasses import dataclass, replace
from pathlib import Path

from storage.database.connections import Connection
from storage.errors import StoreError, disk_fault
from storage.ledger.books import Claim
from storage.machine.fingerprints import fingerprint_of
from storage.releases.register import releases_of_content


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A confidential table as the ledger recognises it.

    Attributes:
        place: the path of its file, or the server and the name of its database; behind `::` its name inside of that.
        fingerprint: of its content; empty if it was not read.
        copies: the releases whose table had the same content.
    """

    place: str
    fingerprint: str = ""
    copies: frozenset[str] = frozenset()

    def is_of(self, claim: Claim) -> bool:
        """Return whether a release was of this table, as far as can be seen."""
        return claim.release in self.copies or same_place(self.place, claim.table)

    def with_copies(self, con: Connection) -> "SeenTable":
        """Return it with the releases of its content that the store knows."""
        return replace(self, copies=releases_of_content(con, self.fingerprint)) if self.fingerprint else self


def table_at_place(path: Path, inner: str | None) -> SeenTable:
    """Return a table as the ledger recognises it by its place alone."""
    return SeenTable(f"{path.resolve()}::{inner}" if inner else str(path.resolve()))


def table_as_read(path: Path, inner: str | None) -> SeenTable:
    """Return a table as the ledger recognises it. Reads the whole file.

    Raises:
        StoreError: the file cannot be read, or TRELLIS_HOME has no room for the key of its fingerprint.
    """
    try:
        return SeenTable(table_at_place(path, inner).place, fingerprint_of(path, inner))
    except OSError as fault:
        unread = StoreError(f"{path} cannot be read ({fault.strerror}).", field="input.table")
        raise disk_fault(fault) or unread from None  # who reads needs no room: the key is what could not be written


def same_place(one: str, other: str) -> bool:
    """Return whether two locations, in the form in which the ledger stores them, are the same table, also through links."""
    (file, _, inner), (other_file, _, other_inner) = one.partition("::"), other.partition("::")
    if inner.casefold() != other_inner.casefold():
        return False
    try:
        return file == other_file or Path(file).samefile(other_file)
    except OSError:  # a file no longer exists
        return False

"""Whether the ledger has seen a table before: at the same place, also through links, or with the same content."""

from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreError
from storage.ledger.books import Claim
from storage.machine.fingerprints import fingerprint_of


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A confidential table as the ledger recognises it.

    Attributes:
        place: the path of its file, and behind `::` its name inside a DuckDB file.
        fingerprint: of its content; empty if it was not read.
    """

    place: str
    fingerprint: str = ""

    def is_of(self, claim: Claim) -> bool:
        """Return whether a release was of this table, as far as can be seen."""
        return same_place(self.place, claim.table) or self.is_copy_of(claim)

    def is_copy_of(self, claim: Claim) -> bool:
        """Return whether a release was of a table with the same content, wherever that lies."""
        return bool(self.fingerprint) and self.fingerprint == claim.fingerprint


def table_at_place(path: Path, inner: str | None) -> SeenTable:
    """Return a table as the ledger recognises it by its place alone."""
    return SeenTable(f"{path.resolve()}::{inner}" if inner else str(path.resolve()))


def table_as_read(path: Path, inner: str | None) -> SeenTable:
    """Return a table as the ledger recognises it. Reads the whole file.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        return SeenTable(table_at_place(path, inner).place, fingerprint_of(path, inner))
    except OSError as fault:
        raise StoreError(f"{path} cannot be read ({fault.strerror}).", field="input.table") from None


def same_place(one: str, other: str) -> bool:
    """Return whether two locations, in the form in which the ledger stores them, are the same table, also through links."""
    (file, _, inner), (other_file, _, other_inner) = one.partition("::"), other.partition("::")
    if inner.casefold() != other_inner.casefold():
        return False
    try:
        return file == other_file or Path(file).samefile(other_file)
    except OSError:  # a file no longer exists
        return False

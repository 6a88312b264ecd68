"""Reads CSV, gzipped CSV, Parquet and tables inside DuckDB files. Every CSV column is read as text."""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

import duckdb

from storage.database.connections import Connection, file_literal
from storage.ledger.recognition import RecognisedTable, table_at_place
from storage.machine.files import sha256_of
from storage.machine.fingerprints import fingerprint_of_file
from tasks.ingest.tables import (
    Table,
    TableRows,
    column_names,
    identifier,
    literal,
    opened,
    sha256_of_rows,
    text_columns,
)

_LONGEST_HEADER = 2**20  # characters


@dataclass(frozen=True, slots=True)
class FileTable(Table):
    """A table in a file.

    Attributes:
        inner: the table inside the file, where it may hold several; None for other kinds of file.
    """

    path: Path
    inner: str | None = None

    _program: ClassVar[str] = "duckdb"

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def location(self) -> str:
        """The path of the file, and behind `::` the table in it."""
        return f"{self.path}::{self.inner}" if self.inner else str(self.path)

    @property
    def kind(self) -> str:
        """DuckDB, Parquet or CSV."""
        if self.inner:
            return "a DuckDB file with that table"
        return "Parquet" if self.ending == ".parquet" else "CSV in UTF-8"

    @property
    def ending(self) -> str:
        """The last ending of its name, in lower case: .csv, .gz, .parquet."""
        return self.path.suffix.lower()

    @property
    def recognised_inner(self) -> str | None:
        """The table inside the file, where the ledger tells those of one file apart."""
        return None if self.holds_others else self.inner

    def at_place(self) -> RecognisedTable:
        """Return it as the ledger recognises it by its place alone."""
        return table_at_place(self.path, self.recognised_inner)

    def is_view_of_files(self) -> bool:
        """Return whether it is a view in a DuckDB file that opens more than this file."""
        if not self.inner or self.ending != ".duckdb":
            return False
        with duckdb.connect() as con, suppress(duckdb.Error):  # whoever reads it says what else is wrong
            con.execute(f"ATTACH {literal(str(self.path))} AS source (READ_ONLY)")
            con.execute("SET enable_external_access = false")
            try:
                column_names(con, f"source.{identifier(self.inner)}")
            except duckdb.PermissionException:
                return True
        return False

    def is_same(self, other: Table) -> bool:
        """Return whether two tables are in one file. Opens neither."""
        return isinstance(other, FileTable) and self.path.samefile(other.path)

    def version(self) -> tuple[int, ...] | None:
        """Return what the disk knows of the file. A table in a file may be a view of others."""
        if self.inner:
            return None
        seen = self.path.stat()
        return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns

    def fingerprint_of_file(self) -> str:
        """Return the keyed fingerprint of the bytes of the file, and of what a `.gz` unpacks to."""
        return fingerprint_of_file(self.path, self.recognised_inner)

    def has_bytes_of(self, other: Table) -> bool:
        """Return whether the files of two tables have the same bytes."""
        return (
            isinstance(other, FileTable)
            and self.path.stat().st_size == other.path.stat().st_size
            and sha256_of(self.path) == sha256_of(other.path)
        )

    def sha256(self) -> str:
        """Return the hash of its file, or, of a table in a DuckDB file, of its rows as texts."""
        if self.inner is None:
            return sha256_of(self.path)
        with duckdb.connect() as con, opened(con, self) as rows:
            texts = con.sql(f"SELECT {text_columns(rows.names)} FROM {rows.scan(rows.names)}").fetchall()
            return sha256_of_rows(rows.names, texts)

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open it with DuckDB, which reads nothing else."""
        if self.inner is None:
            sql = _reader(self)
            yield TableRows(column_names(con, sql), lambda _: sql)
            return
        self._check_closed(".wal")
        con.execute(f"ATTACH {literal(str(self.path))} AS source (READ_ONLY)")
        try:
            sql = f"source.{identifier(self.inner)}"
            yield TableRows(column_names(con, sql), lambda _: sql)
        finally:
            con.execute("DETACH source")

    def _check_closed(self, *endings: str) -> None:
        """Refuse a database if a program keeps some of its rows in a second file."""
        path = self.path.resolve()  # beside which the second file is, also where a link leads to it
        for ending in endings:
            beside = path.with_name(path.name + ending)
            # a journal that is kept after its changes are made begins with zeros
            if beside.is_file() and begin_of(beside).strip(b"\0"):
                raise self.fault(
                    f"{self.name} must hold all its rows itself, and {beside.name} has changes to it.",
                    f"Close the program that has the database open, or open and close it once with `{self._program}`.",
                )

    def cause(self, message: str) -> str:
        """Return the cause of DuckDB's error message about a CSV file."""
        return next((cause for sign, cause in _CAUSES.items() if re.search(sign, message, re.MULTILINE)), "")


def _reader(table: FileTable) -> str:
    """Return the SQL that reads one file. DuckDB guesses nothing, skips no line and reads no other file."""
    name = file_literal(table.path)
    if table.ending == ".parquet":
        return f"read_parquet({name}, hive_partitioning = false)"
    header = header_of(table)
    if not header:
        raise table.fault(f"{table.name} has no line of column names.")
    columns = ", ".join(f"{literal(column)}: 'VARCHAR'" for column in header)
    packed = "gzip" if table.ending == ".gz" else "none"
    return (
        f"read_csv({name}, columns = {{{columns}}}, compression = '{packed}', auto_detect = false, header = true, delim = ',', quote = '\"',"
        " escape = '\"', comment = '', skip = 0, strict_mode = true, null_padding = false, hive_partitioning = false)"
    )


def header_of(table: FileTable) -> list[str]:
    """Return the names in the first line of a CSV file; refuse names that span lines or are not separated by commas."""
    names, hint = _first_line(table)
    if names is None:
        raise table.unreadable(hint)
    if any("\n" in name or "\r" in name for name in names):  # the name contains rows, which no message may show
        raise table.fault(
            f"{table.name} must have no line break in a column name.",
            "The usual cause is a quote in the first line that is not closed.",
        )
    if len(names) == 1:
        for mark, separator in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`")):
            if mark in names[0]:
                raise table.fault(
                    f"{table.name} must use commas between columns; it seems to use {separator}.",
                    "Convert the file to commas, and put values that contain a comma in quotes.",
                )
    return names


def _first_line(table: FileTable) -> tuple[list[str] | None, str]:
    """Return the fields of the first line of a CSV file; on failure, None and a hint that does not quote the line."""
    is_gzip = table.ending == ".gz"
    opening = gzip.open if is_gzip else open
    try:
        with opening(table.path, "rt", encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(_within(_LONGEST_HEADER, lines)), []), ""
    except _TooLong:
        return (
            None,
            f"The first line must hold the column names, in at most {_LONGEST_HEADER:,} characters. Are there line ends?",
        )
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None, "The file is not gzip, or is incomplete."
    except UnicodeDecodeError:
        with table.path.open("rb") as raw:
            zipped = not is_gzip and raw.read(2) == b"\x1f\x8b"
        return None, "The file is gzipped. Its name must end in .csv.gz." if zipped else _NOT_UTF8
    except (OSError, csv.Error):
        return None, ""


def begin_of(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(12)


class _TooLong(Exception):
    """A header that is longer than any header."""


def _within(most: int, file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file; never read more than `most` characters, however long a line is."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise _TooLong
        most -= len(line)
        yield line


_NOT_UTF8 = "The file is not in UTF-8. Convert it, for example with `iconv -f LATIN1 -t UTF-8`."

# Parts of DuckDB's error texts, and their causes. The rest of these texts may quote rows, and is never shown.
_CAUSES = {
    r"^Expected Number of Columns: \d+ Found: \d+$": "A row has more or fewer fields than the first line has names.",
    r"^Invalid unicode": _NOT_UTF8,
    r"^Value with unterminated quote found": "A quote is not closed, or a quote inside a field is not doubled.",
    r"CSV Parser state machine reached an invalid state": "The usual cause is a mix of LF and CRLF line ends. Use one of them in the whole file.",
    r"Unexpected end of GZIP stream": "The file is incomplete.",
}

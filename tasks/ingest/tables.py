"""Tables as people have them: CSV, gzipped CSV, Parquet, or a table inside a DuckDB file. Every column is text."""

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from storage.database.connections import Connection, file_literal
from storage.errors import InputError, TrellisError, disk_fault
from storage.machine.files import sha256_of


@dataclass(frozen=True, slots=True)
class Table:
    """A table to read.

    Attributes:
        field: the spec's key that names it, for errors.
        path: the file.
        inner: the table inside a DuckDB file; None for the other kinds.
    """

    field: str
    path: Path
    inner: str | None = None


def table_at(field: str, location: str, base: Path) -> Table:
    """Return the table at `file.csv`, `file.csv.gz`, `file.parquet` or `file.duckdb::table`, relative to `base`.

    Raises:
        InputError: the file does not exist, or is none of these.
    """
    file, _, inner = location.partition("::")
    path = (base / Path(file).expanduser()).absolute()
    try:
        is_file = path.is_file()
    except OSError as fault:
        raise InputError(f"{field}: {path} cannot be reached ({fault.strerror}).", field=field) from None
    kinds = (".csv", ".csv.gz", ".parquet")
    if not (path.name.endswith(".duckdb") if inner else path.name.endswith(kinds)):
        raise InputError(f"{field} must end in {', '.join(kinds)} or .duckdb::<table>, got {path.name}.", field=field)
    if not is_file:
        raise InputError(f"{field}: there is no file {path}.", field=field)
    if not os.access(path, os.R_OK):
        raise InputError(f"{field}: {path} must be readable.", field=field)
    return Table(field, path, inner or None)


def same_table(one: Table, other: Table) -> bool:
    """Return whether two tables are one, by their names alone: neither is opened."""
    return one.path.samefile(other.path) and (one.inner or "").casefold() == (other.inner or "").casefold()


def same_place(one: str, other: str) -> bool:
    """Return whether two tables, as the ledger writes where they are, are one: by other names of a file too."""
    (file, _, inner), (other_file, _, other_inner) = one.partition("::"), other.partition("::")
    if inner.casefold() != other_inner.casefold():
        return False
    try:
        return file == other_file or Path(file).samefile(other_file)
    except OSError:  # what was there is gone
        return False


def same_content(one: Table, other: Table) -> bool:
    """Return whether one table is a copy of the other."""
    same_size = one.path.stat().st_size == other.path.stat().st_size
    return same_table(one, other) or (not one.inner and same_size and sha256_of(one.path) == sha256_of(other.path))


@contextmanager
def opened(con: Connection, table: Table) -> Iterator[str]:
    """Yield the SQL of a table's rows, every CSV column as text, for use in FROM.

    Raises:
        InputError: the file cannot be read as what its name says. The reason is kept back: it may quote a row.
        StoreError: the disk that takes what is read is full.
    """
    failure: TrellisError | None = None
    try:
        if table.inner is None:
            yield _reader(table)
            return
        con.execute(f"ATTACH {_quoted(str(table.path))} AS source (READ_ONLY)")
        try:
            yield f"source.{identifier(table.inner)}"
        finally:
            con.execute("DETACH source")
    except duckdb.Error as fault:
        failure = disk_fault(fault) or _unreadable(table, _hint(str(fault)))
    if failure:
        raise failure


def check_columns(con: Connection, table: Table, rows: str, wanted: Sequence[str]) -> None:
    """Refuse a table that lacks a column.

    Args:
        con: where the table is opened.
        table: the table.
        rows: its SQL, from `opened`.
        wanted: names of columns.
    Raises:
        InputError: names the first column that is missing. Those that there are it does not name: in a file without a
            header they would be the first row.
    """
    there = column_names(con, rows)
    for column in wanted:
        if column not in there:
            raise InputError(
                f"{table.field}: {table.path.name} has no column {column}.",
                field=table.field,
                hint="The first line must hold the names of the columns, as the spec writes them.",
            )


def column_names(con: Connection, rows: str) -> list[str]:
    """Return the names of a table's columns; `rows` is its SQL."""
    return [column[0] for column in con.execute(f"SELECT * FROM {rows} LIMIT 0").description or []]


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _reader(table: Table) -> str:
    """Return the SQL that reads one file, and leaves DuckDB nothing to guess: no line is skipped, no other file read."""
    name = file_literal(table.path)
    if table.path.suffix == ".parquet":
        return f"read_parquet({name}, hive_partitioning = false)"
    header = _header(table)
    if not header:
        raise InputError(f"{table.field}: {table.path.name} has no line of column names.", field=table.field)
    columns = ", ".join(f"{_quoted(column)}: 'VARCHAR'" for column in header)
    return (
        f"read_csv({name}, columns = {{{columns}}}, auto_detect = false, header = true, delim = ',', quote = '\"',"
        " escape = '\"', comment = '', skip = 0, strict_mode = true, null_padding = false, hive_partitioning = false)"
    )


def _header(table: Table) -> list[str]:
    """Return the names in the first line of a CSV file; refuse one that holds no names, or more than itself."""
    names, hint = _first_line(table)
    if names is None:
        raise _unreadable(table, hint)
    if any("\n" in name or "\r" in name for name in names):  # what follows is rows, which no message may show
        raise InputError(
            f"{table.field}: {table.path.name} must have no line break in the name of a column.",
            field=table.field,
            hint="Most often a quote in the first line is opened and not closed.",
        )
    if len(names) == 1:
        for mark, said in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`")):
            if mark in names[0]:
                raise InputError(
                    f"{table.field}: {table.path.name} must be parted by commas; its columns seem to be parted by {said}.",
                    field=table.field,
                    hint="Write it with commas, and in quotes what has a comma in it.",
                )
    return names


def _first_line(table: Table) -> tuple[list[str] | None, str]:
    """Return the fields of the first line of a CSV file, or None and what may be the matter, without quoting the line."""
    is_gzip = table.path.suffix == ".gz"
    opening = gzip.open if is_gzip else open
    try:
        with opening(table.path, "rt", encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(lines), []), ""
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None, "It is no gzip, or is cut short."
    except UnicodeDecodeError:
        with table.path.open("rb") as raw:
            zipped = not is_gzip and raw.read(2) == b"\x1f\x8b"
        return None, "It is gzipped: its name must end in .csv.gz." if zipped else _NOT_UTF8
    except (OSError, csv.Error):
        return None, ""


_NOT_UTF8 = "It is not in UTF-8: convert it, such as with `iconv -f LATIN1 -t UTF-8`."

# What DuckDB says at the beginning of a line, and what it means. The rest of its text quotes rows, and is not shown.
_CAUSES = {
    r"^Expected Number of Columns: \d+ Found: \d+$": "A row has more or fewer fields than the first line has names.",
    r"^Invalid unicode": _NOT_UTF8,
    r"^Value with unterminated quote found": "A quote is opened and not closed, or stands inside a field without being doubled.",
    r"CSV Parser state machine reached an invalid state": "Most often some lines end in LF and others in CRLF: write all alike.",
    r"Unexpected end of GZIP stream": "It is cut short.",
}


def _hint(said: str) -> str:
    """Return the cause of what DuckDB says about a CSV file; empty where it is none that is known."""
    return next((cause for sign, cause in _CAUSES.items() if re.search(sign, said, re.MULTILINE)), "")


def _unreadable(table: Table, hint: str = "") -> InputError:
    kind = (
        "a DuckDB file with that table"
        if table.inner
        else "Parquet"
        if table.path.suffix == ".parquet"
        else "CSV in UTF-8"
    )
    return InputError(f"{table.field}: {table.path.name} cannot be read as {kind}.", field=table.field, hint=hint)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

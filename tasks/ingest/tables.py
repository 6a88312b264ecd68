"""Reads CSV, gzipped CSV, Parquet and tables inside DuckDB files. Every CSV column is read as text."""

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import duckdb

from storage.database.connections import Connection, file_literal
from storage.errors import InputError, TrellisError, disk_fault
from storage.machine.files import sha256_of
from tasks.words.nearest import did_you_mean

_LONGEST_HEADER = 2**20  # characters


@dataclass(frozen=True, slots=True)
class Table:
    """A table to read.

    Attributes:
        field: the spec's key that names the table, for errors.
        path: the file.
        inner: the table inside a DuckDB file; None for other kinds of file.
    """

    field: str
    path: Path
    inner: str | None = None


_SHEET = "Save the sheet as CSV (UTF-8), with codes as text: a spreadsheet drops their leading zeros."
_TO_GEOJSON = "Convert it, for example with `ogr2ogr -t_srs EPSG:4326 areas.geojson FILE`."
_SHAPES = "Export its table of attributes as CSV: only the codes of the areas are read, not their shapes."
_CONVERT = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _SHEET),
    **dict.fromkeys((".geojson", ".json", ".shp", ".gpkg", ".dbf", ".kml"), _SHAPES),
    ".duckdb": "Name the table inside of it: file.duckdb::table.",
    ".tsv": "Convert tabs to commas, and put values that contain a comma in quotes.",
    ".txt": "If it is CSV, give it a name that ends in .csv.",
    ".zip": "Unpack it.",
}


def table_at(field: str, location: str, base: Path) -> Table:
    """Return the table at `file.csv`, `file.csv.gz`, `file.parquet` or `file.duckdb::table`, relative to `base`.

    Raises:
        InputError: the file does not exist, cannot be read, or has another ending.
    """
    file, _, inner = location.partition("::")
    kinds = (".csv", ".csv.gz", ".parquet")
    known = (".duckdb",) if inner else kinds
    path = _file_at(field, file, base, known, f"{', '.join(kinds)} or .duckdb::<table>")
    return Table(field, path, inner or None)


def shapes_at(field: str, location: str, base: Path) -> Table:
    """Return the file of shapes at `file.geojson`, `file.parquet` or `file.gpkg`, relative to `base`.

    Raises:
        InputError: as `table_at`.
    """
    kinds = (".geojson", ".parquet", ".gpkg")
    return Table(field, _file_at(field, location, base, kinds, f"{', '.join(kinds[:-1])} or {kinds[-1]}", _TO_GEOJSON))


def _file_at(field: str, file: str, base: Path, kinds: tuple[str, ...], in_words: str, hint: str | None = None) -> Path:
    path = (base / Path(file).expanduser()).absolute()
    try:
        is_file = path.is_file()
    except OSError as fault:
        raise InputError(f"{field}: cannot access {path} ({fault.strerror}).", field=field) from None
    if not path.name.endswith(kinds):
        raise InputError(
            f"{field} must end in {in_words}, got {path.name}.",
            field=field,
            hint=_CONVERT.get(path.suffix.lower(), "") if hint is None else hint,
        )
    if not is_file:
        raise InputError(f"{field}: there is no file {path}.", field=field)
    if not os.access(path, os.R_OK):
        raise InputError(f"{field}: you must have permission to read {path}.", field=field)
    return path


def same_table(one: Table, other: Table) -> bool:
    """Return whether two tables are the same, by their paths alone. Opens neither."""
    return one.path.samefile(other.path) and (one.inner or "").casefold() == (other.inner or "").casefold()


def same_content(one: Table, other: Table) -> bool:
    """Return whether two tables are the same, or files with the same content."""
    same_size = one.path.stat().st_size == other.path.stat().st_size
    return same_table(one, other) or (not one.inner and same_size and sha256_of(one.path) == sha256_of(other.path))


@contextmanager
def opened(con: Connection, table: Table) -> Iterator[str]:
    """Yield the SQL of a table's rows, every CSV column as text, for use in FROM.

    Raises:
        InputError: the file is not of the kind that its name says. The error leaves out DuckDB's text, which may quote a row.
        StoreError: the disk for temporary files is full.
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


def check_columns(con: Connection, table: Table, rows: str, wanted: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse a table that lacks a column.

    Args:
        con: the connection on which the table is open.
        table: the table.
        rows: its SQL, from `opened`.
        wanted: names of columns.
        others: more names of columns that it should have.
    Raises:
        InputError: a column is missing; the error names the first. It names one that exists only where the first line has
            another of the names, and so is a header: otherwise its fields may be a row.
    """
    present = column_names(con, rows)
    has_header = not {*wanted, *others}.isdisjoint(present)
    for column in wanted:
        if column not in present:
            raise InputError(
                f"{table.field}: {table.path.name} has no column {column}.",
                field=table.field,
                hint=(did_you_mean(column, present, 0.75) if has_header else "")
                or "The first line of the table must hold the column names, spelled as in the spec.",
            )


def column_names(con: Connection, rows: str) -> list[str]:
    """Return the column names of a table, given its SQL from `opened`."""
    return [column[0] for column in con.execute(f"SELECT * FROM {rows} LIMIT 0").description or []]


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _reader(table: Table) -> str:
    """Return the SQL that reads one file. DuckDB guesses nothing, skips no line and reads no other file."""
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
    """Return the names in the first line of a CSV file; refuse names that span lines or are not separated by commas."""
    names, hint = _first_line(table)
    if names is None:
        raise _unreadable(table, hint)
    if any("\n" in name or "\r" in name for name in names):  # the name contains rows, which no message may show
        raise InputError(
            f"{table.field}: {table.path.name} must have no line break in a column name.",
            field=table.field,
            hint="The usual cause is a quote in the first line that is not closed.",
        )
    if len(names) == 1:
        for mark, separator in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`")):
            if mark in names[0]:
                raise InputError(
                    f"{table.field}: {table.path.name} must use commas between columns; it seems to use {separator}.",
                    field=table.field,
                    hint="Convert the file to commas, and put values that contain a comma in quotes.",
                )
    return names


def _first_line(table: Table) -> tuple[list[str] | None, str]:
    """Return the fields of the first line of a CSV file; on failure, None and a hint that does not quote the line."""
    is_gzip = table.path.suffix == ".gz"
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


class _TooLong(Exception):
    """A header that is longer than any header."""


def _within(most: int, file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file; never read more than so many characters, whatever a line has."""
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


def _hint(message: str) -> str:
    """Return the cause of DuckDB's error message about a CSV file; empty if the cause is unknown."""
    return next((cause for sign, cause in _CAUSES.items() if re.search(sign, message, re.MULTILINE)), "")


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

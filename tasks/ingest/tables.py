"""Tables to read, whatever holds them: what every kind in `tasks.ingest.sources` can do, and how the rows of one are read."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import ClassVar
from unicodedata import normalize

import duckdb
import polars as pl

from storage.database.connections import Connection
from storage.errors import InputError, TrellisError, disk_fault
from storage.ledger.recognition import RecognisedTable
from tasks.words.spelling import did_you_mean

_MOST_NAMED = 5  # rows, in an error
_numbers = count()


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table that is open on a connection.

    Attributes:
        names: of all columns that have one, in order.
        scan: returns, for some of the columns, the SQL of all rows, for use in FROM. Each call reads the rows once.
        types: of columns whose values are not text, as SQL names them, where they are known.
        header: the names of all columns as a file has them, blank ones too; empty where none can be blank.
        lacking: of columns that some files of the table have: one that has not.
        decimal: the mark before the fraction of a number; empty where nobody says it, and a text such as 1.000 may be 1000.
        left_out: of columns whose texts lack the fraction 0 or midnight: the form in which others write it, as `left_out` returns it.
    """

    names: Sequence[str]
    scan: Callable[[Sequence[str]], str]
    types: Mapping[str, str] = field(default_factory=dict)
    header: Sequence[str] = ()
    decimal: str = ""
    lacking: Mapping[str, "Table"] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def number(self, text: str) -> str:
        """Return the SQL of a number with a point before its fraction, given that of its text; then a comma sets thousands apart."""
        return f"translate({text}, ',.', '.,')" if self.decimal == "," else text

    @property
    def distinct(self) -> list[str]:
        """The names that no other column has, whatever the case of their letters: the columns that can be read."""
        times = Counter(_folded(name) for name in self.names)
        return [name for name in self.names if times[_folded(name)] == 1]


@dataclass(frozen=True, slots=True)
class Table(ABC):
    """A table to read.

    Attributes:
        field: the spec's key that names the table, for errors.
    """

    field: str

    # whether it is in a file that the ledger takes for one table, whatever tables it holds: one of them need not be named, or may be a
    # view that shows the people of another
    holds_others: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """What errors call it: the name of its file, or its own in a database."""

    @property
    @abstractmethod
    def location(self) -> str:
        """By which its content can be read again; never published."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """As what it is read, in words that follow "cannot be read as"."""

    @abstractmethod
    def at_place(self) -> RecognisedTable:
        """Return it as the ledger recognises it by its place alone. Does not open it."""

    @property
    def remark(self) -> str:
        """What only the caller may hear of it before it is read; empty where there is nothing."""
        return ""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that hold its rows, as far as they are known."""
        return ()

    def is_same(self, other: "Table") -> bool:
        """Return whether two tables are the same or in one file, by their places alone."""
        return any(one.samefile(two) for one in self.paths for two in other.paths)

    def version(self) -> tuple[int, ...] | None:
        """Return what changes whenever its content does; None where nothing is known to."""
        return None

    def has_bytes_of(self, other: "Table") -> bool:  # noqa: ARG002 (of files)
        """Return whether two tables are in files with the same bytes."""
        return False

    def is_view_of_files(self) -> bool:
        """Return whether reading it reads another file, or may: which one, only its text says."""
        return False

    def shows_rows_of(self, other: "Table") -> bool:  # noqa: ARG002 (of databases)
        """Return whether it is a view or a query that reads what the other table is made of. Reads no row."""
        return False

    def fingerprint_of_file(self) -> str:
        """Return the keyed fingerprint of its file; empty where it is in none.

        Raises:
            OSError: it cannot be read.
        """
        return ""

    @abstractmethod
    def sha256(self) -> str:
        """Return the hash of its content, by which a codebook is known. Only for public tables.

        It is published, so it must not cover another table of the same file, which may be confidential.

        Raises:
            InputError: it cannot be read.
        """

    @abstractmethod
    def rows(self, con: Connection) -> AbstractContextManager[TableRows]:
        """Open it; all values are text, or become text when SQL casts them.

        Raises:
            InputError: it is not what its name says.
            duckdb.Error: it is not what its name says; the text may quote rows.
        """

    @abstractmethod
    def cause(self, message: str) -> str:
        """Return what a fault while reading comes from, given its text, which may quote rows; empty if unknown."""

    def held(self) -> "AbstractContextManager[Table]":
        """Yield it so that reading it several times finds the same rows; files are taken to stay as they are."""
        return nullcontext(self)

    def fault(self, text: str, hint: str = "") -> InputError:
        """Return a refusal of the table, whose text goes on after the key that names it."""
        return InputError(f"{self.field}: {text}", field=self.field, hint=hint)

    def confidential(self, reason: str, hint: str) -> InputError:
        """Return the refusal of a public table that is the confidential one, by its place or its content."""
        rule = "must not be the confidential table or a view of it, nor in a file with it"
        return InputError(f"{self.field} {rule}: {reason}", field=self.field, hint=hint)

    def unreadable(self, hint: str = "") -> InputError:
        """Return the refusal of a table that cannot be read."""
        return self.fault(f"{self.name} cannot be read as {self.kind}.", hint)


def same_table(one: Table, other: Table) -> bool:
    """Return whether a public table is the confidential one or in the same file, by their places alone.

    A view in that file may be made of the records.

    Raises:
        InputError: the public table is a view of another file, which may be the confidential one.
    """
    if one.is_view_of_files():
        raise InputError(
            f"{one.field} must hold its rows itself, and {one.location.rpartition('::')[2]} is a view of another file.",
            field=one.field,
            hint="Name that file itself, or make a table of it: CREATE TABLE … AS FROM ….",
        )
    return one.is_same(other)


def sha256_of_rows(names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    """Return the hash of rows of texts, whatever their order: of JSON lists, sorted and one per line, below that of the column names."""
    lines = sorted(json_line(row) for row in rows)
    return hashlib.sha256(b"".join([json_line(names), *lines])).hexdigest()


def json_line(texts: Sequence[str | None]) -> bytes:
    """Return texts as one JSON list without blanks, with the end of the line."""
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def in_nfc(text: str) -> str:
    """Return a code or a name in the one of its Unicode forms in which all are compared."""
    return normalize("NFC", text)


def _folded(name: str) -> str:
    return in_nfc(name).casefold()


@cache
def _database(process: int) -> Connection:  # noqa: ARG001 (a fork does not have the threads of its parent's database)
    return _in_memory()


def _in_memory() -> Connection:
    """Return a database that writes nothing: a view may sort records, which DuckDB would write where nobody deletes them."""
    return duckdb.connect(config={"temp_directory": ""})


def reader(table: Table) -> Connection:
    """Return a connection for a table, to be closed: to a database that the process keeps in memory.

    Opening one takes 20 ms. A file of several tables has a database of its own: two threads may attach two such files, and under one name.
    """
    return _in_memory() if "::" in table.location else _database(os.getpid()).cursor()


@contextmanager
def opened(con: Connection, table: Table, *, as_written: bool = False) -> Iterator[TableRows]:
    """Yield the rows of a table. All names and values are text in NFC, unless they are wanted as they are written.

    Columns are found and named by either form of their names.

    Raises:
        InputError: the table is not of the kind that its name says. The error leaves out the reader's text, which may quote a row.
        StoreError: the disk for temporary files is full.
    """
    failure: TrellisError | None = None
    try:
        with table.rows(con) as rows:
            names = rows.names if as_written else [*map(in_nfc, rows.names)]
            types, left_out = (
                {form: of for name, of in by_name.items() for form in (name, *_forms(name))}
                for by_name in (rows.types, rows.left_out)
            )
            scan = partial(_scanned, rows, as_written)
            header = [*map(in_nfc, rows.header)]
            yield replace(rows, names=names, header=header, types=types, left_out=left_out, scan=scan)
    except duckdb.Error as fault:
        failure = disk_fault(fault) or table.unreadable(table.cause(str(fault)))
    if failure:
        raise failure


def _forms(name: str) -> tuple[str, str]:
    return normalize("NFC", name), normalize("NFD", name)


def _scanned(rows: TableRows, as_written: bool, columns: Sequence[str]) -> str:
    """Return the SQL of columns, for use in FROM, under the names by which they are asked for."""
    written = {in_nfc(name): name for name in rows.names}
    names = {name: name if name in rows.names else written.get(in_nfc(name), name) for name in columns}
    texts = {
        name: identifier(of) if as_written else f"nfc_normalize({identifier(of)}::VARCHAR)"
        for name, of in names.items()
    }
    asked = ", ".join(f"{text} AS {identifier(name)}" for name, text in texts.items())
    return f"(SELECT {asked} FROM {rows.scan([*names.values()])})"


@contextmanager
def registered(con: Connection) -> Iterator[Callable[[object], str]]:
    """Yield what gives Arrow data a name in a connection; the names are forgotten in the end."""
    names: list[str] = []

    def register(data: object) -> str:
        names.append(f"rows_{next(_numbers)}")
        con.register(names[-1], data)
        return names[-1]

    try:
        yield register
    finally:
        for name in names:
            con.unregister(name)


def check_columns(table: Table, rows: TableRows, wanted: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse a table that lacks a column.

    Args:
        others: more names of columns that it should have.
    Raises:
        InputError: a column is missing, or two have its name; the error names the first. It names one that exists only where the
            first line has another of the names, or has one in letters of another case, and so is a header: otherwise its fields
            may be a row.
    """
    folded, distinct = {_folded(name.strip()): name for name in rows.names}, rows.distinct
    has_header = any(_folded(name) in folded for name in (*wanted, *others))
    for column in map(in_nfc, wanted):
        if column not in rows.names:
            spaced, part = folded.get(_folded(column), ""), rows.lacking.get(column)
            raise (part or table).fault(
                f"{table.name} has no column {column}{f' in {part.name}' if part else ''}.",
                f'Its name there is "{spaced}": delete the blanks around it.'
                if spaced != spaced.strip()
                else (did_you_mean(column, rows.names, 0.75) if has_header else "")
                or _separated({*wanted, *others}, rows.header)
                or f"{'Every object' if 'JSON' in table.kind else 'The first line'} of the table must hold the column names, spelled as in the spec, with nothing above them.",
            )
        if column not in distinct:
            same = [name for name in rows.names if _folded(name) == _folded(column)]
            raise table.fault(
                f"{table.name} has two columns {column}."
                if same.count(column) > 1
                else f"{table.name} has the columns {same[0]} and {same[1]}, which differ only in upper and lower case.",
                "Give each column that the spec names a name of its own.",
            )


def _separated(wanted: Collection[str], header: Sequence[str]) -> str:
    """Return the hint that another character stands between columns, where it would give all that are wanted, so that the line is a header."""
    for mark in ";\t|^~: ":
        parts = {part.strip('" ') for name in header for part in name.split(mark)}
        if parts.issuperset(wanted) and not {*header}.issuperset(wanted):
            return f"{mark!r} seems to stand between its columns: beside the key that names the file, write csv: {{separator: {json.dumps(mark)}}}."
    return ""


def read_texts(table: Table) -> pl.DataFrame:
    """Return a public table; every column is text.

    Raises:
        InputError: it cannot be read.
    """
    with reader(table) as con, opened(con, table) as rows:
        texts: pl.DataFrame = con.sql(f"SELECT {text_columns(rows.distinct)} FROM {rows.scan(rows.distinct)}").pl()
    return texts


def is_blank(codes: pl.Series) -> pl.Series:
    """Return which codes are missing, or nothing but blanks."""
    return codes.is_null() | (codes.str.strip_chars() == "")


def rows_named(at_fault: pl.Series) -> str:
    """Return the numbers of the first rows at fault, and not what is in them: a table named by mistake may be confidential."""
    rows = [row + 1 for row in at_fault.arg_true()[: _MOST_NAMED + 1]]
    return ", ".join(f"{row:,}" for row in rows[:_MOST_NAMED]) + (" and others" if rows[_MOST_NAMED:] else "")


def column_names(con: Connection, sql: str) -> list[str]:
    """Return the column names of what SQL in FROM yields."""
    return [column[0] for column in con.execute(f"SELECT * FROM {sql} LIMIT 0").description or []]


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"


def text_columns(names: Sequence[str]) -> str:
    """Return the SQL of columns as text, under their own names."""
    return ", ".join(f"{identifier(name)}::VARCHAR AS {identifier(name)}" for name in names)

"""Reads CSV, packed or not, Parquet and tables inside DuckDB files. Every CSV column is read as text."""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import glob
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, NamedTuple, cast
from urllib.parse import unquote

import duckdb
import pyarrow as pa

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
    registered,
    sha256_of_rows,
    text_columns,
)
from tasks.words.spelling import did_you_mean

_LONGEST_HEADER = 2**20  # characters
_TEXT = "'VARCHAR'"
_OF_OBJECTS = (".parquet", ".ndjson", ".jsonl")
_JSON = "format = 'newline_delimited', hive_partitioning = false"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_BATCH = 65_536  # rows of CSV that DuckDB does not decode
_UTF8 = "utf-8-sig"
_BY_MARK = {  # the first bytes of a file, longest first, and its encoding
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": _UTF8,
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How CSV is written.

    Attributes:
        encoding: where no mark at the beginning of the file says another one; None for UTF-8.
        decimal: the mark before the fraction of a number.
        null: texts that stand for a missing value.
    """

    separator: str = ","
    encoding: str | None = None
    decimal: str = "."
    null: tuple[str, ...] = ()

    def texts(self, columns: Sequence[str], read: str, numbers: Sequence[int] | None = None) -> str:
        """Return the SQL, for use in FROM, of columns without what stands for a missing value, and with points in numbers.

        Args:
            read: the SQL that reads them.
            numbers: where `read` names its columns c0, c1, …: which of these they are.
        """
        named = [identifier(name) for name in columns]
        values = named if numbers is None else [f"c{number}" for number in numbers]
        if self.decimal != ".":
            number = f"'^([+-]?[0-9]+)[{self.decimal}]([0-9]*)$'"
            values = [f"regexp_replace({value}, {number}, '\\1.\\2')" for value in values]
        if self.null:
            missing = ", ".join(map(literal, self.null))
            values = [f"CASE WHEN {value} NOT IN ({missing}) THEN {value} END" for value in values]
        return f"(SELECT {', '.join(f'{of} AS {name}' for of, name in zip(values, named, strict=True))} FROM {read})"


@dataclass(frozen=True, slots=True)
class FileTable(Table):
    """A table in a file.

    Attributes:
        inner: the table inside the file, where it may hold several; None for other kinds of file.
        csv: how it is written, if it is CSV.
        below: the folder below which names of folders, such as year=2025, are columns; None where they are not.
    """

    path: Path
    inner: str | None = None
    csv: Dialect = field(default=Dialect(), kw_only=True)
    below: Path | None = field(default=None, kw_only=True)

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
        if self.ending in _OF_OBJECTS:
            return "Parquet" if self.ending == ".parquet" else "JSON with one object per line"
        return f"CSV in {encoding_of(self).upper().removesuffix('-SIG')}"

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

    @property
    def said_by_folders(self) -> dict[str, str | None]:
        """What the names of folders say of its rows, by column."""
        folders = self.path.relative_to(self.below).parts[:-1] if self.below else ()
        said = (folder.partition("=") for folder in folders)
        return {key: None if value == _NO_PARTITION else unquote(value) for key, equals, value in said if equals}

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its file, and those that it reads as a view in a DuckDB file, as far as its text names them, or that of views behind it."""
        if not self.is_view_of_files():
            return (self.path,)
        views, named, left = dict[str, str](), list[str](), [(self.inner or "").casefold()]
        with duckdb.connect() as con, suppress(duckdb.Error):
            con.execute(f"ATTACH {literal(str(self.path))} AS source (READ_ONLY)")
            views |= con.execute(
                "SELECT lower(view_name), sql FROM duckdb_views() WHERE database_name = 'source'"
            ).fetchall()
        while left:
            text = views.pop(left.pop(), "")
            quoted = ["".join(either) for either in re.findall(r"'([^']+)'|\"([^\"]+)\"", text)]
            named += quoted
            left += {word.casefold() for word in [*quoted, *re.findall(r"\w+", text)]} & views.keys()
        found = {Path(file).resolve() for name in named for file in glob(name, recursive=True) if Path(file).is_file()}  # noqa: PTH207 (names are relative to where Trellis runs, as DuckDB has them)
        return (self.path, *sorted(found))

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
        same_size = (path for path in other.paths if path.stat().st_size == self.path.stat().st_size)
        return any(sha256_of(path) == sha256_of(self.path) for path in same_size)

    def sha256(self) -> str:
        """Return the hash of its file, or, of a table in a DuckDB file, of its rows as texts."""
        if self.inner is None:
            return sha256_of(self.path)
        with duckdb.connect() as con, opened(con, self, as_written=True) as rows:
            # not as codes: a hash stays as it was published
            texts = con.sql(f"SELECT {text_columns(rows.names)} FROM source.{identifier(self.inner)}").fetchall()
            return sha256_of_rows(rows.names, texts)

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open it with DuckDB, which reads nothing else."""
        if self.inner is None:
            with registered(con) as register:
                yield rows_of_files(con, [self], register)
            return
        self._check_closed(".wal")
        is_held = False
        try:
            con.execute(f"ATTACH {literal(str(self.path))} AS source (READ_ONLY)")
        except duckdb.Error as fault:  # whose text names the process and its user
            if not re.search(r"set lock|handle conflict|different configuration", str(fault)):
                raise
            is_held = True
        if is_held:
            raise self.fault(
                f"{self.name} is open in another program, which may write to it.",
                "Close it there, end that program, or give a copy of the file that was made while it was closed.",
            )
        try:
            listed = "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'source' AND table_schema = 'main'"
            tables = [name for (name,) in con.execute(listed).fetchall()]
            if self.inner.casefold() not in map(str.casefold, tables):
                raise self.fault(
                    f"{self.name} has no table {self.inner}.",
                    did_you_mean(self.inner, tables) or f"SHOW ALL TABLES lists what it has, in `{self._program}`.",
                )
            sql = f"source.{identifier(self.inner)}"
            kinds = _kinds(con, sql)
            yield TableRows([*kinds], lambda columns: _texts(columns, kinds, sql), _no_codes(kinds))
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


class _Form(NamedTuple):
    """How a file is written; files that are written alike are read together.

    Attributes:
        encoding: of CSV.
        kinds: the types of the columns; None of CSV, where all are text.
    """

    ending: str
    encoding: str
    names: tuple[str, ...]
    kinds: tuple[str, ...] | None


def rows_of_files(con: Connection, files: Sequence[FileTable], register: Callable[[object], str]) -> TableRows:
    """Return the rows of CSV, Parquet and JSON files together: the columns that all of them have, also in the names of their folders."""
    formed = [(file, _form(con, file), file.said_by_folders) for file in files]
    _, first, said = formed[0]
    names = [name for name in first.names if name.strip() and all(name in form.names for _, form, _ in formed)]
    keys = [key for key in said if key not in names and all(key in of for *_, of in formed)]

    def scan(columns: Sequence[str]) -> str:
        inside = [name for name in dict.fromkeys(columns) if name not in keys] or names[:1]
        outside = [key for key in keys if key in columns]
        alike: dict[tuple[_Form, tuple[str | None, ...]], list[FileTable]] = {}
        for file, form, of in formed:
            alike.setdefault((form, tuple(of[key] for key in outside)), []).append(file)
        parts = []
        for (form, values), of_form in alike.items():
            given = [
                f", {'NULL' if value is None else literal(value)} AS {identifier(key)}"
                for key, value in zip(outside, values, strict=True)
            ]
            parts += [f"SELECT *{''.join(given)} FROM {read}" for read in _reading(form, of_form, inside, register)]
        return f"({' UNION ALL BY NAME '.join(parts)})"

    kinds = {name: kind for _, form, _ in formed for name, kind in zip(form.names, form.kinds or (), strict=False)}
    return TableRows([*names, *keys], scan, _no_codes(kinds), first.names)


def _form(con: Connection, file: FileTable) -> _Form:
    if file.ending in _OF_OBJECTS:
        sql = _of_objects([file]) if file.ending == ".parquet" else f"read_json({file_literal(file.path)}, {_JSON})"
        kinds = _kinds(con, sql)
        return _Form(file.ending, "", tuple(kinds), tuple(kinds.values()))
    header = header_of(file)
    if not header:
        raise file.fault(f"{file.name} has no line of column names.")
    return _Form(file.ending, encoding_of(file), tuple(header), None)


def _reading(
    form: _Form, files: Sequence[FileTable], columns: Sequence[str], register: Callable[[object], str]
) -> list[str]:
    """Return the SQL, for use in FROM, of some columns of files that are written alike, as text."""
    if form.kinds is not None:
        return [_texts(columns, dict(zip(form.names, form.kinds, strict=True)), _of_objects(files, form.names))]
    csv, numbers = files[0].csv, [form.names.index(name) for name in columns]
    if form.encoding == _UTF8:
        return [csv.texts(columns, _of_csv(files, form), numbers)]
    return [csv.texts(columns, register(_decoded(file, len(form.names), numbers)), numbers) for file in files]


def _of_objects(files: Sequence[FileTable], names: Sequence[str] = ()) -> str:
    """Return the SQL that reads Parquet, or JSON of which all columns are text."""
    if files[0].ending == ".parquet":
        return f"read_parquet({_paths(files)}, hive_partitioning = false)"
    return (
        f"read_json({_paths(files)}, columns = {{{', '.join(f'{literal(name)}: {_TEXT}' for name in names)}}}, {_JSON})"
    )


def _of_csv(files: Sequence[FileTable], form: _Form) -> str:
    """Return the SQL that reads CSV, of whose columns c0 is the first. DuckDB guesses nothing, skips no line and reads no other file."""
    named = ", ".join(f"c{number}: {_TEXT}" for number in range(len(form.names)))
    packed = {".gz": "gzip", ".zst": "zstd"}.get(form.ending, "none")
    return (
        f"read_csv({_paths(files)}, columns = {{{named}}}, compression = '{packed}', auto_detect = false, header = true,"
        f" delim = {literal(files[0].csv.separator)}, quote = '\"', escape = '\"', comment = '', skip = 0, strict_mode = true,"
        " null_padding = false, hive_partitioning = false)"
    )


def _paths(files: Sequence[FileTable]) -> str:
    return f"[{', '.join(file_literal(file.path) for file in files)}]"


def _kinds(con: Connection, sql: str) -> dict[str, str]:
    """Return the types of the columns that SQL in FROM yields, by their names."""
    return {name: kind for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}


def _no_codes(kinds: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in kinds.items() if not _CODES.match(kind)}


def _texts(columns: Sequence[str], kinds: Mapping[str, str], sql: str) -> str:
    """Return the SQL, for use in FROM, of columns as text: a whole number is its digits, and midnight its day."""
    texts = []
    for name in dict.fromkeys(columns):
        text, kind = f"{identifier(name)}::VARCHAR", kinds[name]
        if re.match("FLOAT|DOUBLE|DECIMAL", kind):  # 1e16 is written out
            of = identifier(name)
            digits = f"CASE WHEN {of} = trunc({of}) THEN TRY_CAST({of} AS HUGEINT)::VARCHAR END"
            text = f"coalesce({digits}, {text})"
        elif _MOMENT.fullmatch(kind):
            text = f"regexp_replace({text}, '{_MIDNIGHT}', '')"
        texts.append(f"{text} AS {identifier(name)}")
    return f"(SELECT {', '.join(texts)} FROM {sql})"


def _decoded(table: FileTable, columns: int, wanted: Sequence[int]) -> pa.RecordBatchReader:
    """Return some columns of a CSV file whose encoding DuckDB does not read, under the names that `_reader` gives them."""
    schema = pa.schema([(f"c{number}", pa.string()) for number in wanted])

    def batches() -> Iterator[pa.RecordBatch]:
        with opened_text(table) as lines:
            rows = filter(None, csv.reader(lines, delimiter=table.csv.separator, strict=True))
            next(rows, None)
            while part := list(islice(rows, _BATCH)):
                if any(len(row) != columns for row in part):
                    raise ValueError(_RAGGED)
                values = [pa.array([row[number] for row in part], pa.string()) for number in wanted]
                yield pa.record_batch(values, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def opened_text(table: FileTable) -> IO[str]:
    """Open a CSV file, unpacked and decoded."""
    return TextIOWrapper(_unpacked(table), encoding=encoding_of(table), newline="")


def _unpacked(table: FileTable) -> BinaryIO:
    if table.ending == ".zst":
        return cast("BinaryIO", pa.input_stream(table.path, compression="zstd"))
    return cast("BinaryIO", (gzip.open if table.ending == ".gz" else open)(table.path, "rb"))


def encoding_of(table: FileTable) -> str:
    """Return the encoding that the first bytes of a CSV file say, or else that of its dialect."""
    begin = b""
    with suppress(OSError, EOFError, zlib.error), _unpacked(table) as file:
        begin = file.read(4)
    marked = next((encoding for mark, encoding in _BY_MARK.items() if begin.startswith(mark)), None)
    return marked or table.csv.encoding or _UTF8


def header_of(table: FileTable) -> list[str]:
    """Return the names in the first line of a CSV file; refuse names that span lines or are not separated as its dialect says."""
    names, hint = _first_line(table)
    if names is None:
        raise table.unreadable(hint)
    if any("\n" in name or "\r" in name for name in names):  # the name contains rows, which no message may show
        raise table.fault(
            f"{table.name} must have no line break in a column name.",
            "The usual cause is a quote in the first line that is not closed.",
        )
    if len(names) == 1 and table.csv.separator in names[0]:
        raise table.fault(
            f"the lines of {table.name} are quoted whole, so that each is one field.",
            'Delete the first and the last quote of every line, and write "" as one quote.',
        )
    if len(names) == 1:
        for mark, separator in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`")):
            if mark in names[0]:
                own = "commas" if table.csv.separator == "," else f"`{table.csv.separator}`"
                written = '"\\t"' if mark == "\t" else f'"{mark}"'
                raise table.fault(
                    f"{table.name} must use {own} between columns; it seems to use {separator}.",
                    f"Beside the key that names the file, write csv: {{separator: {written}}}; or convert the file to commas,"
                    " and put values that contain a comma in quotes.",
                )
    return names


def _first_line(table: FileTable) -> tuple[list[str] | None, str]:
    """Return the fields of the first line of a CSV file; on failure, None and a hint that does not quote the line."""
    try:
        with opened_text(table) as lines:
            return next(csv.reader(_within(_LONGEST_HEADER, lines), delimiter=table.csv.separator), []), ""
    except _TooLong:
        return (
            None,
            f"The first line must hold the column names, in at most {_LONGEST_HEADER:,} characters. Are there line ends?",
        )
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None, "The file is not gzip, or is incomplete."
    except UnicodeError:
        zipped = table.ending != ".gz" and begin_of(table.path).startswith(b"\x1f\x8b")
        if zipped:
            return None, "The file is gzipped. Its name must end in .csv.gz."
        return None, _NOT_UTF8 if encoding_of(table) == _UTF8 else ""
    except (OSError, csv.Error):
        return None, ""


def begin_of(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(12)


_CODES = re.compile(r"VARCHAR|ENUM|U?(TINY|SMALL|BIG|HUGE)?INT")  # types of which any value may be a code
_MOMENT = re.compile(r"TIMESTAMP(_S|_MS|_NS)?")  # without a time zone
_MIDNIGHT = " 00:00:00([.]0+)?$"  # which is left out of a day


class _TooLong(Exception):
    """A header that is longer than any header."""


def _within(most: int, file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file; never read more than `most` characters, however long a line is."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise _TooLong
        most -= len(line)
        yield line


_NOT_UTF8 = (
    "The file is not in UTF-8. Beside the key that names it, write its encoding, such as csv: {encoding: windows-1252}; or convert"
    " it, for example with `iconv -f LATIN1 -t UTF-8`."
)
_RAGGED = "a row has more or fewer fields than the header"

# Parts of DuckDB's error texts, and their causes. The rest of these texts may quote rows, and is never shown.
_CAUSES = {
    r"^Expected Number of Columns: \d+ Found: \d+$": "A row has more or fewer fields than the first line has names.",
    _RAGGED: "A row has more or fewer fields than the first line has names.",
    r"^Invalid unicode": _NOT_UTF8,
    r"^Value with unterminated quote found": "A quote is not closed, or a quote inside a field is not doubled.",
    r"CSV Parser state machine reached an invalid state": "The usual cause is a mix of LF and CRLF line ends. Use one of them in the whole file.",
    r"Unexpected end of GZIP stream": "The file is incomplete.",
}

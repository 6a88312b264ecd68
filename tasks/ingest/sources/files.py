"""Reads CSV, packed or not, Parquet and tables inside DuckDB files."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from glob import glob
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import unquote

import duckdb

from storage.database.connections import Connection, file_literal
from storage.errors import InputError
from storage.ledger.recognition import RecognisedTable, table_at_place
from storage.machine.caller import tell_caller
from storage.machine.files import sha256_of
from storage.machine.fingerprints import fingerprint_of_file
from tasks.ingest.sources.csv_files import CAUSES, UTF8, Dialect, begin_of, decoded, encoding_of, header_of
from tasks.ingest.sources.typed_columns import ANY, kinds_of, left_out, not_text, texts_of
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

_TEXT = "'VARCHAR'"
_OF_OBJECTS = (".parquet", ".ndjson", ".jsonl")
_JSON = "format = 'newline_delimited', records = 'true', hive_partitioning = false"
_NAMES_ALONE = "maximum_depth = 1, map_inference_threshold = -1"  # no type is guessed from the values
_JSON_CAUSES = {
    r"byte order mark|UTF-16 encoding": "Save it in UTF-8 without a byte order mark.",
    r"has duplicate key": "An object has a key twice.",
    r"Malformed JSON|json_read expected records": 'Every line must be an object by itself, such as {"home": "N1", "work": "S1"}.',
}
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class FileTable(Table):
    """A table in a file.

    Attributes:
        inner: the table inside the file, where it may hold several; None for other kinds of file.
        csv: how it is written, if it is CSV.
        below: the folder below which names of folders, such as year=2025, are columns; None where they are not.
        number: what errors call a file that a folder or a pattern finds, such as file 2 of 3; empty where the spec names it.
    """

    path: Path
    inner: str | None = None
    csv: Dialect = field(default=Dialect(), kw_only=True)
    below: Path | None = field(default=None, kw_only=True)
    number: str = field(default="", kw_only=True)

    _program: ClassVar[str] = "duckdb"

    @property
    def name(self) -> str:
        """The name of the file, or its number where its name is as confidential as its rows."""
        return self.number or self.path.name

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
        return f"CSV in {encoding_of(self.path, self.csv).upper().removesuffix('-SIG')}"

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
                    did_you_mean(self.inner, tables)
                    or f"SHOW ALL TABLES lists what it has, in `{self._program}`. Of other schemas than main, make a view in main.",
                )
            sql = f"source.{identifier(self.inner)}"
            kinds = kinds_of(con, sql)
            scan = partial(texts_of, kinds=kinds, sql=sql)
            yield TableRows([*kinds], scan, not_text(kinds), left_out=left_out(kinds))
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

    def fault(self, text: str, hint: str = "") -> InputError:
        """Return a refusal of the table; which file a number is, only the caller hears."""
        if self.number:
            tell_caller(f"{self.number} is {self.path}.")
        return Table.fault(self, text, hint)

    def cause(self, message: str) -> str:
        """Return the cause of DuckDB's error message about a file of text."""
        causes = _JSON_CAUSES if self.ending in _OF_OBJECTS else CAUSES
        return next((cause for sign, cause in causes.items() if re.search(sign, message, re.MULTILINE)), "")


class _Form(NamedTuple):
    """How a file is written; files that are written alike are read together.

    Attributes:
        encoding: of CSV.
        kinds: the types of the columns, of JSON always the same; None of CSV, where all are text.
    """

    ending: str
    encoding: str
    names: tuple[str, ...]
    kinds: tuple[str, ...] | None


def rows_of_files(con: Connection, files: Sequence[FileTable], register: Callable[[object], str]) -> TableRows:
    """Return the rows of CSV, Parquet and JSON files together: the columns that all of them have, also in the names of their folders."""
    formed = [(file, _form(con, file), file.said_by_folders) for file in files]
    _, first, said = formed[0]
    in_all = set(first.names).intersection(*(form.names for _, form, _ in formed))
    names = [name for name in first.names if name.strip() and name in in_all]
    keys = [key for key in said if key not in names and all(key in of for *_, of in formed)]
    known = {name for _, form, of in formed for name in (*form.names, *of)}

    def scan(columns: Sequence[str]) -> str:
        inside = [name for name in dict.fromkeys(columns) if name not in keys] or names[:1]
        outside = [key for key in keys if key in columns]
        alike: dict[tuple[_Form, tuple[str | None, ...]], list[FileTable]] = {}
        for file, form, of in formed:
            alike.setdefault((form, tuple(of[key] for key in outside)), []).append(file)
        parts = []
        for (form, values), of_form in alike.items():
            given = [
                f"{'NULL' if value is None else literal(value)} AS {identifier(key)}"
                for key, value in zip(outside, values, strict=True)
            ]
            of_row = ", ".join([*map(identifier, inside), *given])
            own = inside or form.names[:1]
            parts += [f"SELECT {of_row} FROM {read}" for read in _reading(form, of_form, own, register)]
        return f"({' UNION ALL BY NAME '.join(parts)})"

    kinds = {name: kind for _, form, _ in formed for name, kind in zip(form.names, form.kinds or (), strict=False)}
    of_json = (
        "" if any(form.ending == ".parquet" for _, form, _ in formed) else "."
    )  # texts of Parquet may have either mark
    decimal = next((file.csv.decimal for file, form, _ in formed if form.kinds is None), of_json)
    lacking = {name: file for file, form, of in formed for name in known - {*form.names, *of}}
    if decimal == "," and any(form.kinds for _, form, _ in formed):
        raise files[0].fault(
            'csv: {decimal: ","} is of CSV, and other files of the table have a point before a fraction.',
            "Write all files as CSV, or the numbers in the CSV with a point, without that key.",
        )
    return TableRows([*names, *keys], scan, not_text(kinds), first.names, decimal, lacking, left_out(kinds))


def _form(con: Connection, file: FileTable) -> _Form:
    if file.ending in _OF_OBJECTS:
        if file.ending == ".parquet":
            kinds = kinds_of(con, _of_objects([file]))
        else:
            read = f"read_json({file_literal(file.path)}, {_JSON}, {_NAMES_ALONE})"
            kinds = dict.fromkeys(kinds_of(con, read), ANY)
        return _Form(file.ending, "", tuple(kinds), tuple(kinds.values()))
    header = header_of(file, file.path, file.csv)
    if not header:
        raise file.fault(f"{file.name} has no line of column names.", "They must stand in its first line.")
    return _Form(file.ending, encoding_of(file.path, file.csv), tuple(header), None)


def _reading(
    form: _Form, files: Sequence[FileTable], columns: Sequence[str], register: Callable[[object], str]
) -> list[str]:
    """Return the SQL, for use in FROM, of some columns of files that are written alike, as text."""
    if form.kinds is not None:
        kinds, read = dict(zip(form.names, form.kinds, strict=True)), _of_objects(files, form.names)
        return [texts_of(columns, kinds, read)]
    csv, numbers = files[0].csv, [form.names.index(name) for name in columns]
    if form.encoding == UTF8:
        return [csv.texts(columns, _of_csv(files, form), numbers)]
    return [csv.texts(columns, register(decoded(file.path, csv, len(form.names), numbers)), numbers) for file in files]


def _of_objects(files: Sequence[FileTable], names: Sequence[str] = ()) -> str:
    """Return the SQL that reads Parquet, or JSON of which each value stays what it is."""
    if files[0].ending == ".parquet":
        return f"read_parquet({_paths(files)}, hive_partitioning = false)"
    columns = ", ".join(f"{literal(name)}: 'JSON'" for name in names)
    return f"read_json({_paths(files)}, columns = {{{columns}}}, {_JSON})"


def _of_csv(files: Sequence[FileTable], form: _Form) -> str:
    """Return the SQL that reads CSV, of whose columns c0 is the first. DuckDB guesses nothing and reads no other file.

    It skips blank lines of several columns, and reads one of a single column as no value, which "" is not.
    """
    named = ", ".join(f"c{number}: {_TEXT}" for number in range(len(form.names)))
    packed = {".gz": "gzip", ".zst": "zstd"}.get(form.ending, "none")
    read = (
        f"read_csv({_paths(files)}, columns = {{{named}}}, compression = '{packed}', auto_detect = false, header = true,"
        f" delim = {literal(files[0].csv.separator)}, quote = '\"', escape = '\"', comment = '', skip = 0, strict_mode = true,"
        f" null_padding = false, hive_partitioning = false, allow_quoted_nulls = {len(form.names) > 1})"
    )
    return read if len(form.names) > 1 else f"(SELECT nullif(c0, '') AS c0 FROM {read} WHERE c0 IS NOT NULL)"


def _paths(files: Sequence[FileTable]) -> str:
    return f"[{', '.join(file_literal(file.path) for file in files)}]"

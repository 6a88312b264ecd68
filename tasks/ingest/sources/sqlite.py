"""Reads tables and views of SQLite databases, GeoPackages among them. Only text and whole numbers are codes and counts."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from storage.database.connections import Connection
from storage.errors import InputError
from tasks.ingest.sources.csv_files import begin_of
from tasks.ingest.sources.files import FileTable
from tasks.ingest.tables import TableRows, identifier, registered, sha256_of_rows
from tasks.words.spelling import did_you_mean

SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db", ".gpkg")

_BATCH = 65_536  # rows
_EXACT = 2**53  # up to which a number with a fraction part holds every whole number
_DUCKDB = "It is a DuckDB file: give it a name that ends in .duckdb."
_SOURCE = "trellis_row"  # columns are named with it: SQLite takes an unknown name in double quotes for a text


@dataclass(frozen=True, slots=True)
class SqliteTable(FileTable):
    """A table or a view of an SQLite database: the one named `inner`."""

    holds_others: ClassVar[bool] = True
    _program: ClassVar[str] = "sqlite3"

    @property
    def kind(self) -> str:
        """SQLite."""
        return "an SQLite database with that table"

    def sha256(self) -> str:
        """Return the hash of the rows of the table as texts, without shapes; a binary value is its digits in hex."""
        with self._opened() as base:
            names = self._names(base)
            rows = base.execute(f"SELECT {', '.join(map(_column, names))} FROM {self._from()}")
            texts = (
                [value.hex() if isinstance(value, bytes) else None if value is None else str(value) for value in row]
                for row in rows
            )
            return sha256_of_rows(names, texts)

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open the database, which nothing writes to, and read it a batch of rows at a time."""
        with self._opened() as base, registered(con) as register:
            names = self._names(base)
            yield TableRows(names, lambda columns: register(self._read(base, list(dict.fromkeys(columns)))))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self._check_closed("-wal", "-journal")
        address = f"{self.path.absolute().as_uri()}?immutable=1"  # no lock and no files beside it
        failure: InputError | None = None
        try:
            # DuckDB reads batches in threads of its own, one after the other
            with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as base:
                # a view may sort records, which SQLite would write where nobody deletes them
                base.execute("PRAGMA temp_store = MEMORY")
                yield base
        except (sqlite3.Error, UnicodeDecodeError):  # their texts may quote a value
            failure = self.unreadable(_DUCKDB if begin_of(self.path)[8:12] == b"DUCK" else "")
        if failure:
            raise failure

    def _names(self, base: sqlite3.Connection) -> list[str]:
        kept = (
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        tables = [name for (name,) in base.execute(kept)]
        if (self.inner or "").casefold() not in (name.casefold() for name in tables):
            raise self.fault(f"{self.name} has no table {self.inner}.", did_you_mean(self.inner or "", tables))
        names = [column[0] for column in base.execute(f"SELECT * FROM {self._from()} LIMIT 0").description]
        shapes = set[str]()
        if "gpkg_geometry_columns" in tables:  # of a GeoPackage: they hold shapes, and no codes
            listed = "SELECT column_name FROM gpkg_geometry_columns WHERE lower(table_name) = lower(?)"
            shapes = {name.casefold() for (name,) in base.execute(listed, [self.inner])}
        return [name for name in names if name.casefold() not in shapes]

    def _read(self, base: sqlite3.Connection, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Return columns as text, as a reader that holds one batch at a time."""
        for name in columns:
            self._check_kept(base, name)
        schema = pa.schema([(name, pa.string()) for name in columns])
        rows = base.execute(f"SELECT {', '.join(map(_text, columns))} FROM {self._from()}")

        def batches() -> Iterator[pa.RecordBatch]:
            while part := rows.fetchmany(_BATCH):
                columns = zip(*part, strict=True)
                yield pa.record_batch([pa.array(values, pa.string()) for values in columns], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _check_kept(self, base: sqlite3.Connection, name: str) -> None:
        """Refuse a column with a value that is no code and no count."""
        value = _column(name)
        is_whole = f"abs({value}) < {_EXACT} AND {value} = CAST({value} AS INTEGER)"
        refused = f"typeof({value}) = 'blob' OR typeof({value}) = 'real' AND NOT ({is_whole})"
        if base.execute(f"SELECT 1 FROM {self._from()} WHERE {refused} LIMIT 1").fetchone():
            raise self.fault(
                f"column {name} of {self.name} must hold text or whole numbers, not fractions or binary values."
            )

    def _from(self) -> str:
        return f"{identifier(self.inner or '')} AS {_SOURCE}"


def _column(name: str) -> str:
    return f"{_SOURCE}.{identifier(name)}"


def _text(name: str) -> str:
    """Return the SQL of a column as text; 12.0 is 12."""
    value = _column(name)
    return f"CAST(CASE typeof({value}) WHEN 'real' THEN CAST({value} AS INTEGER) ELSE {value} END AS TEXT)"

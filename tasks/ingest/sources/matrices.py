"""Reads matrices of zones by zones, from OMX files and from CSV, as rows of origin, destination and count. Zeros are left out."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from storage.database.connections import Connection
from storage.errors import InputError
from tasks.ingest.sources.csv_files import header_of, opened_text
from tasks.ingest.sources.files import FileTable
from tasks.ingest.tables import TableRows, registered
from tasks.words.spelling import did_you_mean

ORIGIN, DESTINATION, COUNT = COLUMNS = ("origin", "destination", "count")

_SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
_CELLS = 2**21  # that are looked at at once
_RAGGED = "a row of the matrix is longer or shorter than its first line"
_TWICE = "a row of the matrix is of an origin that has one"
_INSTALL = "Install Trellis with its extra for matrices: pip install 'trellis[matrices]'."
_ZERO = {"0", "0.0"}


@dataclass(frozen=True, slots=True)
class Matrix(FileTable):
    """A matrix of counts: its rows are origins, its columns are destinations.

    Attributes:
        zones: the lookup of an OMX file that names the zones; None for the only one, or the numbers from 1 on.
    """

    zones: str | None = None

    @property
    def kind(self) -> str:
        """OMX or CSV."""
        return "an OMX matrix" if self.inner else "a CSV matrix"

    def cause(self, message: str) -> str:
        """Return the cause of a fault while cells are read."""
        if _RAGGED in message:
            return "Every line must have a code and as many cells as the first line has destinations."
        return FileTable.cause(self, message)

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open it; its cells pass by a block of rows at a time."""
        if self.inner is None:
            with self._rows_of_csv(con) as rows:
                yield rows
            return
        with self._omx() as file, registered(con) as register:
            cells, zones = self._cells(file), self._zones(file)
            if cells.shape != (len(zones), len(zones)):
                raise self.fault(
                    f"{self.inner} must be a matrix of {len(zones):,} by {len(zones):,} zones, as its lookup says."
                )
            yield TableRows(COLUMNS, lambda columns: register(_reader(_of_blocks(cells, zones), columns)))

    @contextmanager
    def _rows_of_csv(self, con: Connection) -> Iterator[TableRows]:
        _, *destinations = header_of(self, self.path, self.csv) or [""]
        if not destinations:
            raise self.fault(
                f"{self.name} has no line of destinations.",
                "The first line must hold the codes of the destinations, behind one cell that is not read.",
            )
        if _repeated(destinations):
            raise self._zone_twice("line")
        is_repeated = False
        try:
            with registered(con) as register:

                def scan(columns: Sequence[str]) -> str:
                    wanted = list(dict.fromkeys(columns))
                    return self.csv.texts(wanted, register(_reader(self._of_csv(destinations), wanted)))

                yield TableRows(COLUMNS, scan, decimal=self.csv.decimal)
        except duckdb.Error as fault:
            if _TWICE not in str(fault):
                raise
            is_repeated = True
        if is_repeated:
            raise self._zone_twice("column")

    def _zone_twice(self, first: str) -> InputError:
        return self.fault(f"the first {first} of {self.name} must list each zone once.")

    def _of_csv(self, destinations: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with opened_text(self.path, self.csv) as lines:
            rows = csv.reader(lines, delimiter=self.csv.separator)
            next(rows, [])
            seen = set[str]()
            origins, ends, counts = list[str](), list[str](), list[str]()
            for origin, *cells in filter(None, rows):
                if len(cells) != len(destinations):
                    raise ValueError(_RAGGED)
                if origin.strip() and origin in seen:
                    raise ValueError(_TWICE)
                seen.add(origin)
                ends_with = zip(destinations, cells, strict=True)  # a separator at the end of each line begins no cell
                positive = [(end, cell) for end, cell in ends_with if cell not in _ZERO and (end or cell)]
                origins += [origin] * len(positive)
                ends += [end for end, _ in positive]
                counts += [cell for _, cell in positive]
                if len(counts) > _CELLS:
                    yield pa.record_batch([origins, ends, counts], schema=_SCHEMA)
                    origins, ends, counts = [], [], []
            yield pa.record_batch([origins, ends, counts], schema=_SCHEMA)

    @contextmanager
    def _omx(self) -> Iterator[Any]:
        try:
            import openmatrix  # it is not installed with every Trellis
        except ImportError:
            raise self.fault("to read OMX, Trellis needs openmatrix.", _INSTALL) from None
        file = None
        with suppress(Exception):  # HDF5's traces are of no use to a reader
            file = openmatrix.open_file(str(self.path), "r")
        if file is None:
            raise self.unreadable()
        try:
            yield file
        finally:
            file.close()

    def _cells(self, file: Any) -> Any:
        if self.inner not in file.list_matrices():
            raise self.fault(
                f"{self.name} has no matrix {self.inner}.", did_you_mean(self.inner or "", file.list_matrices())
            )
        return file[self.inner]

    def _zones(self, file: Any) -> pa.Array:
        """Return the codes of the zones, in the order of the matrix."""
        lookups = list(file.list_mappings())
        if self.zones is None and not lookups:
            return pa.array([str(number) for number in range(1, self._cells(file).shape[0] + 1)])
        if self.zones is None and len(lookups) > 1:
            raise InputError(
                f"input.zones must be given: {self.name} has the lookups {', '.join(lookups)}.", field="input.zones"
            )
        name = self.zones or lookups[0]
        if name not in lookups:
            raise InputError(
                f"input.zones: {self.name} has no lookup {name}.", field="input.zones", hint=did_you_mean(name, lookups)
            )
        codes = [_code(entry) for entry in file.map_entries(name)]
        if len(set(codes)) < len(codes):
            raise InputError(f"input.zones: the lookup {name} must list each zone once.", field="input.zones")
        return pa.array(codes, pa.string())


def _repeated(zones: Sequence[str]) -> bool:
    """Return whether a zone stands there twice; blank ones are refused where they have trips."""
    given = [zone for zone in zones if zone.strip()]
    return len(set(given)) < len(given)


def _code(entry: Any) -> str:
    """Return an entry of a lookup as text."""
    if isinstance(entry, bytes):
        return entry.decode("utf-8", errors="replace").strip()
    return str(int(entry)) if isinstance(entry, np.floating) and entry.is_integer() else str(entry)


def _reader(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatchReader:
    wanted = list(dict.fromkeys(columns))
    schema = pa.schema([_SCHEMA.field(name) for name in wanted])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(wanted) for batch in batches))


def _of_blocks(cells: Any, zones: pa.Array) -> Iterator[pa.RecordBatch]:
    """Yield the cells of a matrix that are not 0; what is no whole number stays as it is, for the rules of counts to refuse."""
    at_once = max(_CELLS // max(len(zones), 1), 1)
    for first in range(0, len(zones), at_once):
        block = np.asarray(cells[first : first + at_once, :])
        origin, destination = np.nonzero(block)
        values = block[origin, destination]
        is_whole = values.dtype.kind != "f" or np.all((values == np.floor(values)) & (np.abs(values) < 2.0**53))
        counts = values.astype(np.int64) if is_whole else values
        texts = pa.array(counts).cast(pa.string())
        yield pa.record_batch(
            [zones.take(pa.array(origin + first)), zones.take(pa.array(destination)), texts], schema=_SCHEMA
        )

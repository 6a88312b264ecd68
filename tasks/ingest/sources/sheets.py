"""Reads sheets of Excel workbooks (.xlsx). Only text and whole numbers are codes and counts."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from storage.database.connections import Connection
from tasks.ingest.sources.files import FileTable
from tasks.ingest.tables import TableRows, registered, sha256_of_rows
from tasks.words.spelling import did_you_mean

_MOST_BYTES = 2**30  # of a workbook once it is unpacked
_LONGEST = 10**15  # a spreadsheet keeps 15 digits of a number
_ZEROS = "A spreadsheet drops the leading zeros of codes. Format the column as text and enter its codes again, or give a CSV file."


@dataclass(frozen=True, slots=True)
class Sheet(FileTable):
    """A sheet of a workbook: the one named `inner`, or the first."""

    holds_others: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """A workbook."""
        return "an .xlsx workbook"

    def sha256(self) -> str:
        """Return the hash of the rows of the sheet that have a value, as texts."""
        with self._workbook() as workbook:
            sheet = self._sheet(workbook)
            names = self._names(sheet)
            rows = sheet.iter_rows(min_row=2, max_col=len(names), values_only=True)
            texts = [
                [None if value is None else str(value) for value in row]
                for row in rows
                if any(value is not None for value in row)
            ]
        return sha256_of_rows(names, texts)

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open the workbook. Its texts stay in memory while it is open, and its rows pass one by one."""
        with self._workbook() as workbook, registered(con) as register:
            sheet = self._sheet(workbook)
            names = self._names(sheet)
            named = [name for name in names if name]
            yield TableRows(named, lambda columns: register(self._read(sheet, names, columns)), header=names)

    @contextmanager
    def _workbook(self) -> Iterator[Any]:
        from openpyxl import load_workbook  # takes a while, and few tables are workbooks

        workbook, hint = None, ""
        try:
            with zipfile.ZipFile(self.path) as packed:
                size = sum(part.file_size for part in packed.infolist())
            if size <= _MOST_BYTES:
                workbook = load_workbook(self.path, read_only=True, data_only=True, keep_links=False)
            else:
                hint = f"Unpacked, a workbook may have at most {_MOST_BYTES:,} bytes. Save the sheet as CSV."
        except Exception:  # noqa: BLE001 (the library raises whatever its parsers do; their texts may quote cells)
            hint = "Save it as .xlsx, without a password."
        if workbook is None or not workbook.worksheets:
            raise self.unreadable(hint)
        try:
            yield workbook
        finally:
            workbook.close()

    def _sheet(self, workbook: Any) -> Any:
        titles = {sheet.title.casefold(): sheet for sheet in workbook.worksheets}
        sheet = titles.get(self.inner.casefold()) if self.inner else workbook.worksheets[0]
        if sheet is None:
            raise self.fault(
                f"{self.name} has no sheet {self.inner}.",
                did_you_mean(self.inner or "", [sheet.title for sheet in workbook.worksheets]),
            )
        sheet.reset_dimensions()  # some programs state them wrongly
        return sheet

    def _names(self, sheet: Any) -> list[str]:
        """Return the names in the first row; empty for columns without one."""
        first = next(sheet.iter_rows(max_row=1, values_only=True), ())
        if not any(isinstance(name, str) and name.strip() for name in first):
            raise self.fault(f"{self.name} must hold the column names in its first row.")
        return [name if isinstance(name, str) else "" for name in first]

    def _read(self, sheet: Any, names: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """Return columns as text, down to the last row with a value in one of them."""
        wanted = list(dict.fromkeys(columns))
        for name in wanted:
            if names.count(name) > 1:
                raise self.fault(f"{self.name} has two columns {name}.")
        places = [names.index(name) for name in wanted]
        texts: list[list[str | None]] = [[] for _ in wanted]
        last = 0
        for row, cells in enumerate(sheet.iter_rows(min_row=2), 1):
            for name, place, column in zip(wanted, places, texts, strict=True):
                column.append(self._text(name, cells[place]) if place < len(cells) else None)
                last = row if column[-1] is not None else last
        schema = pa.schema([(name, pa.string()) for name in wanted])
        return pa.table([pa.array(column[:last], pa.string()) for column in texts], schema=schema)

    def _text(self, name: str, cell: Any) -> str | None:
        """Return what a cell holds as text; refuse what no code or count is, naming the column alone."""
        value = cell.value
        if value is None or (isinstance(value, str) and cell.data_type != "e"):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < _LONGEST or value != int(value):
            raise self.fault(
                f"column {name} of {self.name} must hold text or whole numbers, not dates, fractions, true or"
                " false, errors, or numbers of more than 15 digits.",
                _ZEROS,
            )
        if cell.number_format.startswith("00"):
            raise self.fault(
                f"column {name} of {self.name} must hold text: its numbers are shown with leading zeros, which"
                " they do not have.",
                _ZEROS,
            )
        return str(int(value))

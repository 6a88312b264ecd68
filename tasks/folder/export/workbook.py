"""A workbook for spreadsheets: a first sheet in words, and a sheet for each table of counts.

Codes and names are text cells: a spreadsheet keeps their leading zeros and computes none of them, whatever they begin with.
"""

import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import polars as pl
import pyarrow as pa

from tasks.folder.export.tables import PublishedTable, PublishedTables, day_of
from tasks.format.csv import of_rows
from tasks.format.stated import levels_stated
from tasks.words.levels import title_of

WORKBOOK = "counts.xlsx"
README_SHEET = "Read me"
MOST_ROWS = 1_048_575  # of a sheet, below its header

Words = Sequence[tuple[str, Sequence[str]]]  # headings, each with its paragraphs

_NAME_LENGTH = 31  # of a sheet, at most
_NOT_IN_NAMES = re.compile(r"[\[\]:*?/\\']")
_WIDTHS = (8, 48)  # of columns, at least and at most
_WORDS_WIDTH = 110
_SAMPLE = 1_000  # rows after which a column gets its width
_TEXT = {pa.string(), pa.large_string(), pa.string_view()}


def sheets_of(included: Sequence[PublishedTable]) -> dict[str, PublishedTable]:
    """Return the sheets of a workbook that has some tables, in their order: the name of each, and its table.

    Names are short, without the characters that none may have, and unlike one another.
    """
    sheets, taken = dict[str, PublishedTable](), {README_SHEET.casefold()}
    for table in included:
        title = _NOT_IN_NAMES.sub("_", table.title)
        ends = ("", *(f" ({number})" for number in range(2, len(taken) + 2)))
        names = (title[: _NAME_LENGTH - len(end)] + end for end in ends)
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        sheets[name] = table
    return sheets


def write_workbook(tables: PublishedTables, included: Sequence[PublishedTable], words: Words) -> None:
    """Write the workbook of a folder.

    Args:
        included: those that get a sheet; the first sheet names the tables that get none.
        words: what to say of the release on the first sheet, at least one heading with a paragraph.
    """
    import xlsxwriter

    options = {
        "constant_memory": True,
        "tmpdir": str(tables.folder),
        "strings_to_formulas": False,
        "strings_to_numbers": False,
        "strings_to_urls": False,
    }
    sheets = sheets_of(included)
    with xlsxwriter.Workbook(tables.folder / WORKBOOK, options) as book:
        created = day_of(tables.manifest).replace(tzinfo=None)
        book.set_properties(
            {
                "title": title_of(tables.manifest.spec, tables.manifest.id),
                "comments": words[0][1][0],
                "created": created,
            }
        )
        _write_words(book, tables, sheets, words)
        for name, table in sheets.items():
            _write_sheet(book, name, tables, table)


def _write_words(book: Any, tables: PublishedTables, sheets: dict[str, PublishedTable], words: Words) -> None:
    """Write the first sheet: what the release protects, how to read its counts, and what each sheet holds."""
    sheet = book.add_worksheet(README_SHEET)
    title = book.add_format({"bold": True, "font_size": 14})
    head, text = book.add_format({"bold": True}), book.add_format({"text_wrap": True, "valign": "top"})
    sheet.set_column(0, 0, _WORDS_WIDTH, text)
    sheet.set_column(1, 9, 24)
    sheet.hide_gridlines(2)
    rows = count()
    sheet.write_string(next(rows), 0, tables.manifest.id)
    sheet.write_string(next(rows), 0, title_of(tables.manifest.spec, tables.manifest.id), title)
    for heading, paragraphs in [*words, ("The sheets", _about_sheets(tables, list(sheets.values())))]:
        next(rows)
        sheet.write_string(next(rows), 0, heading, head)
        for paragraph in paragraphs:
            row = next(rows)
            sheet.set_row(row, 15 * (1 + len(paragraph) // _WORDS_WIDTH))
            sheet.write_string(row, 0, paragraph, text)
    next(rows)
    row = next(rows)
    of_levels = [
        {head: cell for head, cell in level.items() if head != "rows"} for level in levels_stated(tables.manifest)
    ]
    for column, heading in enumerate(["counts by", "sheet", "rows", *of_levels[0]]):
        sheet.write_string(row, column, heading, head)
    for name, table in sheets.items():
        row = next(rows)
        sheet.write_string(row, 0, table.counts_by, text)
        sheet.write_string(row, 1, name)
        sheet.write_number(row, 2, tables.rows(table))
        if table.level is not None:
            for column, cell in enumerate(of_levels[table.level].values(), 3):
                sheet.write_string(row, column, cell)


def _about_sheets(tables: PublishedTables, included: Sequence[PublishedTable]) -> list[str]:
    """Return what to know of the sheets that follow."""
    also = ["Codes are text: their leading zeros matter. report.html and README.md, beside this file, have more."]
    if left_out := [table.path for table in tables.every if table not in included]:
        also.append(
            f"Left out, because a sheet holds at most {MOST_ROWS:,} rows: {', '.join(left_out)}. Read these files instead."
        )
    return also


def _write_sheet(book: Any, name: str, tables: PublishedTables, table: PublishedTable) -> None:
    from xlsxwriter.utility import xl_range

    sheet, schema, parts = book.add_worksheet(name), tables.schema(table), tables.parts(table)
    head = book.add_format({"bold": True, "bottom": 1})
    text, number = book.add_format({"num_format": "@"}), book.add_format({"num_format": "#,##0"})
    first, writers, texts = next(parts, schema.empty_table()), [], []
    for column, field in enumerate(schema):
        writers.append(sheet.write_boolean if pa.types.is_boolean(field.type) else sheet.write_number)
        if field.type in _TEXT:
            writers[-1] = sheet.write_string
            texts.append(column)
        width = _width(field.name, first.column(column)[:_SAMPLE].to_pylist())
        sheet.set_column(column, column, width, text if column in texts else number)
        sheet.write_string(0, column, field.name, head)
    row = 0
    for part in chain([first], parts):
        for values in zip(*(column.to_pylist() for column in part.columns), strict=True):
            row += 1
            for column, (write, value) in enumerate(zip(writers, values, strict=True)):
                if value is not None:
                    write(row, column, value)
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, row, len(schema) - 1)
    if texts:
        sheet.ignore_errors({"number_stored_as_text": xl_range(1, texts[0], max(row, 1), texts[-1])})


def _width(title: str, values: Sequence[Any]) -> int:
    """Return the width of a column, characters: for its title with the button of the filter, and for some of its values."""
    texts = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    least, most = _WIDTHS
    return max(least, min(most, 2 + max([len(title) + 2, *map(len, texts)])))


def workbook_failures(tables: PublishedTables, included: Sequence[PublishedTable]) -> list[str]:
    """Return where the workbook of a folder differs from its tables, one sentence per sheet."""
    import fastexcel

    path = tables.folder / WORKBOOK
    try:
        if _has_formulas(path):
            return [f"{WORKBOOK} has a cell that is a formula."]
        book = fastexcel.read_excel(path)
        sheets = sheets_of(included)
        if book.sheet_names != [README_SHEET, *sheets]:
            return [f"{WORKBOOK} does not have the sheets of this release."]
        words = book.load_sheet(0, header_row=None, dtypes="string").to_polars()
        if not words.height or words.item(0, 0) != tables.manifest.id:
            return [f"{WORKBOOK}: the first sheet is that of another release."]
        return [
            f"{WORKBOOK}: the sheet {name} differs from {table.path}."
            for name, table in sheets.items()
            if not _is_same(book, name, tables, table)
        ]
    except (fastexcel.FastExcelError, BadZipFile, OSError):
        return [f"{WORKBOOK} is missing or is not a workbook."]


def _has_formulas(path: Path) -> bool:
    """Return whether any sheet has a formula, which would show a number that is not in the file."""
    with ZipFile(path) as parts:
        for name in parts.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                with parts.open(name) as part:
                    before = b""
                    while block := part.read(2**20):
                        if b"<f>" in (seen := before + block) or b"<f " in seen:
                            return True
                        before = block[-2:]
    return False


def _is_same(book: Any, name: str, tables: PublishedTables, table: PublishedTable) -> bool:
    import fastexcel

    schema = tables.schema(table)
    kinds = {
        place: "string" if field.type in _TEXT else "boolean" if pa.types.is_boolean(field.type) else "float"
        for place, field in enumerate(schema)
    }
    try:
        sheet: pl.DataFrame = book.load_sheet(name, header_row=None, skip_rows=1, dtypes=kinds).to_polars()
        heads = book.load_sheet(name, header_row=None, n_rows=1, dtypes="string").to_polars()
    except fastexcel.FastExcelError:
        return False
    if sheet.width != len(schema) or list(heads.row(0)) != schema.names or sheet.height != tables.rows(table):
        return False
    sheet.columns = schema.names
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    place = 0
    for part in of_rows(tables.parts(table)):
        expected = pl.DataFrame(part).with_columns(pl.col(numbers).cast(pl.Float64))
        if not sheet[place : place + len(part)].equals(expected):
            return False
        place += len(part)
    return place == sheet.height

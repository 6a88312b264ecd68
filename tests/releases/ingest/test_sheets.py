"""Sheets of workbooks: what a spreadsheet keeps is read, and what it has lost is refused."""

import zipfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from openpyxl import Workbook

from flows.api import release
from flows.spec.starter import starter
from storage.errors import InputError, UsageError
from storage.ledger.recognition import Columns
from tasks.ingest.contents import same_content
from tasks.ingest.sources.locations import table_at
from tasks.ingest.tables import opened, same_table
from tests.support.tables import codes_in, records, spec_over

Rows = Sequence[Sequence[Any]]

AREAS = [("region", "area"), ("N", "01"), ("N", "02"), ("S", "03")]
TRIPS = [("home", "work", "people"), ("01", "02", 5), ("02", "03", 7.0), ("01", "02", "2")]


def write(path: Path, **sheets: Rows) -> Path:
    """Write a workbook of sheets."""
    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    book.save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a store and two workbooks, one of which has two sheets."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    write(tmp_path / "codes.xlsx", Codes=AREAS, Trips=TRIPS)
    write(tmp_path / "trips.xlsx", Trips=TRIPS)
    return tmp_path


def test_sheets_are_ingested_as_csv_is(folder: Path) -> None:
    """The first sheet is read, or the one that is named in any case; whole numbers are counts, as numbers or as text."""
    for name, rows in {"areas": AREAS, "trips": TRIPS}.items():
        (folder / f"{name}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    expected = records(spec_over(folder, "trips.csv", "areas.csv"))
    assert expected == [(0, 1, 7), (1, 2, 7)]
    write(folder / "more.xlsx", Other=[("x",)], Trips=TRIPS)
    for table, codebook in (("trips.xlsx", "codes.xlsx"), ("more.xlsx::trips", "codes.xlsx::Codes")):
        assert records(spec_over(folder, table, codebook)) == expected
    assert release(spec_over(folder, "trips.xlsx", "codes.xlsx")).folder.is_dir()


def test_numbers_are_codes_without_leading_zeros(folder: Path) -> None:
    """A whole number is its digits; empty rows at the end, columns without a name and cells beside them do no harm."""
    write(folder / "n.xlsx", A=[("area", "", "region"), (10, "x", 1.0), (9, None, 1), (None,), (None, "y", None)])
    assert codes_in("n.xlsx", folder) == [("1", "10"), ("1", "9")]
    write(folder / "gap.xlsx", A=[("area", "region"), (10, 1), (None, None), (9, 1)])
    with pytest.raises(InputError, match="column area has a blank code in 1 row: 2"):
        codes_in("gap.xlsx", folder)


@pytest.mark.parametrize(
    "cell", [1.5, date(2020, 1, 1), True, "#N/A", 10**15 + 1, float(10**16)], ids=lambda cell: str(cell)
)
def test_what_is_no_code_is_refused_by_its_column(folder: Path, cell: Any) -> None:
    """A fraction, a date, an error and a number that lost digits are refused in a column that is read, and unseen in others."""
    write(folder / "bad.xlsx", A=[("region", "area", "note"), (1, cell, 2)])
    with pytest.raises(InputError, match=r"column area of bad\.xlsx must hold text or whole numbers") as refused:
        codes_in("bad.xlsx", folder)
    assert "leading zeros" in refused.value.hint
    assert str(cell) not in str(refused.value)
    write(folder / "fine.xlsx", A=[("region", "area", "note"), (1, "a", cell)])
    assert codes_in("fine.xlsx", folder) == [("1", "a")]


def test_numbers_that_only_look_as_if_they_had_zeros_are_refused(folder: Path) -> None:
    """A cell that shows 01001 and holds 1001 is refused, since its reader means the former."""
    book = Workbook()
    book.active.append(["area"])
    book.active.append([1001])
    book.active["A2"].number_format = "00000"
    book.save(folder / "zeros.xlsx")
    with pytest.raises(InputError, match="its numbers are shown with leading zeros, which they do not have") as refused:
        codes_in("zeros.xlsx", folder, ["area"])
    assert "Format the column as text" in refused.value.hint


def no_zip(folder: Path) -> str:
    """Give a file another ending."""
    (folder / "text.xlsx").write_text("area,region\n")
    return "text.xlsx"


def no_workbook(folder: Path) -> str:
    """Pack a file that is no workbook."""
    with zipfile.ZipFile(folder / "zip.xlsx", "w") as packed:
        packed.writestr("a.txt", "SECRET")
    return "zip.xlsx"


def too_large(folder: Path) -> str:
    """Pack so many zeros that nobody would unpack them."""
    with (
        zipfile.ZipFile(folder / "large.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        packed.open("xl/sharedStrings.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(2**30 // 2**24 + 1):
            part.write(bytes(2**24))
    return "large.xlsx"


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (no_zip, "cannot be read as an .xlsx workbook"),
        (no_workbook, "cannot be read as an .xlsx workbook"),
        (too_large, "cannot be read as an .xlsx workbook"),
        (lambda _: "codes.xlsx::Code", "has no sheet Code"),
        (
            lambda folder: write(folder / "n.xlsx", A=[(1, 2), (3, 4)]).name,
            "must hold the column names in its first row",
        ),
        (lambda folder: write(folder / "e.xlsx", A=[]).name, "must hold the column names in its first row"),
        (lambda folder: write(folder / "t.xlsx", A=[("region", "area", "area"), (1, 2, 3)]).name, "two columns area"),
        (lambda folder: write(folder / "c.xlsx", A=[("regions", "area")]).name, "has no column region"),
        (lambda folder: write(folder / "r.xlsx", A=[("region", "area")]).name, "has no rows"),
    ],
)
def test_what_is_no_sheet_of_codes_is_refused(folder: Path, spoil: Callable[[Path], str], rule: str) -> None:
    """A file that is no workbook, a sheet that is not there and a sheet without names are refused by the key of the table."""
    with pytest.raises(InputError, match=rf"^hierarchy\.table: .*{rule}") as refused:
        codes_in(spoil(folder), folder)
    assert refused.value.field == "hierarchy.table"
    assert "SECRET" not in str(refused.value)
    if "no sheet" in rule:
        assert refused.value.hint == "Did you mean Codes?"


def test_sheets_of_one_workbook_are_in_one_file(folder: Path) -> None:
    """What is public may be in no workbook with the confidential table, nor in a copy: the hash of the file is published."""
    (folder / "copy.xlsx").write_bytes((folder / "codes.xlsx").read_bytes())
    codes, first, trips, copy = (
        table_at("input.table", name, folder)
        for name in ("codes.xlsx::Codes", "codes.xlsx", "codes.xlsx::Trips", "copy.xlsx::codes")
    )
    assert same_table(codes, first)
    assert same_table(codes, trips)
    assert not same_table(codes, copy)
    assert same_content(trips, copy, Columns(("home",)))


@pytest.mark.parametrize("table", ["more.xlsx::More", "copy.xlsx::Trips"])
def test_the_ledger_asks_about_any_sheet_of_a_charged_workbook(folder: Path, table: str) -> None:
    """Which sheets hold the same people it cannot know, so it asks of all of them, and of a copy."""
    write(folder / "more.xlsx", Trips=TRIPS, More=TRIPS)
    (folder / "copy.xlsx").write_bytes((folder / "more.xlsx").read_bytes())
    release(spec_over(folder, "more.xlsx::Trips", "codes.xlsx", "first"))
    with pytest.raises(UsageError, match="was used by dataset first"):
        release(spec_over(folder, table, "codes.xlsx", "second"))


def test_a_spec_is_begun_from_a_sheet(folder: Path) -> None:
    """`trellis new` reads the first row, and of a codebook every sheet that is named."""
    more = [*AREAS, ("S", "04"), ("S", "05"), ("N", "06")]
    write(folder / "more.xlsx", Other=[("x",)], Codes=more)
    begun = starter(str(folder / "trips.xlsx"), folder, str(folder / "more.xlsx::Codes"))
    keys = yaml.safe_load(begun.text)
    assert (keys["input"]["table"], keys["input"]["origin"]) == ("trips.xlsx", "home")
    assert keys["hierarchy"] == {"table": "more.xlsx::Codes", "levels": ["region", "area"]}


def test_a_workbook_stays_as_it_is_opened(folder: Path) -> None:
    """Rows can be read several times while a sheet is open."""
    with duckdb.connect() as con, opened(con, table_at("input.table", "trips.xlsx", folder)) as rows:
        assert rows.names == ["home", "work", "people"]
        for column in ("home", "people"):
            assert con.execute(f"SELECT count({column}) FROM {rows.scan([column])}").fetchall() == [(3,)]

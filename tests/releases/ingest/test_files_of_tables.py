"""Workbooks, SQLite databases, GeoPackages and DuckDB files: their tables are read as CSV is, and what is no code is refused."""

import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date
from hashlib import sha256
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
from tasks.ingest.sources.locations import sha256_at, table_at
from tasks.ingest.tables import identifier, opened, same_table, text_columns
from tests.support.tables import codes_in, records, spec_over

Rows = Sequence[Sequence[Any]]

QUOTED = "QUOTED-1234"
AREAS = [("region", "area"), ("N", "01"), ("N", "02"), ("S", "03")]
TRIPS = [("home", "work", "people"), ("01", "02", 5), ("02", "03", 7.0), ("01", "02", "2")]
GEOPACKAGE = (
    "CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT)",
    "INSERT INTO gpkg_geometry_columns VALUES ('Areas', 'geom')",
)
ENDINGS = ["sqlite", "duckdb", "xlsx"]


def write(path: Path, tables: dict[str, Rows], *more: str) -> str:
    """Write tables into one file, by its ending; run more statements, where it is a database; return its name.

    The first row of each table has the names of its columns.
    """
    if path.suffix == ".xlsx":
        book = Workbook()
        book.remove(book.active)
        for name, rows in tables.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(list(row))
        book.save(path)
        return path.name
    kind = " VARCHAR" if path.suffix == ".duckdb" else ""
    with closing(duckdb.connect(str(path)) if kind else sqlite3.connect(path)) as base:
        for name, (columns, *rows) in tables.items():
            base.execute(f'CREATE TABLE "{name}" ({", ".join(f"{column}{kind}" for column in columns)})')
            if rows:
                base.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
        for statement in more:
            base.execute(statement)
        base.commit()
    return path.name


def shapes(*areas: tuple[str, str]) -> dict[str, Rows]:
    """Return a table of areas, and of more, with their shapes."""
    return {"areas": [("region TEXT", "area TEXT", "geom BLOB"), *((*row, b"x") for row in [*AREAS[1:], *areas])]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a store, a GeoPackage, a database with a view, a workbook of two sheets, and one of one."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    write(tmp_path / "areas.gpkg", shapes(), *GEOPACKAGE)
    write(tmp_path / "city.sqlite", {"trips": TRIPS}, "CREATE VIEW ways AS SELECT home, work, people FROM trips")
    write(tmp_path / "codes.xlsx", {"Codes": AREAS, "Trips": TRIPS})
    write(tmp_path / "trips.xlsx", {"Trips": TRIPS})
    write(tmp_path / "more.xlsx", {"Other": [("x",)], "Trips": TRIPS, "More": TRIPS})
    return tmp_path


def test_tables_are_ingested_as_csv_is(folder: Path) -> None:
    """Tables, views and sheets may be named in any case; whole numbers are counts, as integers, with a fraction of 0 or as text."""
    for name, rows in {"areas": AREAS, "trips": TRIPS}.items():
        (folder / f"{name}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    for table, codebook in (
        ("trips.csv", "areas.csv"),
        ("city.sqlite::TRIPS", "areas.gpkg::areas"),
        ("city.sqlite::ways", "codes.xlsx"),  # its first sheet
        ("more.xlsx::trips", "codes.xlsx::Codes"),
    ):
        assert records(spec_over(folder, table, codebook)) == [(0, 1, 7), (1, 2, 7)]
    assert release(spec_over(folder, "city.sqlite::trips", "areas.gpkg::areas")).folder.is_dir()


def test_rows_arrive_in_batches_and_can_be_read_again(folder: Path) -> None:
    """A table of several batches is whole, in order, each time that it is read; a column is asked for once."""
    rows = [(f"{number:07}", number) for number in range(200_000)]
    write(folder / "many.db", {"many": [("code", "number"), *rows]})
    for location, wanted in (("many.db::many", rows), ("trips.xlsx", [(row[0], row[2]) for row in TRIPS[1:]])):
        with duckdb.connect() as con, opened(con, table_at("input.table", location, folder)) as found:
            code, number = found.names[0], found.names[-1]
            for _ in range(2):
                scan = found.scan([code, number, code])
                read = con.sql(f"SELECT {text_columns([code, number])} FROM {scan}").fetchall()
                assert [(of, float(count)) for of, count in read] == [(of, float(count)) for of, count in wanted]


def test_names_may_have_any_characters(folder: Path) -> None:
    """Those of files are no part of an address, and those of tables and columns are no SQL."""
    table, column = 'it\'s "a"::b', 'co"l?'
    made = f"CREATE TABLE {identifier(table)} ({identifier(column)} TEXT, area TEXT)"
    write(folder / "a b#c%3F?d.sqlite", {}, made, f"INSERT INTO {identifier(table)} VALUES ('N', '01')")
    assert codes_in(f"a b#c%3F?d.sqlite::{table}", folder, [column, "area"]) == [("N", "01")]


def test_codes_keep_what_they_are(folder: Path) -> None:
    """Texts keep their zeros, and integers are their digits; what is empty beside and below a sheet's rows does no harm."""
    write(folder / "n.db", {"n": [("area", "region"), (10, 1.0), ("007", "1"), (2**60, 1), (2.0**53 - 1, 1)]})
    assert sorted(codes_in("n.db::n", folder)) == [("1", code) for code in ("007", "10", str(2**60), str(2**53 - 1))]
    sheet = [("area", "", "region"), (10, "x", 1.0), (9, None, 1), (None,), (None, "y", None)]
    write(folder / "n.xlsx", {"A": sheet})
    assert codes_in("n.xlsx", folder) == [("1", "10"), ("1", "9")]
    for name in ("gap.db::A", "gap.xlsx"):
        write(folder / name.partition("::")[0], {"A": [("area", "region"), (10, 1), (None, None), (9, 1)]})
        with pytest.raises(InputError, match="column area has a blank code in 1 row: 2"):
            codes_in(name, folder)


@pytest.mark.parametrize(
    ("ending", "value"),
    [
        *(("db", value) for value in (1.5, float("inf"), 2.0**53, -(2.0**53), QUOTED.encode())),
        *(("xlsx", value) for value in (1.5, date(2020, 1, 1), True, "#N/A", 10**15 + 1, float(10**16))),
    ],
    ids=str,
)
def test_what_is_no_code_is_refused_by_its_column(folder: Path, ending: str, value: Any) -> None:
    """A fraction, a number that has lost digits, a date, an error and binary values are refused, unseen, where they are read."""
    write(folder / f"n.{ending}", {"n": [("region", "area", "note"), ("1", value, "1")]})
    with pytest.raises(InputError) as refused:
        codes_in(f"n.{ending}::n", folder)
    told = str(refused.value)
    assert told.startswith(f"hierarchy.table: column area of n.{ending} must hold text or whole numbers, not ")
    assert str(value) not in told
    assert ("leading zeros" in refused.value.hint) or ending == "db"
    write(folder / f"fine.{ending}", {"n": [("region", "area", "note"), ("1", "a", value)]})
    assert codes_in(f"fine.{ending}::n", folder) == [("1", "a")]


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


def no_workbook(path: Path) -> str:
    """Pack a file that is no workbook."""
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.txt", QUOTED)
    return path.name


def too_large(path: Path) -> str:
    """Pack so many zeros that nobody would unpack them."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        packed.open("xl/sharedStrings.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(2**30 // 2**24 + 1):
            part.write(bytes(2**24))
    return path.name


def of_bytes(content: bytes) -> Callable[[Path], str]:
    """Return what writes bytes."""
    return lambda path: (path.write_bytes(content), path.name)[1]


def sheet(*rows: Sequence[Any]) -> Callable[[Path], str]:
    """Return what writes a workbook of one sheet."""
    return lambda path: write(path, {"A": rows})


NO_BASE, NO_BOOK = "cannot be read as an SQLite database", "cannot be read as an .xlsx workbook"
NOT_UTF8 = f"INSERT INTO n VALUES (CAST(x'{QUOTED.encode().hex()}ff' AS TEXT), '1')"
# the file that is written first, the table, and what the error and its hint say
REFUSED: list[tuple[Callable[[Path], str] | None, str, str, str | None]] = [
    (None, "areas.gpkg::area", "areas.gpkg has no table area", "Did you mean areas?"),
    (None, "areas.gpkg", "got areas.gpkg", "Name the table inside of it: file.gpkg::table."),
    (None, "areas.gpkg::gpkg_geometry_columns", "has no column region", None),
    (of_bytes(QUOTED.encode() * 1000), "noise.db::areas", NO_BASE, ""),
    (
        lambda path: (duckdb.connect(str(path)).close(), path.name)[1],
        *("other.db::areas", "cannot be read as", "It is a DuckDB file: give it a name that ends in .duckdb."),
    ),
    (lambda path: write(path, {"n": [("area", "region")]}, NOT_UTF8), "n.db::n", f"n.db {NO_BASE}", None),
    (of_bytes(b"area,region\n"), "text.xlsx", NO_BOOK, None),
    (no_workbook, "zip.xlsx", NO_BOOK, None),
    pytest.param(too_large, "large.xlsx", NO_BOOK, None, marks=pytest.mark.thorough),
    (None, "codes.xlsx::Code", "has no sheet Code", "Did you mean Codes?"),
    (sheet((1, 2), (3, 4)), "n.xlsx", "must hold the column names in its first row", None),
    (sheet(), "e.xlsx", "must hold the column names in its first row", None),
    (sheet(("region", "area", "area"), (1, 2, 3)), "t.xlsx", "two columns area", None),
    (sheet(("regions", "area")), "c.xlsx", "has no column region", None),
    (sheet(("region", "area")), "r.xlsx", "has no rows", None),
]


@pytest.mark.parametrize(("made", "name", "rule", "hint"), REFUSED)
def test_what_is_no_table_of_codes_is_refused(
    folder: Path, made: Callable[[Path], str] | None, name: str, rule: str, hint: str | None
) -> None:
    """A file of another kind, a table that is not there and one without names are refused by their key; nothing is quoted."""
    if made:
        made(folder / name.partition("::")[0])
    with pytest.raises(InputError) as refused:
        codes_in(name, folder)
    assert refused.value.field == "hierarchy.table"
    assert rule in str(refused.value)
    assert hint is None or refused.value.hint == hint
    assert QUOTED not in str(refused.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_published_of_a_codebook_covers_no_other_table(ending: str, folder: Path) -> None:
    """Its hash is in the manifest, as the guide has it, of its rows alone, in any order: beside other tables it is the same."""
    lines = "".join(f'["{region}","{area}"]\n' for region, area in AREAS)
    wanted = sha256(lines.encode()).hexdigest()
    for number, trips in enumerate([TRIPS, TRIPS[:-1]]):
        path = folder / f"{number}.{ending}"
        write(path, {"trips": trips, "areas": [AREAS[0], *AREAS[:0:-1]]})
        table = table_at("hierarchy.table", f"{path.name}::areas", folder)
        assert table.sha256() == sha256_at(table.location) == wanted
    made = release(spec_over(folder, "city.sqlite::trips", f"{path.name}::areas"))
    assert set(made.manifest.codebooks.values()) == {wanted}
    write(folder / f"less.{ending}", {"trips": TRIPS, "areas": AREAS[:-1]})
    assert table_at("hierarchy.table", f"less.{ending}::areas", folder).sha256() != wanted


def test_a_hash_is_of_values_of_every_kind(folder: Path) -> None:
    """A column that holds no codes, such as an area in square kilometres or a picture, is in the hash and keeps nobody from reading the others."""
    rows = [("area", "size", "picture"), ("01", 2.5, b"\x01"), ("02", None, None), ("03", 0, b"")]
    write(folder / "n.db", {"n": rows})
    lines = '["area","size","picture"]\n["01","2.5","01"]\n["02",null,null]\n["03","0",""]\n'
    assert table_at("a", "n.db::n", folder).sha256() == sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize(
    ("key", "ending", "copied"),
    [
        *(("table", ending, copied) for ending in ENDINGS for copied in (False, True)),
        *(("labels", "xlsx", True), ("labels", "duckdb", False)),
    ],
)
def test_no_public_table_is_in_a_file_with_the_confidential_one(
    key: str, ending: str, copied: bool, folder: Path
) -> None:
    """A view in that file may be made of the records: nothing is planned or released."""
    whole, copy = folder / f"all.{ending}", folder / f"copy.{ending}"
    write(whole, {"trips": TRIPS, "areas": AREAS, "names": [("level", "code", "name"), ("area", "01", "One")]})
    copy.write_bytes(whole.read_bytes())
    public = copy.name if copied else whole.name
    spec = spec_over(folder, f"{whole.name}::trips", f"{public}::areas" if key == "table" else "areas.gpkg::areas")
    keys = yaml.safe_load(spec.read_text())
    if key == "labels":
        keys["hierarchy"]["labels"] = f"{public}::names"
    spec.write_text(yaml.safe_dump(keys))
    rule = r"must not be the confidential table or a view of it, nor in a file with it"
    with pytest.raises(InputError, match=rule) as refused:
        release(spec)
    assert "in a file of its own" in refused.value.hint
    assert not (folder / "out").exists() or not list((folder / "out").iterdir())


def test_a_database_that_is_open_elsewhere_is_refused(folder: Path) -> None:
    """Rows in the log of a writer are no part of the file by whose bytes the ledger knows it; once it is closed, they are."""
    path = folder / "city.sqlite"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO trips VALUES ('03', '03', 1)")
        writer.commit()
        (folder / "link").mkdir()
        (folder / "link" / "other.db").symlink_to(path)
        for table in ("city.sqlite::trips", "link/other.db::trips"):
            rule = r"must hold all its rows itself, and city\.sqlite-wal has changes to it"
            with pytest.raises(InputError, match=rule):
                records(spec_over(folder, table, "areas.gpkg::areas"))
    assert records(spec_over(folder, "city.sqlite::trips", "areas.gpkg::areas"))[-1] == (2, 2, 1)
    assert sorted(file.name for file in folder.glob("city.*")) == ["city.sqlite"]


def test_a_journal_that_is_kept_is_none_to_wait_for(folder: Path) -> None:
    """Some programs keep the second file after its changes are in the first one; one of a change that was cut off is refused."""
    path, journal = folder / "city.sqlite", folder / "city.sqlite-journal"
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("PRAGMA journal_mode = PERSIST")
        writer.execute("INSERT INTO trips VALUES ('03', '03', 1)")
    assert journal.stat().st_size
    spec = spec_over(folder, "city.sqlite::trips", "areas.gpkg::areas")
    assert records(spec)[-1] == (2, 2, 1)
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + journal.read_bytes()[8:])
    with pytest.raises(InputError, match=r"and city\.sqlite-journal has changes to it"):
        records(spec)


@pytest.mark.parametrize(
    ("file", "one", "again", "other"),
    [("city.sqlite", "::trips", "::Trips", "::ways"), ("codes.xlsx", "::Trips", "::trips", "")],
)
def test_tables_of_one_file_are_known_as_such(folder: Path, file: str, one: str, again: str, other: str) -> None:
    """What is public may be in no file with the confidential table, nor in a copy: a view may show records."""
    copy = f"copy{Path(file).suffix}"
    (folder / copy).write_bytes((folder / file).read_bytes())
    names = (file + one, file + again, file + other, copy + one)
    trips, same, beside, copied = (table_at("input.table", name, folder) for name in names)
    assert same_table(trips, same)
    assert same_table(trips, beside)
    assert not same_table(trips, copied)
    assert same_content(trips, copied, Columns(("home",)))
    assert same_content(beside, copied, Columns(("home",)))


@pytest.mark.parametrize(("file", "table", "other"), [("city.sqlite", "trips", "ways"), ("more.xlsx", "Trips", "More")])
def test_the_ledger_asks_about_any_table_of_a_charged_file(folder: Path, file: str, table: str, other: str) -> None:
    """Which tables and views show the same people it cannot know, so it asks of all of them, and of a copy."""
    copy = f"copy{Path(file).suffix}"
    (folder / copy).write_bytes((folder / file).read_bytes())
    release(spec_over(folder, f"{file}::{table}", "areas.gpkg::areas", "first"))
    for second in (f"{file}::{other}", f"{copy}::{table}"):
        with pytest.raises(UsageError, match="was used by dataset first"):
            release(spec_over(folder, second, "areas.gpkg::areas", "second"))


@pytest.mark.parametrize(
    ("table", "codebook"), [("city.sqlite::trips", "all.gpkg::areas"), ("trips.xlsx", "all.xlsx::Codes")]
)
def test_a_spec_is_begun_from_a_file_of_tables(folder: Path, table: str, codebook: str) -> None:
    """`trellis new` reads the names of the columns, and of a codebook every column but the shapes."""
    more = [("S", "04"), ("S", "05"), ("N", "06")]
    write(folder / "all.gpkg", shapes(*more), *GEOPACKAGE)
    write(folder / "all.xlsx", {"Other": [("x",)], "Codes": [*AREAS, *more]})
    keys = yaml.safe_load(starter(str(folder / table), folder, str(folder / codebook)).text)
    assert (keys["input"]["table"], keys["input"]["origin"]) == (table, "home")
    assert keys["hierarchy"] == {"table": codebook, "levels": ["region", "area"]}

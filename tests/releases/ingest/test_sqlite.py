"""SQLite databases and GeoPackages: their tables and views are read as CSV is, and what is no code is refused."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
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

QUOTED = "QUOTED-1234"


def write(path: Path, tables: dict[str, Sequence[Sequence[Any]]], *more: str) -> Path:
    """Write a database: of each table the names of the columns, and its rows; then run more statements."""
    with closing(sqlite3.connect(path)) as base, base:
        for name, (columns, *rows) in tables.items():
            base.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
            base.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
        for statement in more:
            base.execute(statement)
    return path


AREAS = [("region TEXT", "area TEXT", "geom BLOB"), ("N", "01", b"x"), ("N", "02", b"y"), ("S", "03", b"z")]
TRIPS = [("home", "work", "people"), ("01", "02", 5), ("02", "03", 7.0), ("01", "02", "2")]
GEOPACKAGE = (
    "CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT)",
    "INSERT INTO gpkg_geometry_columns VALUES ('Areas', 'geom')",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a store, a GeoPackage and a database, which has a view of its table."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    write(tmp_path / "areas.gpkg", {"areas": AREAS}, *GEOPACKAGE)
    write(tmp_path / "city.sqlite", {"trips": TRIPS}, "CREATE VIEW ways AS SELECT home, work, people FROM trips")
    return tmp_path


def test_tables_and_views_are_ingested_as_csv_is(folder: Path) -> None:
    """Names of tables may be in any case; whole numbers are counts, as integers, with a fraction of 0 or as text."""
    for name, rows in {"areas": [("region", "area"), *(row[:2] for row in AREAS[1:])], "trips": TRIPS}.items():
        (folder / f"{name}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    expected = records(spec_over(folder, "trips.csv", "areas.csv"))
    assert expected == [(0, 1, 7), (1, 2, 7)]
    for table in ("city.sqlite::trips", "city.sqlite::TRIPS", "city.sqlite::ways"):
        assert records(spec_over(folder, table, "areas.gpkg::areas")) == expected
    assert release(spec_over(folder, "city.sqlite::trips", "areas.gpkg::areas")).folder.is_dir()


def test_rows_arrive_in_batches_and_can_be_read_again(folder: Path) -> None:
    """A table of several batches is whole, in order, each time that it is read; a column is asked for once."""
    rows = [(f"{number:07}", number) for number in range(200_000)]
    write(folder / "many.db", {"many": [("code", "number"), *rows]})
    with duckdb.connect() as con, opened(con, table_at("input.table", "many.db::many", folder)) as found:
        for _ in range(2):
            read = con.sql(
                f"SELECT {text_columns(found.names)} FROM {found.scan(['code', 'number', 'code'])}"
            ).fetchall()
            assert read == [(code, str(number)) for code, number in rows]


def test_names_may_have_any_characters(folder: Path) -> None:
    """Those of files are no part of an address, and those of tables and columns are no SQL."""
    table, column = 'it\'s "a"::b', 'co"l?'
    made = f"CREATE TABLE {identifier(table)} ({identifier(column)} TEXT, area TEXT)"
    write(folder / "a b#c%3F?d.sqlite", {}, made, f"INSERT INTO {identifier(table)} VALUES ('N', '01')")
    assert codes_in(f"a b#c%3F?d.sqlite::{table}", folder, [column, "area"]) == [("N", "01")]


def test_codes_keep_what_they_are(folder: Path) -> None:
    """Texts keep their zeros, integers are their digits, and a blank code is refused, as in other tables."""
    write(folder / "n.db", {"n": [("area", "region"), (10, 1.0), ("007", "1"), (2**60, 1), (2.0**53 - 1, 1)]})
    assert sorted(codes_in("n.db::n", folder)) == [("1", code) for code in ("007", "10", str(2**60), str(2**53 - 1))]
    write(folder / "gap.db", {"gap": [("area", "region"), (10, 1), (None, 1)]})
    with pytest.raises(InputError, match="column area has a blank code in 1 row: 2"):
        codes_in("gap.db::gap", folder)


@pytest.mark.parametrize("value", [1.5, float("inf"), 2.0**53, -(2.0**53), QUOTED.encode()], ids=str)
def test_what_is_no_code_is_refused_by_its_column(folder: Path, value: object) -> None:
    """A fraction, a number that has lost digits and binary values are refused, without the value."""
    write(folder / "n.db", {"n": [("area", "region"), ("1", "1"), (value, "1")]})
    with pytest.raises(InputError) as refused:
        codes_in("n.db::n", folder)
    assert str(refused.value) == (
        "hierarchy.table: column area of n.db must hold text or whole numbers, not fractions or binary values."
    )


def test_text_in_another_encoding_is_refused(folder: Path) -> None:
    """The driver's error quotes the text, which is left out."""
    spoilt = f"INSERT INTO n VALUES (CAST(x'{QUOTED.encode().hex()}ff' AS TEXT), '1')"
    write(folder / "n.db", {"n": [("area", "region")]}, spoilt)
    with pytest.raises(InputError, match=r"^hierarchy\.table: n\.db cannot be read as an SQLite database") as refused:
        codes_in("n.db::n", folder)
    assert QUOTED not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "rule", "hint"),
    [
        ("areas.gpkg::area", "areas.gpkg has no table area", "Did you mean areas?"),
        ("areas.gpkg", "got areas.gpkg", "Name the table inside of it: file.gpkg::table."),
        ("noise.db::areas", "noise.db cannot be read as an SQLite database with that table", ""),
        ("other.db::areas", "cannot be read as", "It is a DuckDB file: give it a name that ends in .duckdb."),
        ("areas.gpkg::gpkg_geometry_columns", "has no column region", None),
    ],
)
def test_what_is_no_table_is_refused(folder: Path, name: str, rule: str, hint: str | None) -> None:
    """A table that is not there, a database without the name of one, and a file that is no database are refused."""
    (folder / "noise.db").write_bytes(QUOTED.encode() * 1000)
    duckdb.connect(str(folder / "other.db")).close()
    with pytest.raises(InputError, match=rule) as refused:
        codes_in(name, folder)
    assert hint is None or refused.value.hint == hint
    assert QUOTED not in str(refused.value)


CODES = [("region", "area"), ("N", "01"), ("N", "02"), ("S", "03")]
SEVERAL = ["sqlite", "duckdb", "xlsx"]  # endings of files that hold several tables


def write_several(path: Path, tables: dict[str, Sequence[Sequence[Any]]]) -> None:
    """Write tables into one file, by its ending; the first row of each has the names of its columns."""
    if path.suffix == ".sqlite":
        write(path, tables)
    elif path.suffix == ".xlsx":
        book = Workbook()
        for name, rows in tables.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(list(row))
        book.save(path)
    else:
        with duckdb.connect(str(path)) as con:
            for name, (columns, *rows) in tables.items():
                con.execute(f"CREATE TABLE {name} ({', '.join(f'{column} VARCHAR' for column in columns)})")
                con.executemany(
                    f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", [list(row) for row in rows]
                )


@pytest.mark.parametrize("ending", SEVERAL)
def test_what_is_published_of_a_codebook_covers_no_other_table(ending: str, folder: Path) -> None:
    """Its hash is in the manifest. It is that of its rows alone: beside any other table, which may be a copy of the records, it is the same.

    It is the one that the guide tells readers to compute, whatever the order of the rows.
    """
    lines = "".join(f'["{region}","{area}"]\n' for region, area in [CODES[0], *sorted(CODES[1:])])
    wanted = sha256(lines.encode()).hexdigest()
    for number, trips in enumerate([TRIPS, TRIPS[:-1]]):
        path = folder / f"{number}.{ending}"
        write_several(path, {"trips": trips, "areas": [CODES[0], *CODES[:0:-1]]})
        table = table_at("hierarchy.table", f"{path.name}::areas", folder)
        assert table.sha256() == sha256_at(table.location) == wanted
        spec = spec_over(folder, "city.sqlite::trips", f"{path.name}::areas", f"trips-{number}")
        made = release(spec, different_people=True)
        assert set(made.manifest.codebooks.values()) == {wanted}
    write_several(folder / f"less.{ending}", {"trips": TRIPS, "areas": CODES[:-1]})
    assert table_at("hierarchy.table", f"less.{ending}::areas", folder).sha256() != wanted


def test_a_hash_is_of_values_of_every_kind(folder: Path) -> None:
    """A column that holds no codes, such as an area in square kilometres or a picture, is in the hash and keeps nobody from reading the others."""
    rows = [("area", "size", "picture"), ("01", 2.5, b"\x01"), ("02", None, None), ("03", 0, b"")]
    write(folder / "n.db", {"n": rows})
    lines = '["area","size","picture"]\n["01","2.5","01"]\n["02",null,null]\n["03","0",""]\n'
    assert table_at("a", "n.db::n", folder).sha256() == sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize("key", ["table", "labels"])
@pytest.mark.parametrize("ending", SEVERAL)
@pytest.mark.parametrize("copied", [False, True])
def test_no_public_table_is_in_a_file_with_the_confidential_one(
    key: str, ending: str, copied: bool, folder: Path
) -> None:
    """A view in that file may be made of the records: nothing is planned or released."""
    whole, copy = folder / f"all.{ending}", folder / f"copy.{ending}"
    names = [("level", "code", "name"), ("area", "01", "One")]
    write_several(whole, {"trips": TRIPS, "areas": CODES, "names": names})
    copy.write_bytes(whole.read_bytes())
    public = copy.name if copied else whole.name
    spec = spec_over(folder, f"{whole.name}::trips", f"{public}::areas" if key == "table" else "areas.gpkg::areas")
    keys = yaml.safe_load(spec.read_text())
    if key == "labels":
        keys["hierarchy"]["labels"] = f"{public}::names"
    spec.write_text(yaml.safe_dump(keys))
    with pytest.raises(
        InputError, match=r"must not be the confidential table or a view of it, nor in a file with it"
    ) as refused:
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
            with pytest.raises(
                InputError, match=r"must hold all its rows itself, and city\.sqlite-wal has changes to it"
            ):
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


def test_tables_of_one_database_are_in_one_file(folder: Path) -> None:
    """What is public may be in no file with the confidential table: the hash of the file is published, and a view may show records."""
    (folder / "copy.db").write_bytes((folder / "city.sqlite").read_bytes())
    trips, again, ways, copy = (
        table_at("input.table", name, folder)
        for name in ("city.sqlite::trips", "city.sqlite::Trips", "city.sqlite::ways", "copy.db::trips")
    )
    assert same_table(trips, again)
    assert same_table(trips, ways)
    assert not same_table(trips, copy)
    assert same_content(trips, copy, Columns(("home",)))
    assert same_content(ways, copy, Columns(("home",)))


@pytest.mark.parametrize("table", ["city.sqlite::ways", "copy.db::trips"])
def test_the_ledger_asks_about_any_table_of_a_charged_database(folder: Path, table: str) -> None:
    """A view may show the people of another table, so it asks of all of them, and of a copy."""
    (folder / "copy.db").write_bytes((folder / "city.sqlite").read_bytes())
    release(spec_over(folder, "city.sqlite::trips", "areas.gpkg::areas", "first"))
    with pytest.raises(UsageError, match="was used by dataset first"):
        release(spec_over(folder, table, "areas.gpkg::areas", "second"))


def test_a_spec_is_begun_from_a_database(folder: Path) -> None:
    """`trellis new` reads the names of the columns, and of a codebook every column but the shapes."""
    more = [*AREAS, ("S", "04", b""), ("S", "05", b""), ("N", "06", b"")]
    write(folder / "more.gpkg", {"areas": more}, *GEOPACKAGE)
    begun = starter(str(folder / "city.sqlite::trips"), folder, str(folder / "more.gpkg::areas"))
    keys = yaml.safe_load(begun.text)
    assert (keys["input"]["table"], keys["input"]["origin"]) == ("city.sqlite::trips", "home")
    assert keys["hierarchy"] == {"table": "more.gpkg::areas", "levels": ["region", "area"]}

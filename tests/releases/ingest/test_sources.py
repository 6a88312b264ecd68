"""Tables of every kind: the same trips are the same records, table and refusals, and what is beside them in a file is confidential too."""

import gzip
import hashlib
import sqlite3
import sys
import zipfile
from contextlib import ExitStack, closing
from datetime import date
from functools import partial
from hashlib import sha256
from itertools import combinations_with_replacement, product
from pathlib import Path

import duckdb
import numpy as np
import openmatrix
import polars as pl
import pyarrow as pa
import pytest
import tables
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook

from flows.answers.check import check_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.specification.starters.starter import starter
from storage.errors import InputError, SpecError, TrellisError, UsageError
from storage.ledger.recognition import Columns
from storage.machine.fingerprints import KEY, fingerprint_of_records, key_of_records
from tasks.ingest.codebook import read_codebook
from tasks.ingest.contents import fingerprints, read_content, same_content
from tasks.ingest.sources import matrices
from tasks.ingest.sources.locations import sha256_at, table_at
from tasks.ingest.tables import identifier, opened, reader, same_table, text_columns
from tests.support.postgresql import PASSWORD, USER
from tests.support.tables import AREAS, GOOD, HEADER, LEVELS, N1, N2, S2, TRIPS, UNKNOWN, csv, shown_by, write

ZONES = [code for *_, code in AREAS]
CODEBOOK = [LEVELS, *AREAS]
QUOTED = "QUOTED-1234"
ENDINGS = ["sqlite", "duckdb", "xlsx"]
GEOPACKAGE = (
    "CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT)",
    "INSERT INTO gpkg_geometry_columns VALUES ('Areas', 'geom')",
)
SHAPES = [[*LEVELS, "geom"], *((*area, b"x") for area in AREAS)]
OF_MATRIX = dict.fromkeys(("table", "origin", "destination", "count"))


def write_omx(path, lookups=None, **cells):
    """Write an OMX file of matrices and lookups, whose zones may be numbers or texts."""
    with openmatrix.open_file(str(path), "w") as file:
        for name, of in cells.items():
            file[name] = np.asarray(of)
    with tables.open_file(str(path), "a") as plain:
        for name, entries in (lookups or {}).items():
            if "/lookup" not in plain:
                plain.create_group("/", "lookup")
            plain.create_array("/lookup", name, np.array(entries))


def matrix_of(rows):
    """Return the zones of some trips, and a matrix of these, whose rows are origins."""
    zones = sorted({*ZONES, *(code for row in rows for code in row[:2])})
    cells = np.zeros((len(zones), len(zones)))
    for home, work, count in rows:
        cells[zones.index(home), zones.index(work)] += count
    return zones, cells


def text(count):
    """Return a count as a field of CSV."""
    return "" if count is None else str(count)


def as_csv(place, rows):
    """Write a mark of the encoding, other line ends, quotes, no end of the last line, more columns, and another order."""
    lines = ["id,work,mode,people,home", *(f'{n},"{b}",m,{text(c)},{a}' for n, (a, b, c) in enumerate(rows[::-1]))]
    return {"table": place.write("odd.csv", b"\xef\xbb\xbf" + "\r\n".join(lines).encode())}


def as_gzip(place, rows):
    """Pack CSV that ends with a line without fields, and has a row of nobody and one trip as two."""
    (home, work, count), *others = rows
    some = [(home, work, 0), (home, work, 1), *others, (home, work, count - 1)]
    return {"table": place.write("t.csv.gz", gzip.compress((csv(HEADER, some) + "\n").encode()))}


def as_parquet(place, rows):
    """Write Parquet, of which the counts are numbers."""
    home, work, counts = zip(*rows, strict=True)
    kind = pl.UInt64 if 2**63 in counts else None
    table = {"home": home, "work": work, "people": pl.Series(counts, dtype=kind, strict=False)}
    pl.DataFrame(table).write_parquet(place.folder / "t.parquet")
    return {"table": "t.parquet"}


def as_view(place, rows):
    """Show CSV by a view of a DuckDB file."""
    place.write("seen.csv", csv(HEADER, [(*ends, text(count)) for *ends, count in rows]))
    seen = f"CREATE VIEW trips AS FROM read_csv('{place.folder / 'seen.csv'}', all_varchar = true)"
    return {"table": write(place.folder / "views.duckdb", {}, seen) + "::trips"}


def in_file(name, table, place, rows, *more):
    """Write a table among others into a file, its first counts a float, a text and an integer; its name may be in any case."""
    first = [(*ends, kind(count)) for (*ends, count), kind in zip(rows, (float, str, int), strict=False)]
    of_trips = [HEADER, *first, *rows[3:]]
    given = {"Other": [("x",), ("y",)], "Trips": of_trips, "More": of_trips}
    return {"table": f"{write(place.folder / name, given, *more)}::{table}"}


def as_matrix(place, rows):
    """Write a CSV matrix, packed."""
    zones, cells = matrix_of(rows)
    lines = [[zone, *map("{:.15g}".format, row)] for zone, row in zip(zones, cells, strict=True)]
    packed = pa.compress(csv(["zone", *zones], lines).encode(), "zstd", asbytes=True)
    return OF_MATRIX | {"matrix": place.write("m.csv.zst", packed)}


def as_omx(place, rows):
    """Write an OMX file, of which one lookup has the zones."""
    zones, cells = matrix_of(rows)
    write_omx(place.folder / "m.omx", {"taz": [zone.encode() for zone in zones]}, trips=cells, other=cells[::-1])
    return OF_MATRIX | {"matrix": "m.omx::trips"}


SOURCES = {
    "CSV": as_csv,
    "gzip": as_gzip,
    "Parquet": as_parquet,
    "DuckDB": partial(in_file, "city.duckdb", "trips"),
    "a view of a file": as_view,
    "SQLite": partial(in_file, "city.sqlite", "TRIPS"),
    "a view in SQLite": lambda place, rows: in_file("seen.db", "ways", place, rows, "CREATE VIEW ways AS SELECT work, people, home FROM trips"),
    "workbook": partial(in_file, "city.xlsx", "trips"),
    "CSV matrix": as_matrix,
    "OMX": as_omx,
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_trips_are_the_same_table(place, source, monkeypatch):
    """The vault and comparisons get the same records, the ledger the same fingerprint, and of a trip less another one."""
    plain, records = load_spec(place.spec()).source(), place.records()
    keys = SOURCES[source](place, TRIPS)
    for cells in (1, 2**21) if "matrix" in source or source == "OMX" else (1,):  # read at once
        monkeypatch.setattr(matrices, "_CELLS", cells)
        assert place.ingested(**keys) == GOOD
    assert place.in_vault(**keys) == GOOD
    assert place.records(**keys) == records
    same = load_spec(place.spec(**keys)).source()
    if same.columns == plain.columns:  # no public table may hold the records
        assert same_content(same.table, plain.table, plain.columns)
    keys = SOURCES[source](place, TRIPS[1:])
    assert place.records(**keys) != records
    assert not same_content(load_spec(place.spec(**keys)).source().table, plain.table, plain.columns)


UNLISTED, WHOLE = ("has codes that the codebook lacks", "every possible code"), ("must hold whole numbers", "no counts")
FAULTS = [  # a row, the column, the rule and the hint
    ((UNKNOWN, N1, 5), "home", UNLISTED),
    ((N1, UNKNOWN, 5), "work", UNLISTED),
    ((N1, N1, -314159), "people", ("must be >= 0", "")),
    ((N1, N1, 2.5), "people", WHOLE),
    ((N1, N1, float("inf")), "people", WHOLE),
    ((N1, N1, float("nan")), "people", WHOLE),
    ((N1, N1, 1e300), "people", WHOLE),
    ((N1, N1, 2**63), "people", ("must hold numbers below 2**63", "")),
    ((N1, N1, None), "people", ("must not be empty", "")),
]
# how many of these a source can hold, where it is not all of them
HOLDS = {"workbook": 3, "SQLite": 3, "a view in SQLite": 3, "CSV matrix": 7, "OMX": 7}


@pytest.mark.parametrize("source", [
    *("CSV", "Parquet", "SQLite", "workbook", "OMX"),
    *(pytest.param(source, marks=pytest.mark.thorough) for source in ("DuckDB", "a view of a file", "a view in SQLite", "CSV matrix")),
])  # fmt: skip
def test_the_same_faults_are_the_same_refusals(refusing, capfd, source):
    """A row that breaks a rule is refused by its column, with what to do, in whatever it is written; nothing of it is shown."""
    names = {"home": "origin", "work": "destination", "people": "count"}
    for row, column, (rule, hint) in FAULTS[: HOLDS.get(source, len(FAULTS))]:
        keys = SOURCES[source](refusing, [*TRIPS, row])
        error, said = refusing.refusal(capfd, **keys)
        key = "matrix" if "matrix" in keys else "table"
        assert str(error) == f"input.{key}: column {column if key == 'table' else names[column]} {rule}.", row
        assert error.field in {f"input.{names[column]}", f"input.{key}"}
        assert hint in error.hint
        assert said == "1 row is at fault.\n"


def codes_in(name, folder, levels=("region", "area")):
    """Return the areas of a codebook."""
    table = table_at("hierarchy.table", name, folder)
    return read_codebook(table, levels, by_path=False, not_all_of=None).rows()


@pytest.mark.parametrize("ending", [*ENDINGS, "gpkg"])
def test_a_codebook_is_known_by_its_rows_alone(place, ending):
    """Its hash is in the manifest, as the guide has it, of its rows in any order; the first sheet and all but shapes are read."""
    wanted = sha256("".join(f'["{a}","{b}","{c}"]\n' for a, b, c in CODEBOOK).encode()).hexdigest()
    path, other = place.folder / f"areas.{ending}", [HEADER, *TRIPS]
    if ending == "gpkg":
        write(path, {"Areas": SHAPES}, *GEOPACKAGE)
        starts = yaml.safe_load(starter(str(place.folder / "trips.csv"), place.folder, f"{path}::Areas").spec)
        assert starts["hierarchy"]["levels"] == LEVELS
    else:
        write(path, {"Areas": [LEVELS, *AREAS[::-1]], "Other": other})
        table = table_at("hierarchy.table", f"{path.name}::areas", place.folder)
        assert table.sha256() == sha256_at(table.location) == wanted
        write(place.folder / f"less.{ending}", {"Areas": CODEBOOK[:-1], "Other": other})
        assert table_at("hierarchy.table", f"less.{ending}::areas", place.folder).sha256() != wanted
    assert place.ingested(codebook=path.name if ending == "xlsx" else f"{path.name}::areas") == GOOD
    assert {*place.plan(codebook=f"{path.name}::areas").terms.codebooks.values()} == {wanted}


def test_public_tables_of_one_name_are_open_at_once(place):
    """Each is read as it is, in files of every kind, while the others are open, as threads have them; and so it is after it has changed."""
    locations = [f"{of}.{ending}::areas" for of in "ab" for ending in ENDINGS] + ["a.csv", "b.csv"]
    for version in "12":
        with ExitStack() as together:
            scans = []
            for location in locations:
                code, file = f"{location[0]}{version}", place.folder / location.partition("::")[0]
                if file.suffix == ".csv":
                    file.write_text(f"area\n{code}\n")
                else:
                    write(file, {"areas": [("area",), (code,)]})
                table = table_at("hierarchy.table", location, place.folder)
                con = together.enter_context(reader(table))
                scans.append((code, con, together.enter_context(opened(con, table))))
            for code, con, rows in scans:
                assert con.sql(f"FROM {rows.scan(['area'])}").fetchall() == [(code,)]


def test_what_is_read_is_what_it_is(place):
    """Texts keep zeros, integers are digits, values of every kind are hashed; names are no SQL; a sheet may have gaps beside rows."""
    folder = place.folder
    write(folder / "n.db", {"n": [("area", "region"), (10, 1.0), ("007", "1"), (2**60, 1), (2.0**53 - 1, 1)]})
    assert sorted(codes_in("n.db::n", folder)) == [("1", code) for code in ("007", "10", str(2**60), str(2**53 - 1))]
    write(folder / "n.xlsx", {"A": [("area", "", "region"), (10, "x", 1.0), (9, None, 1), (None,), (None, "y", None)]})
    assert codes_in("n.xlsx", folder) == [("1", "10"), ("1", "9")]
    for name in ("gap.db::A", "gap.xlsx"):
        write(folder / name.partition("::")[0], {"A": [("area", "region"), (10, 1), (None, None), (9, 1)]})
        with pytest.raises(InputError, match="column area has a blank code in 1 row: 2"):
            codes_in(name, folder)
    sizes = [("area", "size", "picture"), ("01", 2.5, b"\x01"), ("02", None, None), ("03", 0, b"")]
    write(folder / "n.db", {"n": sizes})
    lines = '["area","size","picture"]\n["01","2.5","01"]\n["02",null,null]\n["03","0",""]\n'
    assert table_at("a", "n.db::n", folder).sha256() == sha256(lines.encode()).hexdigest()
    table, column = 'it\'s "a"::b', 'co"l?'
    made = f"CREATE TABLE {identifier(table)} ({identifier(column)} TEXT, area TEXT)"
    write(folder / "a b#c%3F?d.sqlite", {}, made, f"INSERT INTO {identifier(table)} VALUES ('N', '01')")
    assert codes_in(f"a b#c%3F?d.sqlite::{table}", folder, [column, "area"]) == [("N", "01")]


def test_rows_arrive_in_batches_and_can_be_read_again(place):
    """A table of several batches is whole, in order, each time that it is read; a column is asked for once."""
    rows = [(f"{number:07}", number) for number in range(200_000)]
    write(place.folder / "many.db", {"many": [("code", "number"), *rows]})
    write(place.folder / "few.xlsx", {"few": [("code", "number"), *rows[:9]]})
    for location, wanted in (("many.db::many", rows), ("few.xlsx", rows[:9])):
        with duckdb.connect() as con, opened(con, table_at("input.table", location, place.folder)) as found:
            for _ in range(2):
                scan = found.scan(["code", "number", "code"])
                read = con.sql(f"SELECT {text_columns(['code', 'number'])} FROM {scan}").fetchall()
                assert [(code, int(number)) for code, number in read] == wanted


@pytest.mark.parametrize(("ending", "values"), [
    ("db", [1.5, float("inf"), 2.0**53, -(2.0**53), QUOTED.encode()]),
    ("xlsx", [1.5, date(2020, 1, 1), True, "#N/A", 10**15 + 1, float(10**16)]),
])  # fmt: skip
def test_what_is_no_code_is_refused_by_its_column(place, ending, values):
    """A fraction, a number that has lost digits, a date, an error and binary values are refused, unseen, where they are read."""
    for number, value in enumerate(values):
        name = f"n{number}.{ending}"
        write(place.folder / name, {"n": [("region", "area", "note"), ("1", value, "1")]})
        with pytest.raises(InputError) as refused:
            codes_in(f"{name}::n", place.folder)
        told = str(refused.value)
        assert told.startswith(f"hierarchy.table: column area of {name} must hold text or whole numbers, not ")
        assert str(value) not in told
        assert ("leading zeros" in refused.value.hint) or ending == "db"
        write(place.folder / name, {"n": [("region", "area", "note"), ("1", "a", value)]})
        assert codes_in(f"{name}::n", place.folder) == [("1", "a")]


def no_workbook(path):
    """Pack a file that is no workbook."""
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.txt", QUOTED)


def too_large(path):
    """Pack so many zeros that nobody would unpack them."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        packed.open("xl/sharedStrings.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(2**30 // 2**24 + 1):
            part.write(bytes(2**24))


def seeming_zeros(path):
    """Write a cell that shows 01001 and holds 1001."""
    book = Workbook()
    book.active.append(["region", "area"])
    book.active.append(["1", 1001])
    book.active["B2"].number_format = "00000"
    book.save(path)


def of_bytes(content):
    """Return what writes bytes."""
    return lambda path: path.write_bytes(content)


def sheet(*rows):
    """Return what writes a workbook of one sheet."""
    return lambda path: write(path, {"A": rows})


NO_BASE, NO_BOOK = "cannot be read as an SQLite database", "cannot be read as an .xlsx workbook"
NO_NAMES = "must hold the column names in its first row"
NOT_UTF8 = f"INSERT INTO n VALUES (CAST(x'{QUOTED.encode().hex()}ff' AS TEXT), '1')"
# what writes the file, the table, and what the error and its hint say
NO_TABLES = [
    (lambda path: write(path, {"Areas": SHAPES}), "a.gpkg::area", "a.gpkg has no table area", "Did you mean Areas?"),
    (of_bytes(b""), "a.gpkg", "got a.gpkg", "Name the table inside of it: file.gpkg::table."),
    (of_bytes(QUOTED.encode() * 1000), "noise.db::areas", NO_BASE, ""),
    (lambda path: duckdb.connect(str(path)).close(), *("other.db::areas", "cannot be read as", "It is a DuckDB file: give it a name that ends in .duckdb.")),
    (lambda path: write(path, {"n": [("area", "region")]}, NOT_UTF8), "n.db::n", f"n.db {NO_BASE}", ""),
    (of_bytes(b"area,region\n"), "text.xlsx", NO_BOOK, ""),
    (no_workbook, "zip.xlsx", NO_BOOK, ""),
    pytest.param(too_large, "large.xlsx", NO_BOOK, "", marks=pytest.mark.thorough),
    (lambda path: write(path, {"Codes": CODEBOOK}), "c.xlsx::Code", "has no sheet Code", "Did you mean Codes?"),
    (sheet((1, 2), (3, 4)), "n.xlsx", NO_NAMES, ""),
    (sheet(), "e.xlsx", NO_NAMES, ""),
    (sheet(("region", "area", "area"), (1, 2, 3)), "t.xlsx", "two columns area", ""),
    (sheet(("regions", "area")), "c.xlsx", "has no column region", ""),
    (seeming_zeros, "zeros.xlsx", "its numbers are shown with leading zeros, which they do not", "Format the column as"),
    (of_bytes(b""), "areas.geojson", "must end in .csv", "table of attributes as CSV"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "name", "rule", "hint"), NO_TABLES)
def test_what_is_no_table_of_codes_is_refused(tmp_path, made, name, rule, hint):
    """A file of another kind, a table that is not there and one without names are refused by their key; nothing is quoted."""
    made(tmp_path / name.partition("::")[0])
    with pytest.raises(InputError) as refused:
        codes_in(name, tmp_path)
    assert refused.value.field == "hierarchy.table"
    assert rule in str(refused.value)
    assert hint in refused.value.hint
    assert QUOTED not in str(refused.value)


def test_zones_are_named_by_a_lookup(place):
    """Without a lookup zones are numbers from 1 on; of several, the spec names one; codes may be numbers or texts."""
    cells = [[0, 5, 1], [7, 0, 0], [0, 11, 2]]
    found = {("1", "2"): 5, ("1", "3"): 1, ("2", "1"): 7, ("3", "2"): 11, ("3", "3"): 2}
    zones = place.write("three.csv", "district,zone\na,1\na,2\nb,3\n")
    keys = OF_MATRIX | {"codebook": zones, "levels": ["district", "zone"]}
    write_omx(place.folder / "bare.omx", trips=np.array(cells, "u2"))
    assert place.ingested(matrix="bare.omx::trips", **keys) == found
    write_omx(place.folder / "two.omx", {"one": [1, 2, 3], "other": [3, 2, 1]}, trips=cells)
    with pytest.raises(InputError, match=r"^input\.zones must be given: two\.omx has the lookups one, other\.$"):
        place.ingested(matrix="two.omx::trips", **keys)
    turned = {(str(4 - int(home)), str(4 - int(work))): count for (home, work), count in found.items()}
    assert place.ingested(matrix="two.omx::trips", zones="other", **keys) == turned


ROWS = "zone,{0},{1}\n{0},0,314159\n{1},{2}\n"
MATRIX, FITS = "input.matrix: ", "cannot be read as a CSV matrix"
TWICE = "input.matrix: the first {} of m.csv must list each zone once."
NO_MATRICES = [  # m.csv, matrix, zones, and what the error and its hint say
    (ROWS.format(N1, N2, "0,1,271828"), "m.csv", None, f"m.csv {FITS}", "as many cells as the first line"),
    (ROWS.format(N1, N2, "0,"), "m.csv", None, f"{MATRIX}column count must not be empty", ""),
    ("", "m.csv", None, "has no line of destinations", "first line"),
    *(
        (text.format(N1, N2, count), "m.csv", None, TWICE.format(where), "")
        for count in (314159, 0)  # in cells of the zone that is there again
        for text, where in (
            ("zone,{0},{1},{1}\n{0},0,{2},1\n", "line"),
            ("zone,{0}\n{0},0\n{1},6\n{0},{2}\n", "column"),
        )
    ),
    ("", "od.omx::trip", None, "input.matrix: od.omx has no matrix trip.", "Did you mean trips?"),
    ("", "od.omx::trips", "tax", "input.zones: od.omx has no lookup tax.", "Did you mean taz?"),
    ("", "od.omx::trips", "twice", "input.zones: the lookup twice must list each zone once.", ""),
    ("", "od.omx::wide", "taz", f"{MATRIX}wide must be a matrix of 2 by 2 zones, as its lookup says.", ""),
    ("", "m.csv", "taz", "input.zones must be left out for a CSV matrix: its first line and column name the zones.", ""),
    ("", "codes.omx::trips", None, "input.matrix: codes.omx cannot be read as an OMX matrix.", ""),
    ("", "od.omx", None, "must end in .csv, .csv.gz, .csv.zst or .omx::<matrix>, got od.omx.", "Name the matrix"),
    ("", "no.omx::trips", None, "input.matrix: there is no file", ""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "matrix", "zones", "rule", "hint"), NO_MATRICES)
def test_what_is_no_matrix_is_refused(refusing, capfd, monkeypatch, content, matrix, zones, rule, hint):
    """Rows of another length, zones that are twice there, and names that are not in the file are refused by their key; so `check` says."""
    refusing.write("m.csv", content)
    refusing.write("codes.omx", "text")
    lookups = {"taz": [N1.encode(), N2.encode()]} | ({"twice": [1, 1]} if zones == "twice" else {})
    cells = {"wide": np.zeros((2, 3))} if "wide" in matrix else {"trips": np.zeros((2, 2))}
    write_omx(refusing.folder / "od.omx", lookups, **cells)
    for at_once in (1, 2**21):
        monkeypatch.setattr(matrices, "_CELLS", at_once)
        error, _ = refusing.refusal(capfd, **OF_MATRIX, matrix=matrix, zones=zones)
        assert rule in str(error)
        assert hint in error.hint
    if not content:
        assert rule in str(check_answer(refusing.folder / "trips.yaml").problems)


def test_a_table_or_a_matrix_is_given(place):
    """A matrix has no columns, so keys that name one are refused by their own names; so are zones without a matrix, and neither."""
    for key in ("table", "origin", "destination", "count", "unit", "features", "group", "region"):
        with pytest.raises(SpecError, match=rf"^input\.{key} must be left out with input\.matrix") as refused:
            place.plan(**OF_MATRIX | {"matrix": "od.omx::trips", key: "x"})
        assert refused.value.field == f"input.{key}"
    with pytest.raises(SpecError, match=r"^input\.table must be given\.(\n|$)"):
        place.plan(table=None)
    with pytest.raises(SpecError, match=r"^input\.zones must be left out without input\.matrix"):
        place.plan(zones="taz")


def test_the_library_of_matrices_is_asked_for(place, monkeypatch):
    """Without openmatrix the error says what to install, and CSV needs none."""
    keys = as_omx(place, TRIPS)
    monkeypatch.setitem(sys.modules, "openmatrix", None)
    with pytest.raises(InputError, match="Trellis needs openmatrix") as refused:
        place.ingested(**keys)
    assert "trellis[matrices]" in refused.value.hint
    assert place.ingested(**as_matrix(place, TRIPS)) == GOOD


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_public_table_is_in_a_file_with_the_confidential_one(place, ending):
    """A view in that file, or in a copy of it, may be made of the records: nothing is planned or released."""
    names = [("level", "code", "name"), ("municipality", N1, "One")]
    whole, copy = place.folder / f"all.{ending}", place.folder / f"copy.{ending}"
    write(whole, {"trips": [HEADER, *TRIPS], "areas": CODEBOOK, "names": names})
    copy.write_bytes(whole.read_bytes())
    for public in (whole, copy):
        with_names = {"table": "codebook.csv", "labels": f"{public.name}::names"}
        for hierarchy in ({"table": f"{public.name}::areas"}, with_names):
            also = {"hierarchy": hierarchy | {"levels": LEVELS}}
            rule = r"must not be the confidential table or a view of it, nor in a file with it"
            with pytest.raises(InputError, match=rule) as refused:
                place.in_vault(table=f"{whole.name}::trips", also=also)
            assert "in a file of its own" in refused.value.hint


@pytest.mark.parametrize(("source", "other"), [("SQLite", "more"), ("workbook", "More"), ("OMX", "trips")])
def test_the_ledger_asks_about_any_table_of_a_charged_file(place, source, other):
    """Which tables and views show the same people it cannot know, so it asks of all of them, and of a copy."""
    keys = SOURCES[source](place, TRIPS)
    key = "matrix" if "matrix" in keys else "table"
    file, _, table = keys[key].partition("::")
    copy = place.write(f"copy{Path(file).suffix}", (place.folder / file).read_bytes())
    place.reserve("first", **keys)
    for moved in (f"{file}::{other}", f"{copy}::{table}"):
        with pytest.raises(UsageError, match="was used by dataset first"):
            place.reserve("second", **keys | {key: moved})


def test_a_database_that_is_open_elsewhere_is_refused(place):
    """Rows in the log of a writer are no part of the file by whose bytes the ledger knows it; a journal that is kept holds none."""
    keys = SOURCES["SQLite"](place, TRIPS)
    path, journal = place.folder / "city.sqlite", place.folder / "city.sqlite-journal"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO Trips VALUES (?, ?, 1)", [S2, S2])
        writer.commit()
        (place.folder / "link").mkdir()
        (place.folder / "link" / "other.db").symlink_to(path)
        for table in ("city.sqlite::trips", "link/other.db::trips"):
            rule = r"must hold all its rows itself, and city\.sqlite-wal has changes to it"
            with pytest.raises(InputError, match=rule):
                place.ingested(table=table)
    assert place.ingested(**keys) == GOOD | {(S2, S2): 1}
    assert sorted(file.name for file in place.folder.glob("city.*")) == ["city.sqlite"]
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("PRAGMA journal_mode = PERSIST")
        writer.execute("INSERT INTO Trips VALUES (?, ?, 1)", [S2, S2])
    assert journal.stat().st_size
    assert place.ingested(**keys) == GOOD | {(S2, S2): 2}
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + journal.read_bytes()[8:])  # of a change that was cut off
    with pytest.raises(InputError, match=r"and city\.sqlite-journal has changes to it"):
        place.ingested(**keys)


COUNTED = Columns(("home", "work"), "n")


def table(place, name):
    """Return a table in a folder."""
    return table_at("input.table", name, place.folder)


def known_by(found, columns):
    """Return the fingerprint of a table by its own columns."""
    return fingerprints(found, columns)[columns]


def test_a_table_is_looked_at_by_the_columns_of_other_releases(place):
    """A spec that reads other columns, or counts other things, does not hide that the records are those of an earlier release."""
    place.write("first.csv", "home,work,n\na,b,1\nc,d,2\n")
    place.write("second.csv", "mode,n,m,work,home\nfoot,2,1,d,c\ncar,1,1,b,a\n")
    first = read_content(table(place, "first.csv"), COUNTED, [])
    assert first.content
    of_mode = Columns(("mode",), "m")
    second = read_content(table(place, "second.csv"), of_mode, [first.content])
    assert first.content.records in second.fingerprints
    assert second.content
    assert second.content.records != first.content.records
    assert first.fingerprints.isdisjoint(read_content(table(place, "second.csv"), of_mode, []).fingerprints)


def test_no_two_small_tables_are_one(place):
    """Of all tables of at most two records over codes that could be mistaken for one another, each has a fingerprint of its own."""
    codes = [None, "", "1", "1:", ":1", "a", "1:a", "0:"]
    rows = list(product(codes, repeat=2))
    chosen = [some for size in (1, 2) for some in combinations_with_replacement(rows, size)]
    key = key_of_records()

    def hashed(row):
        texts = ((f"{len(code.encode())}:{code}" if code is not None else ":") for code in row)
        digest = hashlib.sha256((key + "".join(texts)).encode()).digest()
        return int.from_bytes(digest[:8]), int.from_bytes(digest[8:16])

    summed = {some: tuple(sum(half) % 2**64 for half in zip(*map(hashed, some), strict=True)) for some in chosen}
    assert len(set(summed.values())) == len(chosen) == 64 + 64 * 65 // 2
    few = {f"t{number}": [("home", "work"), *some] for number, some in enumerate(chosen[::97])}
    write(place.folder / "small.duckdb", few)  # and the fingerprint is that of these sums
    for name, (_, *some) in few.items():
        found = known_by(table(place, f"small.duckdb::{name}"), Columns(("home", "work")))
        assert found == fingerprint_of_records(len(some), summed[tuple(some)])


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 3)), min_size=1, max_size=6))
def test_tables_are_one_where_their_records_are(anyplace, rows):
    """Whatever rows with counts there are, their records one by one are the same table, and with one record more another."""
    records = sorted((home, work) for home, work, count in rows for _ in range(count))
    anyplace.write("counts.csv", csv(("home", "work", "n"), rows))
    anyplace.write("records.csv", csv(("home", "work"), records))
    anyplace.write("more.csv", csv(("home", "work"), [*records, ("a", "x")]))
    counted = known_by(table(anyplace, "counts.csv"), COUNTED)
    columns, tables = Columns(("home", "work")), ("records", "more")
    one_by_one, more = (known_by(table(anyplace, f"{name}.csv"), columns) for name in tables)
    assert (counted == one_by_one) == bool(records)  # nothing is like nothing
    assert counted != more


def test_without_the_key_a_fingerprint_says_nothing(place):
    """Another key gives other fingerprints, of records and of files."""
    found, columns = table(place, "trips.csv"), Columns(("home", "work"), "people")
    before = known_by(found, columns), found.fingerprint_of_file()
    (place.folder / "home" / KEY).unlink()
    after = known_by(found, columns), found.fingerprint_of_file()
    assert set(before).isdisjoint(after)


def test_a_view_is_what_it_shows(place):
    """Of another file it is no public table, also by a view of a view; it is read again when that file has changed, but not beside a log."""
    view, columns = table(place, as_view(place, TRIPS)["table"]), Columns(("home", "work"), "people")
    with duckdb.connect(str(place.folder / "views.duckdb")) as con:
        con.execute("CREATE VIEW zones AS SELECT DISTINCT home AS zone FROM trips")
        con.execute("CREATE TABLE listed (zone VARCHAR)")
        con.execute("CREATE VIEW short AS FROM listed")
    plain = table(place, "seen.csv")
    with pytest.raises(InputError, match="must hold its rows itself, and zones is a view of another file"):
        same_table(table(place, "views.duckdb::zones"), plain)
    assert not same_table(table(place, "views.duckdb::short"), plain)
    assert same_table(table(place, "views.duckdb::short"), view)
    before = known_by(plain, columns)
    place.write("seen.csv", csv(HEADER, TRIPS[1:]))
    assert known_by(view, columns) == known_by(plain, columns) != before
    place.write("views.duckdb.wal", "changes")
    with pytest.raises(InputError, match=r"must hold all its rows itself, and views\.duckdb\.wal has changes to it"):
        known_by(view, columns)


@pytest.mark.parametrize("location", [
    "postgresql://{user}:{password}@127.0.0.1/postgres::public.trips",
    "postgresql://{user}@127.0.0.1/postgres::public.trips",
    "postgresql://127.0.0.1/postgres?user={user}&password={password}::public.trips",
    "postgresql://{user}:a::{password}@127.0.0.1/postgres::public.trips",
    "postgresql+psycopg://{user}:{password}@127.0.0.1/postgres::public.trips",
    "mysql://{user}:{password}@127.0.0.1/postgres::public.trips",
])  # fmt: skip
def test_a_location_holds_no_credentials(place, monkeypatch, location):
    """A user or a password in a location is refused, by `check` too, and neither is repeated; nor is one from the environment."""
    location = location.format(user=USER, password=PASSWORD)
    monkeypatch.setenv("TRIPS", location)
    for written in (location, "${TRIPS}"):
        path = place.spec(table=written)
        with pytest.raises(TrellisError, match=r"^input\.table must ") as refused:
            make_plan(load_spec(path))
        assert refused.value.field == "input.table"
        said = f"{shown_by(refused.value)} {check_answer(path)!r}"
        assert "input.table" in said
        assert PASSWORD not in said
        assert USER not in said


@pytest.mark.parametrize("inner", ["trips", "a.b.c", "", "public.trips; DROP TABLE x", "public."])
def test_a_table_is_named_with_its_schema(place, inner):
    """Which schema a bare name means depends on who asks, so it is refused."""
    with pytest.raises(InputError, match=r"^input\.table must name the table with its schema, or be a query"):
        place.plan(table=f"postgresql://127.0.0.1/postgres::{inner}")

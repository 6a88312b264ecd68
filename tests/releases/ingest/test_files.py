"""Files as people have them: how CSV is written, what a count is not, what types are codes, and which codes of a codebook are unclear."""

import gzip
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime
from time import tzset

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from flows.answers.query import query_answer
from flows.run.reservation import new_release
from flows.specification.file import load_spec
from flows.specification.sections.hierarchy import Ordered, Values
from flows.specification.starters.starter import starter
from storage.errors import InputError, SpecError, UsageError
from tasks.ingest.sources import files
from tasks.ingest.sources.locations import table_at
from tasks.ingest.tables import opened
from tasks.ingest.task import read_in_memory
from tasks.ingest.trips import Units
from tests.support.many_rows import DUCKDB, filled_files, taken
from tests.support.spec import of_features
from tests.support.tables import AREAS, GOOD, HEADER, LEVELS, N1, N2, S1, TRIPS, UNKNOWN, in_duckdb, shown_by, trips


def lines(*rows, separator=","):
    """Return rows as lines of CSV."""
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def saved(table, path):
    """Write a table into a file of the kind that its name says, and return where it is."""
    ending = path.name.partition(".")[2]
    if ending == "duckdb":
        table.write_parquet(parquet := path.with_suffix(".parquet"))
        return in_duckdb(path, f"CREATE TABLE t AS FROM '{parquet}'") + "::t"
    if ending in ("parquet", "ndjson"):
        getattr(table, f"write_{ending}")(path)
    elif ending == "csv.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(table.write_csv().encode())
    else:
        content = table.write_csv().encode()
        path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
    return path.name


# columns before and behind, in the header and in the rows
BESIDE = {
    "an index": (("",), (0,)),
    "a comma at the end": (("home", "work", "people", ""), ("",)),
    "two of one name": (("m", "m"), (1, 2)),
    "two blank names": (("", " "), (1, 2)),
    "names that differ in case": (("Mode", "mode"), ("a", "b")),
    "a name of two lines": (('"note\nof row"', '"of\r\n""all"""'), ("a", "b")),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_columns_that_nobody_uses_may_have_any_name(place, kind):
    """Blank and repeated names beside the columns of the spec, in a table and in a codebook, in no way matter."""
    names, values = BESIDE[kind]
    if names[:3] == HEADER:
        place.write("trips.csv", lines(names, *((*trip, *values) for trip in TRIPS)))
        place.write("codebook.csv", lines((*LEVELS, ""), *((*area, "") for area in AREAS)))
    else:
        place.write("trips.csv", lines((*names, *HEADER), *((*values, *trip) for trip in TRIPS)))
        place.write("codebook.csv", lines((*names, *LEVELS), *((*values, *area) for area in AREAS)))
    assert place.problems() == ""
    assert place.ingested() == GOOD
    trips, codebook = str(place.folder / "trips.csv"), str(place.folder / "codebook.csv")
    if kind == "two blank names":  # which a first record may have too
        with pytest.raises(InputError, match="some fields are blank or values"):
            starter(trips, place.folder, codebook)
    else:
        assert "origin: home" in starter(trips, place.folder, codebook).spec


@pytest.mark.parametrize(("header", "told", "hint"), [
    ("home,work,people,people", "trips.csv has two columns people.", ""),
    ("home,People,work,people", "trips.csv has the columns People and people, which differ only in upper and lower", ""),
    ("HOME,work,people", "has no column home", "Did you mean HOME?"),
    ("home ,work,people", "has no column home", 'Its name there is "home ": delete the blanks around it.'),
])  # fmt: skip
def test_a_name_that_the_spec_uses_stands_there_once_and_as_it_is_written(place, header, told, hint):
    """A name that two columns have, or one in other letters or with blanks around it, is told, by `check` too; the first line is a header."""
    names = header.split(",")
    place.write("trips.csv", lines(names, *((*trip, 1)[: len(names)] for trip in TRIPS)))
    with pytest.raises(InputError, match=told) as refused:
        place.ingested()
    assert hint in ("", refused.value.hint)
    assert told in place.problems()


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_columns_are_compared_in_one_form_of_unicode(place, form, kind):
    """A name is found by either form: in the table, in the codebook and in the spec."""
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    names = [unicodedata.normalize(form, name) for name in ("début", "fin", "région")]
    begin, end, region = (unicodedata.normalize(other, name) for name in names)
    pl.DataFrame(TRIPS, schema=[*names[:2], "people"], orient="row").write_parquet(place.folder / "t.parquet")
    place.write("t.csv", lines((*names[:2], "people"), *TRIPS))
    place.write("codebook.csv", lines((names[2], *LEVELS[1:]), *AREAS))
    keys = {"table": f"t.{kind}", "origin": begin, "destination": end, "levels": [region, *LEVELS[1:]]}
    assert place.ingested(**keys) == GOOD
    assert place.problems(**keys) == ""
    place.write("t.csv", lines((names[0], begin, "people"), *TRIPS))
    with pytest.raises(InputError, match=r"t\.csv has "):
        place.ingested(**keys | {"table": "t.csv", "destination": "people", "count": None})


@pytest.mark.parametrize(("name", "content", "encoding", "hint"), [
    ("t.csv", b"\x28\xb5\x2f\xfd\xa4\xe9", None, ".csv.zst"),
    ("t.csv", b"PAR1\x15\xe9", None, ".parquet"),
    ("t.csv", b"PK\3\4\xe9", None, ".xlsx"),
    ("t.csv.zst", trips().encode(), None, "not zstd"),
    ("t.tsv", b"", None, 'csv: {separator: "\\t"}'),
    ("t.sav", b"", None, "Save it as .parquet or .csv"),
    ("t.feather", b"", None, "Save it as .parquet"),
    ("t.json", b"", None, ".ndjson"),
    ("t.csv.bz2", b"", None, "Unpack it"),
    # rows that DuckDB does not decode itself
    ("trips.csv", (trips() + f'{N1},{N2},"5').encode("utf-16"), "utf-16", "A quote is not closed"),
    ("trips.csv", (trips() + f'{N1},{N2},"5" more').encode("cp1252"), "cp1252", "A quote is not closed"),
    ("trips.csv", (trips() + f"{N1},{N2},5{'9' * 200_000}").encode("cp1252"), "cp1252", "A field is too long"),
    ("trips.csv", (trips() + f"{N1},é,5").encode(), "ascii", "not in this encoding"),
    ("trips.csv", (trips() + f"{N2},{N1},5,more\n").encode("utf-16"), None, "more or fewer fields"),
    # what is no object per line
    ("t.ndjson", f'[{{"home": "{N1}", "work": "{N2}", "people": 5}}]', None, "Every line must be an object by itself"),
    ("t.ndjson", f'{{\n"home": "{N1}"\n}}\n', None, "Every line must be an object by itself"),
    ("t.ndjson", f'\ufeff{{"home": "{N1}", "work": "{N2}", "people": 5}}\n', None, "without a byte order mark"),
    ("t.ndjson", f'{{"home": "{N1}", "home": "{N1}", "work": "{N2}", "people": 5}}\n', None, "An object has a key twice"),
], ids=lambda given: given[:30] if isinstance(given, str) else "")  # fmt: skip
def test_files_of_another_kind_are_told_what_to_become(refusing, capfd, name, content, encoding, hint):
    """By its first bytes, its name or what is wrong in a row, a file says what it should have, and no row is shown."""
    refusing.write(name, content)
    error, _ = refusing.refusal(capfd, table=name, csv={"encoding": encoding} if encoding else None)
    assert hint in error.hint
    assert "fewer" not in hint or str(error) == "input.table: trips.csv cannot be read as CSV in UTF-16."


@pytest.mark.parametrize(("encoding", "name"), [
    ("utf-16", "wide.csv.gz"), ("utf-16-be", "wide.csv"), ("utf-32", "wide.csv.gz"), ("utf-8-sig", "wide.csv"),
])  # fmt: skip
def test_the_first_bytes_say_the_encoding(place, encoding, name):
    """Tables, codebooks and matrices with a mark of their encoding are read by it."""

    def encoded(text):
        mark = "\ufeff" if encoding in ("utf-16-be", "utf-8-sig") else ""  # two of the latter are one
        content = (mark + text).encode(encoding)
        return gzip.compress(content) if name.endswith(".gz") else content

    place.write(name, encoded(trips(header=HEADER)))
    place.write(f"areas_{name}", encoded(lines(LEVELS, *AREAS)))
    assert place.ingested(table=name, codebook=f"areas_{name}") == GOOD
    zones = sorted({code for trip in TRIPS for code in trip[:2]})
    cells = {trip[:2]: trip[2] for trip in TRIPS}
    place.write(name, encoded(lines(["", *zones], *([a, *(cells.get((a, b), 0) for b in zones)] for a in zones))))
    of_matrix = dict.fromkeys(("table", "origin", "destination", "count"))
    assert place.ingested(**of_matrix | {"matrix": name}) == GOOD


DIALECTS = {  # how it is written, the content, the encoding
    "tabs": ({"separator": "\t"}, lines(HEADER, *TRIPS, separator="\t"), "utf-8"),
    "an encoding": ({"encoding": "windows-1252"}, lines(("home", "work", "people", "ü"), *((*t, "é") for t in TRIPS)), "cp1252"),
    "everything": (
        {"separator": "|", "encoding": "iso-8859-15", "decimal": ",", "null": ["*", "NA"]},
        lines(("home", "€", "work", "people"), *((a, "*", b, f"{n},0") for a, b, n in TRIPS), separator="|"),
        "iso-8859-15",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_spec_says_how_csv_is_written(place, kind):
    """What cannot be seen of CSV stands in the spec, for the table, for the codebook and for a matrix; `check` reads it too."""
    dialect, content, encoding = DIALECTS[kind]
    place.write("odd.csv", content.encode(encoding))
    assert place.ingested(table="odd.csv", csv=dialect) == GOOD
    assert place.problems(table="odd.csv", csv=dialect) == ""
    separator = dialect.get("separator", ",")
    place.write("areas.csv", lines(LEVELS, *AREAS, separator=separator).encode(encoding))
    also = {"hierarchy": {"table": "areas.csv", "levels": LEVELS, "csv": dialect}}
    assert place.ingested(also=also) == GOOD
    assert place.problems(also=also) == ""


def test_null_is_a_key_and_stands_for_nothing(place):
    """The key needs no quotes; a count and a code that it names are missing, and an area's parent may be."""
    spec = place.spec(table="odd.csv", csv={"null": "NA"})
    spec.write_text(spec.read_text().replace("'null'", "null").replace('"null"', "null"))
    assert load_spec(spec).spec.input.csv.null == ["NA"]
    place.write("odd.csv", lines(HEADER, *TRIPS, (N1, N2, "NA")))
    with pytest.raises(InputError, match="column people must not be empty"):
        place.ingested(table="odd.csv", csv={"null": "NA"})


@pytest.mark.parametrize(("keys", "field", "told"), [
    ({"csv": {"separator": ";;"}}, "input.csv.separator", "must be one character"),
    ({"csv": {"separator": '"'}}, "input.csv.separator", "must be one character"),
    ({"csv": {"encoding": "latin-99"}}, "input.csv.encoding", "must be an encoding such as windows-1252"),
    ({"csv": {"encoding": "base64"}}, "input.csv.encoding", "must be an encoding such as windows-1252"),
    ({"csv": {"decimal": ";"}}, "input.csv.decimal", "must be"),
    ({"csv": {}, "table": "trips.parquet"}, "input.csv", "must be left out, since input.table names no CSV file"),
])  # fmt: skip
def test_a_dialect_that_cannot_be_is_refused(place, keys, field, told):
    """Each key of `csv` is refused by its name, and all of them where the file is none."""
    place.write("trips.parquet", b"")
    with pytest.raises((SpecError, InputError), match=told) as refused:
        place.plan(**keys)
    assert refused.value.field == field


@pytest.mark.parametrize(("text", "told"), [
    ('"home,""work"",people"\n"N1,""N2"",5"\n', "the lines of trips.csv are quoted whole"),
    ('"home,work,people"\n"N1,N2,5"\n', "the lines of trips.csv are quoted whole"),
    ('home;work;people;"x, y"\nN1;N2;5;\n', "has no column home"),
    ("home work people\nN1 N2 5\n", "has no column home"),
])  # fmt: skip
def test_lines_that_are_one_field_are_told(place, text, told):
    """Lines quoted whole, and other separators, each have their own sentence and mend."""
    place.write("trips.csv", text)
    with pytest.raises(InputError, match=told) as refused:
        place.ingested()
    written = text.removeprefix("home")[0]
    assert "quote" in refused.value.hint or f'csv: {{separator: "{written}"}}' in refused.value.hint


NO_TEXT, NO_GROUPS = "They cannot be read as 0", "thousands separators, as in 1,234"
EITHER = "may be 1 or 1000"
COUNTS = {
    **dict.fromkeys(("*", "<5", "ND", "-", "..", "c", "n/a", "5 or so", "#####"), NO_TEXT),
    **dict.fromkeys(('"1,234"', "1 234", "1'234", "1.234.567", "1\u202f234", '"12,345,678.0"', "1\u2009234"), NO_GROUPS),
    **dict.fromkeys(('"12,34,567"', '"1.234,5"', '"1,234.5"', '"1.000,00"'), NO_GROUPS),
    **dict.fromkeys(("1.000", "25.000"), EITHER),
    **dict.fromkeys(("2.5", "1e5", '"1,5"', "nan", "1.234"), "are no counts of records"),
}  # fmt: skip


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_no_count_is_told_as_what_it_is(refusing, capfd, count):
    """Marks of suppressed counts, thousands separators and fractions each have their own advice, and none is shown."""
    refusing.write("trips.csv", trips((N1, N1, count)))
    error, said = refusing.refusal(capfd)
    assert str(error) == "input.table: column people must hold whole numbers."
    assert COUNTS[count] in error.hint
    assert said == "1 row is at fault.\n"


@pytest.mark.parametrize(("decimal", "count", "found"), [
    (".", "5.000", 5), (".", "5.0", 5), (",", "5,000", 5),
    (",", "5", 5), (",", "5.000", NO_GROUPS), (",", "1.234,0", NO_GROUPS),
])  # fmt: skip
@pytest.mark.parametrize("key", ["table", "matrix"])
def test_the_mark_before_a_fraction_tells_what_a_count_is(place, decimal, count, found, key):
    """Where the spec says the mark, the other one sets thousands apart; the ledger knows the records by the same numbers."""
    dialect = {"separator": ";", "decimal": decimal}
    keys = {"table": "odd.csv", "csv": dialect}
    place.write("odd.csv", lines(HEADER, (N1, N2, count), separator=";"))
    if key == "matrix":
        keys = {"matrix": "odd.csv", "csv": dialect, **dict.fromkeys(("table", "origin", "destination", "count"))}
        place.write("odd.csv", lines(("", N1, N2, ""), (N1, 0, count, ""), (N2, 0, 0, ""), separator=";"))
    if isinstance(found, str):
        with pytest.raises(InputError) as refused:
            place.ingested(**keys)
        assert found in refused.value.hint
    else:
        assert place.ingested(**keys) == {(N1, N2): found}
        place.write("trips.csv", lines(HEADER, (N1, N2, found)))
        records = [place.records(**of) for of in (keys, {})]
        assert key == "matrix" or records[0] == records[1]


@pytest.mark.parametrize(("decimal", "income", "found", "why"), [
    (",", "17,5", "0-17", ""),
    (",", "1.250", None, NO_GROUPS),
    (".", "1.250", "0-17", ""),
    (None, "1.000", None, EITHER),
    (None, "18.000", "18+", ""),  # either way
    (None, "0.125", "0-17", ""),
    (None, "1.250.000", None, NO_GROUPS),
    (None, "much", None, "no number"),
])  # fmt: skip
def test_bins_are_of_numbers_with_that_mark(place, decimal, income, found, why):
    """A number is in the bin that its mark says, and in none with thousands set apart, perhaps or surely: bins read numbers as counts do."""
    place.write("people.csv", lines(("income", "sex"), (income, "f"), separator=";"))

    def keys(**unlisted):
        band = {"from": {"column": "income", "bins": [0, 18]}} | unlisted
        dialect = {"separator": ";"} | ({"decimal": decimal} if decimal else {})
        return of_features("people.csv", {"band": band, "sex": {"values": ["f", "m"]}}, csv=dialect)

    assert place.ingested(**keys(unlisted="OTHER")) == {(found or "OTHER", "f"): 1}
    if not found:
        with pytest.raises(InputError, match="has values that give no code") as refused:
            place.ingested(**keys())
        assert why in refused.value.hint


UNSEEN, WITHOUT = "has codes that the codebook lacks", "B,,B in place of B,B,, with blank: own_area"


def with_code(code):
    """Return the codebook with another code in place of one."""
    return lines(LEVELS, *((*area[:2], code if area[2] == N1 else area[2]) for area in AREAS))


@pytest.mark.parametrize(("codebook", "named"), [
    ("code,tract\n09001,T1\n09190,T1\n", ["column tract repeats T1."]),
    ("code,tract\nB1,T1\nB1,T2\nB2,T2\n", ["T2 has several rows"]),
    ("city,borough,zone\nX,Soho,Z1\nX,Mile End,Z2\nY,Mile End,Z3\n", ["Mile End under X and Y"]),
    # codes of the table are not found, since those of the codebook have blanks around them, or a character of no width
    *((with_code(code), [UNSEEN, f'codes with blanks around them, such as "{code}"']) for code in (f"{N1} ", f" {N1}", f"{N1}\t")),
    (with_code(f"{N1}\u200b"), [UNSEEN, f"characters that are not seen, such as '{N1}\\u200b'"]),
    # a row without a finest code may be an area without children
    *(
        (f"country,region,district\nE,E12,E0601\nE,E13,E0701\n{row}\n", ["column district has a blank code in 1 row: 3", WITHOUT])
        for row in ("W,W9,", "E,E12,", "W,,")
    ),
])  # fmt: skip
def test_what_is_unclear_in_a_codebook_is_named(place, codebook, named):
    """A codebook is public: of an area that it has twice, under two others or in a way that is not seen, the code is told."""
    place.write("codebook.csv", codebook)
    with pytest.raises(InputError) as refused:
        place.ingested(levels=codebook.partition("\n")[0].split(","))
    assert all(part in f"{refused.value} {refused.value.hint}" for part in named)


PLACES = {"codebook": "places.csv", "levels": ["region", "place"]}
NFC, NFD = "Zürich", unicodedata.normalize("NFD", "Zürich")
DAYS = [datetime(2025, 11, 1), datetime(2025, 11, 2)]
TYPED = {  # values, their type, and their codes
    "double": ([101.0, 102.0], pl.Float64, ("101", "102")),
    "float": ([0.0, 2.0**20], pl.Float32, ("0", "1048576")),
    "decimal": ([101, 102], pl.Decimal(7, 2), ("101", "102")),
    "a large decimal": (["90000000000000001.000", "1.000"], pl.Decimal(25, 3), ("90000000000000001", "1")),
    "large doubles": ([1e15, 2.0**53 - 1], pl.Float64, ("1000000000000000", str(2**53 - 1))),
    "numbers that a double has not all of": ([1e16, 2.0**53], pl.Float64, ("1e+16", "9007199254740992.0")),
    "numbers that a float has not all of": ([2.0**24, 20000001.0], pl.Float32, ("16777216.0", "20000000.0")),
    "fractions that are codes": ([0.5, 10.0], pl.Float64, ("0.5", "10")),
    "dictionary": (["01", "02"], pl.Categorical, ("01", "02")),
    "enumeration": (["b", "a"], pl.Enum(["a", "b"]), ("b", "a")),
    "midnights": (DAYS, pl.Datetime("us"), ("2025-11-01", "2025-11-02")),
    "midnights in nanoseconds": (DAYS, pl.Datetime("ns"), ("2025-11-01", "2025-11-02")),
    "days": (DAYS, pl.Date, ("2025-11-01", "2025-11-02")),
}


def slow(*of):
    """Return a row for `make test-all`."""
    return pytest.param(*of, marks=pytest.mark.thorough)


@pytest.mark.parametrize(("kind", "ending"), [
    *((kind, "parquet") for kind in TYPED),
    *((kind, "duckdb") for kind in ("a large decimal", "midnights")),
    *((kind, "ndjson") for kind in ("double", "days")),
    *(slow(kind, "duckdb") for kind in TYPED if kind not in ("a large decimal", "midnights")),
    *(slow(kind, "ndjson") for kind in ("float", "large doubles", "fractions that are codes", "dictionary", "enumeration")),
    ("dictionary", "csv.zst"),  # which has no types
])  # fmt: skip
def test_typed_columns_are_the_codes_that_they_show(place, kind, ending):
    """Whole numbers are their digits and midnights are their days, in tables and in codebooks; the ledger knows the records by these."""
    values, of_type, codes = TYPED[kind]
    home, work = (pl.Series(of).cast(of_type) for of in (values, values[::-1]))
    location = saved(pl.DataFrame({"home": home, "work": work, "people": [1, 2]}), place.folder / f"typed.{ending}")
    codebook = saved(pl.DataFrame({"region": ["R", "R"], "place": home}), place.folder / f"areas.{ending}")
    place.write("places.csv", lines(("region", "place"), *(("R", code) for code in codes)))
    place.write("texts.csv", lines(HEADER, (*codes, 1), (*codes[::-1], 2)))
    for listed in ("places.csv", codebook):
        assert place.ingested(table=location, codebook=listed, levels=["region", "place"]) == {codes: 1, codes[::-1]: 2}
    assert place.records(table=location, **PLACES) == place.records(table="texts.csv", **PLACES)


@pytest.mark.parametrize(("kind", "ending"), [
    *((kind, "parquet") for kind in ("double", "float", "decimal", "midnights")),
    *((kind, "ndjson") for kind in ("double", "midnights")),
])  # fmt: skip
def test_listed_codes_may_have_what_typed_columns_leave_out(place, kind, ending):
    """A codebook that another program wrote as text has 101.0 and 00:00:00: the records count there, and other times are as they were."""
    values, of_type, codes = TYPED[kind]
    listed = [f"{code} 00:00:00" if kind == "midnights" else f"{code}.0" for code in codes]
    listed += ["2025-11-01 07:00:00"] if kind == "midnights" else ["0.25"]
    values = [*values, datetime(2025, 11, 1, 7) if kind == "midnights" else 0.25]
    table = pl.DataFrame({"home": pl.Series(values, strict=False).cast(of_type), "work": listed})
    if (kind, ending) == ("midnights", "ndjson"):
        table = table.with_columns(pl.col("home").dt.to_string("%Y-%m-%d %H:%M:%S"))
    place.write("places.csv", lines(("region", "place"), *(("R", code) for code in listed)))
    found = place.ingested(table=saved(table, place.folder / f"typed.{ending}"), count=None, **PLACES)
    assert found == {(code, code): 1 for code in listed}


@pytest.mark.parametrize("kind", ["double", "midnights"])
def test_codes_of_one_value_are_refused(refusing, capfd, kind):
    """A column of numbers or times has no 101.0 beside 101: a codebook with both is told, and no record is lost in one of them."""
    values, of_type, codes = TYPED[kind]
    listed = [*codes, *(f"{code} 00:00:00" if kind == "midnights" else f"{code}.0" for code in codes)]
    refusing.write("places.csv", lines(("region", "place"), *(("R", code) for code in listed)))
    table = pl.DataFrame({"home": pl.Series(values).cast(of_type), "work": codes, "people": [1, 2]})
    error, _ = refusing.refusal(capfd, table=saved(table, refusing.folder / "typed.parquet"), **PLACES)
    assert "must list one code for each value of column home" in str(error)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1252"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_blank_lines_are_no_records(place, encoding, name):
    """In a file of one column too, whatever its encoding is; a quoted blank is a record with a blank code."""
    content = 'k\nA\n\nB\n""\n\n'.encode(encoding)
    place.write(name, gzip.compress(content) if name.endswith("gz") else content)
    keys = of_features(name, {"k": {"values": ["A", "B"], "unlisted": "O"}})
    written = keys | {"csv": {"encoding": "windows-1252"} if encoding == "windows-1252" else None}
    source = load_spec(place.spec(**written)).source()
    _, _, counts = read_in_memory(source, Units(None, 1, distinct=False, exact=False), (0,))
    assert counts.tolist() == [1, 1, 1]
    place.write("plain.csv", "k,w\nA,1\nB,1\n,1\n")
    assert place.records(**written) == place.records(**keys | {"table": "plain.csv"})


def test_a_mark_of_csv_is_not_for_other_files(place):
    """A comma before fractions is how CSV is written; files that are not CSV have points, so both are not one table."""
    pl.DataFrame({"home": [N1], "work": [N2], "people": [1.5]}).write_parquet(place.folder / "rest.parquet")
    with pytest.raises(InputError, match="is of CSV, and other files of the table have a point"):
        place.ingested(table=["trips.csv", "rest.parquet"], csv={"decimal": ","})


DROPPED = "Some listed codes begin with 0, which programs that read them as numbers drop."
LISTED = ["101", "2025-11-01"]


@pytest.mark.parametrize(("codes", "values", "ending", "of_type", "hint"), [
    (LISTED, [101.0, 102.5], "parquet", "DOUBLE", "BIGINT::VARCHAR"),
    (LISTED, [datetime(2025, 11, 1, 7), DAYS[0]], "parquet", "TIMESTAMP", "::DATE::VARCHAR"),
    (LISTED, [day.replace(tzinfo=UTC) for day in DAYS], "parquet", "TIMESTAMP WITH TIME ZONE", "timezone('Europe/Rome', \"home\")::DATE::VARCHAR"),
    (LISTED, [True, False], "parquet", "BOOLEAN", '"home"::INT::VARCHAR'),
    (LISTED, [["101"], ["101"]], "parquet", "VARCHAR[]", '"home"[1]::VARCHAR'),
    # with zeros before the digits if, and as far as, all codes of the codebook have them
    (["01001", "44007"], [1001.0], "parquet", "DOUBLE", """lpad("home"::BIGINT::VARCHAR, 5, '0')"""),
    (["0", "10"], [1001.0], "parquet", "DOUBLE", 'as "home"::BIGINT::VARCHAR in'),
    (["01", "44"], [7], "parquet", "BIGINT", """for example as lpad("home"::VARCHAR, 2, '0') in a view. Add"""),
    (["071", "110", "ZZ"], [7], "duckdb", "BIGINT", """for example as lpad("home"::VARCHAR, 3, '0') in a view. Add"""),
    # where codes of digits have several lengths, or the file has no types, why they differ
    (["01", "001"], [7], "parquet", "", DROPPED),
    (["01", "44"], [7], "csv", "", DROPPED),
    (["0", "44"], [7], "parquet", "", "Codes are compared as text, "),
])  # fmt: skip
def test_other_values_are_refused_by_their_type(place, capfd, codes, values, ending, of_type, hint):
    """Where the codebook lacks a value of a typed column, its type is told, with the cast that writes codes as the codebook does."""
    place.write("places.csv", lines(("region", "place"), *(("R", code) for code in codes)))
    table = pl.DataFrame({"home": values, "work": codes[:1] * len(values), "people": [1] * len(values)})
    error, _ = place.refusal(capfd, table=saved(table, place.folder / f"t.{ending}"), **PLACES)
    told = f"; column home is of type {of_type}" if of_type else ""
    assert str(error) == f"input.table: column home has codes that the codebook lacks{told}."
    assert hint in error.hint
    assert values != [7] or ("begin with 0" in error.hint) == (hint == DROPPED)


@pytest.mark.parametrize(("kind", "value"), [
    ("STRUCT(a ENUM('{0}', ')'))", "{{'a': '{0}'}}"),
    ("ENUM('{0}')[]", "['{0}']"),
    ("MAP(ENUM('{0}'), ENUM('{0}'))", "MAP {{'{0}': '{0}'}}"),
])  # fmt: skip
def test_a_type_that_lists_values_is_named_without_them(refusing, capfd, kind, value):
    """Some types list the values that a column has; a refusal names the type alone, of codes and of counts."""
    for number, columns in enumerate(("home {0}, work VARCHAR, people INT", "home VARCHAR, work VARCHAR, people {0}")):
        row = [f"'{N2}'", f"'{N2}'", value.format(N1)] if number else [value.format(N1), f"'{N2}'", "1"]
        name, made = f"of_{number}_{len(kind)}.duckdb", f"CREATE TABLE t ({columns.format(kind.format(N1))})"
        in_duckdb(refusing.folder / name, made, f"INSERT INTO t VALUES ({', '.join(row)})")
        error, _ = refusing.refusal(capfd, table=f"{name}::t")
        assert "is of type " in str(error)


def test_rows_with_a_time_zone_are_the_same_rows_everywhere(place, monkeypatch):
    """Times with a zone are the same text, and the same records, whatever the zone of the machine is."""
    hour = {"from": {"column": "at", "take": "hour", "zone": "Europe/Rome"}}
    found = set()
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        tzset()
        table = {"at": [day.replace(tzinfo=UTC) for day in DAYS], "work": ["a", "b"]}
        pl.DataFrame(table).write_parquet(place.folder / f"{zone[:3]}.parquet")
        keys = of_features(f"{zone[:3]}.parquet", {"hour": hour, "work": {"values": ["a", "b"]}})
        found.add(place.records(**keys))
        assert place.ingested(**keys) == {("1", "a"): 1, ("1", "b"): 1}
    assert len(found) == 1
    monkeypatch.undo()
    tzset()


@pytest.mark.parametrize(("in_table", "in_codebook"), [(NFC, NFD), pytest.param(NFD, NFC, marks=pytest.mark.thorough)])
def test_codes_are_compared_in_one_form_of_unicode(place, in_table, in_codebook):
    """An accent may be a character of its own: in the table, the codebook, the names, the spec and a query it is the same code."""
    # So is a recoded code, that of records whose code is not listed, and the first letters of a longer one.
    place.write("places.csv", f"region,place\nR,{in_codebook}\nR,b\n")
    place.write("changes.csv", f"was,is\n{in_table} 1,{in_codebook}\n")
    place.write("trips.csv", lines(HEADER, (f"{in_codebook} 1", "b", 3), ("?", "b", 4)))
    recode = {"recode": {"table": "changes.csv", "from": "was", "to": "is"}}
    keys = {"hierarchy": {"table": "places.csv", "levels": ["region", "place"], "unlisted": in_table} | recode}
    assert place.ingested(**PLACES, also=keys) == {(NFC, "b"): 7}
    assert Values.model_validate({"values": [in_codebook], "unlisted": in_table}).unlisted == NFC
    place.write("trips.csv", lines(HEADER, (f"{in_table} 8001", "b", 3), (f"{in_codebook}-West", "b", 4)))
    assert place.ingested(**PLACES, origin={"column": "home", "first": len(NFC)}) == {(NFC, "b"): 7}
    place.write("trips.csv", lines(HEADER, (in_table, "b", 300), (in_codebook, "b", 400)))
    place.write("places.csv", f"region,place,name\nR,{in_codebook},Stadt {in_codebook}\nR,b,B\n")
    assert place.ingested(**PLACES) == {(NFC, "b"): 700}
    labels = {"hierarchy": {"table": "places.csv", "levels": ["region", "place"], "labels": {"place": "name"}}}
    folder = place.release(levels=["region", "place"], also=labels)
    for asked in (in_table, in_codebook, f"Stadt {in_table}"):
        assert query_answer(folder, asked, None, [], simultaneous=False).where["origin"].path == ["R", NFC]
    for of, key in ((Values, "values"), (Ordered, "ordered")):
        assert of.model_validate({key: [in_table, "b"]}) == of.model_validate({key: [in_codebook, "b"]})


@pytest.mark.parametrize("rows", [[("R", NFC), ("R", NFD)], [(NFC, "a"), (NFD, "b")]])
def test_a_codebook_with_both_forms_of_a_code_is_refused(place, rows):
    """At the finest level and above it, a code that is written in two ways is named."""
    place.write("places.csv", lines(("region", "place"), *rows))
    with pytest.raises(InputError, match=f"writes {NFC} in two ways"):
        place.plan(**PLACES)


def in_parts(folder, ending, parts):
    """Write rows of trips into a file for each part, in an order of columns that changes from file to file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(parts):
        table = pl.DataFrame(list(map(tuple, rows)), schema=HEADER, orient="row")
        saved(table.select(table.columns[:: 1 if number % 2 else -1]), folder / f"{number}{ending}")


SINGLE = [[trip] for trip in TRIPS]


@pytest.mark.parametrize(("place_of", "ending"), [
    *(("{0}", ending) for ending in (".csv", ".csv.gz", ".csv.zst", ".parquet", ".ndjson")),
    *((pattern, ".parquet") for pattern in ("{0}/", "{0}/*", "{0}/*{1}", "{0}/[0-9]{1}", "p*/**/*{1}")),
    ("{0}/*{1}", ".csv"),
    (["{0}/0{1}", "{0}/1{1}", "{0}/2{1}"], ".csv"),
    (["{0}/2{1}", "{0}/0{1}", "{0}/1{1}"], ".csv"),
])  # fmt: skip
def test_rows_in_several_files_are_one_table(place, ending, place_of):
    """A folder, a pattern and a list hold the rows of their files; `check` finds them; the ledger knows the rows whatever files have them."""
    plain = place.records()
    in_parts(place.folder / "parts", ending, SINGLE)
    in_parts(place.folder / "parts" / "_temporary", ending, SINGLE[:1])
    (place.folder / "parts" / "_SUCCESS").touch()
    (place.folder / "parts" / ".hidden.csv").write_text("a,b\n")
    names = [of.format("parts", ending) for of in ([place_of] if isinstance(place_of, str) else place_of)]
    table = names[0] if isinstance(place_of, str) else names
    assert place.ingested(table=table) == GOOD
    assert place.problems(table=table) == ""
    assert place.records(table=table) == plain


@pytest.mark.parametrize("table", ["years", "years/*/*/*.csv", "years/**/*.csv"])
def test_names_of_folders_are_columns(place, table):
    """A table that is partitioned by folders has a column for each, as text, with what their names hide; one file has none."""
    for number, (home, work, count) in enumerate(TRIPS):
        folder = place.folder / "years" / f"home={home}" / f"kind=a%2F{number}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"work,people\n{work},{count}\n")
    assert place.ingested(table=table) == GOOD
    with duckdb.connect() as con, opened(con, table_at("input.table", table, place.folder)) as rows:
        assert rows.names == ["work", "people", "home", "kind"]
        read = con.sql(f"SELECT * FROM {rows.scan(['kind'])}").fetchall()
        assert sorted(value for value, *_ in read) == ["a/0", "a/1", "a/2"]
    for below in ("", "/*/*.csv"):
        assert place.ingested(table=f"years/home={N1}{below}") == {TRIPS[0][:2]: TRIPS[0][2]}
    with pytest.raises(InputError, match="has no column home"):
        place.ingested(table=f"years/home={N1}/kind=a%2F0/part.csv")


@pytest.mark.parametrize(("table", "name", "content", "told"), [
    ("parts", "odd.csv", "home,Work,people\n", r"has no column work in file 4 of 4"),
    ("parts/*/*", "odd.csv", "home,Work,people\n", r"has no column work in file 4 of 4"),
    ("parts", "odd.csv", "home;work;people\n", r"file 4 of 4 must use commas"),
    ("parts/*/*", "odd.csv", b"\x1f\x8b\x08", r"file 4 of 4 cannot be read as CSV in UTF-8"),
    ("parts", "odd.csv.gz", "", r"has files that end in \.csv and in \.csv\.gz"),
    ("parts/*/*", "odd.txt", "", r"input\.table must name files that end in .* and parts/\*/\* finds others"),
])  # fmt: skip
def test_files_that_are_found_are_named_to_the_caller_alone(place, capfd, table, name, content, told):
    """The names of files in a folder may be codes: a refusal has their number, and the caller hears which file that is."""
    in_parts(place.folder / "parts" / f"home={N1}", ".csv", SINGLE)
    named = f"x{UNKNOWN}-{name}"
    place.write(f"parts/home={N1}/{named}", content)
    with pytest.raises(InputError, match=told) as refused:
        place.ingested(table=table)
    assert not any(code in shown_by(refused.value) for code in (N1, UNKNOWN))
    assert (named in capfd.readouterr().err) == (name != "odd.csv.gz")


def test_files_that_are_passed_over_are_counted_for_the_caller(place, capfd):
    """By their endings, before a table is charged and by `check`; hidden files and what programs leave are not worth a word."""
    in_parts(place.folder / "parts", ".csv", SINGLE)
    for name in ("a.TXT", "b.tsv", "c.tsv", "none", "_may.csv", "_SUCCESS", ".hidden.csv"):
        place.write(f"parts/{name}", "")
    told = "input.table passes over files: (none) (1), .tsv (2), .txt (1), _*.csv (1).\n"
    new_release(place.plan(table="parts"))
    assert capfd.readouterr().err == told
    assert place.problems(table="parts") == ""
    assert capfd.readouterr().err == told


@pytest.mark.parametrize("ending", [".csv", ".ndjson", ".parquet"])
def test_files_of_which_only_folders_share_a_column(place, ending):
    """A column that the names of folders have is read beside files that have no column in common, and one has it itself."""
    for home, name in ((N1, "home"), (S1, "other")):
        folder = place.folder / "parts" / f"home={home}"
        in_parts(folder, ending, [])
        saved(pl.DataFrame({name: ["x", "y"]}), folder / f"0{ending}")
    with duckdb.connect() as con, opened(con, table_at("input.table", "parts", place.folder)) as rows:
        assert sorted(con.sql(f"SELECT * FROM {rows.scan(['home'])}").fetchall()) == [(N1,), (N1,), (S1,), (S1,)]


def test_files_of_a_list_may_be_written_in_different_ways(place):
    """Each file is read as it is written: packed, in another encoding, with other columns, and with typed ones."""
    first, second, third = TRIPS
    place.write("one.csv", lines(HEADER, first).encode("utf-16"))
    place.write("two.csv.gz", gzip.compress(lines(("x", "people", "work", "home"), (0, *second[::-1])).encode()))
    typed = pl.DataFrame([third], schema=HEADER, orient="row").cast({"people": pl.Float64})
    saved(typed, place.folder / "three.parquet")
    assert place.ingested(table=["one.csv", "two.csv.gz", "three.parquet"]) == GOOD


def test_many_files_are_read_in_one_pass(place, monkeypatch):
    """A hundred files give the sums of all their rows and the fingerprint of one file, with one read of all, and one once more."""
    rows = [(N1, N2, number % 5) for number in range(1_000)]
    in_parts(place.folder / "many", ".parquet", [rows[first::100] for first in range(100)])
    reads = list[int]()

    def counted(form, of_form, *given):
        reads.append(len(of_form))
        return reading(form, of_form, *given)

    reading = files._reading
    monkeypatch.setattr(files, "_reading", counted)
    assert place.ingested(table="many") == {(N1, N2): 2_000}
    found = place.records(table="many")
    assert [many for many in reads if many > 1] == 2 * [50, 50]  # the two orders of columns, for each
    place.write("trips.csv", lines(HEADER, *rows))
    assert found == place.records()


@pytest.mark.thorough  # ten million rows
@pytest.mark.heavy("ten million rows")
def test_ten_million_rows_in_files_need_no_more_memory_than_their_bound(tmp_path):
    """The fingerprint takes no more than DuckDB's batches beside the plan; ingest that and its share; every record arrives."""
    rows, batches = 10_000_000, 2**26  # the rows as Arrow would be 500 MB
    spec = filled_files(40, rows, 100_000, tmp_path)
    plan, fingerprint, taken_in = (taken(spec, step) for step in ("plan", "fingerprint", "ingest"))
    assert fingerprint.peak <= plan.peak + batches
    assert taken_in.peak <= plan.peak + DUCKDB + batches
    assert taken_in.records == sum(1 + n % 3 for n in range(1, rows + 1))


@pytest.mark.parametrize(("table", "told"), [
    ("nothing/*.csv", "there is no file"),
    ("empty", "there is no file"),
    ("p*", "there is no file"),  # but folders, whose files the next pattern finds
    (["parts/0.csv", "./parts/0.csv"], "must name each file once"),
    (["parts/0.csv", "parts/9.csv"], "there is no file"),
    (["parts/0.csv", "codes.xlsx"], "must name files that end in"),
    (["postgresql://a/b::c.d"], "must be a file"),
    ([], "must not be empty"),
    *((of_both, r"has files that end in \.csv and in \.parquet") for of_both in ("both", "both/*", "b*/0*")),
    *((of_packed, r"has files that end in \.csv and in \.csv\.gz") for of_packed in ("packed", "packed/*", ["packed/0.*"])),
    *((of_linked, "must name each file once") for of_linked in ("linked", "linked/*", ["linked/hard.csv", "linked/0.csv"])),
])  # fmt: skip
def test_places_without_a_table_are_refused(place, table, told):
    """What finds no file, a file twice, or files that may hold the same rows, is refused by the key."""
    made = {"parts": [".csv"], "both": [".csv", ".parquet"], "packed": [".csv", ".csv.gz"], "linked": [".csv"]}
    for folder, ending in ((folder, ending) for folder, endings in made.items() for ending in endings):
        in_parts(place.folder / folder, ending, SINGLE)
    (place.folder / "linked" / "hard.csv").hardlink_to(place.folder / "linked" / "0.csv")
    (place.folder / "empty").mkdir()
    (place.folder / "codes.xlsx").touch()
    with pytest.raises((InputError, SpecError), match=told) as refused:
        place.plan(table=table)
    assert refused.value.field == "input.table"
    assert table != "p*" or "finds folders" in refused.value.hint


def test_a_codebook_is_no_file_of_the_table(place):
    """Whichever of the files of the confidential table a codebook is, it is refused, and a copy of it too."""
    in_parts(place.folder / "parts", ".csv", SINGLE)
    place.write("copy.csv", (place.folder / "parts" / "1.csv").read_bytes())
    for codebook in ("parts/1.csv", "copy.csv", "parts"):
        with pytest.raises(InputError, match="confidential table"):
            place.in_vault(table="parts", codebook=codebook, levels=["home", "work"])


def test_what_is_published_of_places_has_no_folders(place):
    """The manifest names the files of a list, and the last part of a pattern."""
    in_parts(place.folder / "parts", ".csv", SINGLE)
    several = ["parts/0.csv", "parts/1.csv", "parts/2.csv"]
    for table, published in ((several, ["0.csv", "1.csv", "2.csv"]), ("parts/*.csv", "*.csv")):
        assert load_spec(place.spec(table=table)).published()["input"]["table"] == published


RENAMED = {"origin": "h", "destination": "w", "count": "n"}
SHOWN = "SELECT home AS h, work AS w, people AS n FROM"


@pytest.fixture(params=["read_csv('{}', all_varchar = true)", "'{}'", "raw"])
def through_view(place, request):
    """Return the location of a view that shows the trips under other names: of a function, of a file, or of another view."""
    file = place.folder / place.write("trips.csv", "home,work,people\na,b,3\nb,a,400\n")
    raw = f"CREATE VIEW raw AS FROM read_csv('{file}', all_varchar = true)"
    in_duckdb(place.folder / "views.duckdb", raw, f'CREATE VIEW "Ways" AS {SHOWN} {request.param.format(file)}')
    return "views.duckdb::ways"


def test_a_file_is_recognised_behind_a_view(place, through_view):
    """A table that was charged through a view of a file is asked about as that file, and the other way round."""
    place.write("codebook.csv", "region,place\nR,a\nR,b\n")
    levels = ["region", "place"]
    place.reserve("first", table=through_view, levels=levels, **RENAMED)
    with pytest.raises(UsageError, match="was used by dataset first"):
        place.reserve("second", levels=levels)
    place.write("other.csv", "home,work,people\na,b,5\nb,a,600\n")
    place.reserve("third", table="other.csv", levels=levels)
    in_duckdb(place.folder / "more.duckdb", f"CREATE VIEW ways AS {SHOWN} '{place.folder / 'other.csv'}'")
    with pytest.raises(UsageError, match="was used by dataset third"):
        place.reserve("fourth", table="more.duckdb::ways", levels=levels, **RENAMED)


@pytest.mark.parametrize("codebook", ["trips.csv", "views.duckdb::zones"])
def test_a_codebook_is_not_behind_the_view_of_the_table(place, codebook):
    """The file that a confidential view shows is no codebook, and neither is a view of the confidential file."""
    file = place.folder / "trips.csv"
    zones = f"CREATE VIEW zones AS SELECT DISTINCT home[1:2] AS region, home AS place FROM '{file}'"
    in_duckdb(place.folder / "views.duckdb", zones)
    in_duckdb(place.folder / "table.duckdb", f"CREATE VIEW ways AS {SHOWN} '{file}'")
    levels = ["region", "place"] if "zones" in codebook else ["home", "work"]
    for table in ({"table": "table.duckdb::ways"} | RENAMED, {}):
        with pytest.raises(InputError, match=r"the confidential table|is a view of another file"):
            place.plan(codebook=codebook, levels=levels, **table)


IN_A_LOG = r"must hold all its rows itself, and log\.duckdb\.wal has changes to it"


@pytest.mark.parametrize(("location", "told", "hint"), [
    ("city.duckdb::way", r"city\.duckdb has no table way", "Did you mean Ways?"),
    ("city.duckdb::TRIP", r"city\.duckdb has no table TRIP", "Did you mean trips?"),
    ("city.duckdb::qqqqq", r"city\.duckdb has no table qqqqq", "SHOW ALL TABLES"),
    ("log.duckdb::trips", IN_A_LOG, ""),
    ("link.duckdb::trips", IN_A_LOG, ""),
])  # fmt: skip
@pytest.mark.parametrize("key", ["table", "codebook"])
def test_a_table_that_is_not_there_or_not_whole_is_told(place, key, location, told, hint):
    """The nearest name in a DuckDB file, or how to list them; and that some rows are in a second file, also through a link."""
    for name in ("city.duckdb", "log.duckdb"):
        in_duckdb(place.folder / name, "CREATE TABLE trips (home VARCHAR)", 'CREATE VIEW "Ways" AS FROM trips')
    (place.folder / "link.duckdb").symlink_to(place.folder / "log.duckdb")
    place.write("log.duckdb.wal", "changes")
    with pytest.raises(InputError, match=told) as refused:
        place.ingested(**{key: location})
    assert hint in refused.value.hint


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("key", ["table", "codebook"])
def test_a_file_that_another_program_writes_to_is_told(place, key, elsewhere):
    """A DuckDB file that is open for writing, in another process or in this one, has its own sentence and mend."""
    path = place.folder / "city.duckdb"
    in_duckdb(path, "CREATE TABLE trips (home VARCHAR)")
    if elsewhere:
        program = f"import duckdb, sys; con = duckdb.connect({str(path)!r}); print(flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            with pytest.raises(InputError, match=r"city\.duckdb is open in another program") as refused:
                place.ingested(**{key: "city.duckdb::trips"})
            holder.communicate(b"")
    else:
        with duckdb.connect(str(path)), pytest.raises(InputError, match=r"is open in another program") as refused:
            place.ingested(**{key: "city.duckdb::trips"})
    assert "Close it there" in refused.value.hint


@pytest.mark.parametrize("name", ["empty.ndjson", "empty.csv", "empty.parquet", "empty.csv.zst", "wrong.ndjson"])
def test_files_that_hold_no_table_are_refused_by_their_name(place, name):
    """A file without a byte, or without what its name says, is told by its name, and nothing of it is shown."""
    place.write(name, f"{N1} is no object\n" if name.startswith("wrong") else "")
    with pytest.raises(InputError, match=f"input.table: {name} ") as refused:
        place.ingested(table=name)
    assert N1 not in shown_by(refused.value)

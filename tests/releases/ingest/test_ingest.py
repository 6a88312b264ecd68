"""Tables and codebooks: the good are summed as they are, the bad refused before anything is spent or left behind."""

import gzip
import re
import shutil
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.specification.file import load_spec
from storage.errors import InputError, SpecError, StageFailed
from storage.machine.caller import print_as
from tasks.ingest.codebook import read_codebook
from tasks.ingest.sources.locations import table_at
from tasks.ingest.task import read_in_memory
from tasks.ingest.trips import Units
from tests.support.tables import AREAS, GOOD, HEADER, LEVELS, N1, N2, S1, SECRETS, TRIPS, UNKNOWN, csv, shown_by, trips

BLANK_CODE, UNKNOWN_CODE = "must not be empty", "has codes that the codebook lacks"
NEGATIVE, FRACTIONAL, OVERFLOW = "must be >= 0", "must hold whole numbers", "must hold numbers below 2**63"
TABLE, CODES, COUNT = "input.table", "hierarchy.table", "input.count"
NOBODY = "input.table has no records, so there is nothing to release."
NO_NAMES = "input.table: trips.csv has no line of column names."
BREAK = "input.table: trips.csv must have no line break in a column name."
TOO_MANY = "input.table: the counts must add up to at most 2**40."
UNREADABLE = "input.table: trips.csv cannot be read as CSV in UTF-8."
LACKS = "input.table: trips.csv has no column {}."
FIRST = ",".join(map(str, TRIPS[0]))
PATH_COLUMNS = ["h1", "h2", "h3", "w1", "w2", "w3", "people"]
BY_PATH = {"origin": PATH_COLUMNS[:3], "destination": PATH_COLUMNS[3:6]}


def codebook(*rows):
    """Return the codebook, its good rows and then these, as CSV."""
    return {"codebook": csv(LEVELS, [*AREAS, *rows])}


def by_path(path):
    """Return trips by paths of codes, of which one is this."""
    return {"trips": csv(PATH_COLUMNS, [(*AREAS[0], *AREAS[0], 5), (*path, *AREAS[0], 7)])}


# the table of trips and the codebook, where they are others; keys of the spec; the field; and what the error says
REFUSED = {
    "no table": ({}, {"table": "nothing.csv"}, TABLE, "there is no file"),
    "no origin": ({}, {"origin": "from"}, TABLE, LACKS.format("from")),
    "no unit": ({}, {"unit": "person"}, TABLE, LACKS.format("person")),
    "no first of two": ({}, {"origin": ["home", "x", "y"]}, TABLE, LACKS.format("x")),
    "no header": ({"trips": csv([*map(str, TRIPS[0])], TRIPS[1:])}, {}, TABLE, "has no column home"),
    "header only": ({"trips": csv(HEADER, [])}, {}, TABLE, NOBODY),
    "all zero": ({"trips": csv(HEADER, [(N1, N2, 0)])}, {}, TABLE, NOBODY),
    "no byte": ({"trips": ""}, {}, TABLE, NO_NAMES),
    "a large total": ({"trips": trips((N1, N1, 2**40))}, {}, COUNT, TOO_MANY),
    "a total beyond 64 bits": ({"trips": trips(*[(N1, N1, 2**62)] * 4)}, {}, COUNT, TOO_MANY),
    "an open quote in the header": ({"trips": f'home,work,"people\n{FIRST}\n'}, {}, TABLE, BREAK),
    "a header of two lines": ({"trips": f'home,work,"people\n{FIRST}"\n'}, {}, TABLE, BREAK),
    "a remark": ({"trips": f"{trips()}# people who moved\n#{UNKNOWN},{N1},5\n"}, {}, TABLE, UNREADABLE),
    "a better header below": ({"trips": csv(HEADER, TRIPS[:1]) + csv((*HEADER, "note"), [(*trip, "x") for trip in TRIPS] * 9)}, {}, TABLE, UNREADABLE),
    **{
        f"{key} parted by {said}": (
            {key: {"trips": trips(), **codebook()}[key].replace(",", mark)},
            *({}, field, f"must use commas between columns; it seems to use {said}."),
        )
        for key, field in (("trips", TABLE), ("codebook", CODES))
        for mark, said in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`"))
    },
    "two parents": (codebook(("02", "0101", "0101009")), {}, CODES, "an area of column province lies under two areas"),
    "an area twice": (codebook(AREAS[2]), {}, CODES, "column municipality repeats an area"),
    "no areas": ({"codebook": csv(LEVELS, [])}, {}, CODES, "has no rows"),
    "a missing level": ({}, {"levels": ["region", "provincia", "municipality"]}, CODES, "has no column provincia"),
    "a codebook without a byte": ({"codebook": ""}, {}, CODES, "has no line of column names"),
    "levels in reverse": (
        {"codebook": csv(["area", "zone"], [(f"D{number}", f"R{number // 5}") for number in range(20)])},
        *({"levels": ["area", "zone"]}, "hierarchy.levels", "must go from coarse to fine, and looks reversed"),
    ),
    "a path twice": (codebook(AREAS[2]) | by_path(AREAS[1]), BY_PATH, CODES, "repeats an area"),
    "an unknown path": (  # of which all codes are known
        by_path(("01", "0102", N1)),
        *(BY_PATH, "input.origin", f"input.table: column h1 and h2 and h3 {UNKNOWN_CODE}."),
    ),
    "a path with a gap": (by_path(("01", "", N1)), BY_PATH, "input.origin", f"input.table: column h1 and h2 and h3 {BLANK_CODE}."),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_released_is_refused(refusing, capfd, what):
    """A table or a codebook that is not as the spec has it is refused by its key and its rule."""
    files, keys, field, says = REFUSED[what]
    for name, content in files.items():
        refusing.write(f"{name}.csv", content)
    error, _ = refusing.refusal(capfd, **keys)
    assert error.field == field
    assert str(error).startswith((field, "input.table"))
    assert str(error) == says if says.startswith("input.table") else says in str(error)


HOME, WORK = ("input.origin", "home"), ("input.destination", "work")
NO_NUMBERS = ("271 828", "0x10", "5 or so", "٣")  # which are no survey weights
FAULTY_ROWS = {
    "unknown home": ([(UNKNOWN, N1, 1)], HOME, UNKNOWN_CODE),
    "unknown work": ([(N1, UNKNOWN, 1)] * 3, WORK, UNKNOWN_CODE),
    "unknown, nobody": ([(UNKNOWN, N1, 0)], HOME, UNKNOWN_CODE),
    "thousands": ([(UNKNOWN, N1, 1)] * 1234, HOME, UNKNOWN_CODE),
    "blank home": ([("", N1, 1)], HOME, BLANK_CODE),
    "spaces for work": ([(N1, "  ", 1)], WORK, BLANK_CODE),
    **{
        f"{count or 'no'} count": ([(N1, N1, count)] * 2, (COUNT, "people"), rule)
        for rule, counts in {
            BLANK_CODE: ("", "  "),
            NEGATIVE: ("-314159", "-0.5", "-inf"),
            FRACTIONAL: ("271828.5", "3.0000000000000000001", "271828e3", "nan", "inf", *NO_NUMBERS),
            OVERFLOW: (2**63, 2**64, "271828" * 17),
        }.items()
        for count in counts
    },
}


@pytest.mark.parametrize("fault", FAULTY_ROWS)
def test_faulty_rows_are_refused(refusing, capfd, fault):
    """Rows that break a rule are refused by column and rule; how many they are is said on the terminal, never which."""
    rows, (field, column), rule = FAULTY_ROWS[fault]
    refusing.write("trips.csv", trips(*rows))
    error, said = refusing.refusal(capfd)
    assert str(error) == f"input.table: column {column} {rule}."
    assert error.field == field
    assert ("Add every possible code to the codebook" in error.hint) == (rule == UNKNOWN_CODE)
    may_be_weight = rule == FRACTIONAL and rows[0][2] not in NO_NUMBERS
    assert ("docs/how-to/shape-your-table.md#survey-weights" in error.hint) == may_be_weight
    assert said == ("1 row is at fault.\n" if len(rows) == 1 else f"{len(rows):,} rows are at fault.\n")


def test_a_refused_release_touches_nothing_and_the_checks_have_power(place, capfd):
    """Refused by its plan, before it is reserved or by ingest; a good one leaves what is checked for: shards, a folder and a ledger."""
    place.write("twice.csv", codebook(AREAS[2])["codebook"])
    place.write("latin.csv", trips().encode() + b"\xe9\n")
    place.write("unknown.csv", trips((UNKNOWN, N1, 5)))
    for keys in ({"codebook": "twice.csv"}, {"table": "latin.csv"}, {"table": "unknown.csv"}):
        place.refusal(capfd, released=True, **keys)
    assert place.release().parent == place.folder / "out"
    for _ in ("with the folder", "without"):
        with pytest.raises(AssertionError):
            place.assert_untouched()
        shutil.rmtree(place.folder / "out", ignore_errors=True)
    sys.stderr.write(str(TRIPS))
    assert any(secret in capfd.readouterr().err for secret in SECRETS)


BROKEN = {  # of a table and its last row; the hint
    "CSV named Parquet": ("table.parquet", lambda good, _: good, ""),
    "a cut gzip": ("cut.csv.gz", lambda good, _: gzip.compress(good)[:-12], "incomplete"),
    "CSV named DuckDB": ("table.duckdb::table", lambda good, _: good, None),
    "gzip named CSV": ("zipped.csv", lambda good, _: gzip.compress(good), "must end in .csv.gz"),
    "not UTF-8": ("latin.csv", lambda good, row: good + b"\xe9" + row, "iconv"),
    "a column too many": ("long.csv", lambda good, row: good + b"9," + row, "more or fewer fields"),
    "an open quote": ("quote.csv", lambda good, row: good + b'"' + row, "A quote is not closed"),
    "LF, then CRLF": ("ends.csv", lambda good, row: good + row.replace(b"\n", b"\r\n"), "CRLF"),
    "CRLF, then LF": ("ends.csv", lambda good, row: good.replace(b"\n", b"\r\n") + row, "CRLF"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_refused(refusing, capfd, kind):
    """A file that is not what its name says is refused by the key that names it, with its cause; nothing of it is quoted."""
    name, spoil, hint = BROKEN[kind]
    file = name.partition("::")[0]
    areas = csv(LEVELS, [("03", "0301", f"030100{number}") for number in range(9)])
    # a short table is seen with its header, and of a long one the fault is seen later
    for key, good in (("table", trips()), ("table", trips(*TRIPS * 3_000)), ("codebook", areas)):
        refusing.write(file, spoil(good.encode(), good.encode().splitlines(keepends=True)[-1]))
        error, _ = refusing.refusal(capfd, **{key: name})
        assert error.field == {"table": TABLE, "codebook": CODES}[key]
        assert str(error).startswith(f"{error.field}: {file} ")
        if hint is not None and key == "table":
            assert hint in error.hint
            assert bool(hint) == bool(error.hint)


def test_a_table_without_rows_is_told_to_the_caller_alone(place, capfd):
    """Where the total is not public, no rows are no reason to refuse: the caller hears of it, and nobody else."""
    told = "input.table has no records: it has no rows, or no row with a count above 0.\n"
    source = load_spec(place.spec()).source()
    for content in (csv(HEADER, []), csv(HEADER, [(N1, N2, 0)]), trips()):
        place.write("trips.csv", content)
        for heard in (True, False):
            print_as(heard=heard)
            read_in_memory(source, Units(None, 1, distinct=False, exact=False), (0, 0))
            assert capfd.readouterr() == ("", told if heard and content != trips() else "")


def test_the_confidential_table_is_no_codebook(place, capfd):
    """The table, under another name too, a copy of it, and what has the columns of both ends are refused: they tell who travels."""
    rows = [(*area, area[2], work, people) for area, (_, work, people) in zip(AREAS, TRIPS, strict=False)]
    name = place.write("both.csv", csv([*LEVELS, "home", "work", "people"], rows))
    place.write("fewer.csv", csv([*LEVELS, "home", "work", "people"], rows[:-1]))
    shutil.copy(place.folder / name, place.folder / "copy.csv")
    (place.folder / "link.csv").symlink_to(place.folder / name)
    (place.folder / "further").mkdir()
    for same in (name, "copy.csv", "link.csv", f"further/../{name}", "fewer.csv"):
        error, _ = place.refusal(capfd, released=True, table=name, codebook=same)
        assert error.field == "hierarchy.table"
        assert ("has the columns of " if same == "fewer.csv" else "") + "the confidential table" in str(error)


def test_an_area_with_too_many_children_is_refused(refusing, capfd, monkeypatch):
    """Beyond 2**20 children of one area arithmetic could overflow: the level is named."""
    monkeypatch.setattr("tasks.ingest.codebook.MOST_CHILDREN", 1)
    error, _ = refusing.refusal(capfd)
    assert "must have at most 2**20 areas in one" in str(error)


def test_output_that_cannot_be_written_is_refused(place, capfd):
    """An output folder that is a file, or lies where nothing can be written, is refused before the table is read."""
    place.write("trips.csv", "not even a table")
    taken = place.folder / place.write("taken", "by a file")
    for folder in (taken, taken / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError, match="cannot be written") as caught:
            place.release(output=folder)
        assert caught.value.field == "output"
        place.assert_untouched()
    assert taken.read_text() == "by a file"
    assert capfd.readouterr() == ("", "")


@settings(max_examples=10)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([area[2] for area in AREAS]),
            st.sampled_from([area[2] for area in AREAS]),
            st.sampled_from([0, 1]) | st.integers(0, 2**30),
        ),
        min_size=1,
        max_size=30,
    ).filter(lambda rows: any(count for *_, count in rows))
)
def test_any_rows_are_summed_exactly(anyplace, rows):
    """Whatever the rows and their order, the vault holds the exact sum of each pair, and no pair of nobody."""
    anyplace.write("trips.csv", csv(HEADER, rows))
    sums = Counter()
    for home, work, count in rows:
        sums[home, work] += count
    assert anyplace.ingested() == {pair: count for pair, count in sums.items() if count}


def test_whole_numbers_may_be_written_in_several_ways(place):
    """A count that is whole is taken however it is written or typed, and 2**40 in all is not too much."""
    ways = ["3", "3.0", "3.", "3.00", "+3", "003", " 3 ", '"3"']
    for counts, total in (([*ways, 2**40 - 24], 2**40), ([2**39] * 2, 2**40)):
        place.write("trips.csv", csv(HEADER, [(N1, S1, count) for count in counts]))
        assert place.ingested() == {(N1, S1): total}
    place.write("trips.csv", csv(HEADER, [(N1, S1, "3.000")]))  # which may be 3000 where nobody says what the point is
    assert place.ingested(csv={"decimal": "."}) == {(N1, S1): 3}
    pl.DataFrame({"region": [1, 1, 2], "place": [11, 12, 21]}).write_parquet(place.folder / "codes.parquet")
    for kind in (pl.Int8, pl.Int64, pl.UInt64, pl.Float64, pl.Decimal(10, 2), pl.String):
        table = {"home": [11, 12, 21], "work": [21, 21, 21], "people": pl.Series([1, 100, 0]).cast(kind)}
        pl.DataFrame(table).write_parquet(place.folder / "trips.parquet")
        found = place.ingested(table="trips.parquet", codebook="codes.parquet", levels=["region", "place"])
        assert found == {("11", "21"): 1, ("12", "21"): 100}
    pl.DataFrame({"home": [11], "work": [21], "people": [True]}).write_parquet(place.folder / "trips.parquet")
    with pytest.raises(InputError, match=FRACTIONAL):  # whether somebody is there is no count
        place.ingested(table="trips.parquet", codebook="codes.parquet", levels=["region", "place"])


def named(*names):
    """Return the table of trips with columns of other names, and the keys of the spec that name them."""
    header = ['"' + name.replace('"', '""') + '"' for name in names]
    return {"trips.csv": csv(header, TRIPS)}, dict(zip(["origin", "destination", "count"], names, strict=True))


@pytest.mark.parametrize(("files", "keys"), [
    ({"trips*.csv": trips(), "trips_2.csv": trips()}, {"table": "trips*.csv"}),  # a name and no pattern
    ({"trips_?.csv": trips(), "trips_2.csv": trips()}, {"table": "trips_?.csv"}),
    ({"trips [1].csv": trips(), "trips 1.csv": trips()}, {"table": "trips [1].csv"}),
    ({"home=0201001/trips.csv": trips()}, {"table": "home=0201001/trips.csv"}),
    named("from", "select", "count(*)"),
    named("area", "code_0", "records"),
    named("area_0", "code_1", "true_count"),
    named('a "b"', "c; d", "é"),
], ids=["a star", "a question mark", "brackets", "a column", "SQL", "the query", "more of it", "signs"])  # fmt: skip
def test_names_are_names_whatever_they_look_like(place, files, keys):
    """Of files no pattern and no column, and of columns no SQL."""
    for name, content in files.items():
        place.write(name, content)
    assert place.ingested(**keys) == GOOD


def test_quoted_fields_are_read(place):
    """Codes with commas, quotes, line ends, signs and other letters are codes like any other, and no sign of other separators."""
    odd = ["a,b", 'say ""ah""', "two\nlines", "#1", "-", "é ñ", "'", " lead", "NULL", "\\N", "=1+1", "1e5"]
    plain = [code.replace('""', '"') for code in odd]
    place.write("codebook.csv", "region,place\n" + "".join(f'"R","{code}"\n' for code in odd))
    rows = "".join(f'"{code}","{odd[0]}",{n}\n' for n, code in enumerate(odd, 1))
    place.write("trips.csv", f'home,"work",people\n{rows}')
    assert place.ingested(levels=["region", "place"]) == {(code, plain[0]): n for n, code in enumerate(plain, 1)}
    table = table_at("a", place.write("codes.csv", "place\na;b\nc|d\n"), place.folder)
    assert read_codebook(table, ["place"], by_path=False, not_all_of=None)["place"].to_list() == ["a;b", "c|d"]


def test_one_line_that_never_ends_is_refused_before_it_is_read(place, capfd):
    """A few kilobytes of gzip may hold a line of any length: no more than a header of it is read."""
    place.write("trips.csv.gz", gzip.compress(b"home,work,people" + b"x" * 2**25))
    tracemalloc.start()
    error, _ = place.refusal(capfd, table="trips.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(error) == "input.table: trips.csv.gz cannot be read as CSV in UTF-8."
    assert "at most 1,048,576 characters" in error.hint
    assert peak < 2**24


def test_one_column_per_level_identifies_by_path(place):
    """With a column per level, equal codes under different parents are different areas, and are kept apart."""
    areas = [("N", "1", "1"), ("N", "1", "2"), ("N", "2", "1"), ("S", "1", "1")]
    place.write("codebook.csv", csv(LEVELS, areas))
    rows = [(*areas[0], *areas[2], 5), (*areas[0], *areas[3], 7), (*areas[3], *areas[0], 11), (*areas[0], *areas[2], 1)]
    place.write("trips.csv", csv(PATH_COLUMNS, rows))
    found = place.ingested(whole=True, **BY_PATH)
    assert found == {("N/1/1", "N/2/1"): 6, ("N/1/1", "S/1/1"): 7, ("S/1/1", "N/1/1"): 11}
    with pytest.raises(InputError, match="repeats an area"):
        place.plan(origin="h3", destination="w3")


def test_ingest_keeps_its_faults_to_itself(place, capfd, monkeypatch):
    """A fault that nobody foresaw is told by its kind and place, without the text and the chain that quote the data."""

    def fail(*_):
        try:
            {}[UNKNOWN]
        except KeyError as missing:
            raise OSError(f"{TRIPS} cannot be read") from missing

    monkeypatch.setattr("tasks.ingest.task.ingest_trips", fail)
    with pytest.raises(StageFailed) as caught:
        place.release()
    assert re.fullmatch(r"ingest stopped: OSError at tasks/ingest/task\.py:\d+\.", str(caught.value))
    shown = [shown_by(caught.value), *capfd.readouterr()]
    assert [secret for secret in SECRETS if any(secret in text for text in shown)] == []
    place.assert_untouched()


# England has regions; Wales and Scotland have none.
LOOKUP = "country,region,district\nE,E12,E0601\nE,E12,E0602\nE,E13,E0701\nW,,W0601\nW,,W0602\nS,  ,S1201\n"
OF_LOOKUP = {"table": "codebook.csv", "levels": ["country", "region", "district"]}
OWN = {"also": {"hierarchy": OF_LOOKUP | {"blank": "own_area"}}, "levels": OF_LOOKUP["levels"]}
TAKEN = "column region has a blank code, and another area there has the code that district"


@pytest.mark.parametrize(("lookup", "keys", "told", "hint"), [
    (LOOKUP, {}, "column region has a blank code in 3 rows: 4, 5, 6, not counting the header.", "blank: own_area"),
    (LOOKUP + "N,,N0\n" * 9, {}, "in 12 rows: 4, 5, 6, 7, 8 and others, not counting the header", ""),
    (LOOKUP + "W,W9,\n", OWN, "column district has a blank code in 1 row: 7,", ""),  # the finest
    (LOOKUP + ",,\n", OWN, "column district has a blank code in 1 row: 7,", ""),
    (LOOKUP + "E,W0601,E9\n", OWN, TAKEN, ""),  # no two areas become one
])  # fmt: skip
def test_a_blank_code_is_refused_by_its_row(place, lookup, keys, told, hint):
    """Blank parents are named by their rows, with the key that gives such areas a place where they may have one."""
    place.write("codebook.csv", lookup)
    with pytest.raises(InputError) as refusal:
        place.plan(**{"levels": OF_LOOKUP["levels"]} | keys)
    assert told in str(refusal.value)
    assert hint in refusal.value.hint


def test_an_area_without_a_parent_stands_alone(place):
    """At the levels that it lacks it has its own code and one child, and lies where its row says; paths of columns lack that code."""
    place.write("codebook.csv", LOOKUP + ",,X1\n")
    place.write("trips.csv", csv(HEADER, [("W0601", "E0601", 5), ("X1", "W0601", 7)]))
    assert place.ingested(**OWN) == {("W0601", "E0601"): 5, ("X1", "W0601"): 7}
    axis = place.plan(**OWN).tree.axes[0]
    assert [codes.to_list() for codes in axis.codes] == [
        ["E", "S", "W", "X1"],
        ["E12", "E13", "S1201", "W0601", "W0602", "X1"],
        ["E0601", "E0602", "E0701", "S1201", "W0601", "W0602", "X1"],
    ]
    assert [parent.tolist() for parent in axis.parent[1:]] == [[0, 0, 1, 2, 2, 3], [0, 0, 1, 2, 3, 4, 5]]
    with pytest.raises(SpecError, match=r"hierarchy\.blank must be refuse, since input\.origin names several columns"):
        place.plan(**OWN, origin=["a", "b", "c"], destination=["d", "e", "f"])


def test_a_row_is_not_told_as_the_nearest_column(place):
    """Where no column of the spec is in the first line, that line may be a record, and nothing of it is said."""
    place.write("trips.csv", "homer,worker\nE0601,W0601\n")  # no column of the spec: the line may be a record
    told = place.problems(count=None)
    assert "has no column home" in told
    assert "homer" not in told
    place.write("trips.csv", "homes,work\nE0601,W0601\n")
    assert "Did you mean homes?" in place.problems(count=None)

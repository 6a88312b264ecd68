"""Tables and codebooks: the good are summed as they are, the bad refused before anything is spent or left behind."""

import gzip
import re
import shutil
import sys
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import SpecFile, load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.counts.shards import read_codebook
from storage.counts.vault import vault
from storage.database.connections import store
from storage.errors import InputError, StageFailed, TrellisError
from storage.ledger.events import head
from storage.machine.caller import hear_as, heard_by_caller
from storage.machine.claims import shard_folder
from storage.machine.fingerprints import KEY
from storage.releases.register import list_releases
from tasks.ingest.codebook import read_codebook as read_table
from tasks.ingest.sources.locations import table_at
from tasks.ingest.task import ingest
from tasks.ingest.trips import Units

LEVELS = ["region", "province", "municipality"]
AREAS = [
    ("01", "0101", "0101001"),
    ("01", "0101", "0101002"),
    ("01", "0102", "0102001"),
    ("02", "0201", "0201001"),
]
TRIPS = [("0101001", "0101002", "271828"), ("0101002", "0201001", "314159"), ("0201001", "0101001", "141421")]

# Values of the confidential table that no message may show. Their digits come in no path, line number or message.
UNKNOWN = "0101777"
SECRETS = ("0101001", "0101002", "0201001", UNKNOWN, "271828", "314159", "141421")

Rows = Iterable[Sequence[object]]


def csv(header: Sequence[str], rows: Rows) -> str:
    """Return a CSV file of values that need no quotes."""
    return "".join(",".join(str(value) for value in row) + "\n" for row in [header, *rows])


def trips(*rows: Sequence[object], header: Sequence[str] = ("home", "work", "people")) -> str:
    """Return the table of trips, three good rows and then these, as CSV."""
    return csv(header, [*TRIPS, *rows])


@dataclass(frozen=True)
class Place:
    """A folder with a spec and its tables, a store, and a place to publish.

    Attributes:
        folder: holds `spec.yaml`, what the spec names, `home` and `out`.
    """

    folder: Path

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file and return its name."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def spec(self, *, trips: str = "trips.csv", codebook: str = "codebook.csv", **changes: Any) -> SpecFile:
        """Write a spec over these two tables and load it.

        Args:
            trips: the confidential table.
            codebook: the public one.
            changes: keys of `input`, `levels`, or `finest`, in place of the usual ones; None takes a key out.
        """
        levels, finest = changes.pop("levels", LEVELS), changes.pop("finest", LEVELS[-1])
        columns = {"origin": "home", "destination": "work", "count": "people"} | changes
        keys = {
            "name": "trips",
            "dataset": "people",
            "input": {"table": trips} | {key: value for key, value in columns.items() if value is not None},
            "hierarchy": {"table": codebook, "levels": levels},
            "release": {"tree": "destination", "finest": finest},
            "mechanism": "inftda",
            "privacy": {
                "unit": "one commuter",
                "neighbours": "substitution",
                "max_records_per_unit": 1,
                "epsilon": 4.0,
                "delta": 1e-8,
            },
            "budget": {"epsilon": 10.0, "delta": 1e-7},
            "output": "out",
        }
        return load_spec(self.folder / self.write("spec.yaml", yaml.safe_dump(keys)))

    def ingested(self, spec: SpecFile) -> dict[tuple[str, ...], int]:
        """Ingest a spec's table and return the vault's records: the codes of both ends, joined by `/`, and the count."""
        ingest.fn("a-release", spec.source(), Units(None, 1, distinct=False, exact=True), (0, 0), 2**30)
        ends = [read_codebook(shard_folder("a-release"), end).rows() for end in ("origin", "destination")]
        with vault("a-release") as con:
            records = con.execute("SELECT area_0, area_1, true_count FROM records").fetchall()
        found = {
            tuple("/".join(codes[area]) for codes, area in zip(ends, areas, strict=True)): count
            for *areas, count in records
        }
        assert len(found) == len(records), "a pair of areas appears twice"
        return found

    def assert_untouched(self) -> None:
        """Check that nothing was spent and nothing left behind."""
        assert not (self.folder / "out").exists()
        left = {path.name for path in (self.folder / "home").rglob("*") if path.is_file()}
        assert left <= {"store.duckdb", KEY}
        assert list((self.folder / "home" / "shards").glob("*")) == []
        with store() as con:
            assert head(con).length == 0
            assert list_releases(con) == []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a folder with three good trips, their codebook, and a store of its own; a caller hears what is told."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    place = Place(tmp_path)
    place.write("trips.csv", trips())
    place.write("codebook.csv", csv(LEVELS, AREAS))
    with heard_by_caller():
        yield place


def release(spec: SpecFile, output: Path | None = None) -> Path:
    """Release a spec with threads and without Prefect; return the published folder."""
    plan = make_plan(spec)
    made = new_release(plan, output)
    with ThreadPoolExecutor(2) as threads:
        make_release(plan, made, submit_to(threads), report_nothing)
    return Path(made.folder)


@contextmanager
def unheard() -> Iterator[None]:
    """Let no caller hear what is told inside, as in what a deployment runs."""
    hear_as(heard=False)
    try:
        yield
    finally:
        hear_as(heard=True)


def refused(place: Place, capfd: pytest.CaptureFixture[str], **spec: Any) -> tuple[InputError, str]:
    """Release a spec that is refused for its input; return the error and what was said on the terminal.

    Checks what holds of every refusal: it names a field and says so in one line, shows no confidential value, says
    nothing on stdout and at most a number of rows on stderr, and touches nothing.
    """
    with pytest.raises(InputError) as caught:
        release(place.spec(**spec))
    error, (stdout, stderr) = caught.value, capfd.readouterr()
    assert error.field
    assert "\n" not in str(error)
    assert stdout == ""
    assert re.fullmatch(r"(|1 row is at fault\.\n|[0-9,]+ rows are at fault\.\n)", stderr)
    shown = [*traceback.format_exception(error), repr(vars(error)), repr(error.args), stderr]
    assert [secret for secret in SECRETS if any(secret in text for text in shown)] == []
    place.assert_untouched()
    return error, stderr


def test_good_input_is_released(place):
    """The tables that the other tests spoil are good: they are ingested as they are, and released."""
    spec = place.spec()
    assert release(spec).is_dir()
    assert place.ingested(spec) == {
        ("01/0101/0101001", "01/0101/0101002"): 271828,
        ("01/0101/0101002", "02/0201/0201001"): 314159,
        ("02/0201/0201001", "01/0101/0101001"): 141421,
    }


def test_checks_of_refusals_have_power(place, capfd):
    """What every refusal is checked for would be noticed: a good release leaves shards, a folder and a ledger."""
    release(place.spec())
    with pytest.raises(AssertionError):
        place.assert_untouched()
    shutil.rmtree(place.folder / "out")
    with pytest.raises(AssertionError):
        place.assert_untouched()
    sys.stderr.write(str(TRIPS))
    assert any(secret in capfd.readouterr().err for secret in SECRETS)


def test_a_refusal_is_no_obstacle(place, capfd):
    """After a refusal the corrected table is released into the same store and folder."""
    place.write("trips.csv", trips((UNKNOWN, "0101001", 5)))
    refused(place, capfd)
    place.write("trips.csv", trips())
    assert release(place.spec()).parent == place.folder / "out"


def test_releases_of_the_same_second_leave_each_other_alone(place, monkeypatch):
    """Of two releases begun at once neither removes what the other has drawn, whatever becomes of it."""
    monkeypatch.setattr("storage.releases.register.utc_now", lambda: "2025-01-01T00:00:00Z")
    plan = make_plan(place.spec())
    first, second = new_release(plan), new_release(plan)
    with ThreadPoolExecutor(2) as threads:
        make_release(plan, first, submit_to(threads), report_nothing)
        drawn = sorted((place.folder / "home" / "shards" / first.id).iterdir())
        with suppress(TrellisError):
            make_release(plan, second, submit_to(threads), report_nothing)
    assert drawn
    assert [shard for shard in drawn if not shard.exists()] == []


def test_missing_files_are_refused(place, capfd):
    """A table or a codebook that is not there is refused by the key that names it."""
    error, _ = refused(place, capfd, trips="nothing.csv")
    assert (error.field, "there is no file" in str(error)) == ("input.table", True)
    error, _ = refused(place, capfd, codebook="nothing.csv")
    assert (error.field, "there is no file" in str(error)) == ("hierarchy.table", True)


@pytest.mark.parametrize(
    "columns", [{"origin": "from"}, {"destination": "HOME"}, {"count": "workers"}, {"origin": ["home", "x", "y"]}]
)
def test_missing_columns_are_refused(place, capfd, columns):
    """A column that the table lacks is named."""
    error, _ = refused(place, capfd, **columns)
    wanted = next(iter(columns.values()))
    assert str(error) == f"input.table: trips.csv has no column {wanted[1] if isinstance(wanted, list) else wanted}."
    assert error.field == "input.table"


def test_a_table_without_a_header_is_refused(place, capfd):
    """The first record of a table that has no header is not taken for one, nor shown."""
    place.write("trips.csv", csv(TRIPS[0], TRIPS[1:]))
    error, _ = refused(place, capfd)
    assert "has no column home" in str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("home,work,people\n", "input.table has no records, so there is nothing to release."),
        ("home,work,people", "input.table has no records, so there is nothing to release."),
        ("home,work,people\n0101001,0101002,0\n", "input.table has no records, so there is nothing to release."),
        ("", "input.table: trips.csv has no line of column names."),
    ],
    ids=["header only", "header without end", "all zero", "no byte"],
)
def test_empty_tables_are_refused(place, capfd, content, message):
    """A table without a record is refused."""
    place.write("trips.csv", content)
    error, _ = refused(place, capfd)
    assert str(error) == message


BLANK_CODE, UNKNOWN_CODE = "must not be empty", "has codes that the codebook lacks"
NO_COUNT, NEGATIVE, FRACTIONAL = "must not be empty", "must be >= 0", "must hold whole numbers"
OVERFLOW = "must hold numbers below 2**63"

FAULTY_ROWS = {
    "unknown home": ([(UNKNOWN, "0101001", 1)], "input.origin", "home", UNKNOWN_CODE),
    "unknown work": ([("0101001", UNKNOWN, 1)] * 3, "input.destination", "work", UNKNOWN_CODE),
    "an area of another level": ([("0101", "0101001", 1)], "input.origin", "home", UNKNOWN_CODE),
    "a lost leading zero": ([("101001", "0101001", 1)] * 2, "input.origin", "home", UNKNOWN_CODE),
    "a space too many": ([("0101001 ", "0101001", 1)], "input.origin", "home", UNKNOWN_CODE),
    "unknown, nobody": ([(UNKNOWN, "0101001", 0)], "input.origin", "home", UNKNOWN_CODE),
    "thousands": ([(UNKNOWN, "0101001", 1)] * 1234, "input.origin", "home", UNKNOWN_CODE),
    "blank home": ([("", "0101001", 1)], "input.origin", "home", BLANK_CODE),
    "spaces for work": ([("0101001", "  ", 1)], "input.destination", "work", BLANK_CODE),
    "no count": ([("0101001", "0101001", "")] * 2, "input.count", "people", NO_COUNT),
    "spaces for a count": ([("0101001", "0101001", "  ")], "input.count", "people", NO_COUNT),
    "negative": ([("0101001", "0101001", "-314159")], "input.count", "people", NEGATIVE),
    "negative, small": ([("0101001", "0101001", "-0.5")], "input.count", "people", NEGATIVE),
    "negative, infinite": ([("0101001", "0101001", "-inf")], "input.count", "people", NEGATIVE),
    "fractional": ([("0101001", "0101001", "271828.5")], "input.count", "people", FRACTIONAL),
    "hardly fractional": ([("0101001", "0101001", "3.0000000000000000001")], "input.count", "people", FRACTIONAL),
    "exponent": ([("0101001", "0101001", "271828e3")], "input.count", "people", FRACTIONAL),
    "grouped": ([("0101001", "0101001", "271 828")], "input.count", "people", FRACTIONAL),
    "nan": ([("0101001", "0101001", "nan")], "input.count", "people", FRACTIONAL),
    "infinite": ([("0101001", "0101001", "inf")], "input.count", "people", FRACTIONAL),
    "hexadecimal": ([("0101001", "0101001", "0x10")], "input.count", "people", FRACTIONAL),
    "a word": ([("0101001", "0101001", "314159 or so")], "input.count", "people", FRACTIONAL),
    "other digits": ([("0101001", "0101001", "٣")], "input.count", "people", FRACTIONAL),
    "2**63": ([("0101001", "0101001", 2**63)], "input.count", "people", OVERFLOW),
    "2**64": ([("0101001", "0101001", 2**64)], "input.count", "people", OVERFLOW),
    "a hundred digits": ([("0101001", "0101001", "271828" * 17)], "input.count", "people", OVERFLOW),
}


@pytest.mark.parametrize("fault", FAULTY_ROWS)
def test_faulty_rows_are_refused(place, capfd, fault):
    """Rows that break a rule are refused by column and rule; how many they are is said on the terminal, never which."""
    rows, field, column, rule = FAULTY_ROWS[fault]
    place.write("trips.csv", trips(*rows))
    error, said = refused(place, capfd)
    assert str(error) == f"input.table: column {column} {rule}."
    assert error.field == field
    assert ("Add every possible code to the codebook" in error.hint) == (rule == UNKNOWN_CODE)
    assert said == ("1 row is at fault.\n" if len(rows) == 1 else f"{len(rows):,} rows are at fault.\n")


def test_faults_are_found_after_the_first_thousands(place, capfd):
    """Also a row far down a long table is checked."""
    place.write("trips.csv", trips(*[("0101001", "0101001", 1)] * 300_000, ("0101001", "0101001", "-1")))
    error, said = refused(place, capfd)
    assert (error.field, said) == ("input.count", "1 row is at fault.\n")


def test_counts_beyond_the_largest_total_are_refused(place, capfd):
    """Counts that are fine one by one and add up to more than 2**40 are refused, also beyond 64 bits."""
    for many in ([2**40], [2**62] * 4):
        place.write("trips.csv", trips(*[("0101001", "0101001", count) for count in many]))
        error, _ = refused(place, capfd)
        assert str(error) == "input.table: the counts must add up to at most 2**40."
        assert error.field == "input.count"


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        (pl.Series([271828, None, 1]), NO_COUNT),
        (pl.Series([271828, -1, 1]), NEGATIVE),
        (pl.Series([271828.0, 0.5, 1.0]), FRACTIONAL),
        (pl.Series([271828.0, float("nan"), 1.0]), FRACTIONAL),
        (pl.Series([271828, 2**63, 1], dtype=pl.UInt64), OVERFLOW),
        (pl.Series([True, False, True]), FRACTIONAL),
    ],
    ids=["null", "negative", "fractional", "nan", "overflow", "boolean"],
)
def test_faulty_numbers_of_parquet_are_refused(place, capfd, counts, rule):
    """Typed counts obey the same rules as text."""
    table = {"home": [home for home, _, _ in TRIPS], "work": [work for _, work, _ in TRIPS], "people": counts}
    pl.DataFrame(table).write_parquet(place.folder / "trips.parquet")
    error, said = refused(place, capfd, trips="trips.parquet")
    assert (error.field, str(error)) == ("input.count", f"input.table: column people {rule}.")
    assert said.endswith("at fault.\n")


def broken_files(place: Place, good: bytes) -> dict[str, str]:
    """Write files that are not what their names say, from a good CSV; return their names by what they are."""
    duckdb.connect(str(place.folder / "other.duckdb")).close()
    row = good.splitlines(keepends=True)[-1]
    return {
        "CSV named Parquet": place.write("table.parquet", good),
        "CSV named gzip": place.write("table.csv.gz", good),
        "a cut gzip": place.write("cut.csv.gz", gzip.compress(good)[:-12]),
        "CSV named DuckDB": f"{place.write('table.duckdb', good)}::table",
        "no such table": "other.duckdb::table",
        "gzip named CSV": place.write("zipped.csv", gzip.compress(good)),
        "not UTF-8": place.write("latin.csv", good + b"\xe9" + row),
        "a column too many": place.write("long.csv", good + b"9," + row),
        "a column too few": place.write("short.csv", good + row.partition(b",")[2]),
        "an open quote": place.write("quote.csv", good + b'"' + row),
    }


@pytest.mark.parametrize(
    "kind",
    [
        *("CSV named Parquet", "CSV named gzip", "a cut gzip", "CSV named DuckDB", "no such table"),
        *("gzip named CSV", "not UTF-8", "a column too many", "a column too few", "an open quote"),
    ],
)
@pytest.mark.parametrize("key", ["input.table", "hierarchy.table"])
def test_broken_files_are_refused(place, capfd, kind, key):
    """A file that is not what its name says is refused by the key that names it, and nothing of it is quoted."""
    spoilt = {
        "input.table": ("trips", trips()),
        "hierarchy.table": ("codebook", csv(LEVELS, [("03", "0301", f"030100{number}") for number in range(9)])),
    }
    which, good = spoilt[key]
    name = broken_files(place, good.encode())[kind]
    error, _ = refused(place, capfd, **{which: name})
    assert error.field == key
    assert str(error).startswith(f"{key}: {name.partition('::')[0]} ")


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("not UTF-8", "iconv"),
        ("a column too many", "more or fewer fields"),
        ("a column too few", "more or fewer fields"),
        ("an open quote", "A quote is not closed"),
        ("gzip named CSV", "must end in .csv.gz"),
        ("CSV named gzip", "not gzip, or is incomplete"),
        ("a cut gzip", "incomplete"),
        ("CSV named Parquet", ""),
    ],
)
@pytest.mark.parametrize("rows", [1, 3_000], ids=["seen with the header", "seen later"])
def test_the_cause_of_what_cannot_be_read_is_told(place, capfd, kind, hint, rows):
    """What is the matter with a file is said where it is known, with what to do, and no row of it is quoted."""
    name = broken_files(place, trips(*TRIPS * rows).encode())[kind]
    error, _ = refused(place, capfd, trips=name)
    assert hint in error.hint
    assert bool(hint) == bool(error.hint)
    assert not any(secret in error.hint for secret in SECRETS)


@pytest.mark.parametrize("ends", [("\r\n", "\n"), ("\n", "\r\n")], ids=["CRLF first", "LF first"])
def test_mixed_ends_of_lines_are_told(place, capfd, ends):
    """Lines of which some end in LF and others in CRLF are refused, and the hint says so."""
    first, *others = trips().splitlines()
    place.write("trips.csv", first + ends[0] + "".join(line + ends[1] for line in others))
    error, _ = refused(place, capfd)
    assert "LF" in error.hint
    assert "CRLF" in error.hint


@pytest.mark.parametrize(("mark", "said"), [(";", "`;`"), ("\t", "tabs"), ("|", "`|`")])
@pytest.mark.parametrize("key", ["trips", "codebook"])
def test_a_table_that_is_not_parted_by_commas_is_told_from_one_without_its_columns(place, capfd, mark, said, key):
    """A first line of one name that semicolons, tabs or bars part is refused for that, by the key of its table."""
    content = {"trips": trips(), "codebook": csv(LEVELS, AREAS)}[key]
    place.write(f"{key}.csv", content.replace(",", mark))
    error, _ = refused(place, capfd)
    assert error.field == {"trips": "input.table", "codebook": "hierarchy.table"}[key]
    assert f"must use commas between columns; it seems to use {said}." in str(error)


def test_one_column_may_have_any_rows(place):
    """A table of one column whose rows, and not its name, have semicolons is parted by nothing."""
    place.write("codes.csv", "place\na;b\nc|d\n")
    table = table_at("hierarchy.table", "codes.csv", place.folder)
    assert read_table(table, ["place"], by_path=False, not_all_of=None)["place"].to_list() == ["a;b", "c|d"]


def test_a_quote_that_is_open_in_the_header_is_refused(place, capfd):
    """A name that reaches over the end of the first line is rows of people: it is refused, and not shown."""
    home, work, count = TRIPS[0]
    for closed in ("", '"'):
        place.write("trips.csv", f'home,work,"people\n{home},{work},{count}{closed}\n')
        error, _ = refused(place, capfd)
        assert str(error) == "input.table: trips.csv must have no line break in a column name."


def test_a_table_without_rows_is_told_to_the_caller_alone(place, capfd):
    """Where the total is not public, no rows are no reason to refuse: the caller hears of it, and nobody else."""
    exact = Units(None, 1, distinct=False, exact=True)
    units = Units(None, 1, distinct=False, exact=False)
    for content in ("home,work,people\n", f"home,work,people\n{TRIPS[0][0]},{TRIPS[0][1]},0\n"):
        place.write("trips.csv", content)
        source = place.spec().source()
        ingest.fn("a-release", source, units, (0, 0), 2**30)
        assert capfd.readouterr() == (
            "",
            "input.table has no records: it has no rows, or no row with a count above 0.\n",
        )
        with unheard():
            ingest.fn("a-release", source, units, (0, 0), 2**30)
        assert capfd.readouterr() == ("", "")
        with pytest.raises(InputError, match="there is nothing to release"):
            ingest.fn("a-release", source, exact, (0, 0), 2**30)
    place.write("trips.csv", trips())
    ingest.fn("a-release", place.spec().source(), units, (0, 0), 2**30)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "lines",
    [
        "# people who moved\n#0101777,0101001,5\n",
        "0101001,0101001,5 # or so\n",
        "total 7\n",
        "0101002,0101001,5,more\n",
    ],
    ids=["a remark", "a remark in a row", "a sum below", "a longer row"],
)
def test_no_line_is_skipped(place, capfd, lines):
    """What is no record stops the release: no line is taken for a remark and passed over."""
    place.write("trips.csv", trips() + lines)
    refused(place, capfd)


def test_no_line_above_the_header_is_skipped(place, capfd):
    """The header is the first line, and no later one however much better it fits what follows."""
    rows = csv(("home", "work", "people", "note"), [(*trip, "x") for trip in TRIPS] * 9)
    place.write("trips.csv", f"home,work,people\n0101001,0101002,7\n{rows}")
    refused(place, capfd)


def test_only_the_named_file_is_read(place):
    """A name with a star or a question mark is the name of a file, and no pattern for others."""
    place.write("trips_2.csv", trips())
    for name in ("trips*.csv", "trips_?.csv", "trips [1].csv"):
        place.write(name, trips())
        assert place.ingested(place.spec(trips=name)) == place.ingested(place.spec())


def test_the_path_adds_no_column(place):
    """A folder named `home=0201001` says nothing about the trips in it."""
    (place.folder / "home=0201001").mkdir()
    place.write("home=0201001/trips.csv", trips())
    assert place.ingested(place.spec(trips="home=0201001/trips.csv")) == place.ingested(place.spec())


def codebook(*rows: Sequence[str]) -> str:
    """Return the codebook, its good rows and then these, as CSV."""
    return csv(LEVELS, [*AREAS, *rows])


BAD_CODEBOOKS = {
    "two parents": (codebook(("02", "0101", "0101009")), "an area of column province lies under two areas of column"),
    "a repeated area": (codebook(AREAS[1]), "column municipality repeats an area"),
    "a repeated area elsewhere": (codebook(("02", "0201", "0101002")), "column municipality repeats an area"),
    "a blank region": (codebook(("", "0301", "0301001")), "column region has a blank code"),
    "a blank province": (codebook(("02", " ", "0202001")), "column province has a blank code"),
    "a blank municipality": (codebook(("02", "0201", "")), "column municipality has a blank code"),
    "no rows": (csv(LEVELS, []), "has no rows"),
    "a missing level": (csv(["region", "provincia", "municipality"], AREAS), "has no column province"),
    "no byte": ("", "has no line of column names"),
}


@pytest.mark.parametrize("fault", BAD_CODEBOOKS)
def test_bad_codebooks_are_refused(place, capfd, fault):
    """A codebook that is no hierarchy is refused by column and rule."""
    content, rule = BAD_CODEBOOKS[fault]
    place.write("codebook.csv", content)
    error, _ = refused(place, capfd)
    assert error.field == "hierarchy.table"
    assert str(error).startswith("hierarchy.table: ")
    assert rule in str(error)


def test_a_repeated_path_is_refused(place, capfd):
    """Where the path identifies an area, a repeat of the whole path is refused."""
    place.write("codebook.csv", codebook(AREAS[0]))
    place.write("trips.csv", csv(PATH_COLUMNS, [(*AREAS[0], *AREAS[1], 5)]))
    error, _ = refused(place, capfd, origin=PATH_COLUMNS[:3], destination=PATH_COLUMNS[3:6])
    assert (error.field, "repeats an area" in str(error)) == ("hierarchy.table", True)


def self_describing(place: Place) -> str:
    """Write a table of trips that could pass for a codebook; return its name."""
    rows = [(*area, area[2], work, people) for area, (_, work, people) in zip(AREAS, TRIPS, strict=False)]
    return place.write("both.csv", csv([*LEVELS, "home", "work", "people"], rows))


def test_the_confidential_table_is_no_codebook(place, capfd):
    """The table itself, under another name, or a copy of it, is refused as a codebook: it tells who travels."""
    name = self_describing(place)
    shutil.copy(place.folder / name, place.folder / "copy.csv")
    (place.folder / "link.csv").symlink_to(place.folder / name)
    (place.folder / "further").mkdir()
    for same in (name, "copy.csv", "link.csv", f"further/../{name}"):
        error, _ = refused(place, capfd, trips=name, codebook=same)
        assert error.field == "hierarchy.table"
        assert "the confidential table" in str(error)


def test_a_table_with_the_columns_of_codes_is_no_codebook(place, capfd):
    """A table that has the columns of both ends is refused, whatever else is in it: it was made from the records."""
    name = self_describing(place)
    lines = (place.folder / name).read_text().splitlines()
    (place.folder / "fewer.csv").write_text("\n".join(lines[:-1]) + "\n")
    error, _ = refused(place, capfd, trips=name, codebook="fewer.csv")
    assert (error.field, "has the columns of the confidential table" in str(error)) == ("hierarchy.table", True)


def test_a_codebook_that_changes_after_the_plan_is_refused(place):
    """What was planned with one codebook is not ingested with another."""
    plan = make_plan(place.spec())
    release = new_release(plan)
    place.write("codebook.csv", codebook(("02", "0202", "0202001")))
    with ThreadPoolExecutor(1) as threads, pytest.raises(InputError, match="has changed since the release was planned"):
        make_release(plan, release, submit_to(threads), report_nothing)


def test_an_area_with_too_many_children_is_refused(place, capfd, monkeypatch):
    """Beyond 2**20 children of one area arithmetic could overflow: the level is named."""
    monkeypatch.setattr("tasks.ingest.codebook.MOST_CHILDREN", 1)
    error, _ = refused(place, capfd)
    assert "must have at most 2**20 areas in one" in str(error)


def test_a_codebook_is_in_a_file_of_its_own(place):
    """A table of a DuckDB file may be the codebook, but none of the file with the confidential one: a view there may be made of it."""
    with duckdb.connect(str(place.folder / "all.duckdb")) as con:
        con.execute(f"CREATE TABLE trips AS FROM read_csv('{place.folder}/trips.csv', all_varchar = true)")
        con.execute(f"CREATE TABLE \"the areas\" AS FROM read_csv('{place.folder}/codebook.csv', all_varchar = true)")
    assert place.ingested(place.spec(trips="trips.csv", codebook="all.duckdb::the areas")) == place.ingested(
        place.spec()
    )
    assert place.ingested(place.spec(trips="all.duckdb::trips")) == place.ingested(place.spec())
    for codebook in ("all.duckdb::trips", "all.duckdb::the areas"):
        with pytest.raises(
            InputError, match="must not be the confidential table or a view of it, nor in a file with it"
        ):
            make_plan(place.spec(trips="all.duckdb::trips", codebook=codebook))


def test_output_that_cannot_be_written_is_refused(place, capfd):
    """An output folder that is a file, or lies where nothing can be written, is refused before the table is read."""
    place.write("trips.csv", "not even a table")
    taken = place.folder / place.write("taken", "by a file")
    for folder in (taken, taken / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError, match="cannot be written") as caught:
            release(place.spec(), folder)
        assert caught.value.field == "output"
        place.assert_untouched()
    assert taken.read_text() == "by a file"
    assert capfd.readouterr() == ("", "")


def test_duplicates_are_summed_and_zeros_dropped(place):
    """Rows of the same pair are added up, and pairs of nobody are no records."""
    rows = [("0101001", "0101002", 2), ("0102001", "0102001", 0), ("0101001", "0101002", 0), ("0101002", "0101001", 1)]
    place.write("trips.csv", csv(("home", "work", "people"), rows * 2))
    assert place.ingested(place.spec()) == {
        ("01/0101/0101001", "01/0101/0101002"): 4,
        ("01/0101/0101002", "01/0101/0101001"): 2,
    }


@settings(max_examples=25)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([area[2] for area in AREAS]),
            st.sampled_from([area[2] for area in AREAS]),
            st.integers(0, 2**30),
        ),
        min_size=1,
        max_size=30,
    ).filter(lambda rows: any(count for *_, count in rows))
)
def test_any_rows_are_summed_exactly(tmp_path_factory, rows):
    """Whatever the rows and their order, the vault holds the exact sum of each pair."""
    place = Place(tmp_path_factory.getbasetemp())
    place.write("codebook.csv", csv(LEVELS, AREAS))
    place.write("trips.csv", csv(("home", "work", "people"), rows))
    sums: Counter[tuple[str, str]] = Counter()
    for home, work, count in rows:
        sums[home, work] += count
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place.folder / "home"))
        found = place.ingested(place.spec())
    last = {(home.split("/")[-1], work.split("/")[-1]): count for (home, work), count in found.items()}
    assert last == {pair: count for pair, count in sums.items() if count}


@pytest.mark.parametrize("three", ["3", "3.0", "3.", "3.000", "+3", "003", " 3 ", '"3"'])
def test_whole_numbers_may_be_written_in_several_ways(place, three):
    """A count that is whole is taken however it is written."""
    place.write("trips.csv", csv(("home", "work", "people"), [("0101001", "0201001", three)]))
    assert place.ingested(place.spec()) == {("01/0101/0101001", "02/0201/0201001"): 3}


def test_the_largest_total_is_fine(place):
    """Counts that add up to 2**40 exactly are taken."""
    place.write("trips.csv", csv(("home", "work", "people"), [("0101001", "0101001", 2**39)] * 2))
    assert place.ingested(place.spec()) == {("01/0101/0101001", "01/0101/0101001"): 2**40}


def test_quoted_fields_are_read(place):
    """Codes with commas, quotes, line ends, signs and other letters are codes like any other."""
    odd = ["a,b", 'say ""ah""', "two\nlines", "#1", "-", "é ñ", "'", " lead", "NULL", "\\N", "=1+1", "1e5"]
    plain = [code.replace('""', '"') for code in odd]
    place.write("codebook.csv", "region,place\n" + "".join(f'"R","{code}"\n' for code in odd))
    place.write(
        "trips.csv", 'home,"work",people\n' + "".join(f'"{code}","{odd[0]}",{n}\n' for n, code in enumerate(odd, 1))
    )
    assert place.ingested(place.spec(levels=["region", "place"], finest="place")) == {
        (f"R/{code}", f"R/{plain[0]}"): n for n, code in enumerate(plain, 1)
    }


@pytest.mark.parametrize(
    "names",
    [
        ["from", "select", "count(*)"],
        ["area", "code_0", "records"],
        ["area_0", "code_1", "true_count"],
        ['a "b"', "c; d", "é"],
    ],
    ids=["words of SQL", "words of the query", "more of them", "signs"],
)
def test_columns_may_have_any_name(place, names):
    """Names that mean something in SQL, or in the queries that read them, are names like any other."""
    expected = place.ingested(place.spec())
    place.write("trips.csv", csv([f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names], TRIPS))
    assert place.ingested(place.spec(**dict(zip(["origin", "destination", "count"], names, strict=True)))) == expected


def test_line_ends_and_marks_of_other_systems_are_read(place):
    """A byte order mark and carriage returns are no part of a name or a code."""
    expected = place.ingested(place.spec())
    place.write("trips.csv", b"\xef\xbb\xbf" + trips().replace("\n", "\r\n").encode())
    place.write("codebook.csv", b"\xef\xbb\xbf" + codebook().replace("\n", "\r\n").encode())
    assert place.ingested(place.spec()) == expected


def test_gzipped_csv_is_read(place):
    """A gzipped table is the table."""
    expected = place.ingested(place.spec())
    place.write("trips.csv.gz", gzip.compress(trips().encode()))
    place.write("codebook.csv.gz", gzip.compress(codebook().encode()))
    assert place.ingested(place.spec(trips="trips.csv.gz", codebook="codebook.csv.gz")) == expected


def test_one_line_that_never_ends_is_refused_before_it_is_read(place, capfd):
    """A few kilobytes of gzip may hold a line of any length: no more than a header of it is read."""
    place.write("trips.csv.gz", gzip.compress(b"home,work,people" + b"x" * 2**27))
    tracemalloc.start()
    error, _ = refused(place, capfd, trips="trips.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(error) == "input.table: trips.csv.gz cannot be read as CSV in UTF-8."
    assert "at most 1,048,576 characters" in error.hint
    assert peak < 2**26


@pytest.mark.parametrize("counts", [pl.Int8, pl.Int64, pl.UInt64, pl.Float64, pl.Decimal(10, 2), pl.String])
def test_parquet_integers_are_read(place, counts):
    """Codes and counts that are numbers in Parquet are the numbers that one sees."""
    areas = {"region": [1, 1, 2], "place": [11, 12, 21]}
    pl.DataFrame(areas).write_parquet(place.folder / "codebook.parquet")
    table = pl.DataFrame({"home": [11, 12, 21], "work": [21, 21, 21], "people": pl.Series([1, 100, 0]).cast(counts)})
    table.write_parquet(place.folder / "trips.parquet")
    spec = place.spec(trips="trips.parquet", codebook="codebook.parquet", levels=["region", "place"], finest="place")
    assert place.ingested(spec) == {("1/11", "2/21"): 1, ("1/12", "2/21"): 100}


def test_a_row_is_a_record_where_there_is_no_count(place):
    """Without a column of counts each row counts one."""
    rows = [("0101001", "0101002")] * 3 + [("0201001", "0201001")]
    place.write("trips.csv", csv(("home", "work"), rows))
    assert place.ingested(place.spec(count=None)) == {
        ("01/0101/0101001", "01/0101/0101002"): 3,
        ("02/0201/0201001", "02/0201/0201001"): 1,
    }


def test_a_coarser_finest_level_adds_up(place):
    """Released down to provinces, the trips between municipalities are added up by province."""
    place.write("trips.csv", trips(("0101002", "0101001", 1)))
    assert place.ingested(place.spec(finest="province")) == {
        ("01/0101", "01/0101"): 271829,
        ("01/0101", "02/0201"): 314159,
        ("02/0201", "01/0101"): 141421,
    }


PATH_COLUMNS = ["h1", "h2", "h3", "w1", "w2", "w3", "people"]


def test_one_column_per_level_identifies_by_path(place):
    """With a column per level, equal codes under different parents are different areas, and are kept apart."""
    areas = [("N", "1", "1"), ("N", "1", "2"), ("N", "2", "1"), ("S", "1", "1")]
    place.write("codebook.csv", csv(LEVELS, areas))
    rows = [(*areas[0], *areas[2], 5), (*areas[0], *areas[3], 7), (*areas[3], *areas[0], 11), (*areas[0], *areas[2], 1)]
    place.write("trips.csv", csv(PATH_COLUMNS, rows))
    spec = place.spec(origin=PATH_COLUMNS[:3], destination=PATH_COLUMNS[3:6])
    assert place.ingested(spec) == {("N/1/1", "N/2/1"): 6, ("N/1/1", "S/1/1"): 7, ("S/1/1", "N/1/1"): 11}
    with pytest.raises(InputError, match="repeats an area"):
        make_plan(place.spec(origin="h3", destination="w3"))


@pytest.mark.parametrize(
    ("path", "rule"), [(("N", "2", "2"), UNKNOWN_CODE), (("N", "", "1"), BLANK_CODE)], ids=["unknown", "blank"]
)
def test_a_path_that_the_codebook_lacks_is_refused(place, capfd, path, rule):
    """Codes that are all known and make no known path are refused, and so is a path with a gap."""
    areas = [("N", "1", "1"), ("N", "1", "2"), ("N", "2", "1")]
    place.write("codebook.csv", csv(LEVELS, areas))
    place.write("trips.csv", csv(PATH_COLUMNS, [(*areas[0], *areas[0], 5), (*path, *areas[0], 7)]))
    error, said = refused(place, capfd, origin=PATH_COLUMNS[:3], destination=PATH_COLUMNS[3:6])
    assert str(error) == f"input.table: column h1 and h2 and h3 {rule}."
    assert (error.field, said) == ("input.origin", "1 row is at fault.\n")


def test_each_end_has_its_own_codebook(place):
    """The codes of an end are those of its own codebook."""
    place.write("plants.csv", csv(["site", "plant"], [("A", "A1"), ("B", "B1")]))
    place.write("trips.csv", csv(("home", "work", "people"), [("0101001", "B1", 3)]))
    keys = yaml.safe_load(place.spec().text)
    codebooks = {"origin": keys["hierarchy"], "destination": {"table": "plants.csv", "levels": ["site", "plant"]}}
    keys |= {"hierarchy": codebooks}
    keys["release"]["finest"] = {"origin": "province", "destination": "plant"}
    spec = load_spec(place.folder / place.write("spec.yaml", yaml.safe_dump(keys)))
    assert place.ingested(spec) == {("01/0101", "B/B1"): 3}


def test_ingest_keeps_its_faults_to_itself(place, capfd, monkeypatch):
    """A fault that nobody foresaw is told by its kind and place, without the text and the chain that quote the data."""

    def fail(*_: object) -> None:
        try:
            {}[UNKNOWN]
        except KeyError as missing:
            raise OSError(f"{TRIPS} cannot be read") from missing

    monkeypatch.setattr("tasks.ingest.task.ingest_trips", fail)
    with pytest.raises(StageFailed) as caught:
        release(place.spec())
    assert re.fullmatch(r"ingest stopped: OSError at tasks/ingest/task\.py:\d+\.", str(caught.value))
    shown = [*traceback.format_exception(caught.value), *capfd.readouterr()]
    assert [secret for secret in SECRETS if any(secret in text for text in shown)] == []
    place.assert_untouched()

"""Tables and codebooks: the good are summed as they are, the bad refused before anything is spent or left behind."""

import gzip
import re
import shutil
import sys
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from tests.support.spec import SPEC

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
        path.parent.mkdir(exist_ok=True)
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
        keys = SPEC | {
            "input": {"table": trips} | {key: value for key, value in columns.items() if value is not None},
            "hierarchy": {"table": codebook, "levels": levels},
            "release": {"tree": "destination", "finest": finest},
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


@contextmanager
def settled(folder: Path) -> Iterator[Place]:
    """Give a folder with three good trips, their codebook, and a store of its own; a caller hears what is told."""
    place = Place(folder)
    place.write("trips.csv", trips())
    place.write("codebook.csv", csv(LEVELS, AREAS))
    with pytest.MonkeyPatch.context() as patch, heard_by_caller():
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        yield place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Return a folder of the test's own."""
    with settled(tmp_path) as place:
        yield place


@pytest.fixture(scope="module")
def _refusing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusing")


@pytest.fixture
def refusing(_refusing: Path) -> Iterator[Place]:
    """Return a folder that all refusals share, since none touches its store."""
    with settled(_refusing) as place:
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


GOOD = {
    ("01/0101/0101001", "01/0101/0101002"): 271828,
    ("01/0101/0101002", "02/0201/0201001"): 314159,
    ("02/0201/0201001", "01/0101/0101001"): 141421,
}
MARK = b"\xef\xbb\xbf"  # of the order of bytes


def named(*names: str) -> tuple[dict[str, str | bytes], dict[str, Any]]:
    """Return the table of trips with columns of other names, and the keys of the spec that name them."""
    header = ['"' + name.replace('"', '""') + '"' for name in names]
    return {"trips.csv": csv(header, TRIPS)}, dict(zip(["origin", "destination", "count"], names, strict=True))


SAME: dict[str, tuple[dict[str, str | bytes], dict[str, Any]]] = {  # files, and keys of the spec
    "as they are": ({}, {}),
    "a star": ({"trips*.csv": trips(), "trips_2.csv": trips()}, {"trips": "trips*.csv"}),  # a name and no pattern
    "a question mark": ({"trips_?.csv": trips(), "trips_2.csv": trips()}, {"trips": "trips_?.csv"}),
    "brackets": ({"trips [1].csv": trips(), "trips 1.csv": trips()}, {"trips": "trips [1].csv"}),
    "a path like a column": ({"home=0201001/trips.csv": trips()}, {"trips": "home=0201001/trips.csv"}),
    "words of SQL": named("from", "select", "count(*)"),
    "words of the query": named("area", "code_0", "records"),
    "more of them": named("area_0", "code_1", "true_count"),
    "signs": named('a "b"', "c; d", "é"),
    "ends of lines and marks": (
        {
            "trips.csv": MARK + trips().replace("\n", "\r\n").encode(),
            "codebook.csv": MARK + csv(LEVELS, AREAS).replace("\n", "\r\n").encode(),
        },
        {},
    ),
    "packed": (
        {"t.csv.gz": gzip.compress(trips().encode()), "c.csv.gz": gzip.compress(csv(LEVELS, AREAS).encode())},
        {"trips": "t.csv.gz", "codebook": "c.csv.gz"},
    ),
}


@pytest.mark.parametrize("how", SAME)
def test_the_same_trips_are_the_same_records(place, how):
    """However names are written and files packed, what is read are the trips."""
    files, keys = SAME[how]
    for name, content in files.items():
        place.write(name, content)
    assert place.ingested(place.spec(**keys)) == GOOD


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


@pytest.mark.thorough
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


BLANK_CODE, UNKNOWN_CODE = "must not be empty", "has codes that the codebook lacks"
NO_COUNT, NEGATIVE, FRACTIONAL = "must not be empty", "must be >= 0", "must hold whole numbers"
OVERFLOW = "must hold numbers below 2**63"
TABLE, CODES = "input.table", "hierarchy.table"
HEADER = "home,work,people\n"
NOBODY = "input.table has no records, so there is nothing to release."
NO_NAMES = "input.table: trips.csv has no line of column names."
BREAK = "input.table: trips.csv must have no line break in a column name."
TOO_MANY = "input.table: the counts must add up to at most 2**40."
UNREADABLE = "input.table: trips.csv cannot be read as CSV in UTF-8."
FIRST = ",".join(TRIPS[0])
PATH_COLUMNS = ["h1", "h2", "h3", "w1", "w2", "w3", "people"]
BY_PATH = {"origin": PATH_COLUMNS[:3], "destination": PATH_COLUMNS[3:6]}


def codebook(*rows: Sequence[str]) -> str:
    """Return the codebook, its good rows and then these, as CSV."""
    return csv(LEVELS, [*AREAS, *rows])


def by_path(path: Sequence[str]) -> str:
    """Return trips by paths of codes, of which one is this."""
    return csv(PATH_COLUMNS, [(*AREAS[0], *AREAS[0], 5), (*path, *AREAS[0], 7)])


# the table of trips and the codebook, where they are others; keys of the spec; the field; and what the error says
REFUSED: dict[str, tuple[dict[str, str | bytes], dict[str, Any], str, str]] = {
    "no table": ({}, {"trips": "nothing.csv"}, TABLE, "there is no file"),
    "no codebook": ({}, {"codebook": "nothing.csv"}, CODES, "there is no file"),
    "no origin": ({}, {"origin": "from"}, TABLE, "input.table: trips.csv has no column from."),
    "in capitals": ({}, {"destination": "HOME"}, TABLE, "input.table: trips.csv has no column HOME."),
    "no count": ({}, {"count": "workers"}, TABLE, "input.table: trips.csv has no column workers."),
    "no first of two": ({}, {"origin": ["home", "x", "y"]}, TABLE, "input.table: trips.csv has no column x."),
    "no header": ({"trips": csv(TRIPS[0], TRIPS[1:])}, {}, TABLE, "has no column home"),
    "header only": ({"trips": HEADER}, {}, TABLE, NOBODY),
    "header without end": ({"trips": HEADER.strip()}, {}, TABLE, NOBODY),
    "all zero": ({"trips": f"{HEADER}0101001,0101002,0\n"}, {}, TABLE, NOBODY),
    "no byte": ({"trips": ""}, {}, TABLE, NO_NAMES),
    "a large total": ({"trips": trips(("0101001", "0101001", 2**40))}, {}, "input.count", TOO_MANY),
    "a total beyond 64 bits": ({"trips": trips(*[("0101001", "0101001", 2**62)] * 4)}, {}, "input.count", TOO_MANY),
    "an open quote in the header": ({"trips": f'home,work,"people\n{FIRST}\n'}, {}, TABLE, BREAK),
    "a header of two lines": ({"trips": f'home,work,"people\n{FIRST}"\n'}, {}, TABLE, BREAK),
    "a remark": ({"trips": f"{trips()}# people who moved\n#{UNKNOWN},0101001,5\n"}, {}, TABLE, UNREADABLE),
    "a remark in a row": ({"trips": f"{trips()}0101001,0101001,5 # or so\n"}, {}, "input.count", "whole numbers"),
    "a sum below": ({"trips": f"{trips()}total 7\n"}, {}, TABLE, UNREADABLE),
    "a longer row": ({"trips": f"{trips()}0101002,0101001,5,more\n"}, {}, TABLE, UNREADABLE),
    "a better header below": (
        {"trips": f"{HEADER}{FIRST}\n" + csv(("home", "work", "people", "note"), [(*trip, "x") for trip in TRIPS] * 9)},
        *({}, TABLE, UNREADABLE),
    ),
    **{
        f"{key} parted by {said}": (
            {key: {"trips": trips(), "codebook": codebook()}[key].replace(",", mark)},
            *({}, field, f"must use commas between columns; it seems to use {said}."),
        )
        for key, field in (("trips", TABLE), ("codebook", CODES))
        for mark, said in ((";", "`;`"), ("\t", "tabs"), ("|", "`|`"))
    },
    "two parents": (
        {"codebook": codebook(("02", "0101", "0101009"))},
        *({}, CODES, "an area of column province lies under two areas of column"),
    ),
    "an area twice": ({"codebook": codebook(AREAS[1])}, {}, CODES, "column municipality repeats an area"),
    "an area in two": (
        {"codebook": codebook(("02", "0201", "0101002"))},
        *({}, CODES, "column municipality repeats an area"),
    ),
    "a blank region": ({"codebook": codebook(("", "0301", "0301001"))}, {}, CODES, "column region has a blank code"),
    "a blank province": ({"codebook": codebook(("02", " ", "02001"))}, {}, CODES, "column province has a blank code"),
    "a blank area": ({"codebook": codebook(("02", "0201", ""))}, {}, CODES, "column municipality has a blank code"),
    "no areas": ({"codebook": csv(LEVELS, [])}, {}, CODES, "has no rows"),
    "a missing level": (
        {"codebook": csv(["region", "provincia", "municipality"], AREAS)},
        *({}, CODES, "has no column province"),
    ),
    "a codebook without a byte": ({"codebook": ""}, {}, CODES, "has no line of column names"),
    "a path twice": ({"codebook": codebook(AREAS[0]), "trips": by_path(AREAS[1])}, BY_PATH, CODES, "repeats an area"),
    "an unknown path": (
        {"trips": by_path(("01", "0102", "0101001"))},  # of which all codes are known
        *(BY_PATH, "input.origin", f"input.table: column h1 and h2 and h3 {UNKNOWN_CODE}."),
    ),
    "a path with a gap": (
        {"trips": by_path(("01", "", "0101001"))},
        *(BY_PATH, "input.origin", f"input.table: column h1 and h2 and h3 {BLANK_CODE}."),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_released_is_refused(refusing, capfd, what):
    """A table or a codebook that is not as the spec has it is refused by its key and its rule."""
    files, keys, field, says = REFUSED[what]
    for name, content in files.items():
        refusing.write(f"{name}.csv", content)
    error, _ = refused(refusing, capfd, **keys)
    assert error.field == field
    assert str(error).startswith((f"{field}: ", "input.table"))
    assert str(error) == says if says.startswith("input.table") else says in str(error)


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
def test_faulty_rows_are_refused(refusing, capfd, fault):
    """Rows that break a rule are refused by column and rule; how many they are is said on the terminal, never which."""
    rows, field, column, rule = FAULTY_ROWS[fault]
    refusing.write("trips.csv", trips(*rows))
    error, said = refused(refusing, capfd)
    assert str(error) == f"input.table: column {column} {rule}."
    assert error.field == field
    assert ("Add every possible code to the codebook" in error.hint) == (rule == UNKNOWN_CODE)
    assert said == ("1 row is at fault.\n" if len(rows) == 1 else f"{len(rows):,} rows are at fault.\n")


def test_faults_are_found_after_the_first_thousands(place, capfd):
    """Also a row far down a long table is checked."""
    place.write("trips.csv", trips(*[("0101001", "0101001", 1)] * 300_000, ("0101001", "0101001", "-1")))
    error, said = refused(place, capfd)
    assert (error.field, said) == ("input.count", "1 row is at fault.\n")


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
def test_faulty_numbers_of_parquet_are_refused(refusing, capfd, counts, rule):
    """Typed counts obey the same rules as text."""
    table = {"home": [home for home, _, _ in TRIPS], "work": [work for _, work, _ in TRIPS], "people": counts}
    pl.DataFrame(table).write_parquet(refusing.folder / "trips.parquet")
    error, said = refused(refusing, capfd, trips="trips.parquet")
    assert (error.field, str(error)) == ("input.count", f"input.table: column people {rule}.")
    assert said.endswith("at fault.\n")


BROKEN: dict[str, tuple[str, Callable[[bytes, bytes], bytes], str | None]] = {  # of a table and its last row; the hint
    "CSV named Parquet": ("table.parquet", lambda good, _: good, ""),
    "CSV named gzip": ("table.csv.gz", lambda good, _: good, "not gzip, or is incomplete"),
    "a cut gzip": ("cut.csv.gz", lambda good, _: gzip.compress(good)[:-12], "incomplete"),
    "CSV named DuckDB": ("table.duckdb::table", lambda good, _: good, None),
    "no such table": ("other.duckdb::table", lambda _, __: b"", None),
    "gzip named CSV": ("zipped.csv", lambda good, _: gzip.compress(good), "must end in .csv.gz"),
    "not UTF-8": ("latin.csv", lambda good, row: good + b"\xe9" + row, "iconv"),
    "a column too many": ("long.csv", lambda good, row: good + b"9," + row, "more or fewer fields"),
    "a column too few": ("short.csv", lambda good, row: good + row.partition(b",")[2], "more or fewer fields"),
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
    for key, good in (("trips", trips()), ("trips", trips(*TRIPS * 3_000)), ("codebook", areas)):
        refusing.write(file, spoil(good.encode(), good.encode().splitlines(keepends=True)[-1]))
        if kind == "no such table":
            (refusing.folder / file).unlink()
            duckdb.connect(str(refusing.folder / file)).close()
        error, _ = refused(refusing, capfd, **{key: name})
        assert error.field == {"trips": TABLE, "codebook": CODES}[key]
        assert str(error).startswith(f"{error.field}: {file} ")
        assert not any(secret in error.hint for secret in SECRETS)
        if hint is not None and key == "trips":
            assert hint in error.hint
            assert bool(hint) == bool(error.hint)


def test_one_column_may_have_any_rows(place):
    """A table of one column whose rows, and not its name, have semicolons is parted by nothing."""
    place.write("codes.csv", "place\na;b\nc|d\n")
    table = table_at("hierarchy.table", "codes.csv", place.folder)
    assert read_table(table, ["place"], by_path=False, not_all_of=None)["place"].to_list() == ["a;b", "c|d"]


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
    assert place.ingested(place.spec(trips="trips.csv", codebook="all.duckdb::the areas")) == GOOD
    assert place.ingested(place.spec(trips="all.duckdb::trips")) == GOOD
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


@settings(max_examples=25)
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
def test_any_rows_are_summed_exactly(tmp_path_factory, rows):
    """Whatever the rows and their order, the vault holds the exact sum of each pair, and no pair of nobody."""
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


def test_whole_numbers_may_be_written_in_several_ways(place):
    """A count that is whole is taken however it is written, and 2**40 in all is not too much."""
    ways = ["3", "3.0", "3.", "3.000", "+3", "003", " 3 ", '"3"']
    for rows, total in (([*ways, 2**40 - 24], 2**40), ([2**39] * 2, 2**40)):
        place.write("trips.csv", csv(("home", "work", "people"), [("0101001", "0201001", count) for count in rows]))
        assert place.ingested(place.spec()) == {("01/0101/0101001", "02/0201/0201001"): total}


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


def test_one_line_that_never_ends_is_refused_before_it_is_read(place, capfd):
    """A few kilobytes of gzip may hold a line of any length: no more than a header of it is read."""
    place.write("trips.csv.gz", gzip.compress(b"home,work,people" + b"x" * 2**25))
    tracemalloc.start()
    error, _ = refused(place, capfd, trips="trips.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(error) == "input.table: trips.csv.gz cannot be read as CSV in UTF-8."
    assert "at most 1,048,576 characters" in error.hint
    assert peak < 2**24


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


def test_one_column_per_level_identifies_by_path(place):
    """With a column per level, equal codes under different parents are different areas, and are kept apart."""
    areas = [("N", "1", "1"), ("N", "1", "2"), ("N", "2", "1"), ("S", "1", "1")]
    place.write("codebook.csv", csv(LEVELS, areas))
    rows = [(*areas[0], *areas[2], 5), (*areas[0], *areas[3], 7), (*areas[3], *areas[0], 11), (*areas[0], *areas[2], 1)]
    place.write("trips.csv", csv(PATH_COLUMNS, rows))
    spec = place.spec(**BY_PATH)
    assert place.ingested(spec) == {("N/1/1", "N/2/1"): 6, ("N/1/1", "S/1/1"): 7, ("S/1/1", "N/1/1"): 11}
    with pytest.raises(InputError, match="repeats an area"):
        make_plan(place.spec(origin="h3", destination="w3"))


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

"""What is kept of units with more records than promised, and that nothing of who they are reaches the vault."""

import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from itertools import groupby, product
from math import comb, prod
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.counts.published import published_total
from storage.counts.shards import read_codebook
from storage.counts.vault import vault, vault_path
from storage.database.connections import store
from storage.errors import InputError
from storage.ledger.events import head
from storage.machine.caller import hear_as, heard_by_caller
from storage.machine.claims import shard_folder
from storage.machine.fingerprints import KEY
from storage.releases.register import list_releases
from tasks.ingest import contributions
from tasks.ingest.contributions import keep_within
from tasks.ingest.task import ingest
from tests.support.spec import SPEC

FALSE_ALARM = 1e-6  # of each test of chance: entropy is the operating system's and cannot be seeded
LEAST_EXPECTED = 50
UNITS = 6_000  # in each test of chance

Row = tuple[int, int, int]  # unit, place, records

rows_of_units = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 4)), max_size=25).map(sorted)


def kept_of(rows: Sequence[Row], most: int, *, distinct: bool) -> list[int]:
    """Return how many records of each row are kept."""
    units, places, counts = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    given_counts = counts.copy()
    kept = keep_within(units, places, counts, most, distinct=distinct)
    assert kept.dtype == np.int64
    assert np.array_equal(counts, given_counts), "the given counts were changed"
    return kept.tolist()


def sums(rows: Sequence[Row], counts: Sequence[int], key: Callable[[Row], Any]) -> Counter:
    """Return counts summed by a key of their rows."""
    found: Counter = Counter()
    for row, count in zip(rows, counts, strict=True):
        found[key(row)] += count
    return found


@given(rows=rows_of_units, most=st.integers(1, 8), distinct=st.booleans())
def test_as_many_records_are_kept_as_may_be(rows: list[Row], most: int, distinct: bool) -> None:
    """Of every unit m records are kept or all it may have, and so all within the bounds, no more of a row than it had, none of a place twice."""
    kept = kept_of(rows, most, distinct=distinct)
    assert all(0 <= count <= row[2] for row, count in zip(rows, kept, strict=True))
    places = sums(rows, [row[2] for row in rows], lambda row: row[:2])
    allowed: Counter = Counter()
    for (unit, _), count in places.items():
        allowed[unit] += 1 if distinct else count
    by_unit = sums(rows, kept, lambda row: row[0])
    assert by_unit == Counter({unit: min(count, most) for unit, count in allowed.items()})
    if distinct:
        assert max(sums(rows, kept, lambda row: row[:2]).values(), default=0) <= 1


class OfSizeAlone:
    """A stand-in for the system's entropy: which records are drawn depends on how many there are, and on nothing else."""

    def sample(self, population: range, many: int) -> list[int]:
        """Return the same records whenever as many are drawn of as many."""
        return random.Random(1_000 * len(population) + many).sample(population, many)  # noqa: S311


@given(rows=rows_of_units, most=st.integers(1, 6), distinct=st.booleans())
def test_what_is_kept_of_a_unit_depends_on_that_unit_alone(rows: list[Row], most: int, distinct: bool) -> None:
    """Drawn in the same way, a unit keeps the same records whichever other units there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "SystemRandom", OfSizeAlone)
        alone = [
            count
            for _, of_unit in groupby(rows, lambda row: row[0])
            for count in kept_of(list(of_unit), most, distinct=distinct)
        ]
        assert kept_of(rows, most, distinct=distinct) == alone


def test_records_are_drawn_from_the_systems_entropy() -> None:
    """Which records are kept cannot be foretold from any seed."""
    assert contributions.SystemRandom is random.SystemRandom
    rows = [(unit, place, 1) for unit in range(200) for place in range(4)]
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        draws.append(kept_of(rows, 2, distinct=True))
    assert draws[0] != draws[1]


def goodness_of_fit(found: Counter, parts: dict[tuple[int, ...], float]) -> float:
    """Return the p-value of the chi-square test that outcomes occur in proportion to `parts`."""
    assert set(found) <= set(parts), "an outcome that cannot be"
    observed = np.array([found[outcome] for outcome in parts])
    expected = np.array(list(parts.values())) * observed.sum() / sum(parts.values())
    assert expected.min() >= LEAST_EXPECTED
    return float(stats.chisquare(observed, expected).pvalue)


def outcomes_of(rows: Sequence[tuple[int, int]], most: int, *, distinct: bool) -> Counter:
    """Return what is kept of many units that all have the same places and counts."""
    of_all = [(unit, *row) for unit in range(UNITS) for row in rows]
    kept = np.array(kept_of(of_all, most, distinct=distinct)).reshape(UNITS, len(rows))
    return Counter(map(tuple, kept.tolist()))


RECORDS = [(0, 3), (1, 1), (1, 2), (4, 1)]  # place and count
ANY_THREE = {  # of a unit's seven records: so many sets of three give these counts
    kept: float(prod(comb(count, many) for (_, count), many in zip(RECORDS, kept, strict=True)))
    for kept in product(*(range(count + 1) for _, count in RECORDS))
    if sum(kept) == 3
}
REPEATED = [(0, 3), (0, 1), (1, 1), (2, 1), (2, 1)]
DISTINCT_TWO = {  # one of each place, and of these three any two with the same probability
    (1, 0, 1, 0, 0): 3 / 4,
    (0, 1, 1, 0, 0): 1 / 4,
    (1, 0, 0, 1, 0): 3 / 8,
    (1, 0, 0, 0, 1): 3 / 8,
    (0, 1, 0, 1, 0): 1 / 8,
    (0, 1, 0, 0, 1): 1 / 8,
    (0, 0, 1, 1, 0): 1 / 2,
    (0, 0, 1, 0, 1): 1 / 2,
}


def test_every_set_of_records_is_kept_with_the_same_probability() -> None:
    """Of seven records in four rows, each of the 35 sets of three is equally likely."""
    assert sum(ANY_THREE.values()) == comb(7, 3)
    assert goodness_of_fit(outcomes_of(RECORDS, 3, distinct=False), ANY_THREE) > FALSE_ALARM


def test_every_repeat_is_kept_with_the_same_probability() -> None:
    """Of the records in one place each is the one that stays with the same probability, and then so is each place."""
    assert goodness_of_fit(outcomes_of(REPEATED, 2, distinct=True), DISTINCT_TWO) > FALSE_ALARM


def test_the_goodness_of_fit_notices_a_preference() -> None:
    """Were distinct places drawn in proportion to their records, or a row for a row, the same test would fail."""
    chance = np.random.default_rng(5)
    by_rows = dict.fromkeys(ANY_THREE, 1.0)
    for right, wrong in ((ANY_THREE, by_rows), (DISTINCT_TWO, DISTINCT_TWO | {(1, 0, 1, 0, 0): 1 / 2})):
        weights = np.array(list(wrong.values()))
        drawn = chance.multinomial(UNITS, weights / weights.sum())
        assert goodness_of_fit(Counter(dict(zip(wrong, drawn.tolist(), strict=True))), right) < FALSE_ALARM


# through ingest ------------------------------------------------------------------------------------------------------

LEVELS = ["region", "place"]
CODEBOOK = "region,place\nN,n1\nN,n2\nS,s1\nS,s2\n"
SENTINEL = "Zebedee-Quux"  # begins every unit's id; in no path, code or message


@dataclass(frozen=True)
class Place:
    """A folder with a spec, its tables, and a store."""

    folder: Path

    def plan(self, header: str, rows: Sequence[Sequence[object]], finest: str = "place", **privacy: Any) -> Plan:
        """Write a table with a column of units, and a spec over it; return the plan.

        Args:
            header: the table's columns; `people` among them are counts.
            rows: the table's.
            finest: the released level.
            privacy: keys of it, beside the usual ones.
        """
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        (self.folder / "trips.csv").write_text("\n".join(lines) + "\n")
        (self.folder / "codebook.csv").write_text(CODEBOOK)
        columns = {"origin": "home", "destination": "work"}
        columns |= {"unit": "person"} if "person" in header else {}
        columns |= {"count": "people"} if "people" in header else {}
        keys = SPEC | {
            "input": {"table": "trips.csv"} | columns,
            "hierarchy": {"table": "codebook.csv", "levels": LEVELS},
            "release": {"tree": "destination", "finest": finest},
            "privacy": SPEC["privacy"] | {"neighbours": "add_remove", "epsilon": 2.0} | privacy,
        }
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(keys))
        return make_plan(load_spec(self.folder / "spec.yaml"))

    def ingested(self, plan: Plan) -> dict[str, int]:
        """Ingest the table and return the vault's records: `home>work` and the count."""
        ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
        ends = [
            [row[-1] for row in read_codebook(shard_folder("a-release"), end).rows()] for end in plan.source.codebooks
        ]
        with vault("a-release") as con:
            records = con.execute("SELECT area_0, area_1, true_count FROM records").fetchall()
        assert all(count > 0 for *_, count in records)
        return {f"{ends[0][home]}>{ends[1][work]}": count for home, work, count in records}

    def holding(self, text: str) -> list[str]:
        """Return the files below TRELLIS_HOME that are named for a text, or hold it."""
        return [
            str(path)
            for path in (self.folder / "home").rglob("*")
            if text in path.name or (path.is_file() and text.encode() in path.read_bytes())
        ]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a folder with a store of its own; a caller hears what is told."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    with heard_by_caller():
        yield Place(tmp_path)


def release(plan: Plan) -> str:
    """Release a plan with threads and without Prefect; return its id."""
    made = new_release(plan)
    with ThreadPoolExecutor(2) as threads:
        make_release(plan, made, submit_to(threads), report_nothing)
    return made.id


def refused(place: Place, capfd: pytest.CaptureFixture[str], plan: Plan) -> tuple[str, str | None, str]:
    """Release what is refused for its table; return the error, its field, and what was said on the terminal.

    No value of the table is in the error, and nothing is left behind.
    """
    with pytest.raises(InputError) as caught:
        release(plan)
    stdout, stderr = capfd.readouterr()
    shown = [*traceback.format_exception(caught.value), repr(vars(caught.value)), stdout, stderr]
    assert [text for text in shown if SENTINEL in text or re.search(r"\b[ns][12]\b", text)] == []
    assert stdout == ""
    assert not (place.folder / "out").exists()
    left = {path.name for path in (place.folder / "home").rglob("*") if path.is_file()}
    assert left <= {"store.duckdb", KEY}
    assert place.holding(SENTINEL) == []
    with store() as con:
        assert list_releases(con) == []
        assert head(con).length == 0
    return str(caught.value), caught.value.field, stderr


def test_how_many_were_cut_is_told_to_a_caller_alone(place, capfd):
    """Outside of a command, as in what a deployment runs, neither how many were cut nor how many are at fault is said."""
    rows = [("u1", "n1", "s1"), ("u1", "n1", "s2"), ("u1", "s1", "n1"), ("u2", "n1", "n2")]
    plan = place.plan("person,home,work", rows, **EXACTLY_TWO)
    for heard, said in ((True, "1 unit was cut to at most 2 records.\n1 unit is at fault.\n"), (False, "")):
        hear_as(heard)
        with pytest.raises(InputError):
            release(plan)
        assert capfd.readouterr() == ("", said)


def test_nothing_is_cut_without_a_column_of_units(place, capfd):
    """Where the bound is a promise, the table is taken as it is."""
    rows = [("n1", "s1", 7), ("n2", "s2", 1)]
    plan = place.plan("home,work,people", rows, max_records_per_unit=2, distinct="place")
    assert place.ingested(plan) == {"n1>s1": 7, "n2>s2": 1}
    assert capfd.readouterr() == ("", "")


def test_units_are_told_apart_as_they_are_written(place, capfd):
    """Ids that differ in a sign, a zero, a space or a letter's case are different units."""
    ids = ["1", "01", "1.0", "+1", '" 1"', "a", "A", "á", "NULL", "null"]
    plan = place.plan("person,home,work", [(unit, "n1", "n1") for unit in ids], max_records_per_unit=1)
    assert place.ingested(plan) == {"n1>n1": len(ids)}
    assert capfd.readouterr().err.startswith("0 units were cut")


@settings(max_examples=16)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from(["n1", "n2", "s1"]),
            st.sampled_from(["n1", "s1", "s2"]),
            st.integers(0, 3) | st.just(9),
        ),
        max_size=30,
    ),
    counted=st.booleans(),
    most=st.integers(1, 4),
    distinct=st.sampled_from([None, "region", "place"]),
    finest=st.sampled_from(LEVELS),
)
def test_any_table_is_cut_to_what_its_units_may_have(tmp_path_factory, rows, counted, most, distinct, finest):
    """The vault holds as many records as the units may have, no more of a cell than the table did; how many were cut is said."""
    cell = {"place": lambda end: end, "region": lambda end: end[0].upper(), None: lambda _: ""}
    rows = rows if counted else [(*row, 1) for *row, _ in rows]
    held: Counter = Counter()
    units: dict[str, Counter] = {}
    for unit, home, work, count in rows:
        held[f"{cell[finest](home)}>{cell[finest](work)}"] += count
        units.setdefault(unit, Counter())[cell[distinct](home), cell[distinct](work)] += count
    had = [sum(places.values()) for places in units.values()]
    may_have = [
        min(most, sum(min(count, 1) if distinct else count for count in places.values())) for places in units.values()
    ]
    with pytest.MonkeyPatch.context() as patch, heard_by_caller(), redirect_stderr(StringIO()) as said:
        (folder := tmp_path_factory.getbasetemp() / "any").mkdir(exist_ok=True)
        place = Place(folder)
        patch.setenv("TRELLIS_HOME", str(place.folder / "home"))
        header = "person,home,work" + ",people" * counted
        table = rows if counted else [row for *row, _ in rows]
        found = place.ingested(place.plan(header, table, finest, max_records_per_unit=most, distinct=distinct))
    assert sum(found.values()) == sum(may_have)
    assert all(count <= held[at] for at, count in found.items())
    cut = sum(before > after for before, after in zip(had, may_have, strict=True))
    told = f"{cut} unit{' was' if cut == 1 else 's were'} cut to at most {most} {'distinct ' * bool(distinct)}record"
    assert said.getvalue().splitlines()[-1].startswith(told)


def test_ingest_keeps_any_record_with_the_same_probability(place):
    """Of a unit's repeats in one place, and of its records beyond m, each stays equally often: not the first, or any."""
    rows = [(f"{unit}", home, work) for unit in range(UNITS) for home, work in (("n2", "s2"), ("n1", "s1"))]
    plan = place.plan("person,home,work", rows, max_records_per_unit=2, distinct="region")
    found = place.ingested(plan)
    assert sum(found.values()) == UNITS
    assert goodness_of_fit(Counter({(0,): found["n1>s1"], (1,): found["n2>s2"]}), {(0,): 1, (1,): 1}) > FALSE_ALARM
    rows = [(f"{unit}", "n1", work, 1 + (work == "n1")) for unit in range(UNITS) for work in ("s1", "n1", "n2")]
    found = place.ingested(place.plan("person,home,work,people", rows, max_records_per_unit=1))
    seen = Counter({(0,): found["n1>n1"], (1,): found["n1>n2"], (2,): found["n1>s1"]})
    assert goodness_of_fit(seen, {(0,): 2, (1,): 1, (2,): 1}) > FALSE_ALARM


EXACTLY_TWO = {"neighbours": "substitution", "max_records_per_unit": 2, "exact_records_per_unit": True}
NOT_EXACTLY = "input.table: every unit must have exactly 2 records (privacy.exact_records_per_unit)."


OF_TWO = [*[(f"{SENTINEL}-1", "n1", "s1")] * 3, (f"{SENTINEL}-2", "n2", "n1"), (f"{SENTINEL}-2", "n2", "s1")]
REPEATED_ROWS = [(f"{SENTINEL}-{unit}", "n1", "s1") for unit in range(1_200) for _ in range(2)]
CUT_AND_AT_FAULT = "{0} cut to at most 2 {1}.\n{2} at fault.\n"


@pytest.mark.parametrize(
    ("header", "rows", "distinct", "said"),
    [
        ("person,home,work", OF_TWO[:-1], None, ("1 unit was", "records", "1 unit is")),
        ("person,home,work", REPEATED_ROWS, "place", ("1,200 units were", "distinct records", "1,200 units are")),
        ("home,work,people", [("n1", "n1", 5)], None, None),
    ],
    ids=["too few once cut", "too few without repeats", "a total that is no multiple"],
)
def test_exactness_is_checked_after_cutting(place, capfd, header, rows, distinct, said):
    """A unit with too few records, once it is cut and has no repeats, is refused, and not named; so is a total without units."""
    plan = place.plan(header, rows, **EXACTLY_TWO, distinct=distinct)
    error, field, told = refused(place, capfd, plan)
    assert (error, field) == (NOT_EXACTLY, "privacy.exact_records_per_unit")
    assert told == (CUT_AND_AT_FAULT.format(*said) if said else "")


def test_exactly_as_many_as_promised_are_taken(place):
    """Units with too many records have exactly m once they are cut; without a column of units the total is a multiple."""
    assert sum(place.ingested(place.plan("person,home,work", OF_TWO, **EXACTLY_TWO)).values()) == 4
    assert place.plan("home,work,people", [("n1", "n1", 4)], **EXACTLY_TWO).units.exact


@pytest.mark.parametrize("blank", ["", "  ", '""'], ids=["empty", "spaces", "quoted"])
def test_a_row_without_a_unit_is_refused(place, capfd, blank):
    """A record of nobody cannot be bounded: it is refused by column and rule, even if it counts nothing."""
    rows = [(f"{SENTINEL}-1", "n1", "s1", 1), (blank, "n1", "s1", 0)]
    plan = place.plan("person,home,work,people", rows, max_records_per_unit=1)
    assert refused(place, capfd, plan) == (
        "input.table: column person must not be empty.",
        "input.unit",
        "1 row is at fault.\n",
    )


def test_a_column_of_units_that_is_not_there_is_refused(place, capfd):
    """The column is named."""
    plan = place.plan("person,home,work", [(f"{SENTINEL}-1", "n1", "s1")], max_records_per_unit=1)
    (place.folder / "trips.csv").write_text(f"home,work,Person\nn1,s1,{SENTINEL}-1\n")
    error, field, _ = refused(place, capfd, plan)
    assert (error, field) == ("input.table: trips.csv has no column person.", "input.table")


def everything_in(path: Path) -> Iterator[tuple[str, list[tuple]]]:
    """Yield all tables of a DuckDB file with their columns and rows."""
    with duckdb.connect(str(path), read_only=True) as con:
        for name, sql in con.execute("SELECT table_name, sql FROM duckdb_tables()").fetchall():
            yield f"{name} {sql}", con.execute(f'SELECT * FROM "{name}"').fetchall()


def test_the_search_finds_an_id_that_is_there(place):
    """Had a table of ids been written to the vault, the search of its bytes would find it, and so would its tables."""
    path = place.folder / "home" / "vault"
    path.mkdir(parents=True)
    with duckdb.connect(str(path / "x.duckdb")) as con:
        con.execute(f"CREATE TABLE ids AS SELECT '{SENTINEL}-' || i AS unit FROM range(3000) AS r(i)")
        assert place.holding(SENTINEL)
    assert place.holding(SENTINEL) == [str(path / "x.duckdb")]
    assert any(SENTINEL in repr(found) for found in everything_in(path / "x.duckdb"))


def test_no_id_of_a_unit_reaches_any_file(place, capfd, monkeypatch):
    """While units are cut, after ingest and after the release no file below TRELLIS_HOME holds an id."""
    rows = [(f"{SENTINEL}-{unit:05}", "n1", work) for unit in range(4_000) for work in ("s1", "s1", "n2")]
    plan = place.plan("person,home,work", rows, max_records_per_unit=1, distinct="place")
    meanwhile = []

    def look(*args: Any, **options: Any) -> Any:
        meanwhile.append((vault_path("a-release").exists(), place.holding(SENTINEL)))
        return keep_within(*args, **options)

    monkeypatch.setattr("tasks.ingest.trips.keep_within", look)
    assert sum(place.ingested(plan).values()) == 4_000
    assert meanwhile == [(True, [])]
    assert vault_path("a-release").stat().st_size > 0
    assert place.holding(SENTINEL) == []
    tables = list(everything_in(vault_path("a-release")))
    assert len(tables) == 1
    assert re.match(r"records CREATE TABLE records\(area_0 BIGINT, area_1 BIGINT, true_count BIGINT\)", tables[0][0])
    assert list((place.folder / "home" / "tmp").glob("*")) == []
    released = release(plan)
    assert place.holding(SENTINEL) == []
    assert [path for path in (place.folder / "out" / released).rglob("*") if SENTINEL in path.name] == []
    published = [path for path in (place.folder / "out" / released).rglob("*") if path.is_file()]
    assert published
    # A noisy count may well be 4,000; that so many units were cut may not be said.
    said_of_units = re.compile(rb"4,?000 (units|persons|people)")
    assert [path for path in published if SENTINEL.encode() in path.read_bytes()] == []
    assert [path for path in published if said_of_units.search(path.read_bytes())] == []
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == "4,000 units were cut to at most 1 distinct records.\n" * 2


@pytest.mark.parametrize(
    ("header", "privacy"),
    [
        ("person,home,work,people", {}),
        ("home,work", {}),
        ("person,home,work", {"neighbours": "substitution", "exact_records_per_unit": False}),
    ],
    ids=["add_remove, units", "add_remove, promised", "substitution, at most"],
)
def test_an_empty_table_is_released_where_its_total_is_not_public(place, header, privacy):
    """That there is nobody is as protected as anything: noise is published, as for any other table."""
    plan = place.plan(header, [], max_records_per_unit=1, **privacy)
    assert place.ingested(plan) == {}
    released = release(plan)
    with store() as con:
        total = published_total(con, released)
    assert isinstance(total, int)
    assert 0 <= total < 20 * plan.levels[0].sigma


@pytest.mark.parametrize(("header", "most"), [("person,home,work", 1), ("home,work,people", 2)])
def test_an_empty_table_is_refused_where_its_total_is_public(place, capfd, header, most):
    """Under exact substitution everybody knows that there is nobody: there is nothing to release."""
    plan = place.plan(header, [], **EXACTLY_TWO | {"max_records_per_unit": most})
    error, field, said = refused(place, capfd, plan)
    assert error == "input.table has no records, so there is nothing to release."
    assert (field, said) == ("input.table", "")

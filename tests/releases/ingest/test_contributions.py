"""What is kept of units with more records than promised, and that nothing of who they are reaches the vault."""

import random
import re
from collections import Counter
from contextlib import redirect_stderr
from io import StringIO
from itertools import groupby, product
from math import comb, prod

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from storage.counts.vault import vault_path
from storage.errors import InputError
from storage.machine.caller import print_as
from tasks.ingest import trips
from tasks.ingest.trips import keep_within
from tests.support.tables import N1, N2, S1, S2, SENTINEL, csv

FALSE_ALARM = 1e-6  # of each test of chance: entropy is the operating system's and cannot be seeded
LEAST_EXPECTED = 50
UNITS = 6_000  # in each test of chance

rows_of_units = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 4)), max_size=25).map(sorted)


def kept_of(rows, most, *, distinct):
    """Return how many records of each row are kept."""
    units, places, counts = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    given_counts = counts.copy()
    kept = keep_within(units, places, counts, most, distinct=distinct)
    assert kept.dtype == np.int64
    assert np.array_equal(counts, given_counts), "the given counts were changed"
    return kept.tolist()


def sums(rows, counts, key):
    """Return counts summed by a key of their rows."""
    found = Counter()
    for row, count in zip(rows, counts, strict=True):
        found[key(row)] += count
    return found


@given(rows=rows_of_units, most=st.integers(1, 8), distinct=st.booleans())
def test_as_many_records_are_kept_as_may_be(rows, most, distinct):
    """Of every unit m records are kept or all it may have, and so all within the bounds, no more of a row than it had, none of a place twice."""
    kept = kept_of(rows, most, distinct=distinct)
    assert all(0 <= count <= row[2] for row, count in zip(rows, kept, strict=True))
    places = sums(rows, [row[2] for row in rows], lambda row: row[:2])
    allowed = Counter()
    for (unit, _), count in places.items():
        allowed[unit] += 1 if distinct else count
    by_unit = sums(rows, kept, lambda row: row[0])
    assert by_unit == Counter({unit: min(count, most) for unit, count in allowed.items()})
    if distinct:
        assert max(sums(rows, kept, lambda row: row[:2]).values(), default=0) <= 1


class OfSizeAlone:
    """A stand-in for the system's entropy: which records are drawn depends on how many there are, and on nothing else."""

    def sample(self, population, many):
        """Return the same records whenever as many are drawn of as many."""
        return random.Random(1_000 * len(population) + many).sample(population, many)  # noqa: S311


@given(rows=rows_of_units, most=st.integers(1, 6), distinct=st.booleans())
def test_what_is_kept_of_a_unit_depends_on_that_unit_alone(rows, most, distinct):
    """Drawn in the same way, a unit keeps the same records whichever other units there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trips, "SystemRandom", OfSizeAlone)
        units = [list(of_unit) for _, of_unit in groupby(rows, lambda row: row[0])]
        alone = [count for of_unit in units for count in kept_of(of_unit, most, distinct=distinct)]
        assert kept_of(rows, most, distinct=distinct) == alone


def test_records_are_drawn_from_the_systems_entropy():
    """Which records are kept cannot be foretold from any seed."""
    assert trips.SystemRandom is random.SystemRandom
    rows = [(unit, place, 1) for unit in range(200) for place in range(4)]
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        draws.append(kept_of(rows, 2, distinct=True))
    assert draws[0] != draws[1]


def goodness_of_fit(found, parts):
    """Return the p-value of the chi-square test that outcomes occur in proportion to `parts`."""
    assert set(found) <= set(parts), "an outcome that cannot be"
    observed = np.array([found[outcome] for outcome in parts])
    expected = np.array(list(parts.values())) * observed.sum() / sum(parts.values())
    assert expected.min() >= LEAST_EXPECTED
    return float(stats.chisquare(observed, expected).pvalue)


def outcomes_of(rows, most, *, distinct):
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


def test_every_set_of_records_is_kept_with_the_same_probability():
    """Of seven records in four rows, each of the 35 sets of three is equally likely; of repeats in a place, each is as likely to stay."""
    assert sum(ANY_THREE.values()) == comb(7, 3)
    assert goodness_of_fit(outcomes_of(RECORDS, 3, distinct=False), ANY_THREE) > FALSE_ALARM
    assert goodness_of_fit(outcomes_of(REPEATED, 2, distinct=True), DISTINCT_TWO) > FALSE_ALARM


def test_the_goodness_of_fit_notices_a_preference():
    """Were distinct places drawn in proportion to their records, or a row for a row, the same test would fail."""
    chance = np.random.default_rng(5)
    by_rows = dict.fromkeys(ANY_THREE, 1.0)
    for right, wrong in ((ANY_THREE, by_rows), (DISTINCT_TWO, DISTINCT_TWO | {(1, 0, 1, 0, 0): 1 / 2})):
        weights = np.array(list(wrong.values()))
        drawn = chance.multinomial(UNITS, weights / weights.sum())
        assert goodness_of_fit(Counter(dict(zip(wrong, drawn.tolist(), strict=True))), right) < FALSE_ALARM


# through ingest ------------------------------------------------------------------------------------------------------

UNIT = ("person", "home", "work")
EXACTLY_TWO = {"neighbours": "substitution", "max_records_per_unit": 2, "exact_records_per_unit": True}


def keys_of(place, header, rows, **privacy):
    """Write a table with some columns, and return the keys of a spec over it: those of privacy beside the usual ones."""
    place.write("trips.csv", csv(header, rows))
    columns = {key: name if name in header else None for key, name in (("unit", "person"), ("count", "people"))}
    return columns | {"also": {"privacy": {"neighbours": "add_remove", "epsilon": 2.0} | privacy}}


def test_how_many_were_cut_is_told_to_a_caller_alone(place, capfd):
    """Outside of a command, as in what a deployment runs, neither how many were cut nor how many are at fault is said."""
    rows = [("u1", N1, S1), ("u1", N1, S2), ("u1", S1, N1), ("u2", N1, N2)]
    keys = keys_of(place, UNIT, rows, **EXACTLY_TWO)
    for heard, said in ((True, "1 unit was cut to at most 2 records.\n1 unit is at fault.\n"), (False, "")):
        print_as(heard)
        with pytest.raises(InputError):
            place.ingested(**keys)
        assert capfd.readouterr() == ("", said)


def test_what_is_cut_are_units_as_they_are_written(place, capfd):
    """Ids that differ in a sign, a zero, a space or a letter's case are different units; where the bound is a promise, none is cut."""
    ids = ["1", "01", "1.0", "+1", '" 1"', "a", "A", "á", "NULL", "null"]
    keys = keys_of(place, UNIT, [(unit, N1, N1) for unit in ids], max_records_per_unit=1)
    assert place.ingested(**keys) == {(N1, N1): len(ids)}
    assert capfd.readouterr().err.startswith("0 units were cut")
    promised = {"max_records_per_unit": 2, "distinct": "municipality"}
    assert place.ingested(**keys_of(place, (*UNIT[1:], "people"), [(N1, S1, 7)], **promised)) == {(N1, S1): 7}
    assert capfd.readouterr() == ("", "")


@settings(max_examples=10)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from([N1, N2, S1]),
            st.sampled_from([N1, S1, S2]),
            st.integers(0, 3) | st.just(9),
        ),
        max_size=30,
    ),
    counted=st.booleans(),
    most=st.integers(1, 4),
    distinct=st.sampled_from([None, "region", "municipality"]),
    finest=st.sampled_from(["region", "municipality"]),
)
def test_any_table_is_cut_to_what_its_units_may_have(anyplace, rows, counted, most, distinct, finest):
    """The vault holds as many records as the units may have, no more of a cell than the table did; how many were cut is said."""
    cell = {"municipality": lambda end: end, "region": lambda end: end[:2], None: lambda _: ""}
    rows = rows if counted else [(*row, 1) for *row, _ in rows]
    held = Counter()
    units = {}
    for unit, home, work, count in rows:
        held[cell[finest](home), cell[finest](work)] += count
        units.setdefault(unit, Counter())[cell[distinct](home), cell[distinct](work)] += count
    had = [sum(places.values()) for places in units.values()]
    may_have = [
        min(most, sum(min(count, 1) if distinct else count for count in places.values())) for places in units.values()
    ]
    header, table = (*UNIT, *(["people"] if counted else [])), rows if counted else [row for *row, _ in rows]
    keys = keys_of(anyplace, header, table, max_records_per_unit=most, distinct=distinct)
    with redirect_stderr(StringIO()) as said:
        found = anyplace.ingested(**keys, finest=finest)
    assert sum(found.values()) == sum(may_have)
    assert all(count <= held[at] for at, count in found.items())
    cut = sum(before > after for before, after in zip(had, may_have, strict=True))
    told = f"{cut} unit{' was' if cut == 1 else 's were'} cut to at most {most} {'distinct ' * bool(distinct)}record"
    assert said.getvalue().splitlines()[-1].startswith(told)


def test_ingest_keeps_any_record_with_the_same_probability(place):
    """Of a unit's repeats in one place, and of its records beyond m, each stays equally often: not the first, or any."""
    rows = [(unit, *ends) for unit in range(UNITS) for ends in ((N2, S2), (N1, S1))]
    found = place.ingested(**keys_of(place, UNIT, rows, max_records_per_unit=2, distinct="region"))
    assert sum(found.values()) == UNITS
    assert goodness_of_fit(Counter({(0,): found[N1, S1], (1,): found[N2, S2]}), {(0,): 1, (1,): 1}) > FALSE_ALARM
    rows = [(unit, N1, work, 1 + (work == N1)) for unit in range(UNITS) for work in (S1, N1, N2)]
    found = place.ingested(**keys_of(place, (*UNIT, "people"), rows, max_records_per_unit=1))
    seen = Counter({(0,): found[N1, N1], (1,): found[N1, N2], (2,): found[N1, S1]})
    assert goodness_of_fit(seen, {(0,): 2, (1,): 1, (2,): 1}) > FALSE_ALARM


OF_TWO = [*[(f"{SENTINEL}-1", N1, S1)] * 3, (f"{SENTINEL}-2", N2, N1), (f"{SENTINEL}-2", N2, S1)]
REPEATED_ROWS = [(f"{SENTINEL}-{unit}", N1, S1) for unit in range(1_200) for _ in range(2)]
NOT_EXACTLY = "input.table: every unit must have exactly 2 records (privacy.exact_records_per_unit)."
CUT = "{} cut to at most 2 {}.\n{} at fault.\n"
EXACT, NOBODY = "privacy.exact_records_per_unit", "input.table has no records, so there is nothing to release."


@pytest.mark.parametrize(("header", "rows", "privacy", "refusal"), [
    (UNIT, OF_TWO[:-1], {}, (NOT_EXACTLY, EXACT, CUT.format("1 unit was", "records", "1 unit is"))),
    (*(UNIT, REPEATED_ROWS, {"distinct": "municipality"}), (NOT_EXACTLY, EXACT, CUT.format("1,200 units were", "distinct records", "1,200 units are"))),
    ((*UNIT[1:], "people"), [(N1, N1, 5)], {}, (NOT_EXACTLY, EXACT, "")),
    (UNIT, [], {"max_records_per_unit": 1}, (NOBODY, "input.table", "")),
    ((*UNIT[1:], "people"), [], {}, (NOBODY, "input.table", "")),
    *(
        (
            *((*UNIT, "people"), [(f"{SENTINEL}-1", N1, S1, 1), (blank, N1, S1, 0)]),
            *({}, ("input.table: column person must not be empty.", "input.unit", "1 row is at fault.\n")),
        )
        for blank in ("", "  ", '""')
    ),
], ids=["cut", "repeats", "no multiple", "nobody", "nobody counted", "no unit", "spaces", "quotes"])  # fmt: skip
def test_units_that_cannot_be_bounded_are_refused(refusing, capfd, header, rows, privacy, refusal):
    """Too few records once cut and without repeats, a total that is no multiple, a public total of 0, and records of nobody."""
    error, said = refusing.refusal(capfd, **keys_of(refusing, header, rows, **EXACTLY_TWO | privacy))
    assert (str(error), error.field, said) == refusal


def test_exactly_as_many_as_promised_are_taken(place):
    """Units with too many records have exactly m once they are cut; without a column of units the total is a multiple."""
    assert sum(place.ingested(**keys_of(place, UNIT, OF_TWO, **EXACTLY_TWO)).values()) == 4
    assert sum(place.ingested(**keys_of(place, (*UNIT[1:], "people"), [(N1, N1, 4)], **EXACTLY_TWO)).values()) == 4


def test_no_id_of_a_unit_reaches_any_file(place, capfd, monkeypatch):
    """While units are cut, after ingest and after the release no file below TRELLIS_HOME holds an id."""
    rows = [(f"{SENTINEL}-{unit:05}", N1, work) for unit in range(4_000) for work in (S1, S1, N2)]
    keys = keys_of(place, UNIT, rows, max_records_per_unit=1, distinct="municipality")
    meanwhile = []

    def look(*args, **options):
        meanwhile.append((vault_path("a-release").exists(), place.holding(SENTINEL)))
        return keep_within(*args, **options)

    monkeypatch.setattr("tasks.ingest.trips.keep_within", look)
    assert sum(place.in_vault(**keys).values()) == 4_000
    assert meanwhile == [(True, [])]
    assert vault_path("a-release").stat().st_size > 0
    assert place.holding(SENTINEL) == []
    with duckdb.connect(str(vault_path("a-release")), read_only=True) as con:
        ((made,),) = con.execute("SELECT sql FROM duckdb_tables()").fetchall()
    assert made.startswith("CREATE TABLE records(area_0 BIGINT, area_1 BIGINT, true_count BIGINT)")
    assert list((place.folder / "home" / "tmp").glob("*")) == []
    folder = place.release(**keys)
    assert place.holding(SENTINEL) == []
    published = [path for path in folder.rglob("*") if path.is_file()]
    assert published
    # A noisy count may well be 4,000; that so many units were cut may not be said.
    told = re.compile(rb"4,?000 (units|persons|people)|" + SENTINEL.encode())
    assert [path for path in published if SENTINEL in path.name or told.search(path.read_bytes())] == []
    assert capfd.readouterr() == ("", "4,000 units were cut to at most 1 distinct records.\n" * 2)
    with duckdb.connect(str(vault_path("x"))) as con:  # had a table of ids been written, the search would find it
        con.execute(f"CREATE TABLE ids AS SELECT '{SENTINEL}-' || i AS unit FROM range(3000) AS r(i)")
    assert place.holding(SENTINEL) == [str(vault_path("x"))]

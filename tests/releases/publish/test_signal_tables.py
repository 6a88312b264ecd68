"""Tables of the rows that stand out: with their remainders they add up, they follow from the full tables, and `verify` holds them to it."""

import functools
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from flows.api import plan, release
from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.errors import SpecError
from tasks.folder.verify.folder import verify
from tasks.laws.named import noise_of
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.uncertainty.intervals import row_margins
from tests.support.folders import rewrite, with_sums
from tests.support.library import WITH_SIGNAL
from tests.support.spec import SPEC, spec_in

BASE = SPEC | {"mechanism": "inftda_reconciled", "release": SPEC["release"] | {"rows": "signal"}}
AT_ONCE = {"simultaneous": True, "confidence": 1 - 1e-9}  # by chance they fail once in a billion runs
LEVELS = ["nation", "state", "county", "town"]
REPEATED = [("N", f"S{k // 6}", f"C{k // 6}", f"T{k}") for k in range(24)]  # one nation; a county in each state
RELEASES = {  # by what is said of them: the keys that differ from those of the base
    "two passes": {"privacy": {"epsilon": 1.0}},
    "at once": {"mechanism": "inftda", "privacy": {"epsilon": 1.0}, "release": {"intervals": AT_ONCE, "noisy_counts": False, "csv": False}},
    "no marks": {"privacy": {"epsilon": 0.001}, "release": {"signal_rate": 1e-9}},
    "exact level": {"privacy": {"invariants": ["region"], "i_accept_unprotected": True}, "keep_noisy_counts": False},
    "leaves": {
        "mechanism": "gaussian",
        "privacy": {"neighbours": "add_remove"},
        "release": {"csv": False, "signal_rate": 0.5, "tree": "origin"},
    },
    "much noise": {"privacy": {"epsilon": 0.02}, "release": {"csv": "every_level"}},
    "some noise": {"privacy": {"epsilon": 0.3}, "release": {"intervals": {"simultaneous": True}, "tree": "origin"}},
    "repeated": {  # each cell above holds one cell
        "input": {"table": "repeated.csv"},
        "hierarchy": {"table": "areas.csv", "levels": LEVELS},
        "release": {"finest": "town"},
        "privacy": {"epsilon": 1.0},
    },
    "least squares": {"mechanism": "tda_l2", "keep_noisy_counts": False},
}  # fmt: skip
FEW = ["two passes", "at once", "exact level", "repeated"]


@pytest.fixture(scope="module")
def released(tmp_path_factory, library):
    """Return what finds a release: of a made-up country, made once, or of the library."""
    place = tmp_path_factory.mktemp("signal")
    drawn = draw_country(regions=2, provinces=6, municipalities=24, people=3_000, generator=np.random.default_rng(7))
    write_country(drawn, place / "data")
    pl.DataFrame(REPEATED, schema=LEVELS, orient="row").write_csv(place / "areas.csv")
    trips = "".join(f"T{k * 7 % 24},T{k * k % 24},1\n" for k in range(4_000))
    (place / "repeated.csv").write_text(f"home,work,people\n{trips}")

    @functools.cache
    def of(name):
        if name not in RELEASES:
            return library[name].found
        keys = BASE | {"dataset": name.replace(" ", "-")}
        for key, value in RELEASES[name].items():
            keys[key] = keys[key] | value if isinstance(value, dict) else value
        return release(spec_in(place, keys), different_people=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        with store():  # open all the time
            yield of


def full(folder, level, kind="counts"):
    """Return the full table of a level."""
    return pl.read_parquet(folder / kind / f"level_{level}.parquet")


few = partial(full, kind="signal")  # the table of a level's rows that stand out


def codes(table):
    """Return the columns of codes of a table."""
    return table.columns[: table.columns.index("count")]


def named(row, columns):
    """Return the codes that a row has."""
    return tuple((column, row[column]) for column in columns if row[column] is not None)


def expected(folder, level):
    """Return, by its codes, the count of each row that the table of a level must have, and whether it is a remainder."""
    # Every leaf of the full tables down to the level is looked at by itself: which of the marked rows that hold it is the finest?
    tables = [full(folder, of) for of in range(level + 1)]
    marked = [
        {()},
        *({named(row, codes(of)) for row in of.filter("signal").iter_rows(named=True)} for of in tables[1:]),
    ]
    found = {}
    for row in tables[level].iter_rows(named=True):
        above = [named(row, codes(table)) for table in tables]
        finest = next(of for of in reversed(range(level + 1)) if above[of] in marked[of])
        found[above[finest]] = found.get(above[finest], 0) + row["count"]
    width = len(codes(tables[level]))
    return {of: (count, len(of) < width) for of, count in found.items() if count or len(of) == width}


def assert_whole(folder):
    """Assert that the tables are those that follow from the full ones leaf by leaf, so that they add up, and are found intact."""
    assert verify(folder) == []
    for level in range(1, len(list((folder / "counts").glob("level_*.parquet")))):
        table = few(folder, level)
        columns = codes(table)
        assert columns == codes(full(folder, level))
        found = {named(row, columns): (row["count"], row["remainder"]) for row in table.iter_rows(named=True)}
        assert len(found) == len(table) <= len(full(folder, level))
        assert found == expected(folder, level)


@pytest.mark.parametrize(
    "name",
    [*WITH_SIGNAL, *(name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in RELEASES)],
)
def test_marked_rows_and_remainders_add_up(released, name):
    """Each leaf is counted once: in the finest marked row that holds it, or in what such a row leaves."""
    # So where counts and remainders may be below zero, on a grid, where groups are counted, and with views, which have no such tables.
    found = released(name)
    assert_whole(found.folder)
    assert {path.name.partition("_")[0] for path in (found.folder / "signal").iterdir()} == {"level"}
    stated = found.manifest.signal_tables
    assert [of.level for of in stated] == list(range(1, len(found.manifest.levels)))
    for of in stated:
        table = few(found.folder, of.level)
        assert (of.rows, of.remainders) == (len(table), int(table["remainder"].sum()))
        assert of.half_width is None or not found.manifest.covariance
    repeated = [entry for entry in found.manifest.levels if entry.same_as]
    assert repeated or name != "repeated"
    for entry in repeated:  # the marked rows are those above, with one code more, and leave nothing
        above, own = few(found.folder, entry.level - 1), few(found.folder, entry.level)
        columns = [*codes(above), "count", "low", "high", "remainder"]
        assert own.filter(~pl.col("remainder")).select(columns).equals(above.filter(~pl.col("remainder")))


def test_intervals_are_those_of_so_few_rows(released):
    """A marked row's interval is wider than in the full table by what so few rows need more; remainders have none."""
    found = released("two passes")
    is_wider, levels = False, found.manifest.levels
    rows_of = [entry.signal.rows if entry.signal else 0 for entry in levels]
    confidence, cells = found.manifest.intervals.confidence, [entry.cells for entry in levels]
    margins = row_margins([noise_of(entry) for entry in levels], cells, rows_of, confidence)
    assert [of.half_width for of in found.manifest.signal_tables] == [of.own for of in margins[1:]]
    for entry, stated in zip(levels[1:], found.manifest.signal_tables, strict=True):
        table = few(found.folder, entry.level)
        rows = full(found.folder, entry.level).filter("signal")
        further = stated.half_width - entry.half_width
        is_wider = is_wider or further > 0
        marked, remainders = table.filter(~pl.col("remainder")), table.filter("remainder")
        assert marked["low"].to_list() == [max(low - further, 0) for low in rows["low"]]
        assert marked["high"].to_list() == [min(high + further, 3_000) for high in rows["high"]]
        assert remainders["low"].null_count() == remainders["high"].null_count() == len(remainders)
    assert is_wider
    table = few(released("exact level").folder, 1)  # which is published exactly: there is nothing to widen
    assert not table["remainder"].any()
    assert (table["low"] == table["high"]).all()


def test_intervals_that_hold_at_once_hold_for_remainders(released):
    """What is left of the least of one count and the most of others lies around the remainder, and around the truth."""
    found = released("at once")
    country = found.folder.parents[1] / "data"
    codebook = pl.read_csv(country / "codebook.csv", infer_schema=False)
    trips = pl.read_csv(country / "trips.csv", schema_overrides={"home": str, "work": str})
    for axis, column in {"origin": "home", "destination": "work"}.items():
        of_axis = codebook.rename({name: f"{axis}_{name}" for name in codebook.columns})
        trips = trips.join(of_axis, left_on=column, right_on=f"{axis}_municipality", coalesce=False)
    seen = 0
    for level in range(1, 7):
        table, left = few(found.folder, level), trips
        assert (table["simultaneous_low"] <= table["count"]).all()
        assert (table["simultaneous_high"] >= table["count"]).all()
        rows = {named(row, codes(table)): row for row in table.iter_rows(named=True)}
        tables = [full(found.folder, above) for above in range(1, level + 1)]
        marked = [named(row, codes(of)) for of in tables for row in of.filter("signal").iter_rows(named=True)]
        for of in reversed([(), *marked]):  # the finest first: each true trip is counted once
            is_inside = pl.all_horizontal(pl.lit(value=True), *(pl.col(name) == code for name, code in of))
            true, left = left.filter(is_inside)["people"].sum(), left.filter(~is_inside)
            if row := rows.get(of):  # a remainder of 0 has no row
                assert row["simultaneous_low"] <= true <= row["simultaneous_high"]
                seen += row["remainder"]
        assert left.is_empty()
    assert seen > 20


def spoilt_table(change):
    """Return what changes the finest table, and its CSV likewise."""

    def spoil(folder):
        path = folder / "signal" / "level_6.parquet"
        table = change(pl.read_parquet(path))
        table.write_parquet(path)
        table.write_csv(path.with_suffix(".csv"))

    return spoil


def unmarked(folder):
    """Take the mark off a row of a full table, and off what the manifest says of it."""
    path = folder / "counts" / "level_3.parquet"
    table = pl.read_parquet(path)
    first = int(table["signal"].arg_max() or 0)
    table = table.with_columns(signal=pl.col("signal") & (pl.int_range(pl.len()) != first))
    table.write_parquet(path)
    rewrite(folder, lambda of: of["levels"][3]["signal"].update(rows=int(table["signal"].sum())))


def with_other_csv(folder):
    """Let the CSV of a table lack its last row."""
    path = folder / "signal" / "level_6.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def in_manifest(change):
    """Return what changes the manifest of a folder."""
    return lambda folder: rewrite(folder, change)


def moved(table):
    """Move a record from one row to the next."""
    return table.with_columns(count=pl.col("count") + pl.Series([1, -1] + [0] * (len(table) - 2)))


NOT_THOSE = "signal/level_6.parquet: the rows are not those that stand out in the full tables"


@pytest.mark.parametrize(("spoil", "failure"), [
    (spoilt_table(moved), NOT_THOSE),
    (spoilt_table(lambda table: table[:-1]), NOT_THOSE),
    (spoilt_table(lambda table: table[::-1]), NOT_THOSE),
    (spoilt_table(lambda table: table.with_columns(remainder=pl.lit(value=False))), NOT_THOSE),
    (spoilt_table(lambda table: table.with_columns(low=pl.col("low") + 1)), NOT_THOSE),
    (spoilt_table(lambda table: table.with_columns(low=pl.col("low").fill_null(0))), NOT_THOSE),
    (spoilt_table(lambda table: table.with_columns(pl.col("origin_municipality").fill_null(""))), NOT_THOSE),
    (spoilt_table(lambda table: table.drop("remainder")), "signal/level_6.parquet: columns must be origin_region"),
    (lambda folder: (folder / "signal/level_3.parquet").unlink(), "signal/level_3.parquet is missing"),
    (with_other_csv, "level_6.csv differs from the table of the rows that stand out at level 6."),
    (lambda folder: (folder / "signal/level_6.csv").unlink(), "level_6.csv is missing"),
    (in_manifest(lambda of: of["signal_tables"][2].update(rows=1)), "does not state level 3 as it is"),
    (in_manifest(lambda of: of["signal_tables"][2].update(half_width=1)), "does not state level 3 as it is"),
    (in_manifest(lambda of: of["signal_tables"].pop()), "must list the levels from 1 to the finest"),
    (in_manifest(lambda of: of.pop("signal_tables")), "must list the levels from 1 to the finest"),
    (in_manifest(lambda of: of["spec"]["release"].pop("rows")), "the spec does not ask for it"),
    (unmarked, "signal/level_3.parquet: the rows are not those"),
])  # fmt: skip
def test_edits_are_found(released, tmp_path, spoil, failure):
    """Whatever is changed in these tables, their copies, the marks, or what is stated of them, is said although checksums fit."""
    made = released("at once" if spoil is unmarked else "two passes").folder  # the former without noisy counts
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    assert few(folder, 6)["remainder"].any()
    spoil(folder)
    with_sums(folder)
    assert any(failure in said for said in verify(folder))


def test_plans_say_so_and_refuse_what_cannot_be(country, tmp_path, own_home, capsys):
    """A mechanism all of whose rows stand out needs no such tables, and no feature may have the name of their last column."""
    shutil.copytree(country, tmp_path / "data")
    path = tmp_path / "spec.yaml"
    for written in ("signal", "all"):
        path.write_text(yaml.safe_dump(SPEC | {"release": SPEC["release"] | {"rows": written}}))
        forecast = plan_answer(make_plan(load_spec(path)))
        assert forecast.rows == written
        show_plan(forecast)
        assert ("rows that stand out" in capsys.readouterr().out) == (written == "signal")
    privacy = {key: value for key, value in SPEC["privacy"].items() if key != "accountant"}
    features = {
        "input": {"table": "data/trips.csv", "features": ["remainder", "work"], "count": "people"},
        "hierarchy": {"remainder": ["a", "b"], "work": ["c", "d"]},
        "release": {"order": ["remainder", "work"], "rows": "signal"},
    }
    needless = "release.rows must be all with mechanism stability_histogram, got signal"
    for keys, told in [
        ({"mechanism": "stability_histogram", "privacy": privacy}, f"{needless}.*Leave release.rows out"),
        ({"release": BASE["release"] | {"rows": "marked"}}, "release.rows must be all or signal, got “marked”"),
        (features, "would give two columns of the published tables the name remainder"),
    ]:
        path.write_text(yaml.safe_dump(BASE | keys))
        with pytest.raises(SpecError) as fault:
            plan(path)
        assert re.search(told, f"{fault.value} {fault.value.hint}", re.DOTALL)
    path.write_text(yaml.safe_dump(SPEC | features | {"release": {"order": ["remainder", "work"]}}))
    plan(path)

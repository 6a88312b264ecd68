"""Tables of the rows that stand out: with their remainders they add up, they follow from the full tables, and `verify` holds them to it."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.verify import verify_answer
from flows.api import PublishedRelease, plan, release
from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import SpecError
from tasks.format.manifest import published_manifest
from tasks.laws.named import noise_of
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.uncertainty.intervals import row_margins
from tasks.verify.folder import verify
from tasks.verify.signal_tables import signal_failures
from tests.support.folders import rewrite, with_sums
from tests.support.library import WITH_SIGNAL, Library
from tests.support.spec import SPEC

Row = dict[str, Any]
Released = Callable[[str], PublishedRelease]

BASE: dict[str, Any] = SPEC | {"mechanism": "inftda_reconciled", "release": SPEC["release"] | {"rows": "signal"}}
AT_ONCE = {"simultaneous": True, "confidence": 1 - 1e-9}  # by chance they fail once in a billion runs
RELEASES: dict[str, dict[str, Any]] = {  # by what is said of them: the keys that differ from those of the base
    "two passes": {"privacy": {"epsilon": 1.0}},
    "at once": {
        "mechanism": "inftda",
        "privacy": {"epsilon": 1.0},
        "release": {"intervals": AT_ONCE, "noisy_counts": False, "csv": False},
    },
    "no marks": {"privacy": {"epsilon": 0.001}, "release": {"signal_rate": 1e-9}},
    "exact level": {"privacy": {"invariants": ["region"], "i_accept_unprotected": True}, "keep_noisy_counts": False},
    "leaves": {
        "mechanism": "gaussian",
        "privacy": {"neighbours": "add_remove"},
        "release": {"csv": False, "signal_rate": 0.5, "tree": "origin"},
    },
    "much noise": {"privacy": {"epsilon": 0.02}, "release": {"csv": "every_level"}},
    "some noise": {"privacy": {"epsilon": 0.3}, "release": {"intervals": {"simultaneous": True}, "tree": "origin"}},
    "least squares": {"mechanism": "tda_l2", "keep_noisy_counts": False},
}
FEW = list(RELEASES)[:5]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """Return what makes one of the releases, of a made-up country, once."""
    place, made = tmp_path_factory.mktemp("signal"), dict[str, PublishedRelease]()
    write_country(
        draw_country(regions=2, provinces=6, municipalities=24, people=3_000, generator=np.random.default_rng(7)),
        place / "data",
    )

    def of(name: str) -> PublishedRelease:
        if name not in made:
            keys = BASE | {"dataset": name.replace(" ", "-")}
            for key, value in RELEASES[name].items():
                keys[key] = keys[key] | value if isinstance(value, dict) else value
            (place / "spec.yaml").write_text(yaml.safe_dump(keys))
            made[name] = release(place / "spec.yaml", different_people=True)
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield of


def full(folder: Path, level: int) -> pl.DataFrame:
    """Return the full table of a level."""
    return pl.read_parquet(folder / "counts" / f"level_{level}.parquet")


def few(folder: Path, level: int) -> pl.DataFrame:
    """Return the table of a level's rows that stand out."""
    return pl.read_parquet(folder / "signal" / f"level_{level}.parquet")


def depth(folder: Path) -> int:
    """Return the number of the finest level."""
    return len(list((folder / "counts").glob("level_*.parquet"))) - 1


def codes(table: pl.DataFrame) -> list[str]:
    """Return the columns of codes of a table."""
    return table.columns[: table.columns.index("count")]


def named(row: Row, columns: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the codes that a row has."""
    return tuple((column, row[column]) for column in columns if row[column] is not None)


def marks(folder: Path, level: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the codes of a level's rows that stand out."""
    table = full(folder, level)
    return [named(row, codes(table)) for row in table.filter("signal").iter_rows(named=True)]


def expected(folder: Path, level: int) -> dict[tuple[tuple[str, str], ...], tuple[int, bool]]:
    """Return, by its codes, the count of each row that the table of a level must have, and whether it is a remainder.

    Every leaf of the full tables down to the level is looked at by itself: which of the marked rows that hold it is the finest?
    """
    tables = [full(folder, of) for of in range(level + 1)]
    marked = [{()}, *(set(marks(folder, of)) for of in range(1, level + 1))]
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for row in tables[level].iter_rows(named=True):
        above = [named(row, codes(table)) for table in tables]
        finest = next(of for of in reversed(range(level + 1)) if above[of] in marked[of])
        found[above[finest]] = found.get(above[finest], 0) + row["count"]
    width = len(codes(tables[level]))
    return {of: (count, len(of) < width) for of, count in found.items() if count or len(of) == width}


def assert_whole(folder: Path) -> None:
    """Assert that the tables are those that follow from the full ones, add up row by row, and are found intact."""
    assert verify(folder) == []
    total = int(full(folder, 0)["count"].item())
    tables = {level: few(folder, level) for level in range(1, depth(folder) + 1)}
    for level, table in tables.items():
        columns = codes(table)
        assert columns == codes(full(folder, level))
        found = {named(row, columns): (row["count"], row["remainder"]) for row in table.iter_rows(named=True)}
        assert len(found) == len(table) <= len(full(folder, level))
        assert found == expected(folder, level)
        assert int(table["count"].sum()) == total
        assert (
            table.filter(~pl.col("remainder"))
            .select(*columns, "count")
            .equals(full(folder, level).filter("signal").select(*columns, "count"))
        )
    for above, table in pairwise(tables.values()):
        rows = [named(row, codes(table)) for row in table.iter_rows(named=True)]
        held = [named(row, codes(above)) for row in above.iter_rows(named=True)]
        for of, count in zip(held, above["count"], strict=True):
            finer = [other for other in held if set(of) < set(other)]
            inside = [
                number
                for number, row in enumerate(rows)
                if set(of) <= set(row) and not any(set(other) <= set(row) for other in finer)
            ]
            assert int(table["count"].gather(inside).sum()) == count


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in RELEASES]
)
def test_marked_rows_and_remainders_add_up(released: Released, name: str) -> None:
    """Each leaf is counted once: in the finest marked row that holds it, or in what such a row leaves."""
    found = released(name)
    assert_whole(found.folder)
    stated = found.manifest.signal_tables
    assert [of.level for of in stated] == list(range(1, len(found.manifest.levels)))
    for of in stated:
        table = few(found.folder, of.level)
        assert (of.rows, of.remainders) == (len(table), int(table["remainder"].sum()))


@pytest.mark.parametrize("name", WITH_SIGNAL)
def test_other_releases_have_them_too(library: Library, name: str) -> None:
    """So where counts and remainders may be below zero, on a grid, where groups are counted, and with views, which have no such tables."""
    found = library[name].found
    assert_whole(found.folder)
    assert {path.name.partition("_")[0] for path in (found.folder / "signal").iterdir()} == {"level"}
    if found.manifest.covariance:
        assert all(of.half_width is None for of in found.manifest.signal_tables)


REPEATED = [("N", f"S{k // 6}", f"C{k // 6}", f"T{k}") for k in range(24)]  # one nation; a county in each state


def test_levels_that_repeat_another_repeat_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each cell above holds one cell, the marked rows are those above, with one code more, and leave nothing."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    levels = ["nation", "state", "county", "town"]
    pl.DataFrame(REPEATED, schema=levels, orient="row").write_csv(tmp_path / "areas.csv")
    trips = [(f"T{k * 7 % 24}", f"T{k * k % 24}") for k in range(4_000)]
    pl.DataFrame(trips, schema=["home", "work"], orient="row").write_csv(tmp_path / "trips.csv")
    written = SPEC | {
        "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
        "hierarchy": {"table": "areas.csv", "levels": levels},
        "release": {"tree": "destination", "finest": "town", "rows": "signal"},
        "privacy": SPEC["privacy"] | {"epsilon": 1.0},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(written))
    found = release(tmp_path / "spec.yaml")
    assert_whole(found.folder)
    repeated = [entry for entry in found.manifest.levels if entry.same_as]
    assert repeated
    for entry in repeated:
        above, own = few(found.folder, entry.level - 1), few(found.folder, entry.level)
        columns = [*codes(above), "count", "low", "high", "remainder"]
        assert own.filter(~pl.col("remainder")).select(columns).equals(above.filter(~pl.col("remainder")))


def test_a_level_without_marks_has_remainders_alone(released: Released) -> None:
    """With so much noise that nothing stands out, every table says only how many records there are."""
    found = released("no marks")
    assert [entry.signal for entry in found.manifest.levels[1:]] == [None] * 6
    for level in range(1, 7):
        [row] = few(found.folder, level).iter_rows(named=True)
        assert row.pop("count") == 3_000
        assert row.pop("remainder")
        assert set(row.values()) == {None}
    assert [of.half_width for of in found.manifest.signal_tables] == [None] * 6


def test_intervals_are_those_of_so_few_rows(released: Released) -> None:
    """A marked row's interval is wider than in the full table by what so few rows need more; remainders have none."""
    found = released("two passes")
    is_wider, levels = False, found.manifest.levels
    marked_rows = [entry.signal.rows if entry.signal else 0 for entry in levels]
    margins = row_margins(
        [noise_of(entry) for entry in levels],
        [entry.cells for entry in levels],
        marked_rows,
        found.manifest.intervals.confidence,
    )
    assert [of.half_width for of in found.manifest.signal_tables] == [of.own for of in margins[1:]]
    for entry, stated in zip(levels[1:], found.manifest.signal_tables, strict=True):
        table = few(found.folder, entry.level)
        rows = full(found.folder, entry.level).filter("signal")
        assert stated.half_width is not None
        assert entry.half_width is not None
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


def test_intervals_that_hold_at_once_hold_for_remainders(released: Released) -> None:
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
        marked = [(), *(of for above in range(1, level + 1) for of in marks(found.folder, above))]
        for of in reversed(marked):  # the finest first: each true trip is counted once
            is_inside = pl.all_horizontal(pl.lit(value=True), *(pl.col(name) == code for name, code in of))
            true, left = left.filter(is_inside)["people"].sum(), left.filter(~is_inside)
            if row := rows.get(of):  # a remainder of 0 has no row
                assert row["simultaneous_low"] <= true <= row["simultaneous_high"]
                seen += row["remainder"]
        assert left.is_empty()
    assert seen > 20


def test_readme_and_report_say_what_remainders_are(released: Released, library: Library) -> None:
    """The README says how to read the tables and lists them, the report links to the finest; without the key there is no word of them."""
    found = released("two passes")
    finest = found.manifest.signal_tables[-1]
    readme, page = ((found.folder / name).read_text() for name in ("README.md", "report.html"))
    assert "`remainder`" in readme
    assert f"{finest.rows:,} rows\n  at the finest level; the same as CSV beside it." in readme
    assert '<a href="signal/level_6.csv">' in page
    assert verify_answer(found.folder).failures == []
    bare = released("leaves")
    assert "`low` and `high` are empty in `signal/`" in (bare.folder / "README.md").read_text()
    assert '<a href="signal/level_6.parquet">' in (bare.folder / "report.html").read_text()
    without = library["trips"].folder
    assert "signal_tables" not in json.loads((without / "manifest.json").read_text())
    assert not (without / "signal").exists()
    assert "remainder" not in (without / "README.md").read_text()
    assert "signal/" not in (without / "report.html").read_text()


def spoilt_table(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    """Return what changes the finest table, and its CSV likewise."""

    def spoil(folder: Path) -> None:
        path = folder / "signal" / "level_6.parquet"
        table = change(pl.read_parquet(path))
        table.write_parquet(path)
        table.write_csv(path.with_suffix(".csv"))

    return spoil


def moved(table: pl.DataFrame) -> pl.DataFrame:
    """Move a record from one row to the next."""
    return table.with_columns(count=pl.col("count") + pl.Series([1, -1] + [0] * (len(table) - 2)))


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Return what changes the manifest of a folder."""
    return lambda folder: rewrite(folder, change)


def unmarked(folder: Path) -> None:
    """Take the mark off a row of a full table, and off what the manifest says of it."""
    path = folder / "counts" / "level_3.parquet"
    table = pl.read_parquet(path)
    first = int(table["signal"].arg_max() or 0)
    table = table.with_columns(signal=pl.col("signal") & (pl.int_range(pl.len()) != first))
    table.write_parquet(path)
    rewrite(folder, lambda of: of["levels"][3]["signal"].update(rows=int(table["signal"].sum())))


def without(folder: Path) -> None:
    """Delete a table."""
    (folder / "signal" / "level_3.parquet").unlink()


def with_other_csv(folder: Path) -> None:
    """Let the CSV of a table lack its last row."""
    path = folder / "signal" / "level_6.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def without_csv(folder: Path) -> None:
    """Delete the CSV of a table."""
    (folder / "signal" / "level_6.csv").unlink()


NOT_THOSE = "signal/level_6.parquet: the rows are not those that stand out in the full tables"


@pytest.mark.parametrize(
    ("spoil", "failure"),
    [
        (spoilt_table(moved), NOT_THOSE),
        (spoilt_table(lambda table: table[:-1]), NOT_THOSE),
        (spoilt_table(lambda table: table[::-1]), NOT_THOSE),
        (spoilt_table(lambda table: table.with_columns(remainder=pl.lit(value=False))), NOT_THOSE),
        (spoilt_table(lambda table: table.with_columns(low=pl.col("low") + 1)), NOT_THOSE),
        (spoilt_table(lambda table: table.with_columns(low=pl.col("low").fill_null(0))), NOT_THOSE),
        (spoilt_table(lambda table: table.with_columns(pl.col("origin_municipality").fill_null(""))), NOT_THOSE),
        (spoilt_table(lambda table: table.drop("remainder")), "signal/level_6.parquet: columns must be origin_region"),
        (without, "signal/level_3.parquet is missing"),
        (with_other_csv, "level_6.csv differs from the table of the rows that stand out at level 6."),
        (without_csv, "level_6.csv is missing"),
        (in_manifest(lambda of: of["signal_tables"][2].update(rows=1)), "does not state level 3 as it is"),
        (in_manifest(lambda of: of["signal_tables"][2].update(half_width=1)), "does not state level 3 as it is"),
        (in_manifest(lambda of: of["signal_tables"].pop()), "must list the levels from 1 to the finest"),
        (in_manifest(lambda of: of.pop("signal_tables")), "must list the levels from 1 to the finest"),
        (in_manifest(lambda of: of["spec"]["release"].pop("rows")), "the spec does not ask for it"),
        (unmarked, "signal/level_3.parquet: the rows are not those"),
    ],
)  # fmt: skip
def test_edits_are_found(released: Released, tmp_path: Path, spoil: Callable[[Path], None], failure: str) -> None:
    """Whatever is changed in these tables, their copies, the marks, or what is stated of them, is said."""
    folder = Path(shutil.copytree(released("two passes").folder, tmp_path / "copy"))
    assert few(folder, 6)["remainder"].any()
    spoil(folder)
    manifest = published_manifest(folder)
    assert manifest is not None
    assert any(failure in said for said in signal_failures(folder, manifest))


def test_verify_finds_edits(released: Released, tmp_path: Path) -> None:
    """Of all checks of these tables `verify` tells, with fitting checksums, even without noisy counts."""
    folder = Path(shutil.copytree(released("at once").folder, tmp_path / "copy"))
    unmarked(folder)
    with_sums(folder)
    assert any("signal/level_3.parquet" in said for said in verify(folder))


@pytest.fixture
def country(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the tables of a small made-up country."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(1)
    write_country(
        draw_country(regions=2, provinces=4, municipalities=8, people=100, generator=generator), tmp_path / "data"
    )
    return tmp_path


@pytest.mark.parametrize("written", ["signal", "all"])
def test_the_plan_says_so(country: Path, capsys: pytest.CaptureFixture[str], written: str) -> None:
    """A plan states whether the rows that stand out are published by themselves."""
    keys = SPEC | {"release": SPEC["release"] | {"rows": written}}
    (country / "spec.yaml").write_text(yaml.safe_dump(keys))
    forecast = plan_answer(make_plan(load_spec(country / "spec.yaml")))
    assert forecast.rows == written
    show_plan(forecast)
    assert ("rows that stand out" in capsys.readouterr().out) == (written == "signal")


def test_what_cannot_be_is_refused(country: Path) -> None:
    """A mechanism all of whose rows stand out needs no such tables, and no feature may have the name of their last column."""
    privacy = {key: value for key, value in SPEC["privacy"].items() if key != "accountant"}
    features = {
        "input": {"table": "data/trips.csv", "features": ["remainder", "work"], "count": "people"},
        "hierarchy": {"remainder": ["a", "b"], "work": ["c", "d"]},
        "release": {"order": ["remainder", "work"], "rows": "signal"},
    }
    path = country / "spec.yaml"
    for keys, field, told, hint in [
        (
            {"mechanism": "stability_histogram", "privacy": privacy},
            "release.rows",
            "release.rows must be all with mechanism stability_histogram, got signal",
            "Leave release.rows out",
        ),
        ({"release": BASE["release"] | {"rows": "marked"}}, "release.rows", "must be all or signal, got “marked”", ""),
        (features, None, "would give two columns of the published tables the name remainder", ""),
    ]:
        path.write_text(yaml.safe_dump(BASE | keys))
        with pytest.raises(SpecError, match=told) as fault:
            plan(path)
        assert field in (None, fault.value.field)
        assert hint in fault.value.hint
    path.write_text(yaml.safe_dump(SPEC | features | {"release": {"order": ["remainder", "work"]}}))
    plan(path)

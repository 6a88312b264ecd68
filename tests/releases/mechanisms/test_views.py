"""Releases with views: one table whose sums are all levels and views, charged, sealed, published and verified by name."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.audit import audit_answer
from flows.answers.ledger import ledger_answer
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.execution.ending import abandon_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import Plan
from flows.trials.in_memory import Trial
from storage.database.connections import store
from storage.errors import TrellisError
from storage.ledger.events import read_books
from storage.releases.register import list_releases
from storage.releases.seals import list_seals
from tasks.laws.law import Sampling
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import rounding_step
from tests.support.folders import change_estimate, changed, page_of, rewrite, with_sums
from tests.support.laws import drawn_by
from tests.support.passes import check_rows, try_spec
from tests.support.town import DISTRICT, NAMES, TRIPS, VIEWS, Town, added_up, level, mode_of, view

LAWS, NEIGHBOURS = ["gaussian", "laplace"], ["add_remove", "substitution"]
CODES = {
    "total": [],
    "living": ["from_district", "from_zone"],
    "working": ["to_district", "to_zone"],
    "by_mode": ["mode"],
    "mode_from": ["from_district", "mode"],
    "pairs": ["from_district", "to_district"],
}
LEVELS = {"total": 0, "living": 5, "working": 6, "by_mode": 7, "mode_from": 8, "pairs": 2}
KINDS = ("csv", "parquet")
CELLS = {"total": 1, "living": 4, "working": 4, "by_mode": 3, "mode_from": 5, "pairs": 4}  # no bus starts in B


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put TRELLIS_HOME back after each test."""
    monkeypatch.setenv("TRELLIS_HOME", "")


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a published folder."""
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return content


def assert_sums_of(levels: Sequence[pl.DataFrame], views: Mapping[str, pl.DataFrame]) -> None:
    """Check that levels and views are sums of the leaves, whole and at least 0, within their intervals."""
    leaves = levels[4]
    for number, columns in enumerate([[], ["from_district"], CODES["pairs"], [*CODES["living"], "to_district"]]):
        table = levels[number]
        assert table["count"].dtype == pl.Int64
        assert {tuple(row[:-1]): row[-1] for row in table.select(*columns, "count").iter_rows() if row[-1]} == (
            {cell: count for cell, count in added_up(leaves, columns).items() if count}
        )
    for name, table in views.items():
        columns = CODES[name]
        assert table.columns == [*columns, "count", "low", "high"]
        assert (table["count"].dtype, len(table)) == (pl.Int64, CELLS[name])
        assert (table["count"] >= 0).all()
        assert ((table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()
        assert table.rows() == sorted(table.rows())
        found = {tuple(row[:-1]): row[-1] for row in table.select(*columns, "count").iter_rows()}
        assert len(found) == CELLS[name]
        assert {cell: count for cell, count in found.items() if count} == (
            {cell: count for cell, count in added_up(leaves, columns).items() if count}
        )


def assert_sums(folder: Path, names: Iterable[str]) -> None:
    """Check that levels and views of a published folder are sums of the leaves."""
    assert_sums_of([level(folder, number) for number in range(5)], {name: view(folder, name) for name in names})


def tables_of(trial: Trial, plan: Plan) -> tuple[list[pl.DataFrame], dict[str, pl.DataFrame]]:
    """Return the levels and the views of a release in memory as they would be published."""
    tree, published, levels = trial.job.tree, trial.published, []
    for number in range(tree.depth + 1):
        rows, codes = published.rows(number), dict[str, pl.Series]()
        for axis, reached, areas in zip(tree.axes, tree.axis_levels(number), rows.areas, strict=True):
            for own in range(1, reached + 1):
                above = axis.ancestors(areas.astype(np.int64), reached, own)
                codes[f"{axis.name}_{axis.level_names[own - 1]}"] = axis.codes[own - 1].gather(above)
        levels.append(pl.DataFrame(codes | {"count": rows.counts}))
    views = {of.name: pl.DataFrame(published.view_table(of, frozenset())) for of in plan.named_views}
    return levels, views


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a published folder with views, whose total is public."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", "")
        yield Town(tmp_path_factory.mktemp("published")).release(privacy__neighbours="substitution")


thorough = pytest.mark.thorough


@pytest.mark.parametrize(
    ("mechanism", "law", "neighbours"),
    [
        ("cbdp", "gaussian", "substitution"),
        ("inftda_reconciled", "laplace", "add_remove"),
        pytest.param("cbdp", "laplace", "add_remove", marks=thorough),
        pytest.param("inftda_reconciled", "gaussian", "substitution", marks=thorough),
    ],
)
def test_levels_and_views_are_charged_by_name_and_verified(
    tmp_path: Path, published: Path, mechanism: str, law: str, neighbours: str
) -> None:
    """Whatever the law and the neighbours, everything adds up, a public total is exact, each charge has its name, and all is verified."""
    is_public = neighbours == "substitution"
    if is_public and mechanism == "cbdp":
        folder = published
        os.environ["TRELLIS_HOME"] = str(folder.parents[1] / "home")
    else:
        keys = {"mechanism": mechanism, "noise": {"law": law}, "privacy__neighbours": neighbours}
        folder = Town(tmp_path).release(**keys)
    assert verify_answer(folder).failures == []
    assert_sums(folder, CODES)
    manifest = manifest_of(folder)
    if is_public:
        assert level(folder, 0)["count"].to_list() == view(folder, "total")["count"].to_list() == [187]
        assert view(folder, "total").select("low", "high").row(0) == (187, 187)
    assert [entry["name"] for entry in manifest["views"]] == list(VIEWS)
    assert {entry["name"]: entry["level"] for entry in manifest["views"]} == LEVELS
    with store():
        (account,) = ledger_answer("town").datasets
        assert audit_answer([folder]).findings == []
    charged = {charge.level: charge for charge in account.charges}
    of_levels = {number: name for name, number in LEVELS.items()}
    assert {number: charge.view for number, charge in charged.items()} == {
        number: of_levels.get(number) for number in charged
    }
    costs = [Fraction(charge.epsilon if law == "laplace" else charge.rho) for charge in charged.values()]
    assert min(costs) > 0
    assert sum(costs) <= 2 if law == "laplace" else np.isclose(float(sum(costs)), manifest["privacy"]["rho"])
    assert {seal["level"] for seal in manifest["seals"]} == set(charged) | ({0} if is_public else set())
    names = {entry["level"]: name for entry in manifest["views"] if (name := entry["name"]) not in {"total", "pairs"}}
    measured = {names.get(seal["level"], f"level_{seal['level']}") for seal in manifest["seals"]}
    assert manifest["rounding"]["deviation"].keys() == measured
    assert manifest["rounding"]["exact"] == all(of < 1 for of in manifest["rounding"]["deviation"].values())


@pytest.mark.parametrize(
    ("mechanism", "law", "neighbours"), list(product(["cbdp", "inftda_reconciled"], LAWS, NEIGHBOURS))
)
def test_levels_and_views_are_sums_of_the_leaves(tmp_path: Path, mechanism: str, law: str, neighbours: str) -> None:
    """Everything adds up; what is charged is what is sealed, and a public total is sealed besides."""
    spec = Town(tmp_path).spec(mechanism=mechanism, noise={"law": law}, privacy__neighbours=neighbours)
    plan, _, trial = try_spec(spec)
    assert_sums_of(*tables_of(trial, plan))
    check_rows(trial)
    is_public = neighbours == "substitution"
    of_tree = {0, 1, 2, 3, 4} if mechanism != "cbdp" else {0, 2, 4}
    charged = (of_tree - {0} if is_public else of_tree) | {5, 6, 7, 8}
    assert set(trial.job.record.charges) == charged
    assert {number for number, _ in trial.job.record.seals} == charged | ({0} if is_public else set())
    if is_public:
        assert trial.released[0].counts.tolist() == [187]


def noise_by_place(scale_of: dict[int, set[float]]) -> Callable[[IntArray, float], IntArray]:
    """Return a sampler whose noise depends on the place of a cell alone; it notes with which scales it has drawn how many cells."""

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        scale_of.setdefault(len(true_counts), set()).add(scale)
        return true_counts + (np.arange(len(true_counts)) * 7 + len(true_counts)) % 11 - 5

    return sample


@pytest.mark.parametrize("law", LAWS)
def test_each_view_is_drawn_at_the_scale_that_it_is_charged(tmp_path: Path, law: str) -> None:
    """With weights of its own each view is drawn once, all of its cells, at the scale of its share; the same noise gives the same counts."""
    views = {name: VIEWS[name] for name in ("living", "by_mode")} | {"starts": {"from": "district"}}
    split = {"living": 2, "by_mode": 4, "starts": 5, "leaves": 6}
    spec = Town(tmp_path).spec(release__views=views, noise={"law": law}, privacy__split=split)
    drawn: dict[int, set[float]] = {}
    plan, _, trial = try_spec(spec, noise_by_place(drawn))
    parts = {part.level: part for part in (*plan.levels, *plan.views) if part.rho or part.epsilon}
    assert sorted(parts) == [1, 4, 5, 6]
    assert drawn == {part.possible_cells: {part.scale or part.sigma} for part in parts.values()}
    spent = [float(parts[number].epsilon if law == "laplace" else parts[number].rho) for number in (5, 6, 1, 4)]
    assert np.allclose(np.array(spent) / sum(spent), np.array([2, 4, 5, 6]) / 17, rtol=1e-6)
    one, other = (tables_of(of, plan) for of in (trial, try_spec(spec, noise_by_place({}))[2]))
    assert all(a.equals(b) for a, b in zip(one[0], other[0], strict=True))
    assert all(one[1][name].equals(other[1][name]) for name in views)


@pytest.mark.thorough
def test_the_same_noisy_counts_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases with the same noise, in stores of their own, publish the same tables, byte by byte."""
    sampling = Sampling(noise_by_place({}), MECHANISMS["cbdp"].laws["gaussian"].samplers["opendp"].tau)
    monkeypatch.setitem(MECHANISMS, "cbdp", drawn_by("cbdp", {"opendp": sampling}))
    one, other = (Town(tmp_path / name).release() for name in ("one", "other"))
    tables = [path.relative_to(one) for path in sorted(one.rglob("*.parquet")) + sorted(one.rglob("*.csv"))]
    assert len(tables) > 20
    assert [path for path in tables if (one / path).read_bytes() != (other / path).read_bytes()] == []


def test_margins_of_trips_are_the_totals_of_every_axis(tmp_path: Path) -> None:
    """`views: margins` gives, for both ends of trips at both levels, the sums of the leaves, each under its columns' name."""
    spec = Town(tmp_path).spec(
        input={"table": "trips.csv", "origin": "from", "destination": "to", "count": "n"},
        hierarchy={"table": "zones.csv", "levels": ["district", "zone"]},
        derived=None,
        release={"tree": "destination", "finest": "zone", "views": "margins"},
        mechanism="inftda",
    )
    plan, _, trial = try_spec(spec)
    levels, views = tables_of(trial, plan)
    names = ["origin_district", "origin_zone", "destination_district", "destination_zone"]
    assert sorted(views) == sorted(names)
    for name in names:
        found, sums = (of.group_by(name).agg(pl.col("count").sum()) for of in (views[name], levels[4]))
        assert dict(found.filter(pl.col("count") > 0).iter_rows()) == dict(sums.iter_rows())
        assert views[name][name].n_unique() == (4 if name.endswith("zone") else 2)
    numbers = {of.name: of.number for of in plan.named_views}
    assert (numbers["destination_district"], min(numbers[name] for name in names[:2])) == (1, 5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "views", ["margins", pytest.param({"m": {"mode": "mode", "a.to": "district"}}, marks=pytest.mark.thorough)]
)
def test_names_of_features_may_hold_dots(tmp_path: Path, views: Any) -> None:
    """Margins and derived columns of a feature with dots in its name are found, published under it, and verified."""
    town = Town(tmp_path)
    (tmp_path / "trips.csv").write_text((tmp_path / "trips.csv").read_text().replace("from,to", "a.from,a.to"))
    (tmp_path / "modes.csv").write_text(modes_with_dots())
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
    folder = town.release(
        input={"table": "trips.csv", "features": ["a.from", "a.to"], "count": "n"},
        hierarchy={"a.from": codebook, "a.to": codebook},
        derived={"mode": {"table": "modes.csv", "of": ["a.from.zone", "a.to"]}},
        release={"order": ["a.from.district", "a.to", "a.from"], "views": views, "csv": "every_level"},
    )
    assert verify_answer(folder).failures == []
    if views == "margins":
        names = [f"a.{end}_{of}.{kind}" for end in ("from", "to") for of in ("district", "zone") for kind in KINDS]
        assert sorted(path.name for path in (folder / "views").iterdir()) == sorted(names)
        assert view(folder, "a.to_zone").columns == ["a.to_district", "a.to_zone", "count", "low", "high"]
    else:
        assert view(folder, "m").columns == ["a.to_district", "mode", "count", "low", "high"]


def modes_with_dots() -> str:
    """Return the table of modes for features whose names have dots."""
    return "a.from,a.to,mode\n" + "".join(f"{a},{b},{mode_of(a, b)}\n" for a in NAMES for b in NAMES)


def test_intervals_are_rounded_where_noisy_counts_are_destroyed(tmp_path: Path) -> None:
    """With keep_noisy_counts: false the ends are multiples of σ rounded up, no bias is stated, and no noisy count is left."""
    town = Town(tmp_path)
    folder = town.release(
        keep_noisy_counts=False,
        release__noisy_counts=None,
        release__views={name: VIEWS[name] for name in ("living", "mode_from", "pairs")},
    )
    assert verify_answer(folder).failures == []
    manifest = manifest_of(folder)
    assert manifest["intervals"]["rounded"]
    assert not [entry for entry in manifest["levels"] if entry.get("bias") is not None]
    for entry in manifest["views"]:
        of_view, step = view(folder, entry["name"]), rounding_step(entry["sigma"])
        assert ((of_view["low"] % step == 0) & (of_view["high"] % step == 0)).all()
    assert not (folder / "noisy_counts").exists()
    assert not list(town.home.rglob("*.noisy.parquet"))
    with store():
        assert audit_answer([folder]).findings == []


def stated(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Return what changes the manifest of a folder, with the right checksum."""
    return lambda folder: rewrite(folder, change)


def of_view(name: str, **values: object) -> Callable[[Path], None]:
    """Return what changes the entry of a view in a manifest."""
    return stated(lambda manifest: next(of for of in manifest["views"] if of["name"] == name).update(values))


def gone(name: str) -> Callable[[Path], None]:
    """Return what deletes a file and its checksum."""

    def of_folder(folder: Path) -> None:
        (folder / name).unlink()
        with_sums(folder)

    return of_folder


def first(column: str, by: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return what adds to the first value of a column."""
    return lambda table: table.with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(pl.col(column) + by).otherwise(pl.col(column)).alias(column)
    )


def swapped(table: pl.DataFrame) -> pl.DataFrame:
    """Return derived columns of which two rows have each other's code."""
    modes = table["mode"].to_list()
    other = next(at for at, mode in enumerate(modes) if mode != modes[0])
    modes[0], modes[other] = modes[other], modes[0]
    return table.with_columns(mode=pl.Series(modes))


def halved(manifest: dict[str, Any]) -> None:
    """State of a view half of its squared sensitivity and half of its cost, in agreement with each other."""
    of, before = manifest["views"][1], manifest["views"][1]["rho"]
    of.update(l2_sensitivity=1.0, rho=before / 2)
    manifest["privacy"]["rho"] -= before / 2


def repeated(table: pl.DataFrame) -> pl.DataFrame:
    """Return a view with its first row a second time."""
    codes = (pl.Series(of, [table[of][0]] * 2 + table[of][2:].to_list()) for of in CODES["working"])
    return table.with_columns(codes)


NO_ROUNDING, NO_INTERVALS = "rounding must state a deviation", "does not have the intervals"
UNKNOWN_NOISE = "does not agree with noise_rows or above_noise of the manifest"
REFINES = "view by_mode has a source that does not refine it"

OF_TABLES: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "nothing but the CSV": ("views/living", first("count", 0), ""),
    "a count and its end": ("views/living", lambda of: first("high", 1000)(first("count", 1)(of)), "does not add up"),
    "the count of one cell": ("views/total", lambda of: of.with_columns(pl.all() + 1), "total.parquet does not add up"),
    "a low": ("views/by_mode", first("low", -1), "by_mode.parquet"),
    "a high": ("views/mode_from", first("high", 1), NO_INTERVALS),
    "a high of a level's view": ("views/pairs", first("high", 1), NO_INTERVALS),
    "a noisy count": ("noisy_counts/view_working", first("noisy_count", -60), f"working.parquet {NO_INTERVALS}"),
    "a variance": ("noisy_counts/view_working", first("variance", 1), "has a variance that"),
    "a row": ("views/working", lambda of: of[1:], "must have 4 rows"),
    "a repeated row": ("views/working", repeated, "must have each cell once"),
    "a derived code": ("derived/mode", swapped, "does not add up"),
    "a derived row": ("derived/mode", lambda of: pl.concat([of, of[:1]]), "must list each combination"),
}
OF_VIEWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "rho": ("living", {"rho": 0.5}, "rho"),
    "sigma": ("living", {"sigma": 1.0}, "sigma"),
    "a source that is measured": ("by_mode", {"source": 4}, "view by_mode must have a source that says as much"),
    "a source that does not refine it": ("by_mode", {"source": 5}, REFINES),
    "a source that is not": ("by_mode", {"source": 1}, "must have a source that was measured"),
    "a half-width": ("by_mode", {"half_width": 1}, "half_width"),
    "a promise": ("by_mode", {"intervals": {"confidence": 0.9, "promise": "rows"}}, "does not promise"),
}
OF_MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a sensitivity": (halved, "can move some level further"),
    "a level's source": (
        lambda of: of["levels"][1].update(source=4),
        "level 1 must have a source that says as much about it as manifest.json: level 2",
    ),
    "a source that says less": (
        lambda of: of["levels"][1].update(source=5, sigma=of["levels"][4]["sigma"] * 3**0.5),
        "level 1 must have source 2, which says most about it",
    ),
    "a sum's sigma": (lambda of: of["levels"][1].update(sigma=of["levels"][1]["sigma"] / 2), "level 1 has a sigma"),
    "rounding left out": (lambda of: of.pop("rounding"), NO_ROUNDING),
    "rounding of a view left out": (lambda of: of["rounding"]["deviation"].pop("by_mode"), NO_ROUNDING),
    "rounding that is not exact": (
        lambda of: of["rounding"]["deviation"].update(by_mode=1.0),
        "rounding must be exact where, and only where",
    ),
    "rounding that is": (lambda of: of["rounding"].update(exact=False), "rounding must be exact where"),
    "rounding of leaves": (
        lambda of: of["rounding"].update(exact=False, deviation=of["rounding"]["deviation"] | {"level_4": 1.5}),
        "rounding moves leaves by less than one record",
    ),
    "a level's half-width": (lambda of: of["levels"][4].update(half_width=1), "half_width"),
    "a level's bias": (lambda of: of["levels"][4].update(bias=9.0), "bias"),
    "an estimate of sums": (
        lambda of: change_estimate(of["levels"][1]["noise_rows"]),
        f"level_1.parquet {UNKNOWN_NOISE}",
    ),
    "an estimate": (lambda of: change_estimate(of["levels"][4]["noise_rows"]), f"level_4.parquet {UNKNOWN_NOISE}"),
    "a seal that is missing": (lambda of: of["seals"].pop(), "must have seals"),
}
GONE = ["views/by_mode.parquet", "noisy_counts/view_by_mode.parquet", "derived/mode.parquet"]
LIES: dict[str, tuple[Callable[[Path], None], str]] = {
    **{lie: (changed(f"{name}.parquet", change), told) for lie, (name, change, told) in OF_TABLES.items()},
    **{lie: (of_view(name, **values), told) for lie, (name, values, told) in OF_VIEWS.items()},
    **{lie: (stated(change), told) for lie, (change, told) in OF_MANIFESTS.items()},
    **{f"without {name}": (gone(name), "missing") for name in GONE},
}


@pytest.mark.parametrize("lie", LIES)
def test_verification_finds_what_was_changed(published: Path, tmp_path: Path, lie: str) -> None:
    """Each number, row or file of a view that is changed with the right checksum is a failure that names it."""
    change, told = LIES[lie]
    folder = tmp_path / "folder"
    shutil.copytree(published, folder)
    change(folder)
    failures = verify_answer(folder).failures
    ours = [failure for failure in failures if "csv" not in failure and "metadata" not in failure]
    assert [failure for failure in ours if told in failure] if told else ours == [], failures


def test_verification_knows_sources_without_noisy_counts(published: Path, tmp_path: Path) -> None:
    """The terms alone tell of a source that does not refine its view, that is not measured, or than which another says more."""
    folder = tmp_path / "folder"
    shutil.copytree(published, folder)
    shutil.rmtree(folder / "noisy_counts")
    (folder / "explorer.html").unlink()  # whose intervals follow from them
    rewrite(folder, lambda manifest: manifest.update(noisy_counts=False, pages=None))
    with_sums(folder)
    assert verify_answer(folder).failures == []
    for lie in (
        "a source that is measured",
        "a source that does not refine it",
        "a source that is not",
        "a level's source",
    ):
        twin = tmp_path / lie
        shutil.copytree(folder, twin)
        change, told = LIES[lie]
        change(twin)
        assert [failure for failure in verify_answer(twin).failures if told in failure], lie


def test_an_abandoned_release_with_views_keeps_what_it_has_sealed(tmp_path: Path) -> None:
    """A release that fails at a view can be abandoned: what was sealed stays charged and kept, and the exact total is deleted."""
    town, stopped_at = Town(tmp_path), len(VIEWS)

    def draw(true_counts: IntArray, scale: float) -> IntArray:
        if len(true_counts) == CELLS["mode_from"]:
            raise MemoryError
        return true_counts

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, "cbdp", drawn_by("cbdp", {"opendp": Sampling(draw)}))
        with pytest.raises(TrellisError):
            town.release(privacy__neighbours="substitution")
    with store() as con:
        (listed,) = list_releases(con)
    ended = abandon_release(listed.id)
    assert ended.state == "abandoned"
    with store() as con:
        assert audit_answer([]).findings == []
        assert sorted(level for level, _ in list_seals(con, listed.id)) == [0, 2, 4, 5, 6, 7]
        charges = read_books(con).account_of(listed.id)
    assert charges
    assert sorted(charges.charges_of(listed.id)) == [2, 4, 5, 6, 7, stopped_at + 2]
    kept = sorted(path.name for path in town.home.rglob("*.noisy.parquet"))
    assert kept == [f"level_{number}_trunk.noisy.parquet" for number in (2, 4, 5, 6, 7)]


NOTHING: list[tuple[str, str, int]] = []
EDGES: dict[str, tuple[list[tuple[str, str, int]], dict[str, Any]]] = {
    "an empty table": (NOTHING, {}),
    "an empty table, all negative": (NOTHING, {"negative": True}),
    "all negative": (TRIPS, {"negative": True}),
    "all negative with a public total": (TRIPS, {"negative": True, "privacy__neighbours": "substitution"}),
    "one view of one cell": (TRIPS, {"release__views": {"total": {}}}),
    "no published noisy counts": (TRIPS, {"release__noisy_counts": False}),
    "levels as the only views of a tree": (
        TRIPS,
        {"mechanism": "inftda", "release__views": {"pairs": VIEWS["pairs"]}},
    ),
}


def changes_of(edge: str) -> tuple[dict[str, Any], Any]:
    """Return the changes to the spec of an edge, and its sampler, if it is not that of users."""
    changes = dict(EDGES[edge][1])
    is_negative = changes.pop("negative", False)
    return changes, (lambda true_counts, scale: true_counts * 0 - round(9 * scale)) if is_negative else None


@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases_are_sums(tmp_path: Path, edge: str) -> None:
    """Empty tables, noise that is negative everywhere and views of one cell give sums of whole counts, and a public total."""
    changes, sampler = changes_of(edge)
    trips = EDGES[edge][0]
    plan, _, trial = try_spec(Town(tmp_path, trips).spec(**changes), sampler)
    levels, views = tables_of(trial, plan)
    assert_sums_of(levels, views)
    if "privacy__neighbours" in changes:
        assert levels[0]["count"].to_list() == [sum(count for *_, count in trips)]
    elif sampler:
        assert levels[0]["count"].to_list() == [0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "edge",
    [
        "an empty table, all negative",
        "levels as the only views of a tree",
        *(pytest.param(edge, marks=thorough) for edge in ("all negative with a public total", "one view of one cell", "no published noisy counts")),
    ],
)  # fmt: skip
def test_edge_cases_are_released(tmp_path: Path, edge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are published and verified; a view with the cells of a level is that level, at no cost."""
    changes, sampler = changes_of(edge)
    if sampler:
        monkeypatch.setitem(MECHANISMS, "cbdp", drawn_by("cbdp", {"opendp": Sampling(sampler)}))
    folder = Town(tmp_path, EDGES[edge][0]).release(**changes)
    assert verify_answer(folder).failures == []
    assert_sums(folder, changes.get("release__views", VIEWS))
    of_level = {entry["name"]: entry for entry in manifest_of(folder)["views"]}.get("pairs")
    if of_level:
        assert (of_level["level"], of_level["same_as"], of_level["rho"]) == (2, 2, 0.0)
        columns = [*CODES["pairs"], "count"]
        rows = view(folder, "pairs").filter(pl.col("count") > 0).select(columns)
        assert rows.equals(level(folder, 2).sort(CODES["pairs"]).select(columns))


def test_a_universe_of_one_leaf_is_released(tmp_path: Path) -> None:
    """One leaf and a view of everything: the leaf is measured once, at the whole budget, and the view is its count."""
    town = Town(tmp_path)
    (tmp_path / "trips.csv").write_text("from,n\nx,5\n")
    folder = town.release(
        input={"table": "trips.csv", "features": ["from"], "count": "n"},
        hierarchy={"from": {"values": ["x"]}},
        derived=None,
        release={"order": ["from"], "views": {"all": {}}},
    )
    assert verify_answer(folder).failures == []
    leaf = level(folder, 1)["count"].sum()
    assert view(folder, "all")["count"].to_list() == level(folder, 0)["count"].to_list() == [leaf]
    assert [bool(entry.get("summed")) for entry in manifest_of(folder)["levels"]] == [True, False]


def test_levels_that_repeat_one_another_are_measured_once(tmp_path: Path) -> None:
    """Where each district has one zone, the margins of both are one measurement, with a share and a name of its own."""
    town = Town(tmp_path)
    (tmp_path / "zones.csv").write_text("country,district,zone\n" + "".join(f"X,d{zone},{zone}\n" for zone in NAMES))
    codebook = {"table": "zones.csv", "levels": ["country", "district", "zone"]}
    spec = town.spec(
        hierarchy={"from": codebook, "to": codebook},
        derived=None,
        release={"order": ["from", "to"], "views": {"starts": {"from": "district"}, "ends": {"to": "zone"}}},
        privacy__split={"starts": 3, "ends": 1, "leaves": 1},
    )
    plan, _, trial = try_spec(spec)
    charged = trial.job.record.charges
    whole = sum(charge.rho for charge in charged.values())
    shares = {charge.view or None: round(float(charge.rho / whole), 9) for charge in charged.values()}
    assert shares == {"starts": 0.6, "ends": 0.2, None: 0.2}
    levels, views = tables_of(trial, plan)
    sums = dict(levels[6].group_by("from_district").agg(pl.col("count").sum()).iter_rows())
    assert {
        code: count for code, count in views["starts"].select("from_district", "count").iter_rows() if count
    } == sums


@pytest.mark.parametrize("noisy_counts", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_views_with_the_cells_of_a_level_take_its_measurement(tmp_path: Path, noisy_counts: bool) -> None:
    """The trips to the one country are the public total, exact, and districts in it are those of their level; neither is charged."""
    town = Town(tmp_path)
    (tmp_path / "zones.csv").write_text("country,district,zone\n" + "".join(f"X,{DISTRICT[of]},{of}\n" for of in NAMES))
    codebook = {"table": "zones.csv", "levels": ["country", "district", "zone"]}
    views = {"home": {"to": "country"}, "starts": {"from": "district", "to": "country"}, "ends": {"to": "zone"}}
    folder = town.release(
        hierarchy={"from": codebook, "to": codebook},
        derived=None,
        release={"order": ["from", "to"], "views": views, "noisy_counts": noisy_counts},
        privacy__neighbours="substitution",
        mechanism="inftda",
    )
    assert verify_answer(folder).failures == []
    with store():
        (account,) = ledger_answer("town").datasets
        assert audit_answer([folder]).findings == []
    assert {charge.level: charge.view for charge in account.charges} == {
        2: "starts",
        4: None,
        5: None,
        6: None,
        9: "ends",
    }
    assert view(folder, "home").rows() == [("X", 187, 187, 187)]
    starts, districts = view(folder, "starts"), level(folder, 2)
    assert starts.columns == ["from_country", "from_district", "to_country", "count", "low", "high"]
    assert dict(starts.select("from_district", "count").iter_rows()) == (
        {"A": 0, "B": 0} | dict(districts.select("from_district", "count").iter_rows())
    )
    readme = (folder / "README.md").read_text()
    assert "| home | country of to | 1 | as level 0 | exact | exact |" in readme
    assert "| starts | district of from, country of to | 2 | as level 2 |" in readme
    asked = query_answer(folder, None, None, ["from=district=A", "to=country=X"], simultaneous=False)
    assert (asked.count, asked.low, asked.high) == starts.select("count", "low", "high").row(0)
    assert asked.how.startswith("the cell of view starts")


def test_totals_that_nothing_measures_are_named_everywhere(tmp_path: Path) -> None:
    """The manifest lists them with their mean noise; README, report and the metadata of the records say the same."""
    views = {name: VIEWS[name] for name in ("living", "pairs")}
    folder = Town(tmp_path).release(release__views=views, release__records=True)
    assert verify_answer(folder).failures == []
    manifest = manifest_of(folder)
    sigma, mean = manifest["levels"][4]["sigma"], math.sqrt(2 / math.pi)
    of_pairs = next(of["sigma"] for of in manifest["views"] if of["name"] == "pairs")
    errors = {of["margin"]: of["expected_error"] for of in manifest["poor_margins"]}
    assert errors == pytest.approx(
        {
            "from_district": mean * of_pairs * math.sqrt(2),  # two pairs of districts
            "to_district": mean * of_pairs * math.sqrt(2),
            "to_zone": mean * sigma * 2,  # four pairs of zones
        }
    )
    named = [f"{name} (± {error:,.3g})" for name, error in errors.items()]
    readme, page = (folder / "README.md").read_text(), page_of(folder)
    metadata = json.loads((folder / "metadata.json").read_text())
    (records,) = [table for table in metadata["tables"] if table["url"] == "records.csv"]
    for text in (readme.replace("`", ""), re.sub("</?code>", "", page), records["dc:description"]):
        assert all(one in text for one in named), text
        assert "before counts are settled" in text
        assert "release.views: margins measures these totals" in text
    (note,) = [note for note in metadata["notes"] if "expected_error" in note]
    assert note["expected_error"] == errors


def test_margins_leave_no_total_unmeasured(tmp_path: Path) -> None:
    """With `views: margins` nothing is warned of."""
    folder = Town(tmp_path).release(release__views="margins", derived=None)
    assert "poor_margins" not in manifest_of(folder)
    assert "nothing measures by itself" not in (folder / "README.md").read_text() + page_of(folder)

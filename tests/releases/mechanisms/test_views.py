"""Releases with views: one table whose sums are all levels and views, charged, sealed, published and verified by name."""

import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.audit import audit_answer
from flows.answers.ledger import ledger_answer
from flows.answers.verify import verify_answer
from flows.mechanisms import MECHANISMS
from storage.database.connections import store
from storage.releases.register import find_release
from tasks.laws.law import Sampling
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import rounding_step
from tests.support.folders import rewrite
from tests.support.laws import drawn_by
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
CELLS = {"total": 1, "living": 4, "working": 4, "by_mode": 3, "mode_from": 5, "pairs": 4}  # no bus starts in B


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put TRELLIS_HOME back after each test."""
    monkeypatch.setenv("TRELLIS_HOME", "")


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a published folder."""
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return content


def assert_sums(folder: Path, codes: dict[str, list[str]]) -> None:
    """Check that levels and views are sums of the leaves, whole and at least 0, within their intervals."""
    leaves = level(folder, 4)
    for number, columns in enumerate([[], ["from_district"], CODES["pairs"], [*CODES["living"], "to_district"]]):
        table = level(folder, number)
        assert table["count"].dtype == pl.Int64
        assert {tuple(row[:-1]): row[-1] for row in table.select(*columns, "count").iter_rows() if row[-1]} == (
            {cell: count for cell, count in added_up(leaves, columns).items() if count}
        )
    for name, columns in codes.items():
        table = view(folder, name)
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


@pytest.mark.parametrize(
    ("mechanism", "law", "neighbours"), list(product(["cbdp", "inftda_reconciled"], LAWS, NEIGHBOURS))
)
def test_levels_and_views_are_sums_of_the_leaves(tmp_path: Path, mechanism: str, law: str, neighbours: str) -> None:
    """Whatever the law and the neighbours, everything adds up, a public total is exact, each charge has its name, and all is verified."""
    town = Town(tmp_path)
    folder = town.release(mechanism=mechanism, noise={"law": law}, privacy__neighbours=neighbours)
    assert verify_answer(folder).failures == []
    assert_sums(folder, CODES)
    manifest, is_public = manifest_of(folder), neighbours == "substitution"
    if is_public:
        assert level(folder, 0)["count"].to_list() == view(folder, "total")["count"].to_list() == [187]
        assert view(folder, "total").select("low", "high").row(0) == (187, 187)
    assert [entry["name"] for entry in manifest["views"]] == list(VIEWS)
    assert {entry["name"]: entry["level"] for entry in manifest["views"]} == {
        "total": 0,
        "living": 5,
        "working": 6,
        "by_mode": 7,
        "mode_from": 8,
        "pairs": 2,
    }
    with store():
        (account,) = ledger_answer("town").datasets
        assert audit_answer([folder]).findings == []
    charged = {charge.level: charge for charge in account.charges}
    of_tree = {0, 1, 2, 3, 4} if mechanism != "cbdp" else {0, 2, 4}
    assert set(charged) == (of_tree - {0} if is_public else of_tree) | {5, 6, 7, 8}
    of_levels = {0: "total", 2: "pairs", 5: "living", 6: "working", 7: "by_mode", 8: "mode_from"}
    assert {number: charge.view for number, charge in charged.items()} == {
        number: of_levels.get(number) for number in charged
    }
    costs = [Fraction(charge.epsilon if law == "laplace" else charge.rho) for charge in charged.values()]
    assert min(costs) > 0
    assert sum(costs) <= 2 if law == "laplace" else np.isclose(float(sum(costs)), manifest["privacy"]["rho"])
    assert {seal["level"] for seal in manifest["seals"]} == set(charged) | ({0} if is_public else set())


def noise_by_place(scale_of: dict[int, set[float]]) -> Callable[[IntArray, float], IntArray]:
    """Return a sampler whose noise depends on the place of a cell alone; it notes with which scales it has drawn how many cells."""

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        scale_of.setdefault(len(true_counts), set()).add(scale)
        return true_counts + (np.arange(len(true_counts)) * 7 + len(true_counts)) % 11 - 5

    return sample


@pytest.mark.parametrize("law", LAWS)
def test_each_view_is_drawn_at_the_scale_that_it_is_charged(
    tmp_path: Path, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights of its own each view is drawn once, all of its cells, at the scale that the manifest states for its share."""
    drawn: dict[int, set[float]] = {}
    sampling = Sampling(noise_by_place(drawn), MECHANISMS["cbdp"].laws[law].samplers["opendp"].tau)
    monkeypatch.setitem(MECHANISMS, "cbdp", drawn_by("cbdp", {"opendp": sampling}, law))
    views = {name: VIEWS[name] for name in ("living", "by_mode")} | {"starts": {"from": "district"}}
    split = {"living": 2, "by_mode": 4, "starts": 5, "leaves": 6}
    folder = Town(tmp_path).release(release__views=views, noise={"law": law}, privacy__split=split)
    manifest = manifest_of(folder)
    parts = {1: manifest["levels"][1], 4: manifest["levels"][4]}
    parts |= {view["level"]: view for view in manifest["views"] if view["level"] > 4}
    scale = "scale" if law == "laplace" else "sigma"
    assert drawn == {part["cells"]: {part[scale]} for part in parts.values()}
    cost = "epsilon" if law == "laplace" else "rho"
    spent = [parts[number][cost] for number in (5, 6, 1, 4)]
    assert np.allclose(np.array(spent) / sum(spent), np.array([2, 4, 5, 6]) / 17, rtol=1e-6)


def test_the_same_noisy_counts_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases with the same noise, in stores of their own, publish the same tables, byte by byte."""
    sampling = Sampling(noise_by_place({}), MECHANISMS["cbdp"].laws["gaussian"].samplers["opendp"].tau)
    monkeypatch.setitem(MECHANISMS, "cbdp", drawn_by("cbdp", {"opendp": sampling}))
    one, other = (Town(tmp_path / name).release() for name in ("one", "other"))
    tables = [path.relative_to(one) for path in sorted(one.rglob("*.parquet")) + sorted(one.rglob("*.csv"))]
    assert len(tables) > 20
    assert {str(path): (one / path).read_bytes() == (other / path).read_bytes() for path in tables} == dict.fromkeys(
        map(str, tables), True
    )


def test_margins_of_trips_are_the_totals_of_every_axis(tmp_path: Path) -> None:
    """`views: margins` publishes, for both ends of trips at both levels, the sums of the leaves, each under its columns' name."""
    town = Town(tmp_path)
    ends = {"table": "trips.csv", "origin": "from", "destination": "to", "count": "n"}
    folder = town.release(
        input=ends,
        hierarchy={"table": "zones.csv", "levels": ["district", "zone"]},
        derived=None,
        release={"tree": "destination", "finest": "zone", "views": "margins"},
        mechanism="inftda",
    )
    assert verify_answer(folder).failures == []
    names = ["origin_district", "origin_zone", "destination_district", "destination_zone"]
    assert sorted(path.stem for path in (folder / "views").glob("*.parquet")) == sorted(names)
    leaves = level(folder, 4)
    for name in names:
        found = view(folder, name).group_by(name).agg(pl.col("count").sum())
        sums = leaves.group_by(name).agg(pl.col("count").sum())
        assert dict(found.filter(pl.col("count") > 0).iter_rows()) == dict(sums.iter_rows())
        assert view(folder, name)[name].n_unique() == (4 if name.endswith("zone") else 2)
    levels = {entry["name"]: entry["level"] for entry in manifest_of(folder)["views"]}
    assert (levels["destination_district"], min(levels[name] for name in names[:2])) == (1, 5)


def test_names_of_features_may_hold_dots(tmp_path: Path) -> None:
    """Margins and derived columns of a feature with dots in its name are found, published under it, and verified."""
    town = Town(tmp_path)
    (tmp_path / "trips.csv").write_text((tmp_path / "trips.csv").read_text().replace("from,to", "a.from,a.to"))
    (tmp_path / "modes.csv").write_text(modes_with_dots())
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
    folder = town.release(
        input={"table": "trips.csv", "features": ["a.from", "a.to"], "count": "n"},
        hierarchy={"a.from": codebook, "a.to": codebook},
        derived={"mode": {"table": "modes.csv", "of": ["a.from.zone", "a.to"]}},
        release={"order": ["a.from.district", "a.to", "a.from"], "views": "margins", "csv": "every_level"},
    )
    assert verify_answer(folder).failures == []
    assert sorted(path.name for path in (folder / "views").iterdir()) == sorted(
        f"a.{end}_{of}.{kind}" for end in ("from", "to") for of in ("district", "zone") for kind in ("csv", "parquet")
    )
    assert view(folder, "a.to_zone").columns == ["a.to_district", "a.to_zone", "count", "low", "high"]
    folder = town.release(
        name="again",
        input={"table": "trips.csv", "features": ["a.from", "a.to"], "count": "n"},
        hierarchy={"a.from": codebook, "a.to": codebook},
        derived={"mode": {"table": "modes.csv", "of": ["a.from.zone", "a.to"]}},
        release={"order": ["a.from.district", "a.to", "a.from"], "views": {"m": {"mode": "mode", "a.to": "district"}}},
    )
    assert verify_answer(folder).failures == []
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

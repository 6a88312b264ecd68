"""Margins where there are too many leaves to settle everything together: trees of their own, to which the levels are calibrated."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tasks.tree.branches
import trellis
from flows.answers.audit import audit_answer
from flows.answers.ledger import ledger_answer
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.forecast.answer import plan_answer
from storage.database.connections import store
from storage.errors import SpecError
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS, MOST_SETTLED
from tests.support.folders import changed, first, manifest_of, stated
from tests.support.laws import drawn_by
from tests.support.making import no_noise
from tests.support.town import level, view
from tests.support.wide import COUNTS, DISTRICTS, ZONES, Wide, code_of, trips

pytestmark = pytest.mark.usefixtures("own_home")

WITH_PAGES = True

OWN = ["origin_district", "origin_zone", "destination_zone"]  # destination_district is level 1


thorough = pytest.mark.thorough
PRIVACY = {"unit": "one trip", "neighbours": "add_remove", "max_records_per_unit": 1, "epsilon": 4.0, "delta": 1e-8}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return the tables of a country and a published folder with margins, noisy counts and records; nobody changes it."""
    wide = Wide(tmp_path_factory.mktemp("shared"), trips())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(wide.folder / "home"))
        release = {"tree": "destination", "finest": "zone", "views": "margins", "noisy_counts": True, "records": True}
        return wide, wide.release(noise={"sampler": "table"}, release=release)


def totals(table, name):
    """Return what a table counts by the finest code of a margin, without zeros."""
    sums = table.group_by(name).agg(pl.col("count").sum())
    return {code: count for code, count in sums.iter_rows() if count}


@pytest.mark.parametrize("is_shared", [True, False], ids=["gaussian", "laplace"])
def test_margins_are_published_beside_a_tree_that_is_calibrated_to_them(tmp_path, shared, is_shared, monkeypatch):
    """Each margin is whole and adds up along its axis and to the total; the manifest says how far the leaves are from it."""
    assert ZONES**2 > MOST_SETTLED
    wide, folder = shared
    if is_shared:
        monkeypatch.setenv("TRELLIS_HOME", str(wide.folder / "home"))
    else:
        wide = Wide(tmp_path, trips())
        folder = wide.release(mechanism="inftda", noise={"law": "laplace", "sampler": "table"}, privacy=PRIVACY)
    assert verify_answer(folder).failures == []
    manifest, leaves = manifest_of(folder), level(folder, 4)
    total = int(level(folder, 0)["count"].item())
    if is_shared:
        assert total == sum(count for *_, count in wide.trips)
    assert [entry["name"] for entry in manifest["views"]] == COUNTS
    of_views = {entry["name"]: entry["level"] for entry in manifest["views"]}
    assert of_views == dict(zip(COUNTS, [5, 6, 1, 7], strict=True))
    for entry in manifest["views"]:
        name, table = entry["name"], view(folder, entry["name"])
        assert len(table) == (DISTRICTS if name.endswith("district") else ZONES)
        assert table["count"].dtype == pl.Int64
        assert ((table["count"] >= 0) & (table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()
        assert table["count"].sum() == total
        coarse = name.replace("zone", "district")
        assert totals(table, coarse) == totals(view(folder, coarse), coarse)
        sums = totals(leaves, name)
        distance = [abs(count - sums.get(code, 0)) for code, count in table.select(name, "count").iter_rows()]
        if name in OWN:
            assert entry["differs"] == {"largest": max(distance), "mean": pytest.approx(np.mean(distance))}
        else:
            assert (entry["differs"], max(distance), entry["same_as"]) == (None, 0, 1)
    with store():
        (account,) = ledger_answer("country").datasets
        assert audit_answer([folder]).findings == []
    charged = {charge.level: charge.view for charge in account.charges if charge.level}
    assert charged == {1: "destination_district", 2: None, 3: None, 4: None, 5: COUNTS[0], 6: COUNTS[1], 7: COUNTS[3]}


@pytest.mark.parametrize("is_cut", [pytest.param(False, marks=thorough), True])
def test_without_noise_everything_is_the_truth(is_cut, tmp_path, monkeypatch):
    """Where nothing is off, calibration changes nothing: margins and levels are the true counts, in one branch or in many."""
    name = "inftda_reconciled"
    sampling = Sampling(no_noise, MECHANISMS[name].laws["gaussian"].samplers["opendp"].tau)
    monkeypatch.setitem(MECHANISMS, name, drawn_by(name, {"opendp": sampling}))
    wide = Wide(tmp_path, trips())
    if is_cut:
        monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 200)
    folder = wide.release()
    with store() as con:
        query = "SELECT count(*) FROM branches WHERE release_id = ?"
        ((branches,),) = con.execute(query, [folder.name]).fetchall()
    assert branches > 1 or not is_cut
    assert verify_answer(folder).failures == []
    for name in COUNTS:
        assert totals(view(folder, name), name) == wide.true_totals(name)
    pairs = level(folder, 4).select("origin_zone", "destination_zone", "count")
    assert set(pairs.iter_rows()) == {(code_of(a)[1], code_of(b)[1], n) for a, b, n in wide.trips}
    differs = {view["name"]: (view["differs"] or {}).get("largest") for view in manifest_of(folder)["views"]}
    assert differs == dict.fromkeys(COUNTS, 0) | {"destination_district": None}


@pytest.mark.parametrize("moved_by", [-3, 3])
def test_an_empty_table_has_margins_of_zeros(moved_by, tmp_path, monkeypatch):
    """Where nothing is released, every margin adds up to the total, and its intervals hold what the total's noise allows."""

    def sample(true_counts, scale):
        return true_counts + moved_by * (len(true_counts) < 100)

    name = "inftda_reconciled"
    monkeypatch.setitem(MECHANISMS, name, drawn_by(name, {"opendp": Sampling(sample)}))
    folder = Wide(tmp_path, []).release(privacy=PRIVACY)
    assert verify_answer(folder).failures == []
    total = int(level(folder, 0)["count"].item())
    assert (total > 0) == (moved_by > 0)
    assert {view(folder, name)["count"].sum() for name in COUNTS} == {total}
    districts = view(folder, "destination_district")
    assert total > 0 or (districts["low"] == 0).all()
    assert (districts["high"] > 0).any()


def test_questions_about_one_axis_are_answered_by_its_margin(shared):
    """The totals of an area come from the view, with its interval; other questions come from the tree."""
    wide, folder = shared
    zone = code_of(wide.trips[0][0])[1]
    row = view(folder, "origin_zone").row(by_predicate=pl.col("origin_zone") == zone, named=True)
    answer = query_answer(folder, zone, None, [], simultaneous=False)
    assert (answer.count, answer.low, answer.high) == (row["count"], row["low"], row["high"])
    assert answer.how.startswith("the cell of view origin_zone")
    pair = query_answer(folder, zone, code_of(wide.trips[0][1])[1], [], simultaneous=False)
    assert "level 4" in pair.how
    opened = trellis.open_release(folder)
    assert opened.view("origin_zone")["count"].sum() == view(folder, "origin_zone")["count"].sum()
    assert query_answer(folder, None, "D00", [], simultaneous=False).how.startswith("the cell of level 1")


def test_verify_finds_margins_that_were_changed(shared, tmp_path):
    """A count that is moved within a margin, a difference that is misstated, and an interval that does not follow are found."""
    _, folder = shared
    wrong = {
        "a count moved within the margin": changed("views/origin_zone.parquet", moved),
        "another difference": of_origins(lambda of: of["differs"].update(largest=of["differs"]["largest"] + 1)),
        "no difference": of_origins(lambda entry: entry.update(differs=None)),
        "a count moved to another district": changed("views/origin_zone.parquet", to_another_district),
        "the same where districts are level 1": changed("views/destination_zone.parquet", to_another_district),
        "another noisy count": changed("noisy_counts/view_origin_zone.parquet", first("noisy_count", 500)),
        "another interval": of_origins(lambda entry: entry.update(half_width=entry["half_width"] + 1)),
    }
    for name, change in wrong.items():
        change(twin := Path(shutil.copytree(folder, tmp_path / name)))
        assert "_zone" in verify_answer(twin).failures[0], name


def of_origins(change):
    """Return what changes the manifest's entry of origins at zones."""
    return stated(lambda manifest: change(manifest["views"][1]))


def to_another_district(table):
    """Return a margin with a record moved from its largest area to one of another district, which has records too."""
    largest, row = table["count"].arg_max(), pl.int_range(pl.len())
    elsewhere = (pl.col("count") > 0) & (pl.nth(1) != table.row(largest)[0])
    other = int(table.with_row_index("row").filter(elsewhere)["row"].first())
    return table.with_columns(count=pl.col("count") - (row == largest) + (row == other))


def moved(table):
    """Return a margin with one record moved from its largest area to its last."""
    row = pl.int_range(pl.len())
    return table.with_columns(count=pl.col("count") - (row == pl.col("count").arg_max()) + (row == pl.len() - 1))


def test_readers_are_told_how_far_margins_and_leaves_differ(shared):
    """README, report and the metadata of the records state the difference of each margin in records."""
    _, folder = shared
    largest = {view["name"]: view["differs"]["largest"] for view in manifest_of(folder)["views"] if view["differs"]}
    readme = " ".join((folder / "README.md").read_text().split())
    report = (folder / "report.html").read_text()
    for name in OWN:
        assert f"{name} by {largest[name]} at most" in readme
        assert f"{name} by {largest[name]} at most" in report
    metadata = json.loads((folder / "metadata.json").read_text())
    (records,) = [table for table in metadata["tables"] if table["url"] == "records.csv"]
    (note,) = [note for note in records["notes"] if "differs" in note]
    assert {name: of["largest"] for name, of in note["differs"].items()} == largest


def test_crossing_views_need_few_leaves(tmp_path):
    """A grouping by more than one axis is refused with the number of leaves, and what to name instead."""
    views = {"starts": {"origin": "zone"}, "both": {"origin": "zone", "destination": "district"}}
    with pytest.raises(SpecError, match="must be the totals of one axis, since there are 10,240,000 leaves") as refused:
        Wide(tmp_path, []).plan(release={"tree": "destination", "finest": "zone", "views": views})
    assert refused.value.field == "release.views.both"
    assert "views: margins" in refused.value.hint


def test_a_plan_compares_margins_with_and_without_views(tmp_path):
    """The plan of either release gives both errors of each margin; that of origins is far smaller with views."""
    wide = Wide(tmp_path, [])
    with_views = plan_answer(wide.plan()).margins
    without = plan_answer(wide.plan(release={"tree": "destination", "finest": "zone"})).margins
    for one, other in zip(with_views, without, strict=True):
        assert one.expected_error == pytest.approx(other.expected_error, rel=0.01)
        assert one.without_views == pytest.approx(other.without_views, rel=0.01)
    by_name = {(margin.axis, margin.level): margin for margin in with_views}
    zones = by_name["origin", "zone"]
    assert zones.without_views > 20 * zones.expected_error

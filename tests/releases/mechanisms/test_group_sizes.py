"""Releases of group sizes: whole numbers of households that add up over regions, their intervals, and what is refused."""

from functools import partial

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.query import query_answer
from flows.answers.verify import _guarantee_failures, verify_answer
from flows.api import release
from flows.planning.plan import make_plan
from flows.specification.file import faults_of, load_spec
from storage.errors import InputError, SpecError, UsageError
from tasks.mechanisms import MECHANISMS
from tests.support.folders import changed, first, rewrite, table_of
from tests.support.households import (
    BANDS,
    EXACT,
    LARGEST,
    LISTED,
    LISTED_TENURE,
    PRIVACY,
    SPEC,
    TENURE,
    VIEWS,
    draw_homes,
    homes_released,
    people_of,
    with_tenure,
    write_spec,
    write_tables,
)
from tests.support.making import no_noise
from tests.support.passes import check_rows, counts_of, try_spec

COUNTING_GROUPS = [name for name, recipe in MECHANISMS.items() if recipe.counts_groups]


@pytest.fixture
def tables(tmp_path, own_home):
    """Return a folder with the tables."""
    write_tables(tmp_path, draw_homes())
    return tmp_path


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """Return a published folder without noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path_factory.mktemp("home")))
        return homes_released(tmp_path_factory.mktemp("exact") / "homes", **EXACT).folder


def asked_of(folder, *where, simultaneous=False):
    """Return the answer to a question."""
    return query_answer(folder, None, None, [*where], simultaneous=simultaneous)


WITH_LIST = [name for name in COUNTING_GROUPS if MECHANISMS[name].takes_list]


@pytest.mark.parametrize(
    ("mechanism", "listed"), [*((name, False) for name in COUNTING_GROUPS), *((name, True) for name in WITH_LIST)]
)
@pytest.mark.parametrize("order", [None, ["tenure", "region"], ["region", "tenure"], []])
def test_without_noise_the_sizes_are_the_true_ones(tables, mechanism, listed, order):
    """Whatever is measured, whether a list of addresses is public, and with tenures in any order, the sizes and their ends are those of the table."""
    by_tenure = order is not None
    keys = [{}, LISTED, TENURE, LISTED_TENURE][2 * by_tenure + listed]
    release = SPEC["release"] | ({"order": order} if order else {})
    plan, _, trial = try_spec(write_spec(tables, mechanism=mechanism, **EXACT, **keys, release=release), no_noise)
    assert ["each value of tenure" in said for said in plan.unprotected] == [by_tenure] * listed
    codes = [axis.codes[-1].to_list() for axis in plan.tree.axes]
    found = {
        tuple(of[number] for of, number in zip(codes, cell, strict=True)): count
        for cell, count in counts_of(trial.released[-1]).items()
    }
    own = ["tenure"] if by_tenure else []
    homes = with_tenure(draw_homes()).with_columns(size=pl.col("people").clip(upper_bound=LARGEST).cast(pl.String))
    true = homes.group_by("county", *own, "size").len().iter_rows()
    empty = {("B3", *(["rent"] if by_tenure else []), "0"): 20} if listed else {}
    assert found == {tuple(cell): count for *cell, count in true} | empty
    check_rows(trial)
    for level in range(plan.tree.depth + 1) if not mechanism.endswith("relaxed") else ():
        rows = trial.published.rows(level)[:]
        off = [np.abs(end - rows.counts).max(initial=0) for end in rows.bounds]
        assert max(off) <= (mechanism == "sizes_chain"), level  # which has ten times the noise


def test_views_are_sums_that_cost_nothing(tables):
    """Sums over sizes, tenures or regions, also by a derived column: exact without noise, uncharged, verified, and what questions are answered."""
    release_of = partial(release, different_people=True)
    found = release_of(write_spec(tables, **VIEWS, **EXACT))
    plain = make_plan(load_spec(write_spec(tables, **TENURE, **EXACT)))
    assert not any(view.epsilon for view in found.manifest.views)
    assert [level.scale for level in found.manifest.levels] == [level.scale for level in plain.levels]
    homes = with_tenure(draw_homes()).with_columns(size=pl.col("people").clip(upper_bound=LARGEST).cast(pl.String))
    homes = homes.with_columns(band=pl.col("size").replace_strict(BANDS), region_county="county")
    for view, codes in (("tenures", ["tenure"]), ("counties", ["region_county"]), ("bands", ["region_county", "band"])):
        table = pl.read_parquet(found.folder / f"views/{view}.parquet")
        for row in table.iter_rows(named=True):
            true = homes.filter(**{name: row[name] for name in codes}).height
            assert (row["count"], row["low"], row["high"]) == (true, true, true)
            where = [f"{name.removesuffix('_county')}={row[name]}" for name in codes]
            answer = asked_of(found.folder, *where)
            assert (answer.count, answer.low, answer.high) == (true, true, true), where
    for several in (["few", "many"], ["one", "many"]):
        answer = asked_of(found.folder, "region=A1", f"band={'+'.join(several)}")
        assert answer.count == homes.filter(pl.col("county") == "A1", pl.col("band").is_in(several)).height
    noisy = release_of(write_spec(tables, **VIEWS)).folder  # the sum of bands does not have the draws that they share
    for where in ([], ["region=A1"]):
        bands, sizes = (asked_of(noisy, *where, asked) for asked in ("band=few+many", "size=2.."))
        assert (bands.count, bands.low, bands.high, bands.how) == (sizes.count, sizes.low, sizes.high, sizes.how)
    assert asked_of(noisy, "band=many", "size=3").how.startswith("no cell")
    assert verify_answer(found.folder).failures == []
    changed("views/bands.parquet", first("high", 1))(found.folder)
    assert any("bands" in failure for failure in verify_answer(found.folder).failures)


def test_a_view_of_only_children_is_one_of_their_parents(tables):
    """Where every state has a single county, views of counties follow from what is measured of states."""
    counties = ["A1", "A2", "B1", "B2", "B3"]
    (tables / "counties.csv").write_text("state,county\n" + "".join(f"{county}!,{county}\n" for county in counties))
    folder = release(write_spec(tables, **VIEWS, **EXACT), different_people=True).folder
    assert verify_answer(folder).failures == []
    table = pl.read_parquet(folder / "views/counties.parquet").filter(pl.col("count") > 0)
    true = with_tenure(draw_homes())["county"].value_counts()
    assert dict(table.select("region_county", "count").rows()) == dict(true.rows())


def test_plans_say_what_is_refined_first(tables):
    """Without an order attributes follow the coarsest regions; with one, the plan has it, and says nothing of its own choice."""
    plan = make_plan(load_spec(write_spec(tables, **TENURE)))
    assert plan.chosen.order == ("region.state", "tenure", "region.county")
    assert [level.axes for level in plan.levels][3] == {"region": "state", "tenure": "tenure", "size": "size"}
    order = {"release": SPEC["release"] | {"order": ["tenure", "region"]}}
    plan = make_plan(load_spec(write_spec(tables, **TENURE, **order)))
    assert plan.chosen is None
    assert [plan.tree.axes[axis].name for axis in plan.tree.steps] == ["size", "tenure", "region", "region"]


def test_a_row_a_person_and_a_row_a_group_give_the_same(tmp_path, own_home):
    """A table that counts the people of each home is the same as one with a row per person; a home of nobody is none."""
    write_tables(
        tmp_path, pl.concat([draw_homes(), pl.DataFrame({"address": ["nobody"], "county": ["A1"], "people": [0]})])
    )
    counted = {"table": "homes.csv", "group": "address", "count": "people"}
    found = [try_spec(write_spec(tmp_path, **EXACT, **keys), no_noise)[2].released for keys in ({}, {"input": counted})]
    assert [counts_of(nodes) for nodes in found[0]] == [counts_of(nodes) for nodes in found[1]]
    assert found[0][0].counts.tolist() == [500]


def test_a_public_list_makes_empty_homes_exact_in_number(library):
    """With a list every county has as many addresses as listed, and the release says that the list is not protected."""
    kept = library["sizes within a list"]
    assert int(table_of(kept.folder, 0)["count"].item()) == 520
    per_county = table_of(kept.folder, 3).group_by("region_county").agg(pl.col("count").sum())
    listed = pl.read_csv(kept.spec.parent / "addresses.csv")["county"].value_counts()
    assert dict(per_county.iter_rows()) == dict(listed.iter_rows())
    assert "list of groups is public" in kept.found.manifest.unprotected[0]
    assert "list of groups is public" in (kept.folder / "README.md").read_text()
    total = asked_of(kept.folder)
    assert (total.low, total.high) == (520, 520)


def test_a_question_about_tails_has_the_noise_of_one_draw(exact, library):
    """Homes of 3 people or more in a county bear the noise of one measurement, and any other range that of two."""
    homes = draw_homes().filter(pl.col("county").str.starts_with("A"))
    true = (homes["people"] >= 3).sum()
    for asked in ("3..", f"3..{LARGEST}"):
        answer = asked_of(exact, "region=A", f"size={asked}")
        assert (answer.count, answer.level, answer.low, answer.high) == (true, 2, true, true)
        assert "one of the noisy numbers of groups of at least some size" in answer.how
    with pytest.raises(UsageError, match="must name a first code, a last code, or both"):
        asked_of(exact, "size=..")
    with pytest.raises(UsageError, match=r"99 in 99\.\. is no code of size"):
        asked_of(exact, "size=99..")
    noisy = library["sizes by tails"].folder
    answers = {asked: asked_of(noisy, "region=A1", f"size={asked}") for asked in ("3..", "3..4", "3", "..2")}
    assert all(answer.how.endswith("measured at level 3") for answer in answers.values())
    widths = {asked: answer.high - answer.low for asked, answer in answers.items()}
    assert widths["3.."] <= widths["3..4"]
    at_once, alone = (asked_of(noisy, "size=3..", simultaneous=both) for both in (True, False))
    assert at_once.low <= at_once.count <= at_once.high
    assert alone.high - alone.low < at_once.high - at_once.low


def test_a_level_is_answered_by_the_measurement_that_says_most(tmp_path, own_home):
    """Where counties bear so much less noise than what holds them, the sums over them are the source of rows, questions and marks."""
    found = homes_released(tmp_path / "fine", privacy=PRIVACY | {"split": {"finest": 20}})
    assert verify_answer(found.folder).failures == []
    root = found.manifest.levels[0]
    assert root.sigma == pytest.approx(found.manifest.levels[3].sigma * 5**0.5)  # five counties, one draw each
    row, answer = table_of(found.folder, 0).row(0, named=True), asked_of(found.folder)
    assert (row["low"], row["high"]) == (answer.low, answer.high)  # of one cell, both promises are the same
    # with level 1, which has a twentieth of the budget, it would be above 50
    assert row["high"] - row["low"] <= 2 * 2 * root.sigma
    assert row["signal"]
    for where, places in (([], 5), (["region=A"], 2), (["region=A1"], 1)):
        how = asked_of(found.folder, *where, "size=2..").how
        assert how.endswith("measured at level 3")
        assert f"{places} noisy" in how if places > 1 else "one of the noisy" in how
    even = homes_released(tmp_path / "even", privacy=PRIVACY | {"split": "uniform"}, dataset="others")
    assert asked_of(even.folder, "size=2..").how.endswith("measured at level 1")


def test_noisy_counts_may_be_left_out(tmp_path, own_home):
    """A folder without noisy counts is verified, its rows have intervals, and sums of rows have none."""
    found = homes_released(tmp_path / "homes", keep_noisy_counts=False)
    assert verify_answer(found.folder).failures == []
    row = table_of(found.folder, 3).row(0, named=True)
    answer = asked_of(found.folder, f"region={row['region_county']}", "size=1")
    assert (answer.count, answer.low, answer.high) == (row["count"], row["low"], row["high"])
    by_tenure = homes_released(tmp_path / "tenures", keep_noisy_counts=False, dataset="tenures", **TENURE, **EXACT)
    for folder, *where in ((found.folder, "size=2.."), (by_tenure.folder, "region=A2", "size=2")):
        answer = asked_of(folder, *where)
        assert (answer.low, answer.high) == (None, None)
    rows = table_of(by_tenure.folder, 4).filter(region_county="A2", size="2")
    assert rows.height == 1  # so that its interval is that of a row, and not that of both tenures


def test_only_units_within_their_bound_are_grouped(tables, library):
    """With a column of units, records beyond the bound are left out before homes are counted."""
    people = people_of(draw_homes()).with_row_index("person").with_columns(pl.col("person") // 2)
    people.write_csv(tables / "people.csv")
    cut = release(write_spec(tables, input=SPEC["input"] | {"unit": "person"}, **EXACT))
    assert library["sizes by tails"].found.manifest.privacy.bounded_by == "promise"
    assert cut.manifest.privacy.bounded_by == "ingest"
    tail = pl.read_parquet(cut.folder / "noisy_counts" / "level_1.parquet")["noisy_count"].sum()
    assert tail <= people["person"].n_unique()


@pytest.mark.parametrize("change", [
    lambda of: of.with_columns(size=pl.when(pl.int_range(pl.len()) > 0).then("size").otherwise(pl.lit("6"))),
    first("count", 1),
    first("high", 1),
], ids=["size", "count", "interval"])  # fmt: skip
def test_a_changed_row_is_found_out(library, tmp_path, change):
    """A size, a count or an interval that was changed after publication is found, even with its checksum changed as well."""
    folder = library["sizes by tails"].copied(tmp_path)
    changed("counts/level_3.parquet", change)(folder)
    assert any("level_3" in failure for failure in verify_answer(folder).failures)


def test_a_manifest_that_understates_the_sensitivity_is_found_out(library, tmp_path):
    """A chain of running sums whose scale is that of a sensitivity of 1 does not have the ε that it states."""
    folder = library["sizes by a chain"].copied(tmp_path)
    rewrite(folder, lambda of: [entry.update(scale=entry["scale"] / 5) for entry in of["levels"][1:]])
    assert any("cost more than" in failure for failure in _guarantee_failures(folder))


OF_FEATURES = {
    "input": {"table": "people.csv", "features": ["county"]},
    "hierarchy": {"county": {"values": ["A1", "A2", "B1", "B2", "B3"]}},
    "release": {"order": ["county"]},
    "privacy": {key: value for key, value in PRIVACY.items() if key != "split"},
}
REFUSED = {
    "of features": (OF_FEATURES | {"mechanism": "group_sizes"}, "release.group_sizes must be given with mechanism group_sizes"),
    "features in groups": (OF_FEATURES | {"input": OF_FEATURES["input"] | {"groups": LISTED["input"]["groups"]}}, "input.groups must be left out"),
    "no group": ({"input": {"table": "people.csv"}}, "input.group must be given"),
    "no sizes": ({"release": {}}, "release.group_sizes must be given"),
    "no largest": ({"release": {"group_sizes": {"region": "county"}}}, "release.group_sizes.largest must be given"),
    "largest below 1": ({"release": {"group_sizes": {"region": "county", "largest": 0}}}, "largest must be >= 1, got 0"),
    "largest too large": ({"release": {"group_sizes": {"region": "county", "largest": 2**20 + 1}}}, "largest must be <= 1,048,576"),
    "unknown region": ({"release": {"group_sizes": {"region": "count", "largest": 5}}}, "Did you mean county"),
    "group is the region": ({"input": SPEC["input"] | {"group": "county"}}, "input.group must not be the column of the regions"),
    "group is the unit": ({"input": SPEC["input"] | {"unit": "address"}}, "give the size of its group as a feature"),
    "group is the count": ({"input": SPEC["input"] | {"count": "address"}}, "input.count must not be a column of input.group"),
    "invariants": ({"privacy": PRIVACY | {"neighbours": "substitution", "invariants": ["state"], "i_accept_unprotected": True}}, "a person who lives alone leaves"),
    "distinct": ({"privacy": PRIVACY | {"distinct": "county"}}, "privacy.distinct must be left out for group sizes"),
    "priority": ({"priority": "least_squares"}, "priority must be left out"),
    "shares of views": (VIEWS | {"privacy": PRIVACY | {"split": {"tenures": 1}}}, "a view is a sum of rows, so it has no share and costs nothing"),
    "a view of the leaves": (TENURE | {"release": SPEC["release"] | {"views": {"all": {"region": "county", "tenure": "tenure", "size": "size"}}}}, "must be coarser than the leaves"),
    "finest": ({"release": SPEC["release"] | {"finest": "county"}}, "release.finest must be left out for group sizes"),
    "no codes": ({"input": TENURE["input"]}, "hierarchy.tenure must be given: every attribute of a group needs its codes"),
    "other axes": ({"hierarchy": SPEC["hierarchy"] | {"sex": {"values": 2}}}, "hierarchy.sex must be left out"),
    "an attribute named size": ({"input": SPEC["input"] | {"features": ["size"]}}, "input.features must not name size"),
    "an order of regions": ({"release": SPEC["release"] | {"order": ["region"]}}, "release.order must be left out for group sizes without input.features"),
    "an order without tenure": (TENURE | {"release": SPEC["release"] | {"order": ["region"]}}, "release.order must refine every axis: tenure is missing"),
    "an order of sizes": (TENURE | {"release": SPEC["release"] | {"order": ["size", "region", "tenure"]}}, "release.order must hold axes"),
    "taken beside a list": (LISTED_TENURE | {"hierarchy": SPEC["hierarchy"] | {"tenure": {"values": ["o", "r"], "from": {"column": "tenure", "first": 1}}}}, "hierarchy.tenure.from must be left out with input.groups"),
    "no regions": ({"hierarchy": {"regions": SPEC["hierarchy"]["region"]}}, "hierarchy.region must be given"),
    "regions in an order": ({"hierarchy": {"region": {"ordered": 5}}}, "regions have no order"),
    "a list for another": ({"mechanism": "sizes_direct", **LISTED}, "input.groups must be left out with mechanism sizes_direct"),
    "another mechanism": ({"mechanism": "inftda"}, "mechanism must be one of group_sizes"),
    "a level named size": ({"hierarchy": {"region": {"table": "counties.csv", "levels": ["size", "county"]}}}, "must have no level named size"),
    "a target": ({"privacy": {key: value for key, value in PRIVACY.items() if key != "epsilon"} | {"target": {"level": "county", "max_error": 5, "confidence": 0.9}}}, "privacy.target must be left out"),
    "region beside a list": ({"input": LISTED["input"] | {"region": "county"}}, "input.region must be left out with input.groups"),
    "too many cells": ({"release": {"group_sizes": {"region": "county", "largest": 2**20}}, "run": {"max_memory": "256MB"}}, "run.max_memory must be at least"),
}  # fmt: skip


LISTS_A_MILLION = [pytest.mark.thorough, pytest.mark.heavy("it lists a million sizes")]


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=LISTS_A_MILLION if fault == "too many cells" else []) for fault in REFUSED]
)
def test_specs_that_cannot_be_released_are_refused(tables, fault):
    """Each refusal names the key, the rule and what the spec says."""
    keys, message = REFUSED[fault]
    text = yaml.safe_dump(SPEC | keys)
    if found := faults_of(text):
        assert any(message in f"{one} {one.hint}" for one in found), [str(one) for one in found]
        return
    with pytest.raises(SpecError) as refusal:
        make_plan(load_spec(write_spec(tables, **keys)))
    assert message in str(refusal.value)


COUNTED = {"input": {"table": "people.csv", "group": "address", "count": "people"}}
BAD = {
    "no group": ("address,county\n,A1\n", "column address must not be empty", {}),
    "no region": ("address,county\nh1,\n", "column county must not be empty", {}),
    "unknown region": ("address,county\nh1,Z9\n", "column county has codes that the codebook lacks", {}),
    "two regions": ("address,county\nh1,A1\nh1,B1\n", "has a group in two regions", {}),
    "two tenures": (
        "address,county,tenure\nh1,A1,own\nh1,A1,rent\n",
        "column tenure has two values in one group",
        TENURE,
    ),
    "unknown tenure": (
        "address,county,tenure\nh1,A1,Z9\n",
        "column tenure has codes that hierarchy.tenure lacks",
        TENURE,
    ),
    "not in the list": ("address,county\nelsewhere,A1\n", "column address has codes that input.groups lacks", LISTED),
    "no column": ("home,county\nh1,A1\n", "has no column address", {}),
    "below zero": ("address,county,people\nh1,A1,-1\n", ">= 0", COUNTED),
    "a part": ("address,county,people\nh1,A1,1.5\n", "whole numbers", COUNTED),
    "no number": ("address,county,people\nh1,A1,x\n", "whole numbers", COUNTED),
    "too many": (f"address,county,people\nh1,A1,{2**40 + 1}\n", "at most 2**40", COUNTED),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_tables_are_refused_without_a_value(tables, fault):
    """A refusal of the confidential table names the column or the rule, and no value of it."""
    text, message, keys = BAD[fault]
    (tables / "people.csv").write_text(text)
    with pytest.raises(InputError) as refusal:
        release(write_spec(tables, **keys))
    said = f"{refusal.value} {refusal.value.hint}"
    assert message in said
    assert not any(value in said for value in ("h1", "Z9", "elsewhere", "A1", "rent"))


@pytest.mark.parametrize(("text", "message"), [
    ("address,county\nh1,A1\nh1,B1\n", "must list each group once; see row 1, 2"),
    ("address,county\n,A1\n", "column address must not be empty; see row 1"),
    ("address,county\nh1,Z9\n", "must hold codes of the codebook of the regions; see row 1"),
    ("home,county\nh1,A1\n", "has no column address"),
])  # fmt: skip
def test_bad_lists_are_refused_when_planned(tables, text, message):
    """A public list with a fault is refused by the plan, before the confidential table is read."""
    (tables / "addresses.csv").write_text(text)
    with pytest.raises(InputError) as refusal:
        make_plan(load_spec(write_spec(tables, **LISTED)))
    assert message in str(refusal.value)


def test_the_confidential_table_is_no_list_and_no_codebook(tables):
    """A list or a codebook that is the confidential table would reveal who is in it."""
    listed = {"input": SPEC["input"] | {"groups": {"table": "people.csv", "levels": "county"}}}
    with pytest.raises(InputError, match="must not be the confidential table"):
        make_plan(load_spec(write_spec(tables, **listed)))
    with pytest.raises(InputError, match="must not be the confidential table"):
        make_plan(load_spec(write_spec(tables, hierarchy={"region": {"table": "people.csv", "levels": ["county"]}})))


@pytest.mark.parametrize(("mechanism", "accountant"), [("sizes_direct", "zcdp"), ("group_sizes", "pld")])
def test_moves_by_two_are_not_composed_as_moves_by_one(tables, mechanism, accountant):
    """Where one person can move a number of groups by 2, no privacy loss distribution of moves by 1 is used, also if it is asked for."""
    privacy = {**PRIVACY, "neighbours": "substitution"}
    keys = {"mechanism": mechanism, "noise": {"law": "gaussian"}, "privacy": privacy}
    assert make_plan(load_spec(write_spec(tables, **keys))).guarantee.accountant.name == accountant
    if accountant == "zcdp":
        with pytest.raises(SpecError, match="pld needs numbers that one unit moves by at most 1"):
            make_plan(load_spec(write_spec(tables, **keys | {"privacy": {**privacy, "accountant": "pld"}})))

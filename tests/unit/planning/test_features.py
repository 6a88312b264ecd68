"""Releases of any features: the plan, the records and the words that come of them, and what an order of levels means."""

import hashlib
import json
import math
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.planning.plan import make_plan
from storage.errors import InputError
from storage.tables import column_name, flat_features
from tasks.format import csv
from tasks.format.csv import record_tables
from tasks.ingest.codebook import ListedCodes
from tasks.tree.order import in_sequence
from tasks.uncertainty.bounds import chebyshev_bounds, finest_above_noise
from tasks.validate.size import disk_size, expected_cells
from tasks.words.levels import level_columns, place
from tasks.words.spelling import faults_of_order
from tests.support.keys import ABSENT, ADULT, EDUCATION, features_of, planned_of
from tests.support.laws import gaussians

ORDER = ["from.district", "to.district", "from.zone", "to.zone", "mode", "hour"]
LEVELS = {"from": ["district", "zone", "block"], "to": ["district", "zone"], "mode": ["mode"]}
FINEST = {"from": "zone", "to": "zone", "mode": "mode"}
AREAS = "district,zone,block\nA,A1,a\nA,A2,b\nA,A2,c\nB,B1,d\nB,B2,e\n"
END = {"table": "areas.csv", "levels": ["district", "zone", "block"]}
WAYS = features_of({"from": END, "to": END, "mode": ["car", "bus"], "hour": 3}) | {"privacy": ADULT["privacy"]}
TO_ZONES = {"from": "zone", "to": "zone"}
EXACTLY = {"privacy.exact_records_per_unit": True, "privacy.max_records_per_unit": 4}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with tables of people and of ways, beside a store."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "adult.csv").write_text("sex,race,education\n0,white,10\n")
    (tmp_path / "education.csv").write_text(EDUCATION)
    (tmp_path / "areas.csv").write_text(AREAS)
    (tmp_path / "zones.csv").write_text("district,zone\nA,A1\nA,A2\nB,B1\nB,B2\n")
    return tmp_path


def way(folder, order=ORDER, finest=None, **privacy):
    """Return a plan of ways in some order, down to zones if nothing else is said."""
    keys = {"release": {"order": order, "finest": TO_ZONES if finest is None else finest}}
    return planned_of(folder, WAYS, keys | {f"privacy.{key}": value for key, value in privacy.items()})


def refined(plan):
    """Return what the levels of a plan refine, from level 1 on."""
    everything, *below = level_columns([level.axes for level in plan.levels])["refined"]
    assert everything == "everything"
    return ", ".join(below)


def test_the_example_is_planned(folder):
    """Level k is the marginal of the first k refinements, and a deep feature is refined where it stands."""
    plan = planned_of(folder, ADULT)
    stage = "sex, race, education stage"
    assert [axis.name for axis in plan.tree.axes] == ["sex", "race", "education"]
    assert [place(of.axes) for of in plan.levels] == ["", "race", "sex, race", stage, f"{stage[:-5]}grade"]
    assert [level.possible_cells for level in plan.levels] == [1, 3, 6, 12, 24]
    assert refined(plan) == "race, sex, education stage, education grade"
    assert plan.tree.axes[1].codes[0].to_list() == ["7", "black", "white"]
    cut = planned_of(folder, ADULT, {"release.finest": {"education": "stage"}})  # the others whole
    assert [level.possible_cells for level in cut.levels] == [1, 3, 6, 12]
    assert cut.source.axes[2].levels == ("stage", "grade")  # records are coded by the finest


@settings(max_examples=15)
@given(st.one_of(st.integers(1, 2000), st.lists(st.text(min_size=1), min_size=1, unique=True).map(tuple)))
def test_a_domain_is_a_codebook_of_one_level(codes):
    """A codebook made of codes has each once, as text, sorted as all codebooks are."""
    codebook = ListedCodes("sex", codes).codebook()
    assert codebook.columns == ["sex"]
    assert sorted(codebook["sex"]) == sorted(map(str, range(codes)) if isinstance(codes, int) else codes)
    assert codebook.equals(codebook.sort("sex"))


def test_codes_are_hashed_as_they_are(folder):
    """A domain stands in the manifest by its codes, however they are written and in whatever order."""
    written = ({"values": 2}, {"values": ["1", "0"]}, [0, 1], {"values": 3})
    *hashes, other = (planned_of(folder, ADULT, {"hierarchy.sex": of}).source.codebooks for of in written)
    assert {of["sex"] for of in hashes} == {hashlib.sha256(b'["0","1"]').hexdigest()}
    assert other["sex"] == hashlib.sha256(json.dumps(["0", "1", "2"], separators=(",", ":")).encode()).hexdigest()
    assert other["education"] == hashlib.sha256(EDUCATION.encode()).hexdigest()


def test_the_codebook_of_the_only_feature_may_have_its_name(folder):
    """The column of a table's only feature may be a level of its codebook, but the table itself is no codebook."""
    one = features_of({"grade": {"table": "education.csv", "levels": ["stage", "grade"]}})
    assert [level.possible_cells for level in planned_of(folder, one).levels] == [1, 2, 4]
    with pytest.raises(InputError, match="must not be the confidential table"):
        planned_of(folder, one, {"input.table": "education.csv"})
    with pytest.raises(InputError, match="has the columns of the confidential table"):
        planned_of(folder, features_of({"stage": ["low", "high"], **one["hierarchy"]}))


def test_flat_features_are_columns_of_their_own_name(folder):
    """A feature of one level is a column of its name, whatever the level is called; others are called by level too."""
    file = planned_of(folder, ADULT, {"hierarchy.sex": {"table": "education.csv", "levels": ["grade"]}}).file
    flat = file.spec.flat_features
    assert flat == flat_features(file.published()) == {"sex", "race"}
    assert column_name("sex", "grade", flat) == "sex"
    assert column_name("education", "stage", flat) == "education_stage"
    assert flat_features({"input": {"origin": "a"}, "hierarchy": {"origin": {"table": "a", "levels": ["b"]}}}) == set()
    assert flat_features({"input": "spoilt", "hierarchy": 3}) == set()


def test_records_can_be_asked_for_beside_the_spec(folder):
    """What the command line asks for is a term of the release, so that a rerun keeps it; the spec stays as written."""
    file = planned_of(folder, ADULT).file
    plain, asked = make_plan(file), make_plan(file.with_records())
    assert (plain.terms.records, asked.terms.records) == (False, True)
    assert asked.file.text == file.text
    assert planned_of(folder, ADULT, {"release.records": True}).terms.records


HUGE = [1, *(2 ** (20 * features) for features in range(1, 61))]  # the last one is beyond every float


def test_bounds_and_sizes_of_universes_beyond_every_float():
    """However many cells there could be, bounds grow with their logarithm, and sizes with the records there can be."""
    sigmas = [0.0, *[3.0] * 60]
    bounds = chebyshev_bounds(gaussians(sigmas), HUGE)
    assert all(math.isfinite(bound) for bound in bounds)
    step = 6 * math.sqrt(2 * (math.log(120) + 1200 * math.log(2) - math.log(0.05)))
    assert bounds[60] - bounds[59] == pytest.approx(step, rel=0.05)
    assert [finest_above_noise(total, sigmas, HUGE) for total in (10**9, 1)] == [1, None]
    for total in (None, 10**6):
        expected = expected_cells(HUGE, sigmas, total)
        assert all(of_level.nonzero <= 2.0**40 for of_level in expected)
        size = partial(disk_size, expected, HUGE, sigmas, total, finest_areas=[2**20] * 60, code_bytes=400.0)
        with_records, without = (size(records=records) for records in (True, False))
        assert with_records.upper_bound == (total is None)
        assert with_records.published > without.published


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 9))), min_size=1),
    st.integers(1, 5),
)
def test_records_are_rows_as_often_as_they_count(parts, chunk):
    """Each row of a table is so many records, in order, whatever the parts and chunks; no count leaves no record."""
    names = ("a", "b", "count")
    schema = pa.schema(dict(zip(names, (pa.string(), pa.string(), pa.int64()), strict=True)))
    tables = [pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in part], schema) for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "CHUNK_RECORDS", chunk)
        made = list(record_tables(tables, ["b"]))
    expected = [b for part in parts for _, b, count in part for _ in range(count)]
    assert [row["b"] for table in made for row in table.to_pylist()] == expected
    assert all(len(table) <= chunk for table in made)
    assert {tuple(table.column_names) for table in made} == {("b",)}


# the order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "said"), [
    ("from.zone from.district to mode", "first: from.district must stand before from.zone. Move it there."),
    ("from.zone to mode", "leave out no level: from.district is missing. Write it before from.zone."),
    ("from.district to mode", "down to zone: from.zone is missing. Write it after from.district."),
    ("from to.district to.district to.zone mode", "each level once, got to.district twice. Delete"),
    ("from from.zone to mode", "each level once, got from.zone after from. Delete the later one."),
    ("from.district from.zone from to mode", "each level once, got from after from.zone. Delete"),
    ("from from.block to mode", "of from, which is zone, got from.block. Delete from.block, or choose"),
    ("from mode", "refine every axis: to is missing."),
    ("from to mode hour", "hold axes, or levels as axis.level, got hour."),
    ("from.distrct to mode", "district, zone, block, got from.distrct. Did you mean from.district?"),
    ("from to mode.car mode", "as axis.level; mode has the level mode, got mode.car."),
])  # fmt: skip
def test_what_an_order_cannot_be(order, said):
    """Each fault of an order is told once, by the key, the rule, the entry and the next step."""
    (told,) = faults_of_order(order.split(), LEVELS, FINEST)
    assert told.startswith("release.order must ")
    assert said in told


def test_every_fault_of_an_order_is_told():
    """Faults stand side by side; a level whose name with its feature is another feature's is asked for by its feature's name."""
    told = list(faults_of_order(["from.block", "to.zone", "mode", "mode"], LEVELS, {**FINEST, "from": "block"}))
    assert [fault.partition(": ")[2] or fault for fault in told] == [
        "from.district is missing. Write it before from.block.",
        "from.zone is missing. Write it before from.block.",
        "to.district is missing. Write it before to.zone.",
        "release.order must refine each level once, got mode twice. Delete the later one.",
    ]
    features, finest = {"a": ["b", "c"], "a.c": ["x"]}, {"a": "c", "a.c": "x"}
    told = list(faults_of_order(["a.b", "a.c"], features, finest))
    assert told == ["release.order must refine a down to c: a is missing. Write it after a.b."]
    assert list(faults_of_order(["a.b", "a.c", "a"], features, finest)) == []


@pytest.mark.parametrize(
    ("order", "finest", "levels"),
    [
        (ORDER, None, "from district, to district, from zone, to zone, mode, hour"),
        (["from", "to", "mode", "hour"], None, "from district, from zone, to district, to zone, mode, hour"),
        (
            ["mode", "from.district", "to", "from", "hour"],
            None,
            "mode, from district, to district, to zone, from zone, hour",
        ),
        (
            ["from.district", "to.district", "from.zone", "mode", "hour"],
            {"from": "zone", "to": "district"},
            "from district, to district, from zone, mode, hour",
        ),
    ],
)
def test_a_feature_alone_means_its_levels_that_are_left(folder, order, finest, levels):
    """Each entry with a level is a level of the tree, at its place; a feature's name means all that no entry has refined before."""
    plan = way(folder, order, finest)
    assert refined(plan) == levels
    assert [axis.name for axis in plan.tree.axes] == ["from", "to", "mode", "hour"]  # as tables show them
    if order == ORDER:
        assert [level.possible_cells for level in plan.levels] == [1, 2, 4, 8, 16, 32, 96]


def test_a_promise_is_taken_right_after_its_level(folder):
    """Records that are distinct by a level of both ends are so without mode and hour, also where no level shows theirs."""
    plan = way(folder, exact_records_per_unit=True, max_records_per_unit=4, distinct="block")
    assert plan.promised == (3, 3, 0, 0)
    # a unit has at most 4 records, and a zone of either end at most two blocks
    assert [level.l2_sensitivity_squared for level in plan.levels[1:]] == [32, 32, 32, 32, 32, 32]
    to_zones = {"table": "zones.csv", "levels": ["district", "zone"]}
    ends = {"hierarchy.from": to_zones, "hierarchy.to": to_zones, "release.order": ORDER, "privacy.distinct": "zone"}
    of_zones = planned_of(folder, WAYS, EXACTLY | ends)
    assert of_zones.promised == (2, 2, 0, 0)
    assert [level.l2_sensitivity_squared for level in of_zones.levels[1:]] == [32, 32, 16, 8, 8, 8]
    adult = planned_of(folder, ADULT, EXACTLY | {"privacy.distinct": "sex"})
    # (race, sex) has six cells, of which two lie below one race
    assert [level.l2_sensitivity_squared for level in adult.levels[1:]] == [2 * 2 * 2**2, 8, 8, 8]


@pytest.mark.parametrize(("name", "level"), [("district", 2), ("zone", 4), ("mode", 5), ("hour", 6)])
def test_a_level_is_the_first_at_which_all_its_features_have_reached_it(folder, name, level):
    """Keys that name a level mean the tree level at which every feature that has a level of that name has reached it."""
    if level < 6:
        exact = way(folder, invariants=[name], i_accept_unprotected=True)
        assert [of.level for of in exact.levels if of.is_invariant] == list(range(level + 1))
    plan = way(folder, target={"level": name, "max_error": 40, "confidence": 0.95}, epsilon=ABSENT)
    assert 39.6 < (plan.levels[level].bound or 0) <= 40


def test_a_list_of_shares_has_one_per_step(folder):
    """`privacy.split` lists a share for each measured step of the order, in that order."""
    plan = way(folder, split=[1, 2, 3, 4, 5, 6])
    shares = [level.rho / plan.guarantee.rho for level in plan.levels[1:]]
    assert shares == pytest.approx([share / 21 for share in range(1, 7)])


@given(depths=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_any_listing_of_all_levels_is_an_order(depths, data):
    """Levels in any order that is coarse to fine per feature have no fault, and are the steps; cut levels drop out of them."""
    levels = {f"f{number}": [f"l{level}" for level in range(depth)] for number, depth in enumerate(depths)}
    steps = data.draw(st.permutations([axis for axis, depth in enumerate(depths) for _ in range(depth)]))
    seen = Counter()
    order = []
    for axis in steps:
        order.append(f"f{axis}.l{seen[axis]}")
        seen[axis] += 1
    finest = {feature: data.draw(st.sampled_from(of)) for feature, of in levels.items()}
    released = [entry for entry in order if int(entry[-1]) <= int(finest[entry.partition(".")[0]][-1])]
    assert list(faults_of_order(released, levels, finest)) == []
    cut = [int(level[-1]) + 1 for level in finest.values()]
    pairs = [(int(entry[1:-3]), int(entry[-1]) + 1) for entry in released]
    assert list(in_sequence(cut, pairs)) == [axis for axis, _ in pairs]
    whole = in_sequence(depths, pairs)
    assert Counter(whole) == dict(enumerate(depths))
    seen.clear()
    kept = []
    for axis in whole:
        seen[axis] += 1
        kept += [axis] if seen[axis] <= cut[axis] else []
    assert kept == [axis for axis, _ in pairs]
    gone = data.draw(st.sampled_from(released))
    if len(released) > 1:
        assert list(faults_of_order([entry for entry in released if entry != gone], levels, finest)) != []

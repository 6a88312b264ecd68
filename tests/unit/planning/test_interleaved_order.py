"""`release.order` with levels of features: what its entries mean, what is refused, and the plan that comes of it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.forecast.check import check_answer
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from storage.errors import SpecError
from tasks.tree.order import in_sequence
from tasks.words.levels import level_columns
from tasks.words.refinements import faults_of_order, refinement
from tests.support.spec import SPEC

ORDER = ["from.district", "to.district", "from.zone", "to.zone", "mode", "hour"]
LEVELS = {"from": ["district", "zone", "block"], "to": ["district", "zone"], "mode": ["mode"]}
FINEST = {"from": "zone", "to": "zone", "mode": "mode"}
AREAS = [("A", "A1", "a"), ("A", "A2", "b"), ("A", "A2", "c"), ("B", "B1", "d"), ("B", "B2", "e")]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return what writes a spec of trips with mode and hour, some of whose sections have other keys."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "trips.csv").write_text("from,to,mode,hour\nA2,B1,car,0\n")

    def written(levels: tuple[str, ...] = ("district", "zone"), **keys: Any) -> Path:
        areas = dict.fromkeys(",".join(area[: len(levels)]) for area in AREAS)
        (tmp_path / "areas.csv").write_text("\n".join([",".join(levels), *areas]) + "\n")
        codebook = {"table": "areas.csv", "levels": list(levels)}
        spec: dict[str, Any] = {
            "name": "trips",
            "dataset": "city",
            "input": {"table": "trips.csv", "features": ["from", "to", "mode", "hour"]},
            "hierarchy": {"from": codebook, "to": codebook, "mode": ["car", "bus"], "hour": {"values": 3}},
            "release": {"order": ORDER} | keys.pop("release", {}),
            "mechanism": "inftda",
            "privacy": SPEC["privacy"] | keys.pop("privacy", {}),
            "budget": SPEC["budget"],
            **keys,
        }
        spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(spec, sort_keys=False))
        return path

    return written


def refined(plan: Plan) -> list[str]:
    """Return what each level of a plan refines."""
    return level_columns([level.axes for level in plan.levels])["refined"]


@pytest.mark.parametrize(
    ("entry", "meaning"),
    [
        ("from", ("from", 3)),
        ("from.district", ("from", 1)),
        ("from.zone", ("from", 2)),
        ("mode", ("mode", 1)),
        ("mode.mode", ("mode", 1)),
        ("a.b", ("a.b", 2)),  # the feature, not level b of a
        ("a.b.c", ("a.b", 1)),  # the longer feature, not level b.c of a
        ("a.c", ("a", 1)),
        ("a.x.y", ("a", 4)),
        ("from.", None),
        (".district", None),
        ("from.mode", None),
        ("fromdistrict", None),
        ("From", None),
        ("", None),
    ],
)
def test_an_entry_is_a_feature_or_one_of_its_levels(entry: str, meaning: tuple[str, int] | None) -> None:
    """A feature of exactly this name is meant first, then the longest one before a dot with one of its levels after it."""
    features = {**LEVELS, "a": ["c", "b", "b.c", "x.y"], "a.b": ["c", "d"]}
    assert refinement(entry, features) == meaning


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            ["from.zone", "from.district", "to", "mode"],
            "first: from.district must stand before from.zone. Move it there.",
        ),
        (["from.zone", "to", "mode"], "leave out no level: from.district is missing. Write it before from.zone."),
        (["from.district", "to", "mode"], "down to zone: from.zone is missing. Write it after from.district."),
        (["from", "to.district", "to.district", "to.zone", "mode"], "each level once, got to.district twice. Delete"),
        (["from", "from", "to", "mode"], "each level once, got from twice. Delete the later one."),
        (["from", "from.zone", "to", "mode"], "each level once, got from.zone after from. Delete the later one."),
        (["from.district", "from.zone", "from", "to", "mode"], "each level once, got from after from.zone. Delete"),
        (["from", "from.block", "to", "mode"], "of from, which is zone, got from.block. Delete from.block, or choose"),
        (["from", "mode"], "refine each of input.features: to is missing."),
        (["from", "to", "mode", "hour"], "hold features, or levels as feature.level, got hour."),
        (["form", "to", "mode"], "hold features, or levels as feature.level, got form. Did you mean from?"),
        (["from.distrct", "to", "mode"], "district, zone, block, got from.distrct. Did you mean from.district?"),
        (["from", "to", "mode.car", "mode"], "as feature.level; mode has the level mode, got mode.car."),
    ],
)
def test_what_an_order_cannot_be(order: list[str], said: str) -> None:
    """Each fault of an order is told once, by the key, the rule, the entry and the next step."""
    told = list(faults_of_order(order, LEVELS, FINEST))
    assert len(told) == 1
    assert told[0].startswith("release.order must ")
    assert said in told[0]


def test_every_fault_of_an_order_is_told() -> None:
    """Faults of several features and several levels stand side by side."""
    told = list(faults_of_order(["from.block", "to.zone", "mode", "mode"], LEVELS, {**FINEST, "from": "block"}))
    assert [fault.partition(": ")[2] or fault for fault in told] == [
        "from.district is missing. Write it before from.block.",
        "from.zone is missing. Write it before from.block.",
        "to.district is missing. Write it before to.zone.",
        "release.order must refine each level once, got mode twice. Delete the later one.",
    ]
    told = list(
        faults_of_order(["from.district", "to.zone", "mode"], LEVELS | {"to": ["zone"]}, {**FINEST, "from": "block"})
    )
    assert [fault.rpartition(": ")[2] for fault in told] == [
        "from.zone is missing. Write it after from.district.",
        "from.block is missing. Write it after from.zone.",
    ]


def test_a_fault_names_a_level_as_the_order_would_take_it() -> None:
    """A level whose name with its feature is another feature's is asked for by the name of its feature."""
    features = {"a": ["b", "c"], "a.c": ["x"]}
    told = list(faults_of_order(["a.b", "a.c"], features, {"a": "c", "a.c": "x"}))
    assert told == ["release.order must refine a down to c: a is missing. Write it after a.b."]
    assert list(faults_of_order(["a.b", "a.c", "a"], features, {"a": "c", "a.c": "x"})) == []


def test_check_lists_the_faults_of_an_order_beside_others(write) -> None:
    """`trellis check` tells every fault of the order, each with the line of the key, and what else is wrong."""
    order = ["from.zone", "to", "to", "mode", "hour"]
    problems = check_answer(write(release={"order": order}, privacy={"distinct": "street"})).problems
    told = [problem for problem in problems if problem.field == "release.order"]
    assert len(told) == 2
    assert all(problem.hint.startswith("Line ") for problem in told)
    assert "privacy.distinct" in {problem.field for problem in problems}
    with pytest.raises(SpecError, match=r"release\.order must leave out no level") as refused:
        load_spec(write(release={"order": order}))
    assert refused.value.field == "release.order"


@pytest.mark.parametrize(
    ("order", "levels"),
    [
        (ORDER, "from district, to district, from zone, to zone, mode, hour"),
        (["from", "to", "mode", "hour"], "from district, from zone, to district, to zone, mode, hour"),
        (["mode", "from.district", "to", "from", "hour"], "mode, from district, to district, to zone, from zone, hour"),
    ],
)
def test_a_feature_alone_means_its_levels_that_are_left(write, order, levels) -> None:
    """Each entry with a level is a level of the tree, at its place; a feature's name means all that no entry has refined before."""
    plan = make_plan(load_spec(write(release={"order": order})))
    assert refined(plan) == ["everything", *levels.split(", ")]
    assert [axis.name for axis in plan.tree.axes] == ["from", "to", "mode", "hour"]  # as tables show them
    if order == ORDER:
        assert [level.possible_cells for level in plan.levels] == [1, 2, 4, 8, 16, 32, 96]


def test_levels_below_the_finest_released_one_are_left_out(write) -> None:
    """With `release.finest` an order ends at that level, and an entry below it is refused."""
    cut = {"finest": {"from": "zone", "to": "district"}}
    order = ["from.district", "to.district", "from.zone", "mode", "hour"]
    three = ("district", "zone", "block")
    plan = make_plan(load_spec(write(three, release=cut | {"order": order})))
    assert refined(plan)[1:] == ["from district", "to district", "from zone", "mode", "hour"]
    with pytest.raises(SpecError, match=r"which is district, got to\.zone"):
        load_spec(write(three, release=cut | {"order": [*order, "to.zone"]}))


def test_a_promise_below_the_finest_released_level_is_taken_right_after_it(write) -> None:
    """Records that are distinct by blocks of both ends are so without mode and hour, although no level shows blocks."""
    promise = {"max_records_per_unit": 4, "exact_records_per_unit": True, "distinct": "block"}
    three = ("district", "zone", "block")
    plan = make_plan(load_spec(write(three, release={"finest": {"from": "zone", "to": "zone"}}, privacy=promise)))
    assert plan.promised == (3, 3, 0, 0)
    # a unit has at most 4 records, and a zone of either end at most two blocks
    assert [level.l2_sensitivity_squared for level in plan.levels[1:]] == [32, 32, 32, 32, 32, 32]
    of_zones = make_plan(load_spec(write(privacy=promise | {"distinct": "zone"})))
    assert of_zones.promised == (2, 2, 0, 0)
    assert [level.l2_sensitivity_squared for level in of_zones.levels[1:]] == [32, 32, 16, 8, 8, 8]


@pytest.mark.parametrize(("name", "level"), [("district", 2), ("zone", 4), ("mode", 5), ("hour", 6)])
def test_a_level_is_the_first_at_which_all_its_features_have_reached_it(write, name, level) -> None:
    """Keys that name a level mean the tree level at which every feature that has a level of that name has reached it."""
    exact = (
        make_plan(load_spec(write(privacy={"invariants": [name], "i_accept_unprotected": True}))) if level < 6 else None
    )
    assert exact is None or [of.level for of in exact.levels if of.is_invariant] == list(range(level + 1))
    target = {"target": {"level": name, "max_error": 40, "confidence": 0.95}, "epsilon": None}
    plan = make_plan(load_spec(write(privacy=target)))
    bound = plan.levels[level].bound
    assert bound is not None
    assert bound <= 40 < bound * 1.01


def test_a_list_of_shares_has_one_per_step(write) -> None:
    """`privacy.split` lists a share for each measured step of the order, in that order."""
    shares = [1, 2, 3, 4, 5, 6]
    plan = make_plan(load_spec(write(privacy={"split": shares})))
    assert [level.rho / plan.rho for level in plan.levels[1:]] == pytest.approx([share / 21 for share in shares])
    with pytest.raises(SpecError, match="must list 6 shares, one per measured level, got 4"):
        make_plan(load_spec(write(privacy={"split": shares[:4]})))


@given(depths=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_any_listing_of_all_levels_is_an_order(depths: list[int], data: st.DataObject) -> None:
    """Levels in any order that is coarse to fine per feature have no fault, and are the steps; cut levels drop out of them."""
    levels = {f"f{number}": [f"l{level}" for level in range(depth)] for number, depth in enumerate(depths)}
    steps = data.draw(st.permutations([axis for axis, depth in enumerate(depths) for _ in range(depth)]))
    seen: Counter[int] = Counter()
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

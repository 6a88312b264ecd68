"""What a spec with views must not ask for: each rule has its key, its line, and a message without anything confidential."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forecast.check import FailedCheck, check_answer
from flows.planning.plan import make_plan
from flows.spec.file import faults_of, load_spec
from storage.errors import TrellisError
from tests.support.town import NAMES, TRIPS, Town, mode_of, modes

PLANTED = "777001"  # a count of the confidential table
MODE = {"table": "modes.csv", "of": ["from.zone", "to.zone"]}
WAY = {"table": "ways.csv", "of": ["from.zone", "to.zone"]}
PAIRS = [(one, other) for one in NAMES for other in NAMES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder beside a store in which nothing is ever recorded."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("town")
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        yield folder


@pytest.fixture
def town(folder: Path) -> Town:
    """Return a town, written anew, with one count that must not show."""
    return Town(folder, [*TRIPS, ("A2", "A2", int(PLANTED))])


def problem_of(town: Town, changes: dict[str, Any]) -> tuple[str, str, str]:
    """Return the field, the error and the hint of the only problem of a spec, which `check` and `plan` tell alike, with its line."""
    path = town.spec(**changes)
    answer = check_answer(path)
    assert isinstance(answer, FailedCheck), "nothing is refused"
    told = {problem.field: problem.error for problem in answer.problems}
    assert len(told) == 1, answer.problems
    ((field, error),) = told.items()
    with pytest.raises(TrellisError) as refusal:
        make_plan(load_spec(path))
    assert (refusal.value.field, str(refusal.value)) == (field, error)
    hint = answer.problems[0].hint
    assert hint == refusal.value.hint
    assert PLANTED not in f"{error} {hint}"
    line = int(hint.removeprefix("Line ").partition(".")[0])
    lines = path.read_text().splitlines()
    assert any(part in lines[line - 1] for part in field.split(".")), (field, lines[line - 1])
    assert error.endswith((".", "?"))
    return field, error, hint


def views(*, one: object = None, two: object = None, **keys: Any) -> dict[str, Any]:
    """Return the keys of one or two views, and others."""
    named = {"one": {"from": "zone"} if one is None else one} | ({} if two is None else {"two": two})
    return {"release__views": named, **keys}


def trips(*more: str, **keys: Any) -> dict[str, Any]:
    """Return the keys of a release without derived columns, refined in turns, and others."""
    return {"derived": None, "release__order": ["from", "to", *more], **keys}


INFTDA = {"mechanism": "inftda"}
COUNTRY = {"hierarchy__to": {"table": "country.csv", "levels": ["country", "zone"]}}
EXACT = {
    "privacy__neighbours": "substitution",
    "privacy__invariants": ["district"],
    "privacy__i_accept_unprotected": True,
}
TARGET = {"privacy__epsilon": None, "privacy__target": {"level": "zone", "max_error": 9, "confidence": 0.9}}
ONE, TWO, SPLIT = "release.views.one", "release.views.two", "privacy.split"
ALIKE = "must not repeat another view: it has the cells of one."
LEAVES = "must be coarser than the leaves"
VIEWS_REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"release__views": None, "derived": None}, "release.views", "must be given with mechanism cbdp"),
    ({"release__views": {}}, "release.views", "must not be empty."),
    ({"release__views": "margin"}, "release.views", "margins"),
    # axes, levels and derived columns
    (views(one={"form": "zone"}), ONE, "(from, to, mode), got form. Did you mean from?"),
    (views(one={"from": "zones"}), f"{ONE}.from", "levels district, zone, got zones. Did you mean zone?"),
    (trips(**views(release__finest={"from": "district"})), f"{ONE}.from", "levels district, got zone."),
    (views(one={"mood": "mood"}), ONE, "got mood. Did you mean mode?"),
    (views(one={"mode": "kind"}), f"{ONE}.mode", "must be mode: a derived column has one level."),
    # the leaves, and two views alike, by names or by the codebooks
    (views(one={"from": "zone", "to": "zone"}), ONE, LEAVES),
    (views(one={"from": "zone", "to": "zone", "mode": "mode"}), ONE, LEAVES),
    (
        trips(**views(release__finest={"to": "country"}, **COUNTRY)),
        ONE,
        f"{LEAVES}, which are measured anyway: by the codebooks, each of its cells is one leaf.",
    ),
    (views(two={"from": "zone"}), TWO, ALIKE),
    (
        views(two={"from": "zone", "pair": "pair"}, derived={"pair": {"table": "pairs.csv", "of": ["from.district"]}}),
        TWO,
        ALIKE,
    ),
    (trips(**views(two={"from": "zone", "to": "country"}, **COUNTRY)), TWO, ALIKE),
    (views(one={"mode": "mode"}, two={"way": "way"}, derived={"mode": MODE, "way": WAY}), TWO, ALIKE),
    # what mechanisms do with views
    ({"release__intervals": {"simultaneous": True}}, "release.intervals.simultaneous", "left out with release.views"),
    (INFTDA | {"priority": "false_positives"}, "priority", "must be left out with release.views"),
    (INFTDA | TARGET, "privacy.target", "left out with mechanism inftda: with release.views it states no error bound."),
    (EXACT, "privacy.invariants", "must be left out with mechanism cbdp"),
    (INFTDA | EXACT, "privacy.invariants", "mechanism inftda: with release.views only a public total is met exactly"),
    ({"mechanism": "gaussian"}, "release.views", "must be left out with mechanism gaussian"),
    (
        {"mechanism": "stability_histogram", "release__noisy_counts": None, "privacy__accountant": None},
        "release.views",
        "must be left out with mechanism stability_histogram",
    ),
    (
        trips(**views(one={"to": "zone"}, hierarchy__from={"levels": ["from"]})),
        "hierarchy.from.table",
        "must be given with mechanism cbdp",
    ),
    # weights
    (
        {"privacy__split": {"by_mod": 2}},
        SPLIT,
        "(total, living, working, by_mode, mode_from, pairs, leaves, tree), got by_mod. Did you mean by_mode?",
    ),
    ({"privacy__split": {"by_mode": 0}}, f"{SPLIT}.by_mode", "must be a finite number > 0"),
    ({"privacy__split": {"by_mode": float("inf")}}, f"{SPLIT}.by_mode", "must be a finite number > 0"),
    (
        INFTDA | {"release__views": None, "derived": None, "privacy__split": {"by_mode": 2}},
        SPLIT,
        "must be left out without release.views",
    ),
    ({"privacy__split": {"tree": 2}}, SPLIT, "must call it leaves, got tree"),
    (INFTDA | {"privacy__split": {"leaves": 2}}, SPLIT, "must call it tree, got leaves"),
    ({"privacy__split": [1, 2, 3]}, SPLIT, "must be uniform, {view: weight}"),
    ({"privacy__split": {"geometric": 2}}, SPLIT, "must be uniform, {view: weight}"),
    ({"privacy__neighbours": "substitution", "privacy__split": {"total": 2}}, SPLIT, "must not name total"),
    (
        {"noise": {"law": "laplace"}, "privacy__epsilon": None, "privacy__rho": 1.0},
        "privacy.rho",
        "must be left out with noise.law laplace",
    ),
    ({"release__views": {"leaves": {"from": "zone"}}}, "release.views.leaves", "must have a name"),
]


@pytest.mark.parametrize(("changes", "field", "told"), VIEWS_REFUSED)
def test_what_views_cannot_be_is_refused_by_its_key(town: Town, changes: dict[str, Any], field: str, told: str) -> None:
    """The only problem that is told names the key, the rule and the line; a plan is refused for the same reason."""
    (town.folder / "pairs.csv").write_text("from,pair\nA,x\nB,y\n")
    (town.folder / "country.csv").write_text("country,zone\n" + "".join(f"X,{zone}\n" for zone in NAMES))
    ways = {"walk": "z", "bus": "a", "rail": "m"}
    rows = "".join(f"{a},{b},{ways[mode_of(a, b)]}\n" for a, b in PAIRS)
    (town.folder / "ways.csv").write_text(f"from,to,way\n{rows}")
    found, error, _ = problem_of(town, changes)
    assert found == field
    assert told in error


ALL = "must list all 16 combinations of codes"
BLANK = "column mode has a blank code."
GIVE = "Give every row a code"
CONFIDENTIAL = "from,to,n,mode\n" + "".join(f"{a},{b},1,{mode_of(a, b)}\n" for a, b in PAIRS)
UNKNOWN = "must name released levels as axis.level, got"
DERIVED_REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, modes(PAIRS[1:]), f"{ALL}, and lacks some.", ""),
    ({}, modes([]), ALL, ""),
    ({}, modes([*PAIRS, PAIRS[0]]), "lists a combination twice.", "Keep one row for each combination of from and to"),
    ({}, modes() + "A9,A1,walk\n", "column from has a code that level zone of the codebook does not list.", ""),
    ({}, modes(PAIRS[1:]) + "A1,A1,\n", BLANK, GIVE),
    ({}, modes(PAIRS[1:]) + "A1,A1,  \n", BLANK, GIVE),
    ({}, modes(PAIRS[1:]) + ",A1,walk\n", "column from has a blank code.", GIVE),
    ({}, modes().replace("mode", "kind"), "has no column mode", ""),
    ({}, modes().replace("from", "start"), "has no column from", ""),
    ({"table": "gone.csv"}, modes(), "gone.csv", ""),
    ({"table": "trips.csv"}, modes(), "", ""),  # the confidential table
    ({"table": "../{here}/trips.csv"}, modes(), "", ""),
    ({}, CONFIDENTIAL, "has the columns of the confidential table.", ""),
    ({"of": ["from.zones", "to"]}, modes(), f"{UNKNOWN} from.zones.", ""),
    ({"of": ["from", "tow"]}, modes(), "got tow.", ""),
    ({"of": ["from", "mode"]}, modes(), f"{UNKNOWN} mode.", ""),
    ({"of": ["from.zone", "from.district"]}, modes(), "must name each axis once.", ""),
    ({"of": []}, modes(), "must not be empty.", ""),
]


@pytest.mark.parametrize(("changes", "table", "told", "step"), DERIVED_REFUSED)
def test_what_derived_columns_cannot_be_is_refused_by_its_key(
    town: Town, changes: dict[str, Any], table: str, told: str, step: str
) -> None:
    """A table that is no public function of the axes, or is the confidential one, is refused before anything is read of the records."""
    (town.folder / "modes.csv").write_text(table)
    derived = MODE | changes
    derived["table"] = str(derived["table"]).replace("{here}", town.folder.name)
    field, error, hint = problem_of(town, {"derived": {"mode": derived}})
    assert field == f"derived.mode.{'of' if 'of' in changes else 'table'}"
    assert told in error
    assert step in hint


TAKEN = ["leaves", "tree", "margins", "uniform", "minimise", "finest", "geometric", "level_3", "a/b", "by mode", "é"]
NOT_ITS_OWN = [
    "from",
    "TO",
    "from_zone",
    "a/b",
    "a b",
    "count",
    "Low",
    "HIGH",
    "simultaneous_low",
    "signal",
    "Variance",
]


@pytest.mark.parametrize("name", [*TAKEN, "x" * 65])
def test_a_view_has_a_name_that_means_nothing_else(town: Town, name: str) -> None:
    """No word of the spec is the name of a view, and a file can have it."""
    (fault,) = faults_of(town.spec(release__views={name: {"from": "zone"}}).read_text())
    assert fault.field == f"release.views.{name}"
    assert "must have a name" in str(fault)


@pytest.mark.parametrize("name", [*NOT_ITS_OWN, "noisy_count", "age_1", "Mode"])
def test_a_derived_column_has_a_name_of_its_own(town: Town, name: str) -> None:
    """No axis, no column of a published table and no level that halving makes has its name in any case; a file can have it."""
    ages = {"input__features": ["from", "to", "age"], "hierarchy__age": {"ordered": 10}}
    derived = {name: MODE} if name != "Mode" else {"mode": MODE, name: WAY}
    path = town.spec(**trips("age", **views(**ages)) | {"derived": derived})
    faults = [fault for fault in faults_of(path.read_text()) if "must have a name of its own" in str(fault)]
    assert [fault.field for fault in faults] == [f"derived.{name}"]


def test_a_spec_may_be_wrong_in_several_ways_at_once(town: Town) -> None:
    """`check` tells all faults of views, derived columns and weights together, each with its line."""
    path = town.spec(
        derived={"mode": {"table": "gone.csv", "of": ["from.zones", "to"]}},
        release__views={"leaves": {"from": "zone"}, "one": {"from": "zones"}},
        privacy__split={"two": 1},
    )
    problems, lines = check_answer(path).problems, path.read_text().splitlines()
    faults = {"derived.mode.of", "derived.mode.table", "release.views.leaves", "release.views.one.from", SPLIT}
    assert {problem.field for problem in problems} == faults
    for problem in problems:
        line = lines[int(problem.hint.removeprefix("Line ").partition(".")[0]) - 1]
        assert any(part in line for part in problem.field.split("."))


def test_more_leaves_than_can_be_settled_together_are_refused(town: Town) -> None:
    """More than ten million leaves are refused with views, by the key that could lessen them."""
    many = {"values": 4000}
    path = town.spec(**trips(**views(one={"from": "from"}, hierarchy={"from": many, "to": many})))
    with pytest.raises(TrellisError, match="must leave at most 10,000,000 leaves") as refusal:
        make_plan(load_spec(path))
    assert refusal.value.field == "input.features"


def test_margins_have_the_names_of_their_columns(town: Town) -> None:
    """`margins` stands for every level of every axis, in the order of the axes."""
    plan = town.plan(release__views="margins")
    names = ["from_district", "from_zone", "to_district", "to_zone"]
    assert [terms.name for terms in plan.named_views] == names
    assert [terms.number for terms in plan.named_views] == [1, 5, 6, 7]
    assert yaml.safe_load((town.folder / "spec.yaml").read_text())["release"]["views"] == "margins"

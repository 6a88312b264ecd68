"""What a spec with views must not ask for: each rule has its key, its line, and a message without anything confidential."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forecast.check import FailedCheck, check_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import TrellisError
from tests.support.town import NAMES, TRIPS, Town, mode_of, modes

PLANTED = "777001"  # a count of the confidential table
MODE = {"table": "modes.csv", "of": ["from.zone", "to.zone"]}
ONE = {"one": {"from": "zone"}}
PAIRS = [(one, other) for one in NAMES for other in NAMES]
TREE = "gaussian", "stability_histogram"


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """Return a town with a store of its own, and one count that must not show."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return Town(tmp_path, [*TRIPS, ("A2", "A2", int(PLANTED))])


def problem_of(town: Town, changes: dict[str, Any]) -> tuple[str, str]:
    """Return the field and the error of the only problem of a spec, which `check` and `plan` tell alike, with its line."""
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
    return field, error


VIEWS_REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no views": ({"release__views": None, "derived": None}, "release.views", "must be given with mechanism cbdp"),
    "an unknown axis": (
        {"release__views": {"one": {"form": "zone"}}},
        "release.views.one",
        "must name axes or derived columns (from, to, mode), got form. Did you mean from?",
    ),
    "an unknown level": (
        {"release__views": {"one": {"from": "zones"}}},
        "release.views.one.from",
        "must be one of the released levels district, zone, got zones. Did you mean zone?",
    ),
    "a level below the finest released one": (
        {
            "release__finest": {"from": "district"},
            "release__order": ["from", "to"],
            "derived": None,
            "release__views": ONE,
        },
        "release.views.one.from",
        "must be one of the released levels district, got zone.",
    ),
    "an unknown derived column": (
        {"release__views": {"one": {"mood": "mood"}}},
        "release.views.one",
        "got mood. Did you mean mode?",
    ),
    "a level of a derived column": (
        {"release__views": {"one": {"mode": "kind"}}},
        "release.views.one.mode",
        "must be mode: a derived column has one level.",
    ),
    "the leaves": (
        {"release__views": {"one": {"from": "zone", "to": "zone"}}},
        "release.views.one",
        "must be coarser than the leaves",
    ),
    "the leaves with a derived column": (
        {"release__views": {"one": {"from": "zone", "to": "zone", "mode": "mode"}}},
        "release.views.one",
        "must be coarser than the leaves",
    ),
    "two views alike": (
        {"release__views": ONE | {"two": {"from": "zone"}}},
        "release.views.two",
        "must not repeat another view: it has the cells of one.",
    ),
    "two views alike by a derived column": (
        {
            "derived": {"pair": {"table": "pairs.csv", "of": ["from.district"]}},
            "release__views": ONE | {"two": {"from": "zone", "pair": "pair"}},
        },
        "release.views.two",
        "must not repeat another view: it has the cells of one.",
    ),
    "two views alike by the codebooks": (
        {
            "hierarchy__to": {"table": "country.csv", "levels": ["country", "zone"]},
            "derived": None,
            "release__order": ["from", "to"],
            "release__views": ONE | {"two": {"from": "zone", "to": "country"}},
        },
        "release.views.two",
        "must not repeat another view: it has the cells of one.",
    ),
    "two views alike by their derived columns": (
        {
            "derived": {
                "mode": MODE,
                "way": {"table": "ways.csv", "of": ["from.zone", "to.zone"]},
            },
            "release__views": {"one": {"mode": "mode"}, "two": {"way": "way"}},
        },
        "release.views.two",
        "must not repeat another view: it has the cells of one.",
    ),
    "the leaves by the codebooks": (
        {
            "hierarchy__to": {"table": "country.csv", "levels": ["country", "zone"]},
            "derived": None,
            "release__finest": {"to": "country"},
            "release__order": ["from", "to"],
            "release__views": ONE,
        },
        "release.views.one",
        "must be coarser than the leaves, which are measured anyway: by the codebooks, each of its cells is one leaf.",
    ),
    "an empty section": ({"release__views": {}}, "release.views", "must not be empty."),
    "a misspelt word": ({"release__views": "margin"}, "release.views", "margins"),
    "simultaneous intervals": (
        {"release__intervals": {"simultaneous": True}},
        "release.intervals.simultaneous",
        "must be left out with release.views",
    ),
    "a priority": (
        {"mechanism": "inftda", "priority": "false_positives"},
        "priority",
        "must be left out with release.views",
    ),
    "a target": (
        {
            "mechanism": "inftda",
            "privacy__epsilon": None,
            "privacy__target": {"level": "zone", "max_error": 9, "confidence": 0.9},
        },
        "privacy.target",
        "must be left out with mechanism inftda: with release.views it states no error bound.",
    ),
    "invariants": (
        {
            "privacy__neighbours": "substitution",
            "privacy__invariants": ["district"],
            "privacy__i_accept_unprotected": True,
        },
        "privacy.invariants",
        "must be left out with mechanism cbdp",
    ),
    "invariants with a tree": (
        {
            "mechanism": "inftda",
            "privacy__neighbours": "substitution",
            "privacy__invariants": ["district"],
            "privacy__i_accept_unprotected": True,
        },
        "privacy.invariants",
        "must be left out with mechanism inftda: with release.views only a public total is met exactly",
    ),
    "gaussian": ({"mechanism": "gaussian"}, "release.views", "must be left out with mechanism gaussian"),
    "stability_histogram": (
        {"mechanism": "stability_histogram", "release__noisy_counts": None, "privacy__accountant": None},
        "release.views",
        "must be left out with mechanism stability_histogram",
    ),
    "an axis without a codebook": (
        {
            "hierarchy__from": {"levels": ["from"]},
            "release__order": ["from", "to"],
            "derived": None,
            "release__views": {"one": {"to": "zone"}},
        },
        "hierarchy.from.table",
        "must be given with mechanism cbdp",
    ),
    "a weight of an unknown view": (
        {"privacy__split": {"by_mod": 2}},
        "privacy.split",
        "(total, living, working, by_mode, mode_from, pairs, leaves, tree), got by_mod. Did you mean by_mode?",
    ),
    "a weight of 0": ({"privacy__split": {"by_mode": 0}}, "privacy.split.by_mode", "must be a finite number > 0"),
    "a weight without end": (
        {"privacy__split": {"by_mode": float("inf")}},
        "privacy.split.by_mode",
        "must be a finite number > 0",
    ),
    "weights without views": (
        {"mechanism": "inftda", "release__views": None, "derived": None, "privacy__split": {"by_mode": 2}},
        "privacy.split",
        "must be left out without release.views",
    ),
    "tree with cbdp": ({"privacy__split": {"tree": 2}}, "privacy.split", "must call it leaves, got tree"),
    "leaves with a tree": (
        {"mechanism": "inftda", "privacy__split": {"leaves": 2}},
        "privacy.split",
        "must call it tree, got leaves",
    ),
    "shares in a list": ({"privacy__split": [1, 2, 3]}, "privacy.split", "must be uniform, {view: weight}"),
    "a ratio": ({"privacy__split": {"geometric": 2}}, "privacy.split", "must be uniform, {view: weight}"),
    "the weight of a public total": (
        {"privacy__neighbours": "substitution", "privacy__split": {"total": 2}},
        "privacy.split",
        "must not name total",
    ),
    "rho with Laplace noise": (
        {"noise": {"law": "laplace"}, "privacy__epsilon": None, "privacy__rho": 1.0},
        "privacy.rho",
        "must be left out with noise.law laplace",
    ),
}
VIEWS_REFUSED |= {
    f"a view named {name}": ({"release__views": {name: {"from": "zone"}}}, f"release.views.{name}", "must have a name")
    for name in (
        "leaves",
        "tree",
        "margins",
        "uniform",
        "minimise",
        "finest",
        "geometric",
        "level_3",
        "a/b",
        "by mode",
        "é",
        "x" * 65,
    )
}


@pytest.mark.parametrize("case", VIEWS_REFUSED)
def test_what_views_cannot_be_is_refused_by_its_key(town: Town, case: str) -> None:
    """The only problem that is told names the key, the rule and the line; a plan is refused for the same reason."""
    changes, field, told = VIEWS_REFUSED[case]
    (town.folder / "pairs.csv").write_text("from,pair\nA,x\nB,y\n")
    (town.folder / "country.csv").write_text("country,zone\n" + "".join(f"X,{zone}\n" for zone in NAMES))
    ways = {"walk": "z", "bus": "a", "rail": "m"}
    (town.folder / "ways.csv").write_text(
        "from,to,way\n" + "".join(f"{a},{b},{ways[mode_of(a, b)]}\n" for a, b in PAIRS)
    )
    found, error = problem_of(town, changes)
    assert found == field
    assert told in error


DERIVED_REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a combination too few": (
        {},
        modes(PAIRS[1:]),
        "derived.mode.table",
        "must list all 16 combinations of codes, and lacks some.",
    ),
    "no combination": ({}, modes([]), "derived.mode.table", "must list all 16 combinations"),
    "a combination twice": ({}, modes([*PAIRS, PAIRS[0]]), "derived.mode.table", "lists a combination twice."),
    "an unknown code": (
        {},
        modes() + "A9,A1,walk\n",
        "derived.mode.table",
        "column from has a code that level zone of the codebook does not list.",
    ),
    "a blank code": ({}, modes(PAIRS[1:]) + "A1,A1,\n", "derived.mode.table", "column mode has a blank code."),
    "a code of spaces": ({}, modes(PAIRS[1:]) + "A1,A1,  \n", "derived.mode.table", "column mode has a blank code."),
    "a blank code of an axis": (
        {},
        modes(PAIRS[1:]) + ",A1,walk\n",
        "derived.mode.table",
        "column from has a blank code.",
    ),
    "no column of its own": ({}, modes().replace("mode", "kind"), "derived.mode.table", "has no column mode"),
    "no column of an axis": ({}, modes().replace("from", "start"), "derived.mode.table", "has no column from"),
    "no table": ({"table": "gone.csv"}, modes(), "derived.mode.table", "gone.csv"),
    "the confidential table": ({"table": "trips.csv"}, modes(), "derived.mode.table", ""),
    "the confidential table by another path": ({"table": "../{here}/trips.csv"}, modes(), "derived.mode.table", ""),
    "the columns of the confidential table": (
        {},
        "from,to,n,mode\n" + "".join(f"{a},{b},1,{mode_of(a, b)}\n" for a, b in PAIRS),
        "derived.mode.table",
        "has the columns of the confidential table.",
    ),
    "an unknown level": (
        {"of": ["from.zones", "to"]},
        modes(),
        "derived.mode.of",
        "must name released levels as axis.level, got from.zones.",
    ),
    "an unknown axis": ({"of": ["from", "tow"]}, modes(), "derived.mode.of", "got tow."),
    "a derived column": (
        {"of": ["from", "mode"]},
        modes(),
        "derived.mode.of",
        "must name released levels as axis.level, got mode.",
    ),
    "an axis twice": ({"of": ["from.zone", "from.district"]}, modes(), "derived.mode.of", "must name each axis once."),
    "no axis": ({"of": []}, modes(), "derived.mode.of", "must not be empty."),
}


def test_a_derived_table_that_is_refused_says_what_to_do(town: Town) -> None:
    """A combination that is listed twice and a blank code come with a next step."""
    for table, step in (
        (modes([*PAIRS, PAIRS[0]]), "Keep one row for each combination of from and to"),
        (modes(PAIRS[1:]) + "A1,A1,\n", "Give every row a code"),
    ):
        (town.folder / "modes.csv").write_text(table)
        answer = check_answer(town.spec(derived={"mode": MODE}))
        assert isinstance(answer, FailedCheck)
        assert [step in problem.hint for problem in answer.problems] == [True]


@pytest.mark.parametrize("case", DERIVED_REFUSED)
def test_what_derived_columns_cannot_be_is_refused_by_its_key(town: Town, case: str) -> None:
    """A table that is no public function of the axes, or is the confidential one, is refused before anything is read of the records."""
    changes, table, field, told = DERIVED_REFUSED[case]
    changes = {
        key: value.replace("{here}", town.folder.name) if isinstance(value, str) else value
        for key, value in changes.items()
    }
    (town.folder / "modes.csv").write_text(table)
    found, error = problem_of(town, {"derived": {"mode": MODE | changes}})
    assert found == field
    assert told in error


@pytest.mark.parametrize(
    "name",
    [
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
        "noisy_count",
        "Variance",
    ],
)
def test_a_derived_column_has_a_name_of_its_own(town: Town, name: str) -> None:
    """No axis and no column of a published table has its name, whatever its case, and it can be the name of a file."""
    path = town.spec(derived={name: MODE}, release__views=ONE)
    answer = check_answer(path)
    (problem,) = [problem for problem in answer.problems if "must have a name of its own" in problem.error]
    assert problem.field == f"derived.{name}"
    assert f"{name}:" in path.read_text().splitlines()[int(problem.hint.removeprefix("Line ").partition(".")[0]) - 1]


def test_derived_columns_differ_by_more_than_case(town: Town) -> None:
    """Columns of tables, and files on some disks, are the same in upper and lower case, so a second such name is refused."""
    (town.folder / "ways.csv").write_text(modes().replace("mode", "Mode"))
    way = {"table": "ways.csv", "of": ["from.zone", "to.zone"]}
    field, error = problem_of(town, {"derived": {"mode": MODE, "Mode": way}, "release__views": ONE})
    assert field == "derived.Mode"
    assert "must have a name of its own" in error


def test_a_derived_column_has_no_name_of_a_made_level(town: Town) -> None:
    """The levels that halving makes of an ordered axis are columns of codes under their own names."""
    keys = {
        "input__features": ["from", "age"],
        "hierarchy__age": {"ordered": 10},
        "hierarchy__to": None,
        "release__order": ["from", "age"],
        "release__views": ONE,
        "derived": {"age_1": {"table": "modes.csv", "of": ["from.zone"]}},
    }
    answer = check_answer(town.spec(**keys))
    assert isinstance(answer, FailedCheck)
    assert any("derived.age_1 must have a name of its own" in problem.error for problem in answer.problems)


def test_a_spec_may_be_wrong_in_several_ways_at_once(town: Town) -> None:
    """`check` tells all faults of views, derived columns and weights together, each with its line."""
    path = town.spec(
        derived={"mode": {"table": "gone.csv", "of": ["from.zones", "to"]}},
        release__views={"leaves": {"from": "zone"}, "one": {"from": "zones"}},
        privacy__split={"two": 1},
    )
    answer = check_answer(path)
    lines = path.read_text().splitlines()
    expected = {
        "derived.mode.of",
        "derived.mode.table",
        "release.views.leaves",
        "release.views.one.from",
        "privacy.split",
    }
    assert {problem.field for problem in answer.problems} == expected
    for problem in answer.problems:
        line = lines[int(problem.hint.removeprefix("Line ").partition(".")[0]) - 1]
        assert any(part in line for part in problem.field.split("."))


def test_more_leaves_than_can_be_settled_together_are_refused(town: Town) -> None:
    """More than ten million leaves are refused with views, by the key that could lessen them."""
    many = {"values": 4000}
    keys = {"hierarchy": {"from": many, "to": many}, "derived": None, "release__order": ["from", "to"]}
    path = town.spec(**keys, release__views={"one": {"from": "from"}})
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

"""Which cells of a tree a plan measures: what the spec asks for, what follows from public sizes, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import flows.planning.compatibility
from flows.cli.main import main
from flows.forecast.answer import plan_answer
from flows.forecast.check import check_answer
from flows.mechanisms import MECHANISMS, measuring
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from storage.errors import SpecError
from tasks.tree.order import Tree
from tasks.validate.size import expected_cells
from tests.support.universe import universe_of

BINARY = universe_of([[(a, b, c) for a in "12" for b in "12" for c in "12"]], [0, 0, 0]).tree
FLAT = universe_of([[(a,) for a in "12345678"]], [0]).tree
OPEN = replace(MECHANISMS["inftda_reconciled"], measure="auto")


@pytest.fixture(autouse=True)
def trellis_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a store."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))


def spec_at(folder: Path, codes: tuple[int, int] = (8, 8), **keys: Any) -> Path:
    """Write a spec of two ordered axes with so many codes each, which are refined in turns."""
    path = folder / "spec.yaml"
    (folder / "table.csv").write_text("a,b\n1,1\n")
    of = {
        "name": "measured",
        "dataset": "people",
        "input": {"table": "table.csv", "features": ["a", "b"]},
        "hierarchy": {name: {"ordered": of} for name, of in zip("ab", codes, strict=True)},
        "release": {"order": ["a", "b"]},
        "privacy": {
            "unit": "one person",
            "neighbours": "add_remove",
            "max_records_per_unit": 1,
            "epsilon": 1.0,
            "delta": 1e-8,
            "accountant": "zcdp",
        },
        "budget": {"epsilon": 5.0, "delta": 1e-6},
        **keys,
    }
    path.write_text(yaml.safe_dump(of))
    return path


def plan_of(folder: Path, codes: tuple[int, int] = (8, 8), **keys: Any) -> Plan:
    """Return the plan of such a spec."""
    return make_plan(load_spec(spec_at(folder, codes, **keys)))


PLAIN = {"unit": "one person", "neighbours": "add_remove", "max_records_per_unit": 1, "epsilon": 1.0, "delta": 1e-8}
VIEWS = {"order": ["a", "b"], "views": "margins"}
TABLE = {"noise": {"sampler": "table"}}


@pytest.mark.parametrize(
    ("tree", "most", "chosen"),
    [
        *(
            (BINARY, most, of)
            for most, of in [(8, "all"), (7, "above"), (4, "above"), (3, "survivors"), (1, "survivors")]
        ),
        *((FLAT, most, of) for most, of in [(8, "all"), (7, "survivors")]),  # there is no level above to measure
    ],
)
def test_the_rule_is_by_the_cells_of_the_two_finest_levels(tree: Tree, most: int, chosen: str) -> None:
    """All cells are measured where the finest level has few enough, all above it where the level above has, else survivors'."""
    assert measuring(OPEN, tree, most).measure == chosen
    assert measuring(MECHANISMS["inftda_reconciled"], tree, most).measure == "survivors"


@pytest.mark.parametrize(
    ("codes", "keys", "asked", "chosen"),
    [
        ((1000, 1000), {"measure": "auto"}, "auto", "all"),
        ((3000, 3000), {"measure": "auto"} | TABLE, "auto", "all"),
        ((3000, 3000), {"measure": "auto"}, "auto", "survivors"),
        ((1010, 1010), {"measure": "auto"}, "auto", "above"),
        ((3000, 3000), {"measure": "all"}, "all", "all"),
        ((4000, 4000), {"measure": "auto"} | TABLE, "auto", "above"),
        ((4000, 4000), {"measure": "all"}, "all", "above"),
        ((7000, 7000), {"measure": "auto"} | TABLE, "auto", "survivors"),
        ((3000, 3000), {"measure": "survivors"} | TABLE, "survivors", "survivors"),
        ((8, 8), {}, "survivors", "survivors"),
        ((8, 8), {"mechanism": "inftda_lenient", "measure": "auto"}, "auto", "all"),
    ],
)
def test_a_plan_states_what_is_measured(
    codes: tuple[int, int], keys: dict[str, Any], asked: str, chosen: str, tmp_path: Path
) -> None:
    """Ten million cells of a level are measured whatever survives, or one million where OpenDP draws them unasked."""
    plan = plan_of(tmp_path, codes, **keys)
    stated = plan_answer(plan).measure
    assert stated is not None
    assert (stated.asked, stated.chosen, plan.terms.measure) == (asked, chosen, chosen)
    cells = [level.possible_cells or 0 for level in plan.levels]
    assert stated.measured_cells == (sum(cells) if chosen == "all" else None)
    if asked == "survivors":
        assert "at most" not in stated.rule
    else:
        limit = 1_000_000 if asked == "auto" and "noise" not in keys else 10_000_000
        assert f"{asked} measures every cell of a level of at most {limit:,}" in stated.rule


@pytest.mark.parametrize(
    ("mechanism", "measure"),
    [
        *((mechanism, "auto") for mechanism in ("inftda", "gaussian", "cascade", "stability_histogram")),
        ("inftda", "survivors"),  # what it does by nature
        ("cascade", "all"),
    ],
)
def test_a_mechanism_without_a_choice_states_none(mechanism: str, measure: str, tmp_path: Path) -> None:
    """Where no second pass reads other cells, the plan has nothing to state, and the terms are those of before."""
    plan = plan_of(tmp_path, mechanism=mechanism, measure=measure, privacy=PLAIN)
    assert plan_answer(plan).measure is None
    assert plan.terms.measure == "survivors"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"mechanism": "inftda", "measure": "all"}, "left out with mechanism inftda, which has no second pass"),
        ({"mechanism": "tda_l2", "measure": "all"}, "left out with mechanism tda_l2, which has no second pass"),
        ({"mechanism": "gaussian", "measure": "survivors"}, "left out with mechanism gaussian, which always"),
        ({"mechanism": "cascade", "measure": "survivors"}, "left out with mechanism cascade, which always"),
        ({"mechanism": "stability_histogram", "measure": "all", "privacy": PLAIN}, "left out with mechanism stabil"),
        ({"measure": "survivors", "release": VIEWS}, "all or left out with release.views"),
        ({"measure": "most"}, "all, survivors or auto"),
    ],
)
def test_cells_that_a_mechanism_cannot_choose_are_refused(keys: dict[str, Any], told: str, tmp_path: Path) -> None:
    """What is asked for and would not happen is an error of the key `measure`, and a check lists it."""
    path = spec_at(tmp_path, **keys)
    with pytest.raises(SpecError, match=f"measure must be {told}") as refused:
        make_plan(load_spec(path))
    assert refused.value.field == "measure"
    assert any(f"measure must be {told}" in problem.error for problem in check_answer(path).problems)


def test_all_cells_may_be_asked_for_as_far_as_there_is_room(tmp_path: Path) -> None:
    """Settled with views all are measured anyway; beside a large tree all above the finest level; too many are refused."""
    plan = plan_of(tmp_path, measure="all", release=VIEWS)
    assert plan.scheme.is_together
    assert plan_answer(plan).measure is None
    plan = plan_of(tmp_path, (4000, 4000), measure="all", release=VIEWS)
    assert plan.mechanism.second_pass is not None
    assert plan.terms.measure == "above"
    with pytest.raises(SpecError, match="not be all where the level above the finest has more than 10,000,000"):
        plan_of(tmp_path, (7000, 7000), measure="all")


def test_what_is_measured_costs_disk_and_no_budget(tmp_path: Path) -> None:
    """Every level has the same σ, ρ and sensitivity, whichever of its cells are measured; the forecast of the disk has all of them."""
    keys = {"expected_total": 1000, "keep_noisy_counts": True}
    plans = [plan_of(tmp_path, (500, 500), measure=measure, **keys) for measure in ("all", "survivors")]
    assert plans[0].levels == plans[1].levels
    assert plans[0].spending == plans[1].spending
    disks = [plan_answer(plan).disk for plan in plans]
    assert disks[0] is not None
    assert disks[1] is not None
    assert disks[0].shards > 2 * disks[1].shards


def test_the_forecast_counts_all_cells() -> None:
    """Down to the complete level the measured cells are the possible ones; below it, and of rows, they are as elsewhere."""
    possible, sigmas = [1, 10, 100, 1000], [0.0, 5.0, 5.0, 5.0]
    for total in (None, 40):
        plain = expected_cells(possible, sigmas, total)
        assert [of.measured for of in expected_cells(possible, sigmas, total, 3)] == possible
        above = expected_cells(possible, sigmas, total, 2)
        assert [of.measured for of in above] == [*possible[:3], plain[3].measured]
        assert [of.nonzero for of in above] == [of.nonzero for of in plain]


def test_the_command_line_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan has the rule in one line, and `--json` has its parts."""

    def said(*options: str) -> str:
        assert main(["plan", path, *options]) == 0
        return " ".join(capsys.readouterr().out.split())

    path = str(spec_at(tmp_path, measure="auto"))
    assert "measure: auto: every cell of every level is measured, 127 in all: level 6 has 64 cells, and auto" in said()
    assert json.loads(said("--json"))["measure"].keys() == {"asked", "chosen", "measured_cells", "rule"}
    monkeypatch.setattr(flows.planning.compatibility, "_MOST_BY_OPENDP", 40)
    assert "every cell of levels 0 to 5 is measured, and at level 6 the children of what survives" in said()

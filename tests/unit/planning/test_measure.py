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
TABLE = {"noise": {"sampler": "table"}}


@pytest.mark.parametrize(
    ("most", "chosen"), [(8, "all"), (7, "above"), (4, "above"), (3, "survivors"), (1, "survivors")]
)
def test_the_rule_is_by_the_cells_of_the_two_finest_levels(most: int, chosen: str) -> None:
    """All cells are measured where the finest level has few enough, all above it where the level above has, else survivors'."""
    assert measuring(OPEN, BINARY, most).measure == chosen
    assert measuring(MECHANISMS["inftda_reconciled"], BINARY, most).measure == "survivors"


def test_a_single_level_is_measured_whole_in_any_case() -> None:
    """Where one level is all there is, its cells are the root's children, and there is no level above it to measure."""
    assert measuring(OPEN, FLAT, 8).measure == "all"
    assert measuring(OPEN, FLAT, 7).measure == "survivors"


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


@pytest.mark.parametrize("mechanism", ["inftda", "gaussian", "cascade", "stability_histogram"])
def test_a_mechanism_without_a_choice_states_none(mechanism: str, tmp_path: Path) -> None:
    """Where no second pass reads other cells, the plan has nothing to state, and the terms are those of before."""
    keys = {"privacy": PLAIN}
    plan = plan_of(tmp_path, mechanism=mechanism, measure="auto", **keys)
    assert plan_answer(plan).measure is None
    assert plan.terms.measure == "survivors"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"mechanism": "inftda", "measure": "all"},
            "measure must be left out with mechanism inftda, which has no second pass",
        ),
        (
            {"mechanism": "tda_l2", "measure": "all"},
            "measure must be left out with mechanism tda_l2, which has no second pass",
        ),
        (
            {"mechanism": "gaussian", "measure": "survivors"},
            "measure must be left out with mechanism gaussian, which always",
        ),
        (
            {"mechanism": "cascade", "measure": "survivors"},
            "measure must be left out with mechanism cascade, which always",
        ),
        (
            {"mechanism": "stability_histogram", "measure": "all", "privacy": PLAIN},
            "measure must be left out with mechanism stability_histogram",
        ),
        (
            {"measure": "survivors", "release": {"order": ["a", "b"], "views": "margins"}},
            "measure must be all or left out with release.views",
        ),
        ({"measure": "most"}, "measure must be one of"),
    ],
)
def test_cells_that_a_mechanism_cannot_choose_are_refused(keys: dict[str, Any], told: str, tmp_path: Path) -> None:
    """What is asked for and would not happen is an error of the key `measure`, and a check lists it."""
    path = spec_at(tmp_path, **keys)
    with pytest.raises(SpecError) as refused:
        make_plan(load_spec(path))
    assert refused.value.field == "measure" or told.startswith("measure must be one of")
    found = check_answer(path)
    assert not found.ok
    if not told.startswith("measure must be one of"):
        assert told in str(refused.value)
        assert any(told in problem.error for problem in found.problems)


@pytest.mark.parametrize(
    "keys", [{"mechanism": "inftda", "measure": "survivors"}, {"mechanism": "cascade", "measure": "all"}]
)
def test_what_a_mechanism_does_by_nature_may_be_asked_for(keys: dict[str, Any], tmp_path: Path) -> None:
    """A spec may say what happens anyway."""
    keys["privacy"] = PLAIN
    plan_of(tmp_path, **keys)


def test_every_cell_may_be_asked_for_with_views(tmp_path: Path) -> None:
    """Settled together with views, every cell is measured in any case."""
    plan = plan_of(tmp_path, measure="all", release={"order": ["a", "b"], "views": "margins"})
    assert plan.scheme.is_together
    assert plan_answer(plan).measure is None


def test_too_many_cells_are_refused_where_all_are_asked_for(tmp_path: Path) -> None:
    """Where the level above the finest has more than ten million cells too, `all` is refused, and the size is told."""
    with pytest.raises(
        SpecError, match="measure must not be all where the level above the finest has more than 10,000,000"
    ):
        plan_of(tmp_path, (7000, 7000), measure="all")


def test_beside_a_large_tree_with_views_all_above_the_finest_level_is_measured(tmp_path: Path) -> None:
    """Views that are calibrated leave the tree its second pass, and with it the choice of cells."""
    plan = plan_of(tmp_path, (4000, 4000), measure="all", release={"order": ["a", "b"], "views": "margins"})
    assert plan.mechanism.second_pass is not None
    assert plan.terms.measure == "above"


def test_the_cost_does_not_depend_on_what_is_measured(tmp_path: Path) -> None:
    """Every level has the same σ, ρ and sensitivity, whichever of its cells are measured."""
    plans = [plan_of(tmp_path, measure=measure) for measure in ("all", "survivors")]
    assert plans[0].levels == plans[1].levels
    assert plans[0].spending == plans[1].spending


def test_the_forecast_counts_all_cells() -> None:
    """Down to the complete level the measured cells are the possible ones; below it, and of rows, they are as elsewhere."""
    possible, sigmas = [1, 10, 100, 1000], [0.0, 5.0, 5.0, 5.0]
    for total in (None, 40):
        plain = expected_cells(possible, sigmas, total)
        assert [of.measured for of in expected_cells(possible, sigmas, total, 3)] == possible
        above = expected_cells(possible, sigmas, total, 2)
        assert [of.measured for of in above] == [*possible[:3], plain[3].measured]
        assert [of.nonzero for of in above] == [of.nonzero for of in plain]


def test_more_cells_take_more_of_the_disk(tmp_path: Path) -> None:
    """The noisy counts of all cells are counted in the forecast of the disk."""
    keys = {"expected_total": 1000, "keep_noisy_counts": True}
    shards = []
    for measure in ("all", "survivors"):
        disk = plan_answer(plan_of(tmp_path, (500, 500), measure=measure, **keys)).disk
        assert disk is not None
        shards.append(disk.shards)
    assert shards[0] > 2 * shards[1]


def test_the_command_line_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan has the rule in one line, and `--json` has its parts."""
    path = str(spec_at(tmp_path, measure="auto"))
    assert main(["plan", path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "measure: auto: every cell of every level is measured, 127 in all: level 6 has 64 cells, and auto measures"
        in said
    )
    assert main(["plan", path, "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)["measure"]
    assert stated.keys() == {"asked", "chosen", "measured_cells", "rule"}
    monkeypatch.setattr(flows.planning.compatibility, "_MOST_BY_OPENDP", 40)
    assert main(["plan", path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "every cell of levels 0 to 5 is measured, and at level 6 the children of what survives" in said

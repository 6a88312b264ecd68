"""docs/how-to/new-mechanism.md and utility.md: the functions and lines that they show are a mechanism and a measure."""

import re
from dataclasses import replace
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given

import tasks.mechanisms
import tasks.validate.utility
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from flows.trials.in_memory import public_table
from storage.errors import InputError
from tasks.folder.verify.folder import verify
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tasks.validate.utility import UTILITIES
from tests.support.cases import case_csv
from tests.support.comparisons import answer_of
from tests.support.making import CUT, make, quick
from tests.support.passes import check_consistent, counts_of, noise_of
from tests.support.problems import problems, solve
from tests.support.scales import try_scales
from tests.support.spec import SPEC, spec_in
from tests.support.user import REPOSITORY

PAGE, UTILITY = ((REPOSITORY / f"docs/how-to/{of}.md").read_text("utf-8") for of in ("new-mechanism", "utility"))
FUNCTION, LINE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MODULE = ModuleType("prorated")
exec(FUNCTION, MODULE.__dict__)  # noqa: S102 (the page's own code, as is the line, and the finish that it would add)
THERE = vars(tasks.mechanisms) | {"prorated": MODULE.prorated}
RECIPE = eval(LINE, THERE)  # noqa: S307
FINISH = eval(re.findall(r"`finish=(UpDown.*?)`", PAGE)[0], THERE)  # noqa: S307


@given(parents=problems)
def test_the_function_keeps_the_laws_of_optimisers(parents):
    """Counts are whole, not negative, add up, are those of each parent alone, and stay as they are where there is no noise."""
    solved = solve(MODULE.prorated, parents)
    assert [sum(counts) for counts in solved] == [total for _, total in parents]
    assert min(min(counts) for counts in solved) >= 0
    assert solved == [solve(MODULE.prorated, [parent])[0] for parent in parents]
    assert solve(MODULE.prorated, [(counts, sum(counts)) for counts in solved]) == solved
    shared = solve(MODULE.prorated, [([30, 10, -7], 8), ([-1, -5], 6), ([2**20, 3 * 2**20], 2**40)])
    assert shared == [[6, 2, 0], [3, 3], [2**38, 3 * 2**38]]  # in proportion; equal where nothing is above zero


def test_the_line_is_released_and_verified_and_is_another_one_with_a_finish(tmp_path, monkeypatch, universe_of):
    """The plain driver releases with it, cut into branches; in memory, with and without a finish, by the same noise, counts are consistent."""
    monkeypatch.setitem(MECHANISMS, RECIPE.name, RECIPE)
    made = make(tmp_path, quick(case_csv), discrete_gaussian, sizes=CUT, mechanism=RECIPE.name)
    assert made.release.terms.mechanism == "tda_prorated"
    assert verify(made.folder) == []
    assert made.level(0)["count"].to_list() == made.case.true_level(0)["count"].to_list()
    tree = universe_of([[(a, b) for a in "123" for b in "123"]], [0, 0]).tree
    table = public_table(tree, [np.arange(9)], np.arange(9) * 20 + 1)
    recipes = (RECIPE, replace(RECIPE, finish=FINISH))
    one, other = (try_scales(table, of, [0.0, 9.0, 9.0], noise_of(3)).released for of in recipes)
    check_consistent(tree, one)
    check_consistent(tree, other)
    assert counts_of(one[0]) == counts_of(other[0])
    assert counts_of(one[2]) != counts_of(other[2])


def test_the_function_is_a_measure_whose_refusal_names_the_key(tmp_path, monkeypatch):
    """With its line in the table and the page's spec, a comparison finds everything at a large ε; a key that does not fit is refused."""
    function, line = re.findall(r"```python\n(.*?)```", UTILITY, re.DOTALL)
    scope = dict(vars(tasks.validate.utility))
    exec(function + line, scope)  # noqa: S102 (the page's own code)
    assert scope["UTILITIES"].keys() == {*UTILITIES, "largest"}
    monkeypatch.setitem(UTILITIES, "largest", scope["UTILITIES"]["largest"])
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    stops, generator = np.arange(10), np.random.default_rng(1)
    pl.DataFrame({"zone": stops // 5, "stop": stops}).write_csv(tmp_path / "stops.csv")
    trips = {"period": generator.integers(0, 48, 300), "origin": generator.geometric(0.5, 300) % 10}
    table = pl.DataFrame(trips | {"destination": generator.integers(0, 10, 300)}).group_by(pl.all()).len("trips")
    table.write_parquet(tmp_path / "trips.parquet")
    (piece,) = re.findall(r"```yaml\n(.*?)```", UTILITY, re.DOTALL)

    def compared(epsilons, areas):
        keys = SPEC | yaml.safe_load(piece) | {"utility": {"largest": {"axis": "origin", "areas": areas}}}
        return make_comparison(load_spec(spec_in(tmp_path, keys)), ["inftda"], epsilons, 2, ["largest"])

    results = list(answer_of(compared([0.001, 1000.0], 3), 2).results)
    poor, good = (result.utility["largest"]["found"] for result in results)
    assert 0 <= poor.mean < good.mean == 1
    with pytest.raises(InputError, match=r"utility\.largest\.areas must be from 1 to 10, got 11") as refused:
        compared([1.0], 11)
    assert refused.value.field == "utility.largest.areas"

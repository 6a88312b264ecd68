"""docs/how-to/new-mechanism.md: the function and the line that it shows are a mechanism."""

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import flows.mechanisms
from flows.mechanisms import MECHANISMS, Mechanism
from flows.trials.in_memory import seen_table, try_scales
from tasks.laws.samplers import discrete_gaussian
from tasks.optimize.reconcile import UpDown
from tasks.optimize.task import Optimiser
from tasks.verify.folder import verify
from tests.support.cases import case_csv
from tests.support.making import CUT, make, quick
from tests.support.passes import check_consistent, counts_of, noise_of
from tests.support.problems import Problem, lay_out, problems, solve
from tests.support.user import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "new-mechanism.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def prorated() -> Optimiser:
    """Return the function as the page has it."""
    module: Any = ModuleType("prorated")
    exec(_code("The function"), module.__dict__)  # noqa: S102 (the page's own code)
    optimiser: Optimiser = module.prorated
    return optimiser


@pytest.fixture(scope="module")
def recipe(prorated: Optimiser) -> Mechanism:
    """Return the line as the page has it, evaluated where it would stand."""
    line = eval(_code("The line"), vars(flows.mechanisms) | {"prorated": prorated})  # noqa: S307 (the page's own code)
    assert isinstance(line, Mechanism)
    return line


@pytest.fixture(scope="module")
def finish(prorated: Optimiser) -> UpDown:
    """Return the finish that the page would add, evaluated where the line would stand."""
    found = re.search(r"`finish=(least_squares.*?)`", PAGE)
    assert found is not None
    made = eval(found[1], vars(flows.mechanisms) | {"prorated": prorated})  # noqa: S307 (the page's own code)
    assert isinstance(made, UpDown)
    return made


def _code(section: str) -> str:
    found = re.search(rf"^## {section}\n.*?^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@given(parents=problems)
def test_the_function_keeps_the_laws_of_optimisers(prorated: Optimiser, parents: list[Problem]) -> None:
    """Counts are whole, not negative, add up, are those of each parent alone, and stay as they are where there is no noise."""
    solved = solve(prorated, parents)
    assert [sum(counts) for counts in solved] == [total for _, total in parents]
    assert min(min(counts) for counts in solved) >= 0
    assert solved == [solve(prorated, [parent])[0] for parent in parents]
    assert solve(prorated, [(counts, sum(counts)) for counts in solved]) == solved


def test_the_function_shares_totals_out_in_proportion(prorated: Optimiser) -> None:
    """Each cell is off its exact share by at most one; where nothing is above zero shares are equal."""
    small = [([30, 10, -7], 8), ([-1, -5], 6), ([4], 3), ([2, 0, 1], 0)]
    assert solve(prorated, small) == [[6, 2, 0], [3, 3], [3], [0, 0, 0]]
    generator = np.random.default_rng(3)
    parents = [(generator.integers(1, 2**20, 9).tolist(), int(generator.integers(0, 2**40))) for _ in range(200)]
    for (noisy, total), counts in zip(parents, solve(prorated, parents), strict=True):
        assert max(abs(count - total * x / sum(noisy)) for x, count in zip(noisy, counts, strict=True)) < 1.001
    with pytest.raises(ValueError, match="totals"):
        prorated(*lay_out([([1], -1)]))


def test_the_line_is_released_and_verified(recipe: Mechanism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line in the table, the plain driver releases with it, cut into branches, and the folder is verified."""
    monkeypatch.setitem(MECHANISMS, recipe.name, recipe)
    made = make(tmp_path, quick(case_csv), discrete_gaussian, sizes=CUT, mechanism=recipe.name)
    assert made.release.terms.mechanism == "tda_prorated"
    assert verify(made.folder) == []
    assert made.level(0)["count"].to_list() == made.case.true_level(0)["count"].to_list()


def test_with_a_finish_it_is_another_mechanism(recipe: Mechanism, finish: UpDown, universe_of) -> None:
    """In memory, as in comparisons, the line with and without a finish has consistent counts, by the same noise other ones."""
    tree = universe_of([[(a, b) for a in "123" for b in "123"]], [0, 0]).tree
    table = seen_table(tree, [np.arange(9)], np.arange(9) * 20 + 1)
    one, other = (
        try_scales(table, of, [0.0, 9.0, 9.0], noise_of(3)).released for of in (recipe, replace(recipe, finish=finish))
    )
    check_consistent(tree, one)
    check_consistent(tree, other)
    assert counts_of(one[0]) == counts_of(other[0])
    assert counts_of(one[2]) != counts_of(other[2])

"""The benchmarks keep up with what they measure: one that no longer runs would be found years later."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tasks.synthesize.country import draw_country

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ELSEWHERE = {"inf_tda"}  # runs in an environment that `peers.py` makes
PROGRAMS = sorted({path.stem for path in BENCHMARKS.glob("*.py")} - ELSEWHERE)


@pytest.fixture
def imported() -> Iterator[Any]:
    """Return what imports a benchmark, as one that runs does; it is forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_benchmark_is_imported(imported: Any, program: str) -> None:
    """Every name that it takes from the code is there."""
    assert isinstance(imported(program), ModuleType)


def test_a_release_in_memory_measures_every_level(imported: Any) -> None:
    """The mechanism over arrays alone, which most benchmarks time, releases a small country."""
    compute = imported("compute")
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(7))
    tree, ends, people = compute.table_of(country)
    budget = compute.measurements(tree.depth, 4.0)
    for sampler in compute.samplers("both").values():
        done = compute.release(tree, ends, people, budget, sampler)
        assert [frontier.level for frontier in done.frontiers] == list(range(tree.depth + 1))
        assert {int(frontier.counts.sum()) for frontier in done.frontiers} == {int(people.sum())}
        assert done.cells > 0

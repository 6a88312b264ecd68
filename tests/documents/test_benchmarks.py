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


def test_serial_is_what_one_thread_takes_alone(imported: Any) -> None:
    """CPU counts as serial where at most one thread runs, up to the time that has passed, and by the stage that ran."""
    serial = imported("serial")
    looks = [
        serial.Look(0.5, 0.5, 0.4, 1),  # before the release
        serial.Look(1.5, 0.5, 0.5, 1),
        serial.Look(2.0, 0.5, 0.9, 2),
        serial.Look(2.5, 0.5, 0.8, 1),  # two threads took 0.8 in 0.5 seconds
        serial.Look(3.5, 0.5, 0.1, 0),
    ]
    found = serial.serial_part(looks, serial.Ran("release", 1.0, 4.0), [serial.Ran("grow", 1.2, 3.0)])
    assert (found.wall, found.cpu, found.serial) == pytest.approx((3.0, 2.3, 1.1))
    assert found.of_stages == pytest.approx({"grow": 1.0, serial.BETWEEN: 0.1})
    assert found.limit == pytest.approx(2.3 / 1.1)

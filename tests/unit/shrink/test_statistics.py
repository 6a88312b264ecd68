"""What is learnt of a level: the same however its families are divided, in whatever order they come."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks.shrink.statistics
from tasks.optimize.reconcile import Estimates
from tasks.shrink.families import Families, families_with
from tasks.shrink.statistics import (
    Statistics,
    joined,
    names_of,
    nothing_learnt,
    sample_of,
    statistics_from,
    statistics_of,
)

AREAS = 5


def level(seed: int, number: int) -> tuple[Families, np.ndarray, np.ndarray]:
    """Return families, the areas of their cells, and their names."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 40, number)
    cells = int(sizes.sum())
    totals = (random.pareto(0.5, number) * 20).astype(np.int64) + 1
    estimates = Estimates(random.normal(3, 9, cells), random.uniform(1, 9, cells))
    families = families_with(estimates, np.concatenate(([0], np.cumsum(sizes))), totals)
    return families, random.integers(0, AREAS, cells), names_of([np.arange(number), random.integers(0, 9, number)])


def of(families: Families, areas: np.ndarray, names: np.ndarray, some: slice) -> Statistics:
    """Return what is learnt of some of the families."""
    cells = slice(families.first[some.start], families.first[some.stop])
    return statistics_of(families[some], areas[cells], names[some], AREAS)


def listed(learnt: Statistics) -> list:
    """Return all of it, to compare."""
    return [column.tolist() for column in learnt.columns().values()]


@pytest.mark.parametrize("sampled", [tasks.shrink.statistics._SAMPLED, 15])
@settings(max_examples=15)
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(0, 600), max_size=6), random=st.randoms())
def test_how_families_are_divided_and_in_what_order_changes_nothing(
    sampled: int, seed: int, cuts: list[int], random: Random
) -> None:
    """Parts of a level, in any order and joined step by step, come to the very numbers of the whole, and survive being written.

    So they do where most families are left out, and some of the cells of the others.
    """
    families, areas, names = level(seed, 600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.shrink.statistics, "_SAMPLED", sampled)
        whole = of(families, areas, names, slice(0, 600))
        ends = sorted({0, *cuts, 600})
        parts = [of(families, areas, names, slice(*pair)) for pair in pairwise(ends)]
        random.shuffle(parts)
        learnt = nothing_learnt(AREAS)
        for part in parts:
            learnt = joined([learnt, part])
        assert listed(learnt) == listed(joined(parts)) == listed(whole)
        for written in (whole, learnt, of(families, areas, names, slice(0, 0))):
            assert listed(statistics_from(written.columns())) == listed(written)


def test_sums_and_cells_are_those_of_all_families() -> None:
    """Sums are of all cells of an area, to a thousandth; each stratum's cells are counted, sampled or not."""
    families, areas, names = level(3, 3_000)
    learnt = of(families, areas, names, slice(0, 3_000))
    assert np.allclose(learnt.values, np.bincount(areas, families.values, AREAS), atol=families.first[-1] / 2**11)
    assert learnt.cells.sum() == families.first[-1]
    sample = sample_of(learnt, np.ones(AREAS))
    assert len(sample.values) < families.first[-1]
    assert np.isclose(sample.stand_for.sum(), families.first[-1])


def test_of_wide_families_cells_at_even_distances_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family with more cells than a sample has keeps its size; each of its cells stands for as many as there are left out."""
    monkeypatch.setattr(tasks.shrink.statistics, "_SAMPLED", 10)
    values = np.arange(95, dtype=np.float64)
    families = families_with(Estimates(values, np.ones(95)), np.array([0, 95]), np.array([4_465]))
    learnt = statistics_of(families, np.arange(95) % AREAS, np.ones(1), AREAS)
    assert learnt.sizes.tolist() == [95]
    assert np.allclose(learnt.sample.values, values[np.arange(10) * 95 // 10])
    assert learnt.areas.tolist() == (np.arange(10) * 95 // 10 % AREAS).tolist()
    again = joined([nothing_learnt(AREAS), learnt])
    assert listed(again) == listed(learnt) == listed(statistics_from(learnt.columns()))
    sample = sample_of(learnt, np.ones(AREAS))
    assert np.allclose(sample.stand_for, 9.5)
    assert np.allclose(sample.means, 4_465 / 95)


def test_names_are_as_if_at_random() -> None:
    """Names of neighbouring nodes differ, fill the range evenly, and are whole numbers that a float holds."""
    first, second = np.divmod(np.arange(40_000), 200)
    names = names_of([first, second])
    assert len(np.unique(names)) == 40_000
    assert (names == np.floor(names)).all()
    assert names.max() < 2**53
    shares = np.histogram(names, bins=20, range=(0, 2**53))[0] / 40_000
    assert np.abs(shares - 0.05).max() < 0.006
    assert abs(np.corrcoef(names[:-1], names[1:])[0, 1]) < 0.03

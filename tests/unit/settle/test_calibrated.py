"""Totals of an axis, and counts between families and areas: what must add up does, and brute force finds nothing nearer."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.settle.margins import balanced, settle_axis, share_out, swapped
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.tree.axis import axis_from_codebook


def axis_of(shape):
    """Return an axis of three levels, whose areas have so many areas each."""
    parts = [(one, two, of) for one, areas in enumerate(shape) for two, of in enumerate(areas)]
    rows = [(f"{a:02}", f"{a:02}{b:02}", f"{a:02}{b:02}{c:02}") for a, b, of in parts for c in range(of)]
    return axis_from_codebook("home", pl.DataFrame(rows, ["county", "town", "ward"], orient="row"))


shapes = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)


def sums(axis, fine, coarse, counts):
    """Return what the totals of a level add up to at a coarser one."""
    found = np.zeros(axis.areas(coarse), dtype=np.int64)
    np.add.at(found, axis.ancestors(np.arange(axis.areas(fine)), fine, coarse), counts)
    return found


MEASURED, SPREADS, SEEDS = st.sets(st.integers(1, 3), min_size=1), st.sampled_from([0, 9, 150]), st.integers(0, 2**32)


@given(shapes, MEASURED, st.integers(0, 2), SPREADS, SEEDS)
def test_totals_of_an_axis_add_up_to_what_is_known(shape, levels, known, spread, seed):
    """Whatever was measured, and at whichever levels: the totals are whole, at least 0, and add up to each other and to what is known."""
    # Without noise they are returned as they are.
    axis, generator = axis_of(shape), np.random.default_rng(seed)
    wards = generator.integers(0, 50, axis.areas(3))
    true = {level: sums(axis, 3, level, wards) for level in range(4)}
    moved = {level: true[level] + generator.integers(-spread, spread + 1, axis.areas(level)) for level in levels}
    noisy = {level: (counts, float(level**2)) for level, counts in moved.items() if level > known}
    exact = {level: true[level] for level in range(known + 1)}
    found = settle_axis(axis, exact, noisy)
    assert set(found) == set(noisy)
    for level, counts in found.items():
        assert counts.dtype == np.int64
        assert (counts >= 0).all()
        for other, above in (exact | found).items():
            if other < level:
                assert np.array_equal(sums(axis, level, other, counts), above)
        assert spread or np.array_equal(counts, true[level])


def test_levels_of_an_axis_inform_each_other():
    """A county's estimate is the mean of its own noisy count and the sum over its wards, by what noise each has."""
    noisy = {1: (np.array([120, 80]), 1.0), 3: (np.array([40, 40, 60, 60]), 1.0)}
    found = settle_axis(axis_of([[2], [1, 1]]), {0: np.array([200])}, noisy)
    assert found[1].tolist() == [107, 93]  # (120/1 + 80/2)/(1 + 1/2) = 106⅔, and 93⅓
    assert found[3].tolist() == [54, 53, 47, 46]


families = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), min_size=1, max_size=6)


def numbered(counts):
    """Return the counts of families as one array, with where each begins, and the family of each."""
    sizes = [len(family) for family in counts]
    flat = np.array([count for family in counts for count in family], dtype=np.int64)
    return flat, np.concatenate(([0], np.cumsum(sizes))), np.repeat(np.arange(len(counts)), sizes)


@given(families, st.integers(0, 2**32))
def test_shares_add_up_and_are_near(counts, seed):
    """Shares are whole, at least 0, add up to each family's total, and lie within 1 of the real numbers, which add up too."""
    values, first, family = numbered(counts)
    totals = np.random.default_rng(seed).integers(0, 300, len(counts))
    counts = np.arange(len(values)) + 1  # by which a family goes of whose values nothing is left
    whole, exact = share_out(values.astype(float), counts, first, totals)
    assert (whole >= 0).all()
    nothing = np.bincount(family, values)[family] == 0
    by_counts = counts * (totals / np.bincount(family, counts))[family]
    assert np.allclose(exact[nothing], by_counts[nothing])
    assert np.array_equal(np.bincount(family, whole, len(totals)), totals)
    assert np.allclose(np.bincount(family, exact, len(totals)), totals)
    assert (abs(whole - exact) < 1 + 1e-9).all()


@pytest.mark.parametrize("seed", range(16))
def test_balanced_counts_are_the_nearest(seed):
    """The solver of overlapping groupings finds nothing nearer by a thousandth, where many counts end at 0 too."""
    generator = np.random.default_rng(seed)
    cells, parents, areas = [(40, 8, 6), (300, 60, 100), (300, 200, 30), (500, 250, 200)][seed % 4]
    family = np.sort(np.append(np.arange(parents), generator.integers(0, parents, cells - parents)))
    area, variance = generator.integers(0, areas, cells), float(generator.choice([0.2, 3.0, 40.0]))
    values = (generator.pareto(1.2, cells) * 8).astype(np.int64) % 500
    totals = np.maximum(np.bincount(family, values) + generator.integers(-20, 21, parents), 0)
    wanted = np.maximum(np.bincount(area, values, areas) + generator.integers(-40, 41, areas), 0)

    def distance(y):
        return ((y - values) ** 2).sum() + ((np.bincount(area, y, areas) - wanted) ** 2).sum() / variance

    found = balanced(values, family, totals, area, wanted, variance)
    assert (found >= 0).all()
    first = np.append(np.flatnonzero(np.diff(family, prepend=-1)), cells)
    _, exact = share_out(found, np.ones(cells, dtype=np.int64), first, totals)
    groupings = [
        Grouping(family.astype(np.int32), totals.astype(float), np.inf),
        Grouping(area.astype(np.int32), wanted.astype(float), 1 / variance),
    ]
    best = settle_overlapping(values.astype(float), 1.0, groupings)
    assert distance(exact) <= 1.001 * distance(best) + 1


@given(families, st.integers(1, 4), st.integers(0, 2**32))
def test_swaps_bring_areas_nearer_and_keep_families(counts, areas, seed):
    """Swaps keep every family's total, leave each count within 1 of its real number, and take no area further off."""
    values, first, family = numbered(counts)
    generator = np.random.default_rng(seed)
    real = values + generator.random(len(values))
    totals = np.rint(np.bincount(family, real, len(counts))).astype(np.int64)
    whole, exact = share_out(real, values, first, totals)
    area = generator.integers(0, areas, len(values))
    wanted = np.rint(np.bincount(area, exact, areas)).astype(np.int64)
    found = swapped(whole, exact, family, area)
    assert np.array_equal(np.bincount(family, found, len(totals)), totals)
    assert (found >= 0).all()
    assert (abs(found - exact) < 1 + 1e-9).all()
    before, after = (abs(np.bincount(area, of, areas) - wanted) for of in (whole, found))
    assert (after <= before).all()


@pytest.mark.parametrize("seed", range(20))
def test_swaps_reach_what_any_choice_reaches(seed):
    """In families of two, where only the roundings can be chosen, no choice brings areas nearer than swaps within one record each."""
    generator = np.random.default_rng(seed)
    lower = generator.integers(0, 5, 8)
    exact = lower + 0.5
    family, area = np.repeat(np.arange(4), 2), np.array([0, 1, 1, 2, 2, 0, 0, 1])
    whole = lower + np.tile([1, 0], 4)
    wanted = np.rint(np.bincount(area, exact, 3)).astype(np.int64)
    choices = (lower + np.column_stack([up, 1 - np.array(up)]).ravel() for up in product((0, 1), repeat=4))
    best = min(abs(np.bincount(area, of, 3) - wanted).sum() for of in choices)
    found = swapped(whole, exact, family, area)
    assert abs(np.bincount(area, found, 3) - wanted).sum() <= best + 2

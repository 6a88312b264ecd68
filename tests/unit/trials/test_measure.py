"""Trials that measure every cell of a tree, or all but those of its finest level, whatever survives the first pass."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flows.trials.in_memory
import tasks.tree.branches
from flows.mechanisms import MECHANISMS, Mechanism
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from flows.walks.steps import Cuts
from flows.walks.walk import walk
from storage.releases.terms import ABOVE, ALL, SURVIVORS, Measure
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree
from tests.support.making import noise_of_the_cell
from tests.support.passes import check_consistent, counts_of, family, first_pass_of, noise_of, tables
from tests.support.universe import universe_of

SECOND = ["inftda_reconciled", "inftda_lenient", "inftda_shrunk"]
BINARY = [(a, b, c) for a in "12" for b in "12" for c in "12"]


def that_measures(measure: Measure, name: str = SECOND[0]) -> Mechanism:
    """Return a mechanism with a second pass that measures some cells."""
    return replace(MECHANISMS[name], measure=measure)


def scales_of(tree: Tree, exact: int = 0) -> list[float | None]:
    """Return scales as a plan has them: none for levels that repeat another, and no noise in the coarsest ones."""
    repeats = [level > exact and tree.same_as(level) is not None for level in range(tree.depth + 1)]
    return [None if repeats[level] else 0.0 if level < exact else 3.0 for level in range(tree.depth + 1)]


def binary_table(count: int) -> SeenTable:
    """Return a table with so many records in one of eight leaves."""
    universe = universe_of([BINARY], [0, 0, 0])
    return seen_table(universe.tree, [np.array([5])], np.array([count]))


def moved_by(noise: dict[int, IntArray]) -> Any:
    """Return a sampler that adds given noise to the levels of a binary tree, which it knows by their number of cells."""
    return lambda true, _scale: true + noise.get(len(true), np.zeros(len(true), dtype=np.int64))


@settings(max_examples=40)
@given(st.data(), st.integers(0, 2**32), st.sampled_from(SECOND), st.integers(0, 2))
def test_every_cell_is_measured_once_and_charged_once(universes, data, seed, name, exact):
    """The sampler is asked once for each cell of every level that repeats no other, and each such level's charge is sealed."""
    _, _, table = data.draw(tables(universes))
    tree, asked = table.tree, list[int]()
    scales = scales_of(tree, exact)
    trial = try_scales(table, that_measures(ALL, name), scales, noise_of(seed, asked))
    record = trial.job.record
    own = [level for level, scale in enumerate(scales) if scale is not None]
    assert {level: record.cells_of(level) for level in own} == {
        level: (tree.possible_cells(level),) * 2 for level in own
    }
    assert asked == [tree.possible_cells(level) for level in own if scales[level]]
    assert {level: charge.state for level, charge in record.charges.items()} == {
        level: "sealed" for level in own if scales[level]
    }
    check_consistent(tree, trial.released)


@settings(max_examples=40)
@given(st.data(), st.integers(0, 2**32), st.sampled_from(SECOND))
def test_above_the_finest_level_every_cell_is_measured_and_below_it_children_of_what_is_kept(
    universes, data, seed, name
):
    """With `above` each node keeps what the first pass gives a count, and its largest child; the tables stay within what is below."""
    _, _, table = data.draw(tables(universes))
    tree = table.tree
    scales, asked = scales_of(tree), list[int]()
    trial = try_scales(table, that_measures(ABOVE, name), scales, noise_of(seed, asked))
    as_today = try_scales(table, that_measures(SURVIVORS, name), scales, no_noise)
    record = trial.job.record
    for level in range(tree.depth):
        if scales[level] is not None and level:
            assert record.cells_of(level)[0] == tree.possible_cells(level)
    survivors = counts_of(first_pass_of(trial)[tree.depth - 1])
    if tree.depth > 1:
        thinned = record.thinned
        above = [family(tree, node, thinned) for node in counts_of(first_pass_of(trial)[thinned])]
        of_family = Counter(above)
        assert len(of_family) == tree.possible_cells(thinned - 1)
        zeros = Counter(
            family(tree, node, thinned) for node, count in counts_of(first_pass_of(trial)[thinned]).items() if not count
        )
        assert not zeros or max(zeros.values()) == 1
    for node in counts_of(trial.released[-1]):
        assert family(tree, node, tree.depth) in survivors
    check_consistent(tree, trial.released)
    check_consistent(tree, as_today.released)


@settings(max_examples=40)
@given(st.data(), st.integers(0, 2**32))
def test_the_finest_level_has_the_cells_that_it_has_where_survivors_are_measured(universes, data, seed):
    """Zeros that stay in the first pass give their children nothing, so that the same nodes are left above the finest level."""
    _, _, table = data.draw(tables(universes))
    with noise_of_the_cell() as noise:
        above, as_today = (
            try_scales(table, that_measures(of), scales_of(table.tree, 1), noise) for of in (ABOVE, SURVIVORS)
        )
    places = [
        {place: count for place, count in counts_of(first_pass_of(of)[-1]).items() if count} for of in (above, as_today)
    ]
    assert places[0] == places[1]


def no_noise(true_counts: IntArray, scale: float) -> IntArray:
    """Add nothing."""
    return true_counts


@settings(max_examples=30)
@given(st.data(), st.sampled_from([ALL, ABOVE, SURVIVORS]), st.sampled_from(SECOND))
def test_without_noise_the_truth_is_released(universes, data, measure, name):
    """Zero noise is the identity for the reconciled mechanism; the lenient one may drop counts that its σ does not bear out."""
    universe, records, table = data.draw(tables(universes))
    scales = [None if scale is None else 0.0 for scale in scales_of(table.tree)]
    released = try_scales(table, that_measures(measure, name), scales, no_noise).released
    for level, frontier in enumerate(released):
        grouped: Counter = Counter()
        for leaf, count in records.items():
            grouped[universe.areas(universe.node(leaf, level))] += count
        assert counts_of(frontier) == grouped


@pytest.mark.parametrize("name", [SECOND[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in SECOND[1:])])
@settings(max_examples=20)
@given(data=st.data(), measure=st.sampled_from([ALL, ABOVE, SURVIVORS]), most=st.integers(1, 6))
def test_tables_do_not_depend_on_how_the_work_was_cut(universes, data, measure, name, most):
    """In branches of few cells, some of them all zeros, it comes to the same by the same noise as in one piece."""
    _, _, table = data.draw(tables(universes))
    scales = scales_of(table.tree, 1)
    with noise_of_the_cell() as noise, pytest.MonkeyPatch.context() as patch:
        whole = try_scales(table, that_measures(measure, name), scales, noise)
        patch.setattr(tasks.tree.branches, "BRANCH_CELLS", 1)
        patch.setattr(flows.trials.in_memory, "walk", partial(walk, cuts=Cuts(most)))
        cut = try_scales(table, that_measures(measure, name), scales, noise)
    assert [counts_of(nodes) for nodes in cut.released] == [counts_of(nodes) for nodes in whole.released]
    cells = [[of.job.record.cells_of(level)[0] for level in range(table.tree.depth + 1)] for of in (cut, whole)]
    assert cells[0] == cells[1]


def test_a_count_that_the_first_pass_loses_is_released() -> None:
    """Where the noise of a coarse cell hides its records, those measured below it bring them back, if all are measured."""
    table, noise = binary_table(40), {2: np.array([40, -40])}
    released = {
        measure: try_scales(table, that_measures(measure), [0.0, 3.0, 3.0, 3.0], moved_by(noise)).released[-1]
        for measure in (ALL, ABOVE, SURVIVORS)
    }
    assert 5 not in released[SURVIVORS].areas[0]
    for measure in (ALL, ABOVE):
        assert counts_of(released[measure])[5,] == max(released[measure].counts) > 5


def test_a_noisy_total_of_zero_does_not_hide_what_is_measured_below_it() -> None:
    """Where all leaves are measured, the total is the estimate from all levels, whatever the total's own noisy count is."""
    table, noise = binary_table(40), {1: np.array([-60])}
    released = {
        measure: try_scales(table, that_measures(measure), [3.0] * 4, moved_by(noise)).released
        for measure in (ALL, ABOVE, SURVIVORS)
    }
    assert released[SURVIVORS][0].counts.tolist() == [0]
    for measure in (ALL, ABOVE):
        assert released[measure][0].counts[0] > 0
        check_consistent(table.tree, released[measure])


@pytest.mark.parametrize(
    ("mechanism", "cells"),
    [
        (that_measures(ALL), [1, 2, 4, 8]),
        (that_measures(ABOVE), [1, 2, 4, 4]),
        (that_measures(SURVIVORS), [1, 2, 0, 0]),
        (MECHANISMS["inftda"], [1, 2, 0, 0]),
    ],
)
def test_an_empty_table_releases_nothing(mechanism: Mechanism, cells: list[int]) -> None:
    """A table without records has an exact total of 0 and nothing below it, though every cell is measured."""
    universe = universe_of([BINARY], [0, 0, 0])
    table = seen_table(universe.tree, [np.array([], dtype=np.int64)], np.array([], dtype=np.int64))
    trial = try_scales(table, mechanism, [0.0, 2.0, 2.0, 2.0], noise_of(1))
    assert [len(frontier) for frontier in trial.released] == [1, 0, 0, 0]
    assert trial.released[0].counts.tolist() == [0]
    assert [trial.job.record.cells_of(level)[0] for level in range(4)] == cells


def test_exact_levels_are_read_whole_and_stay_as_they_are() -> None:
    """A level that is published exactly has all its cells measured without noise, and its zeros have no count below them."""
    table, asked = binary_table(40), list[int]()
    trial = try_scales(table, that_measures(ALL), [0.0, 0.0, 3.0, 3.0], noise_of(3, asked))
    assert asked == [4, 8]
    assert counts_of(trial.released[1]) == {(1,): 40}
    assert {area // 4 for (area,) in counts_of(trial.released[3])} == {1}


def test_a_trial_tells_all_that_was_measured() -> None:
    """The measured cells of a trial are all of them, and below each of them more was measured.

    A mechanism of the table that leaves the choice open measures every cell of a small tree.
    """
    for measure in (ALL, "auto"):
        asked = list[int]()
        mechanism = replace(MECHANISMS[SECOND[0]], measure=measure)
        trial = try_scales(binary_table(40), mechanism, [3.0] * 4, noise_of(4, asked))
        assert asked == [len(of.cells) for of in trial.measured] == [1, 2, 4, 8]
        assert all(of.kept.all() for of in trial.measured)

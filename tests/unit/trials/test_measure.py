"""Trials that measure every cell of a tree, or all but those of its finest level, whatever survives the first pass."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.trials.in_memory import public_table
from storage.releases.terms import ABOVE, ALL, SURVIVORS
from tasks.mechanisms import MECHANISMS
from tests.support.making import no_noise, noise_of_the_cell
from tests.support.passes import check_consistent, counts_of, family, first_pass_of, noise_of, tables
from tests.support.scales import try_scales
from tests.support.universe import universe_of

SECOND = ["inftda_reconciled", "inftda_lenient", "inftda_shrunk"]
BINARY = [(a, b, c) for a in "12" for b in "12" for c in "12"]


def that_measures(measure, name=SECOND[0]):
    """Return a mechanism with a second pass that measures some cells."""
    return replace(MECHANISMS[name], measure=measure)


def scales_of(tree, exact=0):
    """Return scales as a plan has them: none for levels that repeat another, and no noise in the coarsest ones."""
    repeats = [level > exact and tree.same_as(level) is not None for level in range(tree.depth + 1)]
    return [None if repeats[level] else 0.0 if level < exact else 3.0 for level in range(tree.depth + 1)]


def binary_table(count):
    """Return a table with so many records in one of eight leaves."""
    universe = universe_of([BINARY], [0, 0, 0])
    return public_table(universe.tree, [np.array([5])], np.array([count]))


def moved_by(noise):
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
    assert [record.cells_of(level) for level in own] == [(tree.possible_cells(level),) * 2 for level in own]
    assert asked == [tree.possible_cells(level) for level in own if scales[level]]
    assert {charge.state for charge in record.charges.values()} <= {"sealed"}
    assert set(record.charges) == {level for level in own if scales[level]}
    check_consistent(tree, trial.released)
    for level in range(exact):
        counts = trial.released[level].counts
        assert counts[counts > 0].tolist() == table.levels[level].true_counts.tolist()


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
        first = counts_of(first_pass_of(trial)[thinned]).items()
        zeros = Counter(family(tree, node, thinned) for node, count in first if not count)
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
    scales, finest = scales_of(table.tree, 1), []
    with noise_of_the_cell() as noise:
        for of in (ABOVE, SURVIVORS):
            counts = counts_of(first_pass_of(try_scales(table, that_measures(of), scales, noise))[-1])
            finest.append({place: count for place, count in counts.items() if count})
    assert finest[0] == finest[1]


@settings(max_examples=30)
@given(st.data(), st.sampled_from([ALL, ABOVE, SURVIVORS]), st.sampled_from([*SECOND, "inftda"]), st.booleans())
def test_without_noise_the_truth_is_released(universes, data, measure, name, said):
    """Zero noise is the identity, for `inftda` and its reconciled form also where its scale is said not to be zero."""
    universe, records, table = data.draw(tables(universes))
    scale = 5.0 if said and name in {"inftda", "inftda_reconciled"} else 0.0
    scales = [None if of is None else scale for of in scales_of(table.tree)]
    mechanism = that_measures(SURVIVORS if name == "inftda" else measure, name)
    released = try_scales(table, mechanism, scales, no_noise).released
    for level, frontier in enumerate(released):
        grouped = Counter()
        for leaf, count in records.items():
            grouped[universe.areas(universe.node(leaf, level))] += count
        assert counts_of(frontier) == grouped


def test_a_count_that_the_first_pass_loses_is_released():
    """Where the noise of a coarse cell, or of the total, hides records, what is measured below brings them back, if all is measured."""
    table, noise = binary_table(40), {2: np.array([40, -40])}
    sigmas, noise = [0.0, 3.0, 3.0, 3.0], moved_by(noise)
    tried = {measure: try_scales(table, that_measures(measure), sigmas, noise) for measure in (ALL, ABOVE, SURVIVORS)}
    released = {measure: trial.released[-1] for measure, trial in tried.items()}
    assert 5 not in released[SURVIVORS].areas[0]
    for measure in (ALL, ABOVE):
        assert counts_of(released[measure])[5,] == max(released[measure].counts) > 5
    totals, noise = {}, {1: np.array([-60])}  # and a noisy total of zero
    for measure in (ALL, ABOVE, SURVIVORS):
        found = try_scales(table, that_measures(measure), [3.0] * 4, moved_by(noise)).released
        totals[measure] = found[0].counts[0]
        check_consistent(table.tree, found)
    assert totals[SURVIVORS] == 0 < min(totals[ALL], totals[ABOVE])

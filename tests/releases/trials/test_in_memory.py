"""Releases and trials in memory: one way down, a finish that measures nothing and keeps the laws, leaves that are summed up, and which cells are measured."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from math import nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks.noise.measure
import tasks.noise.task
import tasks.optimize.task
import tasks.tree.branches
from flows.planning.guarantee import guarantee_of
from flows.planning.shares import parts_of, scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from flows.trials.in_memory import public_table, try_release
from storage.errors import StoreError
from storage.ledger.accounts import reserved_charges
from storage.releases.terms import ABOVE, ALL, SURVIVORS
from tasks.mechanisms import MECHANISMS
from tests.support.making import no_noise, noise_of_the_cell
from tests.support.passes import check_consistent, counts_of, estimates_of, family, first_pass_of, noise_of, tables
from tests.support.scales import try_scales
from tests.support.universe import universe_of

BINARY = [(a, b, c) for a in "12" for b in "12" for c in "12"]
ONCE, TWICE = MECHANISMS["inftda"], MECHANISMS["inftda_reconciled"]
LENIENT = MECHANISMS["inftda_lenient"]


@settings(max_examples=50)
@given(st.data(), st.sampled_from([TWICE, LENIENT]), st.sampled_from([0.0, 0.5, 3.0, 20.0]), st.booleans())
def test_passes_are_consistent_and_the_second_is_within_the_first(universes, data, mechanism, sigma, exact):
    """Both passes release whole positive counts that add up; the second measures nothing, and keeps no other node."""
    _, _, table = data.draw(tables(universes))
    seed = data.draw(st.integers(0, 2**32))
    sigmas = [0.0 if exact else sigma, *[sigma] * table.tree.depth]
    asked = []
    first = try_scales(table, replace(ONCE, repair=mechanism.repair), sigmas, noise_of(seed, asked))
    once = []
    both = try_scales(table, mechanism, sigmas, noise_of(seed, once))
    assert once == asked
    check_consistent(table.tree, first.released)
    check_consistent(table.tree, both.released)
    for kept, settled in zip(first.released, both.released, strict=True):
        assert counts_of(settled).keys() <= counts_of(kept).keys()
    assert [counts_of(kept) for kept in first_pass_of(both)] == [counts_of(kept) for kept in first.released]
    if exact:
        assert both.released[0].counts.tolist() == table.levels[0].true_counts.tolist()


@settings(max_examples=40)
@given(st.data(), st.integers(0, 2**32), st.integers(1, 9))
def test_every_cell_is_measured_once(universes, data, seed, most):
    """The sampler is asked once per level, in order, for all children of the nodes that stay, in parts at most, never again."""
    _, _, table = data.draw(tables(universes))
    sigmas, asked = [3.0] * (table.tree.depth + 1), []
    trial = try_scales(table, TWICE, sigmas, noise_of(seed, asked))
    cells = [len(level.cells) for level in trial.measured]
    assert asked == [of_level for of_level in cells if of_level]
    record = trial.job.record
    assert [record.shards["noisy"][level, "trunk"].rows for level in range(len(cells))] == cells
    assert {charge.state for charge in record.charges.values()} == {"sealed"}
    in_parts = []
    with chunks_of(most):
        try_scales(table, TWICE, sigmas, noise_of(seed, in_parts))
    assert sum(in_parts) == sum(asked)


def test_nothing_is_drawn_that_is_not_charged(universe_of):
    """A release in memory is refused where a level has no charge, has another one, or has drawn already."""
    table = binary_table(universe_of, 40)
    record = try_scales(table, ONCE, SIGMAS, noise_of(1)).job.record
    reserved = [replace(charge, state="reserved") for charge in record.charges.values()]
    asked = []

    def refused(charges, says):
        asked.clear()
        with pytest.raises(StoreError, match=says):
            try_release(table, record.release, charges, ONCE, noise_of(1, asked))
        assert asked == [1, 2]  # levels 0 and 1

    refused([charge for charge in reserved if charge.level != 2], "has no charge for level 2")
    refused([replace(charge, sigma=4.0) if charge.level == 2 else charge for charge in reserved], "differs from its")
    refused([replace(charge, state="void") if charge.level == 2 else charge for charge in reserved], "has no charge")
    refused([replace(charge, state="sealed") if charge.level == 2 else charge for charge in reserved], "has no charge")


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_beside_a_measured_total_no_level_is_drawn_with_less_noise_than_all_together_are_charged(universe_of, law):
    """As planned, all levels are drawn; with the scale of one a float smaller, that one is not."""
    table = binary_table(universe_of, 40)
    of_one = {"unit": "one", "neighbours": "substitution", "max_records_per_unit": 1, "epsilon": 1.0, "delta": 1e-6}
    keys = PrivacyKeys(**of_one, exact_records_per_unit=False)
    scheme = scheme_of(keys, table.tree, table.tree, ONCE, "opendp", ONCE.laws[law])
    levels = parts_of(scheme, guarantee_of(scheme))
    release = try_scales(table, ONCE, SIGMAS, noise_of(1), law=ONCE.laws[law]).job.record.release

    def drawn(terms):
        asked, charges = list[int](), reserved_charges(release.id, terms)
        try_release(table, replace(release, levels=tuple(terms)), charges, ONCE, noise_of(1, asked))
        return asked

    assert len(drawn(levels)) == len(levels)
    for level in levels:
        less = replace(level, sigma=nextafter(level.sigma, 0), scale=nextafter(level.scale, 0))
        with pytest.raises(ValueError, match="exceeds the level's share"):
            drawn([less if of is level else of for of in levels])


@contextmanager
def chunks_of(cells):
    """Let chunks have so many cells."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (tasks.noise.task, tasks.noise.measure, tasks.optimize.task):
            patch.setattr(module, "CHUNK_CELLS", cells)
        yield


SIGMAS = [5.0, 5.0, 5.0, 5.0]
RUNS = 2000
SAID = 25 * 8 / 15  # v_leaves 2, 2/3, then 4/3, 4/7, then 8/7, 8/15


def binary_table(universe_of, count):
    """Return eight leaves in three binary levels that all have the same count."""
    universe = universe_of([BINARY], [0, 0, 0])
    return public_table(universe.tree, [np.arange(8)], np.full(8, count))


def test_roots_have_no_bias_and_the_variance_that_is_said(universe_of):
    """Of many trees side by side below an exact level, of which nothing is pruned, within five standard errors."""
    # That is one false alarm in 1.7 million. The variance is that of least squares, 25 times 8/15, and less than their own.
    copies = [(f"{copy:04}",) for copy in range(RUNS)]
    tree = universe_of([copies, BINARY], [0, 1, 1, 1]).tree
    areas = [np.repeat(np.arange(RUNS), 8), np.tile(np.arange(8), RUNS)]
    trial = try_scales(public_table(tree, areas, np.full(8 * RUNS, 1000)), TWICE, [0.0, *SIGMAS], noise_of(11))
    assert [len(frontier) for frontier in first_pass_of(trial)] == [1, *(RUNS << level for level in range(4))]
    totals = estimates_of(trial)[1].values
    assert abs(totals.mean() - 8000) < 5 * totals.std() / np.sqrt(RUNS)
    assert abs(totals.var() - SAID) < 5 * SAID * np.sqrt(2 / RUNS) + 1 / 12  # noise is rounded
    assert SAID < 25


def test_an_exact_level_is_the_truth_whatever_lies_below_it(universe_of):
    """Of 400 codes that are published exactly, 100 of which count 1, each keeps its own above noise, where a count may be dropped."""
    universe = universe_of([[(f"{code:03}", leaf) for code in range(400) for leaf in "12"]], [0, 0])
    table = public_table(universe.tree, [np.arange(0, 800, 8)], np.ones(100, dtype=np.int64))
    released = try_scales(table, MECHANISMS["inftda_lenient"], [0.0, 0.0, 20.0], noise_of(3)).released
    assert counts_of(released[1]) == {(code,): 1 for code in range(0, 400, 4)}
    check_consistent(table.tree, released)


SECOND = ["inftda_reconciled", "inftda_lenient", "inftda_shrunk"]


def that_measures(measure, name=SECOND[0]):
    """Return a mechanism with a second pass that measures some cells."""
    return replace(MECHANISMS[name], measure=measure)


def scales_of(tree, exact=0):
    """Return scales as a plan has them: none for levels that repeat another, and no noise in the coarsest ones."""
    repeats = [level > exact and tree.same_as(level) is not None for level in range(tree.depth + 1)]
    return [None if repeats[level] else 0.0 if level < exact else 3.0 for level in range(tree.depth + 1)]


def table_of_one_leaf(count):
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


def test_a_count_that_the_first_pass_loses_is_released():
    """Where the noise of a coarse cell, or of the total, hides records, what is measured below brings them back, if all is measured."""
    table, noise = table_of_one_leaf(40), {2: np.array([40, -40])}
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

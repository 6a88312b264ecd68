"""Releases in memory: one way down, a finish that measures nothing and keeps the laws, and leaves that are summed up."""

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
from flows.planning.parts import parts_of
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from flows.trials.in_memory import public_table, try_release
from storage.errors import StoreError
from storage.ledger.books import reserved_charges
from tasks.laws.thresholded import Thresholded
from tasks.mechanisms import MECHANISMS
from tests.support.passes import (
    check_consistent,
    counts_of,
    estimates_of,
    first_pass_of,
    noise_of,
    tables,
    try_threshold,
)
from tests.support.scales import try_scales

BINARY = [(a, b, c) for a in "12" for b in "12" for c in "12"]
ONCE, TWICE, LEAVES = MECHANISMS["inftda"], MECHANISMS["inftda_reconciled"], MECHANISMS["gaussian"]
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


@settings(max_examples=30)
@given(st.data())
def test_leaves_without_noise_are_the_truth(universes, data):
    """Leaf by leaf, summed up to the root: the true tree again, however few leaves are measured at a time."""
    universe, _, table = data.draw(tables(universes))
    seen = []

    def sampler(true_counts, sigma):
        seen.append(len(true_counts))
        return true_counts

    def all_that_is_there(true_counts, scale, threshold):
        return np.arange(len(true_counts)), true_counts

    with chunks_of(data.draw(st.integers(1, 9))):
        universes = try_scales(table, LEAVES, [1.0] * (table.tree.depth + 1), sampler)
        histograms = try_threshold(table, Thresholded(8.0, 2, 1e9, 1.0), "add_remove", 1, all_that_is_there)
    assert sum(seen) == len(universe.leaves())  # every leaf of the universe, zeros too
    for trial in (universes, histograms):
        assert set(trial.job.record.shards["noisy"]) == {(table.tree.depth, "trunk")}
    for true, one, other in zip(table.levels, universes.released, histograms.released, strict=True):
        truth = list(zip(*(column.tolist() for column in (*true.areas, true.true_counts)), strict=True))
        assert [(*node, count) for node, count in counts_of(one).items()] == truth
        assert [(*node, count) for node, count in counts_of(other).items()] == truth


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

"""Coverage: counted over all cells that there could be, as if each were listed, whatever was measured."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.trials.in_memory import public_table
from tasks.laws.laplace import laplace_quantile
from tasks.laws.law import LevelNoise
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tasks.mechanisms import MECHANISMS
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.uncertainty.intervals import margins_of, sum_margins
from tasks.validate import coverage
from tests.support.laws import gaussians
from tests.support.passes import noise_of
from tests.support.scales import try_scales

Areas = tuple[int, ...]

TWICE = MECHANISMS["inftda_reconciled"]


@dataclass(frozen=True)
class Small:
    """A small universe with records: per level every node, with those above it from the root down, and the true nodes."""

    tree: Tree
    chains: list[dict[Areas, list[Areas]]]
    truth: list[Frontier]
    true: list[Counter]


def tabled(nodes):
    """Return the counts of nodes by their areas."""
    return dict(zip(zip(*(areas.tolist() for areas in nodes.areas), strict=True), nodes.counts.tolist(), strict=True))


def drawn(draw, universes):
    """Draw a universe with records, scales, and noise by them."""
    made = draw(universes)
    leaves = made.leaves()
    records = draw(st.dictionaries(st.sampled_from(leaves), st.integers(1, 30), max_size=15))
    finest = np.array([made.areas(leaf) for leaf in records], dtype=np.int64).reshape(-1, len(made.tree.axes)).T
    table = public_table(made.tree, list(finest), np.array(list(records.values()), dtype=np.int64))
    levels = range(made.tree.depth + 1)
    chains = [{} for _ in levels]
    for leaf in leaves:
        chain = [made.areas(made.node(leaf, level)) for level in levels]
        for level in levels:
            chains[level][chain[level]] = chain[: level + 1]
    frontiers = [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)]
    sigma = draw(st.sampled_from([0.4, 3.0, 20.0]))
    sigmas = [draw(st.sampled_from([0.0, sigma])), *[sigma] * made.tree.depth]
    small = Small(made.tree, chains, frontiers, [Counter(tabled(nodes)) for nodes in frontiers])
    return small, sigmas, noise_of(draw(st.integers(0, 2**32))), table


def listed(cells):
    """Return the coverage of cells with a true and a released count, a low and a high, one after the other."""
    groups = defaultdict(list)
    for true, count, low, high in cells.values():
        named = "0" if true == 0 else "1" if true == 1 else "2 to 10" if true <= 10 else "more"
        selected = ["zeroed"] if true and not count else []
        for name in (named, "all", *selected):
            groups[name].append((low <= true <= high, high - low))
    means = {name: np.mean(of, axis=0).tolist() for name, of in groups.items()}
    nothing = [None, None]
    return {name: coverage.Covered(float(len(groups[name])), *means.get(name, nothing)) for name in coverage.GROUPS}


def check_same(ours, oracle):
    """Check that two ways to count come to the same."""
    assert ours.keys() == oracle.keys() == set(coverage.GROUPS)
    for name, of in oracle.items():
        got = ours[name]
        assert got.cells == of.cells, name
        assert (got.coverage is None) == (of.coverage is None), name
        if of.coverage is not None:
            assert (got.coverage, got.width) == pytest.approx((of.coverage, of.width)), name


@settings(max_examples=40)
@given(data=st.data(), steps=st.sampled_from([1, 4]))
def test_every_cell_counts_whether_it_was_measured_or_not(universes, data, steps):
    """Coverage and width are those of listing all cells, each with what its own noisy count and those above it say."""
    small, sigmas, sampler, table = drawn(data.draw, universes)
    tried = try_scales(table, TWICE, sigmas, sampler)
    margins = margins_of(gaussians(sigmas), 0.9)
    rounding = [steps] * len(sigmas)
    bounds = coverage.measured_bounds(small.tree, tried.measured, tried.released, margins, rounding)
    noisy = [tabled(Frontier(level, of.cells.areas, of.noisy)) for level, of in enumerate(tried.measured)]
    for level, ours in enumerate(coverage.level_coverages(small.tree, small.truth, bounds)):
        released, cells = tabled(tried.released[level]), {}
        for cell, chain in small.chains[level].items():
            above = [noisy[of][node] + margins[of].cap for of, node in enumerate(chain[:-1]) if node in noisy[of]]
            low, high, count = 0, max(min(above, default=2**62), 0), released.get(cell, 0)
            if cell in noisy[level]:
                low = min(max(noisy[level][cell] - margins[level].own, 0), count)
                high = max(min(max(noisy[level][cell] + margins[level].own, 0), high), count)
            cells[cell] = small.true[level][cell], count, low // steps * steps, -(-high // steps) * steps
        check_same(ours, listed(cells))


@settings(max_examples=40)
@given(data=st.data())
def test_sums_of_leaves_are_counted_by_how_many_leaves_they_have(universes, data):
    """Where all leaves are measured, every cell of every level has its count, or 0, and the margin of as many leaves."""
    small, sigmas, sampler, table = drawn(data.draw, universes)
    sigma = sigmas[-1]
    released = try_scales(table, MECHANISMS["gaussian"], sigmas, sampler).released
    bounds = [coverage.summed_bounds(small.tree, nodes, *gaussians([sigma]), 0.9) for nodes in released]
    leaves_of = [Counter(chain[level] for chain in small.chains[-1].values()) for level in range(len(sigmas))]
    for level, ours in enumerate(coverage.level_coverages(small.tree, small.truth, bounds)):
        counts, cells = tabled(released[level]), {}
        for cell in small.chains[level]:
            count = counts.get(cell, 0)
            margin = int(sum_margins(*gaussians([sigma]), np.array([leaves_of[level][cell]]), math.log(0.05))[0])
            cells[cell] = small.true[level][cell], count, max(count - margin, 0), max(count + margin, 0)
        check_same(ours, listed(cells))


@settings(max_examples=40)
@given(data=st.data(), threshold=st.integers(2, 12))
def test_leaves_below_a_threshold_count_less_than_it_and_the_noise(universes, data, threshold):
    """A leaf that is not released is covered up to the threshold; levels above state no intervals."""
    small, _, _, table = drawn(data.draw, universes)
    true, margin = table.levels[-1], laplace_quantile(1.5, math.log(0.05))
    rows = np.flatnonzero(true.true_counts >= threshold)
    depth = small.tree.depth
    released = Frontier(depth, tuple(areas[rows] for areas in true.areas), true.true_counts[rows])
    noise = LevelNoise(THRESHOLDED_LAPLACE, 1.5)
    bounds = [*[None] * depth, coverage.thresholded_bounds(small.tree, released, noise, threshold, 0.9)]
    *above, ours = coverage.level_coverages(small.tree, small.truth, bounds)
    assert above == [None] * depth
    counts = tabled(released)
    cells = {}
    for cell in small.chains[-1]:
        count = counts.get(cell, 0)
        low, high = (max(count - margin, 0), count + margin) if count else (0, threshold - 1 + margin)
        cells[cell] = small.true[-1][cell], count, low, high
    check_same(ours, listed(cells))


def test_universes_beyond_64_bits_are_counted(universe_of):
    """Of a hundred thousand areas on each of five axes, 10²⁵ cells are told by the node above them that was pruned."""
    paths = [(f"{area:05}",) for area in range(100_000)]
    made = universe_of([paths] * 5, range(5))
    table = public_table(made.tree, [np.array([7])] * 5, np.array([5]))
    tried = try_scales(table, TWICE, [0.0] * 6, noise_of(1))
    margins = margins_of(gaussians([0.0] * 6), 0.9)
    bounds = coverage.measured_bounds(made.tree, tried.measured, tried.released, margins, [1] * 6)
    true = [Frontier(level, of.areas, of.true_counts) for level, of in enumerate(table.levels)]
    *_, finest = coverage.level_coverages(made.tree, true, bounds)
    assert finest["all"].cells == pytest.approx(1e25)
    assert finest["2 to 10"] == coverage.Covered(1.0, 1.0, 0.0)
    assert finest["0"] == coverage.Covered(pytest.approx(1e25), 1.0, 0.0)

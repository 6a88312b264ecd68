"""Noise on leaves: its law, and attempts to refute (ε, δ) by what a histogram keeps.

Each test may raise a false alarm with a probability of at most 1e-6.
"""

import math

import numpy as np
import pytest
from scipy import stats

import tasks.noise.task
import tasks.noise.truth
from flows.mechanisms import MECHANISMS
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.table_sampler import table_noise
from tasks.laws.thresholded import Thresholded, thresholded_for, thresholded_laplace
from tasks.tree.axis import IntArray
from tasks.uncertainty.bounds import bounds_of_sums
from tests.support.passes import try_threshold
from tests.support.universe import Universe, universe_of

FALSE_ALARM = 1e-6
DRAWS = 20_000
FAR = 10_000  # records: so far above any threshold that every leaf is kept


def flat(areas: int) -> Universe:
    """Return a universe of two axes with so many areas each."""
    paths = [(f"{number:04d}",) for number in range(areas)]
    return universe_of([paths, paths], [0, 1])


def table_of(universe: Universe, occupied: int) -> SeenTable:
    """Return a table over a universe in which the first area of each axis has records, so many different ones."""
    zeros = np.zeros(occupied, dtype=np.int64)
    counts = np.arange(1, occupied + 1)
    return seen_table(universe.tree, [zeros, np.arange(occupied)], counts)


def laplace_fit(noise: IntArray, scale: float) -> float:
    """Return the p-value of the chi-square test that noise is discrete Laplace of a scale; tails are pooled."""
    q = math.exp(-1 / scale)
    edge = int(scale * math.log(len(noise) * (1 - q) / (1 + q) / 20))
    expected = [(1 - q) / (1 + q) * q ** abs(k) for k in range(-edge + 1, edge)]
    tail = q**edge / (1 + q)
    counted = np.bincount(np.clip(noise, -edge, edge) + edge, minlength=2 * edge + 1)
    return float(stats.chisquare(counted, len(noise) * np.array([tail, *expected, tail])).pvalue)


@pytest.mark.parametrize("scale", [0.7, 2.0, 25.0])
def test_the_noise_of_a_histogram_is_discrete_laplace(scale: float) -> None:
    """Far above the threshold the frequencies are those of the exact law, and with a tenth less noise the test fails."""

    def drawn(actual: float) -> IntArray:
        _, noisy = thresholded_laplace(np.full(DRAWS, FAR), actual, 40)
        assert len(noisy) == DRAWS
        return noisy - FAR

    assert laplace_fit(drawn(scale), scale) > FALSE_ALARM
    assert laplace_fit(drawn(0.9 * scale), scale) < FALSE_ALARM


def seen_at_least(count: int, threshold: int, scale: float) -> float:
    """Return a lower bound on the probability that a leaf of some records is kept."""
    rows, _ = thresholded_laplace(np.full(DRAWS, count), scale, threshold)
    return float(stats.beta.ppf(FALSE_ALARM, len(rows), DRAWS - len(rows) + 1)) if len(rows) else 0.0


@pytest.mark.parametrize("neighbours", ["substitution", "add_remove"])
@pytest.mark.parametrize("records", [1, 3])
def test_a_unit_alone_in_its_leaves_is_seen_no_oftener_than_delta(neighbours: str, records: int) -> None:
    """Of many leaves with one unit's records alone, no more are kept than the charge says; below the threshold it shows."""
    noise = thresholded_for(sensitivity_of(neighbours, records), 1.0, 0.1)
    assert seen_at_least(records, noise.threshold, noise.scale) <= noise.delta
    lower = noise.threshold - math.ceil(noise.scale)
    assert seen_at_least(records, lower, noise.scale) > noise.delta / (2 * records)
    assert seen_at_least(records, records, noise.scale) > noise.delta


def loss_at_least(noise: Thresholded, scale: float, moved: int) -> float:
    """Return a lower bound on ε, at the charge's δ, of whether a leaf of many records is told from one of fewer."""
    kept = [thresholded_laplace(np.full(DRAWS, count), scale, noise.threshold)[1] for count in (FAR, FAR - moved)]
    often, rarely = (int((noisy >= FAR).sum()) for noisy in kept)
    low = stats.beta.ppf(FALSE_ALARM / 2, often, DRAWS - often + 1)
    high = stats.beta.ppf(1 - FALSE_ALARM / 2, rarely + 1, DRAWS - rarely)
    return math.log((low - noise.delta) / high)


def test_two_tables_are_told_apart_no_better_than_epsilon() -> None:
    """A unit's records in one leaf or not show no more than ε; a quarter of the noise shows more."""
    noise = thresholded_for(sensitivity_of("add_remove", 2), 1.0, 1e-6)
    assert loss_at_least(noise, noise.scale, moved=2) <= noise.epsilon
    assert loss_at_least(noise, noise.scale / 4, moved=2) > noise.epsilon


@pytest.mark.parametrize("sampler", [discrete_gaussian, table_noise])
def test_every_leaf_bears_gaussian_noise_whatever_its_true_count(sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole universe, the noise of leaves with records and of those without has the law; one left out would show."""
    sigma, drawn = 3.0, list[IntArray]()
    for module in (tasks.noise.task, tasks.noise.truth):
        monkeypatch.setattr(module, "CHUNK_CELLS", 1000)

    def noted(true_counts: IntArray, scale: float) -> IntArray:
        drawn.append(true_counts)
        return sampler(true_counts, scale)

    finest = try_scales(table_of(flat(120), 120), MECHANISMS["gaussian"], [sigma] * 3, noted).released[-1]
    released = np.zeros((120, 120), dtype=np.int64)
    released[finest.areas] = finest.counts
    true = np.zeros((120, 120), dtype=np.int64)
    true[0, :] = np.arange(1, 121)
    assert sum(map(len, drawn)) == released.size
    assert len(drawn) > 10
    for noise in ((released - true)[0], (released - true)[1:].ravel()):
        assert gaussian_fit(noise, sigma) > FALSE_ALARM
    skipped = np.where(true, released - true, 0)[:40].ravel()  # as if leaves without records were left out
    assert gaussian_fit(skipped, sigma) < FALSE_ALARM


def gaussian_fit(noise: IntArray, sigma: float) -> float:
    """Return the p-value of the chi-square test that noise is discrete Gaussian, in runs, beyond 1.5 σ pooled."""
    k = np.arange(-60, 61)
    law = np.exp(-(k**2) / (2 * sigma**2))
    edge = math.ceil(1.5 * sigma)
    expected = np.bincount(np.clip(k, -edge, edge) + edge, law / law.sum() * len(noise))
    return float(
        stats.chisquare(np.bincount(np.clip(noise, -edge, edge) + edge, minlength=2 * edge + 1), expected).pvalue
    )


def test_a_histogram_never_shows_a_leaf_without_records() -> None:
    """Over many histograms with next to no threshold, no leaf is ever kept that has no record."""
    table = table_of(flat(60), 30)
    noise = Thresholded(8.0, 2, 1e9, 1.0)
    seen: set[tuple[int, int]] = set()
    for _ in range(60):
        finest = try_threshold(table, noise, "add_remove", 1, thresholded_laplace).released[-1]
        seen |= set(zip(*(areas.tolist() for areas in finest.areas), strict=True))
    assert seen == {(0, area) for area in range(30)}


def test_every_cell_of_a_level_keeps_within_its_bound_as_often_as_is_said() -> None:
    """Over many releases the cells of each level, also those without a row, are within the bound in 95 of 100 or more."""
    paths = [(str(number // 3), str(number)) for number in range(6)]
    tree, sigma, runs = universe_of([paths, paths], [0, 1, 0, 1]).tree, 3.0, 400
    table = seen_table(tree, [np.arange(6), np.arange(6)], np.arange(6) * 10 + 1)
    widest = [36, 18, 9, 3, 1]
    bounds = bounds_of_sums([LevelNoise(GAUSSIAN, sigma, w) for w in widest], [1, 2, 4, 12, 36])
    kept, furthest = np.zeros(5, dtype=int), np.zeros(5)
    for _ in range(runs):
        frontiers = try_scales(table, MECHANISMS["gaussian"], [sigma] * 5, table_noise).released
        for level, (true, released) in enumerate(zip(table.levels, frontiers, strict=True)):
            error = np.zeros(tree.sizes(level), dtype=np.int64)
            error[released.areas] = released.counts
            error[true.areas] -= true.true_counts
            kept[level] += np.abs(error).max() <= bounds[level]
            furthest[level] = max(furthest[level], np.abs(error).max())
    assert (stats.binom.cdf(kept, runs, 0.95) > FALSE_ALARM).all()
    assert (furthest > 0.8 * np.array(bounds)).all()  # it is no empty bound

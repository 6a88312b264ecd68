"""What a release says of its rows is so, although cells have become rows because of their noise: intervals, marks, shares, bounds."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import binom

from flows.mechanisms import MECHANISMS
from flows.trials.in_memory import SeenTable, Trial, seen_table, try_scales
from storage.releases.terms import SIGNAL_RATE
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.publish.published_levels import ReleasedLevels
from tasks.tree.frontier import Frontier
from tasks.uncertainty.bounds import CONFIDENCE as BOUND_CONFIDENCE
from tasks.uncertainty.intervals import margins_of
from tasks.uncertainty.noise_rows import RISK
from tasks.uncertainty.shares import KNOWN_WITHIN
from tasks.validate.coverage import false_share, measured_bounds, rows_covered
from tasks.validate.distances import level_errors
from tests.support.seeded_noise import sampler_of

RUNS, CONFIDENCE = 30, 0.9
ROUNDING = 0.0005  # of a stated share
LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
MANY_ROWS, MANY_MARKS = 30, 5  # of a level; fewer say little about a share
CASES = [  # mechanism, law, scale of the noise, records
    ("inftda", "gaussian", 4.0),
    pytest.param("inftda", "laplace", 3.0, marks=pytest.mark.thorough),
    ("inftda_reconciled", "gaussian", 4.0),
    pytest.param("inftda_lenient", "gaussian", 4.0, marks=pytest.mark.thorough),
    pytest.param("inftda_lenient", "laplace", 1.0, marks=pytest.mark.thorough),
    pytest.param("inftda_shrunk", "gaussian", 4.0, marks=pytest.mark.thorough),
    ("inftda_shrunk", "laplace", 3.0),
    pytest.param("gaussian", "gaussian", 2.0, marks=pytest.mark.thorough),
    ("gaussian", "laplace", 1.0),
]


def survey(universe_of: Callable) -> SeenTable:
    """Return 3,000 trips between 256 zones in two levels, of which few are large: three rows of four are noise."""
    codes = "abcdefghijklmnop"
    zones = [(one, one + two) for one in codes for two in codes]
    random, number = np.random.default_rng(5), len(zones)
    size = random.pareto(1.0, number) + 0.1
    ends = [random.choice(number, 3000, p=size / size.sum()) for _ in range(2)]
    pairs, trips = np.unique(ends[0] * number + ends[1], return_counts=True)
    return seen_table(universe_of([zones, zones], [0, 1, 0, 1]).tree, np.divmod(pairs, number), trips)


def missed(table: SeenTable, trial: Trial) -> list[float | None]:
    """Return, by level, the share of rows whose published interval does not hold the true count; None where rows are few."""
    published, shares = ReleasedLevels(trial.job), list[float | None]()
    for level, nodes in enumerate(table.levels):
        rows = published.rows(level)
        true = Frontier(level, nodes.areas, nodes.true_counts)
        found = rows_covered(table.tree, true, rows.areas, *rows.bounds[:2])
        shares.append(1 - (found.coverage or 0.0) if found and found.cells >= MANY_ROWS else None)
    return shares


def missed_by_fixed(table: SeenTable, trial: Trial, noises: Sequence[LevelNoise]) -> list[float | None]:
    """Return the same by the intervals of cells that are fixed beforehand."""
    margins = margins_of(noises, CONFIDENCE)
    bounds = measured_bounds(table.tree, trial.measured, trial.released, margins, [1] * len(noises))
    shares = list[float | None]()
    for bound, nodes in zip(bounds, table.levels, strict=True):
        kept = bound.counts != 0
        true = Frontier(bound.level, nodes.areas, nodes.true_counts)
        areas = [of_axis[kept] for of_axis in bound.areas]
        found = rows_covered(table.tree, true, areas, bound.low[kept], bound.high[kept])
        shares.append(1 - (found.coverage or 0.0) if found and found.cells >= MANY_ROWS else None)
    return shares


def means(shares: Sequence[Sequence[float | None]]) -> dict[int, tuple[float, float]]:
    """Return, by level that has many rows in every run, the mean share and its standard error."""
    of_levels = {
        level: [share for share in of if share is not None] for level, of in enumerate(zip(*shares, strict=True))
    }
    return {level: (fmean(of), stdev(of) / len(of) ** 0.5) for level, of in of_levels.items() if len(of) == RUNS}


@pytest.fixture(scope="module")
def tried(universe_of: Callable) -> Callable[[str, str, float], tuple[SeenTable, list[Trial]]]:
    """Return the runs of a mechanism on the survey; every test looks at the same ones."""
    table = survey(universe_of)

    @lru_cache(maxsize=1)
    def runs(mechanism: str, law: str, scale: float) -> tuple[SeenTable, list[Trial]]:
        scales = [0.0, *[scale] * table.tree.depth]
        return table, [
            try_scales(table, MECHANISMS[mechanism], scales, sampler_of(law, 9, run), law=LAWS[law])
            for run in range(RUNS)
        ]

    return runs


@pytest.mark.parametrize(("mechanism", "law", "scale"), CASES)
def test_rows_are_covered_as_is_promised(tried, mechanism, law, scale):
    """On every level the mean share of rows that are not covered is at most α; fixed cells' intervals leave out more."""
    table, trials = tried(mechanism, law, scale)
    noises = [LevelNoise(LAWS[law], of) if of else NO_NOISE for of in [0.0, *[scale] * table.tree.depth]]
    found = means([missed(table, trial) for trial in trials])
    assert len(found) >= 2
    assert {level: of for level, of in found.items() if of[0] > 1 - CONFIDENCE + 2 * of[1]} == {}
    if mechanism not in {"gaussian", "inftda_shrunk"}:  # whose rows are not chosen by their own noise alone
        fixed = means([missed_by_fixed(table, trial, noises) for trial in trials])
        assert any(mean > 1 - CONFIDENCE + 5 * error for mean, error in fixed.values())


@pytest.mark.parametrize(("mechanism", "law", "scale"), CASES)
def test_rows_are_noise_as_is_said(tried, mechanism, law, scale):
    """Few marked rows are noise, no level has more noise rows than it is said to have at most, and no error is beyond its bound.

    The last two may fail with a stated risk; by chance alone they fail more often than is allowed here once in ten thousand times.
    """
    table, trials = tried(mechanism, law, scale)
    false, more, beyond, looked = list[list[float | None]](), 0, 0, 0
    for trial in trials:
        published, of_levels = ReleasedLevels(trial.job), list[float | None]()
        for level, nodes in enumerate(table.levels):
            rows, true = published.rows(level), Frontier(level, nodes.areas, nodes.true_counts)
            shares, noise = published.shares(level), false_share(table.tree, true, rows.areas)
            assert shares is not None
            if shares.noise is not None:
                assert shares.noise <= shares.noise_at_most
                assert abs(shares.noise - (noise or 0.0)) <= KNOWN_WITHIN + ROUNDING
            more, looked = more + ((noise or 0.0) > shares.noise_at_most), looked + 1
            marked = [areas[rows.signal] for areas in rows.areas]
            of_levels.append(false_share(table.tree, true, marked) if rows.signal.sum() >= MANY_MARKS else None)
        false.append(of_levels)
        bounds = [known.bound for known in published.known_after()]
        errors = [
            level_errors(
                table.tree, Frontier(level, nodes.areas, nodes.true_counts), trial.released[level]
            ).max_absolute
            for level, nodes in enumerate(table.levels)
        ]
        beyond += any(bound is not None and error > bound for error, bound in zip(errors, bounds, strict=True))
    found = means(false)
    assert found
    assert {level: of for level, of in found.items() if of[0] > SIGNAL_RATE + 2 * of[1]} == {}
    assert more <= binom.isf(1e-4, looked, RISK)
    assert beyond <= binom.isf(1e-4, RUNS, 1 - BOUND_CONFIDENCE)

"""Intervals of rows keep their promise, although cells have become rows because of their noise; those of fixed cells do not."""

from collections.abc import Callable, Sequence
from itertools import count
from statistics import fmean, stdev

import numpy as np
import pytest

from flows.mechanisms import MECHANISMS
from flows.trials.in_memory import SeenTable, Trial, seen_table, try_scales
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise, Sampler
from tasks.publish.published_levels import ReleasedLevels
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.validate.coverage import measured_bounds, rows_covered
from tasks.validate.intervals import margins_of

RUNS, CONFIDENCE = 30, 0.9
LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
MANY_ROWS = 30  # of a level; fewer say little about a share
CASES = [  # mechanism, law, scale of the noise, records
    ("inftda", "gaussian", 4.0),
    ("inftda", "laplace", 3.0),
    ("inftda_reconciled", "gaussian", 4.0),
    ("inftda_lenient", "gaussian", 4.0),
    ("inftda_lenient", "laplace", 1.0),
    ("gaussian", "gaussian", 2.0),
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


def sampler_of(law: str, run: int) -> Sampler:
    """Return a sampler that adds noise of a law, drawn from a list of its probabilities."""
    calls = count()

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        values = np.arange(-150, 151)
        logs = -((values / scale) ** 2) / 2 if law == "gaussian" else -np.abs(values) / scale
        steps = np.cumsum(np.exp(logs))
        random = np.random.default_rng([9, run, next(calls)])
        return true_counts + values[np.searchsorted(steps, random.random(len(true_counts)) * steps[-1])]

    return sample


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


@pytest.mark.parametrize(("mechanism", "law", "scale"), CASES)
def test_rows_are_covered_as_is_promised(universe_of, mechanism, law, scale):
    """On every level the mean share of rows that are not covered is at most α; fixed cells' intervals leave out more."""
    table = survey(universe_of)
    scales = [0.0, *[scale] * table.tree.depth]
    noises = [LevelNoise(LAWS[law], of) if of else NO_NOISE for of in scales]
    tried = [
        try_scales(table, MECHANISMS[mechanism], scales, sampler_of(law, run), law=LAWS[law]) for run in range(RUNS)
    ]
    found = means([missed(table, trial) for trial in tried])
    assert len(found) >= 2
    assert {level: of for level, of in found.items() if of[0] > 1 - CONFIDENCE + 2 * of[1]} == {}
    if mechanism != "gaussian":
        fixed = means([missed_by_fixed(table, trial, noises) for trial in tried])
        assert any(mean > 1 - CONFIDENCE + 5 * error for mean, error in fixed.values())

"""Intervals keep their promise for cells that were fixed before any noise was drawn, and would not if they were narrower."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from flows.mechanisms import MECHANISMS
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.tree.frontier import Frontier
from tasks.uncertainty.intervals import margins_of
from tasks.validate.coverage import TRUE_COUNTS, level_coverages, measured_bounds
from tests.support.seeded_noise import least_share, sampler_of

COPIES = 1000  # of a small set, side by side below a level that is exact: as many independent runs
CONFIDENCE = 0.9
SCALES = [0.0, 0.0, *[5.0] * 6]
LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
NARROWER = {"gaussian": 0.7, "laplace": 0.5}  # margins that do not cover; the tails of Laplace noise are longer


def made_up(universe_of: Callable) -> SeenTable:
    """Return copies of trips between 27 areas in three levels of three, with few and many people at many levels."""
    areas = [(a, a + b, a + b + c) for a in "123" for b in "123" for c in "123"]
    copies = [(f"{copy:04}",) for copy in range(COPIES)]
    tree = universe_of([copies, areas, areas], [0, 2, 1, 2, 1, 2, 1]).tree
    random = np.random.default_rng(7)
    pairs = random.choice(27**2, 200, replace=False)
    people = np.ceil(random.pareto(1.0, 200)).astype(np.int64)
    ends = [np.tile(end, COPIES) for end in np.divmod(pairs, 27)]
    return seen_table(tree, [np.repeat(np.arange(COPIES), 200), *ends], np.tile(people, COPIES))


def coverages(table: SeenTable, mechanism: str, law: str, fudge: float) -> dict[tuple[int, str], float]:
    """Return, by noisy level and true count, the share that is covered, with margins that are fudged."""
    noises = [LevelNoise(LAWS[law], scale) if scale else NO_NOISE for scale in SCALES]
    true = [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)]
    margins = [
        replace(of, own=round(of.own * fudge), cap=round(of.cap * fudge)) for of in margins_of(noises, CONFIDENCE)
    ]
    tried = try_scales(table, MECHANISMS[mechanism], SCALES, sampler_of(law, 8, first=SCALES.count(0.0)), law=LAWS[law])
    bounds = measured_bounds(table.tree, tried.measured, tried.released, margins, [1] * len(SCALES))
    shares = {}
    for level, covered in enumerate(level_coverages(table.tree, true, bounds)):
        assert covered is not None
        assert covered["all"].cells == table.tree.possible_cells(level)
        for group in TRUE_COUNTS:
            if SCALES[level] and covered[group].coverage is not None:
                shares[level, group] = covered[group].coverage
    return shares


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [
        *(("inftda", "gaussian"), ("inftda_reconciled", "laplace"), ("inftda_shrunk", "laplace")),
        *(pytest.param("inftda_lenient", law, marks=pytest.mark.thorough) for law in LAWS),
        pytest.param("inftda", "laplace", marks=pytest.mark.thorough),
        pytest.param("inftda_reconciled", "gaussian", marks=pytest.mark.thorough),
        pytest.param("inftda_shrunk", "gaussian", marks=pytest.mark.thorough),
    ],
)
def test_each_level_and_true_count_is_covered_as_is_promised(universe_of, mechanism, law):
    """By level and true count, coverage is not below nine in ten by more than chance; it would be with narrower margins."""
    table = made_up(universe_of)
    kept, fudged = (coverages(table, mechanism, law, fudge) for fudge in (1.0, NARROWER[law]))
    assert {group for _, group in kept} == set(TRUE_COUNTS)
    assert len(kept) >= 15
    least = least_share(len(kept), COPIES, CONFIDENCE)
    assert 0.83 < least < CONFIDENCE
    assert {of: share for of, share in kept.items() if share < least} == {}
    assert len({of for of, share in fudged.items() if share < least}) >= 6

"""Of all measurements that refine a level or view, the one with the least noise there is its source."""

import pytest

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.tree.views import level_view
from tasks.uncertainty.sources import best_source

ZONES = [(district, district + zone) for district in "AB" for zone in "1234"]


@pytest.mark.parametrize(
    ("scale", "number", "variance"),
    [
        (6.0, 1, 36.0),  # the districts themselves have less noise than four zones each of σ = 4
        (12.0, 2, 64.0),
        (8.0, 1, 64.0),  # of equals the first
    ],
)
def test_the_source_has_the_least_variance(universe_of, scale, number, variance):
    """The districts are measured, and so are their zones with a scale of 4, which are added up in fours."""
    tree = universe_of([ZONES], [0, 0]).tree
    measured = {
        1: (level_view(tree, 1), LevelNoise(GAUSSIAN, scale)),
        2: (level_view(tree, 2), LevelNoise(GAUSSIAN, 4.0)),
    }
    found, noise = best_source(level_view(tree, 1), measured, tree)
    assert (found, noise.variance) == (number, variance)
    assert best_source(level_view(tree, 2), measured, tree)[0] == 2

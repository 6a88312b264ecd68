"""Draws a synthetic travel survey of a city at random. Most pairs of zones have no trip, because few people are asked."""

import numpy as np

from tasks.synthesize.areas import Country
from tasks.synthesize.country import Clusters, draw_clusters

AREAS = {"sector": 5, "district": 25, "zone": 150}
DIGITS = (1, 1, 2)
SPREADS = (8.0, 3.0, 1.0)  # km
STAYING = 0.2
TRIPS = 45_000


def draw_survey(*, generator: np.random.Generator) -> Country:
    """Return a city of 150 zones, and the trips of 45,000 respondents, one each.

    Args:
        generator: the random generator; equal states draw equal surveys.
    """
    return draw_clusters(Clusters(AREAS, DIGITS, SPREADS, STAYING), TRIPS, generator)

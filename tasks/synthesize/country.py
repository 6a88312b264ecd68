"""Draws a synthetic country and its commuters at random, by a gravity model over clustered points, or a travel survey that asks few people."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from tasks.synthesize.areas import Country, at_least, draw_parents, extend_codes
from tasks.tree.axis import FloatArray

LEVELS = ("region", "province", "municipality")
DIGITS = (2, 2, 3)  # the least number of digits that a level adds to the code of the area above
SPREADS = (200.0, 40.0, 10.0)  # km: standard deviation, per coordinate, of an area around the one that contains it
CHILDREN_SIGMA = 0.5  # σ of the lognormal weights by which parents get their children
SIZE_SIGMA = 1.2  # σ of the lognormal sizes: the largest of 200 municipalities has about 20 times the median size
SOFTENING = 2.0  # km: d0 of the gravity model, which bounds the attraction of near places
STAYING = 0.4  # the share of people who work in the municipality where they live


def draw_country(
    *,
    regions: int = 4,
    provinces: int = 20,
    municipalities: int = 200,
    people: int = 100_000,
    generator: np.random.Generator,
) -> Country:
    """Return a country with exactly the given numbers of areas per level and of commuters.

    Holds all pairs of municipalities in memory, at a few times 8 bytes each, so use hundreds or a few thousand.

    Args:
        regions: at least one.
        provinces: at least one per region.
        municipalities: at least one per province.
        people: at least one; each lives in one municipality and works in one.
    Raises:
        ValueError: an argument is below its least value.
    """
    areas = (regions, provinces, municipalities)
    at_least("regions", regions, 1, "1")
    at_least("provinces", provinces, regions, f"regions, {regions}")
    at_least("municipalities", municipalities, provinces, f"provinces, {provinces}")
    at_least("people", people, 1, "1")

    sizes = dict(zip(LEVELS, areas, strict=True))
    return draw_clusters(sizes, DIGITS, SPREADS, STAYING, people=people, generator=generator)


def draw_clusters(
    areas: Mapping[str, int],
    digits: Sequence[int],
    spreads: Sequence[float],
    staying: float,
    *,
    people: int,
    generator: np.random.Generator,
) -> Country:
    """Return areas around those that contain them, and people, at least one, who go from place to place by a gravity model.

    Args:
        areas: how many there are of each level, coarse to fine.
        digits: the least number of digits that each level adds to the code of the area above.
        spreads: km, per level: the standard deviation, per coordinate, of an area around the one that contains it.
        staying: the share of people who stay in the finest area where they live.
    """
    path = [pl.Series("", [""])]  # of codes, from everything down to the level
    places = np.zeros((1, 2))
    for (level, count), more_digits, spread in zip(areas.items(), digits, spreads, strict=True):
        parent = draw_parents(len(places), count, CHILDREN_SIGMA, generator)
        path = extend_codes(path, level, parent, more_digits)
        places = places[parent] + generator.normal(scale=spread, size=(count, 2))
    sizes = generator.lognormal(sigma=SIZE_SIGMA, size=len(places))

    flows = generator.multinomial(people, _gravity(sizes, places, staying).ravel())
    pairs = np.flatnonzero(flows)
    home, work = np.divmod(pairs, len(places))
    trips = {"home": path[-1].gather(home), "work": path[-1].gather(work), "people": flows[pairs].astype(np.int64)}
    return Country(pl.DataFrame(path[1:]), pl.DataFrame(trips), places)


def _gravity(sizes: FloatArray, places: FloatArray, staying: float) -> FloatArray:
    r"""Return the probability of each pair of home and work.

    .. math:: p_{ij} \propto s_i s_j / (d_0 + d_{ij})^2 \quad (i \ne j), \qquad p_{ii} \propto s_i

    The pairs p_ii have the share `staying` together; with one place, they have all of it.

    Args:
        sizes: s, shape (places,), float64, > 0.
        places: shape (places, 2), float64, km.
        staying: in [0, 1].
    Returns:
        p, shape (places, places), float64, home by work, sums to 1.
    """
    east, north = places.T
    distance = np.hypot(np.subtract.outer(east, east), np.subtract.outer(north, north))
    p: FloatArray = np.multiply.outer(sizes, sizes) / (SOFTENING + distance) ** 2
    np.fill_diagonal(p, 0.0)
    leaving = 1 - staying if len(sizes) > 1 else 0.0
    p *= leaving / max(p.sum(), np.finfo(np.float64).tiny)
    np.fill_diagonal(p, (1 - leaving) * sizes / sizes.sum())
    return p


SURVEY_AREAS = {"sector": 5, "district": 25, "zone": 150}
SURVEY_DIGITS = (1, 1, 2)
SURVEY_SPREADS = (8.0, 3.0, 1.0)  # km
SURVEY_STAYING = 0.2
SURVEY_TRIPS = 45_000


def draw_survey(*, generator: np.random.Generator) -> Country:
    """Return a city of 150 zones, and the trips of 45,000 respondents, one each."""
    shape = SURVEY_AREAS, SURVEY_DIGITS, SURVEY_SPREADS, SURVEY_STAYING
    return draw_clusters(*shape, people=SURVEY_TRIPS, generator=generator)

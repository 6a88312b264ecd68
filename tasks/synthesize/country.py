"""A country that does not exist, and its commuters: a gravity model over clustered points, drawn at random."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

FloatArray = NDArray[np.float64]

LEVELS = ("region", "province", "municipality")
DIGITS = (2, 2, 3)  # that a level adds to the code of the area above, at the least
SPREADS = (200.0, 40.0, 10.0)  # km: standard deviation, per coordinate, of an area around the one that holds it
CHILDREN_SIGMA = 0.5  # of the lognormal weights by which parents get their children
SIZE_SIGMA = 1.2  # of the lognormal sizes: among 200 municipalities the largest has some 20 times the median
SOFTENING = 2.0  # km: d0 of the gravity model, which keeps neighbours from drawing without bound
STAYING = 0.4  # share of people who work in the municipality in which they live

README = """\
# A made-up country

**Synthetic data.** This country does not exist, and no person is in these tables: the {regions} regions, {provinces}
provinces and {municipalities} municipalities of `codebook.csv` and the {people} commuters of `trips.csv` were drawn at
random by Trellis (`tasks/synthesize/country.py`), from a gravity model and not from any survey, register or census.
They show how Trellis works and say nothing about any place; a code that resembles an official one does so by chance.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Country:
    """A made-up country.

    Attributes:
        codebook: a row per municipality; text columns region, province and municipality, sorted by all of them.
        trips: a row per pair with people; text columns home and work (codes of municipalities) and people, int64,
            >= 1; sorted by home and work.
    """

    codebook: pl.DataFrame
    trips: pl.DataFrame


def draw_country(
    *,
    regions: int = 4,
    provinces: int = 20,
    municipalities: int = 200,
    people: int = 100_000,
    generator: np.random.Generator,
) -> Country:
    """Return a country with exactly so many areas per level and exactly so many commuters.

    All pairs of municipalities are in memory at once, a few times 8 bytes each: meant for hundreds or thousands.

    Args:
        regions: at least one.
        provinces: at least one per region.
        municipalities: at least one per province.
        people: at least one; each lives in one municipality and works in one.
        generator: whence everything is drawn; equal states draw equal countries.
    Raises:
        ValueError: an argument is less than that.
    """
    areas = (regions, provinces, municipalities)
    _at_least("regions", regions, 1, "1")
    _at_least("provinces", provinces, regions, f"regions, {regions}")
    _at_least("municipalities", municipalities, provinces, f"provinces, {provinces}")
    _at_least("people", people, 1, "1")

    path = [pl.Series("country", [""])]  # of codes, from the country down to the level
    places = np.zeros((1, 2))
    for level, count, digits, spread in zip(LEVELS, areas, DIGITS, SPREADS, strict=True):
        parent = _draw_parents(len(places), count, generator)
        path = [codes.gather(parent) for codes in path]
        path.append((path[-1] + _numbers_within(parent, digits)).alias(level))
        places = places[parent] + generator.normal(scale=spread, size=(count, 2))
    sizes = generator.lognormal(sigma=SIZE_SIGMA, size=municipalities)

    flows = generator.multinomial(people, _gravity(sizes, places).ravel())
    pairs = np.flatnonzero(flows)
    home, work = np.divmod(pairs, municipalities)
    trips = {"home": path[-1].gather(home), "work": path[-1].gather(work), "people": flows[pairs].astype(np.int64)}
    return Country(pl.DataFrame(path[1:]), pl.DataFrame(trips))


def write_country(country: Country, folder: Path) -> None:
    """Write `codebook.csv`, `trips.csv`, and a `README.md` that says that they are made up."""
    folder.mkdir(parents=True, exist_ok=True)
    country.codebook.write_csv(folder / "codebook.csv")
    country.trips.write_csv(folder / "trips.csv")
    regions, provinces, municipalities = (f"{country.codebook[level].n_unique():,}" for level in LEVELS)
    people = f"{country.trips['people'].sum():,}"
    readme = README.format(regions=regions, provinces=provinces, municipalities=municipalities, people=people)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def _at_least(field: str, value: int, least: int, rule: str) -> None:
    if value < least:
        raise ValueError(f"{field} must be >= {rule}, got {value}.")


def _draw_parents(parents: int, children: int, generator: np.random.Generator) -> IntArray:
    """Return the parent of each child, ascending: one child each, the others by chance to the favoured."""
    favour = generator.lognormal(sigma=CHILDREN_SIGMA, size=parents)
    others = generator.multinomial(children - parents, favour / favour.sum())
    return np.repeat(np.arange(parents, dtype=np.int64), 1 + others)


def _numbers_within(parent: IntArray, digits: int) -> pl.Series:
    """Return the number of each child among its siblings, from 1, as text of one width: `001`, `002`, …"""
    numbers = np.arange(1, len(parent) + 1) - np.searchsorted(parent, parent)
    width = max(digits, len(str(numbers.max())))
    return pl.Series(numbers).cast(pl.String).str.zfill(width)


def _gravity(sizes: FloatArray, places: FloatArray) -> FloatArray:
    r"""Return the probability of each pair of home and work.

    .. math:: p_{ij} \propto s_i s_j / (d_0 + d_{ij})^2 \quad (i \ne j), \qquad p_{ii} \propto s_i

    The pairs p_ii have the share `STAYING` together, and all of it where there is but one place.

    Args:
        sizes: s, shape (places,), float64, > 0.
        places: shape (places, 2), float64, km.
    Returns:
        p, shape (places, places), float64, home by work, sums to 1.
    """
    east, north = places.T
    distance = np.hypot(np.subtract.outer(east, east), np.subtract.outer(north, north))
    p: FloatArray = np.multiply.outer(sizes, sizes) / (SOFTENING + distance) ** 2
    np.fill_diagonal(p, 0.0)
    leaving = 1 - STAYING if len(sizes) > 1 else 0.0
    p *= leaving / max(p.sum(), np.finfo(np.float64).tiny)
    np.fill_diagonal(p, (1 - leaving) * sizes / sizes.sum())
    return p

"""Draws groups of records at random: households of a made-up census, and the pickups of a made-up city's taxis."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tasks.tree.axis import IntArray

# of households with 1 to 6 people, as in a census of the United States
SHARES = (0.267, 0.328, 0.161, 0.134, 0.065, 0.026)
SHARE_ABOVE = 0.019  # with 7 and more
RATIO = 0.45  # of the households of a size above 7 to those with one person fewer
TILTS = (0.06, 0.08)  # how much a person more counts in a state, and in a county: σ of the exponent
SIZES_SIGMA = 1.45  # σ of the lognormal sizes of counties
LEAST_OUTLIER = 10  # people
OWNED = np.array(
    [0.3, 0.5, 0.7, 0.68, 0.7, 0.65]
)  # of the addresses with 0, 1, 2, 3, 4, and 5 and more people, the share that is not rented
EMPTY = 0.1  # addresses at which nobody lives, for each household


@dataclass(frozen=True, slots=True, eq=False)
class Households:
    """The tables of a made-up census.

    Attributes:
        codebook: text columns state and county, a row per county, sorted.
        homes: text columns address, county and tenure, and people, int64, >= 1; a row per household, sorted by address.
        addresses: text columns address, county and tenure, a row per address, those of no household too, sorted by address.
    """

    codebook: pl.DataFrame
    homes: pl.DataFrame
    addresses: pl.DataFrame

    def people(self) -> pl.DataFrame:
        """Return text columns address, county and tenure, a row per person."""
        return self.homes.select(pl.exclude("people").repeat_by("people").explode())


def draw_households(
    *, states: int = 6, counties: int = 40, households: int = 20_000, outliers: int = 5, generator: np.random.Generator
) -> Households:
    """Return a country whose households have one to seven people for the most part, and a few homes with up to a thousand.

    Args:
        states: how many; likewise `counties`, at least one a state, `households`, and `outliers`, homes besides with 10 to 1,000 people.
    """
    of_state = states_of_counties(states, counties)
    sizes = draw_sizes(of_state, households, outliers, 1_000, generator)
    codebook = codes_of(of_state)
    county, size = np.nonzero(sizes)
    often = sizes[county, size]
    county, size = np.repeat(county, often), np.repeat(size + 1, often)
    vacant = np.sort(generator.choice(county, round(EMPTY * len(county)))) if len(county) else county
    everywhere, people = np.concatenate((county, vacant)), np.concatenate((size, np.zeros_like(vacant)))
    mixed = generator.permutation(len(everywhere))
    order = mixed[np.argsort(everywhere[mixed], kind="stable")]
    digits = len(str(len(order)))
    table = pl.DataFrame(
        {"county": codebook["county"].gather(everywhere[order]), "people": people[order]}
    ).with_columns(address=pl.int_range(1, pl.len() + 1).cast(pl.String).str.zfill(digits))
    is_own = generator.random(len(order)) < OWNED[table["people"].clip(upper_bound=len(OWNED) - 1)]
    table = table.select("address", "county", pl.Series("tenure", np.where(is_own, "own", "rent")), "people")
    return Households(codebook, table.filter(pl.col("people") > 0), table.drop("people"))


def states_of_counties(states: int, counties: int) -> IntArray:
    """Return the state of each county, shape (counties,), int64, ascending: every state has as many, or one more."""
    return np.arange(counties) * states // counties


def _padded(numbers: IntArray, most: int) -> pl.Series:
    """Return codes for numbers from 0 to `most` - 1: text from 1 on, with zeros in front, as long as that of `most`."""
    return pl.Series(numbers + 1).cast(pl.String).str.zfill(len(str(most)))


def codes_of(of_state: IntArray) -> pl.DataFrame:
    """Return the codes of the states and counties, text, a row per county."""
    within = np.arange(len(of_state)) - np.searchsorted(of_state, of_state)
    state, county = (_padded(of, int(of.max()) + 1) for of in (of_state, within))
    return pl.DataFrame({"state": state, "county": state + county})


def draw_sizes(
    of_state: IntArray, households: int, outliers: int, largest: int, generator: np.random.Generator
) -> IntArray:
    r"""Return how many households of each size there are in each county, shape (counties, largest), int64.

    .. math:: p_{cs} \propto b_s \, e^{(\tau_{\text{state}} + \tau_c) s}

    where b are the shares of the whole country. Of the outliers, those with more people than `largest` count there.

    Args:
        of_state: the state of each county, shape (counties,), int64.
        households: how many there are, and `outliers` more, with 10 to 1,000 people.
        largest: the last size, "or more".
    """
    counties = len(of_state)
    weights = generator.lognormal(sigma=SIZES_SIGMA, size=counties)
    tilt = generator.normal(0, TILTS[0], of_state.max() + 1)[of_state] + generator.normal(0, TILTS[1], counties)
    people = np.arange(1, max(largest, len(SHARES) + 1) + 1)
    above = SHARE_ABOVE * (1 - RATIO) * RATIO ** np.arange(len(people) - len(SHARES), dtype=np.float64)
    base = np.concatenate((SHARES, above))
    in_county = generator.multinomial(households, weights / weights.sum())
    sizes = np.zeros((counties, len(people)), dtype=np.int64)
    for county in range(counties):  # one law each, and memory for one of them
        p = base * np.exp(np.minimum(tilt[county], -0.9 * np.log(RATIO)) * people)
        sizes[county] = generator.multinomial(in_county[county], p / p.sum())
    np.add.at(
        sizes,
        (
            generator.integers(0, counties, outliers),
            np.minimum(generator.integers(LEAST_OUTLIER, 1_001, outliers), len(people)) - 1,
        ),
        1,
    )
    sizes[:, largest - 1] += sizes[:, largest:].sum(axis=1)
    return np.ascontiguousarray(sizes[:, :largest])


ACTIVITY_SIGMA = 0.5  # σ of the lognormal number of pickups of a taxi
ZONES_SIGMA = 1.3  # σ of the lognormal popularity of zones


@dataclass(frozen=True, slots=True, eq=False)
class Taxis:
    """The tables of a made-up city.

    Attributes:
        codebook: text columns borough and zone, a row per zone, sorted.
        pickups: text columns medallion and zone, and pickups, int64, >= 1: how many a taxi has in a zone; sorted.
    """

    codebook: pl.DataFrame
    pickups: pl.DataFrame

    def trips(self) -> pl.DataFrame:
        """Return text columns medallion and zone, a row per pickup."""
        return self.pickups.select(pl.col("medallion", "zone").repeat_by("pickups").explode())


def draw_taxis(
    *,
    boroughs: int = 6,
    zones: int = 40,
    taxis: int = 400,
    pickups: int = 40_000,
    roaming: float = 0.5,
    generator: np.random.Generator,
) -> Taxis:
    """Return taxis with very different numbers of pickups: a share of them anywhere in the city, the others in the taxi's own zone.

    Args:
        boroughs: how many; likewise `zones`, at least one a borough, `taxis` and `pickups`.
        roaming: the share of pickups that are outside of a taxi's zone, from 0 to 1. With 0 every taxi has one zone.
    """
    of_borough = states_of_counties(boroughs, zones)
    taxi, zone, often = draw_pickups(zones, taxis, pickups, roaming, generator)
    codebook = pl.DataFrame({"borough": _padded(of_borough, boroughs), "zone": _padded(np.arange(zones), zones)})
    medallion = _padded(taxi, taxis)
    return Taxis(codebook, pl.DataFrame({"medallion": medallion, "zone": _padded(zone, zones), "pickups": often}))


def draw_pickups(
    zones: int, taxis: int, pickups: int, roaming: float, generator: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the taxi, the zone and the number of pickups of every pair that has some, shape (pairs,), int64, sorted."""
    popularity = generator.lognormal(sigma=ZONES_SIGMA, size=zones)
    popularity /= popularity.sum()
    activity = generator.lognormal(sigma=ACTIVITY_SIGMA, size=taxis)
    own = generator.choice(zones, taxis, p=popularity)
    of_taxi = generator.multinomial(pickups, activity / activity.sum())
    away = generator.binomial(of_taxi, roaming)
    counts = generator.multinomial(away, popularity) if roaming else np.zeros((taxis, zones), dtype=np.int64)
    counts[np.arange(taxis), own] += of_taxi - away
    taxi, zone = np.nonzero(counts)
    return taxi, zone, counts[taxi, zone]

"""Draws the pickups of a made-up city's taxis at random: in zones of boroughs, by taxis that each work mostly in one of them."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tasks.synthesize.households import states_of_counties
from tasks.tree.axis import IntArray

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
        generator: the random generator; equal states draw equal tables.
    """
    of_borough = states_of_counties(boroughs, zones)
    taxi, zone, often = draw_pickups(zones, taxis, pickups, roaming, generator)
    borough_digits, zone_digits, taxi_digits = (len(str(of)) for of in (boroughs, zones, taxis))
    codebook = pl.DataFrame(
        {
            "borough": [f"{of + 1:0{borough_digits}}" for of in of_borough.tolist()],
            "zone": [f"{of + 1:0{zone_digits}}" for of in range(zones)],
        }
    )
    medallions = pl.Series([f"{of + 1:0{taxi_digits}}" for of in range(taxis)])
    table = pl.DataFrame(
        {"medallion": medallions.gather(taxi), "zone": codebook["zone"].gather(zone), "pickups": often}
    )
    return Taxis(codebook, table)


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

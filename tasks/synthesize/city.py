"""Draws a made-up city with its zones, and the trips of a day in it, by mode and hour. The day has six peaks."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tasks.synthesize.areas import Country, extend_codes
from tasks.tree.axis import FloatArray

DISTRICTS, ZONES, HOURS = 8, 48, 24
MODES = ("bike", "bus", "car", "walk")
TRIPS = 200_000

_FROM_CENTRE = 5.0  # km, of the middles of all districts but that of the centre
_AROUND = 1.2  # km: standard deviation, per coordinate, of a zone around the middle of its district
_SIZES = 0.8  # σ of the lognormal numbers of people, jobs, schools, shops and places to go out
_CENTRE = {"home": 0.5, "work": 3.0, "school": 1.0, "shop": 2.0, "out": 4.0}  # how much more the centre has of each
_REACH = 4.0  # km by which trips become fewer by a factor of e

# what speaks for a mode at once, and for each km
_MODES = {"bike": (-0.6, -0.35), "bus": (-1.0, -0.05), "car": (-0.7, 0.0), "walk": (1.0, -1.3)}


@dataclass(frozen=True, slots=True)
class Peak:
    """A peak of the day: when it is, its share of all trips, and whence and where they go.

    Attributes:
        hour: of its middle; `spread` is the standard deviation around it, in hours.
        bus: what speaks for the bus, which runs more often then, or less.
    """

    hour: float
    spread: float
    share: float
    origin: str
    destination: str
    bus: float = 0.0


PEAKS = (
    Peak(5.5, 0.8, 0.06, "home", "work", bus=-1.0),  # early shifts
    Peak(8.0, 0.8, 0.27, "home", "work", bus=0.6),
    Peak(12.5, 1.0, 0.13, "work", "shop"),
    Peak(15.0, 1.0, 0.16, "school", "home", bus=0.4),
    Peak(17.7, 1.2, 0.28, "work", "home", bus=0.6),
    Peak(22.5, 1.6, 0.10, "out", "home", bus=-1.0),
)


def draw_day(*, generator: np.random.Generator, trips: int = TRIPS) -> Country:
    r"""Return the zones of a city, and its trips in a day: from, to, mode and hour of each combination that has some.

    .. math:: p_{ijmh} = \sum_{k \in \text{peaks}} s_k \, q_{kij} \, r_{km}(d_{ij}) \, t_{kh}, \quad
        q_{kij} \propto a_{ki} b_{kj} e^{-d_{ij} / 4}

    where d is the distance, a and b are what zones have of the two ends of a peak, r is a logit over the modes, and t is a normal law
    around the hour, which goes on over midnight.
    """
    district = np.arange(ZONES) * DISTRICTS // ZONES
    path = extend_codes([pl.Series("", [""])], "district", np.zeros(DISTRICTS, dtype=np.int64), 1)
    path = extend_codes(path, "zone", district, 1)
    angle = 2 * np.pi * np.arange(DISTRICTS) / (DISTRICTS - 1)
    middles = _FROM_CENTRE * np.column_stack((np.cos(angle), np.sin(angle)))
    middles[0] = 0
    places = middles[district] + generator.normal(scale=_AROUND, size=(ZONES, 2))
    has = {
        kind: generator.lognormal(sigma=_SIZES, size=ZONES) * np.where(district == 0, more, 1.0)
        for kind, more in _CENTRE.items()
    }
    away = np.hypot(*(np.subtract.outer(along, along) for along in places.T))
    p = np.sum([_of_peak(peak, has[peak.origin], has[peak.destination], away) for peak in PEAKS], axis=0)
    counts = generator.multinomial(trips, p.ravel() / p.sum())
    there = np.flatnonzero(counts)
    origin, destination, mode, hour = np.unravel_index(there, p.shape)
    table = pl.DataFrame(
        {
            "origin": path[-1].gather(origin),
            "destination": path[-1].gather(destination),
            "mode": pl.Series(MODES).gather(mode),
            "hour": hour,
            "trips": counts[there],
        }
    )
    return Country(pl.DataFrame(path[1:]), table, places)


def _of_peak(peak: Peak, leaves: FloatArray, arrives: FloatArray, away: FloatArray) -> FloatArray:
    """Return the probability of every origin, destination, mode and hour in a peak, times its share; shape (zones, zones, modes, hours)."""
    pairs = np.multiply.outer(leaves, arrives) * np.exp(-away / _REACH)
    speaks = np.array([_MODES[mode] for mode in MODES])
    for_mode = np.exp(speaks[:, 0] + (peak.bus * (np.array(MODES) == "bus")) + away[:, :, None] * speaks[:, 1])
    apart = (np.arange(HOURS) + 0.5 - peak.hour + HOURS / 2) % HOURS - HOURS / 2
    hours = np.exp(-0.5 * np.square(apart / peak.spread))
    by_mode = pairs[:, :, None] / pairs.sum() * for_mode / for_mode.sum(axis=2, keepdims=True)
    found: FloatArray = peak.share * by_mode[:, :, :, None] * hours / hours.sum()
    return found

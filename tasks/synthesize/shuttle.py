"""Draws a made-up city with its stops, zones and hubs, and the demand for its shuttles, and writes both as tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from tasks.tree.axis import FloatArray, IntArray

ZONES = ("centre", "north", "south", "west")
STOPS = (40, 35, 30, 25)  # of each zone: 130, as in the paper
MIDDLES = ((0.0, 0.0), (1.0, 4.5), (3.5, -3.5), (-5.0, -0.5))  # km, of each zone
SPREADS = (0.9, 1.3, 1.3, 1.3)  # km: standard deviation, per coordinate, of the stops of a zone around its middle
HALTS = (0.3, 0.8, 1.2)  # where the line to a zone has its hubs: shares of the way from the centre to its middle
ON_FOOT = 0.5  # km: from a stop this near to its hub, people walk
MODES = (
    "walk",
    "walk-shuttle",
    "shuttle-walk",
    "shuttle",
    "walk-bus-walk",
    "walk-bus-shuttle",
    "shuttle-bus-walk",
    "shuttle-bus-shuttle",
    "walk-bus-bus-walk",
    "walk-bus-bus-shuttle",
    "shuttle-bus-bus-walk",
    "shuttle-bus-bus-shuttle",
)
BOARDING = 2.0  # minutes
MINUTES_PER_KM = 2.6  # 30 km/h, on streets that are 1.3 times as long as the straight line


@dataclass(frozen=True, slots=True, eq=False)
class City:
    """The public geography of a made-up city. Nothing in it depends on a trip.

    Attributes:
        zone: of each stop, a position in `ZONES`; shape (stops,), int64, ascending.
        place: of each stop, east and north of the central hub's zone; shape (stops, 2), float64, km, in whole metres.
        hubs: the stops that are hubs, the central one first, then the hubs of each line in turn; shape (hubs,), int64.
        line: of each hub, the number of its bus line, and -1 for the central hub, at which all lines meet; shape (hubs,), int64.
    """

    zone: IntArray
    place: FloatArray
    hubs: IntArray
    line: IntArray

    def kilometres(self) -> FloatArray:
        """Return the straight distance from each stop to each stop, shape (stops, stops), float64."""
        away: FloatArray = np.hypot(*(np.subtract.outer(along, along) for along in self.place.T))
        return away

    def minutes(self) -> IntArray:
        """Return the minutes by shuttle from each stop to each stop, shape (stops, stops), int64, >= 1."""
        return np.ceil(BOARDING + MINUTES_PER_KM * self.kilometres()).astype(np.int64)

    def modes(self) -> IntArray:
        r"""Return the mode of the journey from each stop to each stop.

        People go to the hub nearest to where they are, on foot or by shuttle, take a bus to the hub nearest to where they go,
        and go on from there, on foot or by shuttle. They need no bus if the two hubs are the same, one if a line has both,
        and otherwise two, with a change at the central hub.

        .. math:: \text{mode}_{od} = 4\,\text{buses}_{od} + 2\,\text{shuttle}_o + \text{shuttle}_d

        Returns:
            positions in `MODES`, shape (stops, stops), int64, origin by destination.
        Guarantees:
            A function of the geography alone. A grouping that is designed on confidential trips is as confidential as they
            are, and no guarantee of a release would cover it.
        """
        away = self.kilometres()[:, self.hubs]
        nearest = away.argmin(axis=1)
        by_shuttle = (away.min(axis=1) > ON_FOOT).astype(np.int64)
        from_line, to_line = np.broadcast_arrays(self.line[nearest][:, None], self.line[nearest])
        one_line = (from_line == to_line) | (from_line < 0) | (to_line < 0)
        buses = np.where(np.equal.outer(nearest, nearest), 0, np.where(one_line, 1, 2))
        modes: IntArray = 4 * buses + np.add.outer(2 * by_shuttle, by_shuttle)
        return modes


def draw_city(*, generator: np.random.Generator) -> City:
    """Return a city of 130 stops in four zones, with ten hubs on three bus lines from the centre to the other zones."""
    zone = np.repeat(np.arange(len(ZONES)), STOPS)
    middles = np.array(MIDDLES)
    scatter = generator.normal(size=(len(zone), 2)) * np.array(SPREADS)[zone][:, None]
    place = np.round(middles[zone] + scatter, 3)
    planned = [middles[0], *(halt * middle for middle in middles[1:] for halt in HALTS)]
    line = np.array([-1, *np.repeat(np.arange(len(ZONES) - 1), len(HALTS))])
    return City(zone, place, _stops_nearest(place, np.array(planned)), line)


def _stops_nearest(place: FloatArray, planned: FloatArray) -> IntArray:
    """Return the stop nearest to each planned place, none of them twice: the first place has the first choice."""
    away = np.hypot(*(np.subtract.outer(there, here) for there, here in zip(planned.T, place.T, strict=True)))
    chosen: list[int] = []
    for row in away:
        row[chosen] = np.inf
        chosen.append(int(row.argmin()))
    return np.array(chosen)


Day = Literal["morning", "weekday", "weekend"]

PERIODS = tuple(f"{hour:02}:{half}" for hour in range(24) for half in ("00", "30"))  # half hours, by their start
MORNING = slice(16, 20)  # the half hours from 08:00 to 10:00
TRIPS = {"morning": 4_878, "weekday": 37_714, "weekend": 18_000}  # the first two are the paper's
PURPOSES: dict[Day, tuple[float, float, float]] = {  # shares of trips to work, of trips back, and of others
    "weekday": (0.13, 0.22, 0.65),
    "weekend": (0.03, 0.04, 0.93),
}
# of day, per purpose: mean, its σ over pairs, σ of one pair
TIMES = ((8.5, 1.0, 0.4), (17.25, 1.4, 0.4), (14.0, 3.6, 1.5))
CONNECTIONS = 155  # pairs of stops between which people travel: the morning of a weekday then has about 590 trip types
POPULARITY_SIGMA = 1.0  # σ of the lognormal popularity of such a pair
HOMES_SIGMA, JOBS_SIGMA = 0.8, 1.2  # σ of the lognormal sizes of stops
JOBS_IN_ZONE = (2.5, 0.6, 0.9, 0.6)  # the factor by which a zone has more jobs a stop than others

README = """\
# A made-up city

**Synthetic data.** This city does not exist, and nobody made these trips. Trellis drew them at random
(`tasks/synthesize/shuttle.py` and `shuttle.py`).

| File | What is in it |
|---|---|
| `trips.parquet` | {trips:,} trips of {types:,} types: half hour, origin, destination, and how many there are |
| `stops.csv` | {stops} stops in {zones} zones, and where they are, in kilometres |
| `modes.csv` | how people travel from each stop to each stop |
| `minutes.csv` | how long a shuttle takes from each stop to each stop |

Zones, modes and minutes were drawn before the trips and do not depend on them. They have to be public in this sense: a
grouping that is designed on confidential trips is as confidential as the trips.
"""


def draw_trips(city: City, day: Day, *, generator: np.random.Generator) -> pl.DataFrame:
    """Return the trips of a day, or of its morning: a few pairs of stops have most of them, each at its own times of day.

    A weekday has 37,714 trips, of which 4,878 begin from 08:00 to 10:00; a weekend day has 18,000. The generator draws the
    same weekday for its morning as for the whole day.

    Args:
        city: the public geography, which the trips do not change.
        day: the morning of a weekday, from 08:00 to 10:00, or all of a weekday or of a weekend day.
    Returns:
        Text columns period, origin and destination, and trips, int64, >= 1; a row per type of trip that somebody makes, sorted.
    Source:
        Fioretto, Lee and Van Hentenryck (2018): the numbers of stops, zones, modes and of trips. The law is Trellis's own.
    """
    pairs, rate = _draw_demand(city, PURPOSES["weekend" if day == "weekend" else "weekday"], generator)
    stops = len(city.zone)
    types = np.add.outer(np.arange(len(PERIODS)) * stops**2, pairs)
    counts = np.zeros(len(PERIODS) * stops**2, dtype=np.int64)
    # a pair may come twice: as a way there, and as the way back of another
    np.add.at(counts, types, _draw_counts(rate, day, generator))
    made = np.flatnonzero(counts)
    period, pair = np.divmod(made, stops**2)
    codes = stop_codes(city)
    ends = {"origin": codes.gather(pair // stops), "destination": codes.gather(pair % stops)}
    return pl.DataFrame({"period": pl.Series(PERIODS).gather(period), **ends, "trips": counts[made]})


def _draw_counts(rate: FloatArray, day: Day, generator: np.random.Generator) -> IntArray:
    """Return trips by their rates, with the exact totals of `TRIPS`; shape of `rate`, int64. Outside a morning they are 0."""
    is_morning = np.zeros(len(PERIODS), dtype=bool)
    is_morning[MORNING] = True
    if day == "weekend":
        parts = [(np.ones_like(is_morning), TRIPS["weekend"])]
    else:
        parts = [(is_morning, TRIPS["morning"]), (~is_morning, TRIPS["weekday"] - TRIPS["morning"])]
    drawn = np.zeros(rate.shape, dtype=np.int64)
    for part, trips in parts[:1] if day == "morning" else parts:
        drawn[part] = generator.multinomial(trips, _shares(rate[part])).reshape(-1, rate.shape[1])
    return drawn


def periods_of(day: Day) -> tuple[str, ...]:
    """Return the half hours in which trips of a day can begin, as texts such as 08:30, in the order of the clock."""
    return PERIODS[MORNING] if day == "morning" else PERIODS


def _draw_demand(
    city: City, purposes: tuple[float, ...], generator: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    r"""Return pairs of stops between which people travel, there and back, and the rates of their trips over the day.

    .. math:: p_{od} \propto h_o\, j_d / (1 + \text{km}_{od}) \quad (o \ne d)

    The connections are drawn by p, without repetition. Each has a popularity w and, per purpose, a time of day of its own.

    Args:
        purposes: the shares of trips to work, of trips back, and of others.
    Returns:
        pairs: origin times stops plus destination, shape (2 · connections,), int64.
        rate: shape (48, 2 · connections), float64, >= 0, in no unit.
    """
    stops = len(city.zone)
    homes = generator.lognormal(sigma=HOMES_SIGMA, size=stops)
    jobs = generator.lognormal(sigma=JOBS_SIGMA, size=stops) * np.array(JOBS_IN_ZONE)[city.zone]
    p = np.multiply.outer(homes, jobs) / (1 + city.kilometres())
    np.fill_diagonal(p, 0.0)
    there = generator.choice(stops * stops, CONNECTIONS, replace=False, p=_shares(p))
    back = there % stops * stops + there // stops
    popularity = generator.lognormal(sigma=POPULARITY_SIGMA, size=CONNECTIONS)

    to_work, from_work, others, others_back = (
        _draw_times(*TIMES[purpose], generator) * popularity for purpose in (0, 1, 2, 2)
    )
    work, home, other = purposes
    rate = np.hstack([work * to_work + other / 2 * others, home * from_work + other / 2 * others_back])
    return np.concatenate([there, back]), rate


def _draw_times(mean: float, over_pairs: float, of_pair: float, generator: np.random.Generator) -> FloatArray:
    """Return the shares of the half hours in each connection's trips of a purpose: a bell around a time of its own.

    Args:
        mean: hours, of those times; likewise `over_pairs`, their standard deviation, and `of_pair`, that of a bell.
    Returns:
        shape (48, connections), float64; columns sum to 1.
    """
    middle = np.arange(len(PERIODS)) / 2 + 0.25
    peak = np.clip(generator.normal(mean, over_pairs, CONNECTIONS), middle[0], middle[-1])
    bell = np.exp(-(np.subtract.outer(middle, peak) ** 2) / (2 * of_pair**2))
    times: FloatArray = bell / bell.sum(axis=0)
    return times


def _shares(weights: FloatArray) -> FloatArray:
    """Return weights as probabilities, flat."""
    p: FloatArray = weights.ravel() / weights.sum()
    return p


def stop_codes(city: City) -> pl.Series:
    """Return the code of each stop: its zone, and its number there."""
    number = np.arange(len(city.zone)) - np.searchsorted(city.zone, city.zone) + 1
    return pl.Series([f"{ZONES[zone]}-{nth:02}" for zone, nth in zip(city.zone, number, strict=True)])


def write_shuttle(city: City, trips: pl.DataFrame, folder: Path) -> None:
    """Write `trips.parquet`, the public tables `stops.csv`, `modes.csv` and `minutes.csv`, and a `README.md`.

    Args:
        trips: from `draw_trips`, of the same city.
        folder: is made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    codes, stops = stop_codes(city), len(city.zone)
    zones, (x, y) = pl.Series(ZONES).gather(city.zone), city.place.T
    pl.DataFrame({"zone": zones, "stop": codes, "x": x, "y": y}).write_csv(folder / "stops.csv")
    origin, destination = np.divmod(np.arange(stops * stops), stops)
    pairs = pl.DataFrame({"origin": codes.gather(origin), "destination": codes.gather(destination)})
    modes = pl.Series("mode", MODES).gather(city.modes().ravel())
    pairs.with_columns(modes).write_csv(folder / "modes.csv")
    pairs.with_columns(pl.Series("minutes", city.minutes().ravel())).write_csv(folder / "minutes.csv")
    trips.write_parquet(folder / "trips.parquet")
    readme = README.format(trips=trips["trips"].sum(), types=trips.height, stops=stops, zones=len(ZONES))
    (folder / "README.md").write_text(readme, encoding="utf-8")

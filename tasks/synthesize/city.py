"""Draws the public geography of a made-up city: stops in zones, the hubs of its buses, and the mode of every journey."""

from dataclasses import dataclass

import numpy as np

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
    """Return a city of 130 stops in four zones, with ten hubs on three bus lines from the centre to the other zones.

    Args:
        generator: the random generator; equal states draw equal cities.
    """
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

"""Vehicles that trips on demand need: a lower bound by vehicle minutes, the fewest by a flow, and the fewest with pooled trips.

A day is cut into periods of the same length. A leg is one drive of one vehicle from stop to stop, with as many trips of one
period on board as it has seats. Vehicles begin anywhere and end anywhere.
"""

from dataclasses import dataclass, replace

import numpy as np

from tasks.tree.axis import FloatArray, IntArray

_DIGITS = 9  # to which quotients are rounded before they are rounded up: 0.3 / 0.1 is three, not four
_WHOLE = 1e-6  # how far the optimum of a network may be from a whole number


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Where vehicles drive, and how long.

    Attributes:
        minutes: float64, shape (origin stops, destination stops): of a leg; finite, > 0.
        origin_zone: int64, shape (origin stops,): the zone of each stop where trips begin.
        destination_zone: int64, shape (destination stops,): that of each stop where trips end.
        zones: how many there are. Each has a stop where trips begin and one where trips end.
        capacity: seats of a vehicle.

    Raises:
        ValueError: a shape or a number is not as stated above.
    """

    minutes: FloatArray
    origin_zone: IntArray
    destination_zone: IntArray
    zones: int
    periods: int
    period_minutes: float
    capacity: int

    def __post_init__(self) -> None:
        if self.minutes.shape != (len(self.origin_zone), len(self.destination_zone)):
            raise ValueError("minutes must have a row per origin stop and a column per destination stop.")
        if not (np.isfinite(self.minutes) & (self.minutes > 0)).all():
            raise ValueError("minutes must be finite and > 0.")
        if not (np.isfinite(self.period_minutes) and self.period_minutes > 0 and self.capacity >= 1):
            raise ValueError("period_minutes must be finite and > 0, and capacity >= 1.")
        every = np.arange(self.zones)
        if not all(np.array_equal(np.unique(of), every) for of in (self.origin_zone, self.destination_zone)):
            raise ValueError("each zone must have a stop where trips begin and one where trips end.")

    def zone_minutes(self) -> FloatArray:
        """Return the mean minutes over all pairs of stops of each pair of zones, float64, shape (zones, zones)."""
        pair = (self.origin_zone[:, None] * self.zones + self.destination_zone).ravel()
        sums = np.bincount(pair, self.minutes.ravel(), self.zones**2)
        return (sums / np.bincount(pair, minlength=self.zones**2)).reshape(self.zones, self.zones)

    def periods_of(self, minutes: FloatArray) -> IntArray:
        """Return how many whole periods drives of some minutes take, at least 1; int64, of the same shape."""
        return np.maximum(1, _rounded_up(minutes / self.period_minutes))


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Trips by period and pair of stops.

    Attributes:
        period: int64, shape (rows,): 0 to periods − 1, in which the trips begin.
        origin: int64, shape (rows,): the number of the stop where they begin.
        destination: int64, shape (rows,): the number of the stop where they end.
        counts: int64, shape (rows,), trips. Rows of the same period and stops count together; a sum below 0 counts as 0.
    """

    period: IntArray
    origin: IntArray
    destination: IntArray
    counts: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Legs:
    """Legs between zones, one row per period and pair of stops: all arrays int64 but `minutes`, shape (rows,)."""

    period: IntArray
    origin: IntArray
    destination: IntArray
    minutes: FloatArray
    legs: IntArray


def busy_vehicles(demand: Demand, service: Service) -> int:
    r"""Return how many vehicles all zones need if each keeps vehicles for the minutes that its busiest period begins.

    .. math:: \sum_z \max_t \lceil \textstyle\sum_{\text{legs that begin in } z, t} \text{minutes} / \text{period} \rceil

    Vehicles of another zone do not help out, and no vehicle drives empty. No trips need 0 vehicles.
    """
    legs = _legs(demand, service)
    cell = legs.period * service.zones + legs.origin
    minutes = np.bincount(cell, legs.minutes * legs.legs, service.periods * service.zones)
    needed = _rounded_up(minutes / service.period_minutes).reshape(service.periods, service.zones)
    return int(needed.max(axis=0).sum())


def flow_vehicles(demand: Demand, service: Service) -> int:
    """Return the fewest vehicles that drive all legs, each at the beginning of its period.

    The network has a node per zone and period. A leg leaves its zone when its period begins, and reaches the other zone after its
    minutes, rounded up to whole periods. Between legs a vehicle waits, or drives empty to any other zone, which takes the mean
    minutes of the stop pairs of the two zones, rounded up likewise. Every vehicle enters at the first period, in any zone, and
    may leave at any node, which is as good as waiting to the end. A linear program minimises the entering vehicles. Its matrix
    is that of a network, which is totally unimodular, so the optimum is a whole number.

    The network has periods × zones² arcs at most. With 48 periods, 20 zones take about 0.1 seconds and 80 zones about 9.

    Raises:
        ArithmeticError: the solver found no whole optimum.
    Source:
        Vazifeh, Santi, Resta, Strogatz and Ratti (2018), "Addressing the minimum fleet problem in on-demand urban mobility":
        the fewest vehicles are a minimum path cover of the trips, which is this flow with a node per zone and period.
    """
    legs = _legs(demand, service)
    if not len(legs.legs):
        return 0
    from scipy.optimize import linprog  # slow to import

    balance, outflow, entering = _network(legs, service)
    solution = linprog(entering, A_ub=outflow, b_ub=balance, method="highs")
    if not solution.success or abs(solution.fun - round(solution.fun)) > _WHOLE:
        raise ArithmeticError("The solver found no whole number of vehicles.")
    vehicles: int = round(solution.fun)
    return vehicles


def pooled_vehicles(demand: Demand, service: Service) -> int:
    """Return the fewest vehicles, as `flow_vehicles`, if trips of the same period and pair of zones share vehicles.

    The counts are summed per period and pair of zones before they are divided among vehicles. Such a leg takes the mean minutes
    of the stop pairs of the two zones. So trips that are spread over too many pairs of stops do not matter.
    """
    zones = np.arange(service.zones)
    between_zones = replace(service, minutes=service.zone_minutes(), origin_zone=zones, destination_zone=zones)
    origin, destination = service.origin_zone[demand.origin], service.destination_zone[demand.destination]
    return flow_vehicles(Demand(demand.period, origin, destination, demand.counts), between_zones)


def _legs(demand: Demand, service: Service) -> _Legs:
    """Return the legs that trips need: for each period and pair of stops, trips divided by seats, rounded up."""
    shape = (service.periods, *service.minutes.shape)
    key = np.ravel_multi_index((demand.period, demand.origin, demand.destination), shape)
    present, row = np.unique(key, return_inverse=True)
    counts = np.zeros(len(present), dtype=np.int64)
    np.add.at(counts, row, demand.counts)
    period, origin, destination = np.unravel_index(present[counts > 0], shape)
    return _Legs(
        period,
        service.origin_zone[origin],
        service.destination_zone[destination],
        service.minutes[origin, destination],
        -(-counts[counts > 0] // service.capacity),
    )


def _network(legs: _Legs, service: Service) -> tuple[IntArray, object, FloatArray]:
    """Return the program of `flow_vehicles`: minimise entering · x over x ≥ 0 with outflow x ≤ balance.

    Node t Z + z is zone z at the beginning of period t. The variables are the arcs on which vehicles enter, wait, and drive empty.

    Returns:
        The legs that arrive at each node less those that depart, int64, shape (nodes,); the empty or waiting vehicles that leave
        each node less those that reach it, a sparse matrix of shape (nodes, arcs); and 1 for arcs that enter, 0 for others,
        float64, shape (arcs,).
    """
    from scipy.sparse import coo_array

    zones, periods = service.zones, service.periods
    nodes = zones * periods
    arrival = legs.period + service.periods_of(legs.minutes)
    inside = arrival < periods  # who arrives later is needed no more
    balance = np.zeros(nodes, dtype=np.int64)
    np.add.at(balance, arrival[inside] * zones + legs.destination[inside], legs.legs[inside])
    np.subtract.at(balance, legs.period * zones + legs.origin, legs.legs)

    takes = service.periods_of(service.zone_minutes())
    np.fill_diagonal(takes, 1)  # to stay in a zone is to wait
    period, origin, destination = np.indices((periods, zones, zones)).reshape(3, -1)
    reached = period + takes[origin, destination]
    kept = reached < periods
    left_node = (period * zones + origin)[kept]
    reached_node = (reached * zones + destination)[kept]

    moves = len(left_node)
    rows = np.concatenate((np.arange(zones), left_node, reached_node))
    columns = np.concatenate((np.arange(zones + moves), zones + np.arange(moves)))
    signs = np.repeat([-1.0, 1.0, -1.0], [zones, moves, moves])
    outflow = coo_array((signs, (rows, columns)), shape=(nodes, zones + moves)).tocsc()
    return balance, outflow, np.repeat([1.0, 0.0], [zones, moves])


def _rounded_up(quotients: FloatArray) -> IntArray:
    """Return quotients rounded up to whole numbers, forgiving the last bits of a division."""
    return np.ceil(np.round(quotients, _DIGITS)).astype(np.int64)

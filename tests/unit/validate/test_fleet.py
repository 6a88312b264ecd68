"""Vehicles on demand: cases by hand, and the flow against a minimum path cover of single trips."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from tasks.validate.fleet import Demand, Service, busy_vehicles, flow_vehicles, pooled_vehicles

# two zones a and b with two stops each, ten minutes within a zone and forty between the two
ZONES = np.array([0, 0, 1, 1])
MINUTES = np.where(ZONES[:, None] == ZONES, 10.0, 40.0)
TOWN = Service(MINUTES, ZONES, ZONES, zones=2, periods=4, period_minutes=30.0, capacity=8)


def trips(*rows: tuple[int, int, int, int]) -> Demand:
    """Return the demand of rows of period, origin, destination and count."""
    return Demand(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def random_case(seed: int) -> tuple[Demand, Service]:
    """Return a small town and its trips; minutes keep no triangle inequality, and stops lie in zones anyhow."""
    generator = np.random.default_rng(seed)
    zones, periods = int(generator.integers(1, 4)), int(generator.integers(1, 6))
    ends = [np.concatenate((np.arange(zones), generator.integers(0, zones, generator.integers(0, 3)))) for _ in "od"]
    minutes = generator.uniform(1, 100, (len(ends[0]), len(ends[1])))
    service = Service(minutes, *ends, zones, periods, float(generator.uniform(10, 60)), int(generator.integers(1, 4)))
    rows = int(generator.integers(0, 12))
    sizes = (periods, *minutes.shape)
    return Demand(*(generator.integers(0, size, rows) for size in sizes), generator.integers(-1, 5, rows)), service


def path_cover(demand: Demand, service: Service) -> int:
    """Return the fewest chains of legs in which a vehicle reaches each leg in time, leg by leg, without a network."""
    counts: dict[tuple[int, int, int], int] = {}
    for period, origin, destination, count in zip(
        *map(np.ndarray.tolist, (demand.period, demand.origin, demand.destination, demand.counts)), strict=True
    ):
        counts[period, origin, destination] = counts.get((period, origin, destination), 0) + count
    legs = []
    for (period, origin, destination), count in counts.items():
        takes = max(1, int(np.ceil(service.minutes[origin, destination] / service.period_minutes)))
        leg = (period, service.origin_zone[origin], period + takes, service.destination_zone[destination])
        legs += [leg] * int(np.ceil(max(0, count) / service.capacity))
    away = np.zeros((service.zones, service.zones))
    for one in range(service.zones):
        for other in range(service.zones):
            pairs = service.minutes[np.ix_(service.origin_zone == one, service.destination_zone == other)]
            away[one, other] = 0 if one == other else np.ceil(pairs.mean() / service.period_minutes)
    for by in range(service.zones):  # a vehicle may drive empty by way of another zone
        away = np.minimum(away, away[:, [by]] + away[[by], :])
    follows = [[arrival + away[to, begin] <= start for start, begin, _, _ in legs] for _, _, arrival, to in legs]
    if not legs:
        return 0
    matched = maximum_bipartite_matching(csr_array(np.array(follows, dtype=np.int64)), perm_type="column")
    return len(legs) - int((matched >= 0).sum())


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 80, 20)], ids=str)
def test_flow_is_a_minimum_path_cover(seeds: range) -> None:
    """The linear program finds as many vehicles as chains of legs need: of single legs, and pooled of legs between zones."""
    for seed in seeds:
        demand, service = random_case(seed)
        assert flow_vehicles(demand, service) == path_cover(demand, service)
        zones = np.arange(service.zones)
        minutes = [
            [service.minutes[np.ix_(service.origin_zone == a, service.destination_zone == b)].mean() for b in zones]
            for a in zones
        ]
        of_zones = replace(service, minutes=np.array(minutes), origin_zone=zones, destination_zone=zones)
        ends = service.origin_zone[demand.origin], service.destination_zone[demand.destination]
        assert pooled_vehicles(demand, service) == path_cover(Demand(demand.period, *ends, demand.counts), of_zones)


@pytest.mark.parametrize(
    ("rows", "busy", "flow", "pooled"),
    [
        ([], 0, 0, 0),
        ([(0, 0, 1, 8)], 1, 1, 1),
        ([(0, 0, 1, 9)], 1, 2, 2),  # two legs of ten minutes fit a period, and begin together
        ([(0, 0, 1, 32)], 2, 4, 4),  # 4 × 10 / 30, rounded up
        ([(0, 0, 1, 1), (0, 1, 0, 1)], 1, 2, 1),  # two pairs of stops of one zone, which one vehicle takes when pooled
        ([(0, 0, 1, 1), (1, 1, 0, 1)], 1, 1, 1),  # the same vehicle in the next period
        ([(0, 0, 2, 1), (1, 2, 0, 1)], 4, 2, 2),  # it is still under way to b, for two periods
        ([(0, 0, 2, 1), (2, 2, 0, 1)], 4, 1, 1),
        ([(0, 0, 1, 1), (2, 2, 3, 1)], 2, 2, 2),  # an empty move from a to b takes two periods: there too late
        ([(0, 0, 1, 1), (3, 2, 3, 1)], 2, 1, 1),  # and there in time
        ([(3, 0, 2, 1)], 2, 1, 1),  # a leg that ends after the last period
        ([(0, 0, 1, 5), (0, 0, 1, -5)], 0, 0, 0),  # rows of the same trip count together
        ([(0, 0, 1, -5), (0, 0, 0, 5)], 1, 1, 0),  # and those of the same zones where trips are pooled
    ],
)  # fmt: skip
def test_cases_by_hand(rows: list[tuple[int, int, int, int]], busy: int, flow: int, pooled: int) -> None:
    """Vehicles of small towns are those that one counts by hand."""
    demand = trips(*rows)
    found = tuple(of(demand, TOWN) for of in (busy_vehicles, flow_vehicles, pooled_vehicles))
    assert found == (busy, flow, pooled)


def test_quotients_that_are_whole_are_not_rounded_up() -> None:
    """Three tenths of an hour are three periods of a tenth, though the quotient of the floats lies above."""
    zone = np.zeros(1, dtype=np.int64)
    service = Service(np.array([[0.3]]), zone, zone, zones=1, periods=9, period_minutes=0.1, capacity=1)
    assert 0.3 / 0.1 != 3
    assert service.periods_of(np.array([0.3, 0.30001, 1e-30])).tolist() == [3, 4, 1]
    assert busy_vehicles(trips((0, 0, 0, 1)), service) == 3
    assert flow_vehicles(trips((0, 0, 0, 1), (3, 0, 0, 1), (6, 0, 0, 1)), service) == 1


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"minutes": MINUTES[:3]}, "a row per origin stop"),
        ({"minutes": MINUTES * 0}, "finite and > 0"),
        ({"minutes": MINUTES * np.inf}, "finite and > 0"),
        ({"period_minutes": 0.0}, "period_minutes"),
        ({"capacity": 0}, "capacity"),
        ({"zones": 3}, "each zone"),
    ],
)
def test_what_is_no_service_is_refused(changed: dict[str, object], told: str) -> None:
    """Shapes that disagree, minutes and numbers out of range, and a zone without a stop are refused."""
    with pytest.raises(ValueError, match=told):
        replace(TOWN, **changed)

"""Vehicles on demand against a minimum path cover of single trips, and the measure `fleet` on leaves of a tree."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from tasks.tree.axis import axis_from_codebook
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree, in_sequence
from tasks.validate.fleet import Demand, Service, busy_vehicles, flow_vehicles, pooled_vehicles
from tasks.validate.utility import UtilityTerms, fleet

# two zones a and b with two stops each, ten minutes within a zone and forty between the two
ZONES = np.array([0, 0, 1, 1])
MINUTES = np.where(ZONES[:, None] == ZONES, 10.0, 40.0)
TOWN = Service(MINUTES, ZONES, ZONES, zones=2, periods=4, period_minutes=30.0, capacity=8)


def trips(*rows):
    """Return the demand of rows of period, origin, destination and count."""
    return Demand(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def random_case(seed):
    """Return a small town and its trips; minutes keep no triangle inequality, and stops lie in zones anyhow."""
    generator = np.random.default_rng(seed)
    zones, periods = int(generator.integers(1, 4)), int(generator.integers(1, 6))
    ends = [np.concatenate((np.arange(zones), generator.integers(0, zones, generator.integers(0, 3)))) for _ in "od"]
    minutes = generator.uniform(1, 100, (len(ends[0]), len(ends[1])))
    service = Service(minutes, *ends, zones, periods, float(generator.uniform(10, 60)), int(generator.integers(1, 4)))
    rows = int(generator.integers(0, 12))
    sizes = (periods, *minutes.shape)
    return Demand(*(generator.integers(0, size, rows) for size in sizes), generator.integers(-1, 5, rows)), service


def legs_of(demand, service):
    """Return the period, the two zones and the minutes of each leg of a vehicle; rows of the same trip count together."""
    counts = Counter[tuple[int, int, int]]()
    for *trip, count in zip(demand.period, demand.origin, demand.destination, demand.counts, strict=True):
        counts[tuple(map(int, trip))] += int(count)
    return [
        (period, service.origin_zone[one], service.destination_zone[other], service.minutes[one, other])
        for (period, one, other), count in counts.items()
        for _ in range(math.ceil(max(0, count) / service.capacity))
    ]


def busy(demand, service):
    """Return how many vehicles the busiest period of each zone needs, by the minutes of the legs that begin there."""
    minutes = np.zeros((service.periods, service.zones))
    for period, zone, _, takes in legs_of(demand, service):
        minutes[period, zone] += takes
    return int(np.ceil(minutes / service.period_minutes).max(axis=0).sum())


def path_cover(demand, service):
    """Return the fewest chains of legs in which a vehicle reaches each leg in time, leg by leg, without a network."""
    legs = [
        (period, one, period + max(1, math.ceil(takes / service.period_minutes)), other)
        for period, one, other, takes in legs_of(demand, service)
    ]
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
def test_vehicles_are_those_of_single_legs(seeds):
    """The linear program finds as many vehicles as chains of legs need: of single legs, and pooled of legs between zones."""
    # Where no vehicle helps out in another zone, they are those of the busiest periods.
    for seed in seeds:
        demand, service = random_case(seed)
        assert busy_vehicles(demand, service) == busy(demand, service)
        assert flow_vehicles(demand, service) == path_cover(demand, service)
        zones = np.arange(service.zones)
        minutes = [
            [service.minutes[np.ix_(service.origin_zone == a, service.destination_zone == b)].mean() for b in zones]
            for a in zones
        ]
        of_zones = replace(service, minutes=np.array(minutes), origin_zone=zones, destination_zone=zones)
        ends = service.origin_zone[demand.origin], service.destination_zone[demand.destination]
        assert pooled_vehicles(demand, service) == path_cover(Demand(demand.period, *ends, demand.counts), of_zones)


def test_quotients_that_are_whole_are_not_rounded_up():
    """Three tenths of an hour are three periods of a tenth, though the quotient of the floats lies above."""
    zone = np.zeros(1, dtype=np.int64)
    service = Service(np.array([[0.3]]), zone, zone, zones=1, periods=9, period_minutes=0.1, capacity=1)
    assert 0.3 / 0.1 != 3
    assert service.periods_of(np.array([0.3, 0.30001, 1e-30])).tolist() == [3, 4, 1]
    assert busy_vehicles(trips((0, 0, 0, 1)), service) == 3
    assert flow_vehicles(trips((0, 0, 0, 1), (3, 0, 0, 1), (6, 0, 0, 1)), service) == 1


@pytest.mark.parametrize(("changed", "told"), [
    ({"minutes": MINUTES[:3]}, "a row per origin stop"),
    ({"minutes": MINUTES * 0}, "finite and > 0"),
    ({"minutes": MINUTES * np.inf}, "finite and > 0"),
    ({"period_minutes": 0.0}, "period_minutes"),
    ({"capacity": 0}, "capacity"),
    ({"zones": 3}, "each zone"),
])  # fmt: skip
def test_what_is_no_service_is_refused(changed, told):
    """Shapes that disagree, minutes and numbers out of range, and a zone without a stop are refused."""
    with pytest.raises(ValueError, match=told):
        replace(TOWN, **changed)


STOPS = pl.DataFrame({"zone": ["a", "a", "b"], "stop": ["a1", "a2", "b1"]})
KEYS = {"period": "when", "origin": "from", "destination": "to", "zone": ("zone", "zone"), "minutes": 30, "capacity": 1}
DURATIONS = pl.DataFrame(
    {"from": [one for one in STOPS["stop"] for _ in range(3)], "to": [*STOPS["stop"]] * 3, "minutes": ["20"] * 9}
)


def tree_of(periods):
    """Return the tree of some periods and three stops in two zones, at both ends; the period comes last."""
    axes = (
        axis_from_codebook("to", STOPS),
        axis_from_codebook("from", STOPS),
        axis_from_codebook("when", pl.DataFrame({"when": sorted(periods)})),
    )
    return Tree(axes, in_sequence([2, 2, 1], [(0, 2), (1, 2), (2, 1)]))


def leaves(tree, *rows):
    """Return leaves by their codes, from, to and when, and their counts."""
    finest = {axis.name: axis.codes[-1].to_list() for axis in tree.axes}
    places = (("to", 1), ("from", 0), ("when", 2))
    columns = [np.array([finest[name].index(row[at]) for row in rows], dtype=np.int64) for name, at in places]
    return Frontier(tree.depth, tuple(columns), np.array([row[3] for row in rows], dtype=np.int64))


def terms_of(durations=DURATIONS, listed=None, **keys):
    """Return terms with some keys or the table changed."""
    return UtilityTerms(KEYS | keys, {"durations": durations}, listed or {})


def test_vehicles_are_compared():
    """Three released trips of one period and pair need three times the vehicles of one; pooled in vehicles of four, as many."""
    tree = tree_of("012")
    true, released = leaves(tree, ("a1", "b1", "0", 1)), leaves(tree, ("a1", "b1", "0", 3))
    assert fleet(tree, true, released, terms_of()) == {"busy": 2.0, "flow": 3.0, "pooled": 3.0}
    assert fleet(tree, true, released, terms_of(capacity=4)) == {"busy": 1.0, "flow": 1.0, "pooled": 1.0}
    other = leaves(tree, ("a1", "b1", "0", 1), ("a2", "b1", "0", 1))
    assert fleet(tree, true, other, terms_of(capacity=4)) == {"busy": 2.0, "flow": 2.0, "pooled": 1.0}


def test_without_a_true_trip_there_is_no_ratio():
    """Where the true trips need no vehicle, every number is None; where the released ones need none, it is 0."""
    tree = tree_of("012")
    some, none = leaves(tree, ("a1", "b1", "0", 1)), leaves(tree)
    assert fleet(tree, none, some, terms_of()) == {"busy": None, "flow": None, "pooled": None}
    assert fleet(tree, none, none, terms_of()) == {"busy": None, "flow": None, "pooled": None}
    assert fleet(tree, some, none, terms_of()) == {"busy": 0.0, "flow": 0.0, "pooled": 0.0}


@pytest.mark.parametrize(("periods", "listed", "first", "last"), [
    ([str(number) for number in range(12)], None, "9", "10"),  # as text, 10 comes before 9
    (["07:00", "07:30", "08:00"], None, "07:30", "08:00"),
    (["night", "day", "dusk"], ("dusk", "night", "day"), "night", "day"),  # as the spec has them
])  # fmt: skip
def test_periods_follow_one_another(periods, listed, first, last):
    """The vehicle of one period drives in the next one too, and not the other way round."""
    tree = tree_of(periods)
    once = leaves(tree, ("a1", "a2", first, 1))
    terms = terms_of(listed={"when": listed} if listed else {})
    onward = leaves(tree, ("a1", "b1", first, 1), ("b1", "a1", last, 1))
    assert fleet(tree, once, onward, terms)["flow"] == 1
    back = leaves(tree, ("a1", "b1", last, 1), ("b1", "a1", first, 1))
    assert fleet(tree, once, back, terms)["flow"] == 1  # begins at b, where it is needed first
    late = DURATIONS.with_columns(pl.lit("31").alias("minutes"))
    assert fleet(tree, once, onward, terms_of(late, terms.listed))["flow"] == 2


def test_a_third_axis_is_summed_over():
    """Trips that differ only in another feature share vehicles, as if the table did not have it."""
    tree = tree_of("012")
    purpose = axis_from_codebook("why", pl.DataFrame({"why": ["job", "leisure"]}))
    with_purpose = Tree((*tree.axes, purpose), (*tree.steps, 3))
    zero = np.zeros(2, dtype=np.int64)
    both = Frontier(6, (zero, zero, zero, np.arange(2)), np.ones(2, dtype=np.int64))
    one = Frontier(6, tuple(areas[:1] for areas in both.areas), np.ones(1, dtype=np.int64))
    assert fleet(with_purpose, one, both, terms_of(capacity=2)) == {"busy": 1.0, "flow": 1.0, "pooled": 1.0}


@pytest.mark.parametrize(("durations", "told"), [
    (DURATIONS.drop("minutes"), "durations must have a column minutes"),
    (DURATIONS[:8], "b1 to b1 is there 0 times"),
    (pl.concat((DURATIONS, DURATIONS[4:5])), "a2 to a2 is there 2 times"),
    (pl.concat((DURATIONS, DURATIONS[:1].with_columns(to=pl.lit("c9")))), "only codes of to in that column; c9"),
    (pl.concat((DURATIONS, DURATIONS[:1].with_columns(to=pl.lit(None, pl.String)))), "a blank code"),
    *((DURATIONS.with_columns(minutes=pl.lit(of, pl.String)), "finite minutes > 0") for of in ("0", "nan", "soon", None)),
])  # fmt: skip
def test_durations_that_do_not_fit_are_refused(durations, told):
    """A column or a pair that is missing, a pair that is there twice, an unknown code, and minutes that are none are refused."""
    tree = tree_of("012")
    with pytest.raises(ValueError, match=f"^durations .*{told.removeprefix('durations ')}"):
        fleet(tree, leaves(tree), leaves(tree), terms_of(durations))


def test_zones_that_only_one_end_has_are_refused():
    """Where the two ends have other zones, a vehicle could not go on from where it arrives."""
    tree = tree_of("012")
    with pytest.raises(ValueError, match=r"^zone must have the same codes at both ends"):
        fleet(tree, leaves(tree), leaves(tree), terms_of(zone=("zone", "stop")))

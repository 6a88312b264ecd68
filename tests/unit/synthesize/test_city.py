"""The geography of the made-up city: zones, hubs and modes that follow from where the stops are."""

import numpy as np
import pytest

from tasks.synthesize.city import MODES, ON_FOOT, STOPS, ZONES, City, draw_city


def city_of(seed: int) -> City:
    """Return the city that a seed draws."""
    return draw_city(generator=np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(10))
def test_a_city_has_the_papers_numbers(seed: int) -> None:
    """There are 130 stops in four uneven zones and ten hubs, and each of the twelve modes serves some pair of stops.

    Each mode has a shuttle where a stop is far from its hub, and as many buses as the lines of the two hubs require.
    """
    city = city_of(seed)
    assert np.bincount(city.zone).tolist() == list(STOPS)
    assert len(city.zone) == 130
    assert len(ZONES) == 4
    assert len(set(city.hubs.tolist())) == len(city.hubs) == len(city.line) == 10
    modes = city.modes()
    assert np.unique(modes).tolist() == list(range(12))
    assert len(set(MODES)) == 12
    away = np.linalg.norm(city.place[:, None] - city.place[city.hubs], axis=2)
    hub, is_far = away.argmin(axis=1), away.min(axis=1) > ON_FOOT
    for origin, destination in np.random.default_rng(seed).integers(130, size=(100, 2)):
        one, other = hub[origin], hub[destination]
        lines = {int(city.line[one]), int(city.line[other])} - {-1}
        buses = 0 if one == other else max(len(lines), 1)
        ends = ["shuttle" if is_far[stop] else "walk" for stop in (origin, destination)]
        legs = [ends[0], *["bus"] * buses, ends[1]]
        if legs[0] == legs[1]:  # without a bus, and both ends alike: one leg
            legs = legs[:1]
        assert MODES[modes[origin, destination]] == "-".join(legs)


def test_hubs_lie_along_their_lines() -> None:
    """The central hub is in the centre, and each line ends in a hub of its own zone."""
    city = city_of(1)
    assert city.line.tolist() == [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert city.zone[city.hubs[0]] == ZONES.index("centre")
    assert city.zone[city.hubs[[3, 6, 9]]].tolist() == [1, 2, 3]


def test_minutes_grow_with_distance() -> None:
    """A shuttle takes whole minutes, as long there as back, at least the time to board, and longer where it is farther."""
    city = city_of(1)
    minutes, away = city.minutes(), city.kilometres()
    assert minutes.dtype == np.int64
    assert (minutes == minutes.T).all()
    assert set(np.diag(minutes).tolist()) == {2}
    assert (np.diff(minutes.ravel()[np.argsort(away.ravel())]) >= 0).all()
    assert 20 < minutes.max() < 60


def test_a_seed_draws_its_city_again() -> None:
    """Equal seeds draw equal cities, and another seed another one."""
    one, again, other = city_of(5), city_of(5), city_of(6)
    assert (one.place == again.place).all()
    assert (one.hubs == again.hubs).all()
    assert not (one.place == other.place).all()

"""The made-up households and taxis: their tables fit together, and a seed draws them again."""

import numpy as np
import polars as pl
import pytest

from tasks.synthesize.households import draw_households, draw_sizes, states_of_counties
from tasks.synthesize.taxis import draw_taxis


def test_households_live_at_addresses_in_counties() -> None:
    """Each has one address of its own, in a county of the codebook; some addresses are empty; the most have two people."""
    drawn, again = (
        draw_households(states=3, counties=7, households=3_000, outliers=4, generator=np.random.default_rng(of))
        for of in (5, 5)
    )
    assert drawn.homes.equals(again.homes)
    assert drawn.addresses.equals(again.addresses)
    assert (drawn.codebook.columns, drawn.codebook.height) == (["state", "county"], 7)
    assert drawn.codebook["state"].n_unique() == 3
    assert drawn.codebook["county"].is_unique().all()
    assert (drawn.homes.height, drawn.addresses.height) == (3_004, 3_304)
    assert drawn.addresses["address"].is_unique().all()
    assert drawn.homes.join(drawn.addresses, on=["address", "county"]).height == drawn.homes.height
    assert set(drawn.homes["county"]) <= set(drawn.codebook["county"])
    assert drawn.homes["people"].mode().to_list() == [2]
    assert drawn.homes["people"].max() >= 10
    people = drawn.people()
    assert people.height == drawn.homes["people"].sum()
    by_address = people.group_by("address", "county").len().sort("address")["len"]
    assert by_address.equals(drawn.homes["people"].cast(pl.get_index_type()))


@pytest.mark.parametrize("largest", [1, 5, 40])
def test_sizes_above_the_largest_count_there(largest: int) -> None:
    """Whatever the last size is, all households are counted; a country without any is empty."""
    of_state = states_of_counties(2, 5)
    sizes = draw_sizes(of_state, 10_000, 7, largest, np.random.default_rng(2))
    assert (sizes.shape, sizes.sum()) == ((5, largest), 10_007)
    assert of_state.tolist() == [0, 0, 0, 1, 1]
    empty = draw_households(states=1, counties=1, households=0, outliers=0, generator=np.random.default_rng(2))
    assert (empty.homes.height, empty.addresses.height, empty.codebook.height) == (0, 0, 1)


@pytest.mark.parametrize("roaming", [0.0, 0.6])
def test_taxis_pick_up_in_zones(roaming: float) -> None:
    """All pickups are there; a taxi that does not roam has one zone."""
    drawn, again = (
        draw_taxis(boroughs=2, zones=9, taxis=50, pickups=4_000, roaming=roaming, generator=np.random.default_rng(of))
        for of in (5, 5)
    )
    assert drawn.pickups.equals(again.pickups)
    assert drawn.codebook.height == drawn.codebook["zone"].n_unique() == 9
    assert drawn.codebook["borough"].n_unique() == 2
    assert drawn.pickups["pickups"].sum() == drawn.trips().height == 4_000
    assert drawn.pickups["medallion"].n_unique() == 50
    assert drawn.pickups.select("medallion", "zone").is_unique().all()
    assert (drawn.pickups.height == 50) == (roaming == 0)

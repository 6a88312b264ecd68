"""The names and shapes of a synthetic country."""

import numpy as np
import polars as pl
import pytest
import shapely

from tasks.synthesize.country import draw_country
from tasks.synthesize.land import cells, names


@pytest.mark.parametrize("municipalities", [20, 4_000])
def test_every_area_has_a_name_of_its_own(municipalities: int) -> None:
    """Of every level, the same ones each time, also where there are more areas than words."""
    codebook = pl.DataFrame(
        {
            "region": [f"{number % 3:02}" for number in range(municipalities)],
            "town": [f"{number % 3:02}{number:05}" for number in range(municipalities)],
        }
    )
    found = names(codebook)
    assert found.columns == ["level", "code", "name"]
    assert found.height == municipalities + 3 == found["name"].n_unique()
    assert found.equals(names(codebook))


@pytest.mark.parametrize("areas", [1, 2, 3, 60])
def test_a_cell_lies_around_its_place(areas: int) -> None:
    """The cells of all places fill the land without overlap, and each holds its place."""
    country = draw_country(
        regions=1, provinces=1, municipalities=areas, people=9, generator=np.random.default_rng(areas)
    )
    assert country.places is not None
    found = [shapely.geometry.shape(cell) for cell in cells(country.places)]
    assert len(found) == areas
    for cell, place in zip(found, country.places / 111.0, strict=True):
        assert cell.buffer(1e-4).contains(shapely.Point(place))
    whole = shapely.union_all(found)
    assert whole.is_valid
    assert sum(cell.area for cell in found) == pytest.approx(whole.area, rel=1e-3)

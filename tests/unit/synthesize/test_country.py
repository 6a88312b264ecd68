"""The made-up country: as many areas and people as asked for, codes that nest, and the same draw from the same seed."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tasks.synthesize.areas import Country, write_country
from tasks.synthesize.country import LEVELS, draw_country


def country_of(seed: int, **arguments: int) -> Country:
    """Return the country that a seed draws."""
    return draw_country(**arguments, generator=np.random.default_rng(seed))


@st.composite
def countries(draw: st.DrawFn) -> tuple[dict[str, int], Country]:
    """Draw the arguments of a small country, and the country."""
    regions = draw(st.integers(1, 5))
    provinces = draw(st.integers(regions, 12))
    municipalities = draw(st.integers(provinces, 30))
    arguments = {"regions": regions, "provinces": provinces, "municipalities": municipalities}
    arguments["people"] = draw(st.integers(1, 10_000))
    return arguments, country_of(draw(st.integers(0, 2**32)), **arguments)


@given(countries())
def test_totals_are_exact(drawn):
    """Every level has as many areas as asked for, and the trips add up to the people."""
    arguments, country = drawn
    areas = [country.codebook[level].n_unique() for level in LEVELS]
    assert areas == [arguments["regions"], arguments["provinces"], arguments["municipalities"]]
    assert country.codebook.height == arguments["municipalities"]
    assert country.trips["people"].sum() == arguments["people"]


@given(countries())
def test_codes_nest(drawn):
    """A code begins with the code of the area above it, belongs to that area alone, and is as long as its siblings."""
    _, country = drawn
    for above, level in pairwise(LEVELS):
        pairs = country.codebook.select(above, level).unique()
        assert pairs[level].is_unique().all()
        assert all(code.startswith(parent) for parent, code in pairs.iter_rows())
        assert pairs[level].str.len_chars().n_unique() == 1


@given(countries())
def test_tables_are_in_order(drawn):
    """Both tables are sorted, no pair of codes comes twice, and every code of a trip is in the codebook."""
    _, country = drawn
    assert_frame_equal(country.codebook, country.codebook.sort(LEVELS))
    assert_frame_equal(country.trips, country.trips.sort("home", "work"))
    assert not country.trips.select("home", "work").is_duplicated().any()
    assert country.trips.schema == {"home": pl.String, "work": pl.String, "people": pl.Int64}
    assert (country.trips["people"] >= 1).all()
    for end in ("home", "work"):
        assert country.trips[end].is_in(country.codebook["municipality"].implode()).all()


def test_codes_are_text_with_leading_zeros():
    """The default country's codes look like official ones: read as numbers they would lose a digit."""
    codebook = country_of(1).codebook
    assert codebook.row(0) == ("01", "0101", "0101001")
    assert codebook.row(-1)[0] == "04"


def test_codes_grow_when_a_parent_has_many_children():
    """A thousand municipalities of one province get one more digit, all of them."""
    codes = country_of(1, regions=1, provinces=1, municipalities=1000, people=1).codebook["municipality"]
    assert codes[0] == "01010001"
    assert codes[-1] == "01011000"


@pytest.mark.parametrize("seed", range(5))
def test_country_looks_like_one(seed):
    """Most pairs are empty, about two in five people stay, most of the rest stay near, and sizes have a long tail."""
    country = country_of(seed)
    trips = country.trips
    assert trips.height < 0.25 * 200**2
    assert 0.38 < trips.filter(pl.col("home") == pl.col("work"))["people"].sum() / 100_000 < 0.42
    same_region = pl.col("home").str.head(2) == pl.col("work").str.head(2)
    assert trips.filter(same_region)["people"].sum() > 0.7 * 100_000
    residents = trips.group_by("home").agg(pl.col("people").sum())["people"]
    assert residents.max() > 8 * residents.median()
    assert country.codebook.group_by("province").len()["len"].n_unique() > 3


def test_one_municipality_keeps_everyone():
    """Where there is nowhere else to work, all people stay."""
    trips = country_of(1, regions=1, provinces=1, municipalities=1, people=7).trips
    assert trips.rows() == [("0101001", "0101001", 7)]


def test_same_seed_draws_the_same_country():
    """Equal generators draw equal countries."""
    one, other = country_of(5), country_of(5)
    assert_frame_equal(one.codebook, other.codebook)
    assert_frame_equal(one.trips, other.trips)


def test_another_seed_draws_another_country():
    """Other generators draw other areas and other trips."""
    one, other = country_of(5), country_of(6)
    assert not one.codebook.equals(other.codebook)
    assert not one.trips.equals(other.trips)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"regions": 0}, "regions must be >= 1, got 0."),
        ({"provinces": 3}, "provinces must be >= regions, 4, got 3."),
        ({"municipalities": 19}, "municipalities must be >= provinces, 20, got 19."),
        ({"people": 0}, "people must be >= 1, got 0."),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    """A country that cannot be is refused with the field, the rule and the value."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        country_of(1, **arguments)
    assert str(refused.value) == message


def test_written_country_reads_back(tmp_path):
    """The files hold the tables, codes as text, and the README says that no person is in them."""
    country = country_of(1)
    write_country(country, tmp_path / "data")
    text = {"infer_schema": False}
    assert_frame_equal(pl.read_csv(tmp_path / "data" / "codebook.csv", **text), country.codebook)
    trips = pl.read_csv(tmp_path / "data" / "trips.csv", **text).with_columns(pl.col("people").cast(pl.Int64))
    assert_frame_equal(trips, country.trips)
    readme = " ".join((tmp_path / "data" / "README.md").read_text(encoding="utf-8").split())
    assert "no person is in these tables" in readme
    assert "4 regions, 20 provinces and 200 municipalities" in readme
    assert "100,000 people" in readme

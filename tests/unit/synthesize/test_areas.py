"""Made-up areas and the people between them: the country, the nation and the paper's sets, with laws that all of them keep."""

from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from benchmarks import drawn_nation
from tasks.synthesize import country as of_country
from tasks.synthesize.areas import SHARES, draw_paper_set, write_country
from tasks.synthesize.country import draw_country

PAPER_AREAS = {"binary": 256, "random": 435}


def country_of(seed, **arguments):
    """Return the country that a seed draws."""
    return draw_country(**arguments, generator=np.random.default_rng(seed))


def set_of(kind, density, seed=3):
    """Return the paper's set that a seed draws."""
    return draw_paper_set(kind, density, generator=np.random.default_rng(seed))


def check_tables(drawn):
    """Check that codes nest, are of one width per level, and that both tables are sorted and know the same codes."""
    codebook, trips, levels = drawn.codebook, drawn.trips, drawn.codebook.columns
    for above, level in pairwise(levels):
        pairs = codebook.select(above, level).unique()
        assert pairs[level].is_unique().all()
        assert pairs[level].str.len_chars().n_unique() == 1
        assert (pairs[level].str.head(pairs[above].str.len_chars()[0]) == pairs[above]).all()
    assert_frame_equal(codebook, codebook.sort(levels))
    assert_frame_equal(trips, trips.sort("home", "work"))
    assert trips.schema == {"home": pl.String, "work": pl.String, "people": pl.Int64}
    assert not trips.select("home", "work").is_duplicated().any()
    assert (trips["people"] >= 1).all()
    for end in ("home", "work"):
        assert trips[end].is_in(codebook[levels[-1]].implode()).all()


AREAS = st.lists(st.integers(1, 12), min_size=5, max_size=5).map(sorted)


@given(AREAS, st.floats(0, 1), st.integers(0, 3_000), st.integers(0, 2**32))
def test_totals_are_exact(areas, share, others, seed):
    """Every level has as many areas as asked for, there are as many flows of a nation, and they add up to the people."""
    # So it is of one area, where nobody can go anywhere else.
    flows = 1 + int(share * (max(areas[-1] ** 2 // 10, 1) - 1))
    generator, people = np.random.default_rng(seed), flows + others
    nation = drawn_nation.draw_nation(areas=tuple(areas), flows=flows, people=people, generator=generator)
    assert nation.trips.height == flows
    of_levels = dict(zip(("regions", "provinces", "municipalities"), areas[:3], strict=True))
    country = country_of(seed, people=flows + others, **of_levels)
    for drawn, levels in ((nation, drawn_nation.LEVELS), (country, of_country.LEVELS)):
        assert [drawn.codebook[level].n_unique() for level in levels] == areas[: len(levels)]
        assert drawn.codebook.height == areas[len(levels) - 1]
        assert drawn.trips["people"].sum() == flows + others
        check_tables(drawn)


@pytest.mark.parametrize(("kind", "density"), list(product(PAPER_AREAS, SHARES)))
def test_pairs_of_a_paper_set_are_as_dense_as_they_should_be(kind, density):
    """All pairs, half, or one in a hundred have people: the largest a thousand, the least few, and most less than the mean."""
    drawn = set_of(kind, density)
    check_tables(drawn)
    assert drawn.codebook.height == PAPER_AREAS[kind]
    assert drawn.trips.height == round({"complete": 1, "dense": 0.5, "sparse": 0.01}[density] * PAPER_AREAS[kind] ** 2)
    levels = [drawn.codebook[level].n_unique() for level in drawn.codebook.columns]
    if kind == "binary":
        assert levels == [2**level for level in range(1, 9)]
    people = drawn.trips["people"]
    assert people.max() == 1000
    assert 1 <= people.min() <= 2
    assert people.median() < 0.8 * people.mean()


def test_people_stay_and_codes_look_official():
    """Two in five people of a country stay where they live; read as numbers codes would lose a digit."""
    country, stay = country_of(1), pl.col("home") == pl.col("work")
    assert country.codebook.row(0) == ("01", "0101", "0101001")
    assert 0.38 < country.trips.filter(stay)["people"].sum() / 100_000 < 0.42


DRAWN = {"country": country_of, "paper set": lambda seed: set_of("random", "sparse", seed)}


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_draws_its_areas_again(name):
    """Equal seeds draw equal areas and trips, others others; densities of a seed share the hierarchy."""
    one, again, other = (DRAWN[name](seed) for seed in (5, 5, 6))
    assert_frame_equal(one.codebook, again.codebook)
    assert_frame_equal(one.trips, again.trips)
    assert not one.codebook.equals(other.codebook)
    assert not one.trips.equals(other.trips)
    if name == "paper set":
        assert_frame_equal(set_of("random", "dense", 5).codebook, one.codebook)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"regions": 0}, "regions must be >= 1, got 0."),
    ({"provinces": 3}, "provinces must be >= regions, 4, got 3."),
    ({"people": 0}, "people must be >= 1, got 0."),
])  # fmt: skip
def test_impossible_arguments_are_refused(arguments, message):
    """What cannot be is refused with the field, the rule and the value."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        country_of(1, **arguments)
    assert str(refused.value) == message


def test_written_tables_read_back(tmp_path):
    """The files hold the tables, codes as text; the README says how many areas there are, and that no person is in them."""
    country, text = country_of(1), {"infer_schema": False}
    write_country(country, tmp_path / "csv")
    assert_frame_equal(pl.read_csv(tmp_path / "csv" / "codebook.csv", **text), country.codebook)
    trips = pl.read_csv(tmp_path / "csv" / "trips.csv", **text).with_columns(pl.col("people").cast(pl.Int64))
    assert_frame_equal(trips, country.trips)
    write_country(country, tmp_path / "parquet", "parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "parquet" / "codebook.parquet"), country.codebook)
    assert_frame_equal(pl.read_parquet(tmp_path / "parquet" / "trips.parquet"), country.trips)
    write_country(set_of("binary", "sparse"), tmp_path / "set")
    said = {
        "csv": ["4 regions, 20 provinces and 200 municipalities", "100,000 people"],
        "parquet": ["200 municipalities of `codebook.parquet`", "100,000 people of"],
        "set": ["128 areas of level_7 and 256 areas of level_8"],
    }
    for folder, words in said.items():
        readme = " ".join((tmp_path / folder / "README.md").read_text(encoding="utf-8").split())
        assert [of for of in (*words, "no person is in these tables") if of not in readme] == []

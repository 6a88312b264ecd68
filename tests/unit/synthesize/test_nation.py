"""The made-up nation: counts exact at every size, codes that nest, flows that look like commuting."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tasks.synthesize.areas import Country, write_country
from tasks.synthesize.nation import LEVELS, draw_nation

SMALL = (4, 12, 200, 500, 8_000)  # areas of each level
FLOWS, PEOPLE = 300_000, 650_000


def nation_of(seed: int, *, areas: tuple[int, ...] = SMALL, flows: int = FLOWS, people: int = PEOPLE) -> Country:
    """Return the nation that a seed draws."""
    return draw_nation(areas=areas, flows=flows, people=people, generator=np.random.default_rng(seed))


@pytest.fixture(scope="module")
def nation() -> Country:
    """Return a nation a fiftieth of Italy."""
    return nation_of(1)


def share_within(nation: Country, level: str) -> float:
    """Return the share of people who work in the area of a level in which they live."""
    digits = nation.codebook[level].str.len_chars()[0]
    within = pl.col("home").str.head(digits) == pl.col("work").str.head(digits)
    return nation.trips.filter(within)["people"].sum() / nation.trips["people"].sum()


@given(
    st.lists(st.integers(1, 12), min_size=5, max_size=5).map(sorted),
    st.floats(0, 1),
    st.integers(0, 3_000),
    st.integers(0, 2**32),
)
def test_totals_are_exact(areas, share, others, seed):
    """Every level has as many areas as asked for, there are as many distinct flows, and they add up to the people."""
    flows = 1 + int(share * (max(areas[-1] ** 2 // 10, 1) - 1))
    nation = nation_of(seed, areas=tuple(areas), flows=flows, people=flows + others)
    assert [nation.codebook[level].n_unique() for level in LEVELS] == areas
    assert nation.codebook.height == areas[-1]
    assert nation.trips.select("home", "work").n_unique() == nation.trips.height == flows
    assert nation.trips["people"].sum() == flows + others
    assert (nation.trips["people"] >= 1).all()


def test_codes_nest(nation):
    """A code is its parent's code and a number, of one width in each level, and no two parents share a child."""
    for above, level in pairwise(LEVELS):
        pairs = nation.codebook.select(above, level).unique()
        assert pairs[level].is_unique().all()
        assert (pairs[level].str.head(pairs[above].str.len_chars()[0]) == pairs[above]).all()
        assert pairs[level].str.len_chars().n_unique() == 1
    assert nation.codebook.row(0) == ("01", "0101", "0101001", "0101001001", "0101001001001")


def test_tables_are_in_order(nation):
    """Both tables are sorted, and every code of a flow is in the codebook."""
    assert_frame_equal(nation.codebook, nation.codebook.sort(LEVELS))
    assert_frame_equal(nation.trips, nation.trips.sort("home", "work"))
    assert nation.trips.schema == {"home": pl.String, "work": pl.String, "people": pl.Int64}
    for end in ("home", "work"):
        assert nation.trips[end].is_in(nation.codebook["section"].implode()).all()


@pytest.mark.parametrize("seed", range(3))
def test_people_stay_near(seed):
    """Two thirds work in their municipality, of the others most in their province, and more in their region than out of it."""
    nation = nation_of(seed)
    municipality, province, region = (share_within(nation, level) for level in ("municipality", "province", "region"))
    assert 0.65 < municipality < 0.68
    assert 0.87 < province < 0.91
    assert 0.95 < region < 0.98


def test_most_flows_have_one_person(nation):
    """The median flow has one person, and the largest hundreds of times that."""
    people = nation.trips["people"]
    assert people.median() == 1
    assert people.max() > 100


def test_children_have_a_long_tail(nation):
    """Some areas have ten times the sections of the median one, and some municipalities as many times its areas."""
    sections = nation.codebook.group_by("area").len()["len"]
    assert sections.max() > 10 * sections.median()
    areas = nation.codebook.group_by("municipality").agg(pl.col("area").n_unique())["area"]
    assert areas.max() > 10 * areas.median()


def test_section_alone_keeps_everyone():
    """Where every ring around a section is empty, all people work where they live."""
    trips = nation_of(1, areas=(1, 1, 1, 1, 1), flows=1, people=7).trips
    assert trips.rows() == [("0101001001001",) * 2 + (7,)]


def test_same_seed_draws_the_same_nation(nation):
    """Equal generators draw equal nations, other generators others."""
    same, other = nation_of(1), nation_of(2)
    assert_frame_equal(same.codebook, nation.codebook)
    assert_frame_equal(same.trips, nation.trips)
    assert not other.codebook.equals(nation.codebook)
    assert not other.trips.equals(nation.trips)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"areas": (0, 12, 200, 500, 8_000)}, "areas[0] must be >= 1, got 0."),
        ({"areas": (4, 12, 11, 500, 8_000)}, "areas[2] must be >= province areas, 12, got 11."),
        ({"areas": (4, 12, 200)}, "areas must be 5 numbers, one per level, got 3."),
        ({"flows": 0}, "flows must be >= 1, got 0."),
        (
            {"flows": 6_400_001, "people": 6_400_001},
            "flows must be <= a tenth of the pairs of sections, 6400000, got 6400001.",
        ),
        ({"people": FLOWS - 1}, "people must be >= flows, 300000, got 299999."),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    """A nation that cannot be is refused with the field, the rule and the value."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        nation_of(1, **arguments)
    assert str(refused.value) == message


def test_written_nation_reads_back(nation, tmp_path):
    """The Parquet files hold the tables, codes as text, and the README says that no person is in them."""
    write_country(nation, tmp_path, "parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "codebook.parquet"), nation.codebook)
    assert_frame_equal(pl.read_parquet(tmp_path / "trips.parquet"), nation.trips)
    readme = " ".join((tmp_path / "README.md").read_text(encoding="utf-8").split())
    assert "no person is in these tables" in readme
    assert "200 municipalities, 500 areas and 8,000 sections of `codebook.parquet`" in readme
    assert "650,000 people of `trips.parquet`" in readme

"""Made-up areas and the people between them: the country, the nation and the paper's sets, with laws that all of them keep."""

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tasks.synthesize import country as of_country
from tasks.synthesize import nation as of_nation
from tasks.synthesize.areas import Country, write_country
from tasks.synthesize.country import draw_country
from tasks.synthesize.nation import draw_nation
from tasks.synthesize.paper_sets import SHARES, draw_paper_set

SMALL = (4, 12, 200, 500, 8_000)  # areas of each level of a nation a fiftieth of Italy
FLOWS, PEOPLE = 300_000, 650_000
PAPER_AREAS = {"binary": 256, "random": 435}


def country_of(seed: int, **arguments: int) -> Country:
    """Return the country that a seed draws."""
    return draw_country(**arguments, generator=np.random.default_rng(seed))


def nation_of(seed: int, *, areas: tuple[int, ...] = SMALL, flows: int = FLOWS, people: int = PEOPLE) -> Country:
    """Return the nation that a seed draws."""
    return draw_nation(areas=areas, flows=flows, people=people, generator=np.random.default_rng(seed))


def set_of(kind: str, density: str, seed: int = 3) -> Country:
    """Return the paper's set that a seed draws."""
    return draw_paper_set(kind, density, generator=np.random.default_rng(seed))


@pytest.fixture(scope="module")
def nation() -> Country:
    """Return a nation."""
    return nation_of(1)


def check_tables(drawn: Country) -> None:
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


@given(st.data())
def test_totals_of_a_country_are_exact(data: st.DataObject) -> None:
    """Every level has as many areas as asked for, and the trips add up to the people."""
    areas = [data.draw(st.integers(1, 5))]
    areas += [data.draw(st.integers(areas[0], 12))]
    areas += [data.draw(st.integers(areas[1], 30))]
    people = data.draw(st.integers(1, 10_000))
    arguments = dict(zip(("regions", "provinces", "municipalities"), areas, strict=True))
    country = country_of(data.draw(st.integers(0, 2**32)), **arguments, people=people)
    assert [country.codebook[level].n_unique() for level in of_country.LEVELS] == areas
    assert country.codebook.height == areas[-1]
    assert country.trips["people"].sum() == people
    check_tables(country)


@given(
    st.lists(st.integers(1, 12), min_size=5, max_size=5).map(sorted),
    st.floats(0, 1),
    st.integers(0, 3_000),
    st.integers(0, 2**32),
)
def test_totals_of_a_nation_are_exact(areas: list[int], share: float, others: int, seed: int) -> None:
    """Every level has as many areas as asked for, there are as many distinct flows, and they add up to the people."""
    flows = 1 + int(share * (max(areas[-1] ** 2 // 10, 1) - 1))
    nation = nation_of(seed, areas=tuple(areas), flows=flows, people=flows + others)
    assert [nation.codebook[level].n_unique() for level in of_nation.LEVELS] == areas
    assert nation.codebook.height == areas[-1]
    assert nation.trips.height == flows
    assert nation.trips["people"].sum() == flows + others
    check_tables(nation)


@pytest.mark.parametrize(("kind", "density"), list(product(PAPER_AREAS, SHARES)))
def test_pairs_of_a_paper_set_are_as_dense_as_they_should_be(kind: str, density: str) -> None:
    """All pairs, half, or one in a hundred have people: the largest a thousand, the least few, and most less than the mean."""
    drawn = set_of(kind, density)
    check_tables(drawn)
    assert drawn.codebook.height == PAPER_AREAS[kind]
    assert drawn.trips.height == round({"complete": 1, "dense": 0.5, "sparse": 0.01}[density] * PAPER_AREAS[kind] ** 2)
    people = drawn.trips["people"]
    assert people.max() == 1000
    assert 1 <= people.min() <= 2
    assert people.median() < 0.8 * people.mean()


def test_codes_look_like_official_ones(nation: Country) -> None:
    """Read as numbers they would lose a digit; a thousand municipalities of one province get one more, all of them."""
    check_tables(nation)
    codebook = country_of(1).codebook
    assert codebook.row(0) == ("01", "0101", "0101001")
    assert codebook.row(-1)[0] == "04"
    codes = country_of(1, regions=1, provinces=1, municipalities=1000, people=1).codebook["municipality"]
    assert (codes[0], codes[-1]) == ("01010001", "01011000")
    assert nation.codebook.row(0) == ("01", "0101", "0101001", "0101001001", "0101001001001")


@pytest.mark.parametrize("seed", range(5))
def test_country_looks_like_one(seed: int) -> None:
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


@pytest.mark.parametrize("seed", range(1, 4))
def test_people_of_a_nation_stay_near(seed: int) -> None:
    """Two thirds work in their municipality, of the others most in their province, and more in their region than out of it."""
    nation, shares = nation_of(seed), []
    for level in ("municipality", "province", "region"):
        digits = nation.codebook[level].str.len_chars()[0]
        within = pl.col("home").str.head(digits) == pl.col("work").str.head(digits)
        shares.append(nation.trips.filter(within)["people"].sum() / nation.trips["people"].sum())
    assert 0.65 < shares[0] < 0.68
    assert 0.87 < shares[1] < 0.91
    assert 0.95 < shares[2] < 0.98


def test_flows_and_children_of_a_nation_have_a_long_tail(nation: Country) -> None:
    """The median flow has one person and the largest hundreds; some areas have ten times the children of the median one."""
    people = nation.trips["people"]
    assert people.median() == 1
    assert people.max() > 100
    sections = nation.codebook.group_by("area").len()["len"]
    areas = nation.codebook.group_by("municipality").agg(pl.col("area").n_unique())["area"]
    for children in (sections, areas):
        assert children.max() > 10 * children.median()


def test_where_there_is_nowhere_else_all_people_stay() -> None:
    """One municipality, or one section, keeps everyone."""
    trips = country_of(1, regions=1, provinces=1, municipalities=1, people=7).trips
    assert trips.rows() == [("0101001", "0101001", 7)]
    trips = nation_of(1, areas=(1, 1, 1, 1, 1), flows=1, people=7).trips
    assert trips.rows() == [("0101001001001",) * 2 + (7,)]


def test_binary_areas_have_two_children_each_and_random_ones_two_to_ten() -> None:
    """Eight levels double from 2 to 256 areas; in four levels fan-outs differ."""
    codebook = set_of("binary", "sparse").codebook
    assert [codebook[level].n_unique() for level in codebook.columns] == [2, 4, 8, 16, 32, 64, 128, 256]
    for seed in range(3):
        codebook = set_of("random", "sparse", seed).codebook
        assert codebook.width == 4
        fan_outs = {codebook[codebook.columns[0]].n_unique()}
        for above, level in pairwise(codebook.columns):
            fan_outs |= set(codebook.group_by(above).agg(pl.col(level).n_unique())[level])
        assert min(fan_outs) >= 2
        assert max(fan_outs) <= 10
        assert len(fan_outs) > 3


def test_tails_of_a_paper_set_are_those_of_the_law() -> None:
    """Of 65,536 pairs the share that has more than t times the scale of the others is (1 + t)^-3, within 5 standard errors."""
    people = set_of("binary", "complete").trips["people"].to_numpy()
    scale = (people - 1).mean() * 2  # the law's mean is half
    for t in (0.5, 1.0, 2.0):
        share = 1 / (1 + t) ** 3
        rounding = 2 * 3 / (1 + t) ** 4 / scale  # people are rounded down, and so is the mean
        assert abs((people - 1 > t * scale).mean() - share) < 5 * np.sqrt(share / len(people)) + rounding


DRAWN: dict[str, Callable[[int], Country]] = {
    "country": country_of,
    "nation": nation_of,
    "paper set": lambda seed: set_of("random", "sparse", seed),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_draws_its_areas_again(name: str) -> None:
    """Equal seeds draw equal areas and trips, others others; densities of a seed share the hierarchy."""
    one, again, other = (DRAWN[name](seed) for seed in (5, 5, 6))
    assert_frame_equal(one.codebook, again.codebook)
    assert_frame_equal(one.trips, again.trips)
    assert not one.codebook.equals(other.codebook)
    assert not one.trips.equals(other.trips)
    if name == "paper set":
        assert_frame_equal(set_of("random", "dense", 5).codebook, one.codebook)


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (country_of, {"regions": 0}, "regions must be >= 1, got 0."),
        (country_of, {"provinces": 3}, "provinces must be >= regions, 4, got 3."),
        (country_of, {"municipalities": 19}, "municipalities must be >= provinces, 20, got 19."),
        (country_of, {"people": 0}, "people must be >= 1, got 0."),
        (nation_of, {"areas": (0, 12, 200, 500, 8_000)}, "areas[0] must be >= 1, got 0."),
        (nation_of, {"areas": (4, 12, 11, 500, 8_000)}, "areas[2] must be >= province areas, 12, got 11."),
        (nation_of, {"areas": (4, 12, 200)}, "areas must be 5 numbers, one per level, got 3."),
        (nation_of, {"flows": 0}, "flows must be >= 1, got 0."),
        (
            nation_of,
            {"flows": 6_400_001, "people": 6_400_001},
            "flows must be <= a tenth of the pairs of sections, 6400000, got 6400001.",
        ),
        (nation_of, {"people": FLOWS - 1}, "people must be >= flows, 300000, got 299999."),
    ],
)
def test_impossible_arguments_are_refused(draw: Callable[..., Country], arguments: Any, message: str) -> None:
    """What cannot be is refused with the field, the rule and the value."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        draw(1, **arguments)
    assert str(refused.value) == message


def test_written_tables_read_back(tmp_path, nation: Country) -> None:
    """The files hold the tables, codes as text; the README says how many areas there are, and that no person is in them."""
    country, text = country_of(1), {"infer_schema": False}
    write_country(country, tmp_path / "csv")
    assert_frame_equal(pl.read_csv(tmp_path / "csv" / "codebook.csv", **text), country.codebook)
    trips = pl.read_csv(tmp_path / "csv" / "trips.csv", **text).with_columns(pl.col("people").cast(pl.Int64))
    assert_frame_equal(trips, country.trips)
    write_country(nation, tmp_path / "parquet", "parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "parquet" / "codebook.parquet"), nation.codebook)
    assert_frame_equal(pl.read_parquet(tmp_path / "parquet" / "trips.parquet"), nation.trips)
    write_country(set_of("binary", "sparse"), tmp_path / "set")
    said = {
        "csv": ["4 regions, 20 provinces and 200 municipalities", "100,000 people"],
        "parquet": ["200 municipalities, 500 areas and 8,000 sections of `codebook.parquet`", "650,000 people of"],
        "set": ["128 areas of level_7 and 256 areas of level_8"],
    }
    for folder, words in said.items():
        readme = " ".join((tmp_path / folder / "README.md").read_text(encoding="utf-8").split())
        assert [of for of in (*words, "no person is in these tables") if of not in readme] == []

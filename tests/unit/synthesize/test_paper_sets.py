"""The paper's made-up sets: their hierarchies, how many pairs have people, and how many people those have."""

from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tasks.synthesize.areas import Country, write_country
from tasks.synthesize.paper_sets import SHARES, draw_paper_set

AREAS = {"binary": 256, "random": 435}
every_set = pytest.mark.parametrize(("kind", "density"), list(product(AREAS, SHARES)))


def set_of(kind: str, density: str, seed: int = 3) -> Country:
    """Return the set that a seed draws."""
    return draw_paper_set(kind, density, generator=np.random.default_rng(seed))


@every_set
def test_pairs_are_as_dense_as_they_should_be(kind, density):
    """All pairs of areas, half of them, or one in a hundred have people, and no pair comes twice."""
    drawn = set_of(kind, density)
    assert drawn.codebook.height == AREAS[kind]
    assert drawn.trips.height == round({"complete": 1, "dense": 0.5, "sparse": 0.01}[density] * AREAS[kind] ** 2)
    assert not drawn.trips.select("home", "work").is_duplicated().any()


@every_set
def test_people_are_from_one_to_a_thousand_and_most_are_few(kind, density):
    """The largest pair has a thousand people, the least few, and half of the pairs have less than half the mean."""
    people = set_of(kind, density).trips["people"]
    assert people.max() == 1000
    assert 1 <= people.min() <= 2
    assert people.median() < 0.8 * people.mean()


@pytest.mark.parametrize("kind", AREAS)
def test_tables_are_in_order_and_codes_nest(kind):
    """Both tables are sorted, codes are of one width per level, begin with the code above, and all trips have known ones."""
    drawn = set_of(kind, "sparse")
    levels = drawn.codebook.columns
    assert_frame_equal(drawn.codebook, drawn.codebook.sort(levels))
    assert_frame_equal(drawn.trips, drawn.trips.sort("home", "work"))
    for above, level in pairwise(levels):
        assert all(code.startswith(parent) for parent, code in drawn.codebook.select(above, level).iter_rows())
        assert drawn.codebook[level].str.len_chars().n_unique() == 1
    for end in ("home", "work"):
        assert drawn.trips[end].is_in(drawn.codebook[levels[-1]].implode()).all()


def test_binary_areas_have_two_children_each():
    """Eight levels double from 2 to 256 areas."""
    codebook = set_of("binary", "sparse").codebook
    assert [codebook[level].n_unique() for level in codebook.columns] == [2, 4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("seed", range(3))
def test_random_areas_have_two_to_ten_children(seed):
    """In four levels every area has from 2 to 10 children, and not all as many."""
    codebook = set_of("random", "sparse", seed).codebook
    assert codebook.width == 4
    fan_out = [codebook[codebook.columns[0]].n_unique()]
    for above, level in pairwise(codebook.columns):
        fan_out += codebook.group_by(above).agg(pl.col(level).n_unique())[level].to_list()
    assert min(fan_out) >= 2
    assert max(fan_out) <= 10
    assert len(set(fan_out)) > 3


def test_densities_of_a_seed_share_the_hierarchy():
    """The random hierarchy is drawn before the pairs."""
    assert_frame_equal(set_of("random", "dense").codebook, set_of("random", "sparse").codebook)


def test_same_seed_draws_the_same_set_and_another_another():
    """Equal generators draw equal sets, other generators other ones."""
    assert_frame_equal(set_of("random", "sparse", 5).trips, set_of("random", "sparse", 5).trips)
    assert not set_of("random", "sparse", 5).trips.equals(set_of("random", "sparse", 6).trips)


def test_tails_are_those_of_the_law():
    """Of 65,536 pairs the share that has more than t times the scale of the others is (1 + t)^-3, within 5 standard errors."""
    people = set_of("binary", "complete").trips["people"].to_numpy()
    scale = (people - 1).mean() * 2  # the law's mean is half
    for t in (0.5, 1.0, 2.0):
        share = 1 / (1 + t) ** 3
        rounding = 2 * 3 / (1 + t) ** 4 / scale  # people are rounded down, and so is the mean
        assert abs((people - 1 > t * scale).mean() - share) < 5 * np.sqrt(share / len(people)) + rounding


def test_readme_counts_areas_of_levels_without_names(tmp_path):
    """The README of a written set says how many areas its numbered levels have, and that nobody is in it."""
    write_country(set_of("binary", "sparse"), tmp_path)
    readme = " ".join((tmp_path / "README.md").read_text(encoding="utf-8").split())
    assert "128 areas of level_7 and 256 areas of level_8" in readme
    assert "no person is in these tables" in readme

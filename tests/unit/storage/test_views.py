"""The readable names of published levels in the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.counts.published import level_views

names = st.text(st.sampled_from("aAb_ß\"'- "), max_size=12) | st.sampled_from(["all", "to", "a_to_b", "x" * 80])


def ends(*levels):
    """Return the axes of levels of trips."""
    return [{"origin": origin, "destination": destination} for origin, destination in levels]


FEATURES = [{"area": None, "school": None, "sex": "sex"}, {"area": "area", "school": "grade", "sex": "sex"}]

BY_SEX = [{"origin": None, "destination": None, "sex": "sex"}, {"origin": "cty", "destination": None, "sex": "sex"}]


@pytest.mark.parametrize(("levels", "taken", "views"), [
    (ends((None, "cty"), ("cty", "cty"), ("cty", "trct")), [], ["all_to_cty", "cty_to_cty", "cty_to_trct"]),
    (FEATURES, [], ["by_sex", "by_area_school_grade_sex"]),
    (BY_SEX, [], ["by_sex", "cty_to_all_by_sex"]),
    (ends(("a", "b"), ("A", "b"), ("a", "b_1")), [], ["a_to_b_1_1", "A_to_b_2", "a_to_b_1"]),
    (ends(("level", "x")), ["LEVEL_to_x"], ["level_to_x_1"]),
    (ends(("é" * 40, "b")), [], ["é" * 30 + "_1"]),
])  # fmt: skip
def test_levels_are_named_by_their_ends_or_features(levels, taken, views):
    """Where two would be the same but for case, or are taken or too long, the level's number stands behind them."""
    total = dict.fromkeys(levels[0])
    assert level_views([total, *levels], {"area", "sex"}, taken) == ["total", *views]


@given(levels=st.lists(st.tuples(names, names), max_size=6), taken=st.lists(names, max_size=3))
def test_no_two_names_are_the_same(levels, taken):
    """Whatever the levels are called, every one has a name of its own, of at most 63 bytes, and none that is taken."""
    views = level_views(ends((None, None), *levels), taken=taken)
    folded = [view.casefold() for view in views]
    assert len(set(folded)) == len(folded) == len(levels) + 1
    assert set(folded).isdisjoint(name.casefold() for name in taken)
    assert all(len(view.encode()) <= 63 for view in views)

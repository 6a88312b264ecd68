"""The terms of a release: they survive the store, and the store takes no others."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import StoreError
from storage.releases.terms import FileTerms, Intervals, Privacy, RunTerms, TableTerms, Terms
from tests.support.steps import TERMS

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=9)
PATHS = st.dictionaries(TEXT, TEXT, max_size=2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)

ALL_TERMS = st.builds(  # what is not named is of the field's type
    Terms,
    published_spec=st.dictionaries(TEXT, JSON, max_size=3),
    codebooks=PATHS,
    csv=st.sampled_from([True, False, "every_level", None]),
    intervals=st.builds(Intervals, confidence=FINITE),
    privacy=st.builds(Privacy, epsilon=FINITE, delta=FINITE, rho=FINITE, tau=FINITE),
    run=st.builds(RunTerms, TEXT, st.none() | st.integers(1)),
    files=st.builds(FileTerms, TEXT, st.dictionaries(TEXT, st.builds(TableTerms, TEXT, TEXT), max_size=2)),
    different_people=st.booleans(),
    series=TEXT,
    measure=st.sampled_from(["survivors", "all", "above"]),
    formats=st.lists(st.sampled_from(["csv", "xlsx", "omx", "geoparquet", "sdmx"]), max_size=3).map(tuple),
)


@settings(max_examples=40)
@given(ALL_TERMS)
def test_terms_come_back_from_the_store_as_they_went_in(terms):
    """Every field of the terms survives JSON exactly, its type included."""
    read = Terms.from_json(terms.to_json())
    assert read == terms
    assert repr(read) == repr(terms)


@pytest.mark.parametrize("part", [None, "intervals", "privacy", "run", "files"])
def test_a_missing_key_or_an_unknown_one_is_an_error(part):
    """The store names a key that terms lack, or one that it does not know."""
    whole = json.loads(TERMS.to_json())
    for name in [*(whole[part] if part else whole), "of_tomorrow"]:
        content = json.loads(TERMS.to_json())
        section = content[part] if part else content
        if name in section:
            del section[name]
        else:
            section[name] = 1
        with pytest.raises(StoreError, match=rf"^terms{rf'[.]{part}' if part else ''} .*{name}[.](\n|$)"):
            Terms.from_json(json.dumps(content))

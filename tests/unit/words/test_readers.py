"""What a spec says to the readers of its release."""

from typing import Any

import pytest

from tasks.words.levels import place
from tasks.words.readers import about, axes_called, level_called, title_of

ONE = {"hierarchy": {"table": "areas.csv", "levels": ["cty", "trct"], "called": {"cty": "county"}}}
PER_END = {
    "hierarchy": {"origin": {"levels": ["cty"], "called": {"cty": "county"}}, "destination": {"levels": ["cty"]}}
}
PER_FEATURE = {
    "hierarchy": {"job": {"levels": ["nace"], "called": {"nace": "branch"}}, "sex": ["f", "m"], "age": {"ordered": 3}}
}


@pytest.mark.parametrize(
    ("spec", "axis", "level", "word"),
    [
        (ONE, "origin", "cty", "county"),
        (ONE, "destination", "cty", "county"),
        (ONE, "origin", "trct", "trct"),
        (PER_END, "origin", "cty", "county"),
        (PER_END, "destination", "cty", "cty"),
        (PER_FEATURE, "job", "nace", "branch"),
        (PER_FEATURE, "sex", "sex", "sex"),
        (PER_FEATURE, "age", "age_1", "age_1"),
        ({}, "origin", "cty", "cty"),
    ],
)
def test_a_level_is_called_as_its_spec_says(spec: dict[str, Any], axis: str, level: str, word: str) -> None:
    """At each end and of each feature; a level without a word keeps the name of its column."""
    assert level_called(spec, axis, level) == word


def test_a_place_is_told_in_the_words_of_readers() -> None:
    """An axis that is not refined has no word."""
    assert place(axes_called(ONE, {"origin": "cty", "destination": None})) == "origin county, destination all"


@pytest.mark.parametrize(
    ("spec", "title", "text"),
    [
        ({"title": "Jobs\n in 2019"}, "Jobs in 2019", ""),
        ({"dataset": "jobs", "source": "An office."}, "jobs", "Source: An office."),
        ({"description": "Of  the state.", "source": "An office"}, "an id", "Of the state. Source: An office."),
    ],
)
def test_titles_and_sources_are_told_in_a_line(spec: dict[str, str], title: str, text: str) -> None:
    """A title is on one line, whatever its spec has; a source ends with one full stop."""
    assert title_of(spec, "an id") == title
    assert about(spec) == text

"""What the README of a published folder says about its counts."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.mechanisms import MECHANISMS
from tasks.format.manifest import Intervals, LedgerHead, LevelEntry, Manifest, NoiseRows, Rounding, SealEntry
from tasks.report.readme.page import readme
from tasks.words.numbers import (
    format_bound,
    format_noise_rows,
    format_percent,
    format_probability,
    format_rounded,
    format_short,
    format_sigma,
)
from tests.support.facts import PRIVACY


def said(mechanism: str, bound: float | None, noise_rows: NoiseRows | None = None, **manifest: Any) -> str:
    """Return the README of a release of one level of regions, as one line."""
    plain = {"rho": 0, "sigma": 0, "l2_sensitivity": 0, "derivation": ""}
    total = LevelEntry(level=0, axes={"home": None}, cells=1, nonzero=1, bound=bound and 0.0, **plain)
    noise = {"rho": 0.02, "sigma": 7.25, "l2_sensitivity": 1.4, "bound": bound, "noise_rows": noise_rows}
    regions = LevelEntry(level=1, axes={"home": "region"}, cells=3, nonzero=2, **plain | noise)
    made = Manifest(
        id="jobs-1",
        spec={"name": "jobs"},
        privacy=PRIVACY,
        unprotected=[],
        levels=[total, regions],
        mechanism=mechanism,
        codebooks={"home": "0"},
        seals=[SealEntry(level=level, branch="trunk", sha256="0") for level in (0, 1)],
        ledger=LedgerHead(head="0", length=1, first="0"),
        versions={"trellis": "0.1.0"},
        intervals=Intervals(confidence=0.9),
        **manifest,
    )
    return " ".join(readme(made, MECHANISMS[mechanism].how_counted).split())


@pytest.mark.parametrize(
    ("mechanism", "bound", "told"),
    [
        ("inftda", 30.0, "within the level's error bound of its true count"),
        ("tda_l2", None, "noise in one measurement, before the counts were adjusted to add up."),
        ("inftda_reconciled", None, "noise in one measurement, not in a count: each count is estimated from"),
        ("inftda_lenient", None, "noise in one measurement, not in a count: each count is estimated from"),
        ("inftda_shrunk", None, "drawn towards what its level shows to be likely"),
    ],
)
def test_a_readme_says_what_sigma_is_of(mechanism: str, bound: float | None, told: str) -> None:
    """Without a bound it says that none is stated; of a threshold, or of the widest cell, it speaks where there is one."""
    text = said(mechanism, bound)
    assert told in text
    assert ("no error bound is stated" in text) == (bound is None)
    assert "threshold" not in text
    assert "widest" not in text
    assert "The noisy counts decide, before they are adjusted to add up," in text
    assert f"| 1 | home region | 2 | 7.25 | {'n/a' if bound is None else '± 30'} |" in text
    assert "| 0 | everything | 1 | exact | exact |" in text


@pytest.mark.parametrize(
    ("estimate", "at_most", "told"),
    [
        (0.2, 0.5, "Their share is estimated, usually within ten percentage points; with 95%"),
        (None, 0.5, "With 95% probability their share is no larger than the figure. It is not estimated, because"),
        (0.0, 0.0, "Their share is estimated, usually"),
    ],
)
def test_a_readme_says_whether_noise_rows_are_estimated(estimate: float | None, at_most: float, told: str) -> None:
    """Where no share of noise rows is estimated, it speaks of the one figure that there is; certainty is an estimate too."""
    text = said("inftda", None, noise_rows=NoiseRows(estimate=estimate, at_most=at_most))
    assert told in text
    assert ("second figure" in text) == (estimate is not None)


def test_that_at_most_all_rows_are_noise_is_left_out() -> None:
    """It says nothing: of the one row of a total, no share below 100% can be known."""
    shares = [(0.2, 0.5), (None, 0.5), (0.0, 0.0), (0.2, 1.0), (None, 1.0)]
    assert [format_noise_rows(*of) for of in shares] == ["20%, at most 50%", "at most 50%", "0%", "20%", "n/a"]


def test_mechanisms_of_two_passes_are_known() -> None:
    """Those whose counts are called estimates are those that go over their noisy counts twice."""
    twice = {name for name, recipe in MECHANISMS.items() if recipe.second_pass}
    assert twice == {name for name, recipe in MECHANISMS.items() if "is estimated from" in recipe.how_counted}


def test_noise_is_read_as_it_is() -> None:
    """Exact levels, sums without a stated noise, and numbers too long to be read by digits are told apart."""
    assert (format_sigma(0, summed=False), format_sigma(0, summed=True)) == ("exact", "n/a")
    assert (format_sigma(4.8356, summed=False), format_sigma(4.8356, summed=True, digits=2)) == ("4.836", "4.84")
    assert format_sigma(2.5e39, summed=True) == "2.500e+39"
    assert [format_bound(0, bound, summed=False) for bound in (None, 0.0)] == ["exact", "exact"]
    assert [format_bound(sigma, None, summed=True) for sigma in (0, 3.0)] == ["n/a", "n/a"]
    assert format_bound(3.0, 1234.4, summed=False) == "± 1,234"
    assert format_bound(3.0, 123_412_345.0, summed=True) == "± 1.235e+08"


def test_numbers_are_read_in_little_room() -> None:
    """Counts and averages are cut to what fits, and never to nothing; a confidence keeps the digits that it has."""
    assert [format_short(count) for count in (0, -99_999, 100_000, 999_499, 999_500, -12_345_678, 10**15)] == [
        *("0", "-99,999", "100k", "999k", "1M", "-12.3M", "1.00e+15"),
    ]
    assert [format_rounded(value) for value in (0, 0.0001, 0.61234, 7.971, 99.96, 275.4, 1.5e7)] == [
        *("0", "1.00e-04", "0.612", "7.97", "100", "275", "1.50e+07"),
    ]
    assert format_rounded(7.971, 2) == "8"
    assert [format_percent(share) for share in (0.9, 1 - 0.9, 0.995)] == ["90%", "10%", "99.5%"]


PROBABILITIES = {
    1e-8: "1 in 100 million",
    1e-6: "1 in a million",
    3e-7: "1 in 3.3 million",
    1e-7: "1 in 10 million",
    2.5e-10: "1 in 4 billion",
    1e-12: "1 in a trillion",
    1e-15: "1 in 1,000 trillion",
    9e-16: "less than 1 in 1,000 trillion",
    5e-324: "less than 1 in 1,000 trillion",
    3e-5: "1 in 33,000",
    0.05: "1 in 20",
    0.1: "1 in 10",
    1 / 3: "33.4%",
    1.0: "100%",
    0.0: "0",
}


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_a_small_probability_is_said_in_words(probability: float) -> None:
    """The words use the unit that a reader knows, with two digits, and percent for what is not small."""
    assert format_probability(probability) == PROBABILITIES[probability]


@given(st.floats(1e-15, 1.0))
def test_the_words_for_a_probability_never_state_less(probability: float) -> None:
    """What the words state is at least the probability, and at most a ninth more."""
    words = format_probability(probability)
    if words.endswith("%"):
        stated = Fraction(words[:-1]) / 100
    else:
        number, _, unit = words.removeprefix("1 in ").replace("a ", "1 ").replace(",", "").partition(" ")
        size = {"": 1, "million": 10**6, "billion": 10**9, "trillion": 10**12}[unit]
        stated = 1 / (Fraction(number) * size)
    exact = Fraction(repr(probability))
    assert exact <= stated < exact * Fraction(10, 9)


def test_what_rounding_moves_further_is_named() -> None:
    """Levels and views of which a count has moved by one record or more are listed; nothing is said where all are nearer."""
    moved = Rounding(exact=False, deviation={"level_0": 0.0, "ways": 1.25, "modes": 2.0, "level_1": 0.9999})
    assert "Rounding has moved counts of these by one record or more, at most: `ways` by 1.25, `modes` by 2." in said(
        "cbdp", None, rounding=moved
    )
    for near in (None, Rounding(exact=True, deviation={"level_0": 0.0, "level_1": 0.9999})):
        assert "Rounding has moved" not in said("cbdp", None, rounding=near)

"""What readers are told: (ε, δ) in words, held to every decision of a reader over releases small enough to list, and names."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.words import protection
from tasks.words.levels import about, axes_called, level_called, place, title_of


def randomised_response(epsilon, delta):
    """Return the releases of two tables: with probability δ the truth in the open, otherwise a coin that is biased to it."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    told, lied = (1 - delta) * truth, (1 - delta) * (1 - truth)
    return (delta, told, lied, 0.0), (0.0, lied, told, delta)


def best_guess(one, other):
    """Return how often the best of all readers is right, of two tables that are equally likely."""
    readers = (np.array(reader) for reader in product((True, False), repeat=len(one)))
    return max(float(np.where(says_one, one, other).sum() / 2) for says_one in readers)


def stronger(one, other, belief, prior=0.5):
    """Return how likely a reader comes to believe more strongly in the first table, where it is the true one."""
    both, most = zip(one, other, strict=True), belief * (1 + 1e-12)
    return sum(p for p, q in both if p and p * prior / (p * prior + q * (1 - prior)) > most)


@pytest.mark.parametrize(("epsilon", "delta"), [*product([0.0, 0.1, 1.0, 10.0], [0.0, 1e-8, 0.3])])
def test_nobody_guesses_better_and_randomised_response_is_guessed_as_well(epsilon, delta):
    """The best of all readers of randomised response is right exactly as often as is stated."""
    right = protection.right_guess(epsilon, delta)
    assert best_guess(*randomised_response(epsilon, delta)) == pytest.approx(right, rel=1e-12)
    assert right + protection.wrong_guess(epsilon, delta) == pytest.approx(1)


@pytest.mark.parametrize("prior", [0.5, 0.01])
def test_without_delta_the_belief_is_reached_and_never_passed(prior):
    """Randomised response brings a reader exactly to the stated belief, and none past it."""
    one, other, epsilon = *randomised_response(2.0, 0.0), 2.0
    belief, exceptions = protection.strongest_belief(epsilon, 0.0, prior)
    reached = one[1] * prior / (one[1] * prior + other[1] * (1 - prior))
    assert belief == pytest.approx(reached, rel=1e-12)
    assert exceptions == 0
    assert stronger(one, other, belief, prior) == 0


laws = st.lists(st.integers(0, 1000), min_size=5, max_size=5).filter(any)


@given(laws, laws, st.floats(0, 5))
def test_what_is_said_holds_of_any_two_laws(one, other, epsilon):
    """Whatever the releases of two tables are, with the δ that they have at an ε, no reader does better and no belief is stronger more often."""
    first, second = ((np.array(of) / sum(of)).tolist() for of in (one, other))
    factor, both = math.exp(epsilon), [*zip(first, second, strict=True)]
    delta = max(sum(max(0.0, p - factor * q) for p, q in both), sum(max(0.0, q - factor * p) for p, q in both))
    assert best_guess(first, second) <= protection.right_guess(epsilon, delta) + 1e-9
    belief, exceptions = protection.strongest_belief(epsilon, delta)
    if delta:
        assert stronger(first, second, belief) <= exceptions + 1e-9


def test_numbers_are_rounded_against_the_release():
    """No guess is said to be rarer than it is, no belief weaker, and neither is rounded to certainty, but where nothing limits it."""
    assert protection.format_right_guess(1.0) == "73.2 of 100 times"  # 73.106
    assert protection.format_right_guess(8.0) == "2,999 of 3,000 times"  # all but 1 of 2,981.96
    assert protection.format_right_guess(1000.0) == "100 of 100 times"
    assert protection.format_belief(0.731058) == "73.2%"
    assert protection.format_belief(0.99996) == "99.996%"


@pytest.mark.parametrize("epsilon", [25.0, 900.0])
def test_an_epsilon_that_limits_nothing_is_called_that(epsilon):
    """No bound is stated where there is none that matters, and no belief that a reader may pass."""
    assert not protection.limits_guesses(epsilon, 1e-8)
    assert protection.limits_guesses(15.0, 1e-8)
    told = " ".join(protection.epsilon_in_words(epsilon, 1e-8, "one job", "substitution"))
    assert "may guess right every time" in told
    assert "limits nothing that matters" in told
    assert "at most" not in told
    assert "believe" not in told


def test_the_words_say_which_tables_are_told_apart():
    """Where records are replaced, two possibilities for them are meant; where they come and go, whether they are there."""
    replaced = " ".join(protection.epsilon_in_words(1.0, 1e-8, "one job", "substitution"))
    added = " ".join(protection.epsilon_in_words(1.0, 1e-8, "one job", "add_remove"))
    assert "two possibilities for these records" in replaced
    assert "not whether the records of one job are in it" in added
    for words in (replaced, added):
        assert "73.2 of 100 times" in words
        assert "1 in 50 million" in words
    assert "δ" not in " ".join(protection.epsilon_in_words(1.0, 0.0, "one job", "add_remove"))


ONE = {"hierarchy": {"table": "areas.csv", "levels": ["cty", "trct"], "called": {"cty": "county"}}}
WORDS = (("cty", "county"), ("nace", "branch"))
COUNTY, BRANCH = ({"levels": [level], "called": {level: word}} for level, word in WORDS)
PER_END = {"hierarchy": {"origin": COUNTY, "destination": {"levels": ["cty"]}}}
PER_FEATURE = {"hierarchy": {"job": BRANCH, "sex": ["f", "m"], "age": {"ordered": 3}}}


def test_readers_are_told_in_their_words():
    """A level is called as its spec says, at each end and of each feature, or by its column; titles and sources are on one line."""
    for spec, axis, level, word in (
        (ONE, "origin", "cty", "county"), (ONE, "destination", "cty", "county"), (ONE, "origin", "trct", "trct"),
        (PER_END, "origin", "cty", "county"), (PER_END, "destination", "cty", "cty"), ({}, "origin", "cty", "cty"),
        (PER_FEATURE, "job", "nace", "branch"), (PER_FEATURE, "sex", "sex", "sex"), (PER_FEATURE, "age", "age_1", "age_1"),
    ):  # fmt: skip
        assert level_called(spec, axis, level) == word
    assert place(axes_called(ONE, {"origin": "cty", "destination": None})) == "origin county, destination all"
    for told, title, text in (
        ({"title": "Jobs\n in 2019"}, "Jobs in 2019", ""),
        ({"dataset": "jobs", "source": "An office."}, "jobs", "Source: An office."),
        ({"description": "Of  the state.", "source": "An office"}, "an id", "Of the state. Source: An office."),
    ):
        assert (title_of(told, "an id"), about(told)) == (title, text)

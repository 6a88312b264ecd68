"""What somebody may have meant who misspelt a name."""

import pytest

from tasks.words.spelling import closest, did_you_mean, words_of

KNOWN = ["Manhattan", "Manhattanville", "Zürich", "Łódź", "Tromsø", "01", "0101", "N101", "mode", "Home"]


@pytest.mark.parametrize(("written", "meant"), [
    ("MANHATTAN", "Manhattan"), ("Manhatten", "Manhattan"), (" manhattan ", "Manhattan"), ("Zurich", "Zürich"),
    ("Zu\u0308rich", "Zürich"), ("lodz", "Łódź"), ("Tromso", "Tromsø"), ("1", "01"), ("101", "0101"), ("n101", "N101"),
    ("N10l", "N101"), ("HOME", "Home"), ("mood", "mode"),
])  # fmt: skip
def test_case_accents_zeros_and_a_wrong_letter_are_seen_through(written, meant):
    """The name that differs by nothing else comes first."""
    assert closest(written, KNOWN)[0] == meant
    assert did_you_mean(written, KNOWN) == f"Did you mean {meant}?"


def test_what_is_the_same_but_for_its_case_is_meant_alone():
    """And all such names are; of others, a few at most; of what is like nothing, none."""
    assert closest("ABC", ["abc", "Abc", "abd"]) == ["abc", "Abc"]
    assert len(closest("a1", [f"a{number}" for number in range(2, 9)])) <= 3
    assert closest("99", KNOWN) == []
    assert did_you_mean("99", KNOWN) == ""


@pytest.mark.parametrize(("written", "known", "meant"), [
    ("NX", ["CA", "NY"], "NY"), ("MA", ["ME", "RI"], "ME"), ("G3", ["G1", "H2"], "G1"),
    ("12", ["13", "40"], "13"), ("od", ["do", "x"], "do"),
])  # fmt: skip
def test_one_wrong_letter_is_seen_through_in_short_codes(written, known, meant):
    """However short a code is, unless no letter is left of it."""
    assert did_you_mean(written, known) == f"Did you mean {meant}?"
    assert did_you_mean("x", ["f", "m"]) == ""


@pytest.mark.parametrize(("known", "said"), [
    ([*map(str, range(24)), "0..11"], "Its numbers go from 0 to 23."),
    ([*map(str, range(2000, 2030, 5))], "Its numbers go from 2000 to 2025."),
    (["440070101", "440070102", "440090101"], ""),
], ids=["hours", "years", "codes"])  # fmt: skip
def test_a_number_beyond_the_end_means_no_other_number(known, said):
    """The range is said in place of a digit's neighbour; codes that are no numbers at equal distances have no range."""
    assert closest("99", known) == []
    assert did_you_mean("99", known) == said
    assert did_you_mean("-1", known) == said


@pytest.mark.parametrize(("name", "words"), [
    ("Straße_Nr", ["strasse", "nr"]), ("çıkış", ["cikis"]), ("Ørsted-Ålborg", ["orsted", "alborg"]),
    ("płećOsoby", ["plec", "osoby"]), ("Œuvre", ["oeuvre"]), ("PULocationID", ["pu", "location", "id"]),
])  # fmt: skip
def test_a_letter_with_a_stroke_or_without_a_dot_is_part_of_its_word(name, words):
    """Unicode takes it for a letter of its own, which would cut the word in three."""
    assert words_of(name) == words

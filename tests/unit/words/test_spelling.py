"""What somebody may have meant who misspelt a name."""

import pytest

from tasks.words.spelling import closest, did_you_mean

KNOWN = ["Manhattan", "Manhattanville", "Zürich", "Łódź", "Tromsø", "01", "0101", "N101", "mode", "Home"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MANHATTAN", "Manhattan"),
        ("Manhatten", "Manhattan"),
        (" manhattan ", "Manhattan"),
        ("Zurich", "Zürich"),
        ("Zu\u0308rich", "Zürich"),
        ("lodz", "Łódź"),
        ("Tromso", "Tromsø"),
        ("1", "01"),
        ("101", "0101"),
        ("n101", "N101"),
        ("N10l", "N101"),
        ("HOME", "Home"),
        ("mood", "mode"),
    ],
)
def test_case_accents_zeros_and_a_wrong_letter_are_seen_through(written: str, meant: str) -> None:
    """The name that differs by nothing else comes first."""
    assert closest(written, KNOWN)[0] == meant
    assert did_you_mean(written, KNOWN) == f"Did you mean {meant}?"


def test_what_is_the_same_but_for_its_case_is_meant_alone() -> None:
    """And all such names are; of others, a few at most; of what is like nothing, none."""
    assert closest("ABC", ["abc", "Abc", "abd"]) == ["abc", "Abc"]
    assert len(closest("a1", [f"a{number}" for number in range(2, 9)])) <= 3
    assert closest("99", KNOWN) == []
    assert did_you_mean("99", KNOWN) == ""

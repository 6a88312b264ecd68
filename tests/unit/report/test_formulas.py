"""Codes and names that a spreadsheet would compute are shown, and plain numbers are not."""

import polars as pl
import pytest

from tasks.atlas.names import Names
from tasks.format.formulas import formulas_in
from tasks.tree.axis import axis_from_codebook
from tasks.tree.order import Tree


def warning(*codes: str, called: str = "") -> str:
    """Return the warning about a tree of one axis with these codes, and with a name for the first of them."""
    names = {("home", 1): pl.DataFrame({"code_1": codes[:1], "name": [called]})} if called else {}
    return formulas_in(Tree((axis_from_codebook("home", pl.DataFrame({"area": codes})),), (0,)), Names(names))


@pytest.mark.parametrize("code", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "-1-1"])
def test_what_begins_like_a_formula_is_named_and_numbers_are_not(code: str) -> None:
    """A code that a spreadsheet computes is in the warning; a number with a sign, or a sign inside a code, computes nothing."""
    assert code in warning("a", code)
    assert warning("a", "44007", "-5", "+3", "-1.5", "a=b", "a-b", "x@y") == ""


@pytest.mark.parametrize("name", ["=Mill", "+ 1 more", "-other-", "@home"])
def test_a_name_that_begins_so_is_shown(name: str) -> None:
    """CSV files have names beside codes, so a name that a spreadsheet computes is in the warning too."""
    assert f"`{name}`" in warning("01", "02", called=name)
    assert warning("01", "02", called=f"a{name}") == ""


def test_of_many_some_are_shown() -> None:
    """Three codes are shown, and the number of the others."""
    assert "`=0`, `=1`, `=10` and 1,997 more" in warning(
        *(f"={number}" for number in range(1000)), *(f"@{k}" for k in range(1000))
    )

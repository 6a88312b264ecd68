"""The page of mechanisms is held to the table of recipes."""

import re
from pathlib import Path

from flows.mechanisms import MECHANISMS
from flows.spec.keys import DEFAULT_MECHANISM

PAGE = (Path(__file__).parents[2] / "docs" / "mechanisms.md").read_text()
ROWS = {name: row for row, name in re.findall(r"^(\| `(\w+)` \| .*)$", PAGE, re.MULTILINE)}


def test_the_first_table_has_every_mechanism_in_order_and_each_its_section():
    """Whatever the spec can name has a line and a section, and nothing else has."""
    assert list(ROWS) == list(MECHANISMS)
    assert re.findall(r"^## `(\w+)`$", PAGE, re.MULTILINE) == list(MECHANISMS)


def test_the_first_table_names_the_default():
    """Just the mechanism that is taken where a spec names none is called the default."""
    assert [name for name, row in ROWS.items() if "the default" in row] == [DEFAULT_MECHANISM]


def test_the_first_table_says_which_state_a_bound():
    """A line says that there is no bound where the recipe states none."""
    assert [name for name, row in ROWS.items() if "no bound |" in row] == [
        name for name, recipe in MECHANISMS.items() if recipe.bounds is None
    ]

"""The page of mechanisms is held to the table of recipes."""

import re
from pathlib import Path

import numpy as np

from flows.mechanisms import MECHANISMS
from flows.spec.keys import DEFAULT_MECHANISM
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.unbiased.task import Unbiased

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
        name for name, recipe in MECHANISMS.items() if recipe.bounds is None and not isinstance(recipe.finish, Unbiased)
    ]


def test_nearest_rounding_is_as_far_from_the_truth_as_the_errata_say() -> None:
    """The 28 leaves of docs/privacy.md: nearest rounding is 19 times as far off as the measurements, controlled rounding is not."""
    truth, total = np.ones(28), np.zeros(28, dtype=np.int32)
    noisy = truth + (np.arange(28) < 13)
    settled = settle_overlapping(noisy, 1 / 28, [Grouping(total, np.array([28.0]), 1.0)])

    def distance(leaves: np.ndarray, of_total: float) -> float:
        return float(np.sqrt(((leaves - truth) ** 2).sum() / 28 + (of_total - 28) ** 2))

    measured, nearest = distance(noisy, 28), np.rint(settled)
    assert sorted({round(float(value), 3) for value in settled}) == [0.536, 1.536]
    assert nearest.sum() == 41
    assert 19 < distance(nearest, nearest.sum()) / measured < 19.2
    assert distance(settled, settled.sum()) <= measured
    controlled = round_controlled(settled, [total]).counts.astype(float)
    assert distance(controlled, controlled.sum()) < distance(settled, settled.sum()) + np.sqrt(2)

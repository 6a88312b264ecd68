"""Which of a mechanism's choices go together."""

from dataclasses import replace
from itertools import product

import pytest

from tasks.mechanisms import EVERY_CELL, MECHANISMS, Mechanism
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.sizes.estimators import Sizes
from tasks.tree.views import AddUp, below_everything, every_level, finest_level
from tasks.unbiased.task import Unbiased

SECOND_PASS = MECHANISMS["inftda_reconciled"].finish
SIZES = MECHANISMS["group_sizes"].finish
REPAIR = {"any": nearest_in_chebyshev}
VIEWS, CELLS = [every_level, below_everything, finest_level], ["survivors", "universe", "records"]
FINISHES = [None, SECOND_PASS, AddUp(), Unbiased(), SIZES]


@pytest.mark.parametrize(("views", "cells", "repair", "finish"), product(VIEWS, CELLS, [REPAIR, {}], FINISHES))
def test_choices_that_do_not_go_together_make_no_mechanism(views, cells, repair, finish):
    """Survivors are repaired at every level on the way down; other cells are those of the finest level, summed as they are, or of all."""
    if finish == Unbiased():
        goes = (views, cells, repair) == (every_level, "universe", {})
    elif isinstance(finish, Sizes):
        goes = (views, cells, repair) == (below_everything, "universe", {})
    elif cells == "survivors":
        goes = (views, repair) == (every_level, REPAIR) and finish in {None, SECOND_PASS}
    else:
        goes = (views, repair, finish) == (finest_level, {}, AddUp())
    if goes:
        assert Mechanism("one", EVERY_CELL, views, cells, repair, finish).finish == finish
    else:
        told = f"^one: with (cells {cells}|the finish Unbiased|the finish Sizes) there must be "
        with pytest.raises(ValueError, match=told):
            Mechanism("one", EVERY_CELL, views, cells, repair, finish)


@pytest.mark.parametrize("measure", ["all", "above", "auto"])
def test_only_a_second_pass_reads_cells_below_what_is_dropped(measure):
    """A mechanism can measure other cells than the survivors' only if it goes down by survivors and has a second pass."""
    able = {name for name, recipe in MECHANISMS.items() if recipe.chooses_cells}
    assert able == {"inftda_reconciled", "inftda_lenient", "inftda_shrunk"}
    for name, recipe in MECHANISMS.items():
        if name in able:
            assert replace(recipe, measure=measure).measure == measure
        else:
            with pytest.raises(ValueError, match=f"^{name}: with measure {measure}, cells must be survivors"):
                replace(recipe, measure=measure)

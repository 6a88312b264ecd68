"""Sensitivities of stacked views against brute force: all that one unit can change in a universe of twelve leaves."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest

from flows.planning.guarantee import guarantee_of
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION
from tasks.mechanisms import MECHANISMS, mechanism_with
from tasks.tree.views import Partition, View, leaves_of, level_view, numbered_codes
from tests.support.keys import PRIVACY
from tests.support.neighbours import contributions, holds, moves
from tests.support.universe import universe_of

FROM = [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]
TO = [("x",), ("y",), ("z",)]
LEAVES = list(product(FROM, TO))  # twelve, in the order of the areas
KINDS = ["near", "far", "far", "near", "far", "far", "near", "near", "far", "far", "near", "far"]  # of a leaf
SIDES = ["east", "west", "west"]  # of an area of `to`

# What each view sees of a leaf, worked out without the code under test. `level` has the cells of a level of the tree.
SEES: dict[str, Callable[[int], tuple[str, ...]]] = {
    "total": lambda _: (),
    "ends": lambda leaf: LEAVES[leaf][1],
    "kinds": lambda leaf: (KINDS[leaf],),
    "sided": lambda leaf: (LEAVES[leaf][0][0], SIDES[leaf % 3]),
    "level": lambda leaf: (LEAVES[leaf][0][0],),
    "leaves": lambda leaf: (str(leaf),),
}
RELATIONS = [
    (neighbours, most, exact)
    for most in (1, 2)
    for neighbours, exact in ((ADD_REMOVE, False), (SUBSTITUTION, True), (SUBSTITUTION, False))
    if exact or (neighbours, most) != (SUBSTITUTION, 1)
]
DISTINCT = [None, "level_1", "level_2"]  # levels of `from`


def town():
    """Return the tree, and five views: everything, an axis, a derived column, one with an axis, and a level of the tree."""
    tree = universe_of([FROM, TO], [0, 0, 1]).tree
    kind = numbered_codes("kind", [(0, 2), (1, 1)], pl.Series(KINDS))
    side = numbered_codes("side", [(1, 1)], pl.Series(SIDES))

    def view(number, levels, *derived):
        names = {axis.name: axis.level_name(of) for axis, of in zip(tree.axes, levels, strict=True)}
        return View(number, levels, names | {column.name: column.name for column in derived}, derived)

    return tree, {
        "total": level_view(tree, 0),
        "ends": view(4, (0, 1)),
        "kinds": view(5, (0, 0), kind),
        "sided": view(6, (1, 0), side),
        "level": level_view(tree, 1),
    }


def scheme_for(mechanism, law, relation, distinct):
    """Return the measurements of a spec with the five views."""
    tree, views = town()
    neighbours, most, exact = relation
    unit = PRIVACY | {"neighbours": neighbours, "max_records_per_unit": most, "exact_records_per_unit": exact or None}
    keys = PrivacyKeys(**unit, distinct=distinct, split={"ends": 0.3, "kinds": 7.0})
    recipe = mechanism_with(MECHANISMS[mechanism], has_views=True)
    return scheme_of(keys, tree, tree, recipe, "opendp", recipe.laws[law], list(views.items()))


def differences_of(relation, distinct):
    """Return every difference of two neighbouring tables, as counts of the leaves, a row each."""
    neighbours, most, exact = relation
    cells = [LEAVES[leaf][0][: int(distinct[-1])] for leaf in range(len(LEAVES))] if distinct else None
    return moves(neighbours, contributions(len(LEAVES), most, exact=exact, cells=cells))


def moved(name, differences):
    """Return by how much the cells of a view change, a row per difference."""
    return differences @ holds([SEES[name](leaf) for leaf in range(len(LEAVES))])


def number_of(name, scheme):
    """Return the number by which a scheme knows a view, or the leaves."""
    return scheme.tree.depth if name == "leaves" else next(of for of, own in scheme.names.items() if own == name)


def test_views_see_what_they_are_said_to_see():
    """Each view joins exactly the leaves that it cannot tell apart, and no cell of it is empty."""
    tree, views = town()
    areas = [of.ravel() for of in np.meshgrid(np.arange(4), np.arange(3), indexing="ij")]
    for name, view in views.items():
        partition = Partition(tree, view)
        places = partition.places(leaves_of(tree, areas)).tolist()
        told = {(place, SEES[name](leaf)) for leaf, place in enumerate(places)}
        assert len(told) == len(set(places)) == len(partition) == len({cell for _, cell in told})


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("distinct", DISTINCT)
def test_no_unit_moves_a_view_further_than_it_is_charged_for(relation, distinct, law):
    """Over all neighbouring tables no view moves further than its Δ₁ and Δ₂², and without a promise some moves each just so far."""
    # A public total does not move and is not charged. All views of one pair of tables together move no further than all that is charged.
    scheme = scheme_for("cbdp", law, relation, distinct)
    differences, is_exact = differences_of(relation, distinct), relation[2]
    of_number = dict(zip(scheme.measured, scheme.sensitivities, strict=True))
    assert (0 in of_number) == (not is_exact)
    stacked_l1, stacked_square = 0, 0
    for name in SEES:
        change = moved(name, differences)
        l1, square = abs(change).sum(1), (change**2).sum(1)
        stacked_l1, stacked_square = stacked_l1 + l1, stacked_square + square
        if name == "total" and is_exact:
            assert l1.max() == 0
            continue
        stated = of_number[number_of(name, scheme)]
        assert l1.max() <= stated.l1
        assert square.max() <= stated.l2_squared
        assert (change != 0).sum(1).max() <= stated.cells
        assert abs(change).max() <= stated.largest
        if distinct is None:
            assert (l1.max(), square.max()) == (stated.l1, stated.l2_squared)
    assert stacked_l1.max() <= sum(of.l1 for of in scheme.sensitivities)
    assert stacked_square.max() <= sum(of.l2_squared for of in scheme.sensitivities)
    if distinct == "level_1" and relation[1] == 2 and law == "gaussian":
        leaves = moved("leaves", differences)
        assert (leaves**2).sum(1).max() == of_number[3].l2_squared < 2 * 2**2


@pytest.mark.parametrize(("mechanism", "law"), [
    ("cbdp", "gaussian"),
    ("cbdp", "laplace"),
    ("inftda_reconciled", "gaussian"),
    ("inftda_reconciled", "laplace"),
    ("hierarchical", "gaussian"),
])  # fmt: skip
@pytest.mark.parametrize("relation", [*RELATIONS, (SUBSTITUTION, 1, False)], ids=str)
def test_no_pair_of_tables_costs_more_than_all_views_and_levels_are_charged(mechanism, law, relation):
    """Over all neighbouring tables the costs of all views and levels add up to the charge at most, and without a promise one to just that."""
    # All shares add up to 1 exactly, ρ of all charges to ρ exactly, and ε of all charges to no more than ε and hardly less.
    for distinct in DISTINCT:
        scheme = scheme_for(mechanism, law, relation, distinct)
        guarantee, differences = guarantee_of(scheme), differences_of(relation, distinct)
        changes = [differences @ holds(cells_of(scheme, number)) for number in scheme.measured]
        assert sum(scheme.allocation.shares) == 1
        share = dict(zip(scheme.measured, scheme.allocation.shares, strict=True))
        assert share[4] / share[5] == Fraction(3, 70)
        between, has_total = mechanism != "cbdp", relation[0] == ADD_REMOVE or relation[1:] == (2, False)
        assert set(share) == {1, 3, 4, 5, 6, *[2] * between, *[0] * has_total}
        if law == "gaussian":
            assert [of.rho for of in guarantee.measurements] == [of * guarantee.rho for of in share.values()]
            costs = [
                (change**2).sum(1) / (2 * of.sigma**2)
                for change, of in zip(changes, guarantee.measurements, strict=True)
            ]
            charged = float(guarantee.rho)
        else:
            costs = [abs(change).sum(1) / of.noise.scale for change, of in zip(changes, guarantee.by_map, strict=True)]
            charged = sum(of.cost.epsilon for of in guarantee.by_map)
            assert 0.999 < charged <= 1
            assert all(
                Fraction(of.cost.epsilon) <= own for of, own in zip(guarantee.by_map, share.values(), strict=True)
            )
        assert sum(costs).max() <= charged * (1 + 1e-12)
        if distinct is None:
            assert sum(costs).max() == pytest.approx(charged, rel=1e-9)


def cells_of(scheme, number):
    """Return the cell of a level or view that holds each leaf."""
    names = {1: "level", 3: "leaves"} | dict(scheme.names)
    sees = SEES[names[number]] if number in names else lambda leaf: LEAVES[leaf][0]
    return [sees(leaf) for leaf in range(len(LEAVES))]

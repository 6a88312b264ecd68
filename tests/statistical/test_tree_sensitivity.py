"""What a release of all nodes of a tree or a grid costs, against everything that one unit can change in trees of few leaves."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION, combined_sensitivity
from tasks.laws.days import days_of
from tasks.mechanisms import MECHANISMS, mechanism_with
from tasks.tree.order import Tree, alternate
from tasks.tree.views import View
from tasks.unbiased.variance import portions_of, side_tree
from tests.support.neighbours import RELATIONS, contributions, moves
from tests.support.shapes import axis_by, complete, halved, incidences, tree_by

UNEVEN = [[2], [2, 3], [3, 1, 1, 1, 1]]  # no path has the most siblings on every level
TREES = [complete(2, 2), halved(5), [[3], [2, 1, 2]], [[1], [2], [2, 1]], [[2], [1, 1], [3, 1]], UNEVEN]
SHAPES = [  # of one axis, whose levels are measured, or of several, all combinations of whose levels are
    *((of,) for of in TREES),
    *((complete(2, 1), halved(3)), (complete(2, 2), complete(3, 1)), ([[1], [2]], complete(2, 1))),
    ([[2]], complete(2, 1), [[3]]),
]
CHOICES = ("cascade", "worst_node", "wavelet", "uniform", "ranges")
RHO = Fraction(3, 7)


def weights_of(shapes, choice, neighbours, most, *, exact):
    """Return the scheme of a release that costs `RHO`, and 1 / 2σ² of every level, or table of a grid, that it measures."""
    by_strategies = choice == "strategies"  # of axes of several levels
    axes = tuple(axis_by(of, f"x{number}") for number, of in enumerate(shapes))
    axes = tuple(replace(of, is_ordered=not by_strategies or of.depth > 1) for of in axes)
    tree = Tree(axes, alternate([axis.depth for axis in axes], 0))
    split = {"workload": "ranges"} if choice in {"ranges", "strategies"} else choice
    unit = {"unit": "one", "neighbours": neighbours, "max_records_per_unit": most, "exact_records_per_unit": exact}
    keys = PrivacyKeys(**unit, rho=float(RHO), delta=1e-8, split=split)
    of_tree = set(map(tree.axis_levels, range(tree.depth + 1)))
    pairs = product(*(range(axis.depth + 1) for axis in axes))
    beside = [pair for pair in pairs if pair not in of_tree]
    names = [{axis.name: axis.level_name(of) for axis, of in zip(axes, pair, strict=True)} for pair in beside]
    of_views = enumerate(zip(beside, names, strict=True), start=tree.depth + 1)
    views = [(f"v{number}", View(number, pair, of)) for number, (pair, of) in of_views]
    is_grid = len(shapes) > 1
    name = "optimal_ranges" if by_strategies else "unbiased_tree"
    mechanism = mechanism_with(MECHANISMS[name], has_views=is_grid, is_grid=is_grid)
    scheme = scheme_of(keys, tree, tree, mechanism, "opendp", views=views)
    measured = zip(scheme.measured, scheme.allocation.measurements(RHO), strict=True)
    return scheme, {scheme.view(number).axis_levels: 1 / (2 * Fraction(of.sigma) ** 2) for number, of in measured}


def costs_of_changes(shapes, scheme, weights, changes):
    """Return the sums of the divergences of all that is measured, for every change."""
    found = [Fraction(0)] * len(changes)
    alone = [portions_of(side_tree(axis)) for axis in scheme.tree.axes]  # of a single axis those of its tree
    for levels, weight in weights.items():
        rows, portions = np.ones((1, 1)), np.ones(1)
        for axis, (of, level) in enumerate(zip(shapes, levels, strict=True)):
            is_dense = axis in scheme.strategies
            assert level == len(of) or not is_dense
            rows = np.kron(rows, scheme.strategies[axis].rows if is_dense else incidences(tree_by(of))[level])
            own = np.ones(1) if is_dense else np.broadcast_to(alone[axis][level], scheme.tree.axes[axis].areas(level))
            portions = np.kron(portions, own)
        squares = ((changes @ rows.T) ** 2) @ (np.ones(len(rows)) if scheme.strategies else portions)
        found = [cost + weight * Fraction(square) for cost, square in zip(found, squares, strict=True)]
    return found


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize("most", [1, 2])
def test_no_unit_costs_more_than_what_is_charged(neighbours, exact, most, choice):
    """Whatever a unit changes, the divergences of all that is measured add up to ρ at most, and for some unit to ρ, but for rounding and, at one end of a move, grids that cascade."""
    for shapes in SHAPES:
        scheme, weights = weights_of(shapes, choice, neighbours, most, exact=exact)
        leaves = scheme.tree.possible_cells(scheme.tree.depth)
        changes = moves(neighbours, contributions(leaves, most, exact=exact))
        found = costs_of_changes(shapes, scheme, weights, changes)
        is_bound = len(shapes) > 1 and scheme.cascades and neighbours == SUBSTITUTION
        assert RHO * (Fraction(3, 4) if is_bound else 1 - Fraction(1, 10**9)) < max(found) <= RHO


STRATEGIES = [  # of axes with several levels; others have no order, and nodes
    ((halved(4), [[3]]), 0.85),
    (([[2]], halved(3), [[2]]), 0.75),
    ((halved(3), halved(3)), 0.85),
    ((halved(3), [[2]], halved(3)), 0.75),
]


@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize(("shapes", "least"), STRATEGIES)
@pytest.mark.parametrize("most", [1, 2])
def test_no_unit_costs_more_than_strategies_beside_other_axes_are_charged(shapes, least, most, neighbours, exact):
    """Whatever a unit changes, all tables cost ρ at most, and for some unit to ρ where records come and go, or not much less."""
    scheme, weights = weights_of(shapes, "strategies", neighbours, most, exact=exact)
    leaves = scheme.tree.possible_cells(scheme.tree.depth)
    changes = moves(neighbours, contributions(leaves, most, exact=exact))
    dearest = max(costs_of_changes(shapes, scheme, weights, changes))
    assert RHO * (1 - Fraction(1, 10**9) if neighbours == ADD_REMOVE else Fraction(least)) < dearest <= RHO


@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("leaves", range(2, 9))
def test_a_strategy_is_charged_the_furthest_that_a_unit_moves_its_sums(leaves, most, neighbours, exact):
    """Of everything that a unit can change in ranges of up to 8 codes, and in sums of any weights, one moves them by Δ₂² and none by more."""
    axis = replace(axis_by(halved(leaves), "x"), is_ordered=True)
    tree, unit = Tree((axis,), (0,) * axis.depth), {"unit": "one", "neighbours": neighbours}
    keys = PrivacyKeys(**unit, max_records_per_unit=most, exact_records_per_unit=exact, rho=float(RHO), delta=1e-8)
    scheme = scheme_of(keys, tree, tree, MECHANISMS["optimal_ranges"], "opendp")
    (measured,) = scheme.allocation.measurements(RHO)
    assert scheme.measured == (tree.depth,)
    changes = moves(neighbours, contributions(leaves, most, exact=exact))
    assert int(((changes @ scheme.strategies[0].rows.T) ** 2).sum(axis=1).max()) == measured.l2_sensitivity_squared
    assert Fraction(measured.l2_sensitivity_squared) / (2 * Fraction(measured.sigma) ** 2) <= RHO
    for least in (-9, 90):  # with large weights, a record that comes or goes moves the sums most
        rows = np.random.default_rng(leaves).integers(least, least + 19, (leaves + 1, leaves))
        found = combined_sensitivity([rows], neighbours, most, total_is_public=neighbours == SUBSTITUTION and exact)
        moved = changes @ rows.T
        assert int((moved**2).sum(axis=1).max()) == found.l2_squared
        assert found.l1 >= abs(moved).sum(axis=1).max()
        assert found.largest >= abs(moved).max()


@pytest.mark.parametrize("neighbours", [ADD_REMOVE, SUBSTITUTION])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("days", "cells"), [(1, 2), (2, 3), (3, 3), (5, 2)])
def test_a_series_is_charged_the_furthest_that_a_unit_moves_the_sums_of_all_its_days(days, cells, most, neighbours):
    """Of all that a unit can change in any days and cells, one moves the cells by Δ₂², and none the cells or the totals by more, whichever days are missing."""
    tree, unit = Tree((axis_by([[cells]], "x"),), (0,)), {"unit": "one", "neighbours": neighbours}
    keys = PrivacyKeys(**unit, max_records_per_unit=most, exact_records_per_unit=False, rho=float(RHO), delta=1e-8)
    scheme = scheme_of(keys, tree, tree, MECHANISMS["unbiased_tree"], "opendp", days=days_of(days))
    of_levels = scheme.allocation.measurements(RHO)
    factor = sum(np.diag(np.full(days - lag, weight), -lag) for lag, weight in enumerate(scheme.days.weights))
    changes = moves(neighbours, contributions(days * cells, most)).reshape(-1, days, cells)
    for there in product([True, False], repeat=days):
        run = np.cumsum([not of for of in there])  # a day begins anew after one that is missing
        rows = np.where(np.logical_and.outer(there, there) & (run[:, None] == run), factor, 0)
        moved = [((rows @ changes @ of) ** 2).sum(axis=(1, 2)) for of in (np.ones((cells, 1)), np.eye(cells))]
        assert all(square.max() <= of.l2_sensitivity_squared for square, of in zip(moved, of_levels, strict=True))
        assert not all(there) or moved[1].max() == of_levels[1].l2_sensitivity_squared
    assert sum(of.l2_sensitivity_squared / (2 * Fraction(of.sigma) ** 2) for of in of_levels) <= RHO

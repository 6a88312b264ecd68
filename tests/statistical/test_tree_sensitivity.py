"""What a release of all nodes of a tree costs, against everything that one unit can change in trees of few leaves."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from flows.mechanisms import MECHANISMS, mechanism_with
from flows.planning.shares import scheme_of
from flows.spec.sections.privacy import PrivacyKeys
from tasks.accounting.allocation import Allocation, shares_of
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION, l2_sensitivity_squared
from tasks.tree.order import Tree, alternate
from tasks.tree.views import View
from tasks.unbiased.precisions import cascade, costs_of, for_workload, mean_fan_outs, uniform, wavelet
from tests.support.shapes import complete, halved, incidences, tree_by

SHAPES = [complete(2, 2), halved(5), [[3], [2, 1, 2]], [[1], [2], [2, 1]], [[2], [1, 1], [3, 1]]]
RELATIONS = [(ADD_REMOVE, False), (SUBSTITUTION, True), (SUBSTITUTION, False)]
CHOICES = ("cascade", "wavelet", "uniform", "ranges")
RHO = Fraction(3, 7)


def changes(leaves: int, neighbours: str, most: int, *, exact: bool) -> Iterator[np.ndarray]:
    """Yield every vector by which the leaves of two neighbouring tables can differ."""
    sizes = [most] if exact else range(most + 1)
    units = [
        np.bincount(of, minlength=leaves)
        for size in sizes
        for of in combinations_with_replacement(range(leaves), size)
        if of
    ]
    if neighbours == ADD_REMOVE:
        yield from units
    else:
        none = [] if exact else [np.zeros(leaves, dtype=np.int64)]
        yield from (one - other for one, other in product([*units, *none], repeat=2))


def allocation_of(tree: Tree, choice: str, neighbours: str, most: int, *, exact: bool) -> dict[int, Fraction]:
    """Return 1 / 2σ² of every measured level of a release that costs `RHO`, by the accounting of releases."""
    squares = [l2_sensitivity_squared(neighbours, most, is_root=not level) for level in range(tree.depth + 1)]
    squares[0] *= not exact
    fan_outs = mean_fan_outs(tree)
    named = {"cascade": cascade, "wavelet": wavelet, "uniform": uniform}
    is_either = neighbours == SUBSTITUTION and not exact
    rule = named.get(choice) or (lambda _: for_workload(choice, tree, squares, {0}, is_either=is_either))
    precisions = rule(fan_outs)
    levels = [level for level, square in enumerate(squares) if square and precisions[level]]
    allocation = Allocation(
        shares_of(costs_of(precisions, squares)),
        tuple(squares[level] for level in levels),
        total=0 if is_either and 0 in levels else None,
    )
    measured = zip(levels, allocation.measurements(RHO), strict=True)
    return {level: 1 / (2 * Fraction(of.sigma) ** 2) for level, of in measured}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize("most", [1, 2])
def test_no_unit_costs_more_than_what_is_charged(neighbours: str, exact: bool, most: int, choice: str) -> None:
    """Whatever a unit changes, the divergences of all levels add up to ρ at most, and for some unit to ρ but for rounding."""
    for shape in SHAPES:
        tree = tree_by(shape)
        levels, leaves = incidences(tree), tree.possible_cells(tree.depth)
        weights = allocation_of(tree, choice, neighbours, most, exact=exact)
        found = [
            sum(weight * int(((levels[level] @ change) ** 2).sum()) for level, weight in weights.items())
            for change in changes(leaves, neighbours, most, exact=exact)
        ]
        assert max(found) <= RHO
        assert max(found) > RHO * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize("most", [1, 2])
def test_no_unit_costs_more_than_what_is_charged_in_a_grid(
    neighbours: str, exact: bool, most: int, choice: str
) -> None:
    """The same where every pair of levels of two axes is measured and charged by itself, as a plan charges it."""
    for shapes in [(complete(2, 1), halved(3)), (complete(2, 2), complete(3, 1)), ([[1], [2]], complete(2, 1))]:
        tree = Tree(
            tuple(replace(tree_by(of).axes[0], name=f"x{number}", is_ordered=True) for number, of in enumerate(shapes)),
            (),
        )
        tree = replace(tree, steps=alternate([axis.depth for axis in tree.axes], 0))
        weights = grid_weights(tree, choice, neighbours, most, exact=exact)
        one, two = (incidences(tree_by(of)) for of in shapes)
        counts = {pair: np.kron(one[pair[0]], two[pair[1]]) for pair in weights}
        found = [
            sum(weight * int(((counts[pair] @ change) ** 2).sum()) for pair, weight in weights.items())
            for change in changes(tree.possible_cells(tree.depth), neighbours, most, exact=exact)
        ]
        assert max(found) <= RHO
        assert max(found) > RHO * (1 - Fraction(1, 10**9))


def grid_weights(
    tree: Tree, choice: str, neighbours: str, most: int, *, exact: bool
) -> dict[tuple[int, ...], Fraction]:
    """Return 1 / 2σ² of every measured pair of levels of a release that costs `RHO`, by the plan of releases."""
    split: Any = {"workload": "ranges"} if choice == "ranges" else choice
    keys = PrivacyKeys.model_validate(
        {
            "unit": "one",
            "neighbours": neighbours,
            "max_records_per_unit": most,
            "exact_records_per_unit": exact,
            "rho": float(RHO),
            "delta": 1e-8,
            "split": split,
        }
    )
    of_tree = set(map(tree.axis_levels, range(tree.depth + 1)))
    pairs = product(*(range(axis.depth + 1) for axis in tree.axes))
    beside = [pair for pair in pairs if pair not in of_tree]
    views = [
        (
            f"v{number}",
            View(
                number, pair, {axis.name: axis.level_name(level) for axis, level in zip(tree.axes, pair, strict=True)}
            ),
        )
        for number, pair in enumerate(beside, tree.depth + 1)
    ]
    mechanism = mechanism_with(MECHANISMS["unbiased_tree"], has_views=True, is_grid=True)
    scheme = scheme_of(keys, tree, tree, mechanism, "opendp", views=views)
    measured = zip(scheme.measured, scheme.allocation.measurements(RHO), strict=True)
    return {scheme.view(number).axis_levels: 1 / (2 * Fraction(of.sigma) ** 2) for number, of in measured}


def test_a_level_of_only_children_is_paid_once() -> None:
    """A tree with such levels costs what the tree without them does, at the same noise."""
    longer, shorter = (tree_by(of) for of in ([[1], [2], [1, 1], [2, 2]], complete(2, 2)))
    weights = [allocation_of(tree, "cascade", ADD_REMOVE, 1, exact=False) for tree in (longer, shorter)]
    assert list(weights[0].values()) == list(weights[1].values())
    assert list(weights[0]) == [0, 2, 4]


def test_less_noise_than_charged_is_found() -> None:
    """The enumeration sees a scale that is smaller by a thousandth."""
    tree = tree_by(complete(2, 2))
    weights = allocation_of(tree, "cascade", ADD_REMOVE, 1, exact=False)
    assert sum(weights.values()) * Fraction(1001, 1000) ** 2 > RHO

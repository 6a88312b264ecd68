"""How the budget is shared where every node of a tree or of a grid is measured, and what targets cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flows.planning.scheme import Scheme, released_level
from flows.spec.sections.privacy import Targets, Workload
from storage.errors import SpecError
from tasks.accounting.allocation import shares_of
from tasks.accounting.sensitivity import joint_part
from tasks.mechanisms import SPLITS
from tasks.tree.axis import FloatArray
from tasks.tree.order import Tree
from tasks.tree.views import every_level
from tasks.unbiased.precisions import costs_of, for_targets, for_workload, mean_fan_outs, twice_rho
from tasks.unbiased.variance import ROUNDING_VARIANCE


@dataclass(frozen=True, slots=True)
class TreeSplit:
    """Which levels of a tree, or pairs of levels of a grid, are measured, and how they share the budget.

    Attributes:
        measured: their numbers.
        shares: the share of ρ of each; they add up to 1.
        rho: what it costs, where targets say so; None where a budget does.
    """

    measured: tuple[int, ...]
    shares: tuple[Fraction, ...]
    rho: Fraction | None = None


def tree_split(scheme: Scheme) -> TreeSplit | None:
    """Return the split of a spec that a rule for trees makes; None where the spec gives shares of ρ for levels.

    Args:
        scheme: what would be measured; the mechanism's own split holds where the spec names none.
    Raises:
        SpecError: a target is of no released level, or smaller than rounding alone allows.
    """
    keys, tree, mechanism = scheme.keys, scheme.tree, scheme.mechanism
    levels = range(tree.depth + 1)
    squares = [scheme.sensitivity(level).l2_squared if level >= scheme.first_measured else 0 for level in levels]
    is_named = "split" in keys.model_fields_set and "split" not in mechanism.refused
    split = keys.split if is_named else mechanism.split
    if scheme.is_grid:
        return _grid_split(scheme, split)
    is_either = scheme.total is not None
    if isinstance(split, Targets):
        for_all = for_targets(_variances(split, tree), tree, squares, is_either=is_either)
        measured, shares = _shares(for_all, squares)
        together = joint_part(shares[0] if is_either and not measured[0] else Fraction(0), Fraction(1))
        return TreeSplit(measured, shares, together * Fraction(twice_rho(for_all, squares)) / 2)
    precisions = _by_rule(split, tree, squares, is_either=is_either)
    return None if precisions is None else TreeSplit(*_shares(precisions, squares))


def _grid_split(scheme: Scheme, split: object) -> TreeSplit:
    """Return the split of a grid: each pair of levels has the product of the precisions that the rule gives to the two levels.

    For a workload these are the best of all such products under add_remove, since cost and mean variance are products too.
    """
    tree, of_axes = scheme.tree, list[FloatArray]()
    for axis in tree.axes:
        side = Tree((axis,), (0,) * axis.depth)
        precisions = _by_rule(split, side, [1] * (side.depth + 1))
        if precisions is None:
            raise SpecError(
                f"privacy.split must be a rule for both axes with release.grid: {', '.join(SPLITS)} or {{workload: …}}.",
                field="privacy.split",
            )
        of_axes.append(precisions)
    parts = [*every_level(tree), *scheme.views]
    exact = int(scheme.keys.total_is_public)
    squares = [0 if part.number < exact else scheme.sensitivity(part.number).l2_squared for part in parts]
    products = [math.prod(of[level] for of, level in zip(of_axes, part.axis_levels, strict=True)) for part in parts]
    return TreeSplit(*_shares(np.array(products), squares))


def _by_rule(split: object, tree: Tree, squares: Sequence[int], *, is_either: bool = False) -> FloatArray | None:
    """Return the relative precisions that a rule gives to the levels of a tree; None where the split is no such rule."""
    if isinstance(split, Workload):
        return _best_for(split.workload, tree, squares, is_either=is_either)
    if isinstance(split, str) and split in SPLITS:
        split = SPLITS[split]
    if callable(split):
        precisions: FloatArray = split(mean_fan_outs(tree))
        return precisions
    if split is None:
        return _best_for("ranges" if tree.ordered else "nodes", tree, squares, is_either=is_either)
    return None


def _best_for(workload: str, tree: Tree, squares: Sequence[int], *, is_either: bool) -> FloatArray:
    try:
        return for_workload(workload, tree, squares, tree.ordered, is_either=is_either)
    except ValueError as fault:
        raise SpecError(f"privacy.split.workload: {fault}", field="privacy.split.workload") from None


def _shares(precisions: FloatArray, squares: Sequence[int]) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
    """Return the levels that are measured, and their shares of ρ."""
    pairs = enumerate(zip(precisions.tolist(), squares, strict=True))
    measured = tuple(level for level, (precision, square) in pairs if precision and square)
    return measured, shares_of(costs_of(precisions, squares))


def _variances(split: Targets, tree: Tree) -> dict[int, float]:
    """Return the most variance of an estimate, before it is rounded, by the level of each target."""
    found = dict[int, float]()
    for name, deviation in split.targets.items():
        field = f"privacy.split.targets.{name}"
        level = released_level(tree, name, field)
        if deviation**2 <= ROUNDING_VARIANCE:
            least = ROUNDING_VARIANCE**0.5
            raise SpecError(
                f"{field} must be > {least:.2f} records, which whole counts may differ by without any noise, got {deviation:g}.",
                field=field,
            )
        found[level] = min(deviation**2 - ROUNDING_VARIANCE, found.get(level, float("inf")))
    return found

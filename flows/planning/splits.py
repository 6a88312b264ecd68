"""Splits for mechanisms that measure every node: precisions by a rule or by targets, and strategies of ordered axes for their ranges."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import product
from time import monotonic
from typing import NamedTuple

import numpy as np

from flows.planning.scheme import Scheme, released_level
from flows.specification.rules import wrong_key
from flows.specification.sections.privacy import TOTAL, PrivacyKeys, Targets, Workload, rules_of_axes
from storage.errors import SpecError
from storage.machine.files import beside
from storage.machine.home import place_of_home
from storage.tables import column_name
from tasks.accounting.allocation import shares_of
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION, joint_part, moves_of
from tasks.mechanisms import SPLITS, Mechanism
from tasks.tree.axis import Axis, AxisLevels, FloatArray
from tasks.tree.order import Tree
from tasks.tree.ordered import RANGE
from tasks.tree.views import every_level
from tasks.unbiased.dense import LARGEST_ENTRY, MOST_CODES, Strategy, dense_axes
from tasks.unbiased.optimum import Design, Ranges, design
from tasks.unbiased.precisions import (
    cascade,
    charges_paths,
    costs_of,
    for_targets,
    for_targets_of_tables,
    for_workload,
    path_part,
    twice_rho,
)
from tasks.unbiased.variance import ROUNDING_VARIANCE, SUM_ROUNDING_VARIANCE, is_uneven, side_tree


class TreeSplit(NamedTuple):
    """Which levels of a tree, or tables of a grid, are measured, and how they share the budget.

    Attributes:
        shares: the share of ρ of each; they add up to 1.
        rho: what all cost, where targets say so; None where a budget does.
    """

    measured: tuple[int, ...]
    shares: tuple[Fraction, ...]
    rho: Fraction | None = None


def split_by_rule(scheme: Scheme) -> TreeSplit | None:
    """Return the split that a rule for trees, or for grids, makes of a spec; None where the spec gives shares of ρ for levels.

    The mechanism's own split holds where the spec names none.

    Raises:
        SpecError: a target is of no released level, or smaller than rounding alone allows.
    """
    if scheme.designs and not scheme.is_grid:
        return TreeSplit((scheme.tree.depth,), (Fraction(1),))
    keys, tree, mechanism, is_either = scheme.keys, scheme.tree, scheme.mechanism, scheme.total is not None
    levels = range(tree.depth + 1)
    squares = [scheme.sensitivity(level).l2_squared if level >= scheme.first_measured else 0 for level in levels]
    split = _split_of(keys, mechanism)
    if scheme.is_grid:
        return _grid_split(scheme, split)
    if isinstance(split, Targets):
        if scheme.names:
            raise wrong_key(
                "privacy.split.targets",
                "must be left out with release.views: the deviations of levels and views depend on all shares at once, so that no"
                " share follows from one target.",
                hint="Give epsilon, and weights such as split: {tree: 4, by_mode: 1}; plan states the deviations.",
            )
        of_levels = {level: most for (level,), most in _variances(split, scheme).items()}
        for_all = for_targets(of_levels, tree, squares, is_either=is_either)
        to_targets = _split_by_precision(for_all, squares)
        together = joint_part(
            to_targets.shares[0] if is_either and not to_targets.measured[0] else Fraction(0), Fraction(1)
        )
        return to_targets._replace(rho=together * Fraction(twice_rho(for_all, squares)) / 2)
    precisions = _by_rule(split, tree, squares, is_either=is_either)
    return None if precisions is None else _split_by_precision(precisions, squares)


def _split_of(keys: PrivacyKeys, mechanism: Mechanism) -> object:
    """Return the split that a spec names, or the mechanism's own."""
    is_named = (
        "split" in keys.model_fields_set
        and "split" not in mechanism.refused
        and (not isinstance(keys.split, dict) or bool(rules_of_axes(keys.split)))
    )
    return keys.split if is_named else mechanism.split


def cascading(keys: PrivacyKeys, tree: Tree, mechanism: Mechanism) -> Tree:
    """Return a tree whose axes say whether they cascade: where that is their split, and nodes of a level differ by it."""
    split = _split_of(keys, mechanism) if mechanism.is_unbiased and not mechanism.is_dense else None
    rules = [rules_of_axes(split).get(axis.name) if isinstance(split, dict) else split for axis in tree.axes]
    is_so = [(SPLITS.get(rule) if isinstance(rule, str) else rule) is cascade for rule in rules]
    found = tree.cascading([axis.name for axis, of in zip(tree.axes, is_so, strict=True) if of])
    if mechanism.is_grid:
        return found.cascading([axis.name for axis in found.axes if is_uneven(side_tree(axis))])
    return found if is_uneven(found) else tree.cascading(())


def path_part_of(scheme: Scheme, measured: Sequence[int], shares: Sequence[Fraction]) -> Fraction:
    """Return `path_part` of a scheme whose measurements have some shares; 1 where what a unit costs a level is not known node by node."""
    if not charges_paths(scheme.cascades, is_grid=scheme.is_grid, days=scheme.days, distinct=scheme.keys.distinct):
        return Fraction(1)
    of_number = dict(zip(measured, shares, strict=True))
    every = [*range(scheme.tree.depth + 1), *(view.number for view in scheme.views)]
    return path_part(
        scheme.tree,
        [of_number.get(number, Fraction(0)) for number in every],
        is_replaced=scheme.keys.neighbours == SUBSTITUTION,
    )


def _grid_split(scheme: Scheme, split: object) -> TreeSplit:
    """Return the split of a grid: each table has the product of the precisions that the rule gives to the level of each axis.

    Beside axes that strategies measure, at their finest level alone, the rule for others is the workload of all their nodes.

    For a workload these are the best of all such products under add_remove, since cost and mean variance are products too; for targets
    they are those of least cost.

    Raises:
        SpecError: the split is no such rule, or a target is of no table or smaller than rounding allows, or a unit moves tables by different numbers.
    """
    tree = scheme.tree
    sides = [side_tree(axis) for axis in tree.axes]
    parts = [*every_level(tree), *scheme.views]
    exact = int(scheme.keys.total_is_public)
    squares = [0 if part.number < exact else scheme.sensitivity(part.number).l2_squared for part in parts]
    if isinstance(split, Targets):
        if len({*squares}) > 1:
            raise wrong_key(
                "privacy.split.targets",
                "must be left out with release.grid unless neighbours is add_remove and distinct is left out: the least cost is"
                " known only where a unit moves all tables equally far.",
                hint="Give epsilon, and a split such as {workload: ranges}; plan states the deviations.",
            )
        of_axes = for_targets_of_tables(_variances(split, scheme), sides)
    else:
        of_rule: Sequence[FloatArray | None]
        named = rules_of_axes(scheme.keys.split)
        if scheme.designs:
            of_rule = [
                _beside_strategies(side, named.get(side.axes[0].name), is_dense=axis in scheme.designs)
                for axis, side in enumerate(sides)
            ]
        else:
            of_rule = [
                _by_rule(named.get(side.axes[0].name) if named else split, side, [1] * (side.depth + 1))
                for side in sides
            ]
        of_axes = [precisions for precisions in of_rule if precisions is not None]
    if not of_axes:
        raise wrong_key(
            "privacy.split",
            f"must be a rule for every axis with release.grid: {', '.join(SPLITS)}, {{workload: …}} or {{targets: …}}.",
        )
    products = np.array(
        [math.prod(of[level] for of, level in zip(of_axes, part.axis_levels, strict=True)) for part in parts]
    )
    found = _split_by_precision(products, squares)
    return found._replace(rho=Fraction(twice_rho(products, squares)) / 2) if isinstance(split, Targets) else found


def _beside_strategies(side: Tree, rule: object, *, is_dense: bool) -> FloatArray:
    """Return the precisions of the levels of an axis: of one with a strategy its leaves alone, of others those of its rule, or the best for nodes.

    Of levels with the same areas the finest is measured, so that all finest areas together are.
    """
    found, [axis] = np.zeros(side.depth + 1), side.axes
    if isinstance(rule, str) and SPLITS[rule] is cascade:
        raise wrong_key(
            f"privacy.split.{axis.name}",
            "must give each level one precision beside a strategy, such as worst_node or {workload: nodes}.",
        )
    of_nodes = None if is_dense else _by_rule(rule or Workload(workload="nodes"), side, [1] * (side.depth + 1))
    if of_nodes is None:
        found[-1] = 1.0
    else:
        np.add.at(found, [axis.last_alike(level) for level in range(side.depth + 1)], of_nodes)
    return found


def _by_rule(split: object, tree: Tree, squares: Sequence[int], *, is_either: bool = False) -> FloatArray | None:
    """Return the relative precisions that a rule gives to the levels of a tree; None where the split is no such rule."""
    split = SPLITS.get(split, split) if isinstance(split, str) else split
    if callable(split):
        precisions: FloatArray = split(tree)
        return precisions
    if not (split is None or isinstance(split, Workload)):
        return None
    workload = split.workload if split else "ranges" if tree.ordered else "nodes"
    if not isinstance(workload, str):
        raise wrong_key(
            "privacy.split.workload",
            "must be ranges, prefix, nodes or leaves: only mechanism optimal_ranges takes a list of ranges.",
        )
    try:
        return for_workload(workload, tree, squares, tree.ordered, is_either=is_either)
    except ValueError as fault:
        raise SpecError(f"privacy.split.workload: {fault}", field="privacy.split.workload") from None


def _split_by_precision(precisions: FloatArray, squares: Sequence[int]) -> TreeSplit:
    pairs = enumerate(zip(precisions.tolist(), squares, strict=True))
    measured = tuple(level for level, (precision, square) in pairs if precision and square)
    return TreeSplit(measured, shares_of(costs_of(precisions, squares)))


def _variances(split: Targets, scheme: Scheme) -> dict[AxisLevels, float]:
    """Return the most variance of an estimate, before it is rounded, by the level of each target, or a level of each axis of a grid."""
    variances = dict[AxisLevels, float]()
    corners = 2 ** len(scheme.tree.axes)
    rounding = corners * SUM_ROUNDING_VARIANCE if scheme.is_grid else ROUNDING_VARIANCE
    for name, deviation in split.targets.items():
        field = f"privacy.split.targets.{name}"
        levels = _table_targeted(scheme, name, field) if scheme.is_grid else (_level_targeted(scheme, name, field),)
        if deviation**2 <= rounding:
            raise wrong_key(
                field,
                f"must be > {rounding**0.5:.2f} records, which whole counts may differ by without any noise, got {deviation:g}.",
            )
        variances[levels] = min(deviation**2 - rounding, variances.get(levels, math.inf))
    return variances


def _level_targeted(scheme: Scheme, name: str, field: str) -> int:
    """Return the level of a tree that a target names; a level that the spec calls `total` goes before the total."""
    if name != TOTAL or scheme.tree.level_named(TOTAL) is not None:
        return released_level(scheme.tree, name, field, TOTAL)
    if scheme.keys.total_is_public:
        raise wrong_key(field, "must be left out where the total is public: it is published exactly.")
    return 0


def _table_targeted(scheme: Scheme, name: str, field: str) -> AxisLevels:
    """Return the axis levels of the table of a grid that a target names; the total is not of any axis.

    A level that bears the name of its axis may be called so, or as the published column is.
    """
    of_axes = [
        [
            ("", 0),
            *((called, own) for own, level in enumerate(axis.level_names, 1) for called in _called(axis.name, level)),
        ]
        for axis in scheme.tree.axes
    ]
    tables = {
        "_by_".join(called for called, _ in of if called) or TOTAL: tuple(own for _, own in of)
        for of in product(*of_axes)
    }
    if name not in tables:
        names = [", ".join(_called(axis.name, level)[0] for level in axis.level_names) for axis in scheme.tree.axes]
        raise wrong_key(
            field,
            f"must be {TOTAL}, {', '.join(f'one of {of}' for of in names)}, or ONE_by_OTHER for several axes in this order, got"
            f" {name}.",
        )
    return tables[name]


def _called(axis: str, level: str) -> tuple[str, str]:
    return column_name(axis, level, {f"{axis}_"}), column_name(axis, level)


STRATEGIES = "strategies.json"  # in TRELLIS_HOME; it may be deleted

_MOST_STRATEGIES = 64  # of the last ones
_SECONDS = 1.0  # of what took longer is kept
_MOST_DENSE = 3  # axes
_LARGEST_OF_SEVERAL = 2**7  # weight, so that those of three axes multiply to less than 2**22


def designs_of(scheme: Scheme) -> dict[int, Design]:
    """Return the strategies of ordered axes, by their numbers, for the workload of the split; all ranges where the spec names none.

    Beside other axes a record that moves may leave all ranges of one node, so that strategies are those for records that come and go.

    Raises:
        SpecError: there are several axes without a grid, none has an order, or another split than a workload of ranges.
    """
    keys, tree, name, axes = scheme.keys, scheme.tree, scheme.mechanism.name, dense_axes(scheme.tree)
    long = [tree.axes[number] for number in tree.ordered if number not in axes]
    if not axes and long and scheme.is_grid:
        large = ", ".join(f"{axis.name} has {axis.areas(axis.depth):,}" for axis in long)
        raise wrong_key(
            "mechanism",
            f"{name} needs an ordered axis of at most {MOST_CODES:,} codes: {large}.",
            hint="Make its steps wider, so that it has fewer codes; or choose mechanism: unbiased_tree, which takes any number.",
        )
    if not axes or (len(tree.axes) > 1 and not scheme.is_grid) or len(axes) > _MOST_DENSE:
        which = ", ".join(axis.name for axis in tree.axes)
        raise wrong_key(
            "mechanism",
            f"{name} needs a single axis, whose codes have an order, or a grid with one to {_MOST_DENSE} such axes of at most"
            f" {MOST_CODES:,} codes, got {which}.",
            hint="Give its codes as {ordered: …}, and name all axes in release.grid; or choose mechanism: unbiased_tree.",
        )
    split = keys.split if "split" in keys.model_fields_set else Workload(workload="ranges")
    if isinstance(split, Targets):
        raise wrong_key(
            "privacy.split.targets",
            f"must be left out with mechanism {name}: its strategy has the least mean variance of all ranges together, and which"
            " costs the least ρ for a bound on each table is another problem, which has no closed solution.",
            hint="Give epsilon; plan states the deviations, which before rounding are in proportion to 1/√ρ: four times ρ halves them.",
        )
    named = rules_of_axes(split)
    relation, is_public = (ADD_REMOVE, False) if scheme.is_grid else (keys.neighbours, keys.total_is_public)
    designs = dict[int, Design]()
    for number in axes:
        axis = tree.axes[number]
        own = named.get(axis.name, Workload(workload="ranges")) if named else split
        if not isinstance(own, Workload) or own.workload in ("nodes", "leaves"):
            raise wrong_key(
                f"privacy.split.{axis.name}" if named else "privacy.split",
                f"must be {{workload: ranges}}, {{workload: prefix}} or {{workload: [FIRST{RANGE}LAST, …]}} with mechanism {name}.",
            )
        if not (isinstance(own.workload, str) or named or len(axes) == 1):
            raise wrong_key(
                "privacy.split.workload",
                "must be ranges or prefix where several axes have an order, got a list.",
                hint=f"Give each its own, such as split: {{{axis.name}: {{workload: […]}}}}.",
            )
        workload = own.workload if isinstance(own.workload, str) else _ranges_named(own.workload, axis)
        leaves = axis.areas(axis.depth)
        designs[number] = _kept_design(workload, leaves, relation, total_is_public=is_public, axes=len(axes))
    return designs


def least_mean_variance(scheme: Scheme, rho: Fraction, workload: str) -> float | None:
    """Return the mean variance of all ranges, or of all prefixes, below which no linear mechanism with Gaussian noise gets, records squared.

    Args:
        scheme: of one ordered axis of at most `MOST_CODES` codes, for what a unit is.
        rho: what the mechanism costs.
    Returns:
        None where the noise costs no ρ, or where distinct records are promised, which the bound does not consider.
    """
    keys, leaves = scheme.keys, scheme.tree.possible_cells(scheme.tree.depth)
    if not rho or keys.distinct:
        return None
    found = _kept_design(workload, leaves, keys.neighbours, total_is_public=keys.total_is_public)
    return found.at_least * keys.max_records_per_unit**2 / (2 * float(rho))


def _ranges_named(named: Sequence[str], axis: Axis) -> Ranges:
    """Return the ranges of codes of an axis that a spec names."""
    codes = {code: number for number, code in enumerate(axis.codes[-1].to_list())}
    ranges = list[tuple[int, int]]()
    for text in named:
        first, _, last = (
            (text, "", text) if text in codes else text.partition(RANGE)
        )  # areas of coarser levels are ranges
        ends = [codes.get(end.strip()) for end in (first, last)]
        if ends[0] is None or ends[1] is None or ends[0] > ends[1]:
            raise wrong_key(
                "privacy.split.workload",
                f"must list ranges FIRST{RANGE}LAST of codes of {axis.name}, in their order, got {text}.",
            )
        ranges.append((ends[0], ends[1] + 1))
    return tuple(ranges)


@lru_cache(maxsize=8)
def _kept_design(
    workload: str | Ranges, leaves: int, neighbours: str, *, total_is_public: bool, axes: int = 1
) -> Design:
    """Return a design, from TRELLIS_HOME if it was found before. What it costs is always computed from its rows.

    Args:
        axes: how many strategies are multiplied, so that their weights must be smaller.
    """
    largest = LARGEST_ENTRY if axes == 1 else _LARGEST_OF_SEVERAL
    of_several = [largest] if axes > 1 else []
    place, key = place_of_home() / STRATEGIES, json.dumps([workload, leaves, neighbours, total_is_public, *of_several])
    key, kept = sha256(key.encode()).hexdigest(), dict[str, list[str | float]]()
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = json.loads(place.read_bytes())
        text, at_least = kept[key]
        known = Strategy.from_text(str(text))
        if known.rows.shape[1] == leaves:
            return Design(known, workload, float(at_least))
    began = monotonic()
    found = design(workload, moves_of(leaves, neighbours, total_is_public=total_is_public), largest)
    with suppress(OSError, TypeError):
        if monotonic() - began > _SECONDS and place.parent.is_dir():
            kept = dict(
                [*kept.items(), (key, list[str | float]([found.strategy.text, found.at_least]))][-_MOST_STRATEGIES:]
            )
            with beside(place) as file:
                file.write(json.dumps(kept, indent=0).encode())
    return found

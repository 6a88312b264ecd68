"""How the budget of a release is shared among what it measures, as its spec says, and what targets cost."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import product
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.planning.scheme import Scheme, measured_scheme, released_level
from flows.specification.rules import wrong_key
from flows.specification.sections.privacy import TOTAL, Finest, Geometric, Minimise, PrivacyKeys, Targets, Workload
from flows.specification.sections.views import LEAVES, TREE
from storage.errors import SpecError
from storage.machine.files import beside
from storage.machine.home import place_of_home
from storage.tables import column_name
from tasks.accounting.allocation import Allocation, finest, geometric, shares_of, uniform
from tasks.accounting.sensitivity import joint_part, moves_of
from tasks.laws.law import NO_NOISE, Law
from tasks.mechanisms import SPLITS, Mechanism
from tasks.settle.shares import MOST_ATOMS, WeightedView, atoms_of, least_error_shares
from tasks.tree.axis import FloatArray
from tasks.tree.order import Tree
from tasks.tree.ordered import RANGE
from tasks.tree.views import Partition, View, every_level
from tasks.unbiased.dense import Strategy
from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE
from tasks.unbiased.optimum import Design, Ranges, design
from tasks.unbiased.precisions import (
    cascade,
    costs_of,
    for_targets,
    for_targets_of_pairs,
    for_workload,
    mean_fan_outs,
    most_fan_outs,
    twice_rho,
)
from tasks.unbiased.variance import ROUNDING_VARIANCE


class TreeSplit(NamedTuple):
    """Which levels of a tree, or pairs of levels of a grid, are measured, and how they share the budget.

    Attributes:
        shares: the share of ρ of each; they add up to 1.
        rho: what all cost, where targets say so; None where a budget does.
    """

    measured: tuple[int, ...]
    shares: tuple[Fraction, ...]
    rho: Fraction | None = None


def _tree_split(scheme: Scheme) -> TreeSplit | None:
    """Return the split that a rule for trees, or for grids, makes of a spec; None where the spec gives shares of ρ for levels.

    The mechanism's own split holds where the spec names none.

    Raises:
        SpecError: a target is of no released level, or smaller than rounding alone allows.
    """
    if scheme.design:
        return TreeSplit((scheme.tree.depth,), (Fraction(1),))
    keys, tree, mechanism, is_either = scheme.keys, scheme.tree, scheme.mechanism, scheme.total is not None
    levels = range(tree.depth + 1)
    squares = [scheme.sensitivity(level).l2_squared if level >= scheme.first_measured else 0 for level in levels]
    is_named = (
        "split" in keys.model_fields_set and "split" not in mechanism.refused and not isinstance(keys.split, dict)
    )
    split = keys.split if is_named else mechanism.split
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


def _grid_split(scheme: Scheme, split: object) -> TreeSplit:
    """Return the split of a grid: each pair of levels has the product of the precisions that the rule gives to the two levels.

    For a workload these are the best of all such products under add_remove, since cost and mean variance are products too; for targets
    they are those of least cost.

    Raises:
        SpecError: the split is no such rule, or a target is of no pair or smaller than rounding allows, or a unit moves pairs by different numbers.
    """
    tree = scheme.tree
    sides = [Tree((axis,), (0,) * axis.depth) for axis in tree.axes]
    parts = [*every_level(tree), *scheme.views]
    exact = int(scheme.keys.total_is_public)
    squares = [0 if part.number < exact else scheme.sensitivity(part.number).l2_squared for part in parts]
    if isinstance(split, Targets):
        if len({*squares}) > 1:
            raise wrong_key(
                "privacy.split.targets",
                "must be left out with release.grid unless neighbours is add_remove and distinct is left out: the least cost is"
                " known only where a unit moves all pairs of levels equally far.",
                hint="Give epsilon, and a split such as {workload: ranges}; plan states the deviations.",
            )
        of_axes = for_targets_of_pairs(_variances(split, scheme), sides)
    else:
        of_rule = (_by_rule(split, side, [1] * (side.depth + 1)) for side in sides)
        of_axes = [precisions for precisions in of_rule if precisions is not None]
    if not of_axes:
        raise wrong_key(
            "privacy.split",
            f"must be a rule for both axes with release.grid: {', '.join(SPLITS)}, {{workload: …}} or {{targets: …}}.",
        )
    products = np.array(
        [math.prod(of[level] for of, level in zip(of_axes, part.axis_levels, strict=True)) for part in parts]
    )
    found = _split_by_precision(products, squares)
    return found._replace(rho=Fraction(twice_rho(products, squares)) / 2) if isinstance(split, Targets) else found


def _by_rule(split: object, tree: Tree, squares: Sequence[int], *, is_either: bool = False) -> FloatArray | None:
    """Return the relative precisions that a rule gives to the levels of a tree; None where the split is no such rule."""
    split = SPLITS.get(split, split) if isinstance(split, str) else split
    if callable(split):
        precisions: FloatArray = split(most_fan_outs(tree) if split is cascade else mean_fan_outs(tree))
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


def _variances(split: Targets, scheme: Scheme) -> dict[tuple[int, ...], float]:
    """Return the most variance of an estimate, before it is rounded, by the level of each target, or the pair of levels of a grid."""
    variances = dict[tuple[int, ...], float]()
    rounding = GRID_ROUNDING_VARIANCE if scheme.is_grid else ROUNDING_VARIANCE
    for name, deviation in split.targets.items():
        field = f"privacy.split.targets.{name}"
        levels = _pair_targeted(scheme, name, field) if scheme.is_grid else (_level_targeted(scheme, name, field),)
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


def _pair_targeted(scheme: Scheme, name: str, field: str) -> tuple[int, ...]:
    """Return the pair of levels of a grid whose table has the name of a target; the total is not of any axis."""
    of_axes = [
        ["", *(column_name(axis.name, level, {f"{axis.name}_"}) for level in axis.level_names)]
        for axis in scheme.tree.axes
    ]
    pairs = {
        "_by_".join(filter(None, names)) or TOTAL: pair
        for names, pair in zip(product(*of_axes), product(*(range(len(of)) for of in of_axes)), strict=True)
    }
    if name not in pairs:
        one, two = (", ".join(of[1:]) for of in of_axes)
        raise wrong_key(
            field, f"must be {TOTAL}, one of {one}, one of {two}, or ONE_by_OTHER for a pair of them, got {name}."
        )
    return pairs[name]


def scheme_of(
    keys: PrivacyKeys,
    tree: Tree,
    whole: Tree,
    mechanism: Mechanism,
    sampler: str,
    law: Law | None = None,
    views: Sequence[tuple[str, View]] = (),
) -> Scheme:
    """Return the measurements of a spec, without their noise.

    Args:
        sampler: of the law, by its name.
        law: one of the mechanism's; its first one if left out.
        views: by their names; those with the cells of a level have its number, the others follow from T + 1.
    Raises:
        SpecError: a level that the spec names does not exist, or the split does not fit what is measured.
    """
    law = law or mechanism.default_law
    scheme, per_draw = measured_scheme(keys, tree, whole, mechanism, law, views), law.samplers[sampler].tau
    if mechanism.is_dense:
        scheme = replace(scheme, design=_design_of(scheme))
    by_rule = _tree_split(scheme) if mechanism.is_unbiased else None
    if by_rule and scheme.names and not scheme.is_grid:
        by_rule = _beside_views(scheme, by_rule)
    measured, shares, rho = by_rule or TreeSplit(scheme.measured, _shares_of_scheme(scheme))
    sensitivities = tuple(map(scheme.sensitivity, measured))
    scheme = replace(scheme, measured=measured, sensitivities=sensitivities, rho=rho)
    squares, taus = (of.l2_squared for of in sensitivities), (per_draw * of.cells for of in sensitivities)
    return replace(scheme, allocation=Allocation(shares, tuple(squares), tuple(taus), scheme.total))


STRATEGIES = "strategies.json"  # in TRELLIS_HOME; it may be deleted

_MOST_STRATEGIES = 64  # of the last ones
_SECONDS = 1.0  # of what took longer is kept


def _design_of(scheme: Scheme) -> Design:
    """Return the strategy of a single ordered axis for the workload of the split; all ranges where the spec names none.

    Raises:
        SpecError: there are several axes, one without an order, or another split than a workload of ranges.
    """
    keys, tree, name = scheme.keys, scheme.tree, scheme.mechanism.name
    if len(tree.axes) != 1 or not tree.ordered:
        which = ", ".join(axis.name for axis in tree.axes)
        raise wrong_key(
            "mechanism",
            f"{name} needs a single axis, whose codes have an order, got {which}.",
            hint="Give its codes as {ordered: …}, and leave other axes out; or choose mechanism: unbiased_tree.",
        )
    split = keys.split if "split" in keys.model_fields_set else Workload(workload="ranges")
    if not isinstance(split, Workload) or split.workload in ("nodes", "leaves"):
        raise wrong_key(
            "privacy.split",
            f"must be {{workload: ranges}}, {{workload: prefix}} or {{workload: [FIRST{RANGE}LAST, …]}} with mechanism {name}.",
        )
    workload = split.workload if isinstance(split.workload, str) else _ranges_named(split.workload, tree)
    leaves = tree.possible_cells(tree.depth)
    return _kept_design(workload, leaves, keys.neighbours, total_is_public=keys.total_is_public)


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


def _ranges_named(named: Sequence[str], tree: Tree) -> Ranges:
    """Return the ranges of codes that a spec names."""
    [axis] = tree.axes
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
def _kept_design(workload: str | Ranges, leaves: int, neighbours: str, *, total_is_public: bool) -> Design:
    """Return a design, from TRELLIS_HOME if it was found before. What it costs is always computed from its rows."""
    place, key = place_of_home() / STRATEGIES, json.dumps([workload, leaves, neighbours, total_is_public])
    key, kept = sha256(key.encode()).hexdigest(), dict[str, list[str | float]]()
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = json.loads(place.read_bytes())
        text, at_least = kept[key]
        known = Strategy.from_text(str(text))
        if known.rows.shape[1] == leaves:
            return Design(known, workload, float(at_least))
    began = monotonic()
    found = design(workload, moves_of(leaves, neighbours, total_is_public=total_is_public))
    with suppress(OSError, TypeError):
        if monotonic() - began > _SECONDS and place.parent.is_dir():
            kept = dict(
                [*kept.items(), (key, list[str | float]([found.strategy.text, found.at_least]))][-_MOST_STRATEGIES:]
            )
            with beside(place) as file:
                file.write(json.dumps(kept, indent=0).encode())
    return found


def _beside_views(scheme: Scheme, by_rule: TreeSplit) -> TreeSplit:
    """Return a split of the levels of a tree as it is beside views: the levels share the weight of the tree by the rule."""
    weights, levels = scheme.keys.split, dict(zip(by_rule.measured, by_rule.shares, strict=True))
    for number, name in scheme.names.items():
        if isinstance(weights, dict) and name in weights and scheme.first_measured <= number <= scheme.tree.depth:
            levels.setdefault(number, Fraction(0))
    measured = (*sorted(levels), *(view.number for view in scheme.views))
    return TreeSplit(measured, _shares_of_scheme(replace(scheme, measured=measured), levels))


def _shares_of_scheme(scheme: Scheme, by_rule: Mapping[int, Fraction] | None = None) -> tuple[Fraction, ...]:
    """Return the share of each measured level or view; levels share the weight of the tree as a rule says, or as the spec does."""
    split, measured = scheme.keys.split, scheme.measured
    if not scheme.mechanism.measures_views:
        return _shares(scheme.keys, len(measured))
    if isinstance(split, Minimise):
        return _minimised(scheme, split)
    rest = LEAVES if len(scheme.mechanism.views(scheme.tree)) == 1 else TREE
    weights = split if isinstance(split, dict) else {}
    views = {number: own for number in measured if (own := _weight_as_view(scheme, number, weights, rest))}
    levels = [number for number in measured if number not in views]
    for name in {LEAVES, TREE} - {rest}:
        if name in weights:
            raise wrong_key(
                "privacy.split",
                f"must call it {rest}, got {name}: mechanism {scheme.mechanism.name} measures"
                f" {'the leaves alone' if rest == LEAVES else 'every level'} beside views.",
            )
    for name in weights.keys() - {rest, *(name for number in measured for name in scheme.names_of(number))}:
        exact = "it holds everything in one cell, which is published exactly"
        held = "release.views: margins leaves it out, since it has the cells of the total, the leaves or a finer level"
        raise wrong_key("privacy.split", f"must not name {name}: {exact if name in scheme.names.values() else held}.")
    of_tree = _decimal(weights[rest]) if rest in weights else Fraction(1 if rest == LEAVES else max(1, len(views)) * 4)
    if rest == LEAVES and not isinstance(split, dict | str):
        raise wrong_key(
            "privacy.split", f"must be uniform, {{view: weight}} or minimise with mechanism {scheme.mechanism.name}."
        )
    if by_rule is not None:
        within = shares_of([by_rule[level] for level in levels]) if levels else ()
    else:
        within = _shares(scheme.keys, len(levels)) if not isinstance(split, dict) else uniform(len(levels))
    of_number = dict(zip(levels, (share * of_tree for share in within), strict=True))
    return shares_of([(of_number | views)[number] for number in measured])


def _weight_as_view(scheme: Scheme, number: int, weights: Mapping[str, float], rest: str) -> Fraction | None:
    """Return the weight of what is measured as a view; None where it has its weight as a level.

    The leaves, and the levels of a mechanism that measures all of them, are levels also where a view has their cells, unless
    that view has a weight of its own. Views with the same cells add up their weights.
    """
    names = scheme.names_of(number)
    own = [_decimal(weights[name]) for name in names if name in weights]
    if own:
        return sum(own, Fraction(0))
    is_level = number == scheme.tree.depth or (rest == TREE and number <= scheme.tree.depth)
    return Fraction(1) if names and not is_level else None


def _minimised(scheme: Scheme, split: Minimise) -> tuple[Fraction, ...]:
    """Return the shares with which the views and leaves that the spec weighs have the least error, by the codebooks alone."""
    tree, numbers = scheme.tree, scheme.measured
    if len(scheme.mechanism.views(tree)) > 1:
        able = "a mechanism that measures the leaves and views alone, such as cbdp"
        raise wrong_key("privacy.split.minimise", f"needs {able}.")
    if TREE in split.minimise:
        raise wrong_key("privacy.split.minimise", f"must call the leaves {LEAVES}, got {TREE}.")
    others = [number for number in scheme.of_measured([NO_NOISE] * len(numbers)) if number != tree.depth]
    if not others:
        return (Fraction(1),)
    leaves = Partition(tree, scheme.view(tree.depth)).cells()
    partitions = {number: Partition(tree, scheme.view(number)) for number in others}
    labels = [partition.places(leaves).astype(np.int32) for partition in partitions.values()]
    sizes, cells = atoms_of(labels)
    if len(sizes) > MOST_ATOMS:
        raise wrong_key(
            "privacy.split.minimise",
            f"must have at most {MOST_ATOMS:,} groups of leaves that all views hold together, got {len(sizes):,}.",
            hint="Name weights by view instead, such as split: {by_mode: 2, leaves: 1}.",
        )
    parts = [
        WeightedView(
            cell,
            len(partition),
            sum(split.minimise.get(name, 0.0) for name in scheme.names_of(number)),
            number not in numbers,
        )
        for (number, partition), cell in zip(partitions.items(), cells, strict=True)
    ]
    ordered = [*(number for number in others if number in numbers), tree.depth]
    moved = [scheme.sensitivity(number) for number in ordered]
    scale = np.array([of.l2_squared if scheme.law.costs_rho else of.l1 for of in moved], dtype=np.float64)

    def precision(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return shares / scale if scheme.law.costs_rho else (shares / scale) ** 2

    shares = least_error_shares(sizes, parts, split.minimise.get(LEAVES, 0.0), precision)
    of_number = dict(zip(ordered, (_decimal(round(float(share), 3)) for share in shares), strict=True))
    return shares_of([of_number[number] for number in numbers])


def _shares(keys: PrivacyKeys, measured: int) -> tuple[Fraction, ...]:
    if isinstance(keys.split, Geometric):
        return geometric(_decimal(keys.split.geometric), measured)
    if isinstance(keys.split, Finest):
        return finest(_decimal(keys.split.finest), measured)
    if isinstance(keys.split, list):
        if len(keys.split) != measured:
            raise wrong_key(
                "privacy.split", f"must list {measured} shares, one per measured level, got {len(keys.split)}."
            )
        return shares_of([_decimal(share) for share in keys.split])
    return uniform(measured)


def _decimal(written: float) -> Fraction:
    """Return the number that was written: 0.1 is exactly one tenth."""
    return Fraction(repr(written))

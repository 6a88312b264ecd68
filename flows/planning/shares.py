"""How the budget of a release is shared among what it measures, as its spec says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flows.planning.scheme import Scheme, measured_scheme
from flows.planning.unbiased import tree_split
from flows.spec.sections.privacy import Finest, Geometric, Minimise, PrivacyKeys
from flows.spec.sections.views import LEAVES, TREE
from storage.errors import SpecError
from tasks.accounting.allocation import Allocation, finest, geometric, shares_of, uniform
from tasks.laws.law import NO_NOISE, Law
from tasks.mechanisms import Mechanism
from tasks.settle.shares import MOST_ATOMS, Part, atoms_of, least_error_shares
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View


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
        keys: the spec's section `privacy`.
        tree: the tree that is released.
        whole: the same tree with all levels of the codebooks. `privacy.distinct` may name any of them.
        mechanism: the mechanism.
        sampler: the sampler of the law that draws the noise.
        law: one of the mechanism's; its first one if left out.
        views: by their names; those with the cells of a level have its number, the others follow from T + 1.
    Raises:
        SpecError: a level that the spec names does not exist, or the split does not fit what is measured.
    """
    law = law or mechanism.default_law
    scheme, per_draw = measured_scheme(keys, tree, whole, mechanism, law, views), law.samplers[sampler].tau
    split = tree_split(scheme) if scheme.is_unbiased else None
    if split:
        sensitivities = tuple(map(scheme.sensitivity, split.measured))
        scheme = replace(scheme, measured=split.measured, sensitivities=sensitivities, rho=split.rho)
    allocation = Allocation(
        split.shares if split else _shares_of_scheme(scheme),
        tuple(of.l2_squared for of in scheme.sensitivities),
        tuple(per_draw * of.cells for of in scheme.sensitivities),
        scheme.total,
    )
    return replace(scheme, allocation=allocation)


def _shares_of_scheme(scheme: Scheme) -> tuple[Fraction, ...]:
    """Return the share of each measured level or view."""
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
            raise SpecError(
                f"privacy.split must call it {rest}, got {name}: mechanism {scheme.mechanism.name} measures"
                f" {'the leaves alone' if rest == LEAVES else 'every level'} beside views.",
                field="privacy.split",
            )
    for name in weights.keys() - {rest, *(name for number in measured for name in scheme.names_of(number))}:
        exact = "it holds everything in one cell, which is published exactly"
        held = "release.views: margins leaves it out, since it has the cells of the total, the leaves or a finer level"
        raise SpecError(
            f"privacy.split must not name {name}: {exact if name in scheme.names.values() else held}.",
            field="privacy.split",
        )
    of_tree = _decimal(weights[rest]) if rest in weights else Fraction(1 if rest == LEAVES else max(1, len(views)) * 4)
    if rest == LEAVES and not isinstance(split, dict | str):
        raise SpecError(
            f"privacy.split must be uniform, {{view: weight}} or minimise with mechanism {scheme.mechanism.name}.",
            field="privacy.split",
        )
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
        raise SpecError(f"privacy.split.minimise needs {able}.", field="privacy.split.minimise")
    if TREE in split.minimise:
        raise SpecError(
            f"privacy.split.minimise must call the leaves {LEAVES}, got {TREE}.", field="privacy.split.minimise"
        )
    others = [number for number in scheme.of_measured([NO_NOISE] * len(numbers)) if number != tree.depth]
    if not others:
        return (Fraction(1),)
    leaves = Partition(tree, scheme.view(tree.depth)).cells()
    partitions = {number: Partition(tree, scheme.view(number)) for number in others}
    labels = [partition.places(leaves).astype(np.int32) for partition in partitions.values()]
    sizes, cells = atoms_of(labels)
    if len(sizes) > MOST_ATOMS:
        raise SpecError(
            f"privacy.split.minimise must have at most {MOST_ATOMS:,} groups of leaves that all views hold together, got"
            f" {len(sizes):,}.",
            field="privacy.split.minimise",
            hint="Name weights by view instead, such as split: {by_mode: 2, leaves: 1}.",
        )
    parts = [
        Part(
            cell,
            len(partition),
            sum(split.minimise.get(name, 0.0) for name in scheme.names_of(number)),
            number not in numbers,
        )
        for (number, partition), cell in zip(partitions.items(), cells, strict=True)
    ]
    moved = [of.l2_squared if scheme.law.costs_rho else of.l1 for of in scheme.sensitivities]
    at = {number: place for place, number in enumerate(numbers)}
    ordered = [*(number for number in others if number in at), tree.depth]
    scale = np.array([moved[at[number]] for number in ordered], dtype=np.float64)

    def precision(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return shares / scale if scheme.law.costs_rho else (shares / scale) ** 2

    found = least_error_shares(sizes, parts, split.minimise.get(LEAVES, 0.0), precision)
    of_number = dict(zip(ordered, (_decimal(round(float(share), 3)) for share in found), strict=True))
    return shares_of([of_number[number] for number in numbers])


def _shares(keys: PrivacyKeys, measured: int) -> tuple[Fraction, ...]:
    if isinstance(keys.split, Geometric):
        return geometric(_decimal(keys.split.geometric), measured)
    if isinstance(keys.split, Finest):
        return finest(_decimal(keys.split.finest), measured)
    if isinstance(keys.split, list):
        if len(keys.split) != measured:
            raise SpecError(
                f"privacy.split must list {measured} shares, one per measured level, got {len(keys.split)}.",
                field="privacy.split",
            )
        return shares_of([_decimal(share) for share in keys.split])
    return uniform(measured)


def _decimal(written: float) -> Fraction:
    """Return the number that was written: 0.1 is exactly one tenth."""
    return Fraction(repr(written))

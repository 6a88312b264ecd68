"""How the budget of a release is shared among what it measures, and the parts that this makes: levels and views with their noise, cost and bounds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flows.planning.guarantee import Guarantee
from flows.planning.scheme import Scheme, measured_scheme
from flows.planning.splits import TreeSplit, cascading, designs_of, path_part_of, split_by_rule
from flows.specification.rules import wrong_key
from flows.specification.sections.privacy import Finest, Geometric, Minimise, PrivacyKeys, weights_of_views
from flows.specification.sections.views import LEAVES, TREE
from storage.releases.parts import Part
from tasks.accounting.allocation import Allocation, finest, geometric, shares_of, uniform
from tasks.laws.days import Days
from tasks.laws.law import NO_NOISE, Law
from tasks.mechanisms import Mechanism
from tasks.settle.shares import MOST_ATOMS, WeightedView, atoms_of, least_error_shares
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View, every_level
from tasks.uncertainty.bounds import CONFIDENCE

_LEAST = Fraction(1, 4)
_OF_TREE = 4  # times what its views get
_OF_TREE_BY_PRIORS = 5  # five levels then bear at most 1.06 times their noise without totals of two axes
_OF_LEAVES = Fraction(6, 5)  # of a level's share, beside views where priors count them


def scheme_of(
    keys: PrivacyKeys,
    tree: Tree,
    whole: Tree,
    mechanism: Mechanism,
    sampler: str,
    law: Law | None = None,
    views: Sequence[tuple[str, View]] = (),
    days: Days | None = None,
) -> Scheme:
    """Return the measurements of a spec, without their noise.

    Args:
        sampler: of the law, by its name.
        law: one of the mechanism's; its first one if left out.
        views: by their names; those with the cells of a level have its number, the others follow from T + 1.
        days: the factor over the days of a series that are measured together.
    Raises:
        SpecError: a level that the spec names does not exist, or the split does not fit what is measured.
    """
    law = law or mechanism.default_law
    tree, per_draw = cascading(keys, tree, mechanism), law.samplers[sampler].tau
    scheme = measured_scheme(keys, tree, whole, mechanism, law, views)
    scheme = replace(scheme, days=days)
    if mechanism.is_dense:
        scheme = replace(scheme, designs=designs_of(scheme))
    by_rule = split_by_rule(scheme) if mechanism.is_unbiased else None
    if by_rule and scheme.names and not scheme.is_grid:
        by_rule = _beside_views(scheme, by_rule)
    measured, shares, rho = by_rule or TreeSplit(scheme.measured, _shares_of_scheme(scheme))
    sensitivities = tuple(map(scheme.sensitivity, measured))
    scheme = replace(scheme, measured=measured, sensitivities=sensitivities, rho=rho)
    squares, taus = (of.l2_squared for of in sensitivities), (per_draw * of.cells for of in sensitivities)
    path = path_part_of(scheme, measured, shares)
    return replace(scheme, allocation=Allocation(shares, tuple(squares), tuple(taus), scheme.total, path))


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
    weights = weights_of_views(split)
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
    most = max(Fraction(1), Fraction(len(views)), len(levels) * _beside_priors(scheme))
    times = _OF_TREE_BY_PRIORS if scheme.mechanism.follows_priors else _OF_TREE
    of_tree = _decimal(weights[rest]) if rest in weights else 1 if rest == LEAVES else most * times
    if rest == LEAVES and not isinstance(split, dict | str):
        raise wrong_key(
            "privacy.split", f"must be uniform, {{view: weight}} or minimise with mechanism {scheme.mechanism.name}."
        )
    if by_rule is not None:
        within = shares_of([by_rule[level] for level in levels]) if levels else ()
    else:
        within = _shares_beside_views(scheme, len(levels))
    of_number = dict(zip(levels, (share * of_tree for share in within), strict=True))
    return shares_of([(of_number | views)[number] for number in measured])


def _shares_beside_views(scheme: Scheme, levels: int) -> tuple[Fraction, ...]:
    """Return the shares of the levels beside views, of what the tree gets. Where priors count the leaves, and the spec names no split, leaves get more:
    no level below tells of them, and their largest errors are what priors do not mend.
    """
    if scheme.mechanism.follows_priors and "split" not in scheme.keys.model_fields_set:
        return finest(_OF_LEAVES, levels)
    return _shares(scheme.keys, levels) if not isinstance(scheme.keys.split, dict) else uniform(levels)


def _beside_priors(scheme: Scheme) -> Fraction:
    """Return the weight of a level, in fives of a view's, where priors count the leaves: below ε = 1 as much less as ε is, to a quarter; else 0.

    The smaller ε is, the more the counts of leaves follow from totals, and the less from what is measured of them.
    """
    if not scheme.mechanism.follows_priors:
        return Fraction(0)
    return Fraction(1) if scheme.keys.epsilon is None else min(Fraction(1), max(_LEAST, _decimal(scheme.keys.epsilon)))


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


def parts_of(scheme: Scheme, guarantee: Guarantee) -> tuple[Part, ...]:
    """Return the levels 0 to T, and after them the views that have not the cells of a level, with what each is charged."""
    mechanism, levels = scheme.mechanism, every_level(scheme.tree)
    if mechanism.is_unbiased:
        uncharged = [*_unbiased([*levels, *scheme.views], scheme, guarantee)]
    elif mechanism.settles_together:
        uncharged = [*_settled([*levels, *scheme.views], scheme, guarantee)]
    elif mechanism.of_groups:
        uncharged = [*_of_groups([*levels, *scheme.views], scheme, guarantee)]
    else:
        uncharged = [*_walked(levels, scheme, guarantee), *_settled(scheme.views, scheme, guarantee)]
    parts = list[Part]()
    for part in uncharged:
        if part.level in scheme.measured:
            part = _charged(part, scheme, guarantee)
        elif part.same_as is not None:
            part = replace(part, mechanism=parts[part.same_as].mechanism, scale=parts[part.same_as].scale)
        parts.append(part)
    return tuple(parts)


def _part(view: View, scheme: Scheme) -> Part:
    """Return a part of which nothing is decided but its cells: neither its noise, nor its bound, nor its charge."""
    is_listed = scheme.tree.is_listed(min(view.number, scheme.tree.depth))
    cells = len(Partition(scheme.tree, view)) if view.derived else math.prod(view.sizes(scheme.tree))
    return Part(
        level=view.number,
        axes=view.names,
        possible_cells=cells if is_listed else None,
        is_invariant=False,
        rho=Fraction(0),
        sigma=0.0,
        l2_sensitivity_squared=0,
        bound=None,
        derivation=scheme.derivation(view.number),
        view=scheme.names.get(view.number, ""),
    )


def _walked(levels: Sequence[View], scheme: Scheme, guarantee: Guarantee) -> Iterator[Part]:
    """Yield the levels of a tree that is walked, or of which leaves alone are measured; those above are exact, or sums."""
    bounds, noises = scheme.bounds(guarantee.noises, CONFIDENCE), scheme.noises(guarantee.noises)
    is_summed = scheme.mechanism.adds_up_leaves
    for level in levels:
        is_above = level.number < scheme.first_measured
        yield replace(
            _part(level, scheme),
            is_invariant=is_above and not is_summed,
            sigma=noises[level.number].sigma,
            bound=bounds[level.number] if bounds else None,
            is_summed=is_above and is_summed,
            same_as=scheme.same_as(level.number),
        )


def _unbiased(views: Sequence[View], scheme: Scheme, guarantee: Guarantee) -> Iterator[Part]:
    """Yield levels and views where every node is measured; their bounds follow from the exact variances of counts."""
    measured, released = scheme.of_measured(guarantee.noises), scheme.released(guarantee.noises)
    for view in views:
        noise = measured.get(view.number)
        is_exact = noise is not None and not noise
        yield replace(
            _part(view, scheme),
            is_invariant=is_exact,
            sigma=0.0 if is_exact else noise.sigma if noise else math.sqrt(released.most_variance(view)),
            bound=0.0 if is_exact else released.bound(view, CONFIDENCE),
            is_summed=noise is None,
        )


def _of_groups(views: Sequence[View], scheme: Scheme, guarantee: Guarantee) -> Iterator[Part]:
    """Yield the levels and views of group sizes; a sum has the σ of the sum from which its intervals follow."""
    measured = scheme.of_measured(guarantee.noises)
    beside = (scheme.source(view.number, measured)[1] for view in scheme.views)
    for view, noise in zip(views, [*scheme.noises(guarantee.noises), *beside], strict=True):
        is_summed = view.number not in scheme.measured
        part = _part(view, scheme)
        yield replace(part, sigma=noise.sigma, is_summed=is_summed, mechanism=scheme.law.name)


def _settled(views: Sequence[View], scheme: Scheme, guarantee: Guarantee) -> Iterator[Part]:
    """Yield levels and views that are settled with others: each is measured, a public total, or a sum."""
    measured = scheme.of_measured(guarantee.noises)
    for view in views:
        source, noise = scheme.source(view.number, measured)
        is_measured = view.number in scheme.measured
        yield replace(
            _part(view, scheme),
            is_invariant=view.number == 0 and not is_measured and not noise,
            sigma=measured[view.number].sigma if is_measured else noise.sigma,
            is_summed=not is_measured and bool(noise or view.number),
            mechanism=scheme.law.name,
            scale=noise.stated_scale,
            view=next(iter(scheme.names_of(view.number)), ""),
            source=source,
        )


def _charged(part: Part, scheme: Scheme, guarantee: Guarantee) -> Part:
    """Return a measured part with what it is charged: ρ, or (ε, δ) and the scale and threshold of its noise."""
    place, law = scheme.measured.index(part.level), scheme.law
    if law.costs_rho:
        of, noise = guarantee.measurements[place], guarantee.noises[place]
        square, scale = of.l2_sensitivity_squared, of.sigma if scheme.days else noise.stated_scale
        law = noise.law or law
        return replace(part, mechanism=law.name, rho=of.rho, l2_sensitivity_squared=square, tau=of.tau, scale=scale)
    mapped = guarantee.by_map[place]
    return replace(
        part,
        mechanism=law.name,
        epsilon=mapped.cost.epsilon,
        delta=mapped.cost.delta,
        scale=mapped.noise.scale,
        threshold=mapped.threshold,
        tau=mapped.tau,
    )

"""The parts of a planned release: what is decided of each level and view, with its noise, its cost and its bounds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from flows.planning.guarantee import Guarantee
from flows.planning.scheme import Scheme
from storage.releases.parts import Part
from tasks.laws.law import LevelNoise
from tasks.tree.views import Partition, View, every_level
from tasks.uncertainty.bounds import CONFIDENCE


def level_terms(scheme: Scheme, guarantee: Guarantee) -> tuple[Part, ...]:
    """Return the terms of all levels. Levels above the first measured one are exact or sums, and take no share of ρ."""
    stated, noises = scheme.bounds(guarantee.noises, CONFIDENCE), scheme.noises(guarantee.noises)
    terms = list[Part]()
    if scheme.is_unbiased:
        return _unbiased_terms(scheme, guarantee, every_level(scheme.tree))
    if scheme.sizes:
        return tuple(_terms_of_groups(level, scheme, guarantee, noises) for level in range(scheme.tree.depth + 1))
    if scheme.is_together:
        return tuple(_settled_terms(level, scheme, guarantee) for level in range(scheme.tree.depth + 1))
    for level in range(scheme.tree.depth + 1):
        above, same = level < scheme.first_measured, scheme.same_as(level)
        term = Part(
            level=level,
            axes=scheme.tree.level_names(level),
            possible_cells=scheme.tree.possible_cells(level) if scheme.tree.is_listed(level) else None,
            is_invariant=above and not scheme.is_summed,
            rho=Fraction(0),
            sigma=noises[level].sigma,
            l2_sensitivity_squared=0,
            bound=stated[level] if stated else None,
            derivation=scheme.derivation(level),
            is_summed=above and scheme.is_summed,
            same_as=same,
            view=next(iter(scheme.names_of(level)), "") if level in scheme.names else "",
        )
        if same is not None:
            term = replace(term, mechanism=terms[same].mechanism, scale=terms[same].scale)
        terms.append(_charged(term, scheme, guarantee) if level in scheme.measured else term)
    return tuple(terms)


def _unbiased_terms(scheme: Scheme, guarantee: Guarantee, views: Sequence[View]) -> tuple[Part, ...]:
    """Return the terms of levels or views where every node is measured; their bounds follow from the exact variances of counts."""
    measured, released, terms = scheme.of_measured(guarantee.noises), scheme.released(guarantee.noises), []
    for view in views:
        noise = measured.get(view.number)
        is_exact = noise is not None and not noise
        of_level = released.variances.of_level(view.axis_levels)
        term = Part(
            level=view.number,
            axes=view.names,
            possible_cells=math.prod(view.sizes(scheme.tree)),
            is_invariant=is_exact,
            rho=Fraction(0),
            sigma=0.0 if is_exact else noise.sigma if noise else math.sqrt(of_level.most),
            l2_sensitivity_squared=0,
            bound=0.0 if is_exact else released.bound(view.axis_levels, CONFIDENCE),
            derivation=scheme.derivation(view.number),
            is_summed=noise is None,
            view=scheme.names.get(view.number, ""),
        )
        terms.append(_charged(term, scheme, guarantee) if view.number in scheme.measured else term)
    return tuple(terms)


def _terms_of_groups(level: int, scheme: Scheme, guarantee: Guarantee, noises: Sequence[LevelNoise]) -> Part:
    """Return the terms of a level of group sizes: it is measured, or a sum; then its σ is that of the sum from which its intervals follow."""
    is_measured = level in scheme.measured
    term = Part(
        level=level,
        axes=scheme.tree.level_names(level),
        possible_cells=scheme.tree.possible_cells(level),
        is_invariant=False,
        rho=Fraction(0),
        sigma=noises[level].sigma,
        l2_sensitivity_squared=0,
        bound=None,
        derivation=scheme.derivation(level),
        is_summed=not is_measured,
        mechanism=scheme.law.name,
    )
    return _charged(term, scheme, guarantee) if is_measured else term


def view_terms(scheme: Scheme, guarantee: Guarantee) -> tuple[Part, ...]:
    """Return the terms of the views that have not the cells of a level."""
    if scheme.is_unbiased:
        return _unbiased_terms(scheme, guarantee, scheme.views)
    return tuple(_settled_terms(view.number, scheme, guarantee) for view in scheme.views)


def _settled_terms(number: int, scheme: Scheme, guarantee: Guarantee) -> Part:
    """Return the terms of a level or view where everything is settled together: it is measured, a public total, or a sum."""
    view, of_measured = scheme.view(number), scheme.of_measured(guarantee.noises)
    source, noise = scheme.source(number, of_measured)
    is_measured = number in scheme.measured
    term = Part(
        level=number,
        axes=view.names,
        possible_cells=len(Partition(scheme.tree, view)),
        is_invariant=number == 0 and not is_measured and not noise,
        rho=Fraction(0),
        sigma=of_measured[number].sigma if is_measured else noise.sigma,
        l2_sensitivity_squared=0,
        bound=None,
        derivation=scheme.derivation(number),
        is_summed=not is_measured and bool(noise or number),
        view=next(iter(scheme.names_of(number)), ""),
        source=source,
    )
    if not is_measured:
        return replace(term, mechanism=scheme.law.name, scale=noise.stated_scale)
    return _charged(term, scheme, guarantee)


def _charged(term: Part, scheme: Scheme, guarantee: Guarantee) -> Part:
    """Return the terms of a measured level with what it is charged: ρ, or (ε, δ) and the scale and threshold of its noise."""
    place, law = scheme.measured.index(term.level), scheme.law
    if law.costs_rho:
        of, scale = guarantee.measurements[place], guarantee.noises[place].stated_scale
        return replace(
            term,
            mechanism=law.name,
            rho=of.rho,
            l2_sensitivity_squared=of.l2_sensitivity_squared,
            tau=of.tau,
            scale=scale,
        )
    level = guarantee.by_map[place]
    return replace(
        term,
        mechanism=law.name,
        epsilon=level.cost.epsilon,
        delta=level.cost.delta,
        scale=level.noise.scale,
        threshold=level.threshold,
        tau=level.tau,
    )

"""The parts of a planned release: what is decided of each level and view, with its noise, its cost and its bounds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from flows.planning.guarantee import Guarantee
from flows.planning.scheme import Scheme
from storage.releases.parts import Part
from tasks.tree.views import Partition, View, every_level
from tasks.uncertainty.bounds import CONFIDENCE


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
        of, scale = guarantee.measurements[place], guarantee.noises[place].stated_scale
        square = of.l2_sensitivity_squared
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

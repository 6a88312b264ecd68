"""What the numbers of a planned release would be worth: at other ε, and in the totals of one axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flows.forecast.values import PlannedMargin
from flows.planning.composition import composed_epsilon, standing_of
from flows.planning.guarantee import Guarantee, guarantee_of, noises_like
from flows.planning.parts import level_terms, view_terms
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.planning.views import views_of
from flows.specification.keys import DEFAULT_MECHANISM
from storage.errors import SpecError
from storage.ledger.books import Cap
from storage.ledger.spending import Spending, for_one_unit, growth, weakest_promise
from storage.releases.parts import Part
from tasks.accounting.conversions import zcdp_epsilon
from tasks.laws.law import LevelNoise
from tasks.mechanisms import MECHANISMS, can_settle_views, mechanism_with
from tasks.tree.views import margin
from tasks.uncertainty.bounds import finest_above_noise
from tasks.uncertainty.sources import expected_error

Margin = tuple[int, int]  # an axis, and its level


def planned_margins(plan: Plan) -> list[PlannedMargin]:
    """Return the totals of each axis at each of its levels, with the mean noise of the best sum of measurements for one.

    What an alternative would give is computed for the same cost, without searching for its ρ anew.
    """
    scheme = plan.scheme
    if plan.unlisted or scheme.is_unbiased or scheme.is_summed or scheme.sizes:
        return []  # nothing is settled, or no totals are told apart
    with_views, without = _schemes(plan)
    found = [_errors(plan, scheme) if scheme else {} for scheme in (with_views, without)]
    return [
        PlannedMargin(
            axis=axis.name,
            level=axis.level_names[level - 1],
            cells=axis.areas(level),
            expected_error=found[0].get((number, level)),
            without_views=found[1].get((number, level)),
        )
        for number, axis in enumerate(plan.tree.axes)
        for level in range(1, axis.depth + 1)
    ]


def _schemes(plan: Plan) -> tuple[Scheme | None, Scheme | None]:
    """Return what is measured with views, and what is without: one of the two is the plan's."""
    spec, scheme = plan.file.spec, plan.scheme
    sampler, law = spec.noise.sampler, plan.scheme.law
    if scheme.mechanism.measures_views:
        mechanism = MECHANISMS[spec.mechanism]
        mechanism = MECHANISMS[DEFAULT_MECHANISM] if mechanism.cells == "views" else mechanism
        keys = spec.privacy.model_copy(update={"split": "uniform"})
        return scheme, scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law)
    together = can_settle_views(plan.tree)
    mechanism = mechanism_with(plan.mechanism, has_views=True, together=together)
    if not mechanism.measures_views or spec.privacy.invariants:
        return None, scheme
    release = spec.release.model_copy(update={"views": "margins"})
    try:
        views = views_of(spec.model_copy(update={"release": release}), plan.tree, {}, together=together)
    except SpecError:
        return None, scheme
    named = [(terms.name, view) for terms, view in views]
    keys = spec.privacy.model_copy(update={"target": None, "epsilon": plan.guarantee.epsilon, "rho": None})
    return scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law, named), scheme


def _errors(plan: Plan, scheme: Scheme) -> Mapping[Margin, float]:
    """Return the mean noise of every total of one axis before counts are settled, records."""
    guarantee = plan.guarantee
    noises = guarantee.noises if scheme is plan.scheme else noises_like(scheme, guarantee)
    measured = dict(zip(scheme.measured, noises, strict=True))
    if not scheme.is_together:  # a level that repeats another is as good as that one
        views = {number: noise for number, noise in measured.items() if number > plan.tree.depth}
        measured = dict(enumerate(scheme.noises(noises))) | views
    return {
        (axis, level): expected_error(
            margin(plan.tree, axis, level),
            {number: (scheme.view(number), of) for number, of in measured.items()},
            plan.tree,
        )
        for axis in range(len(plan.tree.axes))
        for level in range(1, plan.tree.axes[axis].depth + 1)
    }


CONFIDENCE = 0.95  # 19 of 20

_PARTS = (0.5, 1.0, 2.0)  # of the planned ε
_MOST_RELEASES = 100


@dataclass(frozen=True, slots=True)
class LevelWorth:
    """How exact the counts of a level or view are, before they are adjusted to add up.

    Attributes:
        within: of 20 counts, 19 are measured within this many records of the true count; 0 where they are exact, or have hardly any
            noise. None where the error is not noise alone.
        more_than_noise: a count above this is more than noise: of all possible cells, fewer than one is expected to have so much.
        is_exact: whether they have no noise at all.
    """

    within: int | None
    more_than_noise: int | None
    is_exact: bool = False


_EXACT = LevelWorth(0, 0, is_exact=True)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a release would be worth at an ε.

    Attributes:
        epsilon: of the release; `delta` is the planned one.
        is_planned: whether it is the spec's.
        after: the ε that all releases about these people would have spent with this one, at the cap's δ.
        fits: whether the cap allows it.
        levels: of levels 0 to T, then of the views without a level of their own; empty where no noise in range gives this ε.
        finest_above: the finest level whose mean count is at least twice the noise; None for none, or without a public total.
    """

    epsilon: float
    is_planned: bool
    after: float
    fits: bool
    levels: Sequence[LevelWorth]
    finest_above: int | None


def worth_at_three(plan: Plan, before: Sequence[Spending], cap: Cap, total: int | None) -> list[Worth]:
    """Return what a release would be worth at half the planned ε, at the planned one, and at twice that. Nothing is spent.

    Args:
        plan: the plan.
        before: what the people's releases have spent.
        cap: on all of them.
        total: a public guess of the number of records, or None.
    """
    return [_worth(plan, part, before, cap, total) for part in _PARTS]


def further_releases(planned: Spending, before: Sequence[Spending], cap: Cap) -> int:
    """Return how many releases like the planned one would fit the cap after it, at most a hundred."""
    for more in range(1, _MOST_RELEASES + 1):
        if composed_epsilon([*before, *[planned] * (more + 1)], cap.delta, cap) > cap.epsilon:
            return more - 1
    return _MOST_RELEASES


def left_around(planned: Spending, before: Sequence[Spending], cap: Cap) -> tuple[float, float]:
    """Return the ε of one more release that would still fit the cap, before the planned release and after it.

    It is what the ledger says, for a release that promises as many records as the planned one.
    """
    after = for_one_unit([*before, planned])
    times = growth(planned.contributions, weakest_promise(of.contributions for of in after))
    standings = standing_of(after[:-1], cap), standing_of(after, cap)
    first, last = (of.left_epsilon if times == 1 else zcdp_epsilon(of.left_rho / times, cap.delta) for of in standings)
    return first, last


def _worth(plan: Plan, part: float, before: Sequence[Spending], cap: Cap, total: int | None) -> Worth:
    epsilon, is_planned = plan.guarantee.epsilon * part, part == 1
    try:
        other = plan if is_planned else _at(plan, epsilon)
    except SpecError:
        return Worth(epsilon, is_planned, math.inf, False, (), None)
    after = composed_epsilon([*before, other.spending], cap.delta, cap)
    finest = None
    if total is not None:
        levels, deviations = other.levels, other.deviations
        possible = [level.possible_cells for level in levels]
        finest = finest_above_noise(
            total, [deviations[level.level] for level in levels], possible, levels[-1].threshold
        )
    fits = after <= cap.epsilon
    return Worth(epsilon, is_planned, after, fits, _levels(other), finest)


def _at(plan: Plan, epsilon: float) -> Plan:
    """Return the same plan at another ε, with its law and its shares as they are."""
    keys = plan.scheme.keys.model_copy(update={"epsilon": epsilon, "rho": None, "target": None})
    scheme = replace(plan.scheme, keys=keys, rho=None)
    guarantee: Guarantee = guarantee_of(scheme)
    return replace(
        plan,
        scheme=scheme,
        guarantee=guarantee,
        levels=level_terms(scheme, guarantee),
        views=view_terms(scheme, guarantee),
    )


def _levels(plan: Plan) -> list[LevelWorth]:
    if plan.scheme.is_unbiased:
        return _unbiased(plan)
    scheme, noises = plan.scheme, plan.scheme.noises(plan.guarantee.noises)
    if plan.views:
        measured = scheme.of_measured(plan.guarantee.noises)
        noises += [scheme.source(view.level, measured)[1] for view in plan.views]
    parts = (*plan.levels, *plan.views)
    return [_measured(plan, terms, noise) for terms, noise in zip(parts, noises, strict=True)]


def _measured(plan: Plan, terms: Part, noise: LevelNoise) -> LevelWorth:
    """Return the worth of counts that are measured, or sums; sums that miss what a threshold left out have none that is known."""
    if terms.level == 0 and plan.file.spec.input.groups:
        return _EXACT
    if not noise:
        return LevelWorth(None, None) if terms.is_summed else _EXACT
    sizes = plan.scheme.sizes
    # a count of a size is a difference of two, and that of all sizes has a noise of its own
    draws = 2 if sizes and terms.level and sizes.measured.name != "sizes" else 1
    within = noise.quantile(math.log((1 - CONFIDENCE) / 2), draws)
    return LevelWorth(within, noise.quantile(_log_tail(terms), draws))


def _unbiased(plan: Plan) -> list[LevelWorth]:
    """Return the worth of counts that are settled from all measurements: their exact standard deviations say it."""
    released = plan.scheme.released(plan.guarantee.noises, CONFIDENCE)
    found = []
    for terms in (*plan.levels, *plan.views):
        levels = plan.scheme.view(terms.level).axis_levels
        _, most = released.deviations(levels)
        if not most:
            found.append(_EXACT)
            continue
        found.append(LevelWorth(released.widest_margin(levels), math.ceil(most * math.sqrt(-2 * _log_tail(terms)))))
    return found


def _log_tail(terms: Part) -> float:
    """Return the logarithm of the probability that a cell has more noise, so that fewer than one of all cells is expected to."""
    return -math.log(max(terms.possible_cells or 1, 20))

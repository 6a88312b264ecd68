"""What the numbers of a planned release would be worth: at other ε, and in the totals of one axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flows.forecast.values import PlannedMargin
from flows.planning.composition import composed_epsilon, standing_of
from flows.planning.guarantee import guarantee_of, noises_like
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme
from flows.planning.shares import parts_of, scheme_of
from flows.planning.views import views_of
from storage.errors import SpecError
from storage.ledger.accounts import Cap
from storage.ledger.spending import Spending, for_one_unit, growth, weakest_promise
from storage.releases.parts import Part
from tasks.accounting.conversions import zcdp_epsilon
from tasks.laws.law import LevelNoise
from tasks.mechanisms import MECHANISMS, OTHERWISE, can_settle_views, mechanism_with
from tasks.tree.views import margin
from tasks.uncertainty.bounds import finest_above_noise
from tasks.uncertainty.mixture import ABOVE_THE_NOISE
from tasks.uncertainty.sources import expected_error

Margin = tuple[int, int]  # an axis, and its level


def planned_margins(plan: Plan) -> list[PlannedMargin]:
    """Return the totals of each axis at each of its levels, with the mean noise of the best sum of measurements for one.

    What an alternative would give is computed for the same cost, without searching for its ρ anew.
    """
    mechanism = plan.mechanism
    if plan.file.spec.unlisted or mechanism.is_unbiased or mechanism.adds_up_leaves or mechanism.of_groups:
        return []  # nothing is settled, or no codebook lists the areas
    with_views, without = _schemes(plan)
    of_views, of_tree = (_errors(plan, scheme) if scheme else {} for scheme in (with_views, without))
    return [
        PlannedMargin(
            axis=axis.name,
            level=axis.level_names[level - 1],
            cells=axis.areas(level),
            expected_error=of_views.get((number, level)),
            without_views=of_tree.get((number, level)),
        )
        for number, axis in enumerate(plan.tree.axes)
        for level in range(1, axis.depth + 1)
    ]


def _schemes(plan: Plan) -> tuple[Scheme | None, Scheme | None]:
    """Return what is measured with views, and what is without: one of the two is the plan's."""
    spec, scheme = plan.file.spec, plan.scheme
    sampler, law = spec.noise.sampler, plan.scheme.law
    if scheme.mechanism.measures_views:
        mechanism = MECHANISMS[scheme.mechanism.name]
        mechanism = MECHANISMS[OTHERWISE] if mechanism.cells == "views" else mechanism
        keys = spec.privacy.model_copy(update={"split": "uniform"})
        return scheme, scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law)
    mechanism = mechanism_with(plan.mechanism, has_views=True, together=can_settle_views(plan.tree))
    if not mechanism.measures_views or spec.privacy.invariants:
        return None, scheme
    release = spec.release.model_copy(update={"views": "margins"})
    try:
        views = views_of(spec.model_copy(update={"release": release}), plan.tree, {})
    except SpecError:
        return None, scheme
    named = [(terms.name, view) for terms, view in views]
    keys = spec.privacy.model_copy(update={"target": None, "epsilon": plan.guarantee.epsilon, "rho": None})
    return scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law, named), scheme


def _errors(plan: Plan, scheme: Scheme) -> Mapping[Margin, float]:
    """Return the mean noise of every total of one axis before counts are settled, records."""
    noises = plan.guarantee.noises if scheme is plan.scheme else noises_like(scheme, plan.guarantee)
    measured = dict(zip(scheme.measured, noises, strict=True))
    if not scheme.mechanism.settles_together:  # a level that repeats another is as good as that one
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

_TIMES = (0.5, 1.0, 2.0)  # the planned ε
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

    `before` is what the people's releases have spent, and `total` a public guess of the number of records, if there is one.
    """
    return [_worth(plan, times, before, cap, total) for times in _TIMES]


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
    return left_after(planned, after[:-1], cap, after), left_after(planned, after, cap)


def left_after(planned: Spending, spent: Sequence[Spending], cap: Cap, every: Sequence[Spending] = ()) -> float:
    """Return the ε of one more release like the planned one that fits the cap when some releases are spent.

    Args:
        spent: of one unit for which the claim holds; `every` includes the planned one, where `spent` does not.
    """
    times = growth(planned.contributions, weakest_promise(of.contributions for of in every or spent))
    standing = standing_of(spent, cap)
    return standing.left_epsilon if times == 1 else zcdp_epsilon(standing.left_rho / times, cap.delta)


def _worth(plan: Plan, times: float, before: Sequence[Spending], cap: Cap, total: int | None) -> Worth:
    epsilon, is_planned = plan.guarantee.epsilon * times, times == 1
    try:
        other = plan if is_planned else _at(plan, epsilon)
    except SpecError:
        return Worth(epsilon, is_planned, math.inf, False, (), None)
    after = composed_epsilon([*before, other.spending], cap.delta, cap)
    finest = None if total is None else finest_above(other, total)
    return Worth(epsilon, is_planned, after, after <= cap.epsilon, _levels(other), finest)


def finest_above(plan: Plan, total: int, least: float = ABOVE_THE_NOISE) -> int | None:
    """Return the finest level whose mean count is at least twice the noise, or another multiple, given a public total; None for none."""
    levels, deviations = plan.levels, plan.deviations
    of_levels, possible = [deviations[of.level] for of in levels], [of.possible_cells for of in levels]
    return finest_above_noise(total, of_levels, possible, levels[-1].threshold, least)


def _at(plan: Plan, epsilon: float) -> Plan:
    """Return the same plan at another ε, with its law and its shares as they are."""
    keys = plan.scheme.keys.model_copy(update={"epsilon": epsilon, "rho": None, "target": None})
    scheme = replace(plan.scheme, keys=keys, rho=None)
    guarantee = guarantee_of(scheme)
    return replace(plan, scheme=scheme, guarantee=guarantee, parts=parts_of(scheme, guarantee))


def _levels(plan: Plan) -> list[LevelWorth]:
    if plan.mechanism.is_unbiased:
        return _unbiased(plan)
    scheme, noises = plan.scheme, plan.scheme.noises(plan.guarantee.noises)
    if plan.views:
        measured = scheme.of_measured(plan.guarantee.noises)
        noises += [scheme.source(view.level, measured)[1] for view in plan.views]
    return [_measured(plan, part, noise) for part, noise in zip(plan.parts, noises, strict=True)]


def _measured(plan: Plan, part: Part, noise: LevelNoise) -> LevelWorth:
    """Return the worth of counts that are measured, or sums; sums that miss what a threshold left out have none that is known."""
    if plan.file.spec.input.groups and part.sigma == 0:
        return _EXACT
    if not noise:
        return LevelWorth(None, None) if part.is_summed else _EXACT
    sizes = plan.mechanism.of_groups
    # a count of a size is a difference of two, and that of all sizes has a noise of its own
    is_level = 0 < part.level <= plan.tree.depth  # a view has the noise of all its draws
    draws = 2 if sizes and is_level and sizes.measured.name != "sizes" else 1
    within = noise.quantile(math.log((1 - CONFIDENCE) / 2), draws)
    return LevelWorth(within, noise.quantile(_log_tail(part), draws))


def _unbiased(plan: Plan) -> list[LevelWorth]:
    """Return the worth of counts that are settled from all measurements: their exact standard deviations say it."""
    released, worth = plan.scheme.released(plan.guarantee.noises, CONFIDENCE), []
    for part in plan.parts:
        view = plan.scheme.view(part.level)
        _, most = released.deviations(view)
        exceeded = math.ceil(most * math.sqrt(-2 * _log_tail(part)))
        worth.append(LevelWorth(released.widest_margin(view), exceeded) if most else _EXACT)
    return worth


def _log_tail(part: Part) -> float:
    """Return the logarithm of the probability that a cell has more noise, so that fewer than one of all cells is expected to."""
    return -math.log(max(part.possible_cells or 1, 20))

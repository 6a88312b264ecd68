"""What the numbers of a planned release would be worth at other ε: half of the planned one, and double of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.planning.composition import composed_epsilon, standing_of
from flows.planning.guarantee import Guarantee, guarantee_of
from flows.planning.plan import Plan, level_terms, view_terms
from storage.errors import SpecError
from storage.ledger.books import Cap
from storage.ledger.spending import Spending, for_one_unit, growth, weakest_promise
from storage.releases.parts import Part
from tasks.accounting.conversions import zcdp_epsilon
from tasks.laws.law import LevelNoise
from tasks.uncertainty.bounds import finest_above_noise

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
    draws = 2 if sizes and terms.level and sizes.of.measured.name != "sizes" else 1
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

"""The noise in the totals of one axis before counts are settled: of what the plan measures, and with views or without them."""

from collections.abc import Mapping

from flows.forecast.values import PlannedMargin
from flows.planning.guarantee import noises_like
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.planning.views import views_of
from flows.spec.keys import DEFAULT_MECHANISM
from storage.errors import SpecError
from tasks.mechanisms import MECHANISMS, can_settle_views, mechanism_with
from tasks.tree.views import margin
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

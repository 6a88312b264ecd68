"""Releases in memory with noise of given scales, which no budget has to be found for."""

from dataclasses import replace
from fractions import Fraction

from flows.trials.in_memory import try_release
from storage.ledger.accounts import reserved_charges
from storage.releases.parts import Part
from storage.releases.register import Release
from storage.releases.terms import SURVIVORS, FileTerms
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.mechanisms import AUTO, measuring
from tasks.tree.views import AddUp
from tests.support.steps import TERMS


def try_scales(table, mechanism, scales, sampler, priority=None, law=GAUSSIAN):
    """Make a release in memory with noise of given scales, which no budget has to be found for.

    Args:
        table: the table.
        mechanism: the mechanism; where it does not say which cells of its tree are measured, the rule of `measuring` does.
        scales: of the noise of each level from 0 to T, records; 0 where a level is exact, None where it repeats the level
            above. Levels above the mechanism's first view have no noise, whatever their scales: they are exact, or sums.
        sampler: draws the noise.
        priority: which of equally good counts are taken; the mechanism's first choice if left out.
        law: of the noise; the discrete Gaussian if left out.
    """
    tree, first, sums = table.tree, mechanism.views(table.tree)[0].number, isinstance(mechanism.finish, AddUp)
    levels = tuple(
        _level_of_scale(tree, level, scale if sums or level >= first else 0.0, law, is_summed=sums and level < first)
        if scale is not None
        else replace(
            _level_of_scale(tree, level, 0.0, law, is_summed=True), is_summed=False, same_as=_own_above(scales, level)
        )
        for level, scale in enumerate(scales)
    )
    mechanism = measuring(mechanism, tree)
    measure = SURVIVORS if mechanism.measure == AUTO else mechanism.measure
    own = {"mechanism": mechanism.name, "priority": priority, "sampler": "", "noisy_counts": False, "measure": measure}
    axes = tuple(axis.name for axis in tree.axes)
    terms = replace(TERMS, axes=axes, steps=tree.steps, files=FileTerms("", {}), **own)
    release = Release("trial", "trial", "trial", "reserved", "", "", "", terms, "", levels)
    return try_release(table, release, reserved_charges(release.id, levels), mechanism, sampler)


def _own_above(scales, level):
    """Return the nearest level above that repeats none."""
    return max(above for above in range(level) if scales[above] is not None)


def _level_of_scale(tree, level, scale, law, *, is_summed):
    """Return the terms of a level at the cost of its scale, for one record per unit."""
    plain = Part(
        level=level,
        axes=tree.level_names(level),
        possible_cells=tree.possible_cells(level),
        is_invariant=not (scale or is_summed),
        rho=Fraction(0),
        sigma=LevelNoise(law, scale).sigma if scale else 0.0,
        l2_sensitivity_squared=0,
        bound=None,
        is_summed=is_summed,
    )
    if is_summed or not scale:
        return plain
    moved = sensitivity_of("substitution", 1, is_root=level == 0)
    cost = law.cost(scale, 0, moved)
    return replace(
        plain, rho=Fraction(cost.rho), l2_sensitivity_squared=moved.l2_squared if law.costs_rho else 0,
        mechanism=law.name, epsilon=cost.epsilon, scale=LevelNoise(law, scale).stated_scale,
    )  # fmt: skip

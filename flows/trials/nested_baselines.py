"""Baselines that settle nested groupings: flat Laplace noise, and Hay's hierarchical mechanism.

They draw discrete Laplace noise for the leaves, and for nested groupings of them where there are any. Of what they make there are
the leaves and their sums, without intervals.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from flows.planning.guarantee import guarantee_of
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme
from flows.trials.contestants import BaselineEntry, TriedLevels, baseline_scheme, sums_of
from flows.trials.in_memory import PublicTable
from storage.errors import SpecError
from tasks.accounting.allocation import geometric
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.mechanisms import MOST_SETTLED, Mechanism
from tasks.settle.nested import nearest_counts, settle_nested
from tasks.settle.overlapping import Grouping
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.views import Partition, View, coarse_to_fine, every_level, level_view, nested_views, sums_of_leaves


@dataclass(frozen=True, slots=True, eq=False)
class NestedEntry(BaselineEntry):
    """Nested groupings at one ε, each with noise of its own.

    Attributes:
        is_pruned: whether groups whose estimate is not above 0 are 0, with everything below them.
    """

    is_pruned: bool = False

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T: of the measurement that says most of a level, summed; 0 where the level is exact."""
        return [noise.sigma for noise in self.scheme.noises(self.guarantee.noises)]

    @property
    def variances(self) -> Mapping[str, float]:
        """None: no count is below 0, so the variances depend on the counts."""
        return {}

    def try_on(self, table: PublicTable) -> TriedLevels:
        """Draw the noise of everything that is measured, and make whole counts of the leaves."""
        tree, finest = table.tree, Partition(table.tree, level_view(table.tree, table.tree.depth))
        true = sums_of_leaves(finest, Frontier(tree.depth, table.levels[-1].areas, table.levels[-1].true_counts))
        noises = self.scheme.of_measured(self.guarantee.noises)
        leaves = noises.pop(tree.depth, NO_NOISE)
        groupings = [
            self._measure(Partition(tree, view), finest, true, noises[view.number])
            for view in coarse_to_fine([self.scheme.view(number) for number in noises])
        ]
        values = settle_nested(
            self.draw(true, leaves).astype(np.float64),
            _weight(leaves),
            groupings,
            is_pruned=self.is_pruned,
        )
        return TriedLevels(sums_of(finest, nearest_counts(values)))

    def _measure(self, partition: Partition, finest: Partition, true: IntArray, noise: LevelNoise) -> Grouping:
        cell = partition.places(finest.cells()).astype(np.int32)
        counts = np.zeros(len(partition), dtype=np.int64)
        np.add.at(counts, cell, true)
        return Grouping(cell, self.draw(counts, noise).astype(np.float64), _weight(noise))


def nested_entry(
    plan: Plan,
    mechanism: Mechanism,
    name: str,
    epsilon: float,
    *,
    ratio: Fraction = Fraction(1),
    is_pruned: bool = False,
) -> NestedEntry:
    """Return a baseline at an ε.

    Args:
        plan: of the spec.
        mechanism: with cells `views` it measures nested groupings, otherwise the leaves alone.
        name: of the baseline.
        epsilon: of every trial.
        ratio: of the share of ε of each grouping to that of the one before.
        is_pruned: as in `NestedEntry`.
    Raises:
        SpecError: it cannot be tried on the spec's universe, or not at this ε.
    """
    views = _groupings(plan, mechanism)
    named = [(f"grouping {at}", view) for at, view in enumerate(views)]
    scheme, sampler = baseline_scheme(plan, mechanism, epsilon, named)
    scheme = _shared(scheme, ratio)
    return NestedEntry(name, epsilon, scheme, guarantee_of(scheme), sampler, is_pruned)


def _groupings(plan: Plan, mechanism: Mechanism) -> list[View]:
    """Return what a baseline measures beside the leaves: level 0 unless it is exact, and the spec's views or its levels, nested."""
    if mechanism.cells != "views":
        return []
    tree = plan.tree
    named = [view for _, view in plan.scheme.named_views]
    try:
        nested = nested_views(tree, named or every_level(tree)[1:-1], MOST_SETTLED)
    except ValueError as fault:
        raise SpecError(f"release.views: for baseline {mechanism.name}, {fault}", field="release.views") from None
    return nested if plan.file.spec.privacy.total_is_public else [level_view(tree, 0), *nested]


def _shared(scheme: Scheme, ratio: Fraction) -> Scheme:
    """Return what is measured with shares of ε that grow by a ratio from one grouping to the next; they add up to 1 exactly."""
    order = [view.number for view in coarse_to_fine([scheme.view(number) for number in scheme.measured])]
    share = dict(zip(order, geometric(ratio, len(order)), strict=True))
    shares = tuple(share[number] for number in scheme.measured)
    return replace(scheme, allocation=replace(scheme.allocation, shares=shares))


def _weight(noise: LevelNoise) -> float:
    return 1 / noise.variance if noise else math.inf

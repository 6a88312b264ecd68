"""Baselines of comparisons: published mechanisms that others are measured against. No release is made by one.

A baseline draws discrete Laplace noise for the leaves, and for nested groupings of them where it has any. Of what it makes there are
the leaves and their sums, without intervals.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from flows.mechanisms import MECHANISMS, MOST_SETTLED, Mechanism
from flows.planning.compatibility import check_listed
from flows.planning.guarantee import Guarantee, guarantee_of
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme, check_leaves
from flows.planning.shares import scheme_of
from flows.spec.sections.privacy import PrivacyKeys
from flows.trials.in_memory import SeenTable
from storage.errors import SpecError
from storage.releases.terms import IntervalTerms
from tasks.accounting.allocation import geometric
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.settle.nested import nearest_counts, settle_nested
from tasks.settle.overlapping import Grouping
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.leaves import root_of, without_zeros
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View, coarse_to_fine, every_level, level_view, nested_views, sums_of_leaves
from tasks.validate.coverage import Bounds

_ITS_OWN_SHARES = "its groupings have shares of their own"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline.

    Attributes:
        mechanism: what it measures, how large its universe may be, and what of the spec's privacy it does not take: a mechanism's
            choices, under the name of the baseline. With cells `views` it measures nested groupings, otherwise the leaves alone.
        ratio: of the share of ε of each grouping to that of the one before.
        is_pruned: whether groups whose estimate is not above 0 are 0, with everything below them.
    """

    mechanism: Mechanism
    ratio: Fraction = Fraction(1)
    is_pruned: bool = False


_LAPLACE = replace(
    MECHANISMS["gaussian"], name="laplace", laws={"laplace": LAPLACE}, bounds=None, most_leaves=MOST_SETTLED
)
_HAY = replace(
    MECHANISMS["cbdp"],
    name="hay",
    laws={"laplace": LAPLACE},
    refused={**MECHANISMS["cbdp"].refused, "split": _ITS_OWN_SHARES},
)
_GROWING = Fraction(2 ** (1 / 3))

# laplace: Dwork, McSherry, Nissim and Smith (2006); hay: Hay, Rastogi, Miklau and Suciu (2010); its geometric shares: Cormode,
# Procopiuc, Srivastava, Shen and Yu (2012). docs/mechanisms.md describes them.
BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "laplace": Baseline(_LAPLACE),
        "hay": Baseline(_HAY),
        "hay:pruned": Baseline(_HAY, is_pruned=True),
        "hay:geometric": Baseline(_HAY, _GROWING),
        "hay:pruned_geometric": Baseline(_HAY, _GROWING, is_pruned=True),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class TriedLeaves:
    """What a trial of a baseline leaves.

    Attributes:
        released: the released nodes of levels 0 to T, all sums of the leaves.
    """

    released: list[Frontier]

    @property
    def published(self) -> None:
        """Nothing: of a baseline no release says anything."""
        return


@dataclass(frozen=True, slots=True, eq=False)
class BaselineEntry:
    """A baseline at one ε.

    Attributes:
        name: as in `BASELINES`.
        epsilon: of every one of its trials.
        baseline: the baseline.
        scheme: what it measures.
        guarantee: the noise of it.
        sampler: of the noise, by its name in the spec.
    """

    name: str
    epsilon: float
    baseline: Baseline
    scheme: Scheme
    guarantee: Guarantee
    sampler: str

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T: of the measurement that says most of a level, summed; 0 where the level is exact."""
        return [noise.sigma for noise in self.scheme.noises(self.guarantee.noises)]

    def try_on(self, table: SeenTable) -> TriedLeaves:
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
            self._draw(true, leaves).astype(np.float64),
            _weight(leaves),
            groupings,
            is_pruned=self.baseline.is_pruned,
        )
        return TriedLeaves(_sums(finest, nearest_counts(values)))

    def bounds(self, tree: Tree, trial: TriedLeaves, terms: IntervalTerms) -> list[Bounds | None]:  # noqa: ARG002
        """Return None for each of levels 0 to T: a baseline states no intervals."""
        return [None] * (tree.depth + 1)

    def _measure(self, partition: Partition, finest: Partition, true: IntArray, noise: LevelNoise) -> Grouping:
        cell = partition.places(finest.cells()).astype(np.int32)
        counts = np.zeros(len(partition), dtype=np.int64)
        np.add.at(counts, cell, true)
        return Grouping(cell, self._draw(counts, noise).astype(np.float64), _weight(noise))

    def _draw(self, true: IntArray, noise: LevelNoise) -> IntArray:
        if not noise:
            return true
        noisy: IntArray = self.scheme.law.samplers[self.sampler].draw(true, noise.scale)
        return noisy


def baseline_entry(plan: Plan, name: str, epsilon: float) -> BaselineEntry:
    """Return a baseline at an ε; neighbours and records per unit are the spec's.

    Raises:
        SpecError: it cannot be tried on the spec's universe, or not at this ε.
    """
    baseline, spec = BASELINES[name], plan.file.spec
    mechanism = baseline.mechanism
    check_listed(spec, mechanism)
    check_leaves(spec, plan.tree, mechanism)
    left_out = {*mechanism.refused, *LAPLACE.refused, "target"}
    fields: dict[str, Any] = {
        key: PrivacyKeys.model_fields[key].get_default(call_default_factory=True) for key in left_out
    }
    keys = spec.privacy.model_copy(update=fields | {"epsilon": epsilon})
    sampler = spec.noise.sampler
    views = _groupings(plan, baseline, total_is_public=keys.total_is_public)
    named = [(f"grouping {at}", view) for at, view in enumerate(views)]
    scheme = scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, LAPLACE, named)
    scheme = _shared(scheme, baseline.ratio)
    return BaselineEntry(name, epsilon, baseline, scheme, guarantee_of(scheme), sampler)


def _groupings(plan: Plan, baseline: Baseline, *, total_is_public: bool) -> list[View]:
    """Return what a baseline measures beside the leaves: level 0 unless it is exact, and the spec's views or its levels, nested.

    Raises:
        SpecError: views that are joined have too many cells.
    """
    if baseline.mechanism.cells != "views":
        return []
    tree = plan.tree
    named = [view for _, view in plan.scheme.named_views]
    try:
        nested = nested_views(tree, named or every_level(tree)[1:-1], MOST_SETTLED)
    except ValueError as fault:
        raise SpecError(
            f"release.views: for baseline {baseline.mechanism.name}, {fault}", field="release.views"
        ) from None
    return nested if total_is_public else [level_view(tree, 0), *nested]


def _shared(scheme: Scheme, ratio: Fraction) -> Scheme:
    """Return what is measured with shares of ε that grow by a ratio from one grouping to the next; they add up to 1 exactly."""
    order = [view.number for view in coarse_to_fine([scheme.view(number) for number in scheme.measured])]
    share = dict(zip(order, geometric(ratio, len(order)), strict=True))
    shares = tuple(share[number] for number in scheme.measured)
    return replace(scheme, allocation=replace(scheme.allocation, shares=shares))


def _weight(noise: LevelNoise) -> float:
    return 1 / noise.variance if noise else math.inf


def _sums(finest: Partition, counts: IntArray) -> list[Frontier]:
    """Return the nodes of levels 0 to T with a count, from the counts of all leaves."""
    tree, rows = finest.tree, np.flatnonzero(counts)
    leaves = Frontier(tree.depth, finest.cells(rows).areas, counts[rows])
    levels = [root_of(tree, int(counts.sum()))]
    for level in range(1, tree.depth):
        partition = Partition(tree, level_view(tree, level))
        levels.append(without_zeros(Frontier(level, partition.cells().areas, sums_of_leaves(partition, leaves))))
    return [*levels, leaves]

"""Baselines of comparisons: published mechanisms for nested groupings and for ranges that others are measured against. No release is made by one.

They draw discrete Laplace noise for the leaves, and for nested groupings of them where there are any. Of what they make there are
the leaves and their sums, without intervals.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np

from flows.planning.compatibility import check_listed
from flows.planning.guarantee import guarantee_of
from flows.planning.plan import Plan
from flows.planning.scheme import check_leaves
from flows.trials.contestants import BaselineEntry, Contestant, TriedLevels, baseline_scheme, sums_of
from flows.trials.in_memory import PublicTable
from storage.errors import SpecError
from tasks.accounting.allocation import geometric
from tasks.accounting.sensitivity import SUBSTITUTION
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.mechanisms import MECHANISMS, MOST_SETTLED, Mechanism
from tasks.settle.overlapping import Grouping, nearest_counts, settle_nested
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import Frontier, without_zeros
from tasks.tree.views import Partition, View, coarse_to_fine, every_level, level_view, nested_views, sums_of_leaves
from tasks.unbiased.baselines import (
    MOST_LEAVES,
    best_precisions,
    covariance,
    draw_noise,
    largest_change,
    range_variances_in_pieces,
    variances_by,
    variances_in_pieces,
)
from tasks.unbiased.least_squares import round_prefix_sums
from tasks.unbiased.workloads import range_variances

USUAL = ("inftda", "inftda_reconciled")  # by a comparison that names no mechanism: the paper's and the default


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
        noisy = self.draw(true, leaves).astype(np.float64)
        values = settle_nested(noisy, _weight(leaves), groupings, is_pruned=self.is_pruned)
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
        mechanism: with cells `views` it measures nested groupings, otherwise the leaves alone.
        ratio: of the share of ε of each grouping to that of the one before.
    Raises:
        SpecError: it cannot be tried on the spec's universe, or not at this ε.
    """
    named = [(f"grouping {at}", view) for at, view in enumerate(_groupings(plan, mechanism))]
    scheme, sampler = baseline_scheme(plan, mechanism, epsilon, named)
    order = [view.number for view in coarse_to_fine([scheme.view(number) for number in scheme.measured])]
    share = dict(zip(order, geometric(ratio, len(order)), strict=True))  # they add up to 1 exactly
    allocation = replace(scheme.allocation, shares=tuple(share[number] for number in scheme.measured))
    scheme = replace(scheme, allocation=allocation)
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


def _weight(noise: LevelNoise) -> float:
    return 1 / noise.variance if noise else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class NoisyNodesEntry(BaselineEntry):
    """The noisy counts of all nodes at one ε, as they are drawn: they do not add up."""

    @property
    def adds_up(self) -> bool:
        """Whether levels are sums of the leaves: ranges are sums of the fewest nodes."""
        return False

    @property
    def noises(self) -> list[LevelNoise]:
        """The noise of levels 0 to T; a level that repeats the one above has its noise."""
        measured, noises = self.scheme.of_measured(self.guarantee.noises), list[LevelNoise]()
        for level in range(self.scheme.tree.depth + 1):
            noises.append(measured[level] if level in measured else noises[-1])
        return noises

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T, 0 where a level is exact."""
        return [noise.sigma for noise in self.noises]

    @property
    def variances(self) -> Mapping[str, float]:
        """By workload, the mean variance of its queries as sums of the fewest nodes; for one axis."""
        axes = self.scheme.tree.axes
        return variances_in_pieces(axes[0], [noise.variance for noise in self.noises]) if len(axes) == 1 else {}

    @property
    def range_variances(self) -> FloatArray | None:
        """Those of sums of the fewest nodes."""
        [axis] = self.scheme.tree.axes
        return range_variances_in_pieces(axis, [noise.variance for noise in self.noises])

    def try_on(self, table: PublicTable) -> TriedLevels:
        """Draw the noise of all nodes."""
        tree, finest = table.tree, table.levels[-1]
        leaves = Frontier(tree.depth, finest.areas, finest.true_counts)
        measured, released = self.scheme.of_measured(self.guarantee.noises), list[Frontier]()
        for level in range(tree.depth + 1):
            cells = Partition(tree, level_view(tree, level))
            if level in measured:
                counts = self.draw(sums_of_leaves(cells, leaves), measured[level])
            # otherwise each node is the only child of one with the same number, and has its count
            released.append(without_zeros(Frontier(level, cells.cells().areas, counts)))
        return TriedLevels(released)


def noisy_nodes_entry(plan: Plan, mechanism: Mechanism, name: str, epsilon: float) -> NoisyNodesEntry:
    """Return the noisy counts of all nodes at an ε.

    Raises:
        SpecError: they cannot be drawn at this ε.
    """
    scheme, sampler = baseline_scheme(plan, mechanism, epsilon)
    return NoisyNodesEntry(name, epsilon, scheme, guarantee_of(scheme), sampler)


@dataclass(frozen=True, slots=True, eq=False)
class SineEntry(BaselineEntry):
    """Real-valued noise on sine coefficients at one ε, and whole counts by rounded prefix sums; the tree has one axis.

    Attributes:
        precisions: of the coefficients, float64, shape (leaves,), as in `best_precisions`.
        variance: of the noise at a precision of 1, records squared.
    """

    precisions: FloatArray
    variance: float

    @property
    def sigmas(self) -> list[float]:
        """Of levels 0 to T the root of the mean variance of their nodes."""
        [axis] = self.scheme.tree.axes
        prefixes = np.pad(self.variance * covariance(self.precisions).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        firsts = (axis.first_descendants(level, axis.depth) for level in range(axis.depth + 1))
        own = np.diag(prefixes)
        return [float(np.sqrt((own[of[1:]] + own[of[:-1]] - 2 * prefixes[of[1:], of[:-1]]).mean())) for of in firsts]

    @property
    def variances(self) -> Mapping[str, float]:
        """By workload, the mean variance of its queries."""
        return variances_by(self.variance * covariance(self.precisions), self.scheme.tree.axes[0])

    @property
    def range_variances(self) -> FloatArray | None:
        """Those of the noise of the leaves."""
        return range_variances(self.variance * covariance(self.precisions))

    def try_on(self, table: PublicTable) -> TriedLevels:
        """Draw the noise of all coefficients, and make whole counts of the leaves."""
        finest = Partition(table.tree, level_view(table.tree, table.tree.depth))
        leaves = Frontier(table.tree.depth, table.levels[-1].areas, table.levels[-1].true_counts)
        noise = np.sqrt(self.variance) * draw_noise(self.precisions, np.random.default_rng())
        [counts] = round_prefix_sums([sums_of_leaves(finest, leaves) + noise])
        return TriedLevels(sums_of(finest, counts))


def sine_entry(plan: Plan, mechanism: Mechanism, name: str, epsilon: float) -> SineEntry:
    """Return noise on sine coefficients at an ε, that of noise on the leaves with the same ρ.

    Raises:
        SpecError: the release has not one ordered axis alone, or the noise cannot be drawn at this ε.
    """
    if len(plan.tree.axes) != 1 or not plan.tree.ordered:
        raise SpecError(f"hierarchy must have one axis, an ordered one, for baseline {name}.", field="hierarchy")
    scheme, sampler = baseline_scheme(plan, mechanism, epsilon)
    guarantee = guarantee_of(scheme)
    precisions = best_precisions(plan.tree.possible_cells(plan.tree.depth))
    is_replaced = scheme.keys.neighbours == SUBSTITUTION
    # there a record moves two leaves, and costs 2 with noise on the leaves alone
    change = max(largest_change(precisions), 1.0) / 2 if is_replaced else 1.0
    variance = guarantee.noises[0].scale ** 2 * change
    return SineEntry(name, epsilon, scheme, guarantee, sampler, precisions, variance)


_ITS_OWN_SHARES = "its groupings have shares of their own"
_BY_NUMBER = "its noise follows from the number of records alone"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline.

    Attributes:
        mechanism: what it measures, how large its universe may be, and what of the spec's privacy it does not take: a mechanism's
            choices, under the name of the baseline.
        enter: from the plan of a spec, the mechanism, a name and an ε to what is tried.
    """

    mechanism: Mechanism
    enter: Callable[[Plan, Mechanism, str, float], Contestant]


_LAPLACE = replace(
    MECHANISMS["gaussian"], name="laplace", laws={"laplace": LAPLACE}, bounds=None, most_leaves=MOST_SETTLED
)
_HAY = replace(
    MECHANISMS["cbdp"],
    name="hay",
    laws={"laplace": LAPLACE},
    refused={**MECHANISMS["cbdp"].refused, "split": _ITS_OWN_SHARES},
)
_BINARY_TREE = replace(MECHANISMS["hierarchical"], name="binary_tree", most_leaves=MOST_SETTLED)
_EIGEN_DESIGN = replace(
    MECHANISMS["gaussian"],
    name="eigen_design",
    laws={"gaussian": GAUSSIAN},
    bounds=None,
    most_leaves=MOST_LEAVES,
    refused={**MECHANISMS["gaussian"].refused, "distinct": _BY_NUMBER},
)
_GROWING = Fraction(2 ** (1 / 3))

# laplace: Dwork, McSherry, Nissim and Smith (2006); hay: Hay, Rastogi, Miklau and Suciu (2010); its geometric shares: Cormode,
# Procopiuc, Srivastava, Shen and Yu (2012); binary_tree: Chan, Shi and Song (2011); eigen_design: Li and Miklau (2012).
# docs/mechanisms.md describes them.
BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "laplace": Baseline(_LAPLACE, nested_entry),
        "hay": Baseline(_HAY, nested_entry),
        "hay:pruned": Baseline(_HAY, partial(nested_entry, is_pruned=True)),
        "hay:geometric": Baseline(_HAY, partial(nested_entry, ratio=_GROWING)),
        "hay:pruned_geometric": Baseline(_HAY, partial(nested_entry, ratio=_GROWING, is_pruned=True)),
        "binary_tree": Baseline(_BINARY_TREE, noisy_nodes_entry),
        "eigen_design": Baseline(_EIGEN_DESIGN, sine_entry),
    }
)


def baseline_entry(plan: Plan, name: str, epsilon: float) -> Contestant:
    """Return a baseline at an ε; neighbours and records per unit are the spec's."""
    baseline, spec = BASELINES[name], plan.file.spec
    check_listed(spec, baseline.mechanism)
    check_leaves(spec, plan.tree, baseline.mechanism)
    return baseline.enter(plan, baseline.mechanism, name, epsilon)

"""Baselines for ranges: all nodes of a tree with their own noise and no least squares, and noise on sine coefficients."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flows.planning.guarantee import guarantee_of
from flows.planning.plan import Plan
from flows.trials.contestants import BaselineEntry, TriedLevels, baseline_scheme, sums_of
from flows.trials.in_memory import PublicTable
from storage.errors import SpecError
from tasks.accounting.sensitivity import SUBSTITUTION
from tasks.laws.law import LevelNoise
from tasks.mechanisms import Mechanism
from tasks.tree.axis import FloatArray
from tasks.tree.frontier import Frontier
from tasks.tree.leaves import without_zeros
from tasks.tree.views import Partition, level_view, sums_of_leaves
from tasks.unbiased.eigen_design import best_precisions, covariance, draw_noise, largest_change, variances_by
from tasks.unbiased.pieces import variances_in_pieces
from tasks.unbiased.prefix_sums import round_prefix_sums


@dataclass(frozen=True, slots=True, eq=False)
class NoisyNodesEntry(BaselineEntry):
    """The noisy counts of all nodes at one ε, as they are drawn: they do not add up."""

    @property
    def noises(self) -> list[LevelNoise]:
        """The noise of levels 0 to T; a level that repeats the one above has its noise."""
        measured, found = self.scheme.of_measured(self.guarantee.noises), list[LevelNoise]()
        for level in range(self.scheme.tree.depth + 1):
            found.append(measured[level] if level in measured else found[-1])
        return found

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T, 0 where a level is exact."""
        return [noise.sigma for noise in self.noises]

    @property
    def variances(self) -> Mapping[str, float]:
        """By workload, the mean variance of its queries as sums of the fewest nodes; for one axis."""
        axes = self.scheme.tree.axes
        return variances_in_pieces(axes[0], [noise.variance for noise in self.noises]) if len(axes) == 1 else {}

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

"""What can be tried in a comparison at one ε, and how a baseline is measured at it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flows.planning.guarantee import Guarantee
from flows.planning.plan import Plan
from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.planning.splits import least_mean_variance
from flows.specification.sections.privacy import PrivacyKeys
from flows.trials.in_memory import PublicTable, Trial
from flows.trials.sizes import RelaxedTrial
from storage.releases.terms import Intervals
from tasks.laws.law import Law, LevelNoise
from tasks.mechanisms import Mechanism
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import Frontier, root_of, without_zeros
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View, level_view, sums_of_leaves
from tasks.validate.coverage import Bounds


@dataclass(frozen=True, slots=True, eq=False)
class TriedLevels:
    """What a trial of a baseline leaves.

    Attributes:
        published: nothing: of a baseline no release says anything.
    """

    released: list[Frontier]
    published: None = None


Tried = Trial | RelaxedTrial | TriedLevels


@dataclass(frozen=True, slots=True, eq=False)
class Contestant(ABC):
    """What can be tried at one ε.

    Attributes:
        name: as it was asked for.
        epsilon: of each of its trials.
    """

    name: str
    epsilon: float

    @property
    def adds_up(self) -> bool:
        """Whether levels are sums of the leaves, so that these answer every question."""
        return True

    @property
    def makes_releases(self) -> bool:
        """Whether a release can be made by it."""
        return False

    @property
    @abstractmethod
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T, 0 where a level is exact."""

    @property
    def variances(self) -> Mapping[str, float]:
        """By workload, the mean variance of its queries before rounding, and by `WORST` that of the worst node, records squared.

        Empty where the counts, and not the noise alone, decide them.
        """
        return {}

    @property
    def range_variances(self) -> FloatArray | None:
        """The variances of all ranges of a single axis, as `tasks.unbiased.workloads.range_variances`; None where the counts have a part in them."""
        return None

    def least_mean_variance(self, workload: str) -> float | None:  # noqa: ARG002
        """Return the bound on the mean variance at the ρ of its trials, as `flows.planning.splits.least_mean_variance`."""
        return None

    @abstractmethod
    def try_on(self, table: PublicTable) -> Tried:
        """Try it once."""

    def bounds(self, tree: Tree, trial: Any, terms: Intervals) -> list[Bounds | None]:  # noqa: ARG002
        """Return the intervals of questions about levels 0 to T after one of its own trials; None where it states none."""
        return [None] * (tree.depth + 1)


@dataclass(frozen=True, slots=True, eq=False)
class BaselineEntry(Contestant):
    """A baseline at one ε.

    Attributes:
        sampler: of the noise, by its name in the spec.
    """

    scheme: Scheme
    guarantee: Guarantee
    sampler: str

    def least_mean_variance(self, workload: str) -> float | None:
        """Return the bound at the ρ of the baseline."""
        return least_mean_variance(self.scheme, self.guarantee.rho, workload)

    def draw(self, true: IntArray, noise: LevelNoise) -> IntArray:
        """Return counts with noise, int64, of the same shape; as they are where the noise is none."""
        if not noise:
            return true
        noisy: IntArray = self.scheme.law.samplers[self.sampler].draw(true, noise.scale)
        return noisy


def baseline_scheme(
    plan: Plan, mechanism: Mechanism, epsilon: float, views: Sequence[tuple[str, View]] = ()
) -> tuple[Scheme, str]:
    """Return what a baseline measures at an ε, and the sampler of its noise; neighbours and records per unit are the spec's.

    Args:
        mechanism: the choices of the baseline. Keys of the spec's privacy that it refuses are as if they were left out.
        epsilon: in place of the spec's budget.
        views: what is measured beside the leaves or levels of the mechanism.
    Raises:
        SpecError: there is nothing to measure.
    """
    spec, law = plan.file.spec, mechanism.default_law
    left_out = privacy_defaults({*mechanism.refused, *law.refused, "target"})
    keys = spec.privacy.model_copy(update=left_out | {"epsilon": epsilon})
    sampler = sampler_of(plan, law)
    return scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law, views), sampler


def privacy_defaults(keys: Iterable[str]) -> dict[str, Any]:
    """Return keys of the spec's privacy with the values that they have where they are left out."""
    return {key: PrivacyKeys.model_fields[key].get_default(call_default_factory=True) for key in keys}


def sampler_of(plan: Plan, law: Law) -> str:
    """Return the spec's sampler where the law has it, otherwise its first."""
    sampler: str = plan.file.spec.noise.sampler
    return sampler if sampler in law.samplers else next(iter(law.samplers))


def sums_of(finest: Partition, counts: IntArray) -> list[Frontier]:
    """Return the nodes of levels 0 to T with a count, from the counts of all leaves."""
    tree, rows = finest.tree, np.flatnonzero(counts)
    leaves = Frontier(tree.depth, finest.cells(rows).areas, counts[rows])
    levels = [root_of(tree, int(counts.sum()))]
    for level in range(1, tree.depth):
        partition = Partition(tree, level_view(tree, level))
        levels.append(without_zeros(Frontier(level, partition.cells().areas, sums_of_leaves(partition, leaves))))
    return [*levels, leaves]

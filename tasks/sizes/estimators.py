"""The mechanisms of group sizes: what each one measures, and how it makes a table of its noisy counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.sizes.chain import from_chain
from tasks.sizes.cumulative import from_cumulative, from_cumulative_exact, from_cumulative_relaxed
from tasks.sizes.direct import from_sizes, from_sizes_exact, from_sizes_relaxed, from_sizes_top_down
from tasks.sizes.statistics import CHAIN, SIZES, TAILS, Statistic
from tasks.sizes.tables import NoisyLevels
from tasks.sizes.tails import from_tails
from tasks.tree.axis import IntArray

Estimator = Callable[[NoisyLevels], list[IntArray]]  # to the group sizes of each level, as `from_tails`


@dataclass(frozen=True, slots=True)
class SizeMechanism:
    """A mechanism of group sizes.

    Attributes:
        measured: what is measured at every level.
        estimate: makes group sizes of it.
        is_consistent: whether they add up over regions, whatever the noise. A release needs that; comparisons do without.
    """

    measured: Statistic
    estimate: Estimator
    is_consistent: bool = True


MECHANISMS: Mapping[str, SizeMechanism] = MappingProxyType(
    {
        "group_sizes": SizeMechanism(TAILS, from_tails),
        "sizes_direct": SizeMechanism(SIZES, from_sizes),
        "sizes_direct_relaxed": SizeMechanism(SIZES, from_sizes_relaxed, is_consistent=False),
        "sizes_direct_exact": SizeMechanism(SIZES, from_sizes_exact),
        "sizes_cumulative": SizeMechanism(TAILS, from_cumulative),
        "sizes_cumulative_relaxed": SizeMechanism(TAILS, from_cumulative_relaxed, is_consistent=False),
        "sizes_cumulative_exact": SizeMechanism(TAILS, from_cumulative_exact),
        "sizes_chain": SizeMechanism(CHAIN, from_chain),
        "sizes_top_down": SizeMechanism(SIZES, from_sizes_top_down),
    }
)

"""The mechanisms of group sizes: what each one measures, and how it makes a table of its noisy counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tasks.sizes.statistics import TAILS, Statistic
from tasks.sizes.tails import from_tails
from tasks.tree.axis import IntArray

Estimator = Callable[
    [Sequence[IntArray], Sequence[float], Sequence[IntArray], IntArray | None], list[IntArray]
]  # from noisy counts of each level, the variances of their noise, first children and public groups, as in `from_tails`


@dataclass(frozen=True, slots=True)
class SizeMechanism:
    """A mechanism of group sizes.

    Attributes:
        statistic: what is measured at every level.
        estimate: makes group sizes of it.
        is_consistent: whether they add up over regions, whatever the noise. A release needs that; comparisons do without.
    """

    statistic: Statistic
    estimate: Estimator
    is_consistent: bool = True


MECHANISMS = MappingProxyType({"group_sizes": SizeMechanism(TAILS, from_tails)})

"""What mechanisms measure of group sizes, and how far one privacy unit moves it.

A person who leaves a group of size σ makes it one of size σ − 1, or of size 0, which has no column.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.accounting.sensitivity import SUBSTITUTION, Sensitivity, sensitivity_of
from tasks.sizes.chain import chain_of
from tasks.sizes.tables import tails_of
from tasks.tree.axis import IntArray


@dataclass(frozen=True, slots=True)
class Statistic:
    """Whole numbers that are measured of every region and size of a level.

    Attributes:
        name: what it is called.
        of: from true group sizes of a level, shape (regions, N), int64, to the statistic, of the same shape.
        sensitivity: how far one unit moves a level, from the relation of neighbours, the most records of a unit, and the number of
            regions of the level.
    """

    name: str
    of: Callable[[IntArray], IntArray]
    sensitivity: Callable[[str, int, int], Sensitivity]


def _moved_sizes(neighbours: str, max_records: int, _regions: int) -> Sensitivity:
    r"""Return how far one unit moves the sizes n.

    A record that leaves moves n by :math:`e_{\sigma - 1} - e_\sigma`, one that enters by :math:`e_{\tau + 1} - e_\tau`. Two vectors of
    one kind have an inner product of at most 2, two of different kinds of at most 1, so that with m of each kind

    .. math:: \Delta_2^2 \le 2 m^2 + 2 m^2 + 2 m^2
    """
    m = max_records
    if neighbours == SUBSTITUTION:
        return Sensitivity(cells=4 * m, l1=4 * m, l2_squared=6 * m * m, largest=2 * m)
    return Sensitivity(cells=2 * m, l1=2 * m, l2_squared=2 * m * m, largest=m)


def _moved_chain(neighbours: str, max_records: int, regions: int) -> Sensitivity:
    """Return how far one unit moves the chain: a record that leaves lowers as many running sums by 1 as there are regions."""
    one = sensitivity_of(neighbours, max_records)
    return Sensitivity(regions * one.cells, regions * one.l1, regions * one.l2_squared, one.largest)


SIZES = Statistic("sizes", lambda sizes: sizes, _moved_sizes)
# a record that leaves lowers one tail by 1, that of the size its group had
# the cumulative counts too: those of at most s are the groups without t of s + 1
TAILS = Statistic("tails", tails_of, lambda neighbours, max_records, _: sensitivity_of(neighbours, max_records))
CHAIN = Statistic("chain", chain_of, _moved_chain)

STATISTICS: Mapping[str, Statistic] = MappingProxyType({of.name: of for of in (TAILS, SIZES, CHAIN)})  # by their names

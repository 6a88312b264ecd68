"""Families whose total is to be shared out: their estimates, given that total."""

from dataclasses import dataclass

import numpy as np

from tasks.optimize.reconcile import NodeEstimates
from tasks.tree.axis import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Some families that have a total to share out and two cells at least: siblings, given what they add up to.

    Attributes:
        parent: int64, shape (families,): which of the given parents each family has.
        cell: int64, shape (cells,): which of the given cells each is, family by family.
        first: int64, shape (families + 1,): family f has the cells first[f]:first[f + 1].
        totals: int64, shape (families,), records, > 0.
        values: z, float64, shape (cells,), records: the estimates, moved so that they add up to the totals.
        variances: u, float64, shape (cells,), records squared: of these, given the totals.
    """

    parent: IntArray
    cell: IntArray
    first: IntArray
    totals: IntArray
    values: FloatArray
    variances: FloatArray

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def sizes(self) -> IntArray:
        """How many cells each family has, shape (families,)."""
        return np.diff(self.first)

    @property
    def family(self) -> IntArray:
        """Which family each cell is of, shape (cells,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __getitem__(self, some: slice) -> "Families":
        first = self.first[some.start : some.stop + 1]
        cells = slice(first[0], first[-1])
        return Families(
            self.parent[some],
            self.cell[cells],
            first - first[0],
            self.totals[some],
            self.values[cells],
            self.variances[cells],
        )


def families_with(estimates: NodeEstimates, first: IntArray, totals: IntArray) -> Families:
    r"""Return the families that have a total to share out and two cells at least, with their estimates given that total.

    .. math:: z_i = e_i + \frac{v_i}{V} \Bigl(c - \sum_{j} e_j\Bigr), \qquad u_i = v_i \Bigl(1 - \frac{v_i}{V}\Bigr),
        \qquad V = \sum_{j} v_j

    These are the mean and the variance of normal estimates, given what the true counts add up to.

    Args:
        estimates: e and v of some cells, shape (cells,), v > 0.
        first: shape (parents + 1,), int64; parent p owns the cells first[p]:first[p + 1].
        totals: c, of the parents, int64, shape (parents,), records, >= 0.
    Raises:
        ValueError: an estimate has no variance: what is exact is not shared out by a prior.
    """
    if not (estimates.variances > 0).all():
        raise ValueError("variances must be > 0.")
    sizes = np.diff(first)
    parent = np.flatnonzero((totals > 0) & (sizes > 1))
    own = sizes[parent]
    ends = np.cumsum(own)
    cell = np.arange(ends[-1] if len(own) else 0) + np.repeat(first[parent] - ends + own, own)
    of = NodeEstimates(estimates.values[cell], estimates.variances[cell])
    total_variance = np.repeat(_sums(of.variances, ends), own)
    lacking = np.repeat(totals[parent] - _sums(of.values, ends), own)
    part = of.variances / total_variance
    return Families(
        parent,
        cell,
        np.concatenate(([0], ends)),
        totals[parent],
        of.values + part * lacking,
        of.variances * (1 - part),
    )


def _sums(values: FloatArray, ends: IntArray) -> FloatArray:
    """Return the sum of each family's values, whatever other families there are, float64, shape (families,)."""
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    sums: FloatArray = np.add.reduceat(values, starts) if len(ends) else np.zeros(0)
    return sums

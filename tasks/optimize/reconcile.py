"""The second pass: estimates each node that the first pass kept from the noisy counts of all levels together.

Up, from the finest level: each node's own noisy count and the sum over its children make one estimate. Down: the optimiser
makes consistent counts of the estimates. Each step takes one level of any set of whole families, so that levels may be
walked in chunks or branches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.optimize.siblings import Optimiser
from tasks.tree.axis import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class NodeEstimates:
    """Estimates of some counts.

    Attributes:
        values: float64, shape (nodes,), records; may be negative.
        variances: float64, shape (nodes,), records squared; 0 where a count is exact.
    """

    values: FloatArray
    variances: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, nodes: slice | BoolArray | IntArray) -> "NodeEstimates":
        return NodeEstimates(self.values[nodes], self.variances[nodes])


@dataclass(frozen=True, slots=True)
class UpDown:
    """A finish in two passes over what is sealed: up the tree to estimates, and down it to the counts that are released.

    Attributes:
        share: from the estimates of kept cells, where those of each parent begin, and the parents' counts, to counts.
    """

    share: Callable[[NodeEstimates, IntArray, IntArray], IntArray]


def measured(noisy: IntArray, variance: float) -> NodeEstimates:
    """Return noisy counts of one level, shape (nodes,), as they are: with the variance of the level's noise."""
    return NodeEstimates(noisy.astype(np.float64), np.full(len(noisy), variance))


def summed_children(
    noisy: IntArray, variance: float, first_cell: IntArray, kept: BoolArray, below: NodeEstimates | None = None
) -> NodeEstimates:
    r"""Return, for each node, the sum over all its measured children.

    .. math:: s_p = \sum_{i \in p,\ \text{kept}} e_i + \sum_{i \in p,\ \text{pruned}} x_i

    Nothing below a pruned child was measured, so its own noisy count is its only measurement.

    Args:
        noisy: x, shape (cells,), int64, records: the noisy counts of all children.
        variance: σ² of the children's level; 0 where it is exact.
        first_cell: shape (nodes + 1,), int64; node p owns cells first_cell[p]:first_cell[p + 1].
        kept: shape (cells,): which children the first pass has kept.
        below: e, the combined estimates of the kept children, in their order; None at the finest level, where the noisy
            counts are all there is.
    Guarantees:
        Post-processing: reads no true count. Deterministic, and for each node the same in whatever company it comes:
        sums run over a node's own cells, one after the other.
    Raises:
        ValueError: there is not one estimate for each kept child.
    """
    cells = measured(noisy, variance)
    if below is not None:
        if len(below) != np.count_nonzero(kept):
            raise ValueError(f"below must have an estimate for each of {np.count_nonzero(kept)} kept cells.")
        cells.values[kept], cells.variances[kept] = below.values, below.variances
    nodes = len(first_cell) - 1
    node = np.repeat(np.arange(nodes), np.diff(first_cell))
    values = np.bincount(node, cells.values, nodes).astype(np.float64, copy=False)
    variances = np.bincount(node, cells.variances, nodes).astype(np.float64, copy=False)
    return NodeEstimates(values, variances)


def combined(noisy: IntArray, variance: float, below: NodeEstimates | None) -> NodeEstimates:
    r"""Return the inverse-variance mean of each kept node's own noisy count and the sum over its children.

    .. math:: e = \frac{x / \sigma^2 + s / v}{1 / \sigma^2 + 1 / v}, \quad \mathrm{Var}\, e = \frac{1}{1 / \sigma^2 + 1 / v}

    Of all unbiased linear estimates from the measurements at the node and below it, this one has the least variance.

    Args:
        noisy: x, shape (nodes,), int64, records.
        variance: σ² of the nodes' level. Where it is 0 the count is exact, and stays.
        below: s with its variances v, shape (nodes,); none at the finest level, where the noisy counts are all there is.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010), section 4.1, for trees whose nodes differ in what is measured below them.
    """
    if not below or variance == 0:
        return measured(noisy, variance)
    own = below.variances / (variance + below.variances)  # the weight of x
    return NodeEstimates(own * noisy + (1 - own) * below.values, own * variance)


def first_kept(kept: BoolArray, first_cell: IntArray) -> IntArray:
    """Return where each node's kept cells begin among all kept ones, and the end, shape (nodes + 1,)."""
    before: IntArray = np.concatenate(([0], np.cumsum(kept)))
    return before[first_cell]


def root_total(estimate: NodeEstimates, first_total: int) -> int:
    """Return the second pass's total: the root's estimate, rounded, and at least 0; 0 where the first pass's is.

    Args:
        estimate: of the root, shape (1,).
        first_total: the root's count of the first pass; where it is 0, no cell was kept that could have a count.
    """
    return max(0, int(rounded(estimate)[0])) if first_total > 0 else 0


def rounded(estimates: NodeEstimates) -> IntArray:
    """Return the values as whole numbers, int64, shape (nodes,), records; halves go to the even one."""
    return np.rint(estimates.values).astype(np.int64)


def settle(estimates: NodeEstimates, first_kept: IntArray, totals: IntArray, optimiser: Optimiser) -> IntArray:
    """Return the counts of the cells that the first pass has kept, given those of their parents.

    Args:
        estimates: of the kept cells, shape (kept,).
        first_kept: shape (parents + 1,), int64; parent p owns the kept cells first_kept[p]:first_kept[p + 1].
        totals: the parents' own counts of this pass, shape (parents,), int64, records, >= 0; 0 where no cell was kept.
        optimiser: from whole counts to non-negative ones that add up.
    Returns:
        int64, shape (kept,), records, >= 0; each parent's add up to its total.
    Raises:
        ValueError: a parent without a kept cell has a total to share out.
    """
    parents = np.diff(first_kept) > 0
    if totals[~parents].any():
        raise ValueError("totals must be 0 where the first pass has kept no cell.")
    first = np.append(first_kept[:-1][parents], first_kept[-1])
    return optimiser(rounded(estimates), first, totals[parents])

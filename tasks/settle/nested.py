"""Least squares for counts of nested groupings: up the hierarchy to estimates, and down to values that add up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.settle.overlapping import Grouping
from tasks.tree.axis import BoolArray, FloatArray, IntArray


def settle_nested(
    values: FloatArray, weight: float, groupings: Sequence[Grouping], *, is_pruned: bool = False
) -> FloatArray:
    r"""Return the values of the leaves that are nearest to their own counts and to those of nested groupings; they may be negative.

    .. math:: \min_y w \|y - x\|^2 + \sum_i w_i \|A_i y - c_i\|^2, \qquad w_i = 1 / \sigma_i^2

    Two passes solve it. Up, with the estimates of the children of v adding up to s with variance t,

    .. math:: z_v = \frac{c_v / \sigma^2 + s / t}{1 / \sigma^2 + 1 / t}, \qquad v_v = \frac{1}{1 / \sigma^2 + 1 / t}

    and down, where u is the parent of v and the sums are over the children of u,

    .. math:: y_v = z_v + \frac{v_v}{\sum v} \left( y_u - \sum z \right)

    Args:
        values: x, float64, shape (leaves,), records.
        weight: w > 0, of a squared deviation of a leaf; inf where the counts are exact.
        groupings: from coarse to fine; each refines the one before, and every cell holds a leaf. Their weights are likewise.
        is_pruned: whether a cell with z <= 0 is 0 before the downward pass, with everything below it. The cells beside it
            then share what is left of their parent.
    Returns:
        y, float64, shape (leaves,), records.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Counts that add up are returned as they are, unless pruned.
    Raises:
        ValueError: a weight is not above 0, a leaf is in no cell, a cell holds no leaf, or a grouping does not refine the one
            before.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010), for any variances and numbers of children; Fioretto, Lee and Van Hentenryck
        (2018) for pruning.
    """
    parents = _parents(len(values), groupings)
    if not all(of > 0 for of in (weight, *(grouping.weight for grouping in groupings))):
        raise ValueError("every weight must be > 0.")
    estimates, variances = _up(values, 1 / weight, groupings, parents)
    kept = _kept(estimates, parents) if is_pruned else [np.ones(len(of), dtype=bool) for of in estimates]
    return _down(estimates, variances, kept, parents)


def _parents(leaves: int, groupings: Sequence[Grouping]) -> list[NDArray[np.int32]]:
    """Return for every grouping but the first, and for the leaves, the cell of the grouping before that holds each cell."""
    found = []
    for at, coarse in enumerate(groupings):
        fine = groupings[at + 1].cell if at + 1 < len(groupings) else np.arange(leaves)
        size = len(groupings[at + 1].values) if at + 1 < len(groupings) else leaves
        if coarse.cell.shape != (leaves,) or coarse.cell.min(initial=0) < 0:
            raise ValueError(f"groupings[{at}] must have a cell for each of {leaves} leaves.")
        if len(np.unique(coarse.cell)) != len(coarse.values):
            raise ValueError(f"groupings[{at}] must have a leaf in every cell.")
        parent = np.empty(size, dtype=np.int32)
        parent[fine] = coarse.cell
        if (parent[fine] != coarse.cell).any():
            raise ValueError(f"groupings[{at}] must be refined by the grouping after it.")
        found.append(parent)
    return found


def _up(
    values: FloatArray, variance: float, groupings: Sequence[Grouping], parents: Sequence[NDArray[np.int32]]
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the estimates of the cells of all groupings and then of the leaves, each from what is below it, and their variances."""
    estimates, variances = [values], [np.full(len(values), variance)]
    for grouping, parent in zip(reversed(groupings), reversed(parents), strict=True):
        cells, own = len(grouping.values), 1 / grouping.weight
        below, of_below = (np.bincount(parent, of, cells) for of in (estimates[0], variances[0]))
        # the share of the own count in the mean; all of it where both are exact
        share = np.divide(of_below, own + of_below, out=np.ones(cells), where=own + of_below > 0)
        estimates.insert(0, share * grouping.values + (1 - share) * below)
        variances.insert(0, share * own)
    return estimates, variances


def _kept(estimates: Sequence[FloatArray], parents: Sequence[NDArray[np.int32]]) -> list[BoolArray]:
    """Return which cells are not pruned: their estimate is above 0, and so is that of every cell above them."""
    kept = [estimates[0] > 0]
    for estimate, parent in zip(estimates[1:], parents, strict=True):
        kept.append((estimate > 0) & kept[-1][parent])
    return kept


def _down(
    estimates: Sequence[FloatArray],
    variances: Sequence[FloatArray],
    kept: Sequence[BoolArray],
    parents: Sequence[NDArray[np.int32]],
) -> FloatArray:
    """Return the values of the leaves: every family adds up to its parent, and its uncertain estimates give way most."""
    settled = np.where(kept[0], estimates[0], 0.0)
    for estimate, variance, is_kept, parent in zip(estimates[1:], variances[1:], kept[1:], parents, strict=True):
        own, weight = np.where(is_kept, estimate, 0.0), np.where(is_kept, variance, 0.0)
        missing = settled - np.bincount(parent, own, len(settled))
        total = np.bincount(parent, weight, len(settled))
        # no cell gives way where all are exact, or pruned
        per_weight = np.divide(missing, total, out=np.zeros(len(settled)), where=total > 0)
        settled = own + weight * per_weight[parent]
    return settled


def nearest_counts(values: FloatArray) -> IntArray:
    """Return the nearest whole numbers >= 0, int64, of the same shape."""
    return np.rint(np.maximum(values, 0)).astype(np.int64)

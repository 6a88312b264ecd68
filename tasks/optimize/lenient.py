"""Leniency: a first pass that prunes less than InfTDA, and a second one that lets go of what is too small to be told from none.

What the first pass prunes is never measured below, and so is lost to the second. What it keeps and should not have, the second
can still let go, once it has seen everything.
"""

from collections.abc import Callable

import numpy as np

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import Estimates, first_kept, settle
from tasks.optimize.siblings import check_siblings
from tasks.tree.axis import IntArray

LEAST = 0.4  # of an estimate's standard deviation: a smaller count does not stay


def spread_in_euclid(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return, for each parent, what is nearest to its noisy counts drawn halfway to equal shares.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b}} \|y - \lfloor (x + \lfloor c / b \rfloor) / 2 \rfloor\|_2
        \quad \text{s.t.} \quad \sum_i y_i = c

    More cells stay above zero than with the noisy counts themselves, above all where noise is large beside the counts.

    Args:
        noisy: x, shape (cells,), int64, records; may be negative.
        first_cell: shape (parents + 1,), int64; parent p owns cells first_cell[p]:first_cell[p + 1], at least one.
        totals: c, shape (parents,), int64, records, >= 0.
    Returns:
        y, shape (cells,), int64, records. They say which cells stay, and what they have to share out among their children
        until a second pass knows better: as counts to release they would be worse than those of `nearest_in_euclid`.
    Guarantees:
        Post-processing: reads no true count. Deterministic; ties go to the lower cell.
    Raises:
        ValueError: a total is negative, a parent has no cell, or the shapes disagree.
    """
    check_siblings(noisy, first_cell, totals)
    fan_out = np.diff(first_cell)
    spread: IntArray = (noisy + np.repeat(totals // fan_out, fan_out)) >> 1
    return nearest_in_euclid(spread, first_cell, totals)


def settle_and_prune(
    estimates: Estimates,
    first: IntArray,
    totals: IntArray,
    optimiser: Callable[[IntArray, IntArray, IntArray], IntArray],
) -> IntArray:
    """Settle as `settle` does; let go of counts below `LEAST` standard deviations, and settle what stays once more.

    Of each parent the cells with the largest count stay, however small, so that there is always one to have its total.

    Args:
        estimates: of the kept cells, shape (kept,).
        first: shape (parents + 1,), int64; parent p owns the kept cells first[p]:first[p + 1].
        totals: the parents' own counts of this pass, shape (parents,), int64, records, >= 0; 0 where no cell was kept.
        optimiser: from whole counts to non-negative ones that add up.
    Returns:
        int64, shape (kept,), records, >= 0; each parent's add up to its total.
    Guarantees:
        Post-processing: reads no true count. Deterministic, and for each parent the same in whatever company it comes.
    Raises:
        ValueError: a parent without a kept cell has a total to share out.
    """
    counts = settle(estimates, first, totals, optimiser)
    fan_out = np.diff(first)
    parents = fan_out > 0
    most = np.maximum.reduceat(counts, first[:-1][parents]) if len(counts) else counts
    is_largest = counts == np.repeat(most, fan_out[parents])
    stays = (counts > 0) & (is_largest | (counts >= LEAST * np.sqrt(estimates.variances)))
    counts[stays] = settle(
        Estimates(estimates.values[stays], estimates.variances[stays]), first_kept(stays, first), totals, optimiser
    )
    counts[~stays] = 0
    return counts

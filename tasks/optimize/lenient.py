"""Leniency: a first pass that prunes less than InfTDA, and a second pass that drops counts too small to distinguish from zero.

Nothing below a cell that the first pass prunes is measured, so the second pass cannot recover it. A cell that the first pass
keeps in error can still be dropped by the second pass, which knows all noisy counts.
"""

import numpy as np

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import NodeEstimates, first_kept, settle
from tasks.optimize.siblings import Optimiser, check_siblings
from tasks.tree.axis import IntArray

LEAST = 0.4  # of an estimate's standard deviation: a smaller count does not stay


def spread_in_euclid(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    r"""Return, for each parent, the counts nearest to its noisy counts after these are moved halfway to equal shares.

    .. math:: \min_{y \in \mathbb{Z}_{\ge 0}^{b}} \|y - \lfloor (x + \lfloor c / b \rfloor) / 2 \rfloor\|_2
        \quad \text{s.t.} \quad \sum_i y_i = c

    More cells stay above zero than with the noisy counts themselves, most of all where the noise is large compared with
    the counts. They decide which cells stay, and what these share among their children in the first pass. As released
    counts they would be worse than those of `nearest_in_euclid`. Arguments, result and errors as of `nearest_in_chebyshev`.

    Guarantees:
        Post-processing: reads no true count. Deterministic; ties go to the lower cell.
    """
    check_siblings(noisy, first_cell, totals)
    fan_out = np.diff(first_cell)
    spread: IntArray = (noisy + np.repeat(totals // fan_out, fan_out)) >> 1
    return nearest_in_euclid(spread, first_cell, totals)


def settle_and_prune(estimates: NodeEstimates, first: IntArray, totals: IntArray, optimiser: Optimiser) -> IntArray:
    """Settle as `settle` does, drop counts below `LEAST` standard deviations, and settle the remaining counts again.

    The cells with the largest count of each parent always stay, so that one of them can take the parent's total. Arguments, result and
    errors are those of `settle`.

    Guarantees:
        Post-processing: reads no true count. Deterministic, and for each parent the same in whatever company it comes.
    """
    counts = settle(estimates, first, totals, optimiser)
    fan_out = np.diff(first)
    parents = fan_out > 0
    most = np.maximum.reduceat(counts, first[:-1][parents]) if len(counts) else counts
    is_largest = counts == np.repeat(most, fan_out[parents])
    stays = (counts > 0) & (is_largest | (counts >= LEAST * np.sqrt(estimates.variances)))
    counts[stays] = settle(estimates[stays], first_kept(stays, first), totals, optimiser)
    counts[~stays] = 0
    return counts

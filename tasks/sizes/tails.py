"""`group_sizes`: group sizes from noisy tails, the numbers of groups of at least each size."""

from collections.abc import Sequence

import numpy as np

from tasks.sizes.down import settle_down
from tasks.sizes.monotone import falling, round_half_up
from tasks.sizes.tables import NoisyLevels, sizes_of, sums_over_children
from tasks.tree.axis import FloatArray, IntArray

_LEAST_SHARE = 0.1  # of the budget of a level, below which noise is averaged over regions alone


def is_cleaned(variances: Sequence[float]) -> bool:
    r"""Return whether tails are made monotone before levels are joined: where every level has at least a tenth of the budget.

    The share of a level is :math:`\sigma_\ell^{-1} / \sum \sigma^{-1}`, that of ε under discrete Laplace noise. Monotone tails are nearer
    to the true ones, but lean to one side where many are 0. In the sum of thousands of children this counts, unless the level above
    is measured well enough to correct it. The rule reads public numbers only.
    """
    precisions = np.array(variances) ** -0.5
    return bool(precisions.min() >= _LEAST_SHARE * precisions.sum() * (1 - 1e-9))


def from_tails(levels: NoisyLevels, *, clean: bool | None = None) -> list[IntArray]:
    r"""Return group sizes near to noisy tails: up to estimates of all levels, and down to whole counts.

    Up, from the finest level, the noisy tails y of a region and the estimates of its children make an estimate z with variance v:

    .. math:: z = S + w (u - S), \quad S = \sum_c z_c, \quad w = \frac{V}{V + \sigma^2}, \quad V = \sum_c v_c, \quad v = w \sigma^2

    where u is y, made non-increasing where `clean` says so. The tails of the root are made non-increasing and whole; from there down see
    `settle_down`.

    Args:
        levels: what was measured; y are its noisy counts, and σ² its variances.
        clean: whether u is monotone. None decides by `is_cleaned`.
    Returns:
        For each level the groups of sizes 1 to N (or more), shape (regions, N), int64, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents, and no region has more groups than
        there are. Tails of a true table are returned as that table.
    """
    clean = is_cleaned(levels.variances) if clean is None else clean
    estimates, spread = up(levels.noisy, levels.variances, levels.first_child, clean=clean)
    root = np.maximum(falling(estimates[0]), 0)
    if levels.total is not None:
        root = np.minimum(root, levels.total)
    return settle_down(sizes_of(round_half_up(root)), estimates, spread, levels.first_child, levels.groups)


def up(
    noisy: Sequence[IntArray] | Sequence[FloatArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    *,
    clean: bool,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the estimates z of every level, shape (regions, N), and their variances, shape (regions,), as in `from_tails`."""
    estimates, spread = list[FloatArray](), list[FloatArray]()
    for level in reversed(range(len(noisy))):
        own = noisy[level].astype(np.float64)
        own = falling(own) if clean else own
        variance = np.full(len(own), float(variances[level]))
        if estimates:
            below = sums_over_children(estimates[0], first_child[level])
            together = sums_over_children(spread[0], first_child[level])
            weight = together / (together + variance)
            own = below + weight[:, None] * (own - below)
            variance = weight * variance
        estimates.insert(0, own)
        spread.insert(0, variance)
    return estimates, spread

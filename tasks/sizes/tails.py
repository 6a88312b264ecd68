"""`group_sizes`: group sizes from noisy tails, the numbers of groups of at least each size."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.sizes.down import settle_down
from tasks.sizes.monotone import falling, round_half_up
from tasks.sizes.tables import sizes_of, sums_over_children
from tasks.tree.axis import IntArray

FloatArray = NDArray[np.float64]

_LEAST_SHARE = 0.1  # of the budget of a level, below which noise is averaged over regions alone


def is_cleaned(variances: Sequence[float]) -> bool:
    r"""Return whether tails are made monotone before levels are joined: where every level has at least a tenth of the budget.

    The share of a level is :math:`\sigma_\ell^{-1} / \sum \sigma^{-1}`, that of ε under discrete Laplace noise. Monotone tails are nearer
    to the true ones, but lean to one side where many are 0. In the sum of thousands of children this counts, unless the level above
    is measured well enough to correct it. The rule reads public numbers only.
    """
    precisions = np.array(variances) ** -0.5
    return bool(precisions.min() >= _LEAST_SHARE * precisions.sum() * (1 - 1e-9))


def from_tails(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
    *,
    clean: bool | None = None,
) -> list[IntArray]:
    r"""Return group sizes near to noisy tails: up to estimates of all levels, and down to whole counts.

    Up, from the finest level, the noisy tails y of a region and the estimates of its children make an estimate z with variance v:

    .. math:: z = S + w (u - S), \quad S = \sum_c z_c, \quad w = \frac{V}{V + \sigma^2}, \quad V = \sum_c v_c, \quad v = w \sigma^2

    where u is y, made non-increasing where `clean` says so. The tails of the root are made non-increasing and whole; from there down see
    `settle_down`.

    Args:
        noisy: y of each level from the root to the finest, shape (regions, N), int64, records; may be negative.
        variances: σ² of the noise of each level, > 0.
        first_child: of each level but the finest, shape (regions + 1,), int64: the children of a region are adjacent.
        groups: of each region of the finest level, how many groups it has, empty ones too, where that is public; shape (regions,).
        clean: whether u is monotone. None decides by `is_cleaned`.
    Returns:
        For each level the groups of sizes 1 to N (or more), shape (regions, N), int64, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents, and no region has more groups than
        `groups`. Tails of a true table are returned as that table.
    """
    clean = is_cleaned(variances) if clean is None else clean
    estimates, spread = up(noisy, variances, first_child, clean=clean)
    root = np.maximum(falling(estimates[0]), 0)
    if groups is not None:
        root = np.minimum(root, groups.sum())
    return settle_down(sizes_of(round_half_up(root)), estimates, spread, first_child, groups)


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

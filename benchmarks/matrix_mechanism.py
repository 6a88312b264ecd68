"""The least mean variance that any linear Gaussian mechanism has for a workload, with the dual bound that certifies it.

Noise with covariance X⁻¹ on the leaves costs max diag X in 2ρ under add_remove, and a query r has the variance rᵀX⁻¹r. So the least mean
variance is the minimum of tr(M X⁻¹) over all X whose diagonal is at most 1, where M is the mean of r rᵀ (Li and Miklau 2012).
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tasks.unbiased.workloads import NODES, PREFIX, RANGES, SETS

FloatArray = NDArray[np.float64]

WORKLOADS = (RANGES, PREFIX, NODES, SETS)


def gram(workload: str, n: int) -> FloatArray:
    """Return the mean over the queries r of a workload of r rᵀ, float64, shape (n, n)."""
    leaf = np.arange(1, n + 1)
    low, high = np.minimum.outer(leaf, leaf), np.maximum.outer(leaf, leaf)
    if workload == RANGES:
        return low * (n + 1 - high) / (n * (n + 1) / 2)
    if workload == PREFIX:
        return (n + 1 - high) / n
    if workload == SETS:
        return 3 / 16 * np.eye(n) + 7 / 16
    shared = sum((leaf - 1)[:, None] >> level == (leaf - 1) >> level for level in range(n.bit_length()))
    return shared / (2 * n - 1)


@cache
def optimum(n: int) -> dict[str, tuple[float, float]]:
    """Return of each workload a lower bound and a value of the least mean variance of any linear mechanism at 2ρ = 1.

    With prices d of the diagonal of X, which add up to 1, tr(M X⁻¹) is at least (tr √(√D M √D))² wherever the diagonal is at most 1.
    The X that attains this for some d is scaled until its largest entry is 1, and d follows its diagonal.
    """
    found = {}
    for workload in WORKLOADS:
        matrix, prices = gram(workload, n), np.full(n, 1 / n)
        bounds = [(0.0, math.inf)]
        while bounds[-1][1] > bounds[-1][0] * 1.001:
            root = np.sqrt(prices)
            values, vectors = np.linalg.eigh(root[:, None] * matrix * root)
            values = np.sqrt(np.maximum(values, 0))
            diagonal = vectors**2 @ values  # of √D X √D
            bounds.append((values.sum() ** 2, values.sum() * (diagonal / prices).max()))
            prices = diagonal / values.sum()
        found[workload] = (max(low for low, _ in bounds), min(high for _, high in bounds))
    return found


def eigen_design(workload: str, n: int) -> float:
    """Return the least mean variance at 2ρ = 1 of noise on the eigenvectors of M, nearly (Li and Miklau 2012)."""
    values, vectors = np.linalg.eigh(gram(workload, n))
    squares, prices = vectors**2, np.full(n, 1 / n)
    while True:
        precisions = np.sqrt(values / (prices @ squares))
        costs, total = squares @ precisions, float((values / precisions).sum())
        if costs.max() <= 1.001 * total:
            return total * float(costs.max())
        prices = prices * costs / total


def square_root(n: int) -> float:
    """Return the mean variance of all prefixes at 2ρ = 1 if prefixes and noise both have the square root of the prefix sums.

    Its rows have the coefficients of (1 - x)^(-1/2) (Fichtenberger, Henzinger and Upadhyay 2023).
    """
    factors = 1 - 0.5 / np.maximum(np.arange(n), 1)
    factors[0] = 1.0
    norms = np.cumsum(np.cumprod(factors) ** 2)
    return float(norms.mean() * norms[-1])

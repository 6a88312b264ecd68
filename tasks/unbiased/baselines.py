r"""Ranges of an ordered axis as others answer them: noise on sine coefficients, and sums of the fewest noisy nodes. For comparisons only.

Over all ranges :math:`M = \sum_r r r^T = (n + 1) K^{-1}`, where K has 2 on its diagonal and -1 beside it. So the eigenvectors of M are
the sines :math:`q_{ki} = \sqrt{2 / (n + 1)} \sin(\pi k i / (n + 1))`, and no eigensolver is needed. The information on the leaves is
:math:`X = \sum_k x_k q_k q_k^T` with precisions x.
"""

from collections.abc import Sequence

import numpy as np

from tasks.tree.axis import Axis, FloatArray
from tasks.unbiased.workloads import LEAVES, NODES, PREFIX, RANGES, SETS, WORST, of_sets

MOST_LEAVES = 2**11  # whose covariances are held at once

_STEPS = 10_000  # towards the best precisions, at most
_GAP = 1e-3  # relative, between their mean variance and the least


def best_precisions(n: int) -> FloatArray:
    """Return the precisions with which all ranges have nearly the least mean variance, float64, shape (n,).

    The largest entry of the diagonal of X, which is what one record costs in 2ρ under add_remove, is 1.

    Args:
        n: leaves, >= 1.
    Guarantees:
        No other precisions have a mean variance that is smaller by more than a thousandth.
    Source:
        Li and Miklau (2012), for any workload with its eigenvectors.
    """
    eigenvalues, prices = 1 / (2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))), np.full(n, 1 / n)
    for _ in range(_STEPS):
        # a dual solution: prices of the entries of the diagonal, which add up to 1, bound the least mean variance by total²
        x = np.sqrt(eigenvalues / _squares(prices))
        costs, total = _squares(x), float((eigenvalues / x).sum())
        if costs.max() <= (1 + _GAP) * total:
            break
        prices = prices * costs / total
    return x / float(costs.max())


def draw_noise(x: FloatArray, generator: "np.random.Generator") -> FloatArray:
    """Return Gaussian noise of the leaves with information X, float64, shape (n,)."""
    from scipy.fft import dst

    noise: FloatArray = dst(generator.standard_normal(len(x)) / np.sqrt(x), type=1, norm="ortho")
    return noise


def covariance(x: FloatArray) -> FloatArray:
    """Return the covariance of that noise, which is the inverse of X, float64, shape (n, n)."""
    return _combined(1 / x)


def variances_by(covariance: FloatArray, axis: Axis) -> dict[str, float]:
    """Return the mean variance of all queries of each workload, and that of the worst node, given the covariance of leaves.

    Args:
        covariance: float64, shape (leaves, leaves), records squared.
        axis: whose areas are the nodes.
    """
    prefixes = np.pad(covariance.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    own, n = np.diag(prefixes), len(covariance)
    firsts = [axis.first_descendants(level, axis.depth) for level in range(axis.depth + 1)]
    nodes = np.concatenate([own[of[1:]] + own[of[:-1]] - 2 * prefixes[of[1:], of[:-1]] for of in firsts])
    leaf = float(np.diag(covariance).mean())
    return {
        RANGES: float((n + 1) * own.sum() - prefixes.sum()) / (n * (n + 1) / 2),
        PREFIX: float(own[1:].mean()),
        NODES: float(nodes.mean()),
        LEAVES: leaf,
        SETS: of_sets(float(own[-1]), n, leaf),
        WORST: float(nodes.max()),
    }


def largest_change(x: FloatArray) -> float:
    r"""Return what a record that is replaced by another costs in 2ρ: :math:`\max_{i \neq j} X_{ii} + X_{jj} - 2 X_{ij}`."""
    information = _combined(x)
    own = np.diag(information)
    return float((own[:, None] + own - 2 * information).max())


def _squares(x: FloatArray) -> FloatArray:
    """Return for every leaf i the sum over k of x_k q_ki², float64, shape (n,)."""
    n = len(x)
    leaf = np.arange(1, n + 1)
    cosines = _cosines(x)
    squares: FloatArray = cosines[0] - cosines[np.minimum(2 * leaf, 2 * (n + 1 - leaf))]
    return squares


def _combined(x: FloatArray) -> FloatArray:
    """Return the sum over k of x_k q_k q_kᵀ, float64, shape (n, n)."""
    n = len(x)
    leaf = np.arange(1, n + 1)
    cosines, together = _cosines(x), np.add.outer(leaf, leaf)
    apart = np.abs(np.subtract.outer(leaf, leaf))
    combined: FloatArray = cosines[apart] - cosines[np.minimum(together, 2 * (n + 1) - together)]
    return combined


def _cosines(x: FloatArray) -> FloatArray:
    """Return for t = 0 … n + 1 the sum over k of x_k cos(π k t / (n + 1)) / (n + 1).

    The sum of x_k q_ki q_kj is the difference of those at |i - j| and at i + j.
    """
    from scipy.fft import dct

    cosines: FloatArray = dct(np.pad(x, 1), type=1) / (2 * (len(x) + 1))
    return cosines


def range_variances_in_pieces(axis: Axis, variances: Sequence[float]) -> FloatArray:
    """Return the variances of all ranges, each the sum of its fewest nodes, as `range_variances`; arguments as in `variances_in_pieces`."""
    n = axis.areas(axis.depth)
    every = np.zeros((n + 1, n + 1))
    below = np.zeros((n + 1, n + 1), dtype=np.int64)  # nodes of the level whose parents lie inside
    for level, variance in enumerate(variances):
        first = axis.first_descendants(level, axis.depth)
        begin, end = (np.searchsorted(first, np.arange(n + 1), side) for side in ("left", "right"))
        end = np.maximum(end - 1, begin[:, None])
        every += variance * (end - begin[:, None] - below)
        if level < axis.depth:
            children = axis.first_child[level]
            below = children[end] - children[begin][:, None]
    return every


def variances_in_pieces(axis: Axis, variances: Sequence[float]) -> dict[str, float]:
    r"""Return the mean variance of all ranges, prefixes, nodes and leaves of an axis, each the sum of its fewest nodes.

    With them comes that of the worst node, all of them records squared.

    A node is a piece of a range if it lies inside and its parent does not. With leaves numbered from 1 to n, :math:`i (n + 1 - j)`
    ranges and :math:`n + 1 - j` prefixes hold all leaves from i to j.

    Args:
        axis: of a tree without other axes.
        variances: of the noisy counts of levels 0 to T; 0 where a level is exact. A level that repeats the one above has its variance.
    Source:
        Chan, Shi and Song (2011); Dwork, Naor, Pitassi and Rothblum (2010).
    """
    n, nodes = axis.areas(axis.depth), 0
    sums = dict.fromkeys((RANGES, PREFIX, NODES), 0.0)
    above = {RANGES: np.zeros(1), PREFIX: np.zeros(1)}  # how many of them hold the parent of each node
    for level, variance in enumerate(variances):
        first = axis.first_descendants(level, axis.depth)
        after = (n - first[1:] + 1).astype(np.float64)
        holding = {RANGES: (first[:-1] + 1) * after, PREFIX: after}
        for workload, of in holding.items():
            sums[workload] += variance * float((of - above[workload]).sum())
        sums[NODES] += variance * len(after)
        nodes += len(after)
        if level < axis.depth:
            above = {workload: np.repeat(of, np.diff(axis.first_child[level])) for workload, of in holding.items()}
    means = {RANGES: sums[RANGES] / (n * (n + 1) / 2), PREFIX: sums[PREFIX] / n, NODES: sums[NODES] / nodes}
    return means | {LEAVES: variances[-1], WORST: max(variances)}

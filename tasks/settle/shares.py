"""Shares of a budget among the leaves and the views, with which counts that matter have the least error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from tasks.tree.axis import BoolArray, FloatArray

MOST_ATOMS = 2000  # whose covariance is dense

_EXACT = 1e12  # how many times the precision of a leaf that of an exact count is taken to be
_LEAST = 1e-3  # share of anything that is measured
_LEAST_LEAVES = 0.1  # their share: that counts are not below 0 is seen in leaves, and least squares do not know it


@dataclass(frozen=True, slots=True, eq=False)
class WeightedView:
    """Something that is measured beside the leaves.

    Attributes:
        cell: int64, shape (atoms,): the cell that holds each atom.
        weight: of the mean variance of its cells, >= 0.
        is_exact: whether its counts are exact, and take no share.
    """

    cell: NDArray[np.int64]
    cells: int
    weight: float
    is_exact: bool = False


def atoms_of(labels: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the sizes of the atoms, which are the leaves with the same labels, and the label of each atom in every grouping.

    Args:
        labels: per grouping, the cell of each leaf, shape (leaves,).
    """
    together = np.zeros(len(labels[0]), dtype=np.int64)
    for cell in labels:
        _, together = np.unique(together * (int(cell.max(initial=0)) + 1) + cell, return_inverse=True)
    _, first, sizes = np.unique(together, return_index=True, return_counts=True)
    return sizes, [cell[first].astype(np.int64) for cell in labels]


def least_error_shares(
    sizes: NDArray[np.int64],
    parts: Sequence[WeightedView],
    leaf_weight: float,
    precision: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    r"""Return the shares that minimise the weighted sum of the mean variances of all parts and of the leaves.

    .. math:: \min_s \sum_j \frac{w_j}{n_j} \operatorname{tr} A_j C A_j^T + w_1 v_1, \qquad
        C = \bigl(\operatorname{diag}(1 / (s_a \sigma_1^2)) + \sum_i A_i^T A_i / \sigma_i^2\bigr)^{-1}

    C is the covariance of the least-squares estimates of the atoms' sums, before counts are made non-negative. With
    :math:`Q = \sum_j w_j A_j^T A_j / n_j + …` the derivative by :math:`1 / \sigma_i^2` is :math:`-\operatorname{tr} A_i C Q C A_i^T`.

    Args:
        parts: what is measured beside the leaves.
        leaf_weight: the weight of the mean variance of the leaves, >= 0.
        precision: from shares, shape (parts that are not exact + 1,), leaves last, to :math:`1 / \sigma^2` up to a factor.
    Returns:
        float64, shape (parts that are not exact + 1,), leaves last, in thousandths: at least one each, and a hundred for the leaves.
    Guarantees:
        Reads codebooks alone. Deterministic.
    """
    together = [part.cell[:, None] == part.cell[None, :] for part in parts]
    of_leaf = leaf_weight / int(sizes.sum())
    wanted = np.diag(of_leaf / sizes.astype(np.float64))  # the leaves of an atom share its deviation equally
    for part, pairs in zip(parts, together, strict=True):
        if part.weight:
            wanted += part.weight / part.cells * pairs
    exact, noisy = (
        tuple(pairs for part, pairs in zip(parts, together, strict=True) if part.is_exact == is_exact)
        for is_exact in (True, False)
    )
    problem = _Problem(sizes, noisy, exact, wanted, within=of_leaf * float((sizes - 1).sum()))
    start = np.zeros(len(noisy) + 1)

    def objective(logs: FloatArray) -> tuple[float, FloatArray]:
        shares = _shares(logs)
        of_share, step = precision(shares), 1e-6
        value, by_precision = problem.at(of_share)
        by_share = by_precision * (precision(shares * (1 + step)) - of_share) / (step * shares)
        return float(np.log(value)), shares * (by_share - float(by_share @ shares)) / value

    shares = _shares(
        scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(-8, 8)] * len(start)).x
    )
    if shares[-1] < _LEAST_LEAVES:
        shares = np.append(shares[:-1] * (1 - _LEAST_LEAVES) / shares[:-1].sum(), _LEAST_LEAVES)
    thousandths: FloatArray = np.maximum(np.round(shares, 3), _LEAST)
    return thousandths


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """What is minimised, as a function of precisions.

    Attributes:
        sizes: leaves of each atom, shape (atoms,).
        noisy: AᵀA of each part with noise, bool, shape (atoms, atoms): which atoms are in one cell.
        exact: AᵀA of each exact part.
        wanted: Q, shape (atoms, atoms): the weighted sum of variances is its product with C, but for what is within atoms.
        within: what the variance of a leaf about its share of its atom is multiplied by.
    """

    sizes: NDArray[np.int64]
    noisy: tuple[BoolArray, ...]
    exact: tuple[BoolArray, ...]
    wanted: FloatArray
    within: float

    def at(self, precisions: FloatArray) -> tuple[float, FloatArray]:
        """Return the weighted sum of mean variances at some 1/σ², leaves last, and its derivatives by each."""
        of_leaf = precisions[-1]
        inverse = np.diag(of_leaf / self.sizes)
        for own, together in zip(precisions, self.noisy, strict=False):
            inverse += own * together
        for together in self.exact:
            inverse += _EXACT * of_leaf * together
        covariance = np.linalg.inv(inverse)
        moved = covariance @ self.wanted @ covariance
        by_part = [-float((moved * together).sum()) for together in self.noisy]
        by_leaf = -float((moved.diagonal() / self.sizes).sum()) - self.within / of_leaf / of_leaf
        return float((self.wanted * covariance).sum()) + self.within / of_leaf, np.array([*by_part, by_leaf])


def _shares(logs: FloatArray) -> FloatArray:
    """Return shares in proportion to exponentials, shape (shares,)."""
    shares: FloatArray = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares

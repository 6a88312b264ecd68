r"""The strategies with the least mean variance for ranges of one axis, with the bound that no linear mechanism with Gaussian noise goes below.

Let M be the mean of :math:`r r^T` over all questions r. A strategy with information X answers them with the mean variance
:math:`\mathrm{tr}(M X^{-1})`, and costs in 2ρ the largest :math:`d_{ij} = (e_i - e_j)^T X (e_i - e_j)` over all moves of a record, with
:math:`e_j = 0` for nowhere. For prices w of the moves that add up to 1, with :math:`L = \sum w_{ij} (e_i - e_j) (e_i - e_j)^T`,

.. math:: \mathrm{tr}(M X^{-1}) \ge \left(\mathrm{tr} \sqrt{L^{1/2} M L^{1/2}}\right)^2 \quad \text{where no } d_{ij} > 1,

with equality for :math:`X \propto L^{-1/2} \sqrt{L^{1/2} M L^{1/2}} \, L^{-1/2}` if all moves with a price cost the same.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tasks.tree.axis import BoolArray, FloatArray
from tasks.unbiased.dense import LARGEST_ENTRY, Strategy, covariance_of, squared_moves
from tasks.unbiased.workloads import PREFIX, RANGES

_GAP = 0.002  # relative, between the mean variance and its bound
_ROUNDED = 0.005  # relative, by how much whole numbers may raise the mean variance, if entries in range allow it
_ROUNDS = 400  # of the fixed point, at most
_COARSE = 96  # leaves from which on the prices are those of half as many leaves at first
_LEAST = 1e-9  # of the mean price: what a move costs at first that had no price among fewer leaves
_BESIDE = 0.01  # the weight of all ranges beside those that a spec names, so that every count can be told

Ranges = tuple[tuple[int, int], ...]  # of leaves, each the first one inside and the first one after it


@dataclass(frozen=True, slots=True)
class Design:
    """A strategy, and what it was made for.

    Attributes:
        at_least: the bound on the mean variance of the workload at 2ρ = 1 with one record per unit, records squared.
    """

    strategy: Strategy
    workload: str | Ranges
    at_least: float


def gram(workload: str | Ranges, n: int) -> FloatArray:
    """Return the mean over the questions r of a workload of r rᵀ, float64, shape (n, n).

    Args:
        workload: `ranges`, `prefix`, or some ranges, beside which all ranges have a hundredth of the weight.
    """
    leaf = np.arange(1.0, n + 1)
    low, high = np.minimum.outer(leaf, leaf), np.maximum.outer(leaf, leaf)
    if workload == PREFIX:
        prefixes: FloatArray = (n + 1 - high) / n
        return prefixes
    every: FloatArray = low * (n + 1 - high) / (n * (n + 1) / 2)
    if isinstance(workload, str):
        if workload != RANGES:
            raise ValueError(f"workload must be {RANGES}, {PREFIX} or a list of ranges, got {workload}.")
        return every
    inside = np.array([(first < leaf) & (leaf <= stop) for first, stop in workload], dtype=np.float64)
    return (1 - _BESIDE) * inside.T @ inside / len(inside) + _BESIDE * every


def design(workload: str | Ranges, moves: BoolArray, largest: int = LARGEST_ENTRY) -> Design:
    """Return a strategy with nearly the least mean variance for a workload.

    Args:
        largest: below which weights must be in absolute value.
        moves: between which leaves, and nowhere, a record may move, nowhere, which comes last: bool, shape (leaves + 1, leaves + 1), symmetric.
    Guarantees:
        Its mean variance is within 0.7% of the bound, unless whole numbers up to the largest are too coarse for that.
    Source:
        Denisov, McMahan, Rush, Smith and Thakurta (2022) for the fixed point under add_remove; docs/proofs/mechanisms.md for other moves.
    """
    n = len(moves) - 1
    matrix, found = gram(workload, n), _fixed_point(workload, moves)
    total_is_known = not moves[-1].any()
    information = found.information / found.most
    if total_is_known:  # no record moves the total, so it may be measured at will
        information = information + np.trace(information) / n**2
    values, vectors = np.linalg.eigh(information)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    scale, best, least = 64, Strategy(np.eye(n, dtype=np.int64)), np.inf
    while scale * abs(root).max() < largest and least > (1 + _ROUNDED) * found.at_most:
        strategy = Strategy(np.rint(scale * root).astype(np.int64))
        cost = squared_moves(strategy.products)[moves].max(initial=0.0)
        variance = cost * (matrix * covariance_of(strategy.products, total_is_known=total_is_known)).sum()
        best, least = min((best, least), (strategy, variance), key=lambda of: of[1])
        scale *= 2
    return Design(best, workload, found.at_least)


class _Found(NamedTuple):
    """What the fixed point comes to: X, what it costs most, its bound, its mean variance at cost 1, and the prices."""

    information: FloatArray
    most: float
    at_least: float
    at_most: float
    prices: FloatArray


def _fixed_point(workload: str | Ranges, moves: BoolArray) -> _Found:
    """Return the X of the prices that are nearly best: each price follows what its move costs."""
    matrix, prices = gram(workload, len(moves) - 1), _first_prices(workload, moves)
    best = at = _at(matrix, prices, moves)
    for _ in range(_ROUNDS):
        if best.at_most <= (1 + _GAP) * best.at_least:
            break
        costs = squared_moves(at.information) / at.most
        prices = np.where(moves, at.prices * costs ** _power(moves), 0.0)
        at = _at(matrix, prices * (2 / prices.sum()), moves)
        better = min(best, at, key=lambda of: of.at_most)
        best = better._replace(at_least=max(best.at_least, at.at_least))
    return best


def _power(moves: BoolArray) -> float:
    """Return how fast prices follow costs: 1, as in the paper, where records come and go; faster converges sooner where they move."""
    return 3.0 if moves[:-1, :-1].any() else 1.0


def _first_prices(workload: str | Ranges, moves: BoolArray) -> FloatArray:
    """Return the prices with which the fixed point begins: equal ones, or those of an axis with half as many leaves."""
    n, half = len(moves) - 1, len(moves) // 2
    prices = moves.astype(np.float64)
    if n >= _COARSE:
        nearest = np.append(np.arange(n) * half // n, half)
        fewer = workload if isinstance(workload, str) else _halved(workload, n, half)
        coarse = _fixed_point(fewer, moves[np.ix_(*[_spread(n, half)] * 2)]).prices
        prices = np.where(moves, np.maximum(coarse[np.ix_(nearest, nearest)], _LEAST * coarse.mean()), 0.0)
    prices *= 2 / prices.sum()
    return prices


def _spread(n: int, half: int) -> FloatArray:
    """Return some leaves, and nowhere, of which the moves are like those of all."""
    return np.append(np.arange(half), n)


def _halved(ranges: Ranges, n: int, half: int) -> Ranges:
    """Return ranges of half as many leaves, none of them empty."""
    ends = ((first * half // n, -(-stop * half // n)) for first, stop in ranges)
    return tuple((first, max(stop, first + 1)) for first, stop in ends)


def _at(matrix: FloatArray, prices: FloatArray, moves: BoolArray) -> _Found:
    """Return the X of some prices of moves, symmetric, which add up to 2, so that each move counts once."""
    own, between = prices.sum(axis=1)[:-1], prices[:-1, :-1]
    if between.any():
        values, vectors = np.linalg.eigh(np.diag(own) - between)
        kept = values > values.max() * 1e-13
        root = (vectors[:, kept] * np.sqrt(values[kept])) @ vectors[:, kept].T
        inverse = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
        middle = root @ matrix @ root
    else:
        inverse, root = np.diag(own**-0.5), np.sqrt(own)
        middle = root[:, None] * matrix * root
    values, vectors = np.linalg.eigh((middle + middle.T) / 2)
    values = np.sqrt(np.maximum(values, 0.0))
    outer = inverse @ vectors
    information, total = (outer * values) @ outer.T, float(values.sum())
    most = float(squared_moves(information)[moves].max(initial=0.0))
    return _Found(information, most, total**2, total * most, prices)

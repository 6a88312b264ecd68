r"""Axes of which every measured number is a whole-number combination of all leaves: strategies of the matrix mechanism.

With the rows A, the measured numbers are :math:`y = A x + z` with independent discrete Gaussian noise z of scale σ. Their information on the
leaves x is :math:`X = A^T A / \sigma^2`, and least squares is :math:`\hat x = X^{-1} A^T y / \sigma^2`.
"""

import math
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from zlib import compress, decompress

import numpy as np

from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.unbiased.baselines import variances_by
from tasks.unbiased.variance import Inside, TreeVariances, tree_variances

MOST_CODES = 2**11  # leaves, whose covariances are held at once
LARGEST_ENTRY = (
    2**11
)  # of a strategy; with totals up to 2**40 every combination is below 2**53, and exact as a float too


def squared_moves(products: FloatArray) -> FloatArray:
    """Return by how much a record that moves between two leaves, or to nowhere, moves what is measured, squared, float64, shape (leaves + 1, leaves + 1).

    Args:
        products: AᵀA, shape (leaves, leaves).
    """
    whole = np.pad(products, ((0, 1), (0, 1)))
    own = np.diagonal(whole)
    squares: FloatArray = own[:, None] + own - 2 * whole
    return squares


def covariance_of(information: FloatArray, *, total_is_known: bool) -> FloatArray:
    """Return the covariance of the least-squares values of the leaves, given their information, and the exact total if that is known."""
    covariance = np.linalg.inv(information)
    if total_is_known:
        with_total = covariance.sum(axis=1)
        covariance -= np.outer(with_total, with_total) / with_total.sum()
    return (covariance + covariance.T) / 2


@dataclass(frozen=True, eq=False)
class Strategy:
    """What is measured of an axis.

    Attributes:
        rows: A, the weights of all leaves in each measured number, int64, shape (rows, leaves).
    """

    rows: IntArray

    def __post_init__(self) -> None:
        """Refuse rows that do not tell all leaves apart, or whose combinations may be inexact.

        Raises:
            ValueError: there are fewer rows than leaves, too many leaves, or an entry is too large.
        """
        rows, leaves = self.rows.shape
        if not 1 <= leaves <= min(rows, MOST_CODES):
            raise ValueError(
                f"rows must be at least as many as leaves, from 1 to {MOST_CODES:,}, got {rows} and {leaves}."
            )
        if self.rows.dtype != np.int64 or abs(self.rows).max() > LARGEST_ENTRY:
            raise ValueError(f"rows must have whole numbers from -{LARGEST_ENTRY:,} to {LARGEST_ENTRY:,}.")

    @cached_property
    def products(self) -> FloatArray:
        """AᵀA, float64, shape (leaves, leaves): whole numbers below 2³³, and so exact."""
        rows = self.rows.astype(np.float64)
        return rows.T @ rows

    @property
    def text(self) -> str:
        """The rows as text: their differences along the diagonals, which are small, compressed. `from_text` reads it."""
        moved = self.rows.astype(np.int16)
        moved[1:, 1:] -= self.rows[:-1, :-1].astype(np.int16)
        return f"{self.rows.shape[1]} {b85encode(compress(moved.astype('<i2').tobytes(), 9)).decode()}"

    @classmethod
    def from_text(cls, text: str) -> "Strategy":
        """Return the strategy of a text.

        Raises:
            ValueError: it is not one that `text` returns.
        """
        leaves, _, content = text.partition(" ")
        rows = np.frombuffer(decompress(b85decode(content)), dtype="<i2").reshape(-1, int(leaves)).astype(np.int64)
        for row in range(1, len(rows)):
            rows[row, 1:] += rows[row - 1, :-1]
        return cls(rows)


Strategies = Mapping[int, Strategy]  # by the number of the axis that each measures

NO_STRATEGIES: Strategies = MappingProxyType({})


def text_of(strategies: Strategies) -> str:
    """Return strategies as text, a line for each; of a single first axis the text of its strategy alone."""
    if [*strategies] == [0]:
        return strategies[0].text
    return "\n".join(f"{axis}:{of.text}" for axis, of in strategies.items())


def strategies_of(text: str) -> Strategies:
    """Return the strategies of a text that `text_of` returns."""
    lines = (line.rpartition(":") for line in text.splitlines())
    return {int(axis or 0): Strategy.from_text(own) for axis, _, own in lines}


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """What is measured of a table some of whose axes have strategies: combinations of the counts of all areas of these.

    Attributes:
        sizes: of the table, areas per axis.
        strategies: of the axes that have them.
    """

    sizes: tuple[int, ...]
    strategies: Strategies

    def __post_init__(self) -> None:
        """Refuse combinations that may leave 64 bits.

        Raises:
            ValueError: the largest weights multiply to more than 2**22.
        """
        if math.prod(int(abs(of.rows).max()) for of in self.strategies.values()) > LARGEST_ENTRY**2:
            raise ValueError(f"the largest weights must multiply to at most {LARGEST_ENTRY**2:,}.")

    @property
    def nodes(self) -> int:
        """Within how many nodes of the other axes leaves are combined."""
        return math.prod(size for axis, size in enumerate(self.sizes) if axis not in self.strategies)

    def of(self, counts: IntArray) -> IntArray:
        """Return the combinations of whole counts, exactly, int64, one dimension per axis.

        Args:
            counts: of all cells of the table, int64, in absolute value together at most 2**40.
        """
        found = counts.reshape(self.sizes)
        for axis, strategy in self.strategies.items():
            rows = strategy.rows
            # whole numbers below 2⁵³ are exact as floats too, which are multiplied faster
            kind = np.float64 if int(abs(rows).max()) * int(abs(found).sum()) < 2**53 else np.int64
            products = np.tensordot(rows.astype(kind), found.astype(kind), (1, axis)).astype(np.int64)
            found = np.moveaxis(products, 0, axis)
        return found


def dense_axes(tree: Tree) -> tuple[int, ...]:
    """Return the numbers of the axes of a plan that strategies measure, where any do: those with an order and few enough codes."""
    return tuple(number for number in tree.ordered if tree.axes[number].areas(tree.axes[number].depth) <= MOST_CODES)


@dataclass(frozen=True, eq=False)
class Dense:
    """An axis that is measured by a strategy, as if it stood alone: as a side of a grid.

    Attributes:
        tree: of a single axis, of any levels.
        noise: σ² of each measured number.
    """

    tree: Tree
    strategy: Strategy
    noise: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a strategy of other leaves.

        Raises:
            ValueError: the tree has several axes, or other leaves than the strategy.
        """
        leaves = self.tree.possible_cells(self.tree.depth)
        if len(self.tree.axes) != 1 or leaves != self.strategy.rows.shape[1]:
            raise ValueError(
                f"a strategy must be of one axis with {leaves:,} leaves, got {self.strategy.rows.shape[1]:,}."
            )

    @property
    def precisions(self) -> list[float]:
        """Of the levels: the leaves alone are measured."""
        return [0.0] * self.tree.depth + [1 / self.noise]

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance of the least-squares values of the leaves, before counts are rounded, float64, shape (leaves, leaves), records squared."""
        return self.noise * covariance_of(self.strategy.products, total_is_known=False)

    @cached_property
    def given_total(self) -> FloatArray:
        """The same given the total."""
        return self.noise * covariance_of(self.strategy.products, total_is_known=True)

    @cached_property
    def shares(self) -> FloatArray:
        """The share of each leaf in what the total lacks, float64, shape (leaves,)."""
        of_leaves = self.covariance.sum(axis=1)
        shares: FloatArray = of_leaves / of_leaves.sum()
        return shares

    @cached_property
    def _prefixes(self) -> tuple[FloatArray, FloatArray]:
        """Of the sums of the first 0 to n leaves the shares of the total, and the covariance given it."""
        given = np.pad(self.given_total.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
        return np.append(0.0, self.shares.cumsum()), given

    @cached_property
    def nodes(self) -> TreeVariances:
        """The tree as `TreeVariances` see it; of what it says only what does not depend on variances is used."""
        return tree_variances(self.tree, [1.0] * (self.tree.depth + 1))

    @cached_property
    def total(self) -> float:
        """The variance that the total would have."""
        return float(self.covariance.sum())

    def moments_of(self, inside: Inside, boxes: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return of some sets of leaves the shares of the total, and the variances given that, float64, shape (boxes,)."""
        leaves, shares, rests = np.arange(len(self.shares)), np.zeros(boxes), np.zeros(boxes)
        for box in range(boxes):
            chosen = inside(0, leaves, leaves + 1, np.full_like(leaves, box)).astype(np.float64)
            if not chosen.all():  # given the total, nothing and everything are known
                shares[box], rests[box] = chosen @ self.shares, max(float(chosen @ self.given_total @ chosen), 0.0)
            else:
                shares[box] = 1.0
        return shares, rests

    def of_ranges(self, first: IntArray, stop: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the same of the ranges from a first leaf to the one before another."""
        shares, given = self._prefixes
        own = np.diagonal(given)
        rests = np.maximum(own[first] + own[stop] - 2 * given[first, stop], 0.0)
        is_known = (stop - first) % len(self.shares) == 0  # nothing or everything
        return np.where(is_known, stop > first, shares[stop] - shares[first]), np.where(is_known, 0.0, rests)

    def mean_variances(self, *, given_total: bool = False) -> dict[str, float]:
        """Return the mean variance of all queries of each workload, and that of the worst area, given the total or not, records squared."""
        return variances_by(self.given_total if given_total else self.covariance, self.tree.axes[0])

    def settle(self, noisy: Sequence[FloatArray | IntArray | None]) -> FloatArray:
        """Return the least-squares values of the leaves, many times, float64, shape (…, leaves).

        Args:
            noisy: of each level nothing, but of the leaves the measured numbers, shape (…, rows).
        """
        measured = noisy[-1]
        if measured is None:
            raise ValueError("the measured numbers of the leaves must be given.")
        values: FloatArray = measured @ self._solution
        return values

    @cached_property
    def _solution(self) -> FloatArray:
        return self.strategy.rows @ np.linalg.inv(self.strategy.products)

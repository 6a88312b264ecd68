r"""One axis of which every measured number is a whole-number combination of all leaves: a strategy of the matrix mechanism.

With the rows A, the measured numbers are :math:`y = A x + z` with independent discrete Gaussian noise z of scale σ. Their information on the
leaves x is :math:`X = A^T A / \sigma^2`, and least squares is :math:`\hat x = X^{-1} A^T y / \sigma^2`.
"""

from base64 import b85decode, b85encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import compress, decompress

import numpy as np

from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.unbiased.baselines import variances_by
from tasks.unbiased.variance import Inside, LevelVariances, TreeVariances, tree_variances

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


@dataclass(frozen=True, eq=False)
class Dense:
    """An axis that is measured by a strategy.

    Attributes:
        tree: of a single axis, of any levels.
        noise: σ² of each measured number.
        given: the exact count of everything; None where it is not published exactly.
        total_is_known: whether it is; a plan does not know the count itself.
    """

    tree: Tree
    strategy: Strategy
    noise: float
    given: int | None
    total_is_known: bool

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance of the least-squares values of the leaves, before counts are rounded, float64, shape (leaves, leaves), records squared."""
        return self.noise * covariance_of(self.strategy.products, total_is_known=self.total_is_known)

    @cached_property
    def _prefixes(self) -> FloatArray:
        """The covariance of the sums of the first 0 to n leaves, float64, shape (leaves + 1, leaves + 1)."""
        return np.pad(self.covariance.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))

    @cached_property
    def _nodes(self) -> TreeVariances:
        """The tree as `TreeVariances` see it; of what it says only what does not depend on variances is used."""
        return tree_variances(self.tree, [1.0] * (self.tree.depth + 1))

    @property
    def total(self) -> float:
        """The variance of the total; 0 where it is exact."""
        return self.levels[0].mean

    @property
    def noisy_levels(self) -> int:
        """How many levels have noise."""
        return self.tree.depth + 1 - self.total_is_known

    def of_boxes(self, first: Sequence[IntArray], stop: Sequence[IntArray]) -> FloatArray:
        """Return the variance of the sum over each of some ranges, which `in_ranges` describes, float64, shape (boxes,), records squared."""
        (begin,), (end,) = first, stop
        prefixes = self._prefixes
        variances = prefixes[begin, begin] + prefixes[end, end] - 2 * prefixes[begin, end]
        if self.total_is_known:
            variances[(end - begin) % self.strategy.rows.shape[1] == 0] = 0.0  # of nothing or everything
        return np.maximum(variances, 0.0)

    def variances_of(self, inside: Inside, boxes: int = 1) -> FloatArray:
        """Return the variance of the sum over each of some sets of leaves before rounding, float64, shape (boxes,), records squared."""
        leaves, found = np.arange(self.strategy.rows.shape[1]), np.zeros(boxes)
        for box in range(boxes):
            chosen = inside(0, leaves, leaves + 1, np.full_like(leaves, box)).astype(np.float64)
            is_exact = self.total_is_known and bool(chosen.all())
            found[box] = 0.0 if is_exact else max(float(chosen @ self.covariance @ chosen), 0.0)
        return found

    def of_cells(self, levels: Sequence[int], areas: Sequence[IntArray]) -> FloatArray:
        """Return the variances of areas of a level before rounding, float64, shape (cells,), records squared."""
        [axis] = self.tree.axes
        begins = axis.first_descendants(levels[0], axis.depth)
        return self.of_boxes([begins[areas[0]]], [begins[areas[0] + 1]])

    def of_level(self, levels: Sequence[int]) -> LevelVariances:
        """Return the least, the mean and the most variance of the areas of a level."""
        return self.levels[levels[0]]

    @cached_property
    def levels(self) -> list[LevelVariances]:
        """Of levels 0 to T the least, the mean and the most variance of an area."""
        [axis] = self.tree.axes
        every = [self.of_cells([level], [np.arange(axis.areas(level))]) for level in range(axis.depth + 1)]
        return [LevelVariances(float(of.min()), float(of.mean()), float(of.max())) for of in every]

    def whole_cells(self, inside: Inside) -> Iterator[tuple[tuple[int, ...], tuple[IntArray, ...]]]:
        """Yield the fewest areas of released levels that make up a set of leaves, as `TreeVariances.whole_cells`."""
        return self._nodes.whole_cells(inside)

    def runs_of_box(self, inside: Inside) -> int:
        """Return of how many runs of adjacent leaves a set of leaves is made."""
        return self._nodes.runs_of_box(inside)

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all queries of each workload, and that of the worst area, before rounding, records squared."""
        return variances_by(self.covariance, self.tree.axes[0])

    def settle(self, noisy: Callable[[int], IntArray]) -> FloatArray:
        """Return the least-squares values of all leaves, float64, shape (leaves,), records; they may be negative.

        What whole numbers near the values leave of the measured numbers is computed exactly, so that large counts lose nothing.

        Args:
            noisy: from the axis level of the leaves to the measured numbers, int64, shape (rows,).
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        rows, measured = self.strategy.rows, noisy(self.tree.depth)
        inverse = np.linalg.inv(self.strategy.products)

        def solved(numbers: IntArray) -> FloatArray:
            values: FloatArray = inverse @ (rows.T @ numbers)
            return values

        near = np.rint(solved(measured)).astype(np.int64)
        values = near + solved(measured - rows @ near)
        if self.given is not None:
            shares = inverse.sum(axis=1)
            values = values + (self.given - int(near.sum()) - float((values - near).sum())) * shares / shares.sum()
        return values


def dense(tree: Tree, strategy: Strategy, noise: float, given: int | None, *, total_is_known: bool) -> Dense:
    """Return an axis that is measured by a strategy; arguments as in `Dense`.

    Raises:
        ValueError: the tree has several axes, or other leaves than the strategy.
    """
    leaves = tree.possible_cells(tree.depth)
    if len(tree.axes) != 1 or leaves != strategy.rows.shape[1]:
        raise ValueError(f"a strategy must be of one axis with {leaves:,} leaves, got {strategy.rows.shape[1]:,}.")
    return Dense(tree, strategy, noise, given, total_is_known)

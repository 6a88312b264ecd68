"""Least squares for counts of cells that overlap: non-negative values of the leaves, nearest to all that was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.settle.newton_step import Incidence, newton_step
from tasks.tree.axis import FloatArray

_MOST_STEPS = 200
_FEW_STEPS = 25  # before the problem is approached from easier ones
# 1 / w of cells at least, where that of leaves is 1
_LEAST_INVERSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
_CLOSE = 1e-9  # of the largest count: how far sums may be from where they must be, if no step brings them nearer
_CLOSEST = 1e-13  # of the largest count: how near is near enough
_LEAST_LENGTH = 1e-13  # of a step, before the search along it ends
_ENOUGH = 1e-4  # share of the decrease that the slope promises
_ROUNDING = 1e-12  # of the terms of the objective


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Counts of the cells of a partition of some leaves, or of a part of them.

    Attributes:
        cell: int32, shape (leaves,): the cell of each leaf; -1 where the leaf is in none of the cells.
        values: float64, shape (cells,), records: noisy counts; may be negative.
        weight: of a squared deviation; inf where the counts are exact.
    """

    cell: NDArray[np.int32]
    values: FloatArray
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The dual problem; all weights are divided by the largest weight of a leaf.

    Attributes:
        own: b, shape (leaves,), records.
        per_weight: 1 / w_a, shape (leaves,) or one for all.
        incidence: A.
        counts: c, shape (p,), records.
        inverse: 1 / w_j, shape (p,); 0 where a count is exact.
    """

    own: FloatArray
    per_weight: float | FloatArray
    incidence: Incidence
    counts: FloatArray
    inverse: FloatArray

    def at(self, dual: FloatArray) -> "_Point":
        """Return y and φ at μ."""
        y = self.incidence.spread(dual)
        y *= self.per_weight
        np.subtract(self.own, y, out=y)
        np.maximum(y, 0, out=y)
        squares = float(dual @ (self.inverse * dual) + y @ (y / self.per_weight)) / 2
        linear = dual * self.counts
        return _Point(dual, y, squares + float(linear.sum()), squares + float(abs(linear).sum()))

    def gradient(self, point: "_Point") -> FloatArray:
        """Return F = μ/w + c − A y, shape (p,), records: by how much each cell's sum misses its estimate."""
        return self.inverse * point.dual + self.counts - self.incidence.sums(point.y)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The dual variables μ, shape (p,); y(μ), shape (leaves,); φ(μ), and the size of the terms that it is the sum of."""

    dual: FloatArray
    y: FloatArray
    value: float
    size: float


def settle_overlapping(values: FloatArray, weights: float | FloatArray, groupings: Sequence[Grouping]) -> FloatArray:
    r"""Return non-negative values of the leaves that are nearest to their own counts and to those of all groupings.

    .. math:: \min_{y \ge 0} \sum_a w_a (y_a - b_a)^2 + \sum_i w_i \|A_i y - c_i\|^2

    The dual has a variable for each cell, has no constraints, and its gradient is continuous and linear in pieces:

    .. math:: y(\mu) = \max(0,\, b - D A^T \mu), \quad D = \mathrm{diag}(1 / w_a)

    .. math:: \varphi(\mu) = \tfrac12 \sum_j \mu_j^2 / w_j + c \cdot \mu + \tfrac12 \sum_a w_a y_a(\mu)^2,
        \quad F = \nabla \varphi = \mu / w + c - A y(\mu)

    Newton's method with :math:`H = \mathrm{diag}(1 / w) + A D_{y > 0} A^T` and a search along each step ends at the
    minimum once the leaves above zero are found, usually after 5 to 20 steps. At F = 0, y is the answer.

    Args:
        values: b, float64, shape (leaves,), records; may be negative.
        weights: w_a > 0, of the leaves' own squared deviations: one for all, or float64 of shape (leaves,).
        groupings: A_i, c_i and w_i; in any order, nested or crossing. Cells without leaves are left out.
    Returns:
        y, float64, shape (leaves,), records, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic: the same input gives the same bits on the same machine. The
        answer is a projection: never further from the true counts than the noisy ones are, in the weighted norm. Where the weights of
        leaves and cells differ by a factor of thousands, those of cells may be limited. Memory is a few times that of `values`.
    Raises:
        ValueError: shapes or labels disagree, a weight is not positive, a value is not finite, or an exact count is negative.
        RuntimeError: exact counts contradict one another.
    Source:
        Fioretto, Lee and Van Hentenryck (2018) for the problem; Qi and Sun (1993) for semismooth Newton methods.
    """
    _check(values, weights, groupings)
    if not groupings or not len(values):
        return np.maximum(values, 0)
    problem = _posed(values, weights, groupings)
    point = _minimised(problem, np.zeros(len(problem.counts)), _FEW_STEPS) or _approached(problem)
    if point is None:
        raise RuntimeError("The overlapping counts cannot be settled: their exact counts contradict one another.")
    return point.y


def _minimised(problem: _Problem, dual: FloatArray, most_steps: int) -> _Point | None:
    """Return the minimum of φ, by Newton's method from some μ; None where it takes more steps."""
    scale = 1 + float(abs(problem.counts).max())
    point, before = problem.at(dual), np.inf
    for _ in range(most_steps):
        gradient = problem.gradient(point)
        missed = float(abs(gradient).max())
        if missed <= _CLOSEST * scale or (missed <= _CLOSE * scale and missed > before / 2):
            return point
        before = missed
        step = newton_step(problem.incidence, problem.per_weight, problem.inverse, point.y > 0, gradient)
        point = _search(problem, point, step, float(gradient @ step))
    return None


def _approached(problem: _Problem) -> _Point | None:
    """Return the minimum of φ by way of problems in which the weights of noisy counts are limited, less and less.

    Where many groupings say nearly the same, large weights make H nearly singular, and steps from afar lead nowhere. The
    minimum of a problem with smaller weights is near enough to begin from. Where the weights differ so much that floats end first, the
    last minimum that was found is the answer: sealed counts are settled whatever they are.
    """
    dual, is_noisy, point = np.zeros(len(problem.counts)), problem.inverse > 0, None
    for least in (*_LEAST_INVERSES, 0.0):
        limited = np.where(is_noisy, np.maximum(problem.inverse, least), problem.inverse)
        found = _minimised(replace(problem, inverse=limited), dual, _MOST_STEPS)
        if found is None:
            break
        point, dual = found, found.dual
    return point


def _posed(values: FloatArray, weights: float | FloatArray, groupings: Sequence[Grouping]) -> _Problem:
    """Return the dual problem. A cell without a leaf gets the count 0 and a finite weight, so that it has no part in it."""
    largest = float(np.max(weights))
    incidence = Incidence.of(
        [grouping.cell for grouping in groupings], [len(grouping.values) for grouping in groupings]
    )
    counts = np.concatenate([grouping.values for grouping in groupings])
    inverse = np.repeat([largest / grouping.weight for grouping in groupings], [len(of.values) for of in groupings])
    is_empty = incidence.sums(None) == 0
    counts[is_empty], inverse[is_empty] = 0, 1
    return _Problem(values, largest / weights, incidence, counts, inverse)


def _search(problem: _Problem, point: _Point, step: FloatArray, slope: float) -> _Point:
    """Return the point at the first of the lengths 1, 1/2, 1/4 … of a step at which φ has decreased enough."""
    length = 1.0
    while True:
        found = problem.at(point.dual + length * step)
        allowed = point.value + _ENOUGH * length * slope + _ROUNDING * point.size
        if found.value <= allowed or length < _LEAST_LENGTH:
            return found
        length /= 2


def _check(values: FloatArray, weights: float | FloatArray, groupings: Sequence[Grouping]) -> None:
    """Refuse what is no problem of this kind."""
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("values must be finite, one for each leaf.")
    if np.ndim(weights) and np.shape(weights) != values.shape:
        raise ValueError(f"weights must be one for all leaves or one for each of {len(values)}.")
    if not (np.all(np.asarray(weights) > 0) and np.isfinite(weights).all()):
        raise ValueError("weights must be finite and > 0.")
    for at, grouping in enumerate(groupings):
        if not grouping.weight > 0:
            raise ValueError(f"groupings[{at}].weight must be > 0, got {grouping.weight}.")
        if not np.isfinite(grouping.values).all():
            raise ValueError(f"groupings[{at}].values must be finite.")
        if np.isinf(grouping.weight) and (grouping.values < 0).any():
            raise ValueError(f"groupings[{at}].values must be >= 0 where they are exact.")
        if grouping.cell.shape != values.shape:
            raise ValueError(f"groupings[{at}].cell must have a label for each of {len(values)} leaves.")
        if len(values) and not -1 <= grouping.cell.min() <= grouping.cell.max() < len(grouping.values):
            raise ValueError(f"groupings[{at}].cell must be from -1 to {len(grouping.values) - 1}.")

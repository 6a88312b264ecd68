"""Least squares over groupings that overlap, without negative leaves, and over nested ones for comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.settle.newton_step import Incidence, newton_step
from tasks.tree.axis import BoolArray, FloatArray, IntArray

_MOST_STEPS = 200
_FEW_STEPS = 25  # before the problem is approached from easier ones
# 1 / w of cells at least, where that of leaves is 1
_LEAST_INVERSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
_CLOSE = 1e-9  # of the largest count: how far sums may be from where they must be, if no step brings them nearer
_CLOSEST = 1e-13  # of the largest count: how near is near enough
_NEAR = 1e-3  # of the largest count: how near is near enough to begin the next problem from
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
        inside = point.y > 0  # mostly of few leaves
        sums = self.incidence.restricted(inside).sums(point.y[inside])
        return self.inverse * point.dual + self.counts - sums


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


def _minimised(problem: _Problem, dual: FloatArray, most_steps: int, near: float = _CLOSEST) -> _Point | None:
    """Return the minimum of φ, by Newton's method from some μ, so near in all sums; None where it takes more steps."""
    scale = 1 + float(abs(problem.counts).max())
    point, before = problem.at(dual), np.inf
    for _ in range(most_steps):
        gradient = problem.gradient(point)
        missed = float(abs(gradient).max())
        if missed <= near * scale or (missed <= _CLOSE * scale and missed > before / 2):
            return point
        before = missed
        step = newton_step(problem.incidence, problem.per_weight, problem.inverse, point.y > 0, gradient)
        point = _search(problem, point, step, float(gradient @ step))
    return None


def _approached(problem: _Problem) -> _Point | None:
    """Return the minimum of φ by way of problems in which the weights of noisy counts are limited, less and less.

    Where many groupings say nearly the same, large weights make H nearly singular, and steps from afar lead nowhere. The
    minimum of a problem with smaller weights, found nearly, is near enough to begin from. Where the weights differ so much that floats end
    first, the last minimum that can be found is the answer: sealed counts are settled whatever they are.
    """
    dual, is_noisy, posed = np.zeros(len(problem.counts)), problem.inverse > 0, list[_Problem]()
    for least in (*_LEAST_INVERSES, 0.0):
        posed.append(replace(problem, inverse=np.where(is_noisy, np.maximum(problem.inverse, least), problem.inverse)))
        minimum = _minimised(posed[-1], dual, _MOST_STEPS, _NEAR if least else _CLOSEST)
        if minimum is None:
            break
        dual = minimum.dual
    else:
        return minimum
    return next(filter(None, (_minimised(of, dual, _MOST_STEPS) for of in reversed(posed[:-1]))), None)


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
        tried = problem.at(point.dual + length * step)
        allowed = point.value + _ENOUGH * length * slope + _ROUNDING * point.size
        if tried.value <= allowed or length < _LEAST_LENGTH:
            return tried
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


def settle_nested(
    values: FloatArray, weight: float, groupings: Sequence[Grouping], *, is_pruned: bool = False
) -> FloatArray:
    r"""Return the values of the leaves that are nearest to their own counts and to those of nested groupings; they may be negative.

    .. math:: \min_y w \|y - x\|^2 + \sum_i w_i \|A_i y - c_i\|^2, \qquad w_i = 1 / \sigma_i^2

    Two passes solve it. Up, with the estimates of the children of v adding up to s with variance t,

    .. math:: z_v = \frac{c_v / \sigma^2 + s / t}{1 / \sigma^2 + 1 / t}, \qquad v_v = \frac{1}{1 / \sigma^2 + 1 / t}

    and down, where u is the parent of v and the sums are over the children of u,

    .. math:: y_v = z_v + \frac{v_v}{\sum v} \left( y_u - \sum z \right)

    Args:
        values: x, float64, shape (leaves,), records.
        weight: w > 0, of a squared deviation of a leaf; inf where the counts are exact.
        groupings: from coarse to fine; each refines the one before, and every cell holds a leaf. Their weights are likewise.
        is_pruned: whether a cell with z <= 0 is 0 before the downward pass, with everything below it. The cells beside it
            then share what is left of their parent.
    Returns:
        y, float64, shape (leaves,), records.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Counts that add up are returned as they are, unless pruned.
    Raises:
        ValueError: a weight is not above 0, a leaf is in no cell, a cell holds no leaf, or a grouping does not refine the one
            before.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010), for any variances and numbers of children; Fioretto, Lee and Van Hentenryck
        (2018) for pruning.
    """
    parents = _parents(len(values), groupings)
    if not all(of > 0 for of in (weight, *(grouping.weight for grouping in groupings))):
        raise ValueError("every weight must be > 0.")
    estimates, variances = _up(values, 1 / weight, groupings, parents)
    kept = _kept(estimates, parents) if is_pruned else [np.ones(len(of), dtype=bool) for of in estimates]
    return _down(estimates, variances, kept, parents)


def _parents(leaves: int, groupings: Sequence[Grouping]) -> list[NDArray[np.int32]]:
    """Return for every grouping but the first, and for the leaves, the cell of the grouping before that holds each cell."""
    parents = []
    for at, coarse in enumerate(groupings):
        fine = groupings[at + 1].cell if at + 1 < len(groupings) else np.arange(leaves)
        size = len(groupings[at + 1].values) if at + 1 < len(groupings) else leaves
        if coarse.cell.shape != (leaves,) or coarse.cell.min(initial=0) < 0:
            raise ValueError(f"groupings[{at}] must have a cell for each of {leaves} leaves.")
        if len(np.unique(coarse.cell)) != len(coarse.values):
            raise ValueError(f"groupings[{at}] must have a leaf in every cell.")
        parent = np.empty(size, dtype=np.int32)
        parent[fine] = coarse.cell
        if (parent[fine] != coarse.cell).any():
            raise ValueError(f"groupings[{at}] must be refined by the grouping after it.")
        parents.append(parent)
    return parents


def _up(
    values: FloatArray, variance: float, groupings: Sequence[Grouping], parents: Sequence[NDArray[np.int32]]
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the estimates of the cells of all groupings and then of the leaves, each from what is below it, and their variances."""
    estimates, variances = [values], [np.full(len(values), variance)]
    for grouping, parent in zip(reversed(groupings), reversed(parents), strict=True):
        cells, own = len(grouping.values), 1 / grouping.weight
        below, of_below = (np.bincount(parent, of, cells) for of in (estimates[0], variances[0]))
        # the share of the own count in the mean; all of it where both are exact
        share = np.divide(of_below, own + of_below, out=np.ones(cells), where=own + of_below > 0)
        estimates.insert(0, share * grouping.values + (1 - share) * below)
        variances.insert(0, share * own)
    return estimates, variances


def _kept(estimates: Sequence[FloatArray], parents: Sequence[NDArray[np.int32]]) -> list[BoolArray]:
    """Return which cells are not pruned: their estimate is above 0, and so is that of every cell above them."""
    kept = [estimates[0] > 0]
    for estimate, parent in zip(estimates[1:], parents, strict=True):
        kept.append((estimate > 0) & kept[-1][parent])
    return kept


def _down(
    estimates: Sequence[FloatArray],
    variances: Sequence[FloatArray],
    kept: Sequence[BoolArray],
    parents: Sequence[NDArray[np.int32]],
) -> FloatArray:
    """Return the values of the leaves: every family adds up to its parent, and its uncertain estimates give way most."""
    settled = np.where(kept[0], estimates[0], 0.0)
    for estimate, variance, is_kept, parent in zip(estimates[1:], variances[1:], kept[1:], parents, strict=True):
        own, weight = np.where(is_kept, estimate, 0.0), np.where(is_kept, variance, 0.0)
        missing = settled - np.bincount(parent, own, len(settled))
        total = np.bincount(parent, weight, len(settled))
        # no cell gives way where all are exact, or pruned
        per_weight = np.divide(missing, total, out=np.zeros(len(settled)), where=total > 0)
        settled = own + weight * per_weight[parent]
    return settled


def nearest_counts(values: FloatArray) -> IntArray:
    """Return the nearest whole numbers >= 0, int64, of the same shape."""
    return np.rint(np.maximum(values, 0)).astype(np.int64)

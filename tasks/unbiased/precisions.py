r"""How precisely each level of a tree is measured: named choices, and those that are best for a workload or for targets.

A level's precision is :math:`p_l = 1 / \sigma_l^2`; all of them cost :math:`2 \rho = \sum_l c_l p_l` with :math:`c_l = \Delta_2^2` of the
level. What least squares makes of them depends on

.. math:: w_l = p_l + w_{l + 1} / b_{l + 1}, \qquad w_T = p_T

where :math:`b_l` is how many children a node of level l - 1 has: :math:`1 / w_l` is the variance of the estimate of a node of level l
from its subtree. Precisions are >= 0, so :math:`u_l = w_l / (b_1 \cdots b_l)` never rises from a level to the next.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tasks.tree.axis import AxisLevels, FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.unbiased.variance import cascade_of, portions_of, tree_variances
from tasks.unbiased.workloads import level_weights, mean_variances

MOST_REFINED = 2**12  # leaves of a tree with uneven fan-outs for whose very shape a workload's precisions are found

_SAME = 1e-9  # relative: how much u has to fall for a level to be measured, and worst nodes to differ from the model
_LEAST = 1e-5  # of the largest precision: what is below it is not measured
_ROUNDS = 30  # in which targets are corrected for uneven fan-outs, at most
_STEPS = 20_000  # towards the fixed point of the multipliers, at most
_HALVINGS = 10  # of the price of a total that a unit moves only if it moves all else by less
_GAP = 1e-12  # relative, between a cost and the least
_LOST = 2.0**-40  # relative, of sums of costs: more than floats lose
_DENOMINATOR = 10**12  # of a precision as a share of the largest, at most


def mean_fan_outs(tree: Tree) -> FloatArray:
    """Return the mean number of children of the nodes of levels 0 to T - 1, float64, shape (T,)."""
    return np.array([tree.possible_cells(level + 1) / tree.possible_cells(level) for level in range(tree.depth)])


def most_fan_outs(tree: Tree) -> FloatArray:
    """Return the most children that a node of levels 0 to T - 1 has, float64, shape (T,)."""
    refined = map(tree.refined, range(tree.depth))
    return np.array([tree.axes[axis].most_children(own_level) for axis, own_level in refined], dtype=np.float64)


def uniform(fan_outs: FloatArray) -> FloatArray:
    """Return equal precisions of all levels.

    Args:
        fan_outs: mean number of children of the nodes of levels 0 to T - 1, >= 1, float64, shape (T,).
    Returns:
        Relative precisions of levels 0 to T, float64, shape (T + 1,); 0 for a level of only children, which repeats the one above.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010).
    """
    return np.append(True, fan_outs > 1).astype(np.float64)


def cascade(tree: Tree) -> FloatArray:
    """Return the precisions of the most precise nodes of levels 0 to T where every node has the variance 1, float64, shape (T + 1,).

    Those of the other nodes of a level are `portions_of` the tree times as large.
    """
    return np.array([of.max() for of in cascade_of(tree)])


def charges_paths(cascades: Collection[str], *, is_grid: bool, days: object, distinct: str | None) -> bool:
    """Return whether all levels are charged what the nodes on one path through the tree cost: not in a grid, over days, or with a promise."""
    return bool(cascades) and not (is_grid or days or distinct)


def path_part(tree: Tree, costs: Sequence[float | Fraction], *, is_replaced: bool) -> Fraction:
    r"""Return how much the costliest unit costs all nodes that its records meet, as a part of what it would if these were the most precise of their levels.

    A node costs in proportion to its precision. A record meets one node of each level. If it is replaced by another, both meet one of each
    level below the node where their paths part, and none above it. So it is the largest sum of costs over paths, or over pairs of them.

    Args:
        costs: what levels 0 to T, and then views beside them, cost alone, in any unit; 0 where nothing is measured.
        is_replaced: whether a record may be replaced by another: levels then cost twice what one end of that does, but for the total,
            which only a record moves that comes or goes.
    Returns:
        1 where one path, or pair, has the most precise nodes of all levels, as in every tree whose levels are measured evenly.
    Guarantees:
        It is rounded up by more than floats may have lost.
    """
    portions = portions_of(tree)
    if all(of.size == 1 for of in portions):
        return Fraction(1)
    exact = [Fraction(cost) for cost in costs]
    own = [float(cost / sum(exact)) for cost in exact]  # the same for any unit of cost, to the last digit
    most = [np.ones_like(of) for of in portions]
    part = _dearest(tree, own, portions, is_replaced) / _dearest(tree, own, most, is_replaced)
    return Fraction(1) if part == 1 else min(Fraction(1), Fraction(part * (1 + _LOST)))


def _dearest(tree: Tree, costs: Sequence[float], portions: Sequence[FloatArray], is_replaced: bool) -> float:
    """Return what the costliest unit costs, where nodes cost some portions of what their levels do."""
    ends, beside = 2 if is_replaced else 1, sum(costs[tree.depth + 1 :])
    path, pair = costs[tree.depth] / ends * portions[-1], np.zeros((1,) * len(tree.axes))
    for level in reversed(range(tree.depth)):
        axis, own_level = tree.refined(level)
        first = tree.axes[axis].first_child[own_level]
        path, second = _largest_two(path, first, axis)
        pair = np.maximum(_largest_two(pair, first, axis)[0], path + second)
        if level:
            path = path + costs[level] / ends * portions[level]
    comes = costs[0] + float(path.max()) + beside / ends
    return max(comes, float(pair.max()) + beside) if is_replaced else comes


def _largest_two(values: FloatArray, first: IntArray, axis: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest and the second largest value of the children of each area of an axis; -inf for a second one where there is none."""
    fan_out = np.diff(first).reshape([-1 if number == axis else 1 for number in range(values.ndim)])
    if values.shape[axis] == 1:
        return values, np.where(fan_out > 1, values, -np.inf)
    largest = np.maximum.reduceat(values, first[:-1], axis)
    is_largest = values == np.repeat(largest, fan_out.ravel(), axis)
    second = np.maximum.reduceat(np.where(is_largest, -np.inf, values), first[:-1], axis)
    is_twice = np.add.reduceat(is_largest.astype(np.int64), first[:-1], axis) > 1
    return largest, np.where(is_twice, largest, second)


def worst_node(fan_outs: FloatArray) -> FloatArray:
    r"""Return the precisions with which all nodes have the same variance, 1, if those of a level have equally many children.

    They have :math:`w_l = b_l / (b_l + 1)` and :math:`w_0 = 1`. Arguments and result are those of `uniform`, but with the most children of a
    node in place of the mean. In a complete tree they are those of `cascade`, and no other unbiased linear mechanism with Gaussian noise has a
    less variable worst node at the same ρ under add_remove.

    Guarantees:
        In any tree no node has a variance above 1: a level has the largest precision that `cascade` gives any of its nodes or more, and more
        precise measurements never make least squares worse.
    """
    own = fan_outs[fan_outs > 1]
    return _precisions(np.append(1.0, own / (own + 1)), fan_outs)


def wavelet(fan_outs: FloatArray) -> FloatArray:
    r"""Return the precisions of Haar wavelets, all of whose coefficients have the same noise.

    All :math:`w_l` below level 0 are the same, and level 0 is not measured. Arguments and result are those of `uniform`.

    Source:
        Xiao, Wang and Gehrke (2010), for two children.
    """
    own = fan_outs[fan_outs > 1]
    return _precisions(np.append(1.0, np.full(len(own), own[:1].prod())), fan_outs)


def for_workload(
    workload: str, tree: Tree, squares: Sequence[float], ordered: Collection[int], *, is_either: bool = False
) -> FloatArray:
    """Return the relative precisions with which the queries of a workload have the least mean variance, whatever ρ is.

    Args:
        workload: one of `WORKLOADS`.
        is_either: whether a unit moves either the total or all other levels by Δ₂, and these by half of Δ₂² in the first case.
    Returns:
        As `uniform`; 0 where level 0 is exact, and where a level is better not measured.
    """
    fan_outs, costs = mean_fan_outs(tree), np.asarray(squares, dtype=np.float64)
    own = np.append(True, fan_outs > 1)
    weights = level_weights(workload, tree, ordered)[own]

    def best(of: FloatArray) -> FloatArray:
        return _precisions(_least_error(weights, of[own], fan_outs[own[1:]]), fan_outs)

    if is_either:
        costs = _at_balance(best, costs)
    precisions = best(costs)
    is_even = all(np.ptp(np.diff(first)) == 0 for axis in tree.axes for first in axis.first_child)
    if is_even or tree.possible_cells(tree.depth) > MOST_REFINED:
        return precisions
    return _refined(precisions, workload, tree, costs, ordered)


def for_targets(
    most: Mapping[int, float], tree: Tree, squares: Sequence[float], *, is_either: bool = False
) -> FloatArray:
    r"""Return the precisions that cost least among those with which the nodes of some levels have at most some variances.

    A node of level k has the variance :math:`V_k = V_{k - 1} / b_k^2 + (1 - 1 / b_k) / w_k`. This is convex in w, as is the set of w, and
    the cost is linear. For weights λ of the targets the best w is that of a workload, so what is left is to maximise a concave
    function of λ.

    Args:
        most: by level, the largest variance that any of its nodes may have, > 0, records squared. If the finest level has none, it
            takes that of the nearest level above that has.
        is_either: as for `for_workload`.
    Returns:
        Precisions of levels 0 to T, float64, shape (T + 1,), as they are; 0 where level 0 is exact, and where a level is better
        not measured.
    Raises:
        ValueError: no level has a target, one is not above 0, or there is no such level.
    """
    finest = max(most, default=-1)
    if not 0 <= finest <= tree.depth or min(most) < 0 or not all(variance > 0 for variance in most.values()):
        raise ValueError(f"targets must be variances > 0 of levels from 0 to {tree.depth}, got {dict(most)}.")
    bounds: dict[AxisLevels, float] = {
        (level,): variance for level, variance in {tree.depth: most[finest], **most}.items()
    }

    def cheapest(of: FloatArray) -> FloatArray:
        return _cheapest(bounds, [tree], [of])[0]

    costs = np.asarray(squares, dtype=np.float64)
    return cheapest(_at_balance(cheapest, costs) if is_either else costs)


def for_targets_of_tables(most: Mapping[AxisLevels, float], trees: Sequence[Tree]) -> list[FloatArray]:
    r"""Return precisions of the levels of some trees whose products cost least among those that keep the variances of the cells of some tables.

    The cells of a level of each tree have the product of the variances of their nodes, and all tables cost the product of
    :math:`\sum_l p_l` over the trees. The cost of a tree is
    :math:`w_0 + \sum_l (1 - 1 / b_l) w_l`, so that cost, variances and the bounds :math:`p_l \ge 0`, which are
    :math:`w_{l + 1} \le b_{l + 1} w_l`, are sums of products of powers of w with weights >= 0: a geometric programme, which is
    convex in the logarithms. So a point that satisfies the conditions of optimality is the best. Alternating between the trees does not
    find it: once all targets are reached, neither can change alone.

    Args:
        most: by a level of each tree, the largest variance that any of their cells may have, > 0, records squared. If
            the finest table has none, it takes the largest.
    Returns:
        p of each tree, float64, shapes (T + 1,). The cost is the least where all nodes of a level have equally many children; elsewhere the worst
        cell meets its target too.
    Raises:
        ValueError: no table has a target, one is not above 0, or there is no such table.
    Source:
        Boyd, Kim, Vandenberghe and Hassibi (2007), A tutorial on geometric programming.
    """
    finest = tuple(tree.depth for tree in trees)
    is_table = all(0 <= level <= depth for levels in most for level, depth in zip(levels, finest, strict=True))
    if not (most and is_table and all(variance > 0 for variance in most.values())):
        raise ValueError(f"targets must be variances > 0 of tables with levels up to {finest}, got {dict(most)}.")
    return _cheapest({finest: max(most.values()), **most}, trees, [np.ones(depth + 1) for depth in finest])


def _cheapest(most: Mapping[AxisLevels, float], trees: Sequence[Tree], costs: Sequence[FloatArray]) -> list[FloatArray]:
    """Return, for each tree, the precisions with which products of the trees' variances keep their bounds, at the least product of costs."""
    fan_outs, bounds = [mean_fan_outs(tree) for tree in trees], np.array(list(most.values()))
    levels, sides = np.array(list(most)).T, list[_Side]()
    for of_tree, cost, at in zip(fan_outs, costs, levels, strict=True):
        own = np.append(True, of_tree > 1)
        per_inverse = _per_inverse(of_tree[own[1:]], is_exact=not cost[0])[np.cumsum(own)[at] - 1]
        sides.append(_Side(per_inverse, cost[own], of_tree[own[1:]]))
    aims = bounds
    for _ in range(_ROUNDS):  # the means of uneven fan-outs may give a worst node more than its bound
        best = _least_cost([sides[0]._replace(per_inverse=sides[0].per_inverse / aims[:, None]), *sides[1:]])
        precisions = [_precisions(w, of_tree) for w, of_tree in zip(best, fan_outs, strict=True)]
        meant, worst = np.ones_like(bounds), np.ones_like(bounds)
        for w, side, tree, of, cost, at in zip(best, sides, trees, precisions, costs, levels, strict=True):
            of_levels = tree_variances(tree, _with_exact(of, cost)).levels
            meant *= side.per_inverse @ (1 / w)
            worst *= [of_levels[level].most for level in at]
        if np.allclose(worst, meant, rtol=_SAME, atol=0):
            break
        aims = bounds * np.divide(meant, worst, out=np.ones_like(worst), where=worst > 0)
    return [precisions[0] * float((worst / bounds).max()), *precisions[1:]]


def _at_balance(best: Callable[[FloatArray], FloatArray], costs: FloatArray) -> FloatArray:
    """Return costs whose best precisions are best where a unit moves either the total or everything else.

    With R_0 the cost of the total and R that of all other levels, such precisions cost the larger of R and R_0 + R/2. That is convex, and
    the largest of the costs in which the total is dearer or cheaper by a factor from 0 to 2, and the rest cheaper or dearer. So the
    factor is right at which both kinds of unit cost the same.
    """

    def priced(factor: float) -> FloatArray:
        return np.append(factor * costs[0], costs[1:])

    def is_precise(factor: float) -> bool:
        each = best(priced(factor)) * costs
        return bool(2 * each[0] >= each[1:].sum())

    low, high = 0.0, 2.0
    if is_precise(high):
        return priced(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_precise(middle) else (low, middle)
    return priced(high)


def costs_of(precisions: FloatArray, squares: Sequence[int]) -> tuple[Fraction, ...]:
    """Return what each measured level costs in proportion to the others, coarse to fine; simple fractions where there are some.

    Args:
        precisions: relative, of levels 0 to T, float64, shape (T + 1,); a level with 0 is not measured.
        squares: Δ₂² of levels 0 to T; 0 for level 0 where it is exact, and then it is not measured.
    """
    return tuple(
        Fraction(precision).limit_denominator(_DENOMINATOR) * square
        for precision, square in zip((precisions / precisions.max()).tolist(), squares, strict=True)
        if precision and square
    )


def twice_rho(precisions: FloatArray, squares: Sequence[float] | FloatArray) -> float:
    """Return 2ρ, the cost of precisions as they are; arguments as for `costs_of`."""
    return float(sum(precision * square for precision, square in zip(precisions, squares, strict=True) if square))


def _refined(
    precisions: FloatArray, workload: str, tree: Tree, costs: FloatArray, ordered: Collection[int]
) -> FloatArray:
    """Return precisions that are no worse for a workload, by its exact mean variance; the same where that is not known."""
    from scipy.optimize import minimize  # only where it is used: it takes a fifth of a second to import

    free = (costs > 0) & np.append(True, mean_fan_outs(tree) > 1)

    def error(of_levels: FloatArray) -> float:
        variance = mean_variances(tree_variances(tree, _with_exact(of_levels, costs)), ordered)[workload]
        return math.log(variance * twice_rho(of_levels, costs))

    def of_levels(logarithms: FloatArray) -> FloatArray:
        levels = np.zeros(len(free))
        levels[free] = np.exp(logarithms)
        return levels

    if workload not in mean_variances(tree_variances(tree, _with_exact(precisions, costs)), ordered):
        return precisions
    begin = np.log(np.maximum(precisions[free] / precisions.max(), _LEAST))
    bounds = [(math.log(_LEAST), -math.log(_LEAST))] * len(begin)
    end = of_levels(minimize(lambda at: error(of_levels(at)), begin, method="L-BFGS-B", bounds=bounds).x)
    end[end < 2 * _LEAST] = 0.0
    return min((precisions, end), key=error)


def _with_exact(precisions: FloatArray, costs: FloatArray) -> list[float]:
    """Return precisions with inf for a level that is exact."""
    return [precision if cost else math.inf for precision, cost in zip(precisions.tolist(), costs, strict=True)]


def _precisions(w: FloatArray, fan_outs: FloatArray) -> FloatArray:
    """Return the precisions of all levels, from w of those that do not repeat the one above."""
    own = np.append(True, fan_outs > 1)
    nodes = np.cumprod(np.append(1.0, fan_outs))[own]
    u = w / nodes
    falls = -np.diff(u, append=0.0)
    precisions = np.zeros(len(own))
    precisions[own] = nodes * np.where(falls > _SAME * u, falls, 0.0)
    return precisions


def _least_error(weights: FloatArray, costs: FloatArray, fan_outs: FloatArray) -> FloatArray:
    r"""Return the w that minimises :math:`\sum_l m_l / w_l + \sum_l (c_l - c_{l - 1} / b_l) w_l` such that u never rises.

    By itself each w would be the square root of a ratio. Levels at which u would rise are pooled: they have one u, and of their
    precisions only the last is not 0 (pool adjacent violators).

    Args:
        weights: m, >= 0, shape (levels,).
        costs: c, shape (levels,); where c_0 is 0, level 0 is exact and has no part in the sums; its u is that of level 1.
        fan_outs: b, > 1, shape (levels - 1,).
    Raises:
        ValueError: there is no other level than one that is exact.
    """
    first = int(costs[0] == 0)
    if len(costs) == first:
        raise ValueError("there must be a level that is not exact.")
    nodes = np.cumprod(np.append(1.0, fan_outs))
    gains, prices = (weights / nodes).tolist(), (nodes * (costs - np.append(0.0, costs[:-1] / fan_outs))).tolist()
    pools = list[tuple[float, float, int]]()
    for pool in zip(gains[first:], prices[first:], [1] * (len(costs) - first), strict=True):
        while pools and _u(pool) >= _u(pools[-1]) * (1 - _SAME):
            before = pools.pop()
            pool = (pool[0] + before[0], pool[1] + before[1], pool[2] + before[2])
        pools.append(pool)
    u = np.repeat([_u(pool) for pool in pools], [size for *_, size in pools])
    best: FloatArray = nodes * np.append(u[:first], u)
    return best


def _u(pool: tuple[float, float, int]) -> float:
    gain, price, _ = pool
    return math.sqrt(gain / price) if price > 0 else math.inf


def _per_inverse(fan_outs: FloatArray, *, is_exact: bool) -> FloatArray:
    """Return by how much 1 / w of each level raises the variance of the nodes of each level, float64, shape (levels, levels)."""
    nodes = np.cumprod(np.append(1.0, fan_outs))
    own = np.append(float(not is_exact), 1 - 1 / fan_outs)
    return np.tril(own * (nodes / nodes[:, None]) ** 2)


class _Side(NamedTuple):
    """A tree of which targets are about a product of variances.

    Attributes:
        per_inverse: what 1 / w of each level adds to the variance of the level of each target, float64, shape (targets, levels).
        costs: as in `_least_error`.
        fan_outs: likewise.
    """

    per_inverse: FloatArray
    costs: FloatArray
    fan_outs: FloatArray


def _least_cost(sides: Sequence[_Side]) -> list[FloatArray]:
    r"""Return the w of each tree, of the least product of costs, with which no product of variances is above 1.

    For multipliers λ of the targets, and given the others, the w of least cost is that of a workload. The products V of variances are the
    gradient of a concave function of λ, whose maximum has :math:`\lambda_k V_k = \lambda_k`; the fixed point of that is sought. The cost is
    within :math:`\max V \sum \lambda / \sum \lambda V` of the least, once each w is the best given the others.
    """
    targets = len(sides[0].per_inverse)
    multipliers, variances, best = np.ones(targets), np.ones((len(sides), targets)), [np.ones(0)] * len(sides)
    for _ in range(_STEPS):
        before = variances.copy()
        for number, (per_inverse, costs, fan_outs) in enumerate(sides):
            others = np.delete(variances, number, axis=0).prod(axis=0)
            best[number] = _least_error((multipliers * others) @ per_inverse, costs, fan_outs)
            variances[number] = per_inverse @ (1 / best[number])
        ratios = variances.prod(axis=0)
        is_joint = len(sides) == 1 or np.allclose(variances, before, rtol=_SAME, atol=0)
        if is_joint and ratios.max() * multipliers.sum() <= (1 + _GAP) * (multipliers @ ratios):
            break
        multipliers *= ratios
    return [best[0] * ratios.max(), *best[1:]]

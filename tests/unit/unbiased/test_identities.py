"""Cascade and its relatives in exact fractions: one mechanism, with independent noise on all nodes of a tree."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from tests.support.shapes import complete, incidences, tree_by

Matrix = np.ndarray  # of fractions
Node = list  # a node is the list of its children; a leaf is empty

ONE, THIRD = Fraction(1), Fraction(1, 3)


def fractions_of(matrix: np.ndarray) -> Matrix:
    """Return a matrix of whole numbers as fractions."""
    return np.array([[Fraction(int(entry)) for entry in row] for row in matrix], dtype=object)


def identity(n: int) -> Matrix:
    """Return the identity."""
    return fractions_of(np.eye(n))


def information(depth: int, precisions: list[Fraction]) -> Matrix:
    """Return X, the sum over levels of p AᵀA, of a complete binary tree."""
    levels = map(fractions_of, incidences(tree_by(complete(2, depth))))
    return sum(precision * of.T @ of for precision, of in zip(precisions, levels, strict=True))


def cascaded(depth: int) -> Matrix:
    """Return the covariance of the paper's sampler: the noise of a node is half that of its parent, plus or minus its own draw.

    The root has a draw of variance 1, and the two children of a node share one of variance 3/4, with opposite signs.
    """
    half, leaves = Fraction(1, 2), [np.array([ONE], dtype=object)]  # per node, the weights of all draws so far
    draws = [ONE]
    for _ in range(depth):
        below = []
        for number, weights in enumerate(leaves):
            own = np.array([Fraction(int(number == other)) for other in range(len(leaves))], dtype=object)
            below += [np.append(half * weights, own), np.append(half * weights, -own)]
        draws += [Fraction(3, 4)] * len(leaves)
        leaves = below
    weights = np.array(leaves)
    return weights @ np.diag(draws) @ weights.T


def shares(depth: int) -> list[Fraction]:
    """Return the precisions of cascade for nodes of variance 1: 2 : 1 … 1 : 2, in thirds."""
    return [2 * THIRD, *[THIRD] * (depth - 1), 2 * THIRD]


@pytest.mark.parametrize("depth", range(1, 6))
def test_independent_counts_of_all_nodes_are_the_cascade(depth: int) -> None:
    """With the shares 2 : 1 … 1 : 2 least squares has the covariance of the paper's sampler, entry by entry.

    The diagonal of A C Aᵀ is 1 at every level. A noisy total of variance 1, and of every node left minus right with variance 3, say
    as much as the noisy nodes.
    """
    covariance, of_nodes = cascaded(depth), information(depth, shares(depth))
    assert (of_nodes @ covariance == identity(2**depth)).all()
    for of in map(fractions_of, incidences(tree_by(complete(2, depth)))):
        assert set(np.diag(of @ covariance @ of.T)) == {ONE}
    rows = [np.ones(2**depth, dtype=np.int64)]
    for size in (2**level for level in range(depth, 0, -1)):
        for first in range(0, 2**depth, size):
            row = np.zeros(2**depth, dtype=np.int64)
            row[first : first + size // 2], row[first + size // 2 : first + size] = 1, -1
            rows.append(row)
    contrasts = fractions_of(np.array(rows))
    assert (contrasts.T @ np.diag([ONE, *[THIRD] * (len(rows) - 1)]) @ contrasts == of_nodes).all()


def test_leaves_and_uniform_shares_are_the_flat_and_the_hierarchical_mechanism() -> None:
    """0 : 0 … 0 : 1 is noise on the leaves alone, and 1 : 1 … 1 has a record count once at each level."""
    assert (information(3, [0 * ONE, 0 * ONE, 0 * ONE, ONE]) == identity(8)).all()
    assert set(np.diag(information(3, [ONE] * 4))) == {Fraction(4)}


@pytest.mark.parametrize("fan_outs", [(2, 2, 2), (3,), (2, 5, 3), (4, 2)])
def test_precisions_and_contrasts_are_converted_into_one_another(fan_outs: tuple[int, ...]) -> None:
    """p_l = w_l - w_{l+1} / b_{l+1} undoes w_l = p_l + w_{l+1} / b_{l+1}, and 1 / w is the variance of an estimate from below."""
    precisions = [Fraction(3 + 2 * level, 7) for level in range(len(fan_outs) + 1)]
    w, below = [precisions[-1]], [1 / precisions[-1]]
    for precision, fan_out in zip(precisions[-2::-1], fan_outs[::-1], strict=True):
        w.insert(0, precision + w[0] / fan_out)
        below.insert(0, 1 / (precision + 1 / (fan_out * below[0])))
    assert [1 / of for of in w] == below
    later = [*(of / fan_out for of, fan_out in zip(w[1:], fan_outs, strict=True)), 0]
    assert [own - of for own, of in zip(w, later, strict=True)] == precisions


# Trees whose fan-outs and depths differ from node to node.


def drawn(generator: np.random.Generator, depth: int = 0) -> Node:
    """Return a random tree with one to four children, and leaves at different depths."""
    if depth == 4 or (depth and generator.random() < 0.35):
        return []
    return [drawn(generator, depth + 1) for _ in range(generator.integers(1, 5))]


def merged(node: Node) -> Node:
    """Return a tree without only children: each is one with its parent."""
    while len(node) == 1:
        node = node[0]
    return [merged(child) for child in node]


def precision(of_parent: int, own: int) -> Fraction:
    """Return the precision of a node of variance 1: b/(b + 1) for the siblings, less 1/(b + 1) for the children."""
    siblings = Fraction(of_parent, of_parent + 1) if of_parent else ONE
    return siblings - (Fraction(1, own + 1) if own else 0)


def below(node: Node, of_parent: int) -> Fraction:
    """Return the variance of the least-squares estimate of a node from its subtree."""
    together = sum(below(child, len(node)) for child in node)
    return 1 / (precision(of_parent, len(node)) + (1 / together if node else 0))


def released(node: Node, own: Fraction, of_parent: int = 0) -> list[Fraction]:
    """Return the variances of the least-squares values of a node, given its own, and of all below it."""
    found, variances = [own], [below(child, len(node)) for child in node]
    for child, variance in zip(node, variances, strict=True):
        share = variance / sum(variances)
        found += released(child, share**2 * own + variance * (1 - share), len(node))
    return found


def paths(node: Node, of_parent: int = 0, above: tuple = ()) -> list[tuple[tuple, Fraction]]:
    """Return for every leaf the nodes on its path, as tuples of positions, and the sum of their precisions."""
    own = precision(of_parent, len(node))
    if not node:
        return [((above,), own)]
    return [
        ((above, *path), own + cost)
        for number, child in enumerate(node)
        for path, cost in paths(child, len(node), (*above, number))
    ]


def continuation(node: Node) -> Fraction:
    """Return the largest sum of (b - 1)/(b + 1) over the nodes of a path that begins here."""
    if not node:
        return Fraction(0)
    return Fraction(len(node) - 1, len(node) + 1) + max(continuation(child) for child in node)


def substituted(node: Node) -> Fraction:
    """Return what the worst pair of leaves that part at this node or below it costs, times two."""
    if not node:
        return Fraction(0)
    largest = sorted(map(continuation, node))[-2:]
    here = Fraction(2 * len(node), len(node) + 1) + sum(largest)
    return max([here, *map(substituted, node)])


TREES = [merged(drawn(np.random.default_rng(seed))) for seed in range(200)]


def test_random_trees_are_worth_enumerating() -> None:
    """Most of the 200 have leaves at several depths and several numbers of children."""
    assert sum(len({len(path) for path, _ in paths(tree)}) > 1 for tree in TREES) > 100
    assert sum(len({len(node) for node in _inner(tree)}) > 1 for tree in TREES) > 100


def _inner(node: Node) -> list[Node]:
    return [node, *(of for child in node for of in _inner(child))] if node else []


@pytest.mark.parametrize("number", range(0, 200, 20))
def test_any_tree_has_one_variance_at_the_cost_of_its_worst_path_or_pair(number: int) -> None:
    """With a precision for each pair of fan-outs, above and below a node, all variances are 1 in 200 random trees.

    The formulas for 2ρ agree with the sum of precisions over every path, and over every pair of paths where they differ.
    """
    for tree in TREES[number : number + 20]:
        assert set(released(tree, below(tree, 0))) == {ONE}
        every = paths(tree)
        assert max(cost for _, cost in every) == 1 + continuation(tree)
        apart = [
            cost + of_other - 2 * sum(cost_of_node(tree, node) for node in set(one) & set(other))
            for (one, cost), (other, of_other) in combinations(every, 2)
        ]
        assert not apart or max(apart) == substituted(tree)


def cost_of_node(tree: Node, path: tuple) -> Fraction:
    """Return the precision of the node at a path."""
    of_parent, node = 0, tree
    for step in path:
        of_parent, node = len(node), node[step]
    return precision(of_parent, len(node))


# Two axes.


@pytest.mark.parametrize(("depth", "other"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_a_grid_is_the_product_of_two_cascades(depth: int, other: int) -> None:
    """Counts of all pairs of nodes, with the products of precisions, have the product of covariances, and cost as derived."""
    pairs = np.kron(information(depth, shares(depth)), information(other, shares(other)))
    assert (pairs @ np.kron(cascaded(depth), cascaded(other)) == identity(2 ** (depth + other))).all()
    product = (1 + Fraction(depth, 3)) * (1 + Fraction(other, 3))
    assert set(np.diag(pairs)) == {product}
    without_total = pairs - shares(depth)[0] * shares(other)[0]  # the pair of the two roots is exact, and not measured
    n = len(pairs)
    apart = max(
        without_total[i, i] + without_total[j, j] - 2 * without_total[i, j] for i, j in combinations(range(n), 2)
    )
    assert apart == 2 * product - Fraction(8, 9)

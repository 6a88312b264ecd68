"""Cascade and its relatives in exact fractions: one mechanism, with independent noise on all nodes of a tree."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from tests.support.shapes import complete, incidences, tree_by

Matrix = np.ndarray  # of fractions
Node = list  # a node is the list of its children; a leaf is empty

ONE, THIRD = Fraction(1), Fraction(1, 3)


def fractions_of(matrix):
    """Return a matrix of whole numbers as fractions."""
    return np.array([[Fraction(int(entry)) for entry in row] for row in matrix], dtype=object)


def cascaded(depth):
    """Return the covariance of the paper's sampler: the noise of a node is half that of its parent, plus or minus its own draw."""
    # The root has a draw of variance 1, and the two children of a node share one of variance 3/4, with opposite signs.
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


@pytest.mark.parametrize("depth", range(1, 6))
def test_independent_counts_of_all_nodes_are_the_cascade(depth):
    """With the shares 2 : 1 … 1 : 2 least squares has the covariance of the paper's sampler, entry by entry."""
    shares = [2 * THIRD, *[THIRD] * (depth - 1), 2 * THIRD]  # of nodes of variance 1
    levels = list(map(fractions_of, incidences(tree_by(complete(2, depth)))))
    information = sum(share * of.T @ of for share, of in zip(shares, levels, strict=True))
    covariance = cascaded(depth)
    assert (information @ covariance == fractions_of(np.eye(2**depth))).all()
    assert {of for level in levels for of in np.diag(level @ covariance @ level.T)} == {ONE}


def drawn(generator, depth=0):
    """Return a random tree with two to four children, and leaves at different depths: an only child is one with its parent."""
    if depth == 4 or generator.random() < (0.5 if depth else 0.02):
        return []
    return [drawn(generator, depth + 1) for _ in range(generator.integers(2, 5))]


def paths(node, of_parent=0, path=()):
    """Return for every leaf the nodes on its path, as tuples of positions, with their precisions."""
    own = {path: precision(of_parent, len(node))}
    below = [of for number, child in enumerate(node) for of in paths(child, len(node), (*path, number))]
    return [own | of for of in below] or [own]


def precision(of_parent, own):
    """Return the precision of a node of variance 1: b/(b + 1) for the siblings, less 1/(b + 1) for the children."""
    siblings = Fraction(of_parent, of_parent + 1) if of_parent else ONE
    return siblings - (Fraction(1, own + 1) if own else 0)


def below(node, of_parent):
    """Return the variance of the least-squares estimate of a node from its subtree."""
    together = sum(below(child, len(node)) for child in node)
    return 1 / (precision(of_parent, len(node)) + (1 / together if node else 0))


def released(node, own, of_parent=0):
    """Return the variances of the least-squares values of a node, given its own, and of all below it."""
    found, variances = [own], [below(child, len(node)) for child in node]
    for child, variance in zip(node, variances, strict=True):
        share = variance / sum(variances)
        found += released(child, share**2 * own + variance * (1 - share), len(node))
    return found


def continuation(node):
    """Return the largest sum of (b - 1)/(b + 1) over the nodes of a path that begins here."""
    if not node:
        return Fraction(0)
    return Fraction(len(node) - 1, len(node) + 1) + max(continuation(child) for child in node)


def substituted(node):
    """Return what the worst pair of leaves that part at this node or below it costs, times two."""
    if not node:
        return Fraction(0)
    largest = sorted(map(continuation, node))[-2:]
    here = Fraction(2 * len(node), len(node) + 1) + sum(largest)
    return max([here, *map(substituted, node)])


@pytest.mark.parametrize("number", range(0, 200, 20))
def test_any_tree_has_one_variance_at_the_cost_of_its_worst_path_or_pair(number):
    """With a precision for each pair of fan-outs, above and below a node, all variances are 1 in 200 random trees."""
    # The formulas for 2ρ agree with the sum of precisions over every path, and over every pair of paths where they differ.
    for tree in (drawn(np.random.default_rng(seed)) for seed in range(number, number + 20)):
        assert set(released(tree, below(tree, 0))) == {ONE}
        every = paths(tree)
        assert max(sum(of.values()) for of in every) == 1 + continuation(tree)
        apart = [sum(cost for _, cost in one.items() ^ other.items()) for one, other in combinations(every, 2)]
        assert not apart or max(apart) == substituted(tree)

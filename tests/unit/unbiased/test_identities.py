"""Cascade in exact fractions: independent noise on all nodes of a tree."""

from fractions import Fraction

import numpy as np
import pytest

from tests.support.shapes import complete, incidences, tree_by

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

"""Children that add up: in whatever order they are listed, and where some parents count 0."""

import numpy as np
import pytest

from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree, alternate
from tasks.validate.consistency import children_add_up
from tests.support.shapes import complete, tree_by


@pytest.fixture
def levels() -> tuple[Tree, Frontier, Frontier]:
    """Return a tree of two axes, and two of its levels: one parent counts 0, and is left out, though its children do not."""
    tree = tree_by(complete(2, 1), complete(2, 1))
    tree = Tree(tree.axes, alternate([1, 1], 1))  # the second axis first, so that the first one is refined last
    parents = Frontier(1, (np.zeros(1, dtype=np.int64), np.array([1])), np.array([5]))
    children = Frontier(2, (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), np.array([3, 7, -3, -2]))
    return tree, parents, children


def test_children_in_the_order_of_their_areas_add_up(levels: tuple[Tree, Frontier, Frontier]) -> None:
    """Children of one parent need not stand together, and those of a parent without a row must add up to 0."""
    tree, parents, children = levels
    assert children_add_up(tree, parents, children)
    assert children_add_up(tree, parents, children[np.array([0, 2, 1, 3])])
    for which in (0, 1):  # below a parent with a row, and below one without
        counts = children.counts.copy()
        counts[which] += 1
        assert not children_add_up(tree, parents, Frontier(2, children.areas, counts))

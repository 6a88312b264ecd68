"""Error metrics against sums over every cell, children that add up in whatever order, and bytes of files against a known release."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree, alternate
from tasks.validate.size import bytes_of_formats
from tasks.validate.task import children_add_up
from tasks.validate.utility import cell_errors, level_errors
from tests.support.shapes import complete, tree_by


def nodes_of(universe, level, counts):
    """Return every node of a level, with its count, in the order of the tree."""
    nodes = universe.nodes(level)
    areas = [universe.areas(node) for node in nodes]
    columns = tuple(np.array(column, dtype=np.int64) for column in zip(*areas, strict=True))
    return Frontier(level, columns, np.array(counts[: len(nodes)], dtype=np.int64))


def without_zeros(nodes):
    """Return the nodes that count something."""
    kept = nodes.counts != 0
    return Frontier(nodes.level, tuple(areas[kept] for areas in nodes.areas), nodes.counts[kept])


@given(st.data())
def test_errors_are_those_of_the_whole_level(universes, data):
    """Every measure is what a dense sum over all cells of the level gives; a negative count errs, and discovers nothing."""
    # The cells of a view are measured in the same way.
    universe = data.draw(universes)
    level = data.draw(st.integers(0, universe.tree.depth))
    cells = len(universe.nodes(level))
    true = data.draw(st.lists(st.integers(0, 5), min_size=cells, max_size=cells))
    counts = data.draw(st.lists(st.integers(-3, 5), min_size=cells, max_size=cells))
    truth, released = nodes_of(universe, level, true), nodes_of(universe, level, counts)
    found = level_errors(universe.tree, without_zeros(truth), without_zeros(released))

    x, y = np.array(true), np.array(counts)
    off = np.abs(x - y)
    either, there, out = (x != 0) | (y != 0), x != 0, y > 0
    assert found == cell_errors(level, x, y)
    assert found.level == level
    assert found.max_absolute == off.max()
    assert found.l1 == off.sum()
    assert found.mean_absolute == (off.sum() / either.sum() if either.any() else 0)
    assert found.false_discovery == ((out & ~there).sum() / out.sum() if out.any() else 0)
    assert found.false_negative == ((there & ~out).sum() / there.sum() if there.any() else 0)


def test_children_in_the_order_of_their_areas_add_up():
    """Children of one parent need not stand together, and those of a parent without a row must add up to 0."""
    tree = tree_by(complete(2, 1), complete(2, 1))
    tree = Tree(tree.axes, alternate([1, 1], 1))  # the second axis first, so that the first one is refined last
    parents = Frontier(1, (np.zeros(1, dtype=np.int64), np.array([1])), np.array([5]))
    children = Frontier(2, (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), np.array([3, 7, -3, -2]))
    assert children_add_up(tree, parents, children)
    assert children_add_up(tree, parents, children[np.array([0, 2, 1, 3])])
    for which in (0, 1):  # below a parent with a row, and below one without
        counts = children.counts.copy()
        counts[which] += 1
        assert not children_add_up(tree, parents, Frontier(2, children.areas, counts))


ROWS = [1.0, 5, 29, 1_136, 21_385, 44_443, 73_715]  # of levels 0 to 6
MEASURED = {"xlsx": 5_257_058, "omx": 991_054, "sdmx": 15_397_000}
KEYS = {"areas": 2 * 1_064, "row_bytes": 45.0, "most_sheet_rows": 1_048_575}


@pytest.mark.parametrize("name", MEASURED)
def test_a_known_release_comes_near(name):
    """What a release of Rhode Island took is within a quarter of what is expected of its rows."""
    expected = bytes_of_formats([name], ROWS, {2: 5, 4: 244, 6: 815}, **KEYS)
    assert expected == pytest.approx(MEASURED[name], rel=0.25)

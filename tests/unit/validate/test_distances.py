"""Error metrics, against sums over every cell that there could be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.validate.distances import cell_errors, level_errors
from tests.support.universe import Universe


def nodes_of(universe: Universe, level: int, counts: list[int]) -> Frontier:
    """Return every node of a level, with its count, in the order of the tree."""
    nodes = universe.nodes(level)
    areas = [universe.areas(node) for node in nodes]
    columns: tuple[IntArray, ...] = tuple(np.array(column, dtype=np.int64) for column in zip(*areas, strict=True))
    return Frontier(level, columns, np.array(counts[: len(nodes)], dtype=np.int64))


def without_zeros(nodes: Frontier) -> Frontier:
    """Return the nodes that count something."""
    kept = nodes.counts != 0
    return Frontier(nodes.level, tuple(areas[kept] for areas in nodes.areas), nodes.counts[kept])


@given(st.data())
def test_errors_are_those_of_the_whole_level(universes: st.SearchStrategy[Universe], data: st.DataObject) -> None:
    """Every measure is what a dense sum over all cells of the level gives; a negative count errs, and discovers nothing.

    The cells of a view are measured in the same way.
    """
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

"""All leaves in parts, and the levels above as their sums: against lists of nodes made from paths."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.frontier import Frontier, cell_counts, expand
from tasks.tree.leaves import nodes_above_leaves, sums_of_children
from tests.support.universe import Universe, universes

COUNTS = st.integers(-2, 2)


def listed(frontier: Frontier) -> list[tuple[int, ...]]:
    """Return the areas of every node, in order."""
    return list(zip(*(areas.tolist() for areas in frontier.areas), strict=True))


def counted(frontier: Frontier) -> dict[tuple[int, ...], int]:
    """Return the counts by areas."""
    return dict(zip(listed(frontier), frontier.counts.tolist(), strict=True))


def leaves_of(universe: Universe, counts: list[int]) -> Frontier:
    """Return the leaves whose count is not 0, in the order of the tree."""
    leaves = universe.nodes(universe.tree.depth)
    kept = [(universe.areas(leaf), count) for leaf, count in zip(leaves, counts, strict=True) if count]
    areas = np.array([areas for areas, _ in kept], dtype=np.int64).reshape(-1, len(universe.tree.axes))
    return Frontier(universe.tree.depth, tuple(areas.T), np.array([count for _, count in kept], dtype=np.int64))


@settings(max_examples=30)
@given(universes(), st.integers(1, 40))
def test_every_node_above_the_leaves_is_listed_once_in_order(universe, most):
    """Whatever the size of the parts, they are all nodes of the level in the order of the tree, and no part is too large."""
    tree = universe.tree
    parts = list(nodes_above_leaves(tree, most))
    found = [node for part in parts for node in listed(part)]
    assert found == [universe.areas(node) for node in universe.nodes(tree.depth - 1)]
    assert all(len(part) == 1 or cell_counts(tree, part).sum() <= most for part in parts)
    leaves = [leaf for part in parts for leaf in zip(*(a.tolist() for a in expand(tree, part).areas), strict=True)]
    assert leaves == [universe.areas(leaf) for leaf in universe.nodes(tree.depth)]


@settings(max_examples=30)
@given(universes(), st.data())
def test_sums_are_those_of_all_leaves_below_and_zero_has_no_row(universe, data):
    """With counts below zero, in whatever parts they come, each level's rows are its non-zero sums, in order."""
    tree, leaves = universe.tree, universe.nodes(universe.tree.depth)
    counts = data.draw(st.lists(COUNTS, min_size=len(leaves), max_size=len(leaves)))
    below = leaves_of(universe, counts)
    for level in reversed(range(tree.depth)):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(below)), max_size=3)))
        pairs = zip([0, *cuts], [*cuts, len(below)], strict=True)
        parts = list(sums_of_children(tree, level, [below[first:end] for first, end in pairs]))
        sums = Counter[tuple[int, ...]]()
        for leaf, count in zip(leaves, counts, strict=True):
            sums[universe.areas(universe.node(leaf, level))] += count
        found = [pair for part in parts for pair in counted(part).items()]
        order = [universe.areas(node) for node in universe.nodes(level)]
        assert found == [(node, sums[node]) for node in order if sums[node] or level == 0]
        areas = tuple(np.array([node[axis] for node, _ in found], dtype=np.int64) for axis in range(len(tree.axes)))
        below = Frontier(level, areas, np.array([count for _, count in found], dtype=np.int64))

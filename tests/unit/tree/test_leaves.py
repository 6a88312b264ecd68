"""All leaves in parts, levels above as their sums, and released codes numbered among themselves: against lists of paths."""

from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.axis import axis_from_codebook, numbered
from tasks.tree.frontier import Frontier, cell_counts, expand, joined, nodes_above, sums_of_children
from tasks.tree.order import Tree
from tests.support.universe import universes

COUNTS = st.integers(-2, 2)


def listed(frontier):
    """Return the areas of every node, in order."""
    return list(zip(*(areas.tolist() for areas in frontier.areas), strict=True))


def counted(frontier):
    """Return the counts by areas."""
    return dict(zip(listed(frontier), frontier.counts.tolist(), strict=True))


def leaves_of(universe, counts):
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
    parts = list(nodes_above(tree, tree.depth, most))
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


def paths_of(nodes, axis, depth):
    """Return the codes that some leaves have on an axis, a column per level."""
    return pl.DataFrame(
        [node[axis] for node in nodes], schema=[(f"level_{level}", pl.String) for level in range(depth)], orient="row"
    )


def paths_in(tree, nodes):
    """Return, per axis, the codes of every node and of the areas that hold it."""
    reached = tree.axis_levels(nodes.level)
    of_axes = [
        [axis.codes[own - 1].gather(axis.ancestors(areas, level, own)).to_list() for own in range(1, level + 1)]
        for axis, areas, level in zip(tree.axes, nodes.areas, reached, strict=True)
    ]
    rows = range(len(nodes))
    return [tuple(tuple(codes[row] for codes in of_axis) for of_axis in of_axes) for row in rows]


@settings(max_examples=60)
@given(universes(), st.data())
def test_numbers_of_kept_leaves_tell_their_codes_and_nothing_else(universe, data):
    """Leaves keep their codes, their counts and their order; each area has a leaf, and numbers know of no other universe."""
    tree, leaves = universe.tree, universe.nodes(universe.tree.depth)
    kept = [leaf for leaf in leaves if data.draw(st.booleans())]
    counts = np.arange(1, len(kept) + 1)
    codebooks, areas = zip(*(numbered(paths_of(kept, n, axis.depth)) for n, axis in enumerate(tree.axes)), strict=True)
    axes = tuple(axis_from_codebook(axis.name, codes) for axis, codes in zip(tree.axes, codebooks, strict=True))
    alone = Tree(axes, tree.steps)
    nodes = Frontier(tree.depth, areas, counts)
    assert paths_in(alone, nodes) == kept
    for number, (axis, own) in enumerate(zip(axes, areas, strict=True)):
        assert sorted(set(own.tolist())) == list(range(axis.areas(axis.depth)))
        assert codebooks[number].rows() == sorted({leaf[number] for leaf in kept})
    above = nodes
    for level in reversed(range(tree.depth)):
        above = joined(level, [nodes[:0], *sums_of_children(alone, level, [above])])
        there = {universe.node(leaf, level) for leaf in kept or leaves[: not level]}
        assert paths_in(alone, above) == universe.sort(there, level)

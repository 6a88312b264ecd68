"""Released codes numbered among themselves, against lists of paths; and axes without areas."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.axis import axis_from_codebook, numbered
from tasks.tree.frontier import Frontier
from tasks.tree.leaves import joined, sums_of_children
from tasks.tree.order import Tree
from tests.support.universe import Node, Universe, universes


def paths_of(nodes: list[Node], axis: int, depth: int) -> pl.DataFrame:
    """Return the codes that some leaves have on an axis, a column per level."""
    return pl.DataFrame(
        [node[axis] for node in nodes], schema=[(f"level_{level}", pl.String) for level in range(depth)], orient="row"
    )


def paths_in(tree: Tree, nodes: Frontier) -> list[Node]:
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
def test_numbers_of_kept_leaves_tell_their_codes_and_nothing_else(universe: Universe, data: st.DataObject) -> None:
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
    frontiers = [nodes]
    for level in reversed(range(tree.depth)):
        frontiers.insert(0, joined(level, [nodes[:0], *sums_of_children(alone, level, frontiers[:1])]))
    for level, frontier in enumerate(frontiers):
        sums: dict[Node, int] = {universe.node(kept[0], 0): 0} if kept and not level else {}
        for leaf, count in zip(kept, counts.tolist(), strict=True):
            sums[universe.node(leaf, level)] = sums.get(universe.node(leaf, level), 0) + count
        found = dict(zip(paths_in(alone, frontier), frontier.counts.tolist(), strict=True))
        assert found == (sums or ({tuple(() for _ in axes): 0} if not level else {}))
        assert list(found) == universe.sort(set(found), level)


@given(st.integers(1, 4))
def test_an_axis_may_have_no_area(depth: int) -> None:
    """Of a codebook without rows every level is empty, everything has no child, and no area has the most."""
    axis = axis_from_codebook("empty", pl.DataFrame(schema={f"level_{level}": pl.String for level in range(depth)}))
    assert [axis.areas(level) for level in range(depth + 1)] == [1, *[0] * depth]
    assert axis.children_of(0, np.array([0])).tolist() == [0]
    assert [axis.most_children(level) for level in range(depth)] == [0] * depth
    assert [axis.most_descendants(level, depth) for level in range(depth)] == [0] * depth

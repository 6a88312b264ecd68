"""The leaves of a tree: all of them in parts, those that are released, and the levels above as their sums."""

from collections.abc import Iterable, Iterator

import numpy as np

from tasks.tree.frontier import Frontier, cell_counts, chunks, expand
from tasks.tree.keys import begins_run
from tasks.tree.order import Tree


def root_of(tree: Tree, count: int) -> Frontier:
    """Return level 0: one node that holds everything."""
    return Frontier(0, tuple(np.zeros(1, dtype=np.int64) for _ in tree.axes), np.array([count], dtype=np.int64))


def nodes_above(tree: Tree, level: int, most_cells: int) -> Iterator[Frontier]:
    """Yield all nodes of the level above a level (> 0), in the order of the tree; nothing here depends on a true count.

    Depth first, so that only a part of each level is in memory at a time.

    Args:
        tree: the axes and their order.
        level: of the cells below the nodes.
        most_cells: of that level below the nodes of one part; a single node with more makes a part of its own.
    Yields:
        Nodes whose counts have no meaning.
    """

    def below(nodes: Frontier) -> Iterator[Frontier]:
        for part in chunks(cell_counts(tree, nodes), most_cells):
            if nodes.level == level - 1:
                yield nodes[part]
            else:
                cells = expand(tree, nodes[part])
                yield from below(Frontier(cells.level, cells.areas, np.ones(len(cells), dtype=np.int64)))

    return below(root_of(tree, 1))


def without_zeros(nodes: Frontier) -> Frontier:
    """Return the nodes whose count is not 0, below zero or above."""
    return nodes[nodes.counts != 0]


def sums_of_children(tree: Tree, level: int, children: Iterable[Frontier]) -> Iterator[Frontier]:
    """Yield the nodes of a level whose children do not add up to 0, part by part; at level 0 the one node, always.

    Nodes that add up to 0 add nothing to those above them, so that a level can be summed from the next one.

    Args:
        tree: the axes and their order.
        level: of the nodes.
        children: parts of the next level, which together hold all of its nodes with a count, in the order of the tree.
    """
    if level == 0:
        yield root_of(tree, sum(int(part.counts.sum()) for part in children))
        return
    waiting: Frontier | None = None  # the last node, whose children may go on in the next part
    for part in children:
        if not len(part):
            continue
        parents = Frontier(level, tuple(tree.areas_above(level + 1, part.areas)), part.counts)
        parents = joined(level, [waiting, parents]) if waiting else parents
        starts = np.flatnonzero(begins_run(parents.areas))
        sums = np.add.reduceat(parents.counts, starts)
        nodes = Frontier(level, tuple(column[starts] for column in parents.areas), sums)
        yield without_zeros(nodes[:-1])
        waiting = nodes[-1:].copy()
    if waiting:
        yield without_zeros(waiting)


def joined(level: int, parts: Iterable[Frontier]) -> Frontier:
    """Return parts of a level, at least one, as one."""
    there = list(parts)
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in there), strict=True))
    return Frontier(level, areas, np.concatenate([part.counts for part in there]))

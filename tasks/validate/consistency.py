"""Consistency checks on the released counts of one level of one branch, from public data alone.

A node appears once in a level where it does so in its branch, and children add up in every branch: then each child lies
in the branch that has its parent, and no parent is in two branches, which the total of the level would show.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, keep_positive, locate, taking
from tasks.tree.keys import all_differ, begins_run, order_of
from tasks.tree.order import Tree


def counts_whole_and_positive(nodes: Frontier) -> bool:
    """Return whether every count is an integer above zero; level 0 may hold a zero."""
    least = 0 if nodes.level == 0 else 1
    return nodes.counts.dtype == np.int64 and bool((nodes.counts >= least).all())


def counts_whole(nodes: Frontier) -> bool:
    """Return whether every count is an integer, below zero or above; level 0 may hold a zero."""
    return nodes.counts.dtype == np.int64 and bool(nodes.level == 0 or (nodes.counts != 0).all())


def areas_known_once(tree: Tree, nodes: Frontier) -> bool:
    """Return whether every area is in the codebook and no node appears twice."""
    sizes = tree.sizes(nodes.level)
    known = all(bool(((areas >= 0) & (areas < size)).all()) for areas, size in zip(nodes.areas, sizes, strict=True))
    return known and all_differ(nodes.areas, sizes)


def children_add_up(tree: Tree, parents: Frontier, nodes: Frontier) -> bool:
    """Return whether the children of every parent add up to it, and those that have none add up to 0.

    Counts above zero never do that, so that no child is without its parent.
    """
    above = tree.areas_above(nodes.level, nodes.areas)
    starts = np.flatnonzero(begins_run(above))
    sums = np.add.reduceat(nodes.counts, starts) if len(starts) else nodes.counts
    starts, sums = starts[sums != 0], sums[sums != 0]
    in_order = len(starts) == len(parents) and all(
        bool((areas[starts] == of_parents).all()) for areas, of_parents in zip(above, parents.areas, strict=True)
    )
    if in_order:  # of the tree, as they are unless something is wrong
        return bool((sums == parents.counts).all())
    sizes = tree.sizes(parents.level)
    row = locate(above, parents.areas, sizes)
    sums, is_alone = np.zeros(len(parents), dtype=np.int64), row < 0
    np.add.at(sums, row[~is_alone], nodes.counts[~is_alone])
    return bool((sums == parents.counts).all()) and not _sums_apart(above, nodes.counts, sizes, is_alone).any()


def _sums_apart(above: Sequence[IntArray], counts: IntArray, sizes: Sequence[int], which: BoolArray) -> IntArray:
    """Return what some nodes add up to in each of the nodes above that they have, int64, records."""
    areas, counts = [of[which] for of in above], counts[which]
    order = order_of(areas, sizes)
    starts = np.flatnonzero(begins_run([of[order] for of in areas]))
    return np.add.reduceat(counts[order], starts) if len(starts) else counts


def exact_as_sealed(tree: Tree, parents: Frontier, exact: Iterator[IntArray], nodes: Frontier) -> bool:
    """Return whether the nodes of a level that is published exactly are the cells with a count, each with just that.

    Args:
        tree: the axes and their order.
        parents: the released nodes of the level above.
        exact: the sealed counts of all their cells, int64, records, in the order of the tree, in whatever parts.
        nodes: the released nodes.
    """
    take, before = taking(exact), 0
    for part in chunks(cell_counts(tree, parents), CHUNK_CELLS):
        cells = expand(tree, parents[part])
        sealed = keep_positive(cells, take(len(cells)))
        released = nodes[before : before + len(sealed)]
        columns = zip((*sealed.areas, sealed.counts), (*released.areas, released.counts), strict=True)
        if not all(np.array_equal(one, other) for one, other in columns):
            return False
        before += len(sealed)
    return before == len(nodes)

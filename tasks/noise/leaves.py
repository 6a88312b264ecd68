"""Measures leaves in memory, for data that anybody may see: the same steps as the stages, without a store."""

from collections.abc import Callable, Sequence

from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, expand
from tasks.tree.leaves import frontiers_above, joined, nodes_above_leaves, without_zeros
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueFamilies, TrueLevel, true_counts_of


def frontiers_of_universe(
    tree: Tree, levels: Sequence[TrueLevel], measure: Callable[[IntArray], IntArray], most_cells: int = CHUNK_CELLS
) -> list[Frontier]:
    """Return the nodes of levels 0 to T that `gaussian` releases. The true levels are confidential.

    Args:
        tree: the axes and their order.
        levels: the true tree, of levels 0 to T.
        measure: from true counts to noisy counts, shape (cells,), int64.
        most_cells: leaves that are measured at a time.
    """
    parts = []
    above, leaves, refined = levels[-2], levels[-1], tree.steps[-1]
    families = TrueFamilies(above.areas, above.first_child, above.children, leaves.areas[refined], leaves.true_counts)
    for parents in nodes_above_leaves(tree, most_cells):
        cells = expand(tree, parents)
        parts.append(
            without_zeros(Frontier(cells.level, cells.areas, measure(true_counts_of(tree, parents, families))))
        )
    return frontiers_above(tree, joined(tree.depth, parts))


def frontiers_of_histogram(
    tree: Tree, leaves: TrueLevel, measure: Callable[[IntArray], tuple[IntArray, IntArray]]
) -> list[Frontier]:
    """Return the nodes of levels 0 to T that `stability_histogram` releases. The true leaves are confidential.

    Args:
        tree: the axes and their order.
        leaves: the true tree's finest level.
        measure: from true counts, shape (leaves,), > 0, to the rows that are kept, ascending, and their noisy counts, both
            int64, shape (kept,).
    """
    rows, noisy = measure(leaves.true_counts)
    return frontiers_above(tree, Frontier(tree.depth, tuple(areas[rows] for areas in leaves.areas), noisy))

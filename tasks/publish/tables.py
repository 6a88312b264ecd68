"""Published tables: codes in place of area numbers, one table per level."""

import numpy as np
import polars as pl

from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree


def level_table(tree: Tree, nodes: Frontier) -> pl.DataFrame:
    """Return a level as readers get it.

    Returns:
        One text column per axis and axis level reached, `<axis>_<level>`, coarse to fine, then `count` int64; sorted
        by the codes, a row per node with a count above zero. Level 0 has the column `count` and one row.
    """
    by_code = np.lexsort(nodes.areas[::-1])  # areas are numbered in the order of their codes
    columns: dict[str, pl.Series] = {}
    for axis, areas, reached in zip(tree.axes, nodes.areas, tree.axis_levels(nodes.level), strict=True):
        for own_level in range(1, reached + 1):
            codes = axis.codes[own_level - 1]
            name = column_name(axis.name, axis.level_names[own_level - 1])
            columns[name] = codes.gather(axis.ancestors(areas[by_code], reached, own_level))
    return pl.DataFrame(columns | {"count": pl.Series(nodes.counts[by_code])})


def column_name(axis: str, level: str) -> str:
    """Return the name of a published column of codes."""
    return f"{axis}_{level}"

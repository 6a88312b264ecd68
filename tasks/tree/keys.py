"""Keys: the areas of a node in one integer, where 64 bits hold them, and the order in which nodes stand by their areas."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

AreaArray = NDArray[np.int32] | IntArray

_LARGEST_KEY = 2**63 - 1


def packed(areas: Sequence[AreaArray], sizes: Sequence[int]) -> IntArray | None:
    """Return one key per node, ordered as its areas are, first axis first; None where 64 bits do not hold them.

    Args:
        areas: per axis, integers, shape (nodes,), >= 0 and below the axis' size.
        sizes: per axis, how many areas there are.
    Returns:
        int64, shape (nodes,), an array of its own; two nodes have the same key where they have the same areas.
    """
    if math.prod(sizes) > _LARGEST_KEY:
        return None
    keys = areas[0].astype(np.int64)
    for column, size in zip(areas[1:], sizes[1:], strict=True):
        keys *= size
        keys += column
    return keys


def order_of(areas: Sequence[AreaArray], sizes: Sequence[int]) -> IntArray:
    """Return the nodes in the order of their areas, first axis first, shape (nodes,); arguments as in `packed`."""
    keys = packed(areas, sizes)
    return np.lexsort(tuple(areas)[::-1]) if keys is None else np.argsort(keys)


def all_differ(areas: Sequence[AreaArray], sizes: Sequence[int]) -> bool:
    """Return whether no two nodes have the same areas; arguments as in `packed`."""
    keys = packed(areas, sizes)
    if keys is not None:
        keys.sort()
        return bool((keys[1:] != keys[:-1]).all())
    order = np.lexsort(tuple(areas)[::-1])
    return bool(begins_run([column[order] for column in areas])[1:].all())


def begins_run(columns: Sequence[AreaArray]) -> NDArray[np.bool_]:
    """Return, per row, whether it is the first one or differs from the row before it in some column, shape (rows,)."""
    begins = np.ones(len(columns[0]), dtype=bool)
    begins[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        begins[1:] |= column[1:] != column[:-1]
    return begins

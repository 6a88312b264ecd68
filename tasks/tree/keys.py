"""Keys: the areas of a node in one integer, where 64 bits hold them, and the order in which nodes stand by their areas."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray

AreaArray = NDArray[np.int32] | IntArray

LARGEST_KEY = 2**63 - 1


def packed(areas: Sequence[AreaArray], sizes: Sequence[int]) -> IntArray | None:
    """Return one key per node, ordered as its areas are, first axis first; None where 64 bits do not hold them.

    Args:
        areas: per axis, integers, shape (nodes,), >= 0 and below the axis' size.
        sizes: per axis, how many areas there are.
    Returns:
        int64, shape (nodes,), an array of its own; two nodes have the same key where they have the same areas.
    """
    if math.prod(sizes) > LARGEST_KEY:
        return None
    keys = areas[0].astype(np.int64)
    for column, size in zip(areas[1:], sizes[1:], strict=True):
        keys *= size
        keys += column
    return keys


def unpacked(keys: IntArray, sizes: Sequence[int]) -> tuple[AreaArray, ...]:
    """Return the areas of nodes by their keys; what `packed` does, the other way round. Sizes of axes are at most 2³¹.

    Returns:
        Per axis, int32, shape (nodes,).
    """
    areas = list[AreaArray]()
    for size in reversed(sizes[1:]):
        keys, area = np.divmod(keys, size)
        areas.append(area.astype(np.int32))
    return (keys.astype(np.int32), *reversed(areas))


def order_of(areas: Sequence[AreaArray], sizes: Sequence[int]) -> IntArray:
    """Return the nodes in the order of their areas, first axis first, shape (nodes,); arguments as in `packed`."""
    keys = _few_keys(areas, sizes)
    return np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])


def all_differ(areas: Sequence[AreaArray], sizes: Sequence[int]) -> bool:
    """Return whether no two nodes have the same areas; arguments as in `packed`."""
    keys = _few_keys(areas, sizes)
    if len(keys) == 1:
        keys[0].sort()
    else:
        order = np.lexsort(keys[::-1])
        keys = [key[order] for key in keys]
    return bool(begins_run(keys)[1:].all())


def _few_keys(areas: Sequence[AreaArray], sizes: Sequence[int]) -> list[IntArray]:
    """Return as few keys per node as hold its areas, in an order that is theirs; arguments as in `packed`."""
    keys, first = [], 0
    while first < len(areas):
        end = first + 1
        while end < len(areas) and math.prod(sizes[first : end + 1]) <= LARGEST_KEY:
            end += 1
        key = packed(areas[first:end], sizes[first:end])
        keys.append(areas[first].astype(np.int64) if key is None else key)
        first = end
    return keys


def begins_run(columns: Sequence[AreaArray]) -> NDArray[np.bool_]:
    """Return, per row, whether it is the first one or differs from the row before it in some column, shape (rows,)."""
    begins = np.ones(len(columns[0]), dtype=bool)
    begins[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        begins[1:] |= column[1:] != column[:-1]
    return begins

"""The check that the rows of a level add up to those of the level above, one batch at a time."""

from collections.abc import Sequence

import numpy as np

from tasks.format.rows import Rows, in_order, joined
from tasks.tree.keys import begins_run


class AddingUp:
    """The sums of children, batch by batch, compared with their parents.

    Both tables are sorted by their codes, axis by axis. Children that share their parents on the axes up to and including the
    first refined axis therefore lie together. They form a block, and both tables have the blocks in the same order. Blocks are
    compared one after the other; the order within a block does not matter.
    """

    def __init__(self, parents: Rows, first_refined: int) -> None:
        """Start with the parents, whose rows all have different areas.

        Args:
            parents: the rows of the level above.
            first_refined: the number of the first axis on which the children are finer.
        """
        self._parents = parents
        self._block = slice(0, first_refined + 1)
        self._met = 0  # parents whose children were seen
        self._waiting: list[Rows] = []  # rows of a block that may continue
        self._fit = True

    def add(self, children: Rows, sizes: Sequence[int]) -> None:
        """Add the next children.

        Args:
            children: the counts of the children, with the areas of their parents.
            sizes: per axis, the number of areas at the parents' level.
        """
        if not len(children) or not self._fit:
            return
        starts = begins_run(children.areas[self._block])
        if self._waiting:
            before = self._waiting[-1]
            pairs = zip(before.areas[self._block], children.areas[self._block], strict=True)
            starts[0] = any(one[-1] != other[0] for one, other in pairs)
        begins = np.flatnonzero(starts)
        if not len(begins):
            self._waiting.append(children)
            return
        self._compare([*self._waiting, children[: begins[-1]]], sizes)
        self._waiting = [children[begins[-1] :]]

    def all_fit(self, sizes: Sequence[int]) -> bool:
        """Return, after the last children, whether the children of every parent add up to it and all others add up to 0.

        Children above zero never add up to 0, so none of them lacks a parent. Sums have 64 bits; the caller must know from the
        levels that none overflows.
        """
        self._compare(self._waiting, sizes)
        return self._fit and self._met == len(self._parents)

    def _compare(self, parts: Sequence[Rows], sizes: Sequence[int]) -> None:
        children = joined(parts) if parts else self._parents[:0]
        if not len(children):
            return
        together = self._block.stop == len(sizes)  # a block has one parent
        if not together:
            children = in_order(children, sizes)
        starts = np.flatnonzero(begins_run(children.areas))
        sums = np.add.reduceat(children.counts, starts)
        starts, sums = starts[sums != 0], sums[sums != 0]
        parents = self._parents[self._met : self._met + len(starts)]
        if not together:
            parents = in_order(parents, sizes)
        self._met += len(starts)
        self._fit = (
            self._fit
            and np.array_equal(sums, parents.counts)
            and all(
                np.array_equal(one[starts], other) for one, other in zip(children.areas, parents.areas, strict=True)
            )
        )

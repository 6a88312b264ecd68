"""Least squares in a tree of which every node is measured: up to estimates, down to values that add up, and to whole numbers by prefix sums."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, chunks, expand, root_of
from tasks.unbiased.variance import TreeVariances, at_nodes, shares_within

# from a level to what takes its next noisy counts, in the order of the tree
Noisy = Callable[[int], Callable[[int], IntArray]]


def precisions_of(noises: Sequence[LevelNoise | None]) -> list[float]:
    """Return 1 / σ² of levels 0 to T, as in `tree_variances`, from their noise: None where a level is not measured."""
    return [0.0 if noise is None else 1 / noise.scale**2 if noise else np.inf for noise in noises]


@dataclass(frozen=True, slots=True, eq=False)
class Subtrees:
    """Some nodes of a level with all that is below them, down to a level; levels are listed from the top one.

    Where counts and values have more than one dimension, nodes are the last one, and all before it are settled side by side.

    Attributes:
        cells: of each level, how many nodes there are.
        fan_outs: of each level but the last, how many children every node has, int64, shape (nodes,).
        own: of each level, the weight of a node's own noisy count in its estimate, float64, shape (nodes,) or ().
        shares: of each level but the first, the share of a node in what its family lacks, float64, shape (nodes,).
    """

    cells: tuple[int, ...]
    fan_outs: tuple[IntArray, ...]
    own: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]

    def up(
        self, noisy: Sequence[IntArray | FloatArray | None], lowest: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        r"""Return the estimates of the nodes of all levels, and the sums of their children's, each from what is at and below it.

        .. math:: z_v = V_v p_v y_v + (1 - V_v p_v) \sum_c z_c

        Args:
            noisy: y of each level but the last, shape (nodes,), records; None where a level is not measured.
            lowest: the estimates of the last level.
        """
        estimates, sums = [lowest], list[FloatArray]()
        for counts, fan_out, own in reversed(list(zip(noisy, self.fan_outs, self.own, strict=False))):
            below = np.add.reduceat(estimates[0], np.cumsum(fan_out) - fan_out, -1)
            sums.insert(0, below)
            estimates.insert(0, below if counts is None else below + own * (counts - below))
        return estimates, sums

    def down(self, estimates: Sequence[FloatArray], sums: Sequence[FloatArray], values: FloatArray) -> FloatArray:
        r"""Return the values of the last level, given those of the first; every family adds up to its parent.

        .. math:: f_c = z_c + \frac{V_c}{\sum V} \left( f_v - \sum z \right)
        """
        for estimate, below, fan_out, share in zip(estimates[1:], sums, self.fan_outs, self.shares, strict=True):
            values = estimate + share * np.repeat(values - below, fan_out, -1)
        return values


def subtrees(variances: TreeVariances, precisions: Sequence[float], nodes: Frontier, last: int) -> Subtrees:
    """Return some nodes with all that is below them, down to a level.

    Args:
        nodes: of any level, adjacent in the order of the tree.
        last: the level, as fine or finer.
    """
    tree, areas = variances.tree, nodes.areas
    cells_of, fan_outs, own, shares = [len(nodes)], [], [_own(variances, precisions, nodes.level, areas)], []
    for level in range(nodes.level, last):
        cells = expand(tree, Frontier(level, areas, areas[0]))
        fan_outs.append(np.diff(cells.first_cell))
        together = at_nodes(variances.children[level], areas)
        areas = cells.areas
        cells_of.append(len(cells))
        below = at_nodes(variances.below[level + 1], areas)
        shares.append(shares_within(below, np.repeat(together, fan_outs[-1]))[0])
        own.append(_own(variances, precisions, level + 1, areas))
    return Subtrees(tuple(cells_of), tuple(fan_outs), tuple(own), tuple(shares))


def _own(variances: TreeVariances, precisions: Sequence[float], level: int, areas: Sequence[IntArray]) -> FloatArray:
    """Return the weights of the own noisy counts of nodes, 0 where they are not measured."""
    precision = precisions[level]
    return at_nodes(variances.own(level, precision), areas) if precision else np.array(0.0)


def least_squares(
    variances: TreeVariances, precisions: Sequence[float], noisy: Noisy, most_cells: int = CHUNK_CELLS
) -> Iterator[FloatArray]:
    r"""Yield the least-squares values of all leaves in the order of the tree, part by part; they may be negative.

    .. math:: \min_f \sum_v p_v (f_v - y_v)^2

    over all nodes, each of which is the sum of its children. This is the best linear unbiased estimate, whatever the precisions are.
    Memory is for about `most_cells` cells on each level: the levels that have no more are settled at once, and then part by part what is
    below them.

    Args:
        variances: of the tree, with these precisions.
        noisy: where the noisy counts are. Those of a level may be taken twice, from the first to the last.
        most_cells: of a level that is settled at once.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010), for any precisions and numbers of children; docs/proofs/mechanisms.md.
    """
    tree = variances.tree
    cut = max(level for level in range(tree.depth + 1) if level == 0 or tree.possible_cells(level) <= most_cells)
    above = [noisy(level)(tree.possible_cells(level)) if precisions[level] else None for level in range(cut)]
    lowest = [estimates[0] for _, estimates, _ in _parts(variances, precisions, noisy, cut, most_cells)]
    top = subtrees(variances, precisions, root_of(tree, 0), cut)
    estimates, sums = top.up(above, np.concatenate(lowest))
    values, first = top.down(estimates, sums, estimates[0]), 0
    for below, estimates, sums in _parts(variances, precisions, noisy, cut, most_cells):
        end = first + len(estimates[0])
        yield below.down(estimates, sums, values[first:end])
        first = end


def _parts(
    variances: TreeVariances, precisions: Sequence[float], noisy: Noisy, cut: int, most_cells: int
) -> Iterator[tuple[Subtrees, list[FloatArray], list[FloatArray]]]:
    """Yield the subtrees of some adjacent nodes of a level, with the estimates and sums of `Subtrees.up`, until all nodes are there."""
    tree, nodes = variances.tree, root_of(variances.tree, 0)
    for level in range(cut):
        cells = expand(tree, nodes)
        nodes = Frontier(level + 1, cells.areas, cells.areas[0])
    take = {level: noisy(level) for level in range(cut, tree.depth + 1) if precisions[level]}
    for part in chunks(tree.leaves_below(cut, nodes.areas), most_cells):
        below = subtrees(variances, precisions, nodes[part], tree.depth)
        *counts, lowest = (
            take[level](cells) if level in take else None for level, cells in enumerate(below.cells, cut)
        )
        leaves = np.zeros(below.cells[-1]) if lowest is None else lowest.astype(np.float64)
        yield below, *below.up(counts, leaves)


def round_prefix_sums(parts: Iterable[FloatArray]) -> Iterator[IntArray]:
    r"""Yield whole counts for the values of leaves, part by part.

    .. math:: c_i = \mathrm{rint}(F_i) - \mathrm{rint}(F_{i - 1}), \qquad F_i = f_1 + \dots + f_i

    Halves go to the even number. Every sum of adjacent leaves, and so every node, is within 1 of the sum of their values. Rounding adds
    about 1/6 to its variance, and no bias, since the noise is as likely to be as far above as below.

    Args:
        parts: f of all leaves in the order of the tree, float64, shape (leaves of the part,), records; below 2**50 in absolute value.
    Yields:
        int64, of the same shapes, records; they may be negative.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Whole and broken parts are summed apart, so that large totals lose nothing.
    """
    whole_before, part_before, before = 0, 0.0, 0
    for values in parts:
        floors = np.floor(values)
        broken = part_before + np.cumsum(values - floors)
        carried = np.floor(broken)
        whole = whole_before + np.cumsum(floors.astype(np.int64)) + carried.astype(np.int64)
        broken -= carried
        rounded = whole + ((broken > 0.5) | ((broken == 0.5) & (whole % 2 == 1)))
        yield np.diff(rounded, prepend=before)
        if len(values):
            whole_before, part_before, before = int(whole[-1]), float(broken[-1]), int(rounded[-1])

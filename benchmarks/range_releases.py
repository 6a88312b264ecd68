"""Releases of ordered axes in arrays alone: how long they take, the variance that they have, and whether intervals of ranges cover.

These are the functions that the stages of a release call, with the noise of the table sampler, and nothing around them.
"""

import math
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.laws.samplers import table_noise
from tasks.tree.axis import IntArray
from tasks.tree.frontier import taking
from tasks.tree.order import Tree
from tasks.tree.views import level_view
from tasks.unbiased.deviations import released_counts
from tasks.unbiased.grid import Grid, round_grid, side_of
from tasks.unbiased.least_squares import least_squares, round_prefix_sums
from tasks.unbiased.precisions import mean_fan_outs, worst_node
from tasks.unbiased.variance import tree_variances

FloatArray = NDArray[np.float64]

CONFIDENCE = 0.9


def counts_of_nodes(tree: Tree, leaves: IntArray) -> list[IntArray]:
    """Return the counts of the nodes of all levels of a tree with one axis, shape (nodes,) each."""
    [axis] = tree.axes
    levels = range(tree.depth + 1)
    return [np.add.reduceat(leaves, axis.first_descendants(level, axis.depth)[:-1]) for level in levels]


def release(tree: Tree, precisions: Sequence[float], true: Sequence[IntArray]) -> IntArray:
    """Return the released counts of the leaves, given the true counts of all levels, which are measured with new noise."""
    noisy = [table_noise(counts, of**-0.5) for counts, of in zip(true, precisions, strict=True)]
    values = least_squares(tree_variances(tree, precisions), precisions, lambda level: taking(iter([noisy[level]])))
    return np.concatenate(list(round_prefix_sums(values)))


def seconds_and_memory(tree: Tree) -> tuple[float, float]:
    """Return thread seconds, the least of three, and GB at most, of a release by cascade with a deviation of 5."""
    precisions = (worst_node(mean_fan_outs(tree)) / 25).tolist()
    true = counts_of_nodes(tree, np.full(tree.possible_cells(tree.depth), 7))
    return measured(lambda: release(tree, precisions, true))


def grid_seconds_and_memory(tree: Tree) -> tuple[float, float]:
    """Return thread seconds, the least of three, and GB at most, of a release of all pairs of nodes of a tree by cascade, twice."""
    precisions = worst_node(mean_fan_outs(tree)).tolist()
    grid = Grid((side_of(tree, precisions), side_of(tree, [of / 25 for of in precisions])))

    def noisy(levels: tuple[int, ...]) -> IntArray:
        sizes = [tree.possible_cells(level) for level in levels]
        scale = math.prod(side.precisions[level] for side, level in zip(grid.sides, levels, strict=True)) ** -0.5
        return table_noise(np.full(math.prod(sizes), 7), scale).reshape(sizes)

    return measured(lambda: round_grid(grid.settle(noisy)))


def measured(make: Callable[[], object]) -> tuple[float, float]:
    """Return thread seconds, the least of three, and GB at most of making something."""
    make()
    seconds = []
    for _ in range(3):
        began = time.thread_time()
        make()
        seconds.append(time.thread_time() - began)
    tracemalloc.start()
    make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), peak / 2**30


def errors_of_levels(tree: Tree, sigma: float, runs: int) -> Iterator[tuple[int, float, float]]:
    """Yield of every level its mean squared error over nodes and runs, and the largest z of the mean error of a node.

    Releases are by cascade, of which every node has the deviation `sigma`. Half of the leaves count nothing.
    """
    precisions = (worst_node(mean_fan_outs(tree)) / sigma**2).tolist()
    generator = np.random.default_rng(1)
    leaves = generator.poisson(20, tree.possible_cells(tree.depth)) * generator.integers(
        0, 2, tree.possible_cells(tree.depth)
    )
    true = counts_of_nodes(tree, leaves)
    sums, squares = ([np.zeros(len(of)) for of in true] for _ in range(2))
    for _ in range(runs):
        found = counts_of_nodes(tree, release(tree, precisions, true))
        for level, (counts, wanted) in enumerate(zip(found, true, strict=True)):
            sums[level] += counts - wanted
            squares[level] += (counts - wanted) ** 2
    for level, (of_sums, of_squares) in enumerate(zip(sums, squares, strict=True)):
        z = np.abs(of_sums) / np.sqrt(np.maximum(of_squares, 1))
        yield level, float(of_squares.mean() / runs), float(z.max())


def covered_ranges(tree: Tree, sigma: float, ranges: int, runs: int) -> float:
    """Return the share of random ranges whose intervals, at 90% each, hold the true count, over releases of made-up counts."""
    precisions = (worst_node(mean_fan_outs(tree)) / sigma**2).tolist()
    generator, n = np.random.default_rng(2), tree.possible_cells(tree.depth)
    ends = np.sort(generator.integers(0, n + 1, (2 * ranges, 2)), axis=1)
    first, stop = ends[ends[:, 0] < ends[:, 1]][:ranges].T
    measured = [(level_view(tree, level), LevelNoise(GAUSSIAN, of**-0.5)) for level, of in enumerate(precisions)]
    rule = released_counts(tree, measured, CONFIDENCE, None)
    reach = rule.box_margin(rule.with_rounding(rule.variances.of_boxes([first], [stop])))
    true, covered = counts_of_nodes(tree, generator.poisson(20, n)), 0
    for _ in range(runs):
        errors = np.append(0, np.cumsum(release(tree, precisions, true) - true[-1]))
        covered += int((np.abs(errors[stop] - errors[first]) <= reach).sum())
    return covered / (ranges * runs)

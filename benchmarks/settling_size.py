"""Measure how much memory and time settling takes, and how near rounding stays to the sums, on grids of several axes.

Each grid has flat axes. Its leaves, and the groupings that are named by their axes, are measured with noise of eight records. A dense
grid has about fifty records in each leaf; a sparse one has records in one leaf of a hundred. For each it prints

- the leaves, the groupings and their cells;
- the memory of all arrays at its peak (tracemalloc), and the bound that `trellis plan` states;
- thread seconds to settle, and to round;
- how far rounding moves a sum at most, in records.

Nothing is released or charged. The noise has a seed, unlike that of a release.
"""

import argparse
import math
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import scipy.linalg
import scipy.optimize
import scipy.sparse.csgraph  # noqa: F401 (all are loaded before anything is measured)
from numpy.typing import NDArray
from results import markdown, save

from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.settle.task import memory_to_settle
from tasks.tree.axis import axis_from_codebook
from tasks.tree.order import Tree, in_sequence
from tasks.tree.views import Partition, View, level_view, unnumbered

SIGMA = 8.0
SMALL = (
    ((30, 30, 30), ["0", "1", "2"]),
    ((20, 20, 20), ["01", "12", "02"]),
    ((40, 40, 40), ["01", "12", "02"]),
    ((60, 60, 60), ["", "0", "01", "2"]),
    ((60, 60, 60), ["0", "1", "2"]),
    ((40, 40, 40, 6), ["0", "1", "2", "3", "01", "12", "23", "03", "02", "13"]),
    ((100, 100, 100), ["0", "1", "2"]),
    ((100, 100, 100), ["01", "12", "02"]),
)
LARGE = (
    ((150, 150, 100), ["0", "1"]),
    ((60, 60, 30, 20), ["", "0", "01", "012"]),
    ((60, 60, 30, 20), ["012", "123"]),
    ((60, 60, 30, 20), ["", "0", "01", "012", "1", "2", "3"]),
    ((60, 60, 30, 20), ["0", "1", "2", "3", "01", "12", "23", "03", "02", "13"]),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What settling a grid has taken."""

    leaves: int
    groupings: int
    cells: int
    peak: int
    bound: int
    settle_seconds: float
    round_seconds: float
    deviation: float


def tree_of(sizes: Sequence[int]) -> Tree:
    """Return a tree of flat axes."""
    axes = [
        axis_from_codebook(f"x{at}", pl.DataFrame({"x": [f"{of:06}" for of in range(size)]}))
        for at, size in enumerate(sizes)
    ]
    return Tree(tuple(axes), in_sequence([1] * len(axes), [(axis, 1) for axis in range(len(axes))]))


def view_of(axes: str, tree: Tree) -> View:
    """Return the grouping by some axes, each a digit."""
    return unnumbered([int(str(axis) in axes) for axis in range(len(tree.axes))])


def measure(sizes: Sequence[int], names: Sequence[str], *, is_dense: bool) -> Measured:
    """Settle and round a grid."""
    generator, tree = np.random.default_rng(1), tree_of(sizes)
    leaves, views = Partition(tree, level_view(tree, tree.depth)), [view_of(of, tree) for of in names]
    rare = (generator.random(len(leaves)) < 0.01) * generator.integers(1, 50, len(leaves))
    true = generator.poisson(50, len(leaves)) if is_dense else rare
    everything = leaves.cells()
    tracemalloc.start()
    labels = [Partition(tree, view).places(everything).astype(np.int32) for view in views]
    noisy = [noisy_of(np.bincount(cell, true), generator) for cell in labels]
    own = noisy_of(true, generator)
    del everything, true, rare
    tracemalloc.reset_peak()
    began = time.thread_time()
    groupings = [Grouping(cell, of, weight_of(of)) for cell, of in zip(labels, noisy, strict=True)]
    values = settle_overlapping(own, weight_of(own), groupings)
    settled = time.thread_time()
    deviation = max(round_controlled(values, labels).deviations)
    rounded, peak = time.thread_time(), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    cells = sum(map(len, noisy))
    bound = memory_to_settle(tree, views)
    return Measured(len(leaves), len(views), cells, peak, bound, settled - began, rounded - settled, deviation)


def noisy_of(counts: NDArray[np.generic], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return counts with whole normal noise."""
    return counts.astype(np.float64) + np.rint(generator.normal(0, SIGMA, len(counts)))


def weight_of(noisy: NDArray[np.float64]) -> float:
    """Return the weight of a grouping, as in a release."""
    return 1 / (SIGMA**2 * math.sqrt(len(noisy)))


def main() -> None:
    """Print a table, a row per grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--large", action="store_true", help="also grids of two million leaves, which take some minutes"
    )
    asked, rows = parser.parse_args(), []
    table = [["grid", "groupings by axes", "cells", "memory, MB", "bound, MB", "settle, s", "round, s", "deviation"]]
    table.append(["---", "---", *["---:"] * 6])
    for sizes, names in (*SMALL, *(LARGE if asked.large else ())):
        for is_dense in (True, False):
            found = measure(sizes, names, is_dense=is_dense)
            assert found.peak <= found.bound, found
            grid = f"{' × '.join(map(str, sizes))}, {'dense' if is_dense else 'sparse'}"
            numbers = [f"{found.cells:,}", f"{found.peak / 1e6:,.0f}", f"{found.bound / 1e6:,.0f}"]
            numbers += [f"{found.settle_seconds:.1f}", f"{found.round_seconds:.1f}", f"{found.deviation:.2f}"]
            table.append([grid, " ".join(of or "all" for of in names), *numbers])
            rows.append({"grid": grid, "groupings": names, **{of: getattr(found, of) for of in Measured.__slots__}})
            print(*table[-1], flush=True)
    print(markdown(table))
    save("settling_size", rows)


if __name__ == "__main__":
    main()

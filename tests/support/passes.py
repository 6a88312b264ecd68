"""Tables and noise for passes in memory, and the laws of what the passes release."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from flows.walks.trial import (
    Measure,
    Truth,
    truth_of,
)
from hypothesis import strategies as st

from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier


def noise_of(seed: int, sigmas: list[float], asked: Counter | None = None) -> Measure:
    """Return a measure of rounded normal noise that counts, per level, the cells that it is asked for."""
    random = np.random.default_rng(seed)

    def measure(level: int, true_counts: IntArray) -> IntArray:
        if asked is not None:
            asked[level] += len(true_counts)
        return true_counts + np.rint(random.normal(0, sigmas[level], len(true_counts))).astype(np.int64)

    return measure


@st.composite
def tables(draw: Callable, universes: st.SearchStrategy) -> tuple:
    """Draw a universe, some of its leaves with counts, and them as a truth."""
    universe = draw(universes)
    leaves = st.sampled_from(universe.leaves())
    records = draw(st.dictionaries(leaves, st.integers(1, 30), min_size=1, max_size=15))
    finest = np.array([universe.areas(leaf) for leaf in records]).T
    return universe, records, truth_of(universe.tree, list(finest), np.array(list(records.values())))


def counts_of(frontier: Frontier) -> dict[tuple[int, ...], int]:
    """Return the counts of a frontier by the areas of its nodes."""
    return dict(
        zip(zip(*(areas.tolist() for areas in frontier.areas), strict=True), frontier.counts.tolist(), strict=True)
    )


def family(truth: Truth, node: tuple[int, ...], level: int) -> tuple[int, ...]:
    """Return the node above a node."""
    refined = truth.tree.steps[level - 1]
    own = truth.tree.axis_levels(level)[refined]
    axis = truth.tree.axes[refined]
    return tuple(int(axis.parent[own - 1][area]) if at == refined else area for at, area in enumerate(node))


def check_consistent(truth: Truth, frontiers: list[Frontier]) -> None:
    """Check that counts are whole, positive but for the root's, and add up to those of the level above."""
    assert [frontier.level for frontier in frontiers] == list(range(truth.tree.depth + 1))
    for frontier in frontiers:
        assert frontier.counts.dtype == np.int64
        assert (frontier.counts > 0).all() or (frontier.level == 0 and frontier.counts.tolist() == [0])
    for above, below in pairwise(frontiers):
        sums: Counter = Counter()
        for node, count in counts_of(below).items():
            sums[family(truth, node, below.level)] += count
        assert {node: count for node, count in counts_of(above).items() if count} == sums

"""Sensitivities against brute-force enumeration of neighbouring datasets on a tiny universe."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from tasks.noise.sensitivity import l2_sensitivity_squared
from tasks.tree.order import alternate
from tasks.tree.true_tree import grow

ORIGIN = [("a", "1"), ("a", "2"), ("b", "1")]
DESTINATION = [("all", "1"), ("all", "2")]  # its first level has a single area
RECORDS = 2  # of every dataset, one record per unit


def histograms(universe, dataset) -> list[Counter]:
    """Return the histogram of each level of the true tree of a dataset."""
    records = Counter(universe.areas(leaf) for leaf in dataset)
    levels = grow(universe.tree, list(np.array(list(records)).T), np.array(list(records.values())))
    return [
        Counter(
            dict(zip(zip(*map(np.ndarray.tolist, level.areas), strict=True), level.true_counts.tolist(), strict=True))
        )
        for level in levels
    ]


@pytest.mark.parametrize("first", [1, 0], ids=["destination first", "origin first"])
def test_no_pair_of_neighbours_is_further_apart_than_the_sensitivity(universe_of, first: int) -> None:
    """Substituting one record of any dataset moves no level further than Δ₂, and moves some dataset just as far.

    At a level with a single node, as at the root, nothing can move.
    """
    universe = universe_of([ORIGIN, DESTINATION], alternate((2, 2), first))
    leaves = universe.leaves()
    of_dataset = {dataset: histograms(universe, dataset) for dataset in product(leaves, repeat=RECORDS)}
    furthest = [0] * (universe.tree.depth + 1)
    for dataset, substitute in product(of_dataset, leaves):
        neighbour = (substitute, *dataset[1:])
        for level, (counts, others) in enumerate(zip(of_dataset[dataset], of_dataset[neighbour], strict=True)):
            apart = sum((counts[node] - others[node]) ** 2 for node in counts | others)
            furthest[level] = max(furthest[level], apart)
    nodes = [len(universe.nodes(level)) for level in range(universe.tree.depth + 1)]
    assert nodes == ([1, 1, 2, 4, 6] if first else [1, 2, 2, 3, 6])
    assert furthest == [l2_sensitivity_squared() if several > 1 else 0 for several in nodes]

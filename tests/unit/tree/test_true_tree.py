"""The true tree against group-by with plain dictionaries, and true counts of surviving nodes against a dictionary."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree import true_tree
from tasks.tree.axis import Axis
from tasks.tree.frontier import Frontier, expand
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueFamilies, TrueLevel, grow, true_counts_of
from tasks.work import capacity


def draw_records(data, universe):
    """Return the true counts of some leaves, at least one."""
    leaves = st.sampled_from(universe.leaves())
    return data.draw(st.dictionaries(leaves, st.integers(1, 9), min_size=1, max_size=15))


def grown(universe, records):
    """Return the true levels of some records, given in no particular order."""
    finest = np.array([universe.areas(leaf) for leaf in records]).T
    return list(grow(universe.tree, list(finest), np.array(list(records.values()))))


def grouped(universe, records, level):
    """Return the true count of each node of a level, by grouping the records."""
    counts = Counter()
    for leaf, count in records.items():
        counts[universe.node(leaf, level)] += count
    return counts


def nodes_of(level):
    """Return the nodes of a level as tuples of areas."""
    return list(zip(*(areas.tolist() for areas in level.areas), strict=True))


@settings(max_examples=100)
@given(data=st.data())
def test_true_levels_are_the_records_grouped(universes, data):
    """Each level has the nodes, counts and slices of children that grouping gives, in whatever order axes are refined and records come."""
    # So it has where several threads sort and group them.
    universe = data.draw(universes)
    records = draw_records(data, universe)
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(capacity, "ROWS_OF_A_SLICE", 1)
            patch.setattr(capacity, "cores", lambda: 3)
            patch.setattr(true_tree, "SAMPLED", 1)
        levels = grown(universe, dict(data.draw(st.permutations(list(records.items())))))
    assert len(levels) == universe.tree.depth + 1
    for level, true_level in enumerate(levels):
        counts = grouped(universe, records, level)
        in_order = universe.sort(set(counts), level)
        assert nodes_of(true_level) == [universe.areas(node) for node in in_order]
        assert true_level.true_counts.tolist() == [counts[node] for node in in_order]
        if level == universe.tree.depth:
            assert true_level.children.tolist() == [0] * len(in_order)
            continue
        above = {universe.node(leaf, level + 1): universe.node(leaf, level) for leaf in records}
        below = [above[child] for child in universe.sort(set(above), level + 1)]
        for node, first, children in zip(in_order, true_level.first_child, true_level.children, strict=True):
            assert list(range(first, first + children)) == [at for at, parent in enumerate(below) if parent == node]


@settings(max_examples=60)
@given(data=st.data())
def test_true_counts_of_surviving_nodes_are_found(universes, data):
    """Every cell below a surviving node gets its true count and zero where there is none, for any survivors."""
    # Survivors without true children, true nodes that did not survive, and slices of the true levels are all mixed.
    universe = data.draw(universes)
    tree = universe.tree
    records = draw_records(data, universe)
    level = data.draw(st.integers(0, tree.depth - 1))
    survivors = [node for node in universe.nodes(level) if data.draw(st.booleans())]
    areas = np.array([universe.areas(node) for node in survivors], dtype=np.int64).reshape(-1, len(universe.paths)).T
    parents = Frontier(level, tuple(areas), np.ones(len(survivors), dtype=np.int64))
    cells = expand(tree, parents)

    levels = grown(universe, records)
    true_parents, true_children, offset = levels[level], levels[level + 1], 0
    if data.draw(st.booleans()):  # only what is needed was read
        needed = {universe.areas(node) for node in survivors}
        rows = np.array([node in needed for node in nodes_of(true_parents)])
        true_parents = take(true_parents, np.flatnonzero(rows))
        ends = true_parents.first_child + true_parents.children
        offset, end = (int(true_parents.first_child[0]), int(ends[-1])) if len(ends) else (0, 0)
        true_children = take(true_children, np.arange(offset, end))

    counts = {universe.areas(node): count for node, count in grouped(universe, records, level + 1).items()}
    columns = (true_parents.areas, true_parents.first_child - offset, true_parents.children)
    families = TrueFamilies(*columns, true_children.areas[tree.steps[level]], true_children.true_counts)
    true_counts = true_counts_of(tree, parents, families)
    assert true_counts.dtype == np.int64
    assert true_counts.tolist() == [counts.get(cell, 0) for cell in nodes_of(cells)]


def take(level, rows):
    """Return some nodes of a true level."""
    columns = (level.true_counts[rows], level.first_child[rows], level.children[rows])
    return TrueLevel(tuple(areas[rows] for areas in level.areas), *columns)


@pytest.mark.parametrize("axes", [2, 3, 4, 7])
def test_records_are_sorted_when_the_order_takes_more_than_63_bits(axes):
    """Axes of a million areas each, of which three need 63 bits, still give levels that are sorted and complete."""
    areas = 2**20
    wide = Axis("wide", ("level_1",), (np.array([0, areas]),), (np.zeros(areas, dtype=np.int64),), ())
    tree = Tree((wide,) * axes, tuple(reversed(range(axes))))
    random = np.random.default_rng(axes)
    values = [0, 1, 2**10, 2**19, areas - 1]
    every = list(product(values, repeat=min(axes, 4)))
    leaves = [leaf + (areas - 1 - leaf[0],) * (axes - len(leaf)) for leaf in every]
    records = {leaves[at]: at + 1 for at in random.permutation(len(leaves))}

    levels = list(grow(tree, list(np.array(list(records)).T), np.array(list(records.values()))))
    for level, true_level in enumerate(levels):
        counts = Counter()
        for leaf, count in records.items():
            counts[tuple(reversed(leaf))[:level]] += count
        found = [tuple(reversed(node))[:level] for node in nodes_of(true_level)]
        assert found == sorted(counts)
        assert true_level.true_counts.tolist() == [counts[node] for node in found]
        assert true_level.children.sum() == (len(levels[level + 1]) if level < axes else 0)

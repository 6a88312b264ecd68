"""Axes from codebooks, the order of refinement, frontiers and their cells, chunks, branches and the true tree: against plain Python."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree import branches, true_tree
from tasks.tree.axis import Axis
from tasks.tree.frontier import (
    Cells,
    Frontier,
    cell_counts,
    cells_of,
    expand,
    keep_all,
    keep_largest,
    keep_positive,
    locate,
)
from tasks.tree.order import Tree, alternate, innermost
from tasks.tree.true_tree import TrueFamilies, TrueLevel, grow, true_counts_of
from tasks.work import capacity


def columns(rows, axes):
    """Return the areas of nodes as one column per axis."""
    return tuple(np.array(rows, dtype=np.int64).reshape(-1, axes).T)


def rows(areas):
    """Return columns of areas as nodes."""
    return list(zip(*(column.tolist() for column in areas), strict=True))


def frontier_of(universe, nodes, level):
    """Return some nodes of a universe as a frontier with the counts 1, 2, 3, …"""
    areas = columns([universe.areas(node) for node in nodes], len(universe.paths))
    return Frontier(level, areas, np.arange(1, len(nodes) + 1))


@settings(max_examples=60)
@given(data=st.data())
def test_an_axis_is_that_of_its_paths(axis_of, codebooks, data):
    """An area's number is the rank of its path, its children are one run, and ancestors are the areas of its first codes."""
    # The coarsest area that is the same holds no other; where areas are not listed, nobody knows.
    paths = data.draw(codebooks)
    axis = axis_of("place", paths)
    prefixes = [sorted({path[:level] for path in paths}) for level in range(len(paths[0]) + 1)]
    assert axis.depth == len(paths[0])
    for level in range(axis.depth + 1):
        assert axis.areas(level) == len(prefixes[level])
        if level:
            assert axis.codes[level - 1].to_list() == [prefix[-1] for prefix in prefixes[level]]
        areas = np.array(data.draw(st.lists(st.integers(0, axis.areas(level) - 1))), dtype=np.int64)
        for above in range(level + 1):
            expected = [prefixes[above].index(prefixes[level][area][:above]) for area in areas]
            assert axis.ancestors(areas, level, above).tolist() == expected
        for area, number, at in zip(areas, *axis.coarsest_alike(areas, level), strict=True):
            path = prefixes[level][area]
            alike = [sum(own[:above] == path[:above] for own in prefixes[level]) for above in range(level + 1)].index(1)
            assert (at, prefixes[at][number]) == (alike, path[:alike])
        assert np.array_equal(replace(axis, is_listed=False).coarsest_alike(areas, level)[0], areas)
    for level, first_child in enumerate(axis.first_child):
        assert len(first_child) == axis.areas(level) + 1
        assert (first_child[0], first_child[-1]) == (0, axis.areas(level + 1))
        children = np.diff(first_child)
        assert (children >= 1).all()
        areas = np.arange(axis.areas(level))
        assert axis.parent[level].tolist() == np.repeat(areas, children).tolist()
        assert axis.children_of(level, areas[::-1]).tolist() == children[::-1].tolist()


@given(data=st.data())
def test_cells_within_one_area_are_told_apart_from_their_siblings(axis_of, codebooks, data):
    """Where both ends have reached one level, the cells in which they are the same area; elsewhere, and between features, none."""
    axis = axis_of("place", data.draw(codebooks))
    ends = tuple(replace(axis, name=end, role=end) for end in ("origin", "destination"))
    tree = Tree(ends, alternate((axis.depth, axis.depth), 1))
    for level in range(1, tree.depth + 1):
        areas, (one, other) = [of.ravel() for of in np.indices(tree.sizes(level))], tree.axis_levels(level)
        expected = (areas[0] == areas[1]) & (one == other)
        assert innermost(tree, level)(areas).tolist() == expected.tolist()
        assert not innermost(replace(tree, axes=(axis, axis)), level)(areas).any()


@given(depths=st.lists(st.integers(1, 6), min_size=1, max_size=4), data=st.data())
def test_axes_take_turns(depths, data):
    """The tree's own axis refines first, then the others in their order; deeper ones go on without those that are at their end."""
    first = data.draw(st.integers(0, len(depths) - 1))
    order = [first, *(axis for axis in range(len(depths)) if axis != first)]
    turns = [axis for level in range(max(depths)) for axis in order if level < depths[axis]]
    assert alternate(depths, first) == tuple(turns)


@settings(max_examples=50)
@given(data=st.data())
def test_a_level_knows_its_axis_levels_and_possible_cells(universes, data):
    """The level of each axis, its size and name, and the number of cells are those of all nodes built by hand."""
    universe = data.draw(universes)
    tree = universe.tree
    assert tree.depth == sum(len(paths[0]) for paths in universe.paths)
    for level in range(tree.depth + 1):
        nodes = universe.nodes(level)
        assert tree.axis_levels(level) == tuple(len(prefix) for prefix in nodes[0])
        assert tree.sizes(level) == tuple(len(set(prefixes)) for prefixes in zip(*nodes, strict=True))
        assert tree.possible_cells(level) == len(nodes)
        names = {f"axis_{axis}": f"level_{len(prefix)}" if prefix else None for axis, prefix in enumerate(nodes[0])}
        assert tree.level_names(level) == names


@settings(max_examples=60)
@given(data=st.data())
def test_expanding_lists_exactly_all_children_of_every_node(universes, data):
    """The cells of a parent are all nodes of the next level that it holds, each once, in the order of the tree."""
    universe = data.draw(universes)
    level = data.draw(st.integers(0, universe.tree.depth - 1))
    nodes = universe.nodes(level)
    parents = [node for node in nodes if data.draw(st.booleans())]
    frontier = frontier_of(universe, parents, level)
    cells = expand(universe.tree, frontier)

    held = {}
    for leaf in universe.leaves():
        held.setdefault(universe.node(leaf, level), set()).add(universe.node(leaf, level + 1))
    children = [[universe.areas(child) for child in universe.sort(held[node], level + 1)] for node in parents]
    cell_rows = rows(cells.areas)
    assert cells.level == level + 1
    assert len(cells) == len(cell_rows) == sum(map(len, children))
    assert [cell_rows[start:stop] for start, stop in pairwise(cells.first_cell.tolist())] == children
    assert cell_counts(universe.tree, frontier).tolist() == [len(of_node) for of_node in children]


_areas_of = {
    3: st.integers(0, 2),
    2**31: st.sampled_from([0, 1, 2, 2**24, 2**30, 2**31 - 1]),
    2**40: st.sampled_from([0, 1, 2**23, 2**24, 2**24 + 1, 2**33, 2**39, 2**40 - 1]),  # equal modulo 64 bits
}


@given(sizes=st.lists(st.sampled_from(sorted(_areas_of)), min_size=1, max_size=4), data=st.data())
def test_nodes_are_located_as_in_a_dictionary(sizes, data):
    """Every wanted node gets its row among the present ones or -1, even where keys would exceed 64 bits."""
    node = st.tuples(*(_areas_of[size] for size in sizes))
    present = data.draw(st.lists(node, unique=True, max_size=12))
    wanted = data.draw(st.lists(st.one_of(node, st.sampled_from(present)) if present else node, max_size=12))
    row_of = {found: row for row, found in enumerate(present)}
    located = locate(columns(wanted, len(sizes)), columns(present, len(sizes)), sizes)
    assert located.tolist() == [row_of.get(node, -1) for node in wanted]


@given(weights=st.lists(st.integers(1, 1_000), min_size=1, max_size=40), most=st.integers(1, branches.MOST_BRANCHES))
def test_branches_are_contiguous_not_empty_and_about_equal(weights, most):
    """The slices cover all nodes once, none is empty, there are at most as many as sought, and none is heavy."""
    slices = branches.cut(np.array(weights), most)
    assert [node for nodes in slices for node in range(nodes.start, nodes.stop)] == list(range(len(weights)))
    assert all(nodes.stop > nodes.start for nodes in slices)
    assert len(slices) <= most
    assert max(sum(weights[nodes]) for nodes in slices) <= sum(weights) / most + max(weights)
    names = [branches.branch_name(number) for number in range(branches.MOST_BRANCHES)]  # they sort like their numbers
    assert names == sorted(set(names))


LEVELS, NODES = st.integers(0, branches.TASK_RUNS // 2), st.integers(1, 2 * branches.MOST_BRANCHES)
CELLS = st.integers(1, 2 * branches.MOST_BRANCHES * branches.BRANCH_CELLS)


@given(LEVELS.filter(bool), LEVELS, NODES, CELLS, st.sampled_from([2, 4]))
def test_branches_keep_a_release_within_its_task_runs(levels_below, levels_above, nodes, cells_below, runs):
    """Two or four task runs per branch and level leave 20 of 200 for the rest, or what many levels take; no more would fit."""
    found = branches.branch_count(levels_below, nodes, cells_below, levels_above, runs)
    trunk, validated = runs * (1 + levels_above), 1 + levels_above + levels_below
    rest = max(20, trunk + validated + 3)

    def fit(number):
        worth_it = number * branches.BRANCH_CELLS <= cells_below and number <= nodes
        return number <= branches.MOST_BRANCHES and runs * number * levels_below + rest <= 200 and worth_it

    def too_few(number):
        return levels_below > 1 and number < branches.WORTH_CUTTING and fit(number)

    assert found == 1 or fit(found)
    assert found >= 1
    assert not fit(found + 1) or too_few(found + 1)


@pytest.mark.parametrize(("level", "nodes", "cells", "wanted", "pieces"), [
    (3, 10_000, 10**6, 400, 400), (3, 50, 10**6, 80, 50), (3, 30, 10**6, 80, 0),
    (8, 30, 10**6, 80, 30), (3, 10_000, 9_999, 8, 0),
])  # fmt: skip
def test_a_cluster_cuts_the_trunk_into_what_it_wants(level, nodes, cells, wanted, pieces):
    """It waits for work for half of the branches that it wants, unless the next level is the last, and cuts no branch."""
    assert branches.pieces_of(9, level, nodes, cells, 10**9, is_trunk=True, wanted=wanted) == pieces
    assert branches.pieces_of(9, level, nodes, cells, 10**9, is_trunk=False, wanted=wanted) == 0


@given(memory=st.integers(64_000_000, 10**12), workers=st.integers(1, 64), axes=st.integers(1, 60))
def test_as_many_cells_as_memory_allows(memory, workers, axes):
    """A branch may have the most cells whose arrays fit its share of memory, and one more would not fit."""
    most = branches.most_cells(memory, workers, axes)
    assert branches.memory_for(most, workers, axes) <= memory
    of_axes = max(0, axes - 2) * (branches.AXIS_CELL_BYTES + branches.AXIS_CHUNK_BYTES)
    of_cell = branches.CELL_BYTES + branches.CHUNK_BYTES + of_axes
    assert branches.memory_for(most + 2, workers, axes) > memory - workers * of_cell
    assert branches.most_cells(branches.memory_for(most, workers, axes), workers, axes) in {most - 1, most}
    assert branches.most_cells(memory, workers, axes + 2) <= most


@settings(max_examples=40)
@given(data=st.data())
def test_slices_keep_within_memory_and_in_order(universes, data):
    """Slices cover the nodes once and in order, none has more cells than it may but a single node that alone has."""
    universe = data.draw(universes)
    level = data.draw(st.integers(0, universe.tree.depth - 1))
    frontier = frontier_of(universe, universe.nodes(level), level)
    cells = cell_counts(universe.tree, frontier)
    most = data.draw(st.integers(1, 12))
    slices = branches.slices_of(universe.tree, frontier, data.draw(st.integers(1, 4)), most)
    assert [node for part in slices for node in range(part.start, part.stop)] == list(range(len(frontier)))
    assert all(cells[part].sum() <= most or part.stop == part.start + 1 for part in slices)


@settings(max_examples=40)
@given(data=st.data())
def test_expected_cells_follow_from_counts_and_complete_levels(universes, data):
    """A node with records enough is expected to have every cell below it, one record one path of them, and 0 none."""
    # Down to a complete level every cell counts, whatever the count of the node.
    universe = data.draw(universes)
    tree = universe.tree
    level = data.draw(st.integers(0, tree.depth - 1))
    nodes = universe.nodes(level)
    areas = frontier_of(universe, nodes, level).areas
    zeros, one, many = (Frontier(level, areas, np.full(len(nodes), count)) for count in (0, 1, 10**9))
    everything = branches.work_below(tree, many)
    for node, expected in zip(nodes, everything, strict=True):
        leaves = [leaf for leaf in universe.leaves() if universe.node(leaf, level) == node]
        finer = range(level + 1, tree.depth + 1)
        assert expected == sum(len({universe.node(leaf, below) for leaf in leaves}) for below in finer)
    assert (branches.work_below(tree, one) <= everything).all()
    assert (branches.work_below(tree, one) >= tree.depth - level).all()
    assert branches.work_below(tree, zeros).sum() == 0
    complete = data.draw(st.integers(level + 1, tree.depth))
    below = sum(tree.possible_cells(of) for of in range(level + 1, complete + 1))
    assert branches.work_below(tree, zeros, complete).sum() == pytest.approx(below)
    slices = branches.slices_of(tree, zeros, 3, 2, complete)
    assert [node for part in slices for node in range(part.start, part.stop)] == list(range(len(zeros)))


@settings(max_examples=50)
@given(st.data())
def test_kept_nodes_are_found_among_the_cells_of_parents_that_may_have_none(universes, data):
    """Where zeros are dropped, parents with a count of 0 have no node; where they stay, every parent has all of its cells."""
    universe = data.draw(universes)
    tree = universe.tree
    level = data.draw(st.integers(1, tree.depth))
    nodes = universe.nodes(level - 1)
    totals = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes))))
    parents = replace(frontier_of(universe, nodes, level - 1), counts=totals)
    cells = expand(tree, parents)
    counts = np.zeros(len(cells), dtype=np.int64)
    counts[cells.first_cell[:-1]] = totals
    for keep, there in ((keep_positive, counts > 0), (keep_all, counts >= 0)):
        first_kept, cell = cells_of(tree, parents, keep(cells, counts))
        assert cell.tolist() == np.flatnonzero(there).tolist()
        assert first_kept.tolist() == np.concatenate(([0], np.cumsum(there)))[cells.first_cell].tolist()


FAMILY = st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), min_size=1, max_size=5)


@given(st.lists(FAMILY, min_size=1, max_size=6))
def test_each_family_keeps_its_largest_noisy_count(families):
    """Beside the cells with a count the first of each family with the largest noisy count stays, and nothing else."""
    flat = [cell for family in families for cell in family]
    counts, noisy = np.array(flat, dtype=np.int64).T
    first = np.cumsum([0, *map(len, families)])
    frontier = keep_largest(Cells(1, first, (np.arange(len(flat)),)), counts, noisy)
    expected = []
    for start, family in zip(first[:-1].tolist(), families, strict=True):
        largest = max(range(len(family)), key=lambda cell: (family[cell][1], -cell))
        expected += [start + cell for cell, (count, _) in enumerate(family) if count or cell == largest]
    assert frontier.areas[0].tolist() == expected
    assert frontier.counts.tolist() == counts[expected].tolist()


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

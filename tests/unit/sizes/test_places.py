"""Places of groups: regions with values of attributes are a tree as regions are, in whatever order they are refined."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.sizes.intervals import draws_inside
from tasks.sizes.places import areas_of, first_inside, in_tree_order, numbered, places_of
from tasks.sizes.programs import whole_optimum
from tasks.tree.frontier import CHUNK_CELLS, expand, nodes_above
from tests.support.universe import codebooks, universe_of

SIZES = [("1",), ("2",)]


@st.composite
def trees(draw):
    """Draw a tree of sizes, and then of one to three axes in any order."""
    paths = draw(st.lists(codebooks(2, 4), min_size=1, max_size=3))
    steps = draw(st.permutations([axis for axis, of_axis in enumerate(paths) for _ in of_axis[0]]))
    return universe_of([*paths, SIZES], [len(paths), *steps]).tree


@given(trees())
def test_places_stand_in_the_order_of_the_tree_and_lie_in_those_above(tree):
    """As its cells are listed, size by size; those that begin in a place and end before the next have areas that lie in its areas."""
    for level in range(1, tree.depth + 1):
        levels, order = tree.axis_levels(level), in_tree_order(tree, level)
        cells = [expand(tree, nodes).areas for nodes in nodes_above(tree, level, CHUNK_CELLS)]
        areas = [np.concatenate(of_axis) for of_axis in zip(*cells, strict=True)]
        assert numbered(tree, levels, areas).tolist() == [*order, *order]
        for above in range(1, level + 1):
            coarser, first = tree.axis_levels(above), first_inside(tree, above, level)
            held = [
                axis.ancestors(of_axis, own, to)
                for axis, of_axis, own, to in zip(
                    tree.axes, areas_of(tree, levels, order), levels, coarser, strict=False
                )
            ]
            places = numbered(tree, coarser, (*held, order))
            assert places.tolist() == np.repeat(in_tree_order(tree, above), np.diff(first)).tolist()


@pytest.mark.parametrize("steps", [[2, 0, 1, 0], [2, 1, 0, 0], [2, 0, 0, 1]])
@pytest.mark.parametrize("seed", range(3))
def test_programs_over_places_are_exact(steps, seed):
    """The best whole sizes of districts, zones and tenures cost as little as those of the best table of all that there are, added up by codes."""
    zones, tenures = [("A", "1"), ("A", "2"), ("B", "3")], [("own",), ("rent",)]
    tree, generator = universe_of([zones, tenures, [("1",)]], steps).tree, np.random.default_rng(seed)
    levels = range(1, tree.depth + 1)
    noisy = [generator.integers(-2, 4, (places_of(tree, level), 1)) for level in levels]
    variances = generator.choice([0.5, 1.0, 3.0], len(noisy)).tolist()
    found = whole_optimum(noisy, variances, [first_inside(tree, level, level + 1) for level in levels[:-1]])
    leaves = [*product(zones, tenures)]
    every = np.array([*product(range(5), repeat=len(leaves))])
    costs = np.zeros(len(every))
    for level, of_level, variance in zip(levels, noisy, variances, strict=True):
        zone, tenure, _ = tree.axis_levels(level)
        places = [*product(sorted({of[:zone] for of in zones}), sorted({of[:tenure] for of in tenures}))]
        for number, own in zip(in_tree_order(tree, level), of_level[:, 0], strict=True):
            inside = [(leaf[0][:zone], leaf[1][:tenure]) == places[number] for leaf in leaves]
            costs += (every[:, inside].sum(axis=1) - own) ** 2 / variance
    cost = sum(float(((of - own) ** 2).sum()) / v for of, own, v in zip(found, noisy, variances, strict=True))
    assert cost == pytest.approx(costs.min())
    assert found[-1].max() < 4  # no better table has been left out


@pytest.mark.parametrize("seed", range(20))
def test_a_cell_of_a_view_bears_the_draws_that_do_not_cancel_out(seed):
    """Any sizes in any places: written as sums of what is measured, its number of groups has as many terms, and of a chain no more."""
    generator = np.random.default_rng(seed)
    places, sizes, many = generator.integers(1, 6, 3)
    cells = generator.integers(0, many, (places, sizes))
    unit = np.eye(places * sizes, dtype=np.int64).reshape(places, sizes, -1)  # each number that is measured
    tails = unit - np.pad(unit, ((0, 0), (0, 1), (0, 0)))[:, 1:]
    chain = unit.swapaxes(0, 1) - np.pad(unit.swapaxes(0, 1).reshape(places * sizes, -1), ((0, 1), (0, 0)))[1:].reshape(
        sizes, places, -1
    )
    for statistic, of_each in (("tails", tails), ("sizes", unit), ("chain", chain.swapaxes(0, 1))):
        terms = np.zeros((many, places * sizes), dtype=np.int64)
        np.add.at(terms, cells, of_each)
        assert set(np.unique(terms)) <= {-1, 0, 1}  # no draw counts twice
        drawn, found = np.count_nonzero(terms, axis=1), draws_inside(statistic, cells, many)
        assert (found >= drawn).all() if statistic == "chain" else (found == drawn).all()
        if statistic == "tails":
            of_list = terms.reshape(many, places, sizes)[:, :, 1:]  # the first tails are those of the list
            found = draws_inside(statistic, cells, many, has_list=True)
            assert found.tolist() == np.count_nonzero(of_list, axis=(1, 2)).tolist()

"""Sensitivities against brute-force enumeration of what one unit can contribute to a tiny universe."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.mechanisms import MECHANISMS
from flows.planning.shares import scheme_of
from flows.spec.sections.privacy import PrivacyKeys
from tasks.accounting.sensitivity import (
    ADD_REMOVE,
    MOST_RECORDS,
    SUBSTITUTION,
    derivation,
    l2_sensitivity_squared,
    touched_cells,
)
from tasks.tree.order import Tree, alternate
from tasks.tree.true_tree import grow

UNIVERSES = {
    "regular": (tuple(product("ab", "12")), tuple(product("abc", "12"))),
    "irregular": (
        (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1")),
        (("all", "1"), ("all", "2")),  # its first level has a single area
    ),
    "lopsided": ((("a", "1"), ("b", "1"), ("b", "2")), (("p",), ("q",), ("r",))),  # axes of unequal depth
}
MOST = 3  # records per unit

SMALL_ORIGIN = [("a", "1"), ("a", "2"), ("b", "1")]
SMALL_DESTINATION = [("all", "1"), ("all", "2")]
RECORDS = 2  # of every small dataset, one record per unit

Lengths = tuple[int, ...]  # of the paths, per axis: a partition of the leaves


def cells_of(name: str, lengths: Lengths) -> list[tuple]:
    """Return, for each leaf of a universe, the cell of a partition that holds it: its paths, cut."""
    return [
        tuple(path[:length] for path, length in zip(leaf, lengths, strict=True)) for leaf in product(*UNIVERSES[name])
    ]


@cache
def contributions(name: str, most: int, promised: Lengths | None, exact: bool) -> np.ndarray:
    """Return the counts of every leaf, one row for all that a unit may contribute."""
    leaves = len(cells_of(name, (0, 0)))
    cells = cells_of(name, promised) if promised else None
    rows = []
    for size in range(most if exact else 0, most + 1):
        rows += [
            np.bincount(np.array(chosen, dtype=np.int64), minlength=leaves)
            for chosen in combinations_with_replacement(range(leaves), size)
            if cells is None or len({cells[leaf] for leaf in chosen}) == size
        ]
    return np.array(rows, dtype=np.float32).reshape(len(rows), leaves)


def histograms_of_one(name: str, most: int, promised: Lengths | None, exact: bool, lengths: Lengths) -> np.ndarray:
    """Return every histogram of a partition that one unit can contribute, a row each."""
    cells = cells_of(name, lengths)
    columns = {cell: column for column, cell in enumerate(dict.fromkeys(cells))}
    holds = np.zeros((len(cells), len(columns)), dtype=np.float32)
    holds[np.arange(len(cells)), [columns[cell] for cell in cells]] = 1
    return np.unique(contributions(name, most, promised, exact) @ holds, axis=0)


@cache
def most_that_differ(
    name: str, neighbours: str, most: int, promised: Lengths | None, exact: bool, lengths: Lengths
) -> int:
    """Return in how many cells two histograms of a partition can differ that differ in one unit's contribution."""
    histograms = histograms_of_one(name, most, promised, exact, lengths)
    others = histograms if neighbours == SUBSTITUTION else np.zeros_like(histograms[:1])
    return max((int((others != one).sum(axis=1).max()) for one in histograms), default=0)


@cache
def furthest(name: str, neighbours: str, most: int, promised: Lengths | None, exact: bool, lengths: Lengths) -> int:
    """Return the largest squared distance of two histograms of a partition that differ in one unit's contribution.

    Whatever the other units contribute, it is the same in both, so that only the one unit's two histograms matter.
    """
    histograms = histograms_of_one(name, most, promised, exact, lengths)
    if not len(histograms):  # nobody can keep a promise of more records than there are cells
        return 0
    norms = (histograms**2).sum(axis=1)
    if neighbours == ADD_REMOVE:
        return int(norms.max())
    return int((norms[:, None] + norms[None, :] - 2 * histograms @ histograms.T).max())


def promise_cells(name: str, lengths: Lengths, promised: Lengths) -> list[frozenset]:
    """Return, for every cell of a partition, the cells of the partition of the promise that have a leaf in it."""
    met: dict[tuple, set] = {}
    for node, cell in zip(cells_of(name, lengths), cells_of(name, promised), strict=True):
        met.setdefault(node, set()).add(cell)
    return [frozenset(cells) for cells in met.values()]


def is_tight(name: str, neighbours: str, most: int, promised: Lengths | None, lengths: Lengths) -> bool:
    """Return whether there are nodes enough, and each with cells of its own, to hold what moves furthest.

    That is so wherever 2m nodes (m under add_remove) contain D cells each. Nodes share all of their cells or none.
    """
    sides = 2 if neighbours == SUBSTITUTION else 1
    if promised is None:  # all records of a unit may be in one node
        return len(set(cells_of(name, lengths))) >= sides
    within = [len(cells) for cells in set(promise_cells(name, lengths, promised))]
    together = min(max(within), most)
    return sum(cells >= together for cells in within) >= sides * -(-most // together)


def trees(universe_of, name: str, first: int) -> tuple[Tree, list[Tree]]:
    """Return a universe's tree, and the trees of all its coarser releases, in which every level has its own name."""
    depths = tuple(len(paths[0]) for paths in UNIVERSES[name])

    def of(reached: Lengths) -> Tree:
        paths = [sorted({path[:own] for path in axis}) for axis, own in zip(UNIVERSES[name], reached, strict=True)]
        tree = universe_of(paths, alternate(reached, first)).tree
        axes = (
            replace(axis, level_names=tuple(f"{end} {own + 1}" for own in range(axis.depth)))
            for end, axis in zip(("origin", "destination"), tree.axes, strict=True)
        )
        return Tree(tuple(axes), tree.steps)

    return of(depths), [of(reached) for reached in product(*(range(1, depth + 1) for depth in depths))]


CASES = [
    (neighbours, most, exact)
    for neighbours, exact in ((SUBSTITUTION, True), (SUBSTITUTION, False), (ADD_REMOVE, False))
    for most in range(1, MOST + 1)
]
every_case = pytest.mark.parametrize(("neighbours", "most", "exact"), CASES)
both_trees = pytest.mark.parametrize("first", [1, 0], ids=["destination first", "origin first"])


@every_case
@both_trees
@pytest.mark.parametrize("name", UNIVERSES)
def test_no_unit_moves_a_level_further_than_its_sensitivity(
    universe_of, name: str, first: int, neighbours: str, most: int, exact: bool
) -> None:
    """No change of a unit's records moves a level further than Δ₂, and where there are nodes enough one does just so.

    The promise of distinct cells is made at no level and at each level of the codebooks, also below the finest release.
    """
    whole, released = trees(universe_of, name, first)
    promises = [None, *(whole.axis_levels(level) for level in range(1, whole.depth + 1))]
    tight, at_finest = 0, 0
    for promised, tree in product(promises, released):
        for level in range(tree.depth + 1):
            lengths = tree.axis_levels(level)
            below = max(map(len, promise_cells(name, lengths, promised))) if promised else None
            if promised:
                assert whole.most_cells_below(lengths, promised) == below
            square = l2_sensitivity_squared(neighbours, most, below, is_root=level == 0)
            found = furthest(name, neighbours, most, promised, exact, lengths)
            assert found <= square
            differ = most_that_differ(name, neighbours, most, promised, exact, lengths)
            assert differ <= touched_cells(neighbours, most, is_root=level == 0)
            if level and is_tight(name, neighbours, most, promised, lengths):
                assert found == square
                tight += 1
                at_finest += level == tree.depth and below is not None and below > 1
            if level == 0 and not exact and (below is None or below >= most):
                assert found == square == most**2
    if name == "regular":
        assert tight > 20
        assert at_finest


@every_case
@both_trees
@pytest.mark.parametrize("name", UNIVERSES)
def test_a_release_charges_every_level_with_its_sensitivity(
    universe_of, name: str, first: int, neighbours: str, most: int, exact: bool
) -> None:
    """From a spec's keys on, the measured levels are those that some unit can move, each with no less than it can."""
    whole, released = trees(universe_of, name, first)
    names = [None, *(name for axis in whole.axes for name in axis.level_names)]
    reached = {  # a level named for one end is reached in the step that refines this end for so many times
        f"{('origin', 'destination')[axis]} {whole.steps[: step + 1].count(axis)}": whole.axis_levels(step + 1)
        for step, axis in enumerate(whole.steps)
    }
    for distinct, tree in product(names, released):
        keys = PrivacyKeys(
            unit="one person",
            neighbours=neighbours,
            max_records_per_unit=most,
            exact_records_per_unit=exact,
            distinct=distinct,
            epsilon=1.0,
            delta=1e-8,
        )
        scheme = scheme_of(keys, tree, whole, MECHANISMS["inftda"], "opendp")
        assert scheme.first_measured == (1 if exact else 0)
        promised = reached[distinct] if distinct else None
        for level in range(tree.depth + 1):
            lengths = tree.axis_levels(level)
            found = furthest(name, neighbours, most, promised, exact, lengths)
            if level < scheme.first_measured:
                assert found == 0
                continue
            if level not in scheme.measured:
                continue  # it repeats the level above, which is looked at
            square = scheme.allocation.squares[scheme.measured.index(level)]
            assert found <= square
            differ = most_that_differ(name, neighbours, most, promised, exact, lengths)
            assert differ <= touched_cells(neighbours, most, is_root=level == 0)
            if level and is_tight(name, neighbours, most, promised, lengths):
                assert found == square
            assert scheme.derivation(level).endswith(f"= {square}")


@every_case
@both_trees
@pytest.mark.parametrize("name", UNIVERSES)
def test_no_unit_costs_all_levels_together_more_than_a_release_is_charged(
    universe_of, name: str, first: int, neighbours: str, most: int, exact: bool
) -> None:
    """Over all changes by one unit the levels' costs, by their scales, add up to ρ at most; without a promise, to ρ for some unit."""
    whole, released = trees(universe_of, name, first)
    keys = PrivacyKeys(
        unit="one person",
        neighbours=neighbours,
        max_records_per_unit=most,
        exact_records_per_unit=exact,
        rho=0.02,
        delta=1e-8,
        split={"geometric": 0.6},
    )
    for distinct, tree in product([None, whole.axes[0].level_names[0], whole.axes[0].level_names[-1]], released[-2:]):
        scheme = scheme_of(keys.model_copy(update={"distinct": distinct}), tree, whole, MECHANISMS["inftda"], "opendp")
        promised = whole.axis_levels(whole.level_named(distinct)) if distinct else None
        of_unit, cost = contributions(name, most, promised, exact).astype(np.float64), 0
        if not len(of_unit):
            continue
        for number, of in zip(scheme.measured, scheme.allocation.measurements(Fraction(keys.rho)), strict=True):
            cells = cells_of(name, tree.axis_levels(number))
            counts = of_unit @ holds(cells)
            norms = (counts**2).sum(axis=1)
            squares = norms if neighbours == ADD_REMOVE else norms[:, None] + norms[None, :] - 2 * counts @ counts.T
            cost = cost + squares / (2 * of.sigma**2)
        assert cost.max() <= keys.rho * (1 + 1e-12)
        if distinct is None:
            assert cost.max() == pytest.approx(keys.rho, rel=1e-9)


def holds(cells: list[tuple]) -> np.ndarray:
    """Return which leaf lies in which cell, shape (leaves, cells)."""
    columns = {cell: column for column, cell in enumerate(dict.fromkeys(cells))}
    return np.eye(len(columns))[[columns[cell] for cell in cells]]


def test_whoever_moves_the_total_moves_the_rest_less() -> None:
    """Per level, a unit with k records has at most the share 1 - (1 - k/m)² of what m distinct records can, as the proof says."""
    for most, below in product(range(1, 41), range(1, 45)):
        of = [0, *(l2_sensitivity_squared(ADD_REMOVE, records, below) for records in range(1, most + 1))]
        assert all(most**2 * own <= of[most] * (most**2 - (most - records) ** 2) for records, own in enumerate(of))


@pytest.mark.parametrize(
    ("neighbours", "most", "below", "is_root", "square"),
    [
        (SUBSTITUTION, 1, None, False, 2),
        (ADD_REMOVE, 1, None, False, 1),
        (ADD_REMOVE, 5, None, False, 25),
        (SUBSTITUTION, 5, None, False, 50),
        (ADD_REMOVE, 5, 1, False, 5),
        (SUBSTITUTION, 5, 1, False, 10),
        (ADD_REMOVE, 5, 2, False, 9),
        (SUBSTITUTION, 5, 2, False, 18),
        (ADD_REMOVE, 5, 5, False, 25),
        (SUBSTITUTION, 5, 1_000, False, 50),
        (ADD_REMOVE, 7, 3, False, 19),
        (ADD_REMOVE, 8, 3, False, 22),
        (SUBSTITUTION, 7, 3, True, 49),
        (ADD_REMOVE, 7, None, True, 49),
        (ADD_REMOVE, MOST_RECORDS, None, True, 2**40),
        (SUBSTITUTION, MOST_RECORDS, None, False, 2**41),
    ],
)
def test_sensitivities_have_the_values_of_the_formula(
    neighbours: str, most: int, below: int | None, is_root: bool, square: int
) -> None:
    """⌊m/D⌋·D² + (m mod D)², twice that under substitution, m² at the root, worked out by hand."""
    assert l2_sensitivity_squared(neighbours, most, below, is_root=is_root) == square
    assert derivation(neighbours, most, below, is_root=is_root).endswith(f"= {square}")


@given(neighbours=st.sampled_from([SUBSTITUTION, ADD_REMOVE]), most=st.integers(1, 200), below=st.integers(1, 300))
def test_promises_never_raise_a_sensitivity(neighbours: str, most: int, below: int) -> None:
    """Δ₂² grows with m and with D, lies between m and m² on each side, and is that without a promise where D >= m."""
    square = l2_sensitivity_squared(neighbours, most, below)
    sides = 2 if neighbours == SUBSTITUTION else 1
    assert sides * most <= square <= sides * most**2
    assert square <= l2_sensitivity_squared(neighbours, most, below + 1)
    assert square < l2_sensitivity_squared(neighbours, most + 1, below)
    assert (square == l2_sensitivity_squared(neighbours, most)) == (below >= most)


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize(
    ("neighbours", "most", "below", "named"),
    [
        ("", 1, None, "neighbours"),
        ("add-remove", 1, None, "neighbours"),
        ("Substitution", 1, None, "neighbours"),
        (ADD_REMOVE, 0, None, "max_records"),
        (SUBSTITUTION, -1, None, "max_records"),
        (ADD_REMOVE, MOST_RECORDS + 1, None, "max_records"),
        (ADD_REMOVE, 1, 0, "most_distinct"),
        (SUBSTITUTION, 3, -2, "most_distinct"),
    ],
)
def test_a_relation_or_bound_that_means_nothing_is_refused(
    neighbours: str, most: int, below: int | None, named: str, is_root: bool
) -> None:
    """An unknown relation and an m or D out of range are refused by name, at the root too."""
    with pytest.raises(ValueError, match=f"^{named} must be "):
        l2_sensitivity_squared(neighbours, most, below, is_root=is_root)


@settings(max_examples=60)
@given(data=st.data())
def test_cells_below_a_node_are_counted_as_they_are(universes, data: st.DataObject) -> None:
    """D is the most cells of the promise that share a leaf with one node, whatever the two partitions."""
    universe = data.draw(universes)
    depths = [axis.depth for axis in universe.tree.axes]
    lengths, promised = (data.draw(st.tuples(*(st.integers(0, depth) for depth in depths))) for _ in range(2))
    met: dict[tuple, set] = {}
    for leaf in universe.leaves():
        node, cell = (tuple(path[:own] for path, own in zip(leaf, of, strict=True)) for of in (lengths, promised))
        met.setdefault(node, set()).add(cell)
    assert universe.tree.most_cells_below(lengths, promised) == max(len(cells) for cells in met.values())


@both_trees
def test_a_level_is_found_by_the_name_that_some_axis_gives_it(universe_of, first: int) -> None:
    """The level of a name is the first at which every axis that has the name has reached it; other names have none."""
    tree = universe_of([SMALL_ORIGIN, SMALL_DESTINATION], alternate((2, 2), first)).tree
    assert [tree.level_named(name) for name in ("level_1", "level_2", "level_3", "")] == [2, 4, None, None]
    whole, _ = trees(universe_of, "lopsided", first)
    order = ["destination 1", "origin 1", "origin 2"] if first else ["origin 1", "destination 1", "origin 2"]
    assert [whole.level_named(name) for name in order] == [1, 2, 3]


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


@both_trees
def test_no_pair_of_neighbouring_tables_is_further_apart_than_the_sensitivity(universe_of, first: int) -> None:
    """Substituting one record of any dataset moves no level of its true tree further than Δ₂, and some just as far.

    At a level with a single node, as at the root, nothing can move.
    """
    universe = universe_of([SMALL_ORIGIN, SMALL_DESTINATION], alternate((2, 2), first))
    leaves = universe.leaves()
    of_dataset = {dataset: histograms(universe, dataset) for dataset in product(leaves, repeat=RECORDS)}
    furthest_apart = [0] * (universe.tree.depth + 1)
    for dataset, substitute in product(of_dataset, leaves):
        neighbour = (substitute, *dataset[1:])
        for level, (counts, others) in enumerate(zip(of_dataset[dataset], of_dataset[neighbour], strict=True)):
            apart = sum((counts[node] - others[node]) ** 2 for node in counts | others)
            furthest_apart[level] = max(furthest_apart[level], apart)
    nodes = [len(universe.nodes(level)) for level in range(universe.tree.depth + 1)]
    assert nodes == ([1, 1, 2, 4, 6] if first else [1, 2, 2, 3, 6])
    assert furthest_apart == [l2_sensitivity_squared(SUBSTITUTION, 1) if several > 1 else 0 for several in nodes]

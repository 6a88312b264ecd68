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

from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from flows.trials.in_memory import public_table
from storage.releases.terms import ABOVE, ALL, SURVIVORS
from tasks.accounting.sensitivity import (
    ADD_REMOVE,
    MOST_RECORDS,
    SUBSTITUTION,
    derivation,
    l2_sensitivity_squared,
    touched_cells,
)
from tasks.mechanisms import MECHANISMS
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree, alternate
from tests.support.neighbours import RELATIONS, contributions, holds
from tests.support.scales import try_scales
from tests.support.universe import universe_of

UNIVERSES = {
    "regular": (tuple(product("ab", "12")), tuple(product("abc", "12"))),
    "irregular": (
        (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1")),
        (("all", "1"), ("all", "2")),  # its first level has a single area
    ),
    "lopsided": ((("a", "1"), ("b", "1"), ("b", "2")), (("p",), ("q",), ("r",))),  # axes of unequal depth
    "with a mode": ((("a", "1"), ("a", "2"), ("b", "1")), (("p",), ("q",)), (("bus",), ("car",))),
}
AXES = ("origin", "destination", "mode")
MOST = 3  # records per unit


def cells_of(name, lengths):
    """Return, for each leaf of a universe, the cell of a partition that holds it: its paths, cut."""
    cut = [[path[:length] for path in paths] for paths, length in zip(UNIVERSES[name], lengths, strict=True)]
    return list(product(*cut))


@cache
def of_unit(name, most, promised, exact):
    """Return all that a unit may contribute to a universe, a row each."""
    cells = cells_of(name, promised) if promised else None
    return contributions(len(cells_of(name, (0,) * len(UNIVERSES[name]))), most, exact=exact, cells=cells)


def histograms_of_one(name, most, promised, exact, lengths):
    """Return every histogram of a partition that one unit can contribute, a row each."""
    return np.unique(of_unit(name, most, promised, exact) @ holds(cells_of(name, lengths)), axis=0)


@cache
def most_that_differ(name, neighbours, most, promised, exact, lengths):
    """Return in how many cells two histograms of a partition can differ that differ in one unit's contribution."""
    histograms = histograms_of_one(name, most, promised, exact, lengths)
    others = histograms if neighbours == SUBSTITUTION else np.zeros_like(histograms[:1])
    return max((int((others != one).sum(axis=1).max()) for one in histograms), default=0)


@cache
def furthest(name, neighbours, most, promised, exact, lengths):
    """Return the largest squared distance of two histograms of a partition that differ in one unit's contribution."""
    # Whatever the other units contribute, it is the same in both, so that only the one unit's two histograms matter.
    histograms = histograms_of_one(name, most, promised, exact, lengths)
    if not len(histograms):  # nobody can keep a promise of more records than there are cells
        return 0
    norms = (histograms**2).sum(axis=1)
    if neighbours == ADD_REMOVE:
        return int(norms.max())
    return int((norms[:, None] + norms[None, :] - 2 * histograms @ histograms.T).max())


def promise_cells(name, lengths, promised):
    """Return, for every cell of a partition, the cells of the partition of the promise that have a leaf in it."""
    met = {}
    for node, cell in zip(cells_of(name, lengths), cells_of(name, promised), strict=True):
        met.setdefault(node, set()).add(cell)
    return [frozenset(cells) for cells in met.values()]


def is_tight(name, neighbours, most, promised, lengths):
    """Return whether there are nodes enough, and each with cells of its own, to hold what moves furthest."""
    # That is so wherever 2m nodes (m under add_remove) contain D cells each. Nodes share all of their cells or none.
    sides = 2 if neighbours == SUBSTITUTION else 1
    if promised is None:  # all records of a unit may be in one node
        return len(set(cells_of(name, lengths))) >= sides
    within = [len(cells) for cells in set(promise_cells(name, lengths, promised))]
    together = min(max(within), most)
    return sum(cells >= together for cells in within) >= sides * -(-most // together)


def trees(name, first):
    """Return a universe's tree, and the trees of all its coarser releases, in which every level has its own name."""
    depths = tuple(len(paths[0]) for paths in UNIVERSES[name])

    def of(reached):
        paths = [sorted({path[:own] for path in axis}) for axis, own in zip(UNIVERSES[name], reached, strict=True)]
        tree = universe_of(paths, alternate(reached, first)).tree
        ends = zip(AXES, tree.axes, strict=False)
        axes = (replace(axis, level_names=tuple(f"{end} {own + 1}" for own in range(axis.depth))) for end, axis in ends)
        return Tree(tuple(axes), tree.steps)

    return of(depths), [of(reached) for reached in product(*(range(1, depth + 1) for depth in depths))]


every_case = [(of, most, exact) for of, exact in RELATIONS for most in range(1, MOST + 1)]
every_case = pytest.mark.parametrize(("neighbours", "most", "exact"), every_case)
both_trees = pytest.mark.parametrize("first", [1, 0], ids=["destination first", "origin first"])


def keys_of(neighbours, most, exact=None, **keys):
    """Return a spec's section `privacy`."""
    unit = {"neighbours": neighbours, "max_records_per_unit": most, "exact_records_per_unit": exact}
    return PrivacyKeys(unit="one person", delta=1e-8, **unit, **keys)


@every_case
@both_trees
@pytest.mark.parametrize("name", UNIVERSES)
def test_a_release_charges_every_level_with_its_sensitivity(name, first, neighbours, most, exact):
    """From a spec's keys on, no change of a unit's records moves a level further than it is charged for, and where there are nodes enough one does just so."""
    # The promise of distinct cells is made at no level and at each level of the codebooks, also below the finest release.
    whole, released = trees(name, first)
    names = [None, *(name for axis in whole.axes for name in axis.level_names)]
    reached = {  # a level named for one end is reached in the step that refines this end for so many times
        f"{AXES[axis]} {whole.steps[: step + 1].count(axis)}": whole.axis_levels(step + 1)
        for step, axis in enumerate(whole.steps)
    }
    tight, at_finest = 0, 0
    for distinct, tree in product(names, released):
        keys = keys_of(neighbours, most, exact, distinct=distinct, epsilon=1.0)
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
                tight += 1
                several = promised is not None and whole.most_cells_below(lengths, promised) > 1
                at_finest += several and level == tree.depth
            if level == 0 and not exact and promised is None:
                assert found == square == most**2
            assert scheme.derivation(level).endswith(f"= {square}")
    if name == "regular":
        assert tight > 20
        assert at_finest


@every_case
@both_trees
@pytest.mark.parametrize("name", UNIVERSES)
def test_no_unit_costs_all_levels_together_more_than_a_release_is_charged(name, first, neighbours, most, exact):
    """Over all changes by one unit the levels' costs, by their scales, add up to ρ at most; without a promise, to ρ for some unit."""
    whole, released = trees(name, first)
    keys = keys_of(neighbours, most, exact, rho=0.02, split={"geometric": 0.6})
    for distinct, tree in product([None, whole.axes[0].level_names[0], whole.axes[0].level_names[-1]], released[-2:]):
        scheme = scheme_of(keys.model_copy(update={"distinct": distinct}), tree, whole, MECHANISMS["inftda"], "opendp")
        promised = whole.axis_levels(whole.level_named(distinct)) if distinct else None
        units, cost = of_unit(name, most, promised, exact).astype(np.float64), 0
        if not len(units):
            continue
        for number, of in zip(scheme.measured, scheme.allocation.measurements(Fraction(keys.rho)), strict=True):
            counts = units @ holds(cells_of(name, tree.axis_levels(number)))
            norms = (counts**2).sum(axis=1)
            squares = norms if neighbours == ADD_REMOVE else norms[:, None] + norms[None, :] - 2 * counts @ counts.T
            cost = cost + squares / (2 * of.sigma**2)
        assert cost.max() <= keys.rho * (1 + 1e-12)
        if distinct is None:
            assert cost.max() == pytest.approx(keys.rho, rel=1e-9)


def test_whoever_moves_the_total_moves_the_rest_less():
    """Per level, a unit with k records has at most the share 1 - (1 - k/m)² of what m distinct records can, as the proof says."""
    for most, below in product(range(1, 41), range(1, 45)):
        of = [0, *(l2_sensitivity_squared(ADD_REMOVE, records, below) for records in range(1, most + 1))]
        assert all(most**2 * own <= of[most] * (most**2 - (most - records) ** 2) for records, own in enumerate(of))


@pytest.mark.parametrize(("neighbours", "most", "below", "is_root", "square"), [
    (SUBSTITUTION, 1, None, False, 2), (ADD_REMOVE, 1, None, False, 1), (ADD_REMOVE, 5, None, False, 25),
    (SUBSTITUTION, 5, None, False, 50), (ADD_REMOVE, 5, 1, False, 5), (ADD_REMOVE, 5, 2, False, 9),
    (SUBSTITUTION, 5, 1_000, False, 50), (ADD_REMOVE, 7, 3, False, 19), (ADD_REMOVE, 8, 3, False, 22),
    (SUBSTITUTION, 7, 3, True, 49), (ADD_REMOVE, 7, None, True, 49), (ADD_REMOVE, MOST_RECORDS, None, True, 2**40),
    (SUBSTITUTION, MOST_RECORDS, None, False, 2**41),
])  # fmt: skip
def test_sensitivities_have_the_values_of_the_formula(neighbours, most, below, is_root, square):
    """⌊m/D⌋·D² + (m mod D)², twice that under substitution, m² at the root, worked out by hand."""
    assert l2_sensitivity_squared(neighbours, most, below, is_root=is_root) == square
    assert derivation(neighbours, most, below, is_root=is_root).endswith(f"= {square}")


@pytest.mark.parametrize(("neighbours", "most", "below", "named"), [
    ("add-remove", 1, None, "neighbours"),
    (SUBSTITUTION, 0, None, "max_records"),
    (ADD_REMOVE, MOST_RECORDS + 1, None, "max_records"),
    (ADD_REMOVE, 1, 0, "most_distinct"),
])  # fmt: skip
def test_a_relation_or_bound_that_means_nothing_is_refused(neighbours, most, below, named):
    """An unknown relation and an m or D out of range are refused by name, at the root too."""
    for is_root in (False, True):
        with pytest.raises(ValueError, match=f"^{named} must be "):
            l2_sensitivity_squared(neighbours, most, below, is_root=is_root)


@settings(max_examples=60)
@given(data=st.data())
def test_cells_below_a_node_are_counted_as_they_are(universes, data):
    """D is the most cells of the promise that share a leaf with one node, whatever the two partitions."""
    universe = data.draw(universes)
    depths = [axis.depth for axis in universe.tree.axes]
    lengths, promised = (data.draw(st.tuples(*(st.integers(0, depth) for depth in depths))) for _ in range(2))
    met = {}
    for leaf in universe.leaves():
        node, cell = (tuple(path[:own] for path, own in zip(leaf, of, strict=True)) for of in (lengths, promised))
        met.setdefault(node, set()).add(cell)
    assert universe.tree.most_cells_below(lengths, promised) == max(len(cells) for cells in met.values())


# What a release in memory reads of neighbouring tables.

UNIVERSE = universe_of([[("a", "1"), ("a", "2"), ("b", "1")], [("p",), ("q",)]], [0, 1, 0])
LEAVES = [UNIVERSE.areas(leaf) for leaf in UNIVERSE.leaves()]
RECORDS = 2  # of all other units
RHO = Fraction(3, 7)


def read_by(mechanism, records, scales, noisy):
    """Return the true counts that a release of a table reads, call by call, while it gets given noisy counts whatever they are."""
    read, left = list[IntArray](), iter(noisy)
    there = sorted(leaf for leaf, count in records.items() if count)
    areas = [np.array([LEAVES[leaf][axis] for leaf in there], dtype=np.int64) for axis in range(2)]
    table = public_table(UNIVERSE.tree, areas, np.array([records[leaf] for leaf in there], dtype=np.int64))

    def sample(true_counts, scale):
        read.append(true_counts.copy())
        return next(left)[: len(true_counts)]

    try_scales(table, mechanism, list(scales), sample)
    return read


@pytest.mark.parametrize(("name", "measure"), [
    ("inftda", SURVIVORS),
    *(("inftda_reconciled", of) for of in (ALL, ABOVE, SURVIVORS)),
    *(pytest.param("inftda_shrunk", of, marks=pytest.mark.thorough) for of in (ALL, ABOVE, SURVIVORS)),
    pytest.param("inftda_lenient", SURVIVORS, marks=pytest.mark.thorough),
])  # fmt: skip
@pytest.mark.parametrize("relation", [ADD_REMOVE, SUBSTITUTION])
def test_no_unit_moves_what_is_measured_further_than_it_is_charged(name, measure, relation):
    """Given any noisy counts, neighbouring tables differ at each level by its sensitivity at most, and some do by all of it."""
    # With the noisy counts fixed, both releases measure the same cells: these depend on noisy counts alone.
    depth, keys = UNIVERSE.tree.depth, keys_of(relation, 1, rho=float(RHO), split="uniform")
    mechanism, of_survivors = (replace(MECHANISMS[name], measure=of) for of in (measure, SURVIVORS))
    charged, plain = (scheme_of(keys, UNIVERSE.tree, UNIVERSE.tree, of, "opendp") for of in (mechanism, of_survivors))
    assert (charged.measured, charged.allocation) == (plain.measured, plain.allocation)
    allowed = {of: moved.l2_squared for of, moved in zip(charged.measured, charged.sensitivities, strict=True)}
    scales = [2.0 if level in allowed else 0.0 for level in range(depth + 1)]
    random, furthest = np.random.default_rng(7), Counter[int]()
    possible = [UNIVERSE.tree.possible_cells(level) for level in range(depth + 1) if level in allowed]
    for chosen in combinations_with_replacement(range(len(LEAVES)), RECORDS):
        records = Counter(chosen)
        noisy = [np.rint(random.normal(1, 2, cells)).astype(np.int64) for cells in possible]
        one = read_by(mechanism, records, scales, noisy)
        left = [records] if relation == ADD_REMOVE else [records - Counter([leaf]) for leaf in records]
        for without, leaf in product(left, range(len(LEAVES))):
            other = read_by(mechanism, without + Counter([leaf]), scales, noisy)
            assert [len(of) for of in one] == [len(of) for of in other]
            assert measure != ALL or [len(of) for of in one] == possible  # whatever the noise
            # every level that is charged is read, unless nothing survives above it
            for level, of_one, of_other in zip(sorted(allowed), one, other, strict=measure != SURVIVORS):
                furthest[level] = max(furthest[level], int(((of_one - of_other) ** 2).sum()))
    assert all(furthest[level] <= allowed[level] for level in allowed)
    if measure == ALL:
        assert {level: furthest[level] for level in allowed} == allowed

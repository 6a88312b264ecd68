"""What one unit can change where every cell is measured, against the enumeration of all neighbours of tiny tables."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from flows.mechanisms import MECHANISMS, Mechanism
from flows.planning.shares import scheme_of
from flows.spec.sections.privacy import PrivacyKeys
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from storage.releases.terms import ABOVE, ALL, SURVIVORS, Measure
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION
from tasks.tree.axis import IntArray
from tests.support.universe import universe_of

UNIVERSE = universe_of([[("a", "1"), ("a", "2"), ("b", "1")], [("p",), ("q",)]], [0, 1, 0])
LEAVES = [UNIVERSE.areas(leaf) for leaf in UNIVERSE.leaves()]
RECORDS = 2  # of all other units
RHO = Fraction(3, 7)
MECHANISM_NAMES = ["inftda_reconciled", "inftda_lenient", "inftda_shrunk"]


def table_of(records: Counter) -> SeenTable:
    """Return a table with records in some leaves."""
    there = sorted(leaf for leaf, count in records.items() if count)
    areas = [np.array([LEAVES[leaf][axis] for leaf in there], dtype=np.int64) for axis in range(2)]
    return seen_table(UNIVERSE.tree, areas, np.array([records[leaf] for leaf in there], dtype=np.int64))


def mechanism_of(name: str, measure: Measure) -> Mechanism:
    """Return a mechanism with a second pass that measures some cells."""
    return replace(MECHANISMS[name], measure=measure)


def read_by(mechanism: Mechanism, records: Counter, scales: list[float], noisy: list[IntArray]) -> list[IntArray]:
    """Return the true counts that a release of a table reads, call by call, while it gets given noisy counts whatever they are."""
    read, left = list[IntArray](), iter(noisy)

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        del scale
        read.append(true_counts.copy())
        drawn = next(left)
        return drawn[: len(true_counts)]

    try_scales(table_of(records), mechanism, list(scales), sample)
    return read


def scheme(name: str, measure: Measure, neighbours: str) -> Any:
    """Return what a plan charges."""
    keys = PrivacyKeys(
        unit="one", neighbours=neighbours, max_records_per_unit=1, rho=float(RHO), delta=1e-8, split="uniform"
    )
    return scheme_of(keys, UNIVERSE.tree, UNIVERSE.tree, mechanism_of(name, measure), "opendp")


def neighbours_of(records: Counter, relation: str) -> list[Counter]:
    """Return every table that differs in one unit, which has one record."""
    if relation == ADD_REMOVE:
        return [records + Counter([leaf]) for leaf in range(len(LEAVES))]
    return [records - Counter([one]) + Counter([other]) for one, other in product(records, range(len(LEAVES)))]


@pytest.mark.parametrize(
    "name", ["inftda_reconciled", "inftda_shrunk", pytest.param("inftda_lenient", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("measure", [ALL, ABOVE, SURVIVORS])
@pytest.mark.parametrize("relation", [ADD_REMOVE, SUBSTITUTION])
def test_no_unit_moves_what_is_measured_further_than_it_is_charged(name: str, measure: Measure, relation: str) -> None:
    """Given any noisy counts, neighbouring tables differ at each level by its sensitivity at most, and some do by all of it.

    With the noisy counts fixed, both releases measure the same cells: these depend on noisy counts alone.
    """
    depth, charged = UNIVERSE.tree.depth, scheme(name, measure, relation)
    assert charged.measured == scheme(name, SURVIVORS, relation).measured
    assert charged.allocation == scheme(name, SURVIVORS, relation).allocation
    allowed = {of: moved.l2_squared for of, moved in zip(charged.measured, charged.sensitivities, strict=True)}
    scales = [2.0 if level in allowed else 0.0 for level in range(depth + 1)]
    random, furthest = np.random.default_rng(7), Counter[int]()
    possible = [UNIVERSE.tree.possible_cells(level) for level in range(depth + 1) if level in allowed]
    for chosen in combinations_with_replacement(range(len(LEAVES)), RECORDS):
        records = Counter(chosen)
        noisy = [np.rint(random.normal(1, 2, cells)).astype(np.int64) for cells in possible]
        one = read_by(mechanism_of(name, measure), records, scales, noisy)
        for neighbour in neighbours_of(records, relation):
            other = read_by(mechanism_of(name, measure), neighbour, scales, noisy)
            assert [len(of) for of in one] == [len(of) for of in other]
            # every level that is charged is read, unless nothing survives above it
            for level, of_one, of_other in zip(sorted(allowed), one, other, strict=measure != SURVIVORS):
                furthest[level] = max(furthest[level], int(((of_one - of_other) ** 2).sum()))
    assert all(furthest[level] <= allowed[level] for level in allowed)
    if measure == ALL:
        assert {level: furthest[level] for level in allowed} == allowed


@pytest.mark.parametrize("name", MECHANISM_NAMES)
def test_every_cell_is_read_whatever_the_noise(name: str) -> None:
    """Where all are measured, which cells are read does not depend on the noise at all."""
    possible = [UNIVERSE.tree.possible_cells(level) for level in range(1, UNIVERSE.tree.depth + 1)]
    random = np.random.default_rng(8)
    for _ in range(50):
        noisy = [np.rint(random.normal(0, 20, cells)).astype(np.int64) for cells in possible]
        read = read_by(mechanism_of(name, ALL), Counter([1, 4]), [0.0, 2.0, 2.0, 2.0], noisy)
        assert [len(of) for of in read] == possible

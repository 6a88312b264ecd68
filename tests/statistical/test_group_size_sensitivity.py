"""How far a person moves what is measured of group sizes, against all small tables and their neighbours.

Tables hold a few groups, each in one region, with no people or more; sizes above N count as N.
"""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest

from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION
from tasks.sizes.statistics import CHAIN, SIZES, TAILS, chain_of
from tasks.sizes.tables import tails_of

GROUPS = 4


def changed(groups, records, by):
    """Yield the groups after so many records have come, or have left."""
    if not records:
        yield groups
        return
    for at, (region, size) in enumerate(groups):
        if size + by >= 0:
            yield from changed((*groups[:at], (region, size + by), *groups[at + 1 :]), records - 1, by)


def counts_of(groups, regions, largest):
    """Return how many groups of sizes 0 to N there are in each region."""
    counts = np.zeros((regions, largest + 1), dtype=np.int64)
    for region, size in groups:
        counts[region, min(size, largest)] += 1
    return counts


@cache
def neighbours(regions, largest, neighbours_are, records):
    """Return counts of tables and their neighbours, with sizes from 0 on, shape (pairs, 2, regions, N + 1)."""
    tables = combinations_with_replacement(
        [(region, size) for region in range(regions) for size in range(largest + 2)], GROUPS if regions < 3 else 2
    )
    pairs = set[bytes]()
    for table in tables:
        before = counts_of(table, regions, largest)
        for left in changed(table, records, -1):
            for after in changed(left, records, 1) if neighbours_are == SUBSTITUTION else [left]:
                pairs.add(before.tobytes() + counts_of(after, regions, largest).tobytes())
    shape = (len(pairs), 2, regions, largest + 1)
    return np.frombuffer(b"".join(sorted(pairs)), dtype=np.int64).reshape(shape)


def furthest(measure, regions, largest, neighbours_are=ADD_REMOVE, records=1):
    """Return Δ₁ and Δ₂² of a level over all pairs, of a function of its counts of sizes 0 to N."""
    moved = [measure(one) - measure(other) for one, other in neighbours(regions, largest, neighbours_are, records)]
    return max(int(abs(of).sum()) for of in moved), max(int((of**2).sum()) for of in moved)


TABLE = {  # what is measured of a level, and Δ₁, which equals Δ₂²
    "sizes from 0": (lambda counts: counts, "2"),
    "sizes from 1": (lambda counts: counts[:, 1:], "2"),
    "tails": (lambda counts: tails_of(counts[:, 1:]), "1"),
    "cumulative from 0": (lambda counts: np.cumsum(counts, axis=1), "1"),
    "cumulative from 1": (lambda counts: np.cumsum(counts[:, 1:], axis=1), "N"),
    "chain by size from 0": (lambda counts: np.cumsum(counts.T.ravel()), "|R|"),
    "chain by size from 1": (lambda counts: np.cumsum(counts[:, 1:].T.ravel()), "N |R|"),
    "chain by size, from the last": (lambda counts: chain_of(counts[:, 1:]), "|R|"),
    "chain by region from 0": (lambda counts: np.cumsum(counts.ravel()), "1"),
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(("regions", "largest"), [(1, 2), (1, 4), (2, 3), (3, 2)])
def test_one_person_moves_a_level_as_far_as_the_table_says(name, regions, largest):
    """Not further, and in some table so far: sums that the paper takes to move by 1 move by N, |R| or N |R|."""
    measure, expected = TABLE[name]
    bound = {"1": 1, "2": 2, "N": largest, "|R|": regions, "N |R|": largest * regions}[expected]
    assert furthest(measure, regions, largest) == (bound, bound)


REFINED = {  # of zones 0 and 1 with tenures 0 and 1, which are places 0 to 3: those of a level, added up by what it refines
    "nothing": [[0, 1, 2, 3]],
    "zones": [[0, 1], [2, 3]],
    "tenures": [[0, 2], [1, 3]],
    "zones and tenures": [[0], [1], [2], [3]],
}


@pytest.mark.parametrize("refined", REFINED)
@pytest.mark.parametrize("relation", [ADD_REMOVE, SUBSTITUTION])
def test_one_person_moves_the_tails_of_places_as_those_of_regions(refined, relation):
    """A group has one zone and one tenure, so that in each level, whatever it refines, one place changes: by one tail, or by two if another person comes."""
    places = REFINED[refined]
    moved = furthest(lambda counts: tails_of(np.array([counts[of, 1:].sum(axis=0) for of in places])), 4, 2, relation)
    stated = TAILS.sensitivity(relation, 1, len(places))
    assert moved == (stated.l1, stated.l2_squared)


@pytest.mark.parametrize(("largest", "values"), [(2, 2), (3, 2), (3, 3), (2, 3)])
def test_attributes_of_persons_would_move_many_tails(largest, values):
    """A group that counts with its whole size in each value among its members: one who leaves moves N + min(V, N) - 1 tails, as the refusal says."""

    def tails(members):
        counts = np.zeros((values, largest), dtype=np.int64)
        for value in {*members}:
            counts[value, min(len(members), largest) - 1] += 1
        return tails_of(counts)

    groups = [members for size in range(largest + 3) for members in combinations_with_replacement(range(values), size)]
    moved = [np.abs(tails(of) - tails(of[:at] + of[at + 1 :])).sum() for of in groups for at in range(len(of))]
    assert max(moved) == largest + min(values, largest) - 1


@pytest.mark.parametrize("statistic", [SIZES, TAILS, CHAIN], ids=lambda of: of.name)
@pytest.mark.parametrize("relation", [ADD_REMOVE, SUBSTITUTION])
@pytest.mark.parametrize(("regions", "largest", "records"), [(1, 3, 1), (1, 3, 2), (2, 3, 1), (2, 3, 2), (1, 3, 3)])
def test_sensitivities_of_mechanisms_hold(statistic, relation, regions, largest, records):
    """No unit moves a level further, and under add_remove or with one or two records some unit moves it so far."""
    stated = statistic.sensitivity(relation, records, regions)
    found = furthest(lambda counts: statistic.of(counts[:, 1:]), regions, largest, relation, records)
    assert found[0] <= stated.l1
    assert found[1] <= stated.l2_squared
    if relation == ADD_REMOVE or records <= GROUPS // 2:
        assert found == (stated.l1, stated.l2_squared)

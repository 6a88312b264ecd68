"""Controlled rounding: real counts of leaves to whole ones, such that sums over overlapping cells hardly move."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tasks.settle.evened import evened
from tasks.tree.axis import BoolArray, FloatArray, IntArray

Labels = NDArray[np.int32]

_ONE = 2**29  # fractions are whole multiples of 1 / _ONE: those of 2**24 leaves add up exactly in floating point
_LARGE = 2.0**-48  # of a sum: what floating point may have lost of it
_MOST_PROGRAMMED = 30_000  # atoms times groupings of a mixed-integer program, which takes up to 3 s; 80,000 take 13 s
_DIGITS = 9  # of deviations: what floating point adds to or takes from 1 is beyond them
_CLOSENESS = 1e-3  # what distance between atoms and their real sums costs, beside 1 for a cell that is off by one


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """Whole counts, and how near their sums are to the real ones.

    Attributes:
        counts: int64, shape (leaves,), records, >= 0.
        deviations: for each grouping, the largest difference between a cell's whole and real sum, records; then that of a leaf.
            Rounding is controlled where all are below 1.
    """

    counts: IntArray
    deviations: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums of fractions, and the whole numbers that may take their place.

    Attributes:
        units: int64, in units of 1 / _ONE.
        low, high: int64: the whole numbers on either side; the same where a sum is whole but for rounding.
    """

    units: IntArray
    low: IntArray
    high: IntArray

    def nearest(self) -> IntArray:
        """Return the nearer of the two."""
        return np.where(2 * (self.units - self.low * _ONE) > _ONE, self.high, self.low)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """A grouping, as far as its leaves have fractions.

    Attributes:
        of_atom: int64, shape (atoms,): the cell of each atom; -1 where it is in none.
        sums: shape (cells,).
    """

    of_atom: IntArray
    sums: _Sums

    def __len__(self) -> int:
        return len(self.sums.low)

    def is_whole(self) -> bool:
        """Return whether every sum is whole."""
        return bool((self.sums.low == self.sums.high).all())


@dataclass(frozen=True, slots=True, eq=False)
class _Atoms:
    """Leaves with fractions, joined where they have the same labels in all groupings.

    Attributes:
        sums: shape (atoms,).
        slack: how far a sum of one leaf may be from a whole number and still count as one.
        leaves: shape (atoms,): of how many leaves each is.
    """

    sums: _Sums
    groupings: tuple[_Cells, ...]
    slack: float
    leaves: IntArray


def round_controlled(values: FloatArray, cells: Sequence[Labels]) -> Rounded:
    r"""Return whole counts z of the leaves, with sums that differ by less than 1 from those of the real counts y.

    .. math:: z \in \mathbb{Z}_{\ge 0}^{N}, \quad |z_a - y_a| < 1, \quad |(A_i z)_j - (A_i y)_j| < 1

    Two groupings cross where neither of two cells that overlap contains the other. Where all groupings can be put into two
    chains in which none cross, such counts always exist: the cells of either chain form a laminar family, the constraints
    are those of a flow from the cells of one to those of the other, and bounds that are whole have a whole flow. It is
    found from the nearest whole numbers, which a maximum flow corrects. Otherwise there may be none: of three leaves of 1/2,
    three groupings that each join two have no such counts. Then leaves are rounded such that all sums are near (`evened`), and
    a flow corrects those that are whole. If some sum is off by 1 or more, and atoms (leaves with the same labels) times
    groupings are at most 30,000, a mixed-integer program looks for counts with the least excess, and the better of the two
    results is taken. It ends at the root of its search, so that there may be controlled counts that it does not find.
    Of the leaves of an atom the largest fractions are rounded up, of equal ones the first.

    Only fractions are rounded; sums of them are exact in units of 2^-29. A sum counts as whole, and is met exactly, if
    rounding explains its fraction: 1e-9 to 2^-16 for each leaf, less the more leaves there are, and 2^-48 of the sum. All
    that these allowances add up to is below 1, so that they leave a flow.

    Args:
        values: y, float64, shape (leaves,), records, >= 0; they sum to at most 2^40.
        cells: for each grouping, int32, shape (leaves,): the cell of each leaf, from 0; -1 where it is in none.
    Returns:
        z, with what each grouping and the leaves deviate by.
    Guarantees:
        Post-processing: reads no true count. Deterministic, and for one version of HiGHS where a program is solved. Each
        leaf is within less than 1 of its value. With two chains, or if the search finds it, so is every cell. A grouping whose
        sums are all whole is met exactly wherever rounding is controlled or it is in one of the chains; a grouping that
        crosses no other always is.
    Raises:
        ValueError: a value is negative or not finite, there are more than 2^24 of them, or shapes or labels disagree.
    Source:
        Cox (1987) for controlled rounding; Edmonds (1970) for two laminar families; Irving and Jerrum (1994) for three
        groupings that cross; Huangfu and Hall (2018), HiGHS.
    """
    _check(values, cells)
    whole = np.floor(values)
    units = np.rint((values - whole) * _ONE).astype(np.int64)
    counts = whole.astype(np.int64) + (units == _ONE)
    free = np.flatnonzero(units % _ONE)
    if len(free):
        of_leaf, atoms = _joined(values, cells, units, free)
        counts[free] += _share(units[free], of_leaf, _targets(atoms))
    moved = counts - values
    return Rounded(
        counts, (*(_deviation(moved, of) for of in cells), round(float(abs(moved).max(initial=0.0)), _DIGITS))
    )


def _targets(atoms: _Atoms) -> IntArray:
    """Return the whole number for the fractions of each atom."""
    groupings = atoms.groupings
    crosses = {
        pair for pair in combinations(range(len(groupings)), 2) if _cross(groupings[pair[0]], groupings[pair[1]])
    }
    order = sorted(range(len(groupings)), key=lambda at: (not groupings[at].is_whole(), -len(groupings[at])))
    chains: tuple[list[int], list[int]] = ([], [])
    for grouping in order:
        chains = _two_chains([*chains[0], *chains[1], grouping], crosses) or chains
    if len(chains[0]) + len(chains[1]) == len(groupings):
        return _flowed(atoms, chains)
    first, second = ([at for at in chain if groupings[at].is_whole()] for chain in chains)
    near = _flowed(atoms, (first, second), _evened(atoms))
    if len(atoms.leaves) * len(groupings) > _MOST_PROGRAMMED or _is_controlled(atoms, near):
        return near
    programmed = _programmed(atoms, [at in {*first, *second} for at in range(len(groupings))])
    if programmed is None or _is_controlled(atoms, programmed):
        return near if programmed is None else programmed

    def furthest(targets: IntArray) -> float:
        """Return how far the sum over a cell is from the real one at most, records."""
        return max(_deviation(targets - atoms.sums.units / _ONE, of.of_atom) for of in groupings)

    return min(near, programmed, key=furthest)


def _is_controlled(atoms: _Atoms, targets: IntArray) -> bool:
    """Return whether every sum over a cell is one of the whole numbers that may take its place. No float is compared."""
    return all(
        bool(((sums >= of.sums.low) & (sums <= of.sums.high)).all())
        for of in atoms.groupings
        for sums in [np.bincount(of.of_atom + 1, targets, len(of) + 1)[1:].astype(np.int64)]
    )


def _evened(atoms: _Atoms) -> IntArray:
    """Return whole numbers for the atoms with sums that are near in all groupings."""
    targets, free = atoms.sums.low.copy(), np.flatnonzero(atoms.sums.low < atoms.sums.high)
    fractions = (atoms.sums.units - targets * _ONE)[free] / _ONE
    targets[free] += evened(fractions, [of.of_atom[free] for of in atoms.groupings])
    return targets


def _joined(values: FloatArray, cells: Sequence[Labels], units: IntArray, free: IntArray) -> tuple[IntArray, _Atoms]:
    """Return the atom of each leaf that has a fraction, and the atoms."""
    of_leaf, count = np.zeros(len(free), dtype=np.int64), 1
    for of in cells:
        key = of_leaf * (int(of.max()) + 2) + of[free] + 1
        of_leaf = np.unique(key, return_inverse=True)[1]
        count = int(of_leaf.max()) + 1
    slack = max(2 / _ONE, min(2.0**-16, 1 / (16 * (len(cells) + 1) * len(values))))
    some = np.empty(count, dtype=np.int64)
    some[of_leaf] = free
    groupings = []
    for of in cells:
        inside = of >= 0
        size = int(of.max()) + 1
        total, leaves = np.bincount(of[inside], values[inside], size), np.bincount(of[inside], minlength=size)
        sums = _summed(of[free], units[free], size, slack * leaves + _LARGE * total)
        groupings.append(_Cells(of[some].astype(np.int64), sums))
    leaves = np.bincount(of_leaf, minlength=count)
    return of_leaf, _Atoms(_summed(of_leaf, units[free], count, slack * leaves), tuple(groupings), slack, leaves)


def _summed(of: NDArray[np.integer], units: IntArray, size: int, slack: NDArray[np.floating]) -> _Sums:
    """Return sums of units over labels; those of -1 are left out."""
    sums = np.bincount(of + np.int64(1), units, size + 1)[1:].astype(np.int64)
    fraction = sums % _ONE / _ONE
    low = sums // _ONE + (fraction >= 1 - slack)
    return _Sums(sums, low, low + ((fraction > slack) & (fraction < 1 - slack)))


def _share(units: IntArray, of: IntArray, targets: IntArray, wanted: IntArray | None = None) -> IntArray:
    """Return whole numbers beside the real ones that sum to the targets.

    Those that are wanted to be rounded up come first, then the largest fractions.
    """
    floor = units // _ONE
    missing = targets - np.bincount(of, floor, len(targets)).astype(np.int64)
    order = np.lexsort((-(units % _ONE), *(() if wanted is None else (floor - wanted,)), of))
    sizes = np.bincount(of, minlength=len(targets))
    place = np.arange(len(of)) - (np.cumsum(sizes) - sizes)[of[order]]
    shared = floor
    shared[order] += place < missing[of[order]]
    return shared


def _cross(f: _Cells, g: _Cells) -> bool:
    """Return whether a cell of one and a cell of the other overlap, and neither contains the other."""
    overlap = (f.of_atom >= 0) & (g.of_atom >= 0)
    return bool((overlap & ~_is_inside(f, g) & ~_is_inside(g, f)).any())


def _is_inside(f: _Cells, g: _Cells) -> BoolArray:
    """Return for each atom whether its cell of f is inside one cell of g; of no meaning where it is in no cell of f."""
    some = np.empty(len(f) + 1, dtype=np.int64)
    some[f.of_atom] = g.of_atom
    is_torn = np.zeros(len(f) + 1, dtype=bool)
    is_torn[f.of_atom[some[f.of_atom] != g.of_atom]] = True
    return ~is_torn[f.of_atom]


def _two_chains(groupings: list[int], crosses: set[tuple[int, int]]) -> tuple[list[int], list[int]] | None:
    """Return the groupings in two chains without any that cross, or None where there are no such two."""
    side: dict[int, int] = {}
    for first in groupings:
        reached = [] if first in side else [first]
        side.setdefault(first, 0)
        while reached:
            here = reached.pop()
            for other in groupings:
                if (min(here, other), max(here, other)) not in crosses:
                    continue
                if other not in side:
                    side[other] = 1 - side[here]
                    reached.append(other)
                elif side[other] == side[here]:
                    return None
    return [at for at in groupings if side[at] == 0], [at for at in groupings if side[at] == 1]


def _flowed(atoms: _Atoms, chains: tuple[list[int], list[int]], wanted: IntArray | None = None) -> IntArray:
    """Return the whole number for each atom by a flow from the cells of one chain to those of the other.

    It enters the largest cells of the first chain, divides down to its smallest, crosses to the smallest cells of the
    second, and gathers up to its largest. The sums of the atoms between the same two cells are one arc.

    Args:
        chains: the groupings whose cells the flow keeps near, by their places.
        wanted: the whole numbers that are kept wherever the flow allows, shape (atoms,); the nearest if left out.
    """
    sides = [[atoms.groupings[at] for at in chain] for chain in chains]
    sizes = [sum(len(of) for of in side) for side in sides]
    roots = (sizes[0] + sizes[1], sizes[0] + sizes[1] + 1)
    tails, heads, ends = [], [], []
    for side, first, root in zip(sides, (0, sizes[0]), roots, strict=True):
        of_atom, above = _family(side, first, root, len(atoms.leaves))
        cells = np.arange(first, first + len(above))
        tails.append(above if root == roots[0] else cells)
        heads.append(cells if root == roots[0] else above)
        ends.append(of_atom)
    pairs, arc = np.unique(ends[0] * (roots[1] + 1) + ends[1], return_inverse=True)
    tail, head = (np.concatenate(of) for of in ([*tails, pairs // (roots[1] + 1)], [*heads, pairs % (roots[1] + 1)]))
    crossing = _summed(arc, atoms.sums.units, len(pairs), atoms.slack * np.bincount(arc, atoms.leaves))
    sums, start = _from_where([*sides[0], *sides[1]], crossing, arc, wanted)
    whole = _circulated(tail, head, sums, roots, start)
    return _share(atoms.sums.units, arc, whole[-len(pairs) :], wanted)


def _from_where(
    cells: Sequence[_Cells], crossing: _Sums, arc: IntArray, wanted: IntArray | None
) -> tuple[_Sums, IntArray]:
    """Return the sums of all arcs of a flow, and the whole numbers from which it starts.

    Args:
        cells: of both chains, in their order.
        crossing: the sums of the atoms between the same two cells.
        arc: shape (atoms,): the place of the crossing sum of each.
        wanted: as in `_flowed`. Crossing sums may then be further from the real ones: no grouping has them.
    """
    parts = [*(of.sums for of in cells), crossing]
    units, low, high = (np.concatenate([getattr(of, name) for of in parts]) for name in ("units", "low", "high"))
    sums = _Sums(units, low, high)
    if wanted is None:
        return sums, sums.nearest()
    of_arcs = np.bincount(arc, wanted, len(crossing.low))
    of_cells = [np.bincount(of.of_atom + 1, wanted, len(of) + 1)[1:] for of in cells]
    start = np.clip(np.concatenate(of_cells), low[: -len(of_arcs)], high[: -len(of_arcs)]) if of_cells else of_arcs[:0]
    start = np.concatenate((start, of_arcs)).astype(np.int64)
    return _Sums(units, np.minimum(low, start), np.maximum(high, start)), start


def _family(side: list[_Cells], start: int, root: int, atoms: int) -> tuple[IntArray, IntArray]:
    """Return the smallest cell of each atom, and the smallest cell above each cell, in their order.

    Cells are numbered from `start` on; what is in no cell, or in no larger one, is in the root.
    """
    # Cells of the same atoms contain one another in the order of groupings.
    ranks = [np.bincount(of.of_atom + 1, minlength=len(of) + 1)[1:] * len(side) + at for at, of in enumerate(side)]
    starts = start + np.cumsum([0, *(len(of) for of in side)])

    def smallest(some: IntArray, rank: IntArray) -> IntArray:
        best, least = np.full(len(some), root), np.full(len(some), np.iinfo(np.int64).max)
        for of, first, ranks_of in zip(side, starts, ranks, strict=False):
            cell = of.of_atom[some]
            own = np.append(ranks_of, -1)[cell]
            nearer = (own > rank) & (own < least)
            best[nearer], least[nearer] = first + cell[nearer], own[nearer]
        return best

    above = [np.empty(0, dtype=np.int64)]
    for of, ranks_of in zip(side, ranks, strict=True):
        some = np.zeros(len(of) + 1, dtype=np.int64)
        some[of.of_atom] = np.arange(atoms)
        above.append(smallest(some[:-1], ranks_of))
    return smallest(np.arange(atoms), np.full(atoms, -1)), np.concatenate(above)


def _circulated(tail: IntArray, head: IntArray, sums: _Sums, roots: tuple[int, int], start: IntArray) -> IntArray:
    """Return a whole circulation within the bounds of all arcs, near whole numbers to start from, from root to root.

    What enters the second root returns to the first. The numbers need not balance at the start: what a node has too much flows to
    nodes that have too little along arcs that can still change.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    nodes = roots[1] + 1
    excess = (np.bincount(head, start, nodes) - np.bincount(tail, start, nodes)).astype(np.int64)
    # Arcs from root to root balance with the return, and may keep their number.
    can_change = np.flatnonzero((sums.low < sums.high) & ((tail != roots[0]) | (head != roots[1])))
    if not len(can_change):
        return start
    tail, head, more, less = (of[can_change] for of in (tail, head, sums.high - start, start - sums.low))
    much, little = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    source, sink = np.full(len(much), nodes), np.full(len(little), nodes + 1)
    free = int(excess[much].sum()) + len(can_change)
    rows = np.concatenate((tail[more > 0], head[less > 0], source, little, roots))
    columns = np.concatenate((head[more > 0], tail[less > 0], much, sink, roots[::-1]))
    room = np.concatenate((more[more > 0], less[less > 0], excess[much], -excess[little], [free, free]))
    network = csr_array((room.astype(np.int32), (rows, columns)), shape=(nodes + 2, nodes + 2))
    changed = start.copy()
    changed[can_change] += np.asarray(maximum_flow(network, nodes, nodes + 1).flow[tail, head]).ravel()
    return changed


def _programmed(atoms: _Atoms, must_meet: list[bool]) -> IntArray | None:
    """Return the whole number for each atom by HiGHS, or None if it finds none at the root of its search.

    The least excess of cells over their bounds comes first, then the distance of atoms from their real sums. An atom may have any
    number that its leaves can add up to, or, where there are too many leaves for that, the whole numbers beside its sum. It has a
    variable for each step of one from the least to the most. The search ends by nodes and not by time, so that the same counts
    always give the same result.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack

    are_few = atoms.leaves.sum() * len(atoms.groupings) <= _MOST_PROGRAMMED
    least, most_of = (np.zeros_like(atoms.leaves), atoms.leaves) if are_few else (atoms.sums.low, atoms.sums.high)
    steps = most_of - least
    step_of = np.repeat(np.arange(len(steps)), steps)
    before = least[step_of] + np.arange(len(step_of)) - (np.cumsum(steps) - steps)[step_of]
    first = np.cumsum([0, *(len(of) for of in atoms.groupings)])
    rows = [of.of_atom[step_of] + start for of, start in zip(atoms.groupings, first, strict=False)]
    inside = [of.of_atom[step_of] >= 0 for of in atoms.groupings]
    base = [np.bincount(of.of_atom + 1, least, len(of) + 1)[1:] for of in atoms.groupings]
    low = np.concatenate([of.sums.low for of in atoms.groupings]) - np.concatenate(base)
    high = np.concatenate([of.sums.high for of in atoms.groupings]) - np.concatenate(base)
    column = np.concatenate([np.flatnonzero(of) for of in inside])
    row = np.concatenate([of[which] for of, which in zip(rows, inside, strict=True)])
    matrix = csr_array((np.ones(len(row)), (row, column)), shape=(first[-1], len(step_of)))
    up = np.clip(atoms.sums.units[step_of] / _ONE - before, 0, 1)
    most = np.repeat(np.where(must_meet, 0, np.inf), np.diff(first))
    slack = eye_array(first[-1])
    solution = milp(
        np.concatenate((_CLOSENESS * (1 - 2 * up), np.ones(2 * first[-1]))),
        integrality=np.concatenate((np.ones(len(step_of)), np.zeros(2 * first[-1]))),
        bounds=Bounds(0, np.concatenate((np.ones(len(step_of)), most, most))),
        constraints=LinearConstraint(hstack([matrix, slack, -slack], format="csr"), low, high),
        options={"node_limit": 1},
    )
    if solution.x is None:
        return None
    taken = np.bincount(step_of, np.rint(solution.x[: len(step_of)]), len(steps))
    return least + taken.astype(np.int64)


def _deviation(moved: FloatArray, cell: NDArray[np.integer]) -> float:
    """Return the largest sum, in size, of what counts were moved by over a cell, to nine digits; 0 where there is no cell."""
    sums = np.bincount(cell + np.int64(1), moved)[1:]
    return round(float(abs(sums).max()), _DIGITS) if len(sums) else 0.0


def _check(values: FloatArray, cells: Sequence[Labels]) -> None:
    """Refuse what cannot be rounded."""
    if values.ndim != 1 or len(values) > 2**24 or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("values must be finite and >= 0, one for each leaf of at most 2**24.")
    for at, of in enumerate(cells):
        if of.shape != values.shape or (len(of) and of.min() < -1):
            raise ValueError(f"cells[{at}] must have a label >= -1 for each of {len(values)} leaves.")

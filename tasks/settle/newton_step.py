"""The linear system of a Newton step for overlapping counts: H d = −F, by elimination and conjugate gradients.

H = diag(1/w) + A S Aᵀ, with S diagonal: 1/w_a for leaves above zero, 0 for the others. Where there are few cells, H is made
and factored. Where there are many, the cells of one chain of groupings, each of which refines the next, are eliminated
exactly: within a grouping H is diagonal, and each cell meets only the cells that contain it. What is left on the smallest
other groupings, the border, is dense and is factored. A grouping that is too large for the border enters with its diagonal.
This solves the system where there is no such grouping, and is the preconditioner of conjugate gradients where there is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from tasks.tree.axis import BoolArray, FloatArray, IntArray

Labels = NDArray[np.int32]

_MOST_DENSE = 3000  # cells that are factored as a dense matrix
_MOST_BORDER = 6000  # of these, where the others are eliminated
_MOST_ITERATIONS = 400
_PRECISE = 1e-12  # of the norm of the right side
_RIDGE = 1e-13  # of the diagonal: keeps matrices regular
_UNREACHED = 1e-10  # of the diagonal, had all leaves been above zero: for exact cells of which none is
_MANY_LEAVES = 2**17  # from here on groupings are joined
_FEWER = 16  # times: than there are leaves, cells of groupings that are joined


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """A partition of many leaves into few cells, which refines some groupings.

    Attributes:
        cell: int32, shape (leaves,): the cell of each leaf.
        groupings: by their place, int32, shape (cells,): in which of their cells each cell lies, or their number of cells.
    """

    cell: Labels
    groupings: Mapping[int, Labels]


@dataclass(frozen=True, slots=True, eq=False)
class Incidence:
    """A: which leaf is in which cells.

    Attributes:
        cells: for each grouping, int32, shape (leaves,): the cell of each leaf, or the number of cells where it is in none.
        first: shape (groupings + 1,): grouping i owns the dual variables first[i]:first[i + 1].
        joined: all groupings, many of them at once: so they are added up over few cells before they are over leaves. There may be none.
    """

    cells: tuple[Labels, ...]
    first: tuple[int, ...]
    joined: tuple[_Joined, ...] = ()

    @classmethod
    def of(cls, labels: Sequence[Labels], sizes: Sequence[int]) -> "Incidence":
        """Return A for labels that are -1 where a leaf is in no cell, and the groupings' numbers of cells."""
        cells = tuple(
            np.where(of < 0, np.int32(size), of).astype(np.int32) if len(of) and of.min() < 0 else of
            for of, size in zip(labels, sizes, strict=True)
        )
        is_large = len(cells) > 1 and len(cells[0]) >= _MANY_LEAVES
        return cls(cells, tuple(np.cumsum([0, *sizes]).tolist()), _joined(cells, sizes) if is_large else ())

    def at(self, grouping: int) -> slice:
        """Return where the dual variables of a grouping are."""
        return slice(self.first[grouping], self.first[grouping + 1])

    def size(self, grouping: int) -> int:
        """Return how many cells a grouping has."""
        return self.first[grouping + 1] - self.first[grouping]

    def spread(self, dual: FloatArray) -> FloatArray:
        """Return Aᵀμ, shape (leaves,)."""
        y = np.zeros(len(self.cells[0]))
        if not self.joined:
            for at, cell in enumerate(self.cells):
                y += np.append(dual[self.at(at)], 0.0)[cell]
        for part in self.joined:
            of_cells = [np.append(dual[self.at(at)], 0.0)[cell] for at, cell in part.groupings.items()]
            y += np.sum(of_cells, axis=0)[part.cell]
        return y

    def sums(self, y: FloatArray | None) -> FloatArray:
        """Return A y, shape (p,): sums in the order of leaves; with None, how many leaves are in each cell."""
        parts = (np.bincount(cell, y, self.size(at) + 1)[: self.size(at)] for at, cell in enumerate(self.cells))
        return np.concatenate(list(parts)).astype(np.float64, copy=False)

    def restricted(self, leaves: BoolArray) -> "Incidence":
        """Return A without the other leaves."""
        rows = np.flatnonzero(leaves)
        return Incidence(tuple(cell.take(rows) for cell in self.cells), self.first)


def _joined(cells: Sequence[Labels], sizes: Sequence[int]) -> tuple[_Joined, ...]:
    """Return all groupings, joined as long as what refines them has far fewer cells than there are leaves, the largest first."""
    leaves, joined = len(cells[0]), list[_Joined]()
    left = sorted(range(len(cells)), key=lambda at: -sizes[at])
    while left:
        (at, *others), left = left, []
        cell, many, inside = cells[at], sizes[at] + 1, [at]
        for other in others:
            width = sizes[other] + 1
            if many * width <= leaves:
                both = cell * np.int32(width) + cells[other]
                reached = np.zeros(many * width, dtype=bool)
                reached[both] = True
                if (count := int(np.count_nonzero(reached))) <= leaves // _FEWER:
                    cell, many = (np.cumsum(reached, dtype=np.int32) - np.int32(1))[both], count
                    inside.append(other)
                    continue
            left.append(other)
        some = np.zeros(many, dtype=np.intp)  # a leaf of each cell
        some[cell] = np.arange(leaves)
        joined.append(_Joined(cell, {of: cells[of][some] for of in inside}))
    return tuple(joined)


@dataclass(frozen=True, slots=True, eq=False)
class _System:
    """H, with A restricted to the leaves above zero.

    Attributes:
        incidence: A.
        share: the diagonal of S, shape (leaves,) or one for all.
        inverse: 1 / w, shape (p,).
        reach: A S 1, shape (p,).
    """

    incidence: Incidence
    share: float | FloatArray
    inverse: FloatArray
    reach: FloatArray

    def times(self, dual: FloatArray) -> FloatArray:
        """Return H μ without making H."""
        y = self.incidence.spread(dual)
        y *= self.share
        return self.inverse * dual + self.incidence.sums(y)


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """A grouping of the chain while it is eliminated, in the order of its cells.

    Attributes:
        at: its dual variables.
        reach: s, shape (cells,): what is left of A S Aᵀ between a cell and each cell that contains it.
        pivot: s + 1/w, shape (cells,).
        parent: shape (cells,): the cell of the next grouping; the number of those where no leaf above zero is in the cell.
        others: what is left of A S Aᵀ between the cells and those of groupings outside the chain, shape (cells, others).
    """

    at: slice
    reach: FloatArray
    pivot: FloatArray
    parent: IntArray
    others: "scipy.sparse.csr_array"


def cells_factored(sizes: Sequence[int], refines: Callable[[int, int], bool]) -> int:
    """Return how many cells are factored as one dense matrix, without their labels.

    Args:
        sizes: of groupings, in cells.
        refines: whether one grouping, by its place, refines another.
    """
    if sum(sizes) <= _MOST_DENSE:
        return sum(sizes)
    chain, *left = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    others = list[int]()
    for grouping in left:
        if refines(chain, grouping):
            chain = grouping
        else:
            others.append(sizes[grouping])
    return max((int(of) for of in np.cumsum([0, *sorted(others)]) if of <= _MOST_BORDER), default=0)


def newton_step(
    incidence: Incidence, per_weight: float | FloatArray, inverse: FloatArray, active: BoolArray, gradient: FloatArray
) -> FloatArray:
    """Return d, shape (p,), with H d = −F.

    Args:
        incidence: A of all leaves.
        per_weight: 1 / w_a, shape (leaves,) or one for all.
        inverse: 1 / w_j, shape (p,); 0 where a count is exact.
        active: shape (leaves,): which leaves are above zero.
        gradient: F, shape (p,).
    Guarantees:
        Deterministic. Takes time in O(groupings × leaves) an iteration.
    """
    inside = incidence.restricted(active)
    share = per_weight[active] if isinstance(per_weight, np.ndarray) else per_weight
    reach = _reach(inside, share)
    is_exact = inverse == 0
    if is_exact.any():  # exact sums may repeat one another: H is then singular, and is made regular
        least = _RIDGE * reach
        if not (reach[is_exact] > 0).all():
            least = np.where(reach > 0, least, _UNREACHED * _reach(incidence, per_weight))
        inverse = np.where(is_exact, least, inverse)
    system = _System(inside, share, inverse, reach)
    groupings = range(len(inside.cells))
    if len(inverse) <= _MOST_DENSE:
        dense = _pairs(system, list(groupings))
        dense[np.diag_indices_from(dense)] += inverse
        return _conjugate_gradients(lambda dual: dense @ dual, _factored(dense.copy(), dense.diagonal()), -gradient)
    return _conjugate_gradients(system.times, _eliminated(system), -gradient)


def _reach(incidence: Incidence, share: float | FloatArray) -> FloatArray:
    """Return A S 1."""
    return incidence.sums(share) if isinstance(share, np.ndarray) else share * incidence.sums(None)


def _eliminated(system: _System) -> Callable[[FloatArray], FloatArray]:
    """Return the preconditioner: exact for the chain and the border; of other groupings what the chain leaves of H's diagonal."""
    incidence = system.incidence
    chain, parents = _chain(incidence)
    others = sorted(set(range(len(incidence.cells))) - set(chain), key=incidence.size)
    ends = np.cumsum([0, *(incidence.size(at) for at in others)])
    border = int(np.searchsorted(ends, _MOST_BORDER, side="right")) - 1  # how many of the others are factored
    levels = _levels(system, chain, parents, others)
    columns = np.concatenate([np.arange(0), *(np.arange(*incidence.first[at : at + 2]) for at in others)]).astype(
        np.intp
    )
    dense = _pairs(system, others[:border])
    dense[np.diag_indices_from(dense)] += system.inverse[columns[: len(dense)]]
    scale = dense.diagonal().copy()
    whole = (system.inverse + system.reach)[columns[len(dense) :]]
    rest = whole.copy()
    for level in levels:
        weights = 1 / level.pivot
        inner, outer = level.others[:, : len(dense)], level.others[:, len(dense) :]
        dense -= (inner.T @ inner.multiply(weights[:, None]).tocsr()).toarray()
        rest -= outer.multiply(outer).T @ weights
    solve_border = _factored(dense, scale)
    rest = np.maximum(rest, _RIDGE * whole)

    def solve_others(right: FloatArray) -> FloatArray:
        return np.concatenate((solve_border(right[: len(scale)]), right[len(scale) :] / rest))

    return lambda right: _substituted(right, levels, columns, solve_others)


def _substituted(
    right: FloatArray, levels: list[_Level], columns: IntArray, solve_others: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return the solution: the chain is eliminated from its finest cells up, and substituted from its coarsest down."""
    x, on_others, carried = np.empty_like(right), right[columns], np.zeros(len(levels[0].pivot))
    reduced: list[FloatArray] = []
    for level, above in zip(levels, [*levels[1:], None], strict=True):
        own = right[level.at] - carried
        reduced.append(own)
        scaled = own / level.pivot
        on_others = on_others - level.others.T @ scaled
        if above is not None:
            cells = len(above.pivot)
            passed_on = np.bincount(level.parent, carried + level.reach * scaled, cells + 1)[:cells]
            carried = passed_on.astype(np.float64, copy=False)
    x[columns] = solved = solve_others(on_others)
    above_all = np.zeros(len(levels[-1].pivot))  # sums of x over the cells that contain each cell
    for level, own in zip(reversed(levels), reversed(reduced), strict=True):
        if level is not levels[-1]:
            above_all = np.append(above_all, 0.0)[level.parent]
        x[level.at] = (own - level.reach * above_all - level.others @ solved) / level.pivot
        above_all = above_all + x[level.at]
    return x


def _chain(incidence: Incidence) -> tuple[list[int], list[IntArray]]:
    """Return groupings that each refine the next, from the one with most cells on, and the parents of their cells."""
    first, *others = sorted(range(len(incidence.cells)), key=lambda at: -incidence.size(at))
    chain, parents = [first], []
    for grouping in others:
        fine, coarse = incidence.cells[chain[-1]], incidence.cells[grouping]
        parent = np.full(incidence.size(chain[-1]) + 1, incidence.size(grouping))
        parent[fine] = coarse
        inside = fine < incidence.size(chain[-1])
        if ((parent[fine] == coarse) & (coarse < incidence.size(grouping)) | ~inside).all():
            chain.append(grouping)
            parents.append(parent[:-1])
    return chain, [*parents, np.zeros(incidence.size(chain[-1]), dtype=np.int64)]


def _levels(system: _System, chain: list[int], parents: list[IntArray], others: list[int]) -> list[_Level]:
    r"""Return the chain as it is eliminated.

    .. math:: s_h = \sum_{a \in h} S_a + \sum_{g \in h} s_g \frac{1/w_g}{s_g + 1/w_g}

    over the leaves a of h that are in no finer cell of the chain, and over the cells g that h is the parent of. What the
    cells have in common with other groupings adds up in the same way.
    """
    levels: list[_Level] = []
    is_left = np.ones(len(system.incidence.cells[0]), dtype=bool)  # leaves in no cell of the chain so far
    for grouping, parent in zip(chain, parents, strict=True):
        at, size = system.incidence.at(grouping), system.incidence.size(grouping)
        direct = is_left & (system.incidence.cells[grouping] < size)
        is_left &= ~direct
        share = system.share[direct] if isinstance(system.share, np.ndarray) else system.share
        part = _System(system.incidence.restricted(direct), share, system.inverse, system.reach)
        reach, joint = _reach(part.incidence, share)[at], _joint(part, grouping, others)
        if levels:
            below = levels[-1]
            kept = system.inverse[below.at] / below.pivot
            reach += np.bincount(below.parent, below.reach * kept, size + 1)[:size]
            entries = (kept, (below.parent, np.arange(len(kept))))
            joint = (joint + scipy.sparse.csr_array(entries, shape=(size + 1, len(kept)))[:size] @ below.others).tocsr()
        levels.append(_Level(at, reach, reach + system.inverse[at], parent, joint))
    return levels


def _joint(system: _System, grouping: int, others: list[int]) -> "scipy.sparse.csr_array":
    """Return A S Aᵀ between the cells of a grouping and those of other groupings, shape (cells, others)."""
    rows, sizes = system.incidence.cells[grouping], [system.incidence.size(at) for at in others]
    share = np.broadcast_to(np.float64(system.share), rows.shape)
    shape = system.incidence.size(grouping)
    blocks = [
        scipy.sparse.csr_array((share, (rows, system.incidence.cells[at])), shape=(shape, size + 1))[:, :size]
        for at, size in zip(others, sizes, strict=True)
    ]
    return scipy.sparse.hstack([scipy.sparse.csr_array((shape, 0)), *blocks], format="csr")


def _pairs(system: _System, groupings: list[int]) -> FloatArray:
    """Return A S Aᵀ between the cells of some groupings as a dense matrix."""
    incidence = system.incidence
    starts = np.cumsum([0, *(incidence.size(at) for at in groupings)])
    dense = np.zeros((starts[-1], starts[-1]))
    for i, row in enumerate(groupings):
        for j, column in enumerate(groupings[: i + 1]):
            height, width = incidence.size(row) + 1, incidence.size(column) + 1
            both = incidence.cells[row] * np.int32(width) + incidence.cells[column]
            block = _reach(Incidence((both,), (0, height * width)), system.share).reshape(height, width)[:-1, :-1]
            dense[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            dense[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    return dense


def _factored(matrix: FloatArray, diagonal: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return what solves a symmetric positive semidefinite system, scaled by a positive diagonal; the matrix is overwritten."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    scale = 1 / np.sqrt(diagonal)
    matrix *= scale[:, None]
    matrix *= scale
    ridge = _RIDGE
    while len(matrix):
        matrix[np.diag_indices_from(matrix)] += ridge
        try:
            factor = cho_factor(matrix, lower=True, check_finite=False)
        except LinAlgError:
            ridge *= 10
        else:
            return lambda right: scale * cho_solve(factor, scale * right, check_finite=False)
    return lambda right: right


def _conjugate_gradients(
    times: Callable[[FloatArray], FloatArray], precondition: Callable[[FloatArray], FloatArray], right: FloatArray
) -> FloatArray:
    """Return x with H x = right, to 1e-12 in the norm of the preconditioner or as near as 400 iterations come."""
    x, left = np.zeros_like(right), right.copy()
    towards = direction = precondition(left)
    size = first = float(left @ towards)
    for _ in range(_MOST_ITERATIONS):
        image = times(direction)
        curvature = float(direction @ image)
        if not curvature > 0:
            break
        x += size / curvature * direction
        left -= size / curvature * image
        towards = precondition(left)
        before, size = size, float(left @ towards)
        if size <= _PRECISE**2 * first:
            break
        direction = towards + size / before * direction
    return x if x.any() else precondition(right)

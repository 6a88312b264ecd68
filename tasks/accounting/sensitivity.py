"""How far one privacy unit can move the histogram of a level, in the norms that noise laws take."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MOST_RECORDS = 2**20  # per unit: keeps Δ₂² inside 64 bits

SUBSTITUTION, ADD_REMOVE = "substitution", "add_remove"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one unit moves the histogram of a level, at most.

    Attributes:
        cells: Δ₀, how many counts change.
        l1: Δ₁, by how much all of them change together, records.
        l2_squared: Δ₂², records squared.
        largest: Δ∞, by how much one of them changes, records.
    """

    cells: int
    l1: int
    l2_squared: int
    largest: int


def sensitivity_of(
    neighbours: str, max_records: int, most_distinct: int | None = None, *, is_root: bool = False
) -> Sensitivity:
    """Return how far one unit moves a level, in every norm; arguments and errors as in `l2_sensitivity_squared`.

    Each record that leaves or enters a cell moves one count by 1. With m records per unit that is Δ₁ = m under add_remove, and
    2m under substitution, where m records leave and m enter. At the root both are in the same cell, which changes by at most m.
    A promise that records are distinct does not change the ℓ₁ norm.
    """
    square = l2_sensitivity_squared(neighbours, max_records, most_distinct, is_root=is_root)
    l1 = max_records if is_root else touched_cells(neighbours, max_records)
    return Sensitivity(touched_cells(neighbours, max_records, is_root=is_root), l1, square, max_records)


def moves_of(leaves: int, neighbours: str, *, total_is_public: bool) -> NDArray[np.bool_]:
    """Return between which of some leaves, and nowhere, a record may move, bool, shape (leaves + 1, leaves + 1), symmetric; nowhere comes last."""
    moves = np.zeros((leaves + 1, leaves + 1), dtype=bool)
    moves[:-1, :-1] = neighbours == SUBSTITUTION
    moves[-1, :] = moves[:, -1] = not (neighbours == SUBSTITUTION and total_is_public)
    np.fill_diagonal(moves, False)
    return moves


def combined_sensitivity(
    rows: Sequence[NDArray[np.int64]], neighbours: str, max_records: int, *, total_is_public: bool, nodes: int = 1
) -> Sensitivity:
    r"""Return how far one unit moves whole-number combinations of the counts of all leaves of some axes, within each of some nodes of others.

    With :math:`a_i` the column of leaf i, which is the product of one column per axis, and 0 that of nowhere, m records move the
    combinations by :math:`\sum_k (a_{i_k} - a_{j_k})`. Its norm is convex in how many records move from where to where, so it is largest
    where all m move alike:

    .. math:: \Delta_2^2 = m^2 \max_{i, j} \|a_i - a_j\|^2

    over the moves of the relation: to nowhere under add_remove, between leaves under substitution, and both under substitution where a
    unit need not have exactly m records. Between two nodes nothing is taken off: :math:`\|a_i\|^2 + \|a_j\|^2`.

    Args:
        rows: of each axis the weights of all leaves in each combination, shape (combinations, leaves), below 2**20 in absolute value.
        nodes: in each of which all of this is measured.
    Guarantees:
        Δ₂² is exact, and reached by some unit, for a single axis and for add_remove; with more axes, where records move between leaves, it
        is a bound. Δ₁ and Δ∞ are bounds.
    """
    if neighbours not in {SUBSTITUTION, ADD_REMOVE}:
        raise ValueError(f"neighbours must be {SUBSTITUTION} or {ADD_REMOVE}, got {neighbours}.")
    products = [own.T @ own for own in (of.astype(np.float64) for of in rows)]  # of whole numbers below 2⁵³, exact
    alone = math.prod(
        int(np.diagonal(of).max()) for of in products
    )  # the furthest that one record moves what it enters
    square = alone
    if neighbours == SUBSTITUTION:
        within = 2 * alone - 2 * _least_product(products)
        if len(rows) == 1:
            own = np.diagonal(products[0])
            moves = moves_of(len(own), neighbours, total_is_public=True)[:-1, :-1]
            within = int((own[:, None] + own - 2 * products[0])[moves].max(initial=0.0))
        square = 2 * alone if nodes > 1 else within if total_is_public else max(within, alone)
        square = max(square, within)
    ends = 2 if neighbours == SUBSTITUTION else 1
    touched = touched_cells(neighbours, max_records, is_root=nodes == 1)
    return Sensitivity(
        cells=touched * math.prod(map(len, rows)),
        l1=ends * max_records * math.prod(int(abs(of).sum(axis=0).max()) for of in rows),
        l2_squared=max_records**2 * square,
        largest=ends * max_records * math.prod(int(abs(of).max()) for of in rows),
    )


def _least_product(factors: Sequence[NDArray[np.float64]]) -> int:
    """Return a number that no product of an entry of each factor is below."""
    ends = ((int(of.min()), int(of.max())) for of in factors)
    return min(map(math.prod, product(*ends)))


def l2_sensitivity_squared(
    neighbours: str, max_records: int, most_distinct: int | None = None, *, is_root: bool = False
) -> int:
    r"""Return Δ₂² of a level: the largest squared distance of its histograms over all neighbouring tables.

    With m records per unit, at most D of them in one node of the level, the most that a unit can put there is

    .. math:: \lfloor m / D \rfloor D^2 + (m \bmod D)^2

    Under add_remove this is Δ₂². Under substitution the old records leave some nodes and the new records enter others, so
    Δ₂² is twice this. At the root both are in the same node, which changes by at most m.

    Args:
        neighbours: `substitution` or `add_remove`.
        max_records: m, >= 1.
        most_distinct: D, the cells of the level at which a unit's records are promised distinct that lie below any one
            node; None without that promise, and then all m may lie in one node.
        is_root: whether the level is level 0, which has one node.
    Guarantees:
        Never below the true maximum, and equal to it where the level has at least 2m nodes with D cells of their own.
    Raises:
        ValueError: the relation is unknown, or m or D is out of range.
    Source:
        Boninsegna and Silvestri (2025) for m = 1; derived in docs/proofs/privacy.md, since the paper's √m holds only from the
        level of the promise on.
    """
    if neighbours not in {SUBSTITUTION, ADD_REMOVE}:
        raise ValueError(f"neighbours must be {SUBSTITUTION} or {ADD_REMOVE}, got {neighbours}.")
    if not 1 <= max_records <= MOST_RECORDS:
        raise ValueError(f"max_records must be from 1 to 2**20, got {max_records}.")
    if most_distinct is not None and most_distinct < 1:
        raise ValueError(f"most_distinct must be >= 1, got {most_distinct}.")
    if is_root:
        return max_records**2
    full, rest = divmod(max_records, _in_one_node(max_records, most_distinct))
    one_side = full * _in_one_node(max_records, most_distinct) ** 2 + rest**2
    return 2 * one_side if neighbours == SUBSTITUTION else one_side


def over_days(moved: Sensitivity, weights: Sequence[int], neighbours: str) -> Sensitivity:
    r"""Return how far one unit moves weighted sums of the counts of a level over the days of a series, in all days together.

    All tables of the series together are one table, of which a unit has at most m records: each is in one cell of one day. It moves the
    sums of that cell by a column of the factor, whose squared norm is at most :math:`s = \sum_k c_k^2`. So m records move them by

    .. math:: \Delta_2^2 = m^2 s \text{ (add\_remove)}, \qquad \Delta_2^2 = 2 m^2 s \text{ (substitution)}

    Under substitution each record leaves a cell of one day and enters a cell of any day. As weights are not below 0, the product of two columns
    is not either, and their difference has a squared norm of at most 2 s. This is so of the total too, since a record may change its day.

    Args:
        moved: by one unit on one day, without a promise of distinct records.
        weights: c of `tasks.laws.days`, >= 0.
    Guarantees:
        Δ₂² is reached where all m records are in one cell of the first day, and enter another cell.
    """
    square = moved.largest**2 * sum(weight**2 for weight in weights) * (2 if neighbours == SUBSTITUTION else 1)
    ends = 2 if neighbours == SUBSTITUTION else 1
    total = ends * moved.largest * sum(weights)
    return Sensitivity(
        touched_cells(neighbours, moved.largest) * len(weights), total, square, ends * moved.largest * max(weights)
    )


def joint_part(total: Fraction, together: Fraction) -> Fraction:
    r"""Return how much the costliest unit costs, as a part of the sum of what each level costs alone, under substitution.

    No unit moves a measured total as far as it can be moved, and everything else too: what a unit takes from the total it does not
    put elsewhere. With s the share of the total in the sum,

    .. math:: c = \max\left\{1 - s, \frac{1 + s}{2}\right\}

    where the first is the cost of a unit that keeps its number of records, and the second of one that comes or goes. Both are
    reached where each other level has two nodes; with a promise of distinct records c is a bound.

    Args:
        total: what the total costs alone; 0 where it is exact, and under add_remove, where a unit moves everything at once.
        together: what all levels cost, the total included, > 0.
    Returns:
        c, from 2/3 to 1; 1 where the total costs nothing.
    Source:
        docs/proofs/privacy.md, "The total and the rest".
    """
    share = total / together if total else Fraction(0)
    return max(1 - share, (1 + share) / 2)


class Charged(Protocol):
    """A level or view, and what it is charged: ρ or ε."""

    @property
    def rho(self) -> Fraction | float:
        """ρ, exact or as published; 0 where it costs none."""

    @property
    def epsilon(self) -> float | None:
        """ε; 0 or None where it costs none."""

    @property
    def axes(self) -> Mapping[str, str | None]:
        """Per axis or derived column, the level reached; None where the axis is not refined: all are None of the total."""


def joint_part_of(parts: Iterable[Charged], neighbours: str) -> Fraction:
    """Return `joint_part` of a release, from what its levels and views are charged."""
    costs = [(Fraction(of.rho or of.epsilon or 0), not any(of.axes.values())) for of in parts]
    total = sum((cost for cost, is_total in costs if is_total and neighbours == SUBSTITUTION), Fraction(0))
    return joint_part(total, sum((cost for cost, _ in costs), Fraction(0)))


def touched_cells(neighbours: str, max_records: int, *, is_root: bool = False) -> int:
    """Return how many cells of a level one unit can touch: those that its records leave, and those that they enter."""
    if is_root:
        return 1
    return 2 * max_records if neighbours == SUBSTITUTION else max_records


def derivation(neighbours: str, max_records: int, most_distinct: int | None = None, *, is_root: bool = False) -> str:
    """Return in one line how `l2_sensitivity_squared` is computed, for plans and manifests."""
    square = l2_sensitivity_squared(neighbours, max_records, most_distinct, is_root=is_root)
    if is_root:
        return f"one unit changes the total by at most {max_records}: Δ₂² = {max_records}² = {square}"
    together = _in_one_node(max_records, most_distinct)
    full, rest = divmod(max_records, together)
    one_side = " + ".join([f"{full}·{together}²"] + ([f"{rest}²"] if rest else []))
    nodes = f"at most {max_records} per unit, at most {together} of them in one node"
    if neighbours == ADD_REMOVE:
        return f"records of one unit come or go, {nodes}: Δ₂² = {one_side} = {square}"
    return f"records of one unit leave nodes and enter others, {nodes}: Δ₂² = 2·({one_side}) = {square}"


def l1_derivation(neighbours: str, max_records: int, *, is_root: bool = False) -> str:
    """Return in one line how Δ₁ of a level is computed, for plans and manifests."""
    l1 = sensitivity_of(neighbours, max_records, is_root=is_root).l1
    if is_root:
        return f"one unit changes the total by at most {max_records}: Δ₁ = {l1}"
    if neighbours == ADD_REMOVE:
        return f"records of one unit come or go, at most {max_records}, each in one node: Δ₁ = {l1}"
    return (
        f"records of one unit leave nodes and as many enter others, at most {max_records}: Δ₁ = 2·{max_records} = {l1}"
    )


_MOVED_BY_RECORD = {
    "tails": "lowers one number of groups of at least some size by 1",
    "sizes": "makes a group of one size a group of another, and so moves two numbers by 1",
    "chain": "lowers as many running sums by 1 as there are regions",
}


def sizes_derivation(statistic: str, moved: Sensitivity, neighbours: str, max_records: int, norm: int) -> str:
    """Return in one line how far one unit moves a level of group sizes, for plans and manifests.

    Args:
        neighbours: the relation, `ADD_REMOVE` or `SUBSTITUTION`.
        norm: the norm on which the noise depends, 1 or 2.
    """
    leaves = "come or go" if neighbours == ADD_REMOVE else "leave groups and others enter"
    total = f"Δ₁ = {moved.l1}" if norm == 1 else f"Δ₂² = {moved.l2_squared}"
    return f"records of one unit {leaves}, at most {max_records}, and each {_MOVED_BY_RECORD[statistic]}: {total}"


def strategy_derivation(
    neighbours: str, max_records: int, moved: Sensitivity, *, total_is_public: bool, axes: int = 1, nodes: int = 1
) -> str:
    """Return in one line how far one unit moves the sums that strategies measure, for plans and manifests; arguments as in `combined_sensitivity`."""
    column = "its column of weights, a_i" if axes == 1 else f"the product of its {axes} columns of weights, a_i"
    record = f"a record that comes or goes moves all sums by {column}"
    square = "max ‖a_i‖²"
    if neighbours == SUBSTITUTION and nodes > 1:
        record = f"a record that is replaced moves the sums of two areas, each by {column}"
        square = "max {‖a_i‖² + ‖a_j‖², ‖a_i − a_j‖²}"
    elif neighbours == SUBSTITUTION:
        columns = "of two columns of weights" if axes == 1 else f"of two products of {axes} columns of weights"
        record = f"a record that is replaced moves all sums by the difference {columns}, a_i − a_j"
        square = "max ‖a_i − a_j‖²" if total_is_public else "max {‖a_i − a_j‖², ‖a_i‖²}"
        square = square if axes == 1 else f"a bound on {square}"
    times, of_one = (f"{max_records}²·", moved.l2_squared // max_records**2)
    product_of = f"{times}{of_one} = {moved.l2_squared}" if max_records > 1 else str(of_one)
    return f"{record}, at most {max_records} per unit: Δ₂² = {times if max_records > 1 else ''}{square} = {product_of}"


def days_derivation(neighbours: str, max_records: int, weights: Sequence[int]) -> str:
    """Return in one line how `over_days` is computed, for plans and manifests."""
    square = sum(weight**2 for weight in weights)
    record = (
        "a record of any day comes or goes"
        if neighbours == ADD_REMOVE
        else "a record leaves a cell of any day and enters another"
    )
    times = "" if neighbours == ADD_REMOVE else "2·"
    total = max_records**2 * square * (1 if neighbours == ADD_REMOVE else 2)
    return (
        f"{record}, at most {max_records} per unit in all days together, and is in the sums of {len(weights)} days with their weights:"
        f" Δ₂² = {times}{max_records}²·{square} = {total}"
    )


def square_root_up(square: int | Fraction) -> float:
    """Return the least float that is not below the square root of `square`."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    while root and Fraction(math.nextafter(root, 0.0)) ** 2 >= square:
        root = math.nextafter(root, 0.0)
    return root


def _in_one_node(max_records: int, most_distinct: int | None) -> int:
    return max_records if most_distinct is None else min(most_distinct, max_records)

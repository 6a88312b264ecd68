"""Rounding that favours no cell: fractions become 0 or 1 such that their sums over many groupings hardly move."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import BoolArray, FloatArray

# multiples of it are spread evenly from 0 to 1, and so are they at every second place, or third …
_GOLDEN = 5**0.5 / 2 - 0.5
_MOST_MOVED = 500_000  # fractions that may change sides; the others stay as they are at first
_ROUNDS = 80  # for each grouping


def evened(fractions: FloatArray, cells: Sequence[NDArray[np.integer]]) -> BoolArray:
    r"""Return which fractions become 1, such that sums over the cells of all groupings are near those of the fractions.

    At first each becomes 1 as often as it says, along a sequence that is spread evenly over all cells. Then fractions change
    sides where that lessens

    .. math:: \sum_i \sum_j r_{ij}^2, \qquad r_{ij} = \sum_{a \in j} (z_a - f_a),

    round by round, first for the grouping with most cells alone, then for the next one too, and so on: sums over few large cells
    are mended last, since they need the fewest changes. In a round a cell lets half as many of its fractions change as it lacks,
    or has too many.

    Args:
        fractions: f, float64, shape (fractions,), from 0 to 1.
        cells: for each grouping, shape (fractions,): the cell of each, from 0; -1 where it is in none.
    Returns:
        z, bool, shape (fractions,).
    Guarantees:
        Deterministic. How near the sums are is not guaranteed: usually within three, where groupings cross one another.
    """
    z = fractions > (np.arange(len(fractions)) + 0.5) * _GOLDEN % 1
    ordered = sorted(cells, key=lambda of: -int(of.max(initial=-1)))
    residuals = [np.bincount(of + np.int64(1), z - fractions)[1:].astype(np.float64) for of in ordered]
    movable = np.flatnonzero(np.arange(len(fractions)) * 2**0.5 % 1 * len(fractions) < _MOST_MOVED)
    of_movable = [of[movable].astype(np.int64) for of in ordered]
    for turn in range(_ROUNDS * len(ordered)):
        active = turn // _ROUNDS + 1
        if max(np.abs(residual).max(initial=0.0) for residual in residuals[:active]) < 1:
            continue
        changed = _changing(z[movable], residuals[:active], of_movable, turn + 1)
        step = np.where(z[movable[changed]], -1.0, 1.0)
        z[movable[changed]] ^= True
        for residual, of in zip(residuals, of_movable, strict=True):
            residual += np.bincount(of[changed] + 1, step, len(residual) + 1)[1:]
    return z


def _changing(
    z: BoolArray, residuals: Sequence[FloatArray], cells: Sequence[NDArray[np.int64]], turn: int
) -> NDArray[np.int64]:
    """Return the places of the fractions that change sides in a round.

    Args:
        z: what they are, shape (fractions,).
        residuals: r of each grouping that counts, shape (cells,).
        cells: of each grouping, shape (fractions,).
        turn: which round it is, so that others are chosen.
    """
    step, slope = np.where(z, -1.0, 1.0), np.zeros(len(z))
    within = [np.append(residual, 0.0) for residual in residuals]  # the last one is for what is in no cell
    for residual, of in zip(within, cells, strict=False):
        slope += residual[of]
    able = np.flatnonzero(2 * step * slope + len(within) < 0)
    share = np.ones(len(able))
    for residual, of in zip(within, cells, strict=False):
        cell = of[able]
        helps = step[able] * residual[cell] < 0
        many = np.bincount(cell[helps] + 1, minlength=len(residual) + 1)[1:]
        share = np.where(helps, np.minimum(share, np.abs(residual[cell]) / np.maximum(many[cell], 1)), share)
    return able[(able + 0.5) * (turn * _GOLDEN % 1) % 1 < share / 2]

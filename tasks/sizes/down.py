"""The way down: whole counts of groups for every region, level by level, that add up to those of the region above."""

from collections.abc import Sequence

import numpy as np

from tasks.optimize.euclidean import nearest_whole
from tasks.sizes.tables import falling, levels_above, sums_over_children, tails_of
from tasks.tree.axis import FloatArray, IntArray

_TURNS = 12  # between tails that add up and tails that do not increase


def settle_down(
    root: IntArray,
    estimates: Sequence[FloatArray],
    variances: Sequence[FloatArray] | None,
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    r"""Return whole counts by size that add up over regions, with tails near to estimates.

    From each level to the next, tails x of the children are sought that are near to their estimates z, add up to the whole tails P of
    their parent, and do not increase with size. For that, Dykstra's projections take twelve turns between the two conditions:

    .. math:: a = x + \frac{v}{\sum v} (P - \sum x), \quad x \leftarrow \max(0, \mathrm{falling}(a + q)), \quad q \leftarrow a + q - x

    Then the sizes are settled from the largest to 1. The groups of size s of a parent go to its children in whole numbers, such that
    those with at least s are as near as they can be to x.

    Args:
        root: n of the only region of the first level, shape (1, N), int64, >= 0.
        estimates: z of each level, shape (regions, N), float64, records. That of the first level is not looked at.
        variances: of the estimates of each level, shape (regions,), float64, > 0; None where those of siblings are the same.
        groups: how many groups there are in each region of the last level, empty ones too, where that is public; shape (regions,).
            The root must have no more than all of them.
    Returns:
        n of each level, shape (regions, N), int64, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents. No region has more groups than
        `groups`. Where estimates are whole counts that add up to the root already, they are returned.
    Source:
        Boyle and Dykstra (1986) for the projections.
    """
    settled = [root]
    variances = [np.ones(len(of)) for of in estimates] if variances is None else variances
    bounds = [None] * len(estimates) if groups is None else levels_above(groups, first_child)
    for first, values, variance, most in zip(first_child, estimates[1:], variances[1:], bounds[1:], strict=True):
        parents = settled[-1]
        near = _near_tails(tails_of(parents), values, variance, first, most)
        settled.append(_whole_sizes(parents, near, first, most))
    return settled


def within(levels: list[IntArray], first_child: Sequence[IntArray], groups: IntArray | None) -> list[IntArray]:
    """Return consistent group sizes of which no region has more groups than there are: as they are, or settled anew below the root.

    Args:
        levels: n of each level, shape (regions, N), int64, >= 0; the root has no more groups than there are.
        groups: how many there are in each region of the last level, shape (regions,); None where that is not public.
    """
    if groups is None or (levels[-1].sum(axis=1) <= groups).all():
        return levels
    tails = [tails_of(of).astype(np.float64) for of in levels]
    return settle_down(levels[0], tails, None, first_child, groups)


def _near_tails(
    parents: IntArray, estimates: FloatArray, variances: FloatArray, first: IntArray, most: IntArray | None
) -> FloatArray:
    """Return tails near to estimates that add up to those of the parents nearly, and do not increase; shape (children, N)."""
    fan_out = np.diff(first)
    share = (variances / np.repeat(sums_over_children(variances, first), fan_out))[:, None]
    x, q = estimates, np.zeros_like(estimates)
    for _ in range(_TURNS):
        a = x + share * np.repeat(parents - sums_over_children(x, first), fan_out, axis=0)
        a += q
        x = np.maximum(falling(a), 0)
        if most is not None:
            np.minimum(x, most[:, None], out=x)
        q = a - x
    return x


def _whole_sizes(parents: IntArray, tails: FloatArray, first: IntArray, most: IntArray | None) -> IntArray:
    """Return the groups of each size of the children, shape (children, N), given those of the parents and real tails of the children."""
    by_size = np.ascontiguousarray(tails.T)
    sizes, larger = np.zeros(by_size.shape, dtype=np.int64), np.zeros(len(tails), dtype=np.int64)
    fan_out = np.diff(first)
    for at in np.flatnonzero(parents.any(axis=0))[::-1]:
        has_some = parents[:, at] > 0
        cells = np.flatnonzero(np.repeat(has_some, fan_out))
        bounds = np.append(0, np.cumsum(fan_out[has_some]))
        before = larger[cells]
        room = None if most is None else most[cells] - before
        counts = nearest_whole(by_size[at, cells] - before, bounds, parents[has_some, at], room)
        sizes[at, cells] = counts
        larger[cells] += counts
    return np.ascontiguousarray(sizes.T)

"""Draws a made-up table in the shape of a release: over its axes, with as many records as are asked for, and as skewed. Reads no table."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import scipy

from tasks.tree.axis import Axis, FloatArray, IntArray
from tasks.tree.order import Tree

MOST_DRAWN = 10**7  # leaves that are drawn at once
_CHUNK = 2**22  # records that are drawn at once above that
_OWN_SHARE = 0.5  # of the variance of the logarithms of leaves: what is of a leaf alone, and of none of its areas

# the median and σ of the sizes of groups, from the largest one N: N^(1/3) and ln(N) / 4, so that one group in 260 reaches N
_MEDIAN, _SPREAD = 1 / 3, 1 / 4
_TILT = 0.2  # σ of the logarithm of the median size in a place
OCCUPIED = 0.9  # of the groups of a public list


def draw_like(
    tree: Tree, total: int, skew: float, generator: np.random.Generator
) -> tuple[tuple[IntArray, ...], IntArray]:
    r"""Return the areas per axis, and the counts, of the leaves that get records.

    .. math:: p(\text{leaf}) \propto \exp\Bigl(z_{\text{leaf}} + \sum_{\text{axes}} \sum_{\text{levels}} z_{\text{area}}\Bigr)

    with normal z. The variances of what is added up for one leaf are `skew` squared in all. Half of that is of the leaf itself, if there
    are several axes; the other half is shared equally by the axes, and on each axis by its levels. Above ten million leaves a
    leaf has nothing of its own, and records are drawn axis by axis.

    Args:
        tree: the axes, with all their codes.
        total: how many records there are.
        skew: σ of the logarithms of leaves: with 2, one leaf in forty expects more than 50 times the records of the middle one.
    """
    sizes, axes = tree.sizes(tree.depth), len(tree.axes)
    is_drawn_at_once = tree.possible_cells(tree.depth) <= MOST_DRAWN
    own = _OWN_SHARE if axes > 1 and is_drawn_at_once else 0.0
    of_axis = skew * np.sqrt((1 - own) / axes)
    finest = tree.axis_levels(tree.depth)
    weights = [_log_weights(axis, last, of_axis, generator) for axis, last in zip(tree.axes, finest, strict=True)]
    if not is_drawn_at_once:
        return _drawn_by_axis([_shares(of) for of in weights], total, generator)
    logs = sum(np.ix_(*weights), np.zeros(sizes)) + skew * np.sqrt(own) * generator.normal(size=sizes)
    counts = generator.multinomial(total, _shares(logs.ravel()))
    leaves = np.flatnonzero(counts)
    return tuple(of.astype(np.int64) for of in np.unravel_index(leaves, sizes)), counts[leaves]


def draw_sizes_like(
    tree: Tree,
    largest: int,
    total: int,
    skew: float,
    generator: np.random.Generator,
    listed: IntArray | None = None,
) -> IntArray:
    """Return how many groups of sizes 1 to `largest` each finest place has, shape (places, largest), int64, by the numbers of the places.

    Places have groups by lognormal weights, and groups have lognormal sizes, with a median that differs a little among places.

    Args:
        largest: N, the size as which all larger groups count.
        total: about how many records all groups have together.
        skew: σ of the logarithms of the places' numbers of groups.
        listed: how many groups each place has by a public list, empty ones too; then nine tenths of them have records, whatever `total` is.
    """
    axes, shape = tree.axes[:-1], tree.sizes(tree.depth)[:-1]  # the last one is that of the sizes
    median = _MEDIAN * np.log(largest) + _TILT * generator.normal(size=(math.prod(shape), 1))
    ends = np.log(np.arange(1, largest) + 0.5)
    below = scipy.special.ndtr((ends - median) / max(_SPREAD * np.log(largest), 1e-9))
    shares = np.diff(below, axis=1, prepend=0.0, append=1.0)
    if listed is not None:
        groups = generator.binomial(listed, OCCUPIED)
    else:
        spread = skew / np.sqrt(len(axes))
        weights = (
            _log_weights(axis, last, spread, generator)
            for axis, last in zip(axes, tree.axis_levels(tree.depth), strict=False)
        )
        of_place = _shares(sum(np.ix_(*weights), np.zeros(shape)).ravel())
        mean = of_place @ (shares @ np.arange(1, largest + 1))
        groups = generator.multinomial(max(1, round(total / mean)), of_place)
    drawn: IntArray = generator.multinomial(groups, shares).astype(np.int64)
    return drawn


def _log_weights(axis: Axis, finest: int, spread: float, generator: np.random.Generator) -> FloatArray:
    """Return the logarithms of the weights of the finest areas of an axis: of each the sum of a draw per level, with σ `spread`."""
    areas = np.arange(axis.areas(finest))
    draws = (
        generator.normal(size=axis.areas(level))[axis.ancestors(areas, finest, level)] for level in range(1, finest + 1)
    )
    logs: FloatArray = sum(draws, np.zeros(len(areas))) * spread / np.sqrt(max(finest, 1))
    return logs


def _shares(logs: FloatArray) -> FloatArray:
    weights = np.exp(logs - logs.max())
    shares: FloatArray = weights / weights.sum()
    return shares


def _drawn_by_axis(
    shares: Sequence[FloatArray], total: int, generator: np.random.Generator
) -> tuple[tuple[IntArray, ...], IntArray]:
    """Return the areas and counts of records whose areas are drawn axis by axis."""
    names = [str(axis) for axis in range(len(shares))]

    def parts() -> Iterator[pl.DataFrame]:
        for first in range(0, total, _CHUNK):
            many = min(_CHUNK, total - first)
            drawn = {name: generator.choice(len(p), many, p=p) for name, p in zip(names, shares, strict=True)}
            yield pl.DataFrame(drawn).group_by(names).agg(pl.len().cast(pl.Int64).alias("count"))

    table = pl.concat(parts()).group_by(names).agg(pl.col("count").sum()).sort(names)
    return tuple(table[name].to_numpy() for name in names), table["count"].to_numpy()

"""The nearest non-increasing values to those of many rows, pooled at once."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from tasks.tree.axis import FloatArray

_REACH = 2.0**40  # records that rows may span together: beside it, floats resolve a thousandth of a record


def falling(values: FloatArray) -> FloatArray:
    r"""Return, for each row, the non-increasing values nearest to it in squares.

    .. math:: \min_{x_1 \ge x_2 \ge \dots \ge x_N} \sum_s (x_s - a_s)^2

    Rows are laid end to end, each below the one before, so that no value of a row is pooled with one of another.

    Args:
        values: a, shape (rows, N), float64, records.
    Returns:
        x, of the same shape; integers that do not increase come back as they are, up to a span of 2**40.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    Source:
        Ayer et al. (1955), pooling of adjacent violators.
    """
    low = values.min(axis=1, initial=np.inf)
    span = np.ceil(values.max(axis=1, initial=-np.inf) - low) + 1 if values.size else np.zeros(len(values))
    result, first = np.empty_like(values), 0
    while first < len(values):
        below = np.cumsum(span[first:])
        stop = first + max(1, int(np.searchsorted(below, _REACH, side="right")))
        lowered = np.ceil(low[first:stop]) + below[: stop - first]
        laid = values[first:stop] - lowered[:, None]
        pooled = isotonic_regression(laid.ravel(), increasing=False).x
        np.add(pooled.reshape(laid.shape), lowered[:, None], out=result[first:stop])
        first = stop
    return result


def round_half_up(values: FloatArray) -> NDArray[np.int64]:
    """Return the nearest whole numbers, halves up, so that values which do not increase still do not."""
    return np.floor(values + 0.5).astype(np.int64)

"""The totals of areas, from which prior means follow: what the estimates of a level add up to, drawn together where they are noise."""

import numpy as np

from tasks.tree.axis import FloatArray, IntArray


def shrunk_totals(values: FloatArray, variances: FloatArray, first_child: IntArray) -> FloatArray:
    r"""Return the totals of areas, moved towards the mean of their siblings by the part of their spread that noise explains.

    .. math:: M_a = \max\Bigl(0, \bar{s} + \lambda (s_a - \bar{s})\Bigr), \qquad
        \lambda = \max\Bigl(0, 1 - \frac{\sum_a v_a (1 - 1 / b)}{\sum_a (s_a - \bar{s})^2}\Bigr)

    λ is the same for all areas of a level; b is how many siblings there are.

    Args:
        values: s, of the areas of one level of an axis, float64, shape (areas,), records.
        variances: v, likewise, records squared.
        first_child: shape (areas above + 1,), int64: where the children of each area above begin.
    Returns:
        float64, shape (areas,), records, >= 0.
    Source:
        James and Stein (1961), with the variance of the areas estimated from all of them together.
    """
    children = np.diff(first_child)
    mean = np.repeat(np.add.reduceat(values, first_child[:-1]) / children, children)
    apart = values - mean
    noise = float((variances * (1 - 1 / np.repeat(children, children))).sum())
    spread = float((apart**2).sum())
    part = max(0.0, 1 - noise / spread) if spread else 0.0
    return np.maximum(0.0, mean + part * apart)

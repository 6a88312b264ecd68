"""Counts of days that are measured together: what is measured is undone exactly, and the errors are those that are stated."""

import numpy as np
import pytest

from tasks.laws.days import BAND, days_of


@pytest.mark.parametrize("scale", [0.0, 200.0, 2000.0])
def test_the_counts_of_days_and_their_sums_err_by_what_is_stated(scale):
    """Without noise they are exact; with less noise than a record, or more, they have the deviations that are stated, to two in a hundred."""
    days, cells, random = 40, 40_000, np.random.default_rng(1)
    factor, true, noisy = days_of(days), random.integers(0, 9, (days, cells)), np.zeros((0, cells), dtype=np.int64)
    for day in range(days):
        measured = factor.combined(true[: day + 1][::-1]) + np.rint(scale * random.normal(size=cells)).astype(np.int64)
        noisy = np.vstack([noisy, factor.released(measured, noisy[::-1][: BAND - 1])])
    off = noisy - true
    for day in (0, 1, 2, BAND, days - 1):
        summed = factor.cumulative_deviation(scale, [day + 1])
        for errors, stated in ((off[day], factor.deviation(scale, day)), (off[: day + 1].sum(axis=0), summed)):
            assert 0.98 < errors.std() / stated < 1.02 if scale else not errors.any()
            assert abs(errors.mean()) < 5 * stated / cells**0.5

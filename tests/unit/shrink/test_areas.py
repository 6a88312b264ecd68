"""The totals of areas: noise is drawn to the mean of siblings, and differences that are clear stay."""

import numpy as np

from tasks.shrink.areas import shrunk_totals

FIRST = np.array([0, 4, 8])


def test_totals_are_drawn_to_their_siblings_as_far_as_noise_explains() -> None:
    """Where areas differ less than that, each has the mean of its siblings; without noise nothing moves but below zero; by hand.

    Deviations of 6 and -6 have a spread of 72; noise of 4 · (1 − 1/2) each explains 4, so that 17/18 remain. An area without siblings is
    its own mean.
    """
    values = np.array([10.0, 12, 9, 11, 50, 52, 49, 53])
    assert shrunk_totals(values, np.full(8, 100.0), FIRST).tolist() == [10.5] * 4 + [51.0] * 4
    values = np.array([10.0, 200, -3, 11, 50, 520, 49, 53])
    assert shrunk_totals(values, np.zeros(8), FIRST).tolist() == [10.0, 200, 0, 11, 50, 520, 49, 53]
    found = shrunk_totals(np.array([16.0, 4]), np.array([4.0, 4]), np.array([0, 2]))
    assert np.allclose(found, [10 + 6 * 17 / 18, 10 - 6 * 17 / 18])
    assert shrunk_totals(np.array([7.0, 3]), np.array([5.0, 5]), np.array([0, 1, 2])).tolist() == [7.0, 3.0]

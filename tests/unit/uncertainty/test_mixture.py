"""Estimates of what rows are: close where the noise lets them be, the same in parts, and sane where there is little to see."""

import numpy as np
import pytest

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.uncertainty.mixture import CountMixture, Likely

LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}


def drawn(scale: float, law: str, cells: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Return true counts, of which seven in ten are 0, and noisy ones."""
    random = np.random.default_rng(7)
    true = np.where(random.random(cells) < 0.7, 0, random.geometric(0.05, cells))
    values = np.arange(-200, 201)
    steps = np.cumsum(LAWS[law].density(values, scale))
    return true, true + values[np.searchsorted(steps, random.random(cells) * steps[-1])]


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 0.4), ("gaussian", 3.0), ("gaussian", 20.0), ("laplace", 4.0)])
def test_shares_are_estimated(law, scale):
    """The shares of the rows, cells with a noisy count above the noise, are near the true ones."""
    true, noisy = drawn(scale, law)
    sigma = scale if law == "gaussian" else scale * 2**0.5
    rows = noisy > sigma
    mixture = CountMixture(LAWS[law].density, scale, sigma)
    group = np.zeros(len(noisy), dtype=np.int64)
    for part in np.split(np.arange(len(noisy)), 4):
        mixture.add_cells(noisy[part], group[part])
        kept = part[rows[part]]
        mixture.add_rows(noisy[kept], group[kept])
    likely, of_rows = mixture.likely(), true[rows]
    above = of_rows > 2 * sigma
    assert likely.noise == pytest.approx((of_rows == 0).mean(), abs=0.12 if scale > 10 else 0.06)
    assert likely.rows_above == pytest.approx(above.mean(), abs=0.06)
    assert likely.records_above == pytest.approx(of_rows[above].sum() / of_rows.sum(), abs=0.12)


def test_groups_tell_empty_places_from_full_ones():
    """Cells below an empty node are likelier to be empty than equal ones below a full node."""
    random = np.random.default_rng(8)
    empty, full = random.normal(0, 5, 5000), random.normal(6, 5, 5000)
    noisy = np.rint(np.concatenate((empty, full))).astype(np.int64)
    shares = []
    for above in (0, 500):
        mixture = CountMixture(GAUSSIAN.density, 5.0, 5.0)
        group = mixture.groups(np.repeat([0, 500], 5000))
        mixture.add_cells(noisy, group)
        row = np.array([8])
        mixture.add_rows(row, mixture.groups(np.array([above])))
        shares.append(mixture.likely().noise)
    assert shares[0] > 0.5 > 0.2 > shares[1]


def test_large_counts_are_no_noise_and_nothing_is_nothing():
    """A row far above the noise has all of the records; without rows there is nothing to say."""
    mixture = CountMixture(GAUSSIAN.density, 2.0, 2.0)
    assert mixture.likely() == Likely(0.0, 0.0, 0.0)
    noisy, group = np.array([10**6]), np.zeros(1, dtype=np.int64)
    mixture.add_cells(noisy, group)
    mixture.add_rows(noisy, group)
    assert mixture.likely() == Likely(0.0, 1.0, 1.0)


def test_cells_without_a_row_count_as_zeros():
    """Many cells that add up to 0 make a small row likelier to be noise."""
    shares = []
    for zeros in (0, 10_000):
        mixture = CountMixture(GAUSSIAN.density, 8.0, 8.0)
        noisy, group = np.array([9, 11, 14]), np.zeros(3, dtype=np.int64)
        mixture.add_cells(noisy, group)
        mixture.add_zeros(zeros)
        mixture.add_rows(noisy, group)
        shares.append(mixture.likely().noise)
    assert shares[1] > shares[0] + 0.2


@pytest.mark.parametrize("sigma", [2.0, 17.7, 100.0])
def test_records_do_not_jump_at_the_last_bin(sigma):
    """A row a little further out changes the share of records above the noise a little, also where rows leave the bins."""
    random = np.random.default_rng(5)
    noisy = np.rint(random.normal(0, sigma, 2000)).astype(np.int64)
    shares = []
    for far in range(int(15.5 * sigma), int(16.6 * sigma) + 2):
        mixture = CountMixture(GAUSSIAN.density, sigma, sigma)
        rows = np.array([far, int(3 * sigma), int(sigma)])
        mixture.add_cells(np.concatenate((noisy, rows)), np.zeros(2003, dtype=np.int64))
        mixture.add_rows(rows, np.zeros(3, dtype=np.int64))
        shares.append(mixture.likely().records_above)
    assert np.abs(np.diff(shares)).max() < 0.03

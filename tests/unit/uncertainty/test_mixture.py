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
    steps = np.cumsum(LAWS[law].density(values, scale, 1))
    return true, true + values[np.searchsorted(steps, random.random(cells) * steps[-1])]


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 0.4), ("gaussian", 3.0), ("gaussian", 20.0), ("laplace", 4.0)])
def test_shares_are_estimated(law, scale):
    """Of the rows, cells with a noisy count above the noise, the true share of noise is in the range, and other shares are near."""
    true, noisy = drawn(scale, law)
    sigma = scale if law == "gaussian" else scale * 2**0.5
    rows = noisy > sigma
    mixture = CountMixture(LAWS[law].density, scale, sigma)
    for part in np.split(np.arange(len(noisy)), 4):
        mixture.add_cells(noisy[part])
        mixture.add_rows(noisy[part[rows[part]]])
    likely, of_rows = mixture.likely(), true[rows]
    above = of_rows > 2 * sigma
    assert likely.least_noise - 0.01 <= (of_rows == 0).mean() <= likely.most_noise + 0.01
    assert likely.rows_above == pytest.approx(above.mean(), abs=0.06)
    assert likely.records_above == pytest.approx(of_rows[above].sum() / of_rows.sum(), abs=0.12)


@pytest.mark.parametrize(
    ("law", "scale", "counts"),
    [
        ("gaussian", 5.0, (18, 29)),
        ("gaussian", 21.7, (80, 135)),
        ("laplace", 16.3, (80, 135)),
        ("laplace", 3.0, (14, 23)),
    ],
)
def test_nothing_but_chance_blurs_the_share(law, scale, counts):
    """With very many cells, four in ten of them empty and the others far above the noise, the range closes in on the truth."""
    sigma = scale if law == "gaussian" else scale * 2**0.5
    values, cells = np.arange(-int(40 * sigma), int(60 * sigma)), 1e7
    noisy = np.zeros(len(values))
    for true, share in ((0, 0.4), (counts[0], 0.3), (counts[1], 0.3)):
        chances = LAWS[law].density(values - true, scale, 1)
        noisy += share * chances / chances.sum()
    mixture, rows = CountMixture(LAWS[law].density, scale, sigma), values >= 0
    for value, share, row in zip(values, noisy, rows, strict=True):
        mixture.add_cells(np.array([value]), cells * share)
        mixture.add_rows(np.array([value]), weight=cells * share * row)
    empty = LAWS[law].density(values, scale, 1)
    truth = 0.4 * empty[rows].sum() / empty.sum() / noisy[rows].sum()
    likely = mixture.likely()
    assert truth - 0.01 < likely.least_noise < truth + 1e-6
    assert truth - 1e-6 < likely.most_noise < truth + 0.01


def test_large_counts_are_no_noise_and_nothing_is_nothing():
    """A row far above the noise has all of the records; without rows there is nothing to say."""
    mixture = CountMixture(GAUSSIAN.density, 2.0, 2.0)
    assert mixture.likely() == Likely(0.0, 0.0, 0.0, 0.0)
    mixture.add_cells(np.array([10**6]))
    mixture.add_rows(np.array([10**6]))
    assert mixture.likely() == Likely(0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("sigma", [2.0, 17.7, 100.0])
def test_records_do_not_jump_at_the_last_bin(sigma):
    """A row a little further out changes the share of records above the noise a little, also where rows leave the bins."""
    random = np.random.default_rng(5)
    noisy = np.rint(random.normal(0, sigma, 2000)).astype(np.int64)
    shares = []
    for far in range(int(15.5 * sigma), int(16.6 * sigma) + 2):
        mixture = CountMixture(GAUSSIAN.density, sigma, sigma)
        rows = np.array([far, int(3 * sigma), int(sigma)])
        mixture.add_cells(np.concatenate((noisy, rows)))
        mixture.add_rows(rows)
        shares.append(mixture.likely().records_above)
    assert np.abs(np.diff(shares)).max() < 0.03

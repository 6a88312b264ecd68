"""The discrete Laplace noise that `measure` adds, by either sampler, against the exact law.

Noise comes from the operating system's entropy; each test raises a false alarm with a probability of at most 1e-6.
"""

import math

import numpy as np
import pytest
from scipy import stats

from tasks.accounting.sensitivity import Sensitivity
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import LevelCost, LevelNoise, Sampler
from tasks.noise.measure import measure
from tasks.tree.axis import IntArray

FALSE_ALARM = 1e-6
DRAWS = 100_000
MOVED = Sensitivity(2, 2, 2, 1)
SAMPLERS = {name: sampling.draw for name, sampling in LAPLACE.samplers.items()}
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def noise_of(true_counts: IntArray, scale: float, sampler: Sampler) -> IntArray:
    """Return the noise that the real entry point adds to some true counts."""
    charged = LevelCost(epsilon=1e3)  # which pays for every scale used here
    return measure(true_counts, LevelNoise(LAPLACE, scale), charged, MOVED, sampler) - true_counts


def fit(noise: IntArray, scale: float) -> float:
    """Return the p-value of the chi-square test that noise is discrete Laplace of a scale.

    Neighbouring values are counted together in runs of about a twentieth of the scale, and what lies beyond the last run
    that has fifty draws is pooled.
    """
    q, run = math.exp(-1 / scale), math.ceil(scale / 20)
    half = run // 2
    last = int(scale * math.log(len(noise) / 100) / run)  # runs to either side that have fifty draws and more
    starts = np.arange(-last, last + 1) * run - half  # P[X >= start], by the law's closed form
    above = np.where(starts > 0, q ** np.maximum(starts, 0) / (1 + q), 1 - q ** np.maximum(1 - starts, 0) / (1 + q))
    edges = np.concatenate(([1.0], above[1:], [0.0]))
    expected = len(noise) * -np.diff(edges)
    counted = np.bincount(np.clip((noise + half) // run, -last, last) + last, minlength=2 * last + 1)
    return float(stats.chisquare(counted, expected).pvalue)


@every_sampler
@pytest.mark.parametrize("scale", [0.5, 2.0, 25.0, 400.0])
def test_noise_is_discrete_laplace(scale: float, sampler: Sampler) -> None:
    """The frequencies of the noise are those of the exact law, and with a tenth less noise the same test fails."""
    zeros = np.zeros(DRAWS, dtype=np.int64)
    assert fit(noise_of(zeros, scale, sampler), scale) > FALSE_ALARM
    assert fit(noise_of(zeros, 0.9 * scale, sampler), scale) < FALSE_ALARM


@every_sampler
def test_noise_depends_neither_on_the_counts_nor_on_its_neighbours(sampler: Sampler) -> None:
    """Cells with few and with many records get noise of one law, and that of a cell tells nothing about that of the next."""
    true_counts = np.tile(np.array([0, 1, 1_000, 2**40]), DRAWS // 4)
    noise = noise_of(true_counts, 3.0, sampler)
    assert min(fit(noise[true_counts == count], 3.0) for count in np.unique(true_counts)) > FALSE_ALARM / 4
    bound = -stats.norm.ppf(FALSE_ALARM / 4) / math.sqrt(len(noise) - 1)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(abs(noise[1:]), abs(noise[:-1]))[0, 1]) < bound


def test_what_costs_more_than_it_is_charged_is_not_drawn() -> None:
    """One float less noise than the charge allows is refused before the draw, and so is noise that is charged nothing."""
    scale = LAPLACE.fit(LevelCost(epsilon=0.3), MOVED)[0]
    zeros = np.zeros(3, dtype=np.int64)

    def never(true_counts: IntArray, scale: float) -> IntArray:
        raise AssertionError(f"{len(true_counts)} cells were drawn at scale {scale}.")

    charged = LevelCost(epsilon=0.3)
    assert len(measure(zeros, LevelNoise(LAPLACE, scale), charged, MOVED, SAMPLERS["table"])) == 3
    with pytest.raises(ValueError, match="exceeds the level's share"):
        measure(zeros, LevelNoise(LAPLACE, math.nextafter(scale, 0.0)), charged, MOVED, never)
    with pytest.raises(ValueError, match="nothing is drawn that is not charged"):
        measure(zeros, LevelNoise(LAPLACE, scale), LevelCost(), MOVED, never)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale"):
            measure(zeros, LevelNoise(LAPLACE, wrong), charged, MOVED, never)

"""The noise that `measure` adds, by either sampler, against the exact discrete Gaussian distribution.

Noise comes from the operating system's entropy, so these tests cannot be seeded: each of them raises a false alarm with
probability FALSE_ALARM, which over some 25 tests is about once in 40,000 runs.
"""

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from itertools import combinations
from threading import Barrier

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tasks.accounting.allocation import scale_for
from tasks.laws.law import Sampler
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.table_sampler import LARGEST_TABLE_SCALE, table_noise
from tasks.tree.axis import IntArray
from tests.support.laws import measured

FALSE_ALARM = 1e-6
DRAWS = 100_000
LEAST_EXPECTED = 50  # draws in each of the pooled tails, so that the chi-square approximation holds far out
SCALES = [0.7, 3.0, 40.0]
WIDE = 4_096.0  # a table whose guide leaves many draws open
PLENTY = Fraction(1_000)  # a ρ that pays for every scale used here

SAMPLERS: list[Sampler] = [discrete_gaussian, table_noise]  # a new sampler joins here and inherits the tests
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda function: function.__name__)


def noise_of(true_counts: IntArray, scale: float, sampler: Sampler) -> IntArray:
    """Return the noise that the real entry point adds to some true counts."""
    return measured(true_counts, scale, PLENTY, 2, sampler) - true_counts


def draws_of(scale: float, sampler: Sampler, draws: int = DRAWS) -> IntArray:
    """Return noise on true counts of zero."""
    return noise_of(np.zeros(draws, dtype=np.int64), scale, sampler)


def frequencies(
    values: IntArray, edge: int, run: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return how often, or with what weight, values fall into runs of neighbours; what is beyond ± edge runs is pooled."""
    runs = np.clip((values + run // 2) // run, -edge, edge) + edge
    return np.bincount(runs, weights=weights, minlength=2 * edge + 1).astype(float)


def goodness_of_fit(noise: IntArray, scale: float) -> float:
    """Return the p-value of the chi-square test that noise is discrete Gaussian of this scale.

    The probability of k is exp(−k²/2σ²) over its sum; what lies beyond ±12 σ is below 1e-31. Values further out than
    the last one with LEAST_EXPECTED draws in its tail are pooled with it. Of wide noise neighbouring values are counted
    together, in runs of about σ/40.
    """
    furthest = math.ceil(12 * scale) + 10
    values = np.arange(-furthest, furthest + 1)
    expected = np.exp(-(values**2) / (2 * scale**2))
    expected *= len(noise) / expected.sum()
    run = math.ceil(scale / 40)
    edge = (int(np.flatnonzero(np.cumsum(expected[::-1])[::-1] >= LEAST_EXPECTED)[-1]) - furthest) // run
    return float(stats.chisquare(frequencies(noise, edge, run), frequencies(values, edge, run, expected)).pvalue)


def same_law(first: IntArray, second: IntArray, scale: float) -> float:
    """Return the p-value of the chi-square test that two sets of noise, of about this scale, have one law.

    They are counted in runs of about σ/40, and beyond 3 σ pooled, where either set of DRAWS has over a hundred.
    """
    run, edge = math.ceil(scale / 40), math.ceil(3 * scale / math.ceil(scale / 40))
    counted = np.array([frequencies(noise, edge, run) for noise in (first, second)])
    return float(stats.chi2_contingency(counted[:, counted.any(axis=0)], correction=False).pvalue)


@pytest.fixture(
    scope="module",
    params=[(scale, sampler) for sampler in SAMPLERS for scale in SCALES] + [(WIDE, table_noise)],
    ids=lambda case: f"{case[1].__name__}, sigma {case[0]}",
)
def drawn(request: pytest.FixtureRequest) -> tuple[float, IntArray]:
    """Return a scale and a hundred thousand draws of it by one of the samplers, on true counts of zero."""
    return request.param[0], draws_of(*request.param)


def test_noise_is_discrete_gaussian(drawn: tuple[float, IntArray]) -> None:
    """The frequencies of the noise are those of the exact discrete Gaussian of scale σ."""
    scale, noise = drawn
    assert goodness_of_fit(noise, scale) > FALSE_ALARM


@every_sampler
@pytest.mark.parametrize("scale", SCALES)
def test_the_goodness_of_fit_notices_too_little_noise(scale: float, sampler: Sampler) -> None:
    """When a tenth less noise is drawn than claimed, the same test on as many draws fails."""
    assert goodness_of_fit(draws_of(0.9 * scale, sampler), scale) < FALSE_ALARM


def test_the_goodness_of_fit_notices_too_much_noise(drawn: tuple[float, IntArray]) -> None:
    """When a tenth more noise is drawn than claimed, the same test on the same draws fails."""
    scale, noise = drawn
    assert goodness_of_fit(noise, scale / 1.1) < FALSE_ALARM


@pytest.mark.parametrize("scale", [0.7, 40.0, WIDE])
def test_ten_million_draws_from_a_table_are_discrete_gaussian(scale: float) -> None:
    """A hundred times as many draws still fit; so many would tell a scale that is half a percent off."""
    noise = draws_of(scale, table_noise, 100 * DRAWS)
    assert goodness_of_fit(noise, scale) > FALSE_ALARM
    assert goodness_of_fit(noise, 1.005 * scale) < FALSE_ALARM


@pytest.mark.parametrize("scale", [*SCALES, WIDE, LARGEST_TABLE_SCALE])
def test_both_samplers_have_one_law(scale: float) -> None:
    """Draws from the table and OpenDP's draws do not differ; the table's of a tenth less noise would."""
    of_opendp = draws_of(scale, discrete_gaussian)
    assert same_law(draws_of(scale, table_noise), of_opendp, scale) > FALSE_ALARM
    assert same_law(draws_of(0.9 * scale, table_noise), of_opendp, scale) < FALSE_ALARM


def test_neighbouring_cells_get_independent_noise(drawn: tuple[float, IntArray]) -> None:
    """The noise of a cell tells nothing about that of the next one, neither its value nor its size."""
    _, noise = drawn
    bound = -stats.norm.ppf(FALSE_ALARM / 4) / math.sqrt(len(noise) - 1)  # two-sided, two correlations
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(noise[1:] ** 2, noise[:-1] ** 2)[0, 1]) < bound


@every_sampler
def test_noise_does_not_depend_on_the_true_counts(sampler: Sampler) -> None:
    """Cells with true counts 0, 1, 1,000 and 2**40, side by side, all get noise of the same distribution."""
    true_counts = np.tile(np.array([0, 1, 1_000, 2**40]), DRAWS // 5)
    noise = noise_of(true_counts, 3.0, sampler)
    fits = [goodness_of_fit(noise[true_counts == count], 3.0) for count in np.unique(true_counts)]
    assert min(fits) > FALSE_ALARM / len(fits)


@every_sampler
@pytest.mark.parametrize("cells", [0, 1, 7])
def test_every_cell_is_measured(cells: int, sampler: Sampler) -> None:
    """As many int64 noisy counts come back as there are cells, and the true counts are left alone."""
    true_counts = np.full(cells, 5)
    noisy = measured(true_counts, 3.0, PLENTY, 2, sampler)
    assert noisy.shape == (cells,)
    assert noisy.dtype == np.int64
    assert true_counts.tolist() == [5] * cells


def refused(scale: float, rho: Fraction, message: str) -> None:
    """Assert that measuring is refused, and before anything is drawn."""
    drawn = []

    def spy(true_counts: IntArray, scale: float) -> IntArray:
        drawn.append(scale)
        return true_counts

    with pytest.raises(ValueError, match=message):
        measured(np.zeros(3, dtype=np.int64), scale, rho, 2, spy)
    assert not drawn


@pytest.mark.parametrize("rho", [Fraction(1, 3), Fraction(1, 10**6), Fraction(7)], ids=str)
def test_a_scale_that_costs_more_than_its_share_is_refused(rho: Fraction) -> None:
    """The level's own scale is drawn; one float less noise would overspend and is refused before the draw."""
    scale = scale_for(rho, 2)
    assert len(measured(np.zeros(3, dtype=np.int64), scale, rho, 2, discrete_gaussian)) == 3
    refused(math.nextafter(scale, 0.0), rho, "exceeds the level's share")


@pytest.mark.parametrize("scale", [0.0, -0.0, math.inf, math.nan, -1.0, -math.inf])
def test_a_scale_that_is_not_finite_and_positive_is_refused(scale: float) -> None:
    """OpenDP would return the data for a scale of zero; such a scale never reaches the sampler, however large ρ is."""
    refused(scale, Fraction(10**9), "scale must be finite and > 0")


@every_sampler
@pytest.mark.parametrize("scale", [0.0, math.inf, math.nan, -1.0])
def test_the_sampler_itself_refuses_such_a_scale(scale: float, sampler: Sampler) -> None:
    """The discrete Gaussian refuses the scale too, should it ever be called without `measure`."""
    with pytest.raises(ValueError, match=r"scale must be (finite and )?> 0"):
        sampler(np.zeros(3, dtype=np.int64), scale)


def fifty_draws(sampler: Sampler) -> list[int]:
    """Return fifty triples of neighbouring draws, each as one integer; two sets share one with probability below 1e-11."""
    noise = draws_of(LARGEST_TABLE_SCALE, sampler, 52)
    return (noise[:-2] + (noise[1:-1] << 20) + (noise[2:] << 40)).tolist()


def repeats(*draws: list[int]) -> set[int]:
    """Return the values that occur in more than one set of draws."""
    return set().union(*(set(some) & set(others) for some, others in combinations(draws, 2)))


@every_sampler
def test_two_calls_never_repeat_a_draw(sampler: Sampler) -> None:
    """Calling again gives other noise."""
    assert not repeats(fifty_draws(sampler), fifty_draws(sampler))


@every_sampler
def test_two_threads_never_repeat_a_draw(sampler: Sampler) -> None:
    """Threads that draw at the same moment get different noise."""
    together = Barrier(2)

    def draw_together() -> list[int]:
        together.wait(timeout=60)
        return fifty_draws(sampler)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(draw_together), pool.submit(draw_together)
        assert not repeats(first.result(), second.result())


@every_sampler
def test_a_forked_child_never_repeats_a_draw(sampler: Sampler) -> None:
    """A process that was forked after the sampler was used draws other noise than its parent, and than its sibling."""
    before = fifty_draws(sampler)
    children = [from_a_forked_child(partial(fifty_draws, sampler)) for _ in range(2)]
    assert all(len(draws) == 50 for draws in children)
    assert not repeats(before, *children, fifty_draws(sampler))


def from_a_forked_child(draw: Callable[[], list[int]]) -> list[int]:
    """Return what a function returns in a forked child, which ends without running anything else."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, " ".join(map(str, draw())).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        values = [int(value) for value in pipe.read().split()]
    os.waitpid(child, 0)
    return values


# Draws with the system's entropy taken away: the kernel is told to fail getrandom and every opening of a file.
WITHOUT_ENTROPY = """
import ctypes, struct
import numpy as np, numpy.ctypeslib
from tasks.accounting.opendp import privacy_map
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.table_sampler import noise_table, table_noise

privacy_map(3.0, 1.0), noise_table(3.0)  # loads and builds what there is to load and to build
if {starved}:
    system = ctypes.CDLL(None, use_errno=True)
    load, equal, give = 0x20, 0x15, 0x06
    fail, allow, getrandom, openat = 0x00050005, 0x7FFF0000, 318, 257
    lines = [(load, 0, 0, 0), (equal, 2, 0, getrandom), (equal, 1, 0, openat), (give, 0, 0, allow), (give, 0, 0, fail)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = Program(len(lines), ctypes.addressof(code))
    assert system.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert system.prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP
try:
    print("drew", {sampler}(np.zeros(20, dtype=np.int64), 3.0).tolist())
except Exception as fault:
    print("stopped", fault)
"""


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="filters calls of Linux on x86-64"
)
@pytest.mark.parametrize("starved", [True, False])
@pytest.mark.parametrize(
    ("sampler", "fault"), [("discrete_gaussian", "entropy"), ("table_noise", "[Errno 5] Input/output error")]
)
def test_without_entropy_nothing_is_drawn(starved: bool, sampler: str, fault: str) -> None:
    """Where the system gives no entropy a sampler raises instead of drawing; the same process draws where it does."""
    code = WITHOUT_ENTROPY.replace("{starved}", str(starved)).replace("{sampler}", sampler)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.startswith("stopped" if starved else "drew")
    assert (fault in answer.stdout) == starved

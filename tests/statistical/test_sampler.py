"""The noise of every law, by every sampler of it, against the exact distribution.

Noise comes from the operating system's entropy, so these tests cannot be seeded: each of them raises a false alarm with
probability FALSE_ALARM, which over some 60 tests is about once in 15,000 runs.
"""

import math
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import combinations
from threading import Barrier

import numpy as np
import pytest
from scipy import stats

import tasks.noise.measure
import tasks.noise.task
from flows.trials.in_memory import public_table
from tasks.accounting.allocation import scale_for
from tasks.accounting.sensitivity import Sensitivity, sensitivity_of
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import LevelCost, LevelNoise
from tasks.laws.samplers import LARGEST_TABLE_SCALE
from tasks.laws.thresholded import Thresholded, thresholded_for, thresholded_laplace
from tasks.mechanisms import MECHANISMS
from tasks.noise.measure import measure
from tests.support.passes import try_threshold
from tests.support.scales import try_scales
from tests.support.universe import universe_of

FALSE_ALARM = 1e-6
DRAWS = 100_000
LEAST_EXPECTED = 50  # draws in each of the pooled tails, so that the chi-square approximation holds far out
WIDE = 4_096.0  # a table whose guide leaves many draws open
MOVED = Sensitivity(2, 2, 2, 1)
# pays for every scale used here
PLENTY = {GAUSSIAN.name: LevelCost(Fraction(1_000)), LAPLACE.name: LevelCost(epsilon=1e3)}
FAR = 10_000  # records: so far above the threshold that every leaf is kept


def above_threshold(true_counts, scale):
    """Return what a histogram keeps of leaves that are far above its threshold."""
    rows, noisy = thresholded_laplace(true_counts + FAR, scale, 40)
    assert len(rows) == len(true_counts)
    return noisy - FAR


LAWS = {law.name: law for law in (GAUSSIAN, LAPLACE)}
SAMPLERS = {  # a new sampler of a law inherits the tests
    (law.name, name): sampling.draw for law in LAWS.values() for name, sampling in law.samplers.items()
} | {(LAPLACE.name, "threshold"): above_threshold}
SCALES = {GAUSSIAN.name: [0.7, 3.0, 40.0], LAPLACE.name: [0.5, 2.0, 25.0, 400.0]}
OF_GAUSSIAN = {name: sampler for (law, name), sampler in SAMPLERS.items() if law == GAUSSIAN.name}
every_sampler = pytest.mark.parametrize(("law", "sampler"), SAMPLERS)
of_gaussian = pytest.mark.parametrize("sampler", OF_GAUSSIAN.values(), ids=OF_GAUSSIAN)


def noise_of(true_counts, scale, law, sampler):
    """Return the noise that the real entry point adds to some true counts; a histogram has one of its own."""
    draw = SAMPLERS[law, sampler]
    if draw == above_threshold:
        return draw(true_counts, scale) - true_counts
    return measure(true_counts, LevelNoise(LAWS[law], scale), PLENTY[law], MOVED, draw) - true_counts


def frequencies(values, edge, run, weights=None):
    """Return how often, or with what weight, values fall into runs of neighbours; what is beyond ± edge runs is pooled."""
    runs = np.clip((values + run // 2) // run, -edge, edge) + edge
    return np.bincount(runs, weights=weights, minlength=2 * edge + 1).astype(float)


def goodness_of_fit(noise, scale, law):
    """Return the p-value of the chi-square test that noise is of a law and a scale."""
    # The probability of k is exp(−k²/2σ²), or exp(−|k|/s), over its sum; what lies beyond 40 scales is below 1e-17. Values further
    # out than the last one with LEAST_EXPECTED draws in its tail are pooled with it. Of wide noise neighbouring values are counted
    # together, in runs of about a fortieth of the scale.
    furthest = math.ceil(40 * scale) + 10
    values = np.arange(-furthest, furthest + 1)
    expected = np.exp(-((values / scale) ** 2) / 2 if law == GAUSSIAN.name else -np.abs(values) / scale)
    expected *= len(noise) / expected.sum()
    run = math.ceil(scale / 40)
    edge = (int(np.flatnonzero(np.cumsum(expected[::-1])[::-1] >= LEAST_EXPECTED)[-1]) - furthest) // run
    return float(stats.chisquare(frequencies(noise, edge, run), frequencies(values, edge, run, expected)).pvalue)


@pytest.mark.parametrize(("law", "sampler", "scale"), [
    *(
        pytest.param(law, sampler, scale, marks=[pytest.mark.thorough] if sampler != "table" and scale > 2 else [])
        for law, sampler in SAMPLERS
        for scale in SCALES[law]
    ),
    *((GAUSSIAN.name, "table", scale) for scale in (WIDE, LARGEST_TABLE_SCALE)),
])  # fmt: skip
def test_noise_has_its_law(law, sampler, scale):
    """Its frequencies are those of the exact law, of a tenth less or more noise they are not; neighbouring cells tell nothing of it."""
    noise = noise_of(np.zeros(DRAWS, dtype=np.int64), scale, law, sampler)
    assert goodness_of_fit(noise, scale, law) > FALSE_ALARM
    for other in (scale / 1.1, scale / 0.9):  # so it is noise of a tenth more, and of a tenth less
        assert goodness_of_fit(noise, other, law) < FALSE_ALARM
    bound = -stats.norm.ppf(FALSE_ALARM / 4) / math.sqrt(len(noise) - 1)  # two-sided, two correlations
    for of in (noise, np.abs(noise)):
        assert abs(np.corrcoef(of[1:], of[:-1])[0, 1]) < bound


@pytest.mark.parametrize("scale", [0.7, 40.0, WIDE])
def test_ten_million_draws_from_a_table_are_discrete_gaussian(scale):
    """A hundred times as many draws still fit; so many would tell a scale that is half a percent off."""
    noise = noise_of(np.zeros(100 * DRAWS, dtype=np.int64), scale, GAUSSIAN.name, "table")
    assert goodness_of_fit(noise, scale, GAUSSIAN.name) > FALSE_ALARM
    assert goodness_of_fit(noise, 1.005 * scale, GAUSSIAN.name) < FALSE_ALARM


@every_sampler
def test_noise_does_not_depend_on_the_true_counts(law, sampler):
    """Cells with true counts 0, 1, 1,000 and 2**40, side by side, all get noise of the same distribution, and each gets its own."""
    true_counts = np.tile(np.array([0, 1, 1_000, 2**40]), DRAWS // 5)
    noise = noise_of(true_counts, 3.0, law, sampler)
    assert noise.shape == true_counts.shape
    assert noise.dtype == np.int64
    assert true_counts[:8].tolist() == [0, 1, 1_000, 2**40] * 2
    fits = [goodness_of_fit(noise[true_counts == count], 3.0, law) for count in np.unique(true_counts)]
    assert min(fits) > FALSE_ALARM / len(fits)
    assert len(noise_of(true_counts[:0], 3.0, law, sampler)) == 0


def refused(law, scale, charged, message):
    """Assert that measuring is refused, and before anything is drawn."""

    def never(true_counts, scale):
        raise AssertionError(f"{len(true_counts)} cells were drawn at scale {scale}.")

    with pytest.raises(ValueError, match=message):
        measure(np.zeros(3, dtype=np.int64), LevelNoise(law, scale), charged, MOVED, never)


@pytest.mark.parametrize("charge", [Fraction(1, 3), Fraction(1, 10**6), Fraction(7), 0.3], ids=str)
def test_a_scale_that_costs_more_than_its_share_is_refused(charge):
    """The level's own scale is drawn; one float less noise would overspend and is refused before the draw, as is noise without a charge."""
    law = GAUSSIAN if isinstance(charge, Fraction) else LAPLACE
    charged = LevelCost(charge) if law is GAUSSIAN else LevelCost(epsilon=float(charge))
    scale = scale_for(charge, 2) if law is GAUSSIAN else LAPLACE.fit(charged, MOVED)[0]
    zeros = np.zeros(3, dtype=np.int64)
    assert len(measure(zeros, LevelNoise(law, scale), charged, MOVED, law.samplers["table"].draw)) == 3
    refused(law, math.nextafter(scale, 0.0), charged, "exceeds the level's share")
    refused(law, scale, LevelCost(), "nothing is drawn that is not charged")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.0, -0.0, math.inf, math.nan, -1.0, -math.inf])
def test_a_scale_that_is_not_finite_and_positive_is_refused(scale, law):
    """OpenDP would return the data for a scale of zero; such a scale never reaches the sampler, and the sampler refuses it too."""
    refused(LAWS[law], scale, PLENTY[law], "scale must be finite and > 0")
    for sampler in OF_GAUSSIAN.values():
        with pytest.raises(ValueError, match=r"scale must be (finite and )?> 0"):
            sampler(np.zeros(3, dtype=np.int64), scale)


def fifty_draws(sampler):
    """Return fifty triples of neighbouring draws, each as one integer; two sets share one with probability below 1e-11."""
    noise = sampler(np.zeros(52, dtype=np.int64), LARGEST_TABLE_SCALE)
    return (noise[:-2] + (noise[1:-1] << 20) + (noise[2:] << 40)).tolist()


@of_gaussian
def test_no_call_no_thread_and_no_forked_child_repeats_a_draw(sampler):
    """Threads that draw at the same moment, a process forked after the sampler was used, and its sibling draw other noise."""
    together = Barrier(2)

    def draw_together():
        together.wait(timeout=60)
        return fifty_draws(sampler)

    drawn = [fifty_draws(sampler), *(from_a_forked_child(sampler) for _ in range(2)), fifty_draws(sampler)]
    with ThreadPoolExecutor(2) as pool:
        drawn += [of.result() for of in [pool.submit(draw_together), pool.submit(draw_together)]]
    assert all(len(draws) == 50 for draws in drawn)
    assert not [shared for some, others in combinations(drawn, 2) if (shared := set(some) & set(others))]


def from_a_forked_child(sampler):
    """Return what is drawn in a forked child, which ends without running anything else."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, " ".join(map(str, fifty_draws(sampler))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        values = [int(value) for value in pipe.read().split()]
    os.waitpid(child, 0)
    return values


# Noise on leaves: which of them bear it, and which are seen.


def table_of(areas, occupied):
    """Return a table of two axes with so many areas each, in which the first of the first has records, so many different ones."""
    paths = [(f"{number:04d}",) for number in range(areas)]
    leaves = [np.zeros(occupied, dtype=np.int64), np.arange(occupied)]
    return public_table(universe_of([paths, paths], [0, 1]).tree, leaves, np.arange(1, occupied + 1))


@of_gaussian
def test_every_leaf_bears_gaussian_noise_whatever_its_true_count(sampler, monkeypatch):
    """Over a whole universe, the noise of leaves with records and of those without has the law; one left out would show."""
    for module in (tasks.noise.task, tasks.noise.measure):
        monkeypatch.setattr(module, "CHUNK_CELLS", 1000)
    finest = try_scales(table_of(120, 120), MECHANISMS["gaussian"], [3.0] * 3, sampler).released[-1]
    noise, has_records = np.zeros((120, 120), dtype=np.int64), np.zeros((120, 120), dtype=bool)
    noise[finest.areas], has_records[0] = finest.counts, True
    noise[0] -= np.arange(1, 121)
    for of in (noise[has_records], noise[~has_records]):
        assert goodness_of_fit(of, 3.0, GAUSSIAN.name) > FALSE_ALARM
    skipped = np.where(has_records, noise, 0)[:40].ravel()  # as if leaves without records were left out
    assert goodness_of_fit(skipped, 3.0, GAUSSIAN.name) < FALSE_ALARM


def test_a_histogram_never_shows_a_leaf_without_records():
    """Over many histograms with next to no threshold, no leaf is ever kept that has no record."""
    table, noise, seen = table_of(60, 30), Thresholded(8.0, 2, 1e9, 1.0), set[tuple[int, int]]()
    for _ in range(60):
        finest = try_threshold(table, noise, "add_remove", 1, thresholded_laplace).released[-1]
        seen |= set(zip(*(areas.tolist() for areas in finest.areas), strict=True))
    assert seen == {(0, area) for area in range(30)}


@pytest.mark.parametrize(("neighbours", "records"), [
    ("add_remove", 1),
    ("substitution", 3),
    pytest.param("add_remove", 3, marks=pytest.mark.thorough),
    pytest.param("substitution", 1, marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_unit_alone_in_its_leaves_is_seen_no_oftener_than_delta(neighbours, records):
    """Of many leaves with one unit's records alone, no more are kept than the charge says; below the threshold it shows."""
    noise = thresholded_for(sensitivity_of(neighbours, records), 1.0, 0.1)

    def seen_at_least(kept):
        return float(stats.beta.ppf(FALSE_ALARM, kept, DRAWS - kept + 1)) if kept else 0.0

    at_the_threshold, below = (
        thresholded_laplace(np.full(DRAWS, records), noise.scale, of)[1] for of in (noise.threshold, records)
    )
    assert seen_at_least(len(at_the_threshold)) <= noise.delta
    near = np.count_nonzero(below >= noise.threshold - math.ceil(noise.scale))
    assert seen_at_least(near) > noise.delta / (2 * records)
    assert seen_at_least(len(below)) > noise.delta


# Draws with the system's entropy taken away: the kernel is told to fail getrandom and every opening of a file.
WITHOUT_ENTROPY = """
import ctypes, struct
import numpy as np, numpy.ctypeslib
from tasks.accounting.opendp import privacy_map
from tasks.laws.samplers import discrete_gaussian, noise_table, table_noise

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


FAULTS = [("discrete_gaussian", "entropy"), ("table_noise", "[Errno 5] Input/output error")]
IS_LINUX = (sys.platform, platform.machine()) == ("linux", "x86_64")


@pytest.mark.skipif(not IS_LINUX, reason="filters calls of Linux on x86-64")
@pytest.mark.parametrize("starved", [True, False])
@pytest.mark.parametrize(("sampler", "fault"), FAULTS)
def test_without_entropy_nothing_is_drawn(starved, sampler, fault):
    """Where the system gives no entropy a sampler raises instead of drawing; the same process draws where it does."""
    code = WITHOUT_ENTROPY.replace("{starved}", str(starved)).replace("{sampler}", sampler)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.startswith("stopped" if starved else "drew")
    assert (fault in answer.stdout) == starved

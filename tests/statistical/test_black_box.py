"""A black-box audit: many small releases of two neighbouring tables, and how well what is published tells them apart.

Everything runs as it does for users, from the table to the published folder, through the plain driver. A lower confidence
bound on ε must stay below the claim, and must exceed it when less noise is drawn than claimed.

The long suite, thousands of releases, half of them with half the noise, is `make audit`. It ends with what each audit has
shown, and with its power: how often half the noise would be noticed, by simulation.
"""

import math
import os
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import signal, stats

from flows.planning.plan import make_plan
from flows.run.driver import make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.file import load_spec
from storage.database.connections import store
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tests.support.attacks import FALSE_ALARM, Claim, Guesses, learned, log_evidence, lower_bound, rehearsed
from tests.support.laws import drawn_by
from tests.support.spec import spec_in

# Claims of which half the noise is told by the fewest releases, and next to no noise by a few.
CLAIMS = {"gaussian": Claim(1.5, 0.1), "laplace": Claim(2.0, 1e-6)}
SMALL_CLAIMS = {"gaussian": Claim(0.5, 0.05), "laplace": Claim(0.75, 1e-6)}
LEAST_POWER = 0.995
ATTACKS = ["noisy counts", "intervals", "counts", "learned"]
PEOPLE = 60  # in each of the four cells: far from zero, so that pruning hides nothing
RELEASES_PER_STORE = 50


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited, by so many releases of either table: with 260, half the noise of the Gaussian walks is noticed in all but one run of a thousand."""

    mechanism: str
    neighbours: str
    sampler: str = "opendp"
    law: str = "gaussian"
    releases: int = 260

    def __str__(self):
        return f"{self.mechanism}, {self.neighbours}, {self.law} noise by {self.sampler}"

    @property
    def extra(self):
        """People beyond PEOPLE in the cells (home, work) = (a, a), (a, b), (b, a), (b, b), of the one table and the other."""
        return (1, 0, 0, 0), (0, 0, 0, 1) if self.neighbours == "substitution" else (0, 0, 0, 0)

    @property
    def has_views(self):
        """Whether a view that crosses the tree is measured too: those who live in a and in b."""
        return self.mechanism == "cbdp"

    @property
    def tables(self):
        """The true counts of the one table and of the other: the total, those who work in a and in b, and the four cells."""
        # With views those who live in a and in b follow.
        cells = (np.array(extra, dtype=np.float64).reshape(2, 2) + PEOPLE for extra in self.extra)
        return [np.array([of.sum(), *of.sum(0), *of.ravel(), *(of.sum(1) if self.has_views else ())]) for of in cells]


LONG = [  # each makes four times as many releases as it says, some ninety in a minute of processor time
    Audit("inftda", "substitution"),
    Audit("inftda", "add_remove", "table"),
    Audit("inftda_reconciled", "substitution", "table"),
    Audit("inftda_reconciled", "add_remove"),
    Audit("inftda_lenient", "substitution"),
    Audit("inftda_lenient", "add_remove", "table"),
    Audit("inftda_shrunk", "substitution", "table"),
    Audit("inftda", "add_remove", law="laplace", releases=320),
    Audit("inftda_reconciled", "substitution", "table", law="laplace", releases=560),
    Audit("stability_histogram", "substitution", law="laplace", releases=220),
    Audit("stability_histogram", "add_remove", law="laplace", releases=220),
    Audit("cbdp", "substitution"),
    Audit("cbdp", "add_remove", "table", law="laplace", releases=560),
    Audit("cascade", "add_remove"),
    Audit("cascade", "substitution", "table"),
]
HEAVY = pytest.mark.heavy("it makes dozens of releases: an audit cannot do with fewer")
SHORT = [
    Audit("inftda_reconciled", "substitution", releases=14),
    Audit("stability_histogram", "add_remove", law="laplace", releases=16),
    Audit("cascade", "substitution", releases=14),
    *(
        pytest.param(audit, marks=pytest.mark.audit)
        for audit in (
            Audit("inftda", "substitution", releases=14),
            Audit("inftda_lenient", "substitution", releases=14),
            Audit("inftda", "substitution", "table", releases=14),
            Audit("cbdp", "add_remove", law="laplace", releases=16),
            Audit("cbdp", "substitution", releases=14),
        )
    ),
]


def write_spec(folder, audit, claim, extra=(0, 0, 0, 0)):
    """Write a spec of two areas, two levels deep, with its codebook and its table; return its path."""
    cells = zip(("a,a", "a,b", "b,a", "b,b"), extra, strict=True)
    (folder / "trips.csv").write_text("home,work,people\n" + "".join(f"{c},{PEOPLE + more}\n" for c, more in cells))
    (folder / "codebook.csv").write_text("area\na\nb\n")
    privacy = {"unit": "one commuter", "neighbours": audit.neighbours, "max_records_per_unit": 1}
    spec = {
        "name": "audited",
        "dataset": "audited",
        "input": {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
        "hierarchy": {"table": "codebook.csv", "levels": ["area"]},
        "release": {"tree": "destination", "finest": "area", "noisy_counts": True},
        "mechanism": audit.mechanism,
        "noise": {"law": audit.law, "sampler": audit.sampler},
        "privacy": privacy | {"epsilon": claim.epsilon, "delta": claim.delta},
        "budget": {"epsilon": 90.0, "delta": 0.1},
    }
    if audit.has_views:
        spec["release"]["views"] = {"total": {}, "work": {"destination": "area"}, "home": {"origin": "area"}}
    if audit.mechanism == "stability_histogram":
        del spec["release"]["noisy_counts"]  # its counts are its noisy counts
    return spec_in(folder, spec)


def scales_of(folder, audit, claim):
    """Return the scale of the noise of each of the counts, in its law and as planned; 0 where none is drawn."""
    guarantee = make_plan(load_spec(write_spec(folder, audit, claim))).guarantee
    measured = [noise.scale for noise in guarantee.noises]
    cells = [1, 2, 4, 2] if audit.has_views else [1, 2, 4]
    return np.repeat([0.0] * (len(cells) - len(measured)) + measured, cells)


def release_often(folder, audit, claim, extra, less):
    """Release a table many times and return what `published` does of each; the noise is divided by `less`."""
    here = Path(folder)
    plan = make_plan(load_spec(write_spec(here, audit, claim, extra)))
    recipe, samples = MECHANISMS[audit.mechanism], []
    claimed = recipe.laws[audit.law].samplers[audit.sampler].draw
    drawn = Sampling(lambda counts, scale, *threshold: claimed(counts, scale / less, *threshold))
    with_less = drawn_by(audit.mechanism, {audit.sampler: drawn}, audit.law) if less != 1 else recipe
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setitem(MECHANISMS, audit.mechanism, with_less)
        for batch in range(0, audit.releases, RELEASES_PER_STORE):
            os.environ["TRELLIS_HOME"] = str(here / f"home-{batch}")
            with store():  # opened once for the whole batch
                for number in range(batch, min(batch + RELEASES_PER_STORE, audit.releases)):
                    of_one = plan.file.spec.model_copy(update={"dataset": f"audited-{number}"})  # no sum is audited
                    one = replace(plan, file=replace(plan.file, spec=of_one))
                    release = new_release(one, release_id=f"audited-{number}", different_people=True)
                    make_release(one, release, submit_to(executor), report_nothing)
                    samples.append(published(Path(release.folder)))
            shutil.rmtree(os.environ["TRELLIS_HOME"])
            shutil.rmtree(here / "out")
    return np.array(samples)


def published(folder):
    """Return the numbers of a published folder, NaN for those that it lacks, in the order of `tables`."""
    # Four of each: its noisy count, or the count where none is published, the lower and the upper end of its interval, its count.

    def rows(path, *columns):
        table = pl.read_parquet(path)
        ends = [name for name in table.columns if name.startswith(("origin", "destination"))]
        yield from map(list, table.select(*ends, *columns).iter_rows())

    keys = [(), *((work,) for work in "ab"), *((home, work) for home in "ab" for work in "ab")]
    found = {}
    for level in range(3):
        for *codes, low, high, count in rows(folder / "counts" / f"level_{level}.parquet", "low", "high", "count"):
            found[tuple(codes)] = [count, low, high, count]
        noisy = folder / "noisy_counts" / f"level_{level}.parquet"
        for *areas, noisy_count in rows(noisy, "noisy_count") if noisy.exists() else ():
            found[tuple("ab"[area] for area in areas)][0] = noisy_count
    by_home = folder / "views" / "home.parquet"
    if by_home.exists():
        noisy_counts = pl.read_parquet(folder / "noisy_counts" / "view_home.parquet")["noisy_count"]
        of_view = zip(noisy_counts, rows(by_home, "low", "high", "count"), strict=True)
        found |= {("home", home): [noisy_count, *of] for noisy_count, (home, *of) in of_view}
        keys += [("home", home) for home in "ab"]
    return np.array([found[key] for key in keys], dtype=np.float64).T


def tried(processes, folder, audit, claim, less, expected):
    """Return what releases of either table with so many times less noise show by the attacks that expect some, and their power."""
    folders = [folder / f"one {less}", folder / f"other {less}"]
    for place in folders:
        place.mkdir()
    scales, false_alarm = scales_of(folder, audit, claim) / expected, FALSE_ALARM / len(ATTACKS)
    attack = rehearsed(audit.tables, scales, audit.law, claim, releases=audit.releases, false_alarm=false_alarm)
    which = zip(folders, audit.extra, strict=True)
    releases = [processes.submit(release_often, str(place), audit, claim, extra, less) for place, extra in which]
    one, other = (of.result() for of in releases)
    return shown_by(attack, claim, one, other), attack.power


def shown_by(attack, claim, one, other):
    """Return, for each attack, a lower bound on ε; all together hold but for one time in 1 / FALSE_ALARM."""
    # The first three are the given one, on the noisy counts, and as if they were noisy counts, on the middles of the intervals
    # and on the counts. The last has the one half of the releases teach it what to look at among all numbers, and looks at
    # the other half.
    known = ~np.isnan(np.concatenate([one, other])).any(0).ravel()
    everything = (of.reshape(len(of), -1)[:, known] for of in (one, other))
    guesses = [
        attack.guesses(one[:, 0], other[:, 0]),
        attack.guesses((one[:, 1] + one[:, 2]) / 2, (other[:, 1] + other[:, 2]) / 2),
        attack.guesses(one[:, 3], other[:, 3]),
        learned(*everything, claim),
    ]
    bounds = (lower_bound(of, claim.delta, FALSE_ALARM / len(ATTACKS)) for of in guesses)
    return dict(zip(ATTACKS, bounds, strict=True))


def told(audit, claim, noise, shown, power):
    """Return what an audit has shown and what it was able to show, in words."""
    bounds = ", ".join(f"{attack} {bound:.2f}" for attack, bound in shown.items())
    return (
        f"{audit}: with {noise}, epsilon is at least {max(shown.values()):.2f} at delta {claim.delta:g}, where"
        f" {claim.epsilon:g} is claimed ({bounds}), by {audit.releases} releases of either table. With half the noise its power"
        f" is {power:.4f}."
    )


@pytest.fixture(scope="module")
def processes():
    """Hold two processes open, one for either table, which have to import everything only once."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@HEAVY
@pytest.mark.thorough
@pytest.mark.parametrize("audit", SHORT, ids=str)
def test_next_to_no_noise_is_noticed(tmp_path, processes, audit):
    """A few releases with a twentieth of the noise betray themselves, by noisy counts and by intervals alone."""
    claim = SMALL_CLAIMS[audit.law]
    shown, _ = tried(processes, tmp_path, audit, claim, less=20, expected=20)
    assert min(shown["noisy counts"], shown["intervals"]) > claim.epsilon


@HEAVY
@pytest.mark.thorough
def test_a_few_releases_with_the_claimed_noise_keep_the_claim(tmp_path, processes):
    """As few releases with all of the noise show nothing that the claim excludes."""
    claim = SMALL_CLAIMS["gaussian"]
    shown, _ = tried(processes, tmp_path, Audit("inftda", "substitution", releases=14), claim, less=1, expected=20)
    assert max(shown.values()) <= claim.epsilon


@pytest.mark.audit
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("less", [1, 2], ids=["the claimed noise", "half the noise"])
@pytest.mark.parametrize("audit", LONG, ids=str)
def test_the_claim_holds_over_many_releases_and_with_half_the_noise_it_does_not(
    tmp_path, processes, record_property, audit, less
):
    """However the two tables are told apart, the lower bound on ε stays below what is claimed; with half the noise it exceeds it."""
    claim = CLAIMS[audit.law]
    shown, power = tried(processes, tmp_path, audit, claim, less=less, expected=2)
    record_property("audit", told(audit, claim, "half the noise" if less == 2 else "the claimed noise", shown, power))
    assert power >= LEAST_POWER
    assert (max(shown.values()) > claim.epsilon) == (less == 2)


# The attacks without releases: they accuse nobody who keeps a claim, and notice who does not.

OF_GUESSES = Claim(1.0, 0.1)
GUESSED = 12  # of either table: few enough to go through all that can happen


def of_all_guesses(one, other):
    """Return the probability of every number of right and of wrong guesses about the one table and the other, and the evidence that each is."""
    numbers = np.arange(GUESSED + 1)
    rest = GUESSED - numbers[:, None] - numbers
    outcomes = np.stack([*np.meshgrid(numbers, numbers, indexing="ij"), np.maximum(rest, 0)], axis=-1)
    sides = [(right, wrong, 1 - right - wrong) for right, wrong in (one, other)]
    laws = [np.where(rest >= 0, stats.multinomial.pmf(outcomes, GUESSED, of), 0.0) for of in sides]
    both = signal.convolve2d(*laws)
    right, wrong = np.indices(both.shape)
    possible = right + wrong <= 2 * GUESSED
    return both[possible], log_evidence(Guesses(right[possible], wrong[possible], 2 * GUESSED), OF_GUESSES)


def refuted(one, other, false_alarm):
    """Return how often OF_GUESSES is refuted if so large a part of the guesses about either table is right, and wrong."""
    law, evidence = of_all_guesses(one, other)
    return float(law[evidence >= -math.log(false_alarm)].sum())


@pytest.mark.parametrize("wrong", [(0.0, 0.0), (0.05, 0.05), (0.2, 0.2), (0.0, 0.25), (0.02, 0.2)])
def test_who_keeps_a_claim_is_refuted_no_more_often_than_is_said(wrong):
    """At the very edge of (ε, δ) the mean of the evidence is 1, or less where the tables differ, and alarms are rare."""
    # Summed over all that can happen, with few wrong guesses or many, about one table or both.
    edge = [math.exp(OF_GUESSES.epsilon) * of_other + OF_GUESSES.delta for of_other in reversed(wrong)]
    one, other = zip(edge, wrong, strict=True)
    assert max(sum(one), sum(other)) <= 1
    law, evidence = of_all_guesses(one, other)
    assert law.sum() == pytest.approx(1, rel=1e-9)
    mean = float((law * np.exp(evidence)).sum())
    assert mean == pytest.approx(1, rel=1e-9) if len(set(wrong)) == 1 else mean < 1
    assert all(refuted(one, other, false_alarm) <= false_alarm for false_alarm in (0.2, 0.05, 1e-3))


def test_who_breaks_a_claim_is_refuted():
    """Where guesses are right far more often than the claim allows a few are enough; what δ allows is never refuted."""
    assert refuted((0.95, 0.01), (0.95, 0.01), 0.05) > 0.8
    assert refuted((1.0, 0.0), (0.9, 0.02), 0.05) > 0.8
    assert refuted((OF_GUESSES.delta, 0.0), (OF_GUESSES.delta, 0.0), 1e-6) == 0.0


def test_what_a_single_number_gives_away_is_learned_and_nothing_where_there_is_nothing():
    """Among thirty numbers one that never varies but between the tables, and one with too little noise, are found; of alike ones none."""
    # Of forty audits of releases that are all alike none refutes the claim.

    def noisy(seed, releases):
        return np.rint(np.random.default_rng(seed).normal(60, 2, (2, releases, 30)))

    guesses = [learned(*noisy(seed, 60), claim=OF_GUESSES) for seed in range(40)]
    assert max(float(log_evidence(of, OF_GUESSES)) for of in guesses) < -math.log(FALSE_ALARM)
    one, other = noisy(1, 200)
    assert lower_bound(learned(one, other, OF_GUESSES), OF_GUESSES.delta, FALSE_ALARM) == 0
    for column, spread in ((3, 0.0), (17, 0.3)):
        random = np.random.default_rng(2)
        leaking = one.copy(), other.copy()
        for number, of in enumerate(leaking):
            of[:, column] = 61 - number + random.normal(0, spread, len(of))
        assert lower_bound(learned(*leaking, claim=OF_GUESSES), OF_GUESSES.delta, FALSE_ALARM) > OF_GUESSES.epsilon

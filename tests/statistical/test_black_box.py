"""A black-box audit: many small releases of two neighbouring tables, and how well their published counts tell them apart.

Everything runs as it does for users, from the table to the published folder, through the plain driver. A lower confidence
bound on ε must stay below the claim, and must exceed it when less noise is drawn than claimed.

The long suite, thousands of releases with the noise halved, is `make audit`.
"""

import math
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-4
EPSILON, DELTA = 1.0, 0.1  # where a Gaussian's noise is told from half of it by the fewest releases
SMALL_EPSILON = 0.5  # where a few releases do, if there is next to no noise
RELEASES = 3000  # of either table; half the noise then shows an epsilon of 1.2 or more, simulations say
LEARNING = 0.2  # of them choose the event
PEOPLE = 60  # in each of the four cells: far from zero, so that pruning hides nothing
RELEASES_PER_STORE = 50

Samples = NDArray[np.float64]


def spec_of(neighbours: str, epsilon: float, sampler: str) -> str:
    """Return a spec of two areas, two levels deep."""
    return yaml.safe_dump(
        {
            "name": "audited",
            "dataset": "audited",
            "input": {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
            "hierarchy": {"table": "codebook.csv", "levels": ["area"]},
            "release": {"tree": "destination", "finest": "area"},
            "mechanism": "inftda",
            "noise": {"sampler": sampler},
            "privacy": {
                "unit": "one commuter",
                "neighbours": neighbours,
                "max_records_per_unit": 1,
                "epsilon": epsilon,
                "delta": DELTA,
            },
            "budget": {"epsilon": 90.0, "delta": 0.1},
        }
    )


def release_often(
    folder: str, neighbours: str, epsilon: float, sampler: str, extra: Sequence[int], releases: int, less: float
) -> Samples:
    """Release a table many times and return what is published of it: per release the counts of every level.

    Args:
        folder: an empty folder.
        neighbours: the relation.
        epsilon: what is claimed, at DELTA.
        sampler: who draws the noise.
        extra: people beyond PEOPLE in the cells (home, work) = (a, a), (a, b), (b, a), (b, b).
        releases: how many.
        less: by how much the noise is divided; 1 for the claimed noise.
    Returns:
        Shape (releases, 7): the total, those who work in a and in b, and the four cells.
    """
    from flows.execution.driver import make_release
    from flows.execution.reservation import new_release
    from flows.mechanisms import MECHANISMS
    from flows.planning.plan import make_plan
    from flows.spec.file import load_spec
    from flows.walks.runner import report_nothing, submit_to
    from storage.database.connections import store
    from tasks.laws.gaussian import GAUSSIAN
    from tasks.laws.law import Sampling
    from tests.support.laws import drawn_by

    here = Path(folder)
    cells = zip(("a,a", "a,b", "b,a", "b,b"), extra, strict=True)
    (here / "trips.csv").write_text("home,work,people\n" + "".join(f"{c},{PEOPLE + more}\n" for c, more in cells))
    (here / "codebook.csv").write_text("area\na\nb\n")
    (here / "spec.yaml").write_text(spec_of(neighbours, epsilon, sampler))
    if less != 1:
        claimed = GAUSSIAN.samplers[sampler].draw
        halved = Sampling(lambda counts, scale: claimed(counts, scale / less))
        MECHANISMS["inftda"] = drawn_by("inftda", {sampler: halved})
    plan = make_plan(load_spec(here / "spec.yaml"))
    samples = []
    with ThreadPoolExecutor(1) as executor:
        for batch in range(0, releases, RELEASES_PER_STORE):
            os.environ["TRELLIS_HOME"] = str(here / f"home-{batch}")
            with store():  # opened once for the whole batch
                for number in range(batch, min(batch + RELEASES_PER_STORE, releases)):
                    one = replace(plan, file=replace(plan.file, spec=fresh_people(plan.file.spec, number)))
                    release = new_release(one, release_id=f"audited-{number}", different_people=True)
                    make_release(one, release, submit_to(executor), report_nothing)
                    samples.append(published(Path(release.folder)))
            shutil.rmtree(os.environ["TRELLIS_HOME"])
            shutil.rmtree(here / "out")
    return np.array(samples, dtype=np.float64)


def fresh_people(spec, number: int):
    """Return the spec for a dataset of its own: what is audited is one release, not their sum."""
    return spec.model_copy(update={"dataset": f"audited-{number}"})


def published(folder: Path) -> list[int]:
    """Return the counts of a published folder, zeros included."""
    import polars as pl

    paths = [folder / "counts" / f"level_{level}.parquet" for level in range(3)]
    levels = [pl.read_parquet(path).drop("low", "high") for path in paths]
    works = dict(levels[1].iter_rows())
    cells = {(home, work): count for home, work, count in levels[2].iter_rows()}
    return [
        levels[0]["count"][0],
        *(works.get(area, 0) for area in "ab"),
        *(cells.get((home, work), 0) for home in "ab" for work in "ab"),
    ]


def lower_bound(often: int, of: int, rarely: int, of_these: int) -> float:
    """Return a lower confidence bound on ε, of level 1 − FALSE_ALARM, from how often an event was seen on either side.

    By Clopper and Pearson's bounds on both rates: P(S) ≤ e^ε P′(S) + δ for every event S.
    """
    low = stats.beta.ppf(FALSE_ALARM / 2, often, of - often + 1) if often else 0.0
    high = stats.beta.ppf(1 - FALSE_ALARM / 2, rarely + 1, of_these - rarely) if rarely < of_these else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else -math.inf


def of_best_event(one: Samples, other: Samples) -> float:
    """Return the lower bound on ε of the event that tells the tables apart best.

    A part of the releases chooses it: a half-space by the linear discriminant, and its threshold. The others tell how
    often it happens.
    """
    learned = int(LEARNING * len(one))
    (learn_one, test_one), (learn_other, test_other) = np.split(one, [learned]), np.split(other, [learned])
    spread = np.cov(np.vstack([learn_one - learn_one.mean(0), learn_other - learn_other.mean(0)]).T)
    towards = np.linalg.pinv(spread) @ (learn_one.mean(0) - learn_other.mean(0))

    def at(threshold: float, some: Samples, others: Samples) -> float:
        often, rarely = int((some @ towards >= threshold).sum()), int((others @ towards >= threshold).sum())
        return lower_bound(often, len(some), rarely, len(others))

    best = max(np.unique(learn_one @ towards), key=lambda threshold: at(threshold, learn_one, learn_other))
    return at(best, test_one, test_other)


def of_plain_event(one: Samples, other: Samples) -> float:
    """Return the lower bound on ε of an event that is chosen in advance: nearer to the one table than to the other.

    For substitution, where a person in (a, a) is one in (b, b) instead.
    """
    towards = np.array([0, 1, -1, 1, 0, 0, -1])
    return lower_bound(int((one @ towards > 0).sum()), len(one), int((other @ towards > 0).sum()), len(other))


def audited(
    tmp_path: Path, neighbours: str, epsilon: float, sampler: str, releases: int, less: float
) -> tuple[Samples, Samples]:
    """Return the releases of a table with one person more in (a, a), and of its neighbour."""
    without = (0, 0, 0, 1) if neighbours == "substitution" else (0, 0, 0, 0)
    folders = [tmp_path / f"one {less}", tmp_path / f"other {less}"]
    for folder in folders:
        folder.mkdir()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        one, other = (
            pool.submit(release_often, str(folder), neighbours, epsilon, sampler, extra, releases, less)
            for folder, extra in zip(folders, ((1, 0, 0, 0), without), strict=True)
        )
        return one.result(), other.result()


@pytest.mark.parametrize("sampler", ["opendp", pytest.param("table", marks=pytest.mark.audit)])
def test_next_to_no_noise_is_noticed_and_the_claimed_noise_is_not(tmp_path: Path, sampler: str) -> None:
    """A few releases with a twentieth of the noise betray themselves; as many with all of it keep the claim."""
    assert of_plain_event(*audited(tmp_path, "substitution", SMALL_EPSILON, sampler, 40, less=1)) <= SMALL_EPSILON
    assert of_plain_event(*audited(tmp_path, "substitution", SMALL_EPSILON, sampler, 40, less=20)) > SMALL_EPSILON


@pytest.mark.audit
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("neighbours", ["substitution", "add_remove"])
@pytest.mark.parametrize("sampler", ["opendp", "table"])
def test_the_claim_holds_over_thousands_of_releases(tmp_path: Path, neighbours: str, sampler: str) -> None:
    """However the two tables are told apart, the lower bound on ε stays below what is claimed."""
    assert of_best_event(*audited(tmp_path, neighbours, EPSILON, sampler, RELEASES, less=1)) <= EPSILON


@pytest.mark.audit
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("neighbours", ["substitution", "add_remove"])
@pytest.mark.parametrize("sampler", ["opendp", "table"])
def test_half_the_noise_is_noticed(tmp_path: Path, neighbours: str, sampler: str) -> None:
    """With half the noise the same audit shows that the claim is broken."""
    assert of_best_event(*audited(tmp_path, neighbours, EPSILON, sampler, RELEASES, less=2)) > EPSILON

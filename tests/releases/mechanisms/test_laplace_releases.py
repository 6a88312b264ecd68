"""Releases with discrete Laplace noise: drawn, charged, stated, verified, asked and compared like those with the Gaussian."""

import json
import math
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.execution.driver import finish_release
from flows.mechanisms import MECHANISMS
from flows.spec.file import load_spec
from flows.trials.comparison import comparison_answer, make_comparison, trials_of
from flows.walks.runner import report_nothing, submit_to
from storage.database.connections import store
from storage.errors import StoreError, TrellisError
from storage.ledger.events import read_books
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE, laplace_quantile, laplace_variance
from tasks.laws.law import LevelNoise
from tasks.laws.table_sampler import LARGEST_TAU
from tasks.query.sums import MetCells, box_interval, leaf_sum_interval
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import margins_of, row_margins
from tests.support.cases import case_csv
from tests.support.folders import page_of, rewrite
from tests.support.making import Made, make, noise_of_the_cell, quick
from tests.support.passes import check_rows, counts_of, try_spec

BOTH = [  # views and group sizes have tests of their own
    name
    for name, recipe in MECHANISMS.items()
    if "laplace" in recipe.laws and "gaussian" in recipe.laws and recipe.cells != "views" and not recipe.is_of_sizes
]
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module", params=[pytest.param("opendp", marks=pytest.mark.thorough), "table"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a release of trips by one of the samplers, with the noisy counts."""
    folder = tmp_path_factory.mktemp("laplace") / request.param
    sampler = LAPLACE.samplers[request.param].draw
    return make(folder, quick(case_csv), sampler, named=request.param, mechanism="inftda_reconciled", law="laplace")


def manifest_of(made: Made) -> dict[str, Any]:
    """Return its manifest."""
    content: dict[str, Any] = json.loads((made.folder / "manifest.json").read_text())
    return content


@pytest.mark.parametrize("mechanism", BOTH)
def test_counts_follow_from_the_noise_whatever_its_law_and_scale(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise that is tied to the cell, releases by either law have the same counts at every level, within their intervals.

    Only `inftda_lenient` prunes by how large the noise is.
    """
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    counts, keys = [], case_csv(tmp_path).keys | {"mechanism": mechanism}
    with noise_of_the_cell() as sampler:
        for law in ("gaussian", "laplace"):
            accountant = {"accountant": "zcdp"} if law == "gaussian" else {}
            of_law = {"noise": {"law": law}, "privacy": keys["privacy"] | accountant}
            (tmp_path / "spec.yaml").write_text(yaml.safe_dump(keys | of_law))
            plan, _, trial = try_spec(tmp_path / "spec.yaml", sampler)
            assert plan.law == law
            check_rows(trial)
            counts.append([counts_of(nodes) for nodes in trial.released])
    assert (counts[0] == counts[1]) or mechanism == "inftda_lenient"


def test_every_level_is_charged_its_epsilon_and_says_so(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger, manifest, README and report state ε of every level, no ρ and no δ; together they are the spec's ε at most."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    with store() as con:
        account = read_books(con).account("plain")
    assert account
    charges = [charge for charge in account.charges.values() if charge.state == "released"]
    levels = [level for level in manifest_of(made)["levels"] if level["sigma"]]
    assert [charge.epsilon for charge in charges] == [level["epsilon"] for level in levels]
    assert {(charge.rho, charge.delta, charge.mechanism) for charge in charges} == {(0, 0.0, LAPLACE.name)}
    assert sum(Fraction(charge.epsilon) for charge in charges) <= 4
    assert account.standing.epsilon <= 4
    per_draw = LARGEST_TAU if made.release.terms.sampler == "table" else 0
    assert sum(charge.tau for charge in charges) == 2 * per_draw * len(charges)
    assert {level["mechanism"] for level in levels} == {LAPLACE.name}
    told = (made.folder / "README.md").read_text()
    assert f"The discrete Laplace noise costs ε = 4 in all, shared among {len(levels)} levels, and no δ." in told
    assert "Gaussian" not in told
    assert '<th scope="col">ε</th>' in page_of(made.folder)
    assert verify_answer(made.folder).ok


def test_published_noisy_counts_and_margins_are_those_of_the_law(made: Made) -> None:
    """The variance of every noisy count, and the half-width of every level, are the discrete Laplace law's."""
    levels = manifest_of(made)["levels"]
    noises = [LevelNoise(LAPLACE, level["scale"]) if level["sigma"] else LevelNoise(None, 0.0) for level in levels]
    stated = [(level.get("half_width", 0), level.get("cap_margin", 0)) for level in levels]
    of_rows = row_margins(noises, [level["cells"] for level in levels], [level["nonzero"] for level in levels], 0.9)
    fixed = margins_of(noises, 0.9)
    assert stated == [(of_row.own, of_cell.cap) for of_row, of_cell in zip(of_rows, fixed, strict=True)]
    for level in levels[1:]:
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{level['level']}.parquet")
        assert noisy["variance"].unique().to_list() == pytest.approx([laplace_variance(level["scale"])])


LIES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda manifest: manifest["levels"][2].update(scale=1.0), "level_2.parquet has a variance"),
    (lambda manifest: manifest["levels"][2].update(epsilon=0.7), "levels cost more than its epsilon and delta"),
    (lambda manifest: manifest["levels"][2].update(sigma=4.0), "level 2: its sigma is not that of its scale"),
    (lambda manifest: manifest["levels"][2].update(mechanism="cauchy"), "no noise law cauchy"),
    (lambda manifest: manifest["privacy"].update(epsilon=3.9), "levels cost more than its epsilon and delta"),
    (
        lambda manifest: manifest["privacy"].update(accountant="zcdp"),
        "has no rho, and costs what its privacy map returns",
    ),
    (lambda manifest: manifest["privacy"].update(max_records_per_unit=2), "cost more than its epsilon"),
    (lambda manifest: manifest["privacy"].update(sampler="dice"), "further from its law than its tau"),
    (lambda manifest: manifest["levels"][2].update(half_width=3), "half_width"),
]


@pytest.mark.parametrize(("lie", "told"), LIES, ids=[told for _, told in LIES])
def test_verification_recomputes_the_guarantee_from_the_law(
    made: Made, lie: Callable[[dict[str, Any]], object], told: str
) -> None:
    """A scale, a share, σ, a law or a sampler that does not give what the manifest states is a failure that says so."""
    before = {name: (made.folder / name).read_bytes() for name in ("manifest.json", "SHA256SUMS")}
    rewrite(made.folder, lie)
    failures = verify_answer(made.folder).failures
    for name, content in before.items():
        (made.folder / name).write_bytes(content)
    assert any(told in failure for failure in failures), failures


@pytest.fixture(scope="module")
def without_noisy_counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a release of leaves that does not publish its noisy counts."""
    release = {"tree": "destination", "finest": "municipality", "noisy_counts": False}
    case = quick(case_csv, release=release)  # type: ignore[arg-type]  # a section, not a text
    sampler = LAPLACE.samplers["table"].draw
    folder = make(tmp_path_factory.mktemp("leaves") / "made", case, sampler, mechanism="gaussian", law="laplace").folder
    assert verify_answer(folder).ok
    return folder


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"scale": 0.2}, "level 6: its scale and threshold cost more than its epsilon"),
        ({"mechanism": "discrete_gaussian"}, "costs rho, and no epsilon of a level"),
        ({"mechanism": "thresholded_discrete_laplace"}, "draws only"),
    ],
)
def test_verification_recomputes_what_a_scale_costs(
    without_noisy_counts: Path, lie: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """Where no noisy counts contradict it, a smaller scale or another law is found by the law's own map."""
    folder = Path(shutil.copytree(without_noisy_counts, tmp_path / without_noisy_counts.name))
    rewrite(folder, lambda manifest: manifest["levels"][-1].update(lie))
    assert any(told in failure for failure in verify_answer(folder).failures)


def test_questions_about_sums_take_the_law_of_each_level(made: Made) -> None:
    """The intervals of a region's trips hold its count, and that of a cell lies in the one that the table has."""
    tables = [made.level(level) for level in range(7)]
    region = tables[1]["destination_region"][0]
    found = query_answer(made.folder, f"region={region}", None, [], simultaneous=False)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.count <= found.high
    at_once = query_answer(made.folder, f"region={region}", None, [], simultaneous=True)
    assert at_once.low is not None
    assert at_once.high is not None
    assert at_once.low <= at_once.count <= at_once.high
    cell = query_answer(made.folder, None, f"region={region}", [], simultaneous=False)
    row = tables[1].filter(destination_region=region)
    assert cell.low is not None
    assert cell.high is not None
    assert row["low"][0] <= cell.low <= cell.high <= row["high"][0]


@pytest.mark.thorough
def test_no_other_law_draws_at_the_scale_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mechanism no longer has the law that a release is charged for, the release stops before anything is drawn."""

    def stopped(true_counts: IntArray, scale: float) -> IntArray:
        raise MemoryError(f"{len(true_counts)} cells at {scale}")

    with pytest.raises(TrellisError):
        make(tmp_path / "made", quick(case_csv), stopped, law="laplace")
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "made" / "home"))
    monkeypatch.setitem(MECHANISMS, "inftda", replace(MECHANISMS["inftda"], laws={"gaussian": GAUSSIAN}))
    with ThreadPoolExecutor(1) as executor, pytest.raises(StoreError, match="does not draw"):
        finish_release(f"{tmp_path.name}-made", submit_to(executor), report_nothing)


def laplace(random: np.random.Generator, scale: float, size: int | tuple[int, int]) -> IntArray:
    """Draw discrete Laplace noise: the difference of two geometric variables."""
    p = -math.expm1(-1 / scale)
    return random.geometric(p, size) - random.geometric(p, size)


def test_intervals_of_sums_cover_as_is_promised() -> None:
    """Of many draws of six cells the interval of their sum covers nine in ten, hardly more, and would not with σ's margin."""
    random, runs, noise = np.random.default_rng(5), 20_000, LevelNoise(LAPLACE, 6.0)
    noisy = 1_000 + laplace(random, 6.0, (runs, 6))
    hits = fewer = 0
    for run in noisy:
        found = box_interval([MetCells(6, run, np.zeros(0, dtype=np.int64))], [noise], 0.9, 6_000)
        z = laplace_quantile(6.0, math.log(0.05), 6)
        assert (found.low, found.high) == (min(run.sum() - z, 6_000), max(run.sum() + z, 6_000))
        hits += abs(run.sum() - 6_000) <= z
        fewer += abs(run.sum() - 6_000) <= 0.9 * z
    chance = 4.75 * math.sqrt(0.09 / runs)
    assert 0.9 - chance < hits / runs < 0.91 + chance
    assert fewer / runs < 0.9 - chance
    assert leaf_sum_interval(1_000, 6, noise, math.log(0.05))[1] == 1_000 + laplace_quantile(6.0, math.log(0.05), 6)


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a spec of a public table whose noise is Laplace by the table."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    keys = case_csv(tmp_path).keys | {"noise": {"law": "laplace", "sampler": "table"}, "public_data": True}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(keys))
    return tmp_path / "spec.yaml"


def test_a_comparison_draws_the_specs_law_and_covers(public: Path) -> None:
    """Each mechanism is tried with Laplace noise where it has it; of its 1,440 leaf intervals nine in ten cover, but for chance."""
    wanted = ["inftda", "inftda_reconciled", "gaussian", "stability_histogram"]
    comparison = make_comparison(load_spec(public), wanted, [4.0], 10)
    rows = pl.concat(
        [pl.DataFrame(trials_of(comparison, entry, range(10))) for entry in comparison.entries], how="diagonal"
    )
    results = comparison_answer(comparison, rows, "").results
    assert [result.mechanism for result in results] == wanted
    for result, entry in zip(results, comparison.entries, strict=True):
        assert {noise.law and noise.law.norm for noise in entry.noises} <= {None, 1}
        leaves = result.levels[-1].intervals
        assert leaves
        assert leaves["all"].coverage
        assert leaves["all"].cells == 144
        assert leaves["all"].coverage.mean > 0.9 - 4.75 * math.sqrt(0.09 / 1440)

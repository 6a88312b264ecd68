"""Releases under every relation, split and promise, through the plain driver: what is measured, exact, and charged."""

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks.optimize.task
from flows.answers.ledger import ledger_answer
from flows.answers.release_status import release_answer
from flows.answers.verify import verify_answer
from flows.console.release_view import show_release
from flows.forecast.answer import plan_answer
from flows.mechanisms import MECHANISMS
from flows.planning.plan import Plan
from flows.trials.in_memory import SeenTable, Trial
from storage.counts.shards import noisy_path
from storage.database.connections import store
from storage.errors import StoreError
from storage.ledger.events import charges_of
from storage.releases.register import list_checks
from tasks.format.manifest import Manifest
from tasks.laws.law import Sampler
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.table_sampler import LARGEST_TABLE_SCALE
from tasks.tree.axis import IntArray
from tests.support.cases import Case, case_csv
from tests.support.making import Made, make, no_noise
from tests.support.passes import check_rows, counts_of, try_spec

DEPTH = 6

Release = Callable[..., Made]


def case_with(folder: Path, keys: dict[str, Any], privacy: dict[str, Any]) -> Case:
    """Return the plain case with other privacy keys, and with others of the spec."""
    made = case_csv(folder)
    made.keys["privacy"] |= {"accountant": "zcdp"} | privacy  # pld would take seconds each time
    made.keys["privacy"] = {key: value for key, value in made.keys["privacy"].items() if value is not None}
    made.keys["budget"] = {"epsilon": 100.0, "delta": 1e-8}
    made.keys.update(keys)
    return made


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Return what releases the plain case with other privacy keys, or with others of the spec."""

    def with_keys(
        sampler: Sampler = discrete_gaussian,
        *,
        keys: dict[str, Any] | None = None,
        mechanism: str = "inftda",
        **privacy: Any,
    ) -> Made:
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "made" / "home"))
        return make(
            tmp_path / "made", lambda folder: case_with(folder, keys or {}, privacy), sampler, mechanism=mechanism
        )

    return with_keys


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Plan, SeenTable, Trial]]:
    """Return what makes such a release in memory."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))

    def with_keys(sampler: Any = None, *, keys: dict[str, Any] | None = None, **privacy: Any) -> Any:
        made = case_with(tmp_path, keys or {}, privacy)
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
        return try_spec(tmp_path / "spec.yaml", sampler)

    return with_keys


Tried = Callable[..., tuple[Plan, SeenTable, Trial]]


def manifest_of(made: Made) -> Manifest:
    """Return the published manifest, of a folder in which verification finds nothing."""
    assert verify_answer(made.folder).failures == []
    return Manifest.model_validate_json((made.folder / "manifest.json").read_bytes())


def true_counts(table: SeenTable) -> list[dict[tuple[int, ...], int]]:
    """Return the true counts of every level by their areas."""
    return [
        dict(zip(zip(*(of.tolist() for of in level.areas), strict=True), level.true_counts.tolist(), strict=True))
        for level in table.levels
    ]


def test_under_add_remove_the_root_is_measured(release: Release) -> None:
    """T + 1 levels share ρ, Δ₂ is 1 on each, the variance is (T + 1)/2ρ, and nothing is published exactly."""
    made = release(neighbours="add_remove")
    manifest = manifest_of(made)
    assert manifest.unprotected == []
    rho = manifest.privacy.rho
    assert [entry.rho for entry in manifest.levels] == pytest.approx([rho / (DEPTH + 1)] * (DEPTH + 1))
    assert [entry.l2_sensitivity for entry in manifest.levels] == [1.0] * (DEPTH + 1)
    assert [entry.sigma**2 for entry in manifest.levels] == pytest.approx([(DEPTH + 1) / (2 * rho)] * (DEPTH + 1))
    with store() as con:
        charges = charges_of(con, made.release.id)
        assert all(check.passed for check in list_checks(con, made.release.id))
    assert {level: charge.state for level, charge in charges.items()} == dict.fromkeys(range(DEPTH + 1), "released")
    assert sum((charge.rho for charge in charges.values()), Fraction(0)) == Fraction(rho)
    assert len({made.level(level)["count"].sum() for level in range(DEPTH + 1)}) == 1


def test_under_add_remove_every_draw_of_the_table_is_paid_for(tried: Tried) -> None:
    """A unit of three records touches the root and three cells of each level, each within 2**-120 of its law."""
    sampled = {"noise": {"sampler": "table"}}
    plan, _, trial = tried(keys=sampled, neighbours="add_remove", max_records_per_unit=3)
    privacy, charges = trial.job.record.release.terms.privacy, trial.job.record.charges
    assert privacy.sampler == "table"
    assert max(terms.sigma for terms in plan.levels) < LARGEST_TABLE_SCALE  # beyond it OpenDP would draw
    assert privacy.tau == (1 + 3 * DEPTH) * 2.0**-120
    assert [charges[level].tau * 2**120 for level in range(DEPTH + 1)] == [1] + [3] * DEPTH


def test_under_add_remove_the_total_is_noisy(tried: Tried) -> None:
    """With a sampler that adds seven to every cell the total is the true one and seven; without noise all is the truth."""
    _, table, trial = tried(lambda true_counts, _: true_counts + 7, neighbours="add_remove")
    assert trial.released[0].counts[0] == table.levels[0].true_counts[0] + 7
    _, table, trial = tried(no_noise, neighbours="add_remove")
    assert [counts_of(nodes) for nodes in trial.released] == true_counts(table)


def far_below(true_counts: IntArray, scale: float) -> IntArray:
    """Return noisy counts far below zero."""
    return true_counts - 10_000


@pytest.mark.parametrize("mechanism", [name for name, of in MECHANISMS.items() if of.cells == "survivors"])
def test_a_noisy_total_below_zero_leaves_nothing(tried: Tried, mechanism: str) -> None:
    """Then every level is empty, whatever the mechanism, and all that it measures is charged as in any other release."""
    _, _, trial = tried(far_below, keys={"mechanism": mechanism}, neighbours="add_remove")
    assert trial.released[0].counts.tolist() == [0]
    assert [len(nodes) for nodes in trial.released] == [1] + [0] * DEPTH
    assert {charge.state for charge in trial.job.record.charges.values()} == {"sealed"}
    check_rows(trial)


def test_a_noisy_total_below_zero_is_released_as_zero(release: Release) -> None:
    """The release is published, verified and charged as any other."""
    made = release(far_below, neighbours="add_remove", mechanism="inftda_reconciled")
    assert made.release.state == "published"
    assert made.level(0)["count"].to_list() == [0]
    assert [made.level(level).height for level in range(1, DEPTH + 1)] == [0] * DEPTH
    assert [entry.nonzero for entry in manifest_of(made).levels] == [1] + [0] * DEPTH
    with store() as con:
        assert {charge.state for charge in charges_of(con, made.release.id).values()} == {"released"}


def test_without_exact_records_the_root_is_measured_too(tried: Tried) -> None:
    """Under substitution with at most two records a unit moves the total by two, and a level by √8; zcdp accounts."""
    plan, _, trial = tried(max_records_per_unit=2, accountant=None)
    privacy = trial.job.record.release.terms.privacy
    assert plan_answer(plan).unprotected == []
    assert [terms.l2_sensitivity_squared for terms in plan.levels] == [4] + [8] * DEPTH
    assert (privacy.accountant, privacy.exact_records_per_unit) == ("zcdp", False)
    assert plan.levels[0].sigma > 0
    assert "at most 2 records" in privacy.statement


def test_the_promise_of_distinct_records_earns_its_root_from_its_own_level_on(tried: Tried) -> None:
    """Three records distinct by region: pairs of regions hold one each, what lies above several of them up to three."""
    plan, _, trial = tried(max_records_per_unit=3, exact_records_per_unit=None, distinct="region")
    # two regions at each end: 4 pairs below the root, 2 below a region of destination, 1 from pairs of regions on
    assert [terms.l2_sensitivity_squared for terms in plan.levels] == [9, 2 * (4 + 1), *[2 * 3] * 5]
    assert plan_answer(plan).levels[1].derivation.endswith("Δ₂² = 2·(1·2² + 1²) = 10")
    assert trial.job.record.release.terms.privacy.distinct == "region"


def test_invariants_are_exact_named_and_free(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels down to the regions are the truth, take no share of ρ, are called unprotected, and weaken the claim."""
    made = release(invariants=["region"], i_accept_unprotected=True)
    manifest = manifest_of(made)
    assert all(made.counts(level).equals(made.case.true_level(level)) for level in range(3))
    assert [(entry.rho, entry.sigma, entry.bound) for entry in manifest.levels[:3]] == [(0, 0, 0)] * 3
    assert sum(entry.rho for entry in manifest.levels[3:]) == pytest.approx(manifest.privacy.rho)
    assert len(manifest.unprotected) == 3
    assert "origin region, destination region" in manifest.unprotected[2]
    assert "only between tables that agree on every count of the levels 0 to 2" in manifest.privacy.statement
    assert "does not protect at all which of their cells a unit is in" in manifest.privacy.statement
    (account,) = ledger_answer(None).datasets
    assert account.unprotected == manifest.unprotected[1:]  # the total would be public anyway
    readme = " ".join((made.folder / "README.md").read_text().split())
    assert (
        "**Levels 0 to 2 are published exactly. The release does not protect at all in which of their cells" in readme
    )
    assert "almost the same" not in readme
    shown = release_answer(made.release.id, {"total": 1.0})
    assert shown.unprotected == manifest.unprotected
    show_release(shown)
    said = " ".join(capsys.readouterr().out.split())
    assert "unprotected: level 2 (origin region, destination region)" in said
    assert "does not protect at all which of their cells a unit is in" in said


def test_invariants_are_exact_where_the_first_pass_is_lenient(tried: Tried) -> None:
    """Levels down to the provinces are the truth, however small their counts."""
    keys = {"mechanism": "inftda_lenient"}
    _, table, trial = tried(keys=keys, invariants=["province"], i_accept_unprotected=True)
    assert [counts_of(nodes) for nodes in trial.released[:5]] == true_counts(table)[:5]


def test_an_exact_level_that_is_not_as_it_was_sealed_is_not_published(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that moves one record between siblings of an exact level, so that all adds up, stops the release by its name."""

    def one_moved(exact: IntArray, _: IntArray, totals: IntArray) -> IntArray:
        moved = exact.copy()
        if len(totals) == 2:  # both regions of destination: the cells are pairs of regions
            moved[:2] += [-1, 1] if moved[0] else [1, -1]
        return moved

    monkeypatch.setattr(tasks.optimize.task, "as_they_are", one_moved)
    with pytest.raises(StoreError) as refusal:
        release(invariants=["region"], i_accept_unprotected=True)
    assert str(refusal.value).startswith("Not published: exact_as_sealed at level 2")
    assert len(re.findall("at level", str(refusal.value))) == 1


@pytest.mark.parametrize(
    ("split", "shares"),
    [
        ("uniform", [1, 1, 1, 1, 1, 1]),
        ({"geometric": 2}, [1, 2, 4, 8, 16, 32]),
        ({"geometric": 0.5}, [32, 16, 8, 4, 2, 1]),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.5], [1, 1, 1, 1, 1, 5]),
    ],
)
def test_rho_is_shared_as_the_split_says(tried: Tried, split: Any, shares: list[int]) -> None:
    """Charges are in the proportions asked for, exactly, and add up to ρ exactly."""
    _, _, trial = tried(split=split)
    charges = trial.job.record.charges
    total = sum((charge.rho for charge in charges.values()), Fraction(0))
    assert [charges[level].rho / total for level in range(1, 7)] == [Fraction(part, sum(shares)) for part in shares]
    assert total == Fraction(trial.job.record.release.terms.privacy.rho)


def test_a_target_buys_just_the_noise_that_keeps_it(release: Release) -> None:
    """The bound of the level that it names comes to its error; what that costs is rounded up wherever people read it."""
    target = {"level": "region", "max_error": 97, "confidence": 0.95}
    made = release(epsilon=None, target=target)
    manifest = manifest_of(made)
    assert manifest.levels[2].bound == pytest.approx(97, rel=1e-9)
    assert manifest.levels[2].bound <= 97
    assert manifest.spec["privacy"]["target"] == target
    epsilon = manifest.privacy.epsilon
    assert epsilon > 0
    written = [text.split(", ")[0] for text in manifest.privacy.statement.split("(")[1:2]]
    written += [text.split()[0] for text in (made.folder / "README.md").read_text().split("ε = ")[1:]]
    assert len(written) == 2
    assert all(epsilon <= float(text) < epsilon * (1 + 1e-5) for text in written)


def test_rho_may_be_given_in_place_of_epsilon(tried: Tried) -> None:
    """Then ε is what that ρ comes to, and all of it is spent."""
    plan, _, trial = tried(epsilon=None, rho=0.25, accountant=None)
    privacy = trial.job.record.release.terms.privacy
    assert privacy.rho == pytest.approx(float(sum(terms.rho for terms in plan.levels))) == 0.25
    assert privacy.accountant == "pld"
    assert privacy.epsilon == pytest.approx(3.94, abs=0.01)


@pytest.mark.parametrize("kept", [pytest.param(True, marks=pytest.mark.thorough), False])
def test_noisy_counts_are_kept_or_destroyed(release: Release, kept: bool) -> None:
    """The sealed shards are there or gone, as the spec says, and the ledger has an event of either."""
    made = release(keys={"keep_noisy_counts": kept})
    there = [noisy_path(made.release.id, level, "trunk").exists() for level in range(DEPTH + 1)]
    assert there == [kept] * (DEPTH + 1)
    with store() as con:
        events = [event for (event,) in con.execute("SELECT event FROM ledger ORDER BY position").fetchall()]
    assert [event for event in events if "noisy counts kept" in event] == events[-1:] * kept
    assert [event for event in events if "noisy counts destroyed" in event] == events[-1:] * (not kept)

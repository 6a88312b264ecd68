"""Releases under every relation, split and promise, through the plain driver: what is measured, exact, and charged."""

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import tasks.optimize.task
from flows.answers.ledger import ledger_answer
from flows.answers.release_status import release_answer
from flows.answers.verify import verify_answer
from flows.console.release_view import show_release
from storage.counts.shards import noisy_path
from storage.database.connections import store
from storage.errors import StoreError
from storage.ledger.events import charges_of
from storage.releases.register import list_checks
from tasks.format.manifest import Manifest
from tasks.laws.law import Sampler
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.table_sampler import LARGEST_TABLE_SCALE, table_noise
from tasks.tree.axis import IntArray
from tests.support.cases import Case, case_csv
from tests.support.making import Made, make, no_noise, seeded

DEPTH = 6

Release = Callable[..., Made]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Return what releases the plain case with other privacy keys, or with others of the spec."""

    def with_keys(
        sampler: Sampler = discrete_gaussian,
        *,
        named: str = "opendp",
        keys: dict[str, Any] | None = None,
        mechanism: str = "inftda",
        **privacy: Any,
    ) -> Made:
        def case(folder: Path) -> Case:
            made = case_csv(folder)
            made.keys["privacy"] |= {"accountant": "zcdp"} | privacy  # pld would take seconds each time
            made.keys["privacy"] = {key: value for key, value in made.keys["privacy"].items() if value is not None}
            made.keys["budget"] = {"epsilon": 100.0, "delta": 1e-8}
            made.keys.update(keys or {})
            return made

        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "made" / "home"))
        return make(tmp_path / "made", case, sampler, named=named, mechanism=mechanism)

    return with_keys


def manifest_of(made: Made) -> Manifest:
    """Return the published manifest, of a folder in which verification finds nothing."""
    assert verify_answer(made.folder).failures == []
    return Manifest.model_validate_json((made.folder / "manifest.json").read_bytes())


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


def test_under_add_remove_every_draw_of_the_table_is_paid_for(release: Release) -> None:
    """A unit of three records touches the root and three cells of each level, each within 2**-120 of its law."""
    made = release(table_noise, named="table", neighbours="add_remove", max_records_per_unit=3)
    manifest = manifest_of(made)
    assert manifest.privacy.sampler == "table"
    assert max(entry.sigma for entry in manifest.levels) < LARGEST_TABLE_SCALE  # beyond it OpenDP would draw
    assert manifest.privacy.tau == (1 + 3 * DEPTH) * 2.0**-120
    with store() as con:
        charges = charges_of(con, made.release.id)
    assert [charges[level].tau * 2**120 for level in range(DEPTH + 1)] == [1] + [3] * DEPTH


def test_under_add_remove_the_total_is_noisy(release: Release) -> None:
    """With a sampler that adds seven to every cell the published total is the true one and seven."""
    made = release(lambda true_counts, _: true_counts + 7, neighbours="add_remove")
    assert made.level(0)["count"].to_list() == [made.case.truth["count"].sum() + 7]


def test_without_noise_add_remove_publishes_the_truth(release: Release) -> None:
    """The measured root and everything below it are the truth where the noise is none."""
    made = release(no_noise, neighbours="add_remove")
    assert all(made.counts(level).equals(made.case.true_level(level)) for level in range(DEPTH + 1))


@pytest.mark.parametrize("mechanism", ["inftda", "inftda_reconciled", "inftda_lenient", "inftda_shrunk", "tda_l2"])
def test_a_noisy_total_below_zero_is_released_as_zero(release: Release, mechanism: str) -> None:
    """Then every level is empty, and the release is published, verified and charged as any other, whatever the mechanism."""

    def far_below(true_counts: IntArray, scale: float) -> IntArray:
        return true_counts - 10_000

    made = release(far_below, neighbours="add_remove", mechanism=mechanism)
    assert made.release.state == "published"
    assert made.level(0)["count"].to_list() == [0]
    assert [made.level(level).height for level in range(1, DEPTH + 1)] == [0] * DEPTH
    assert [entry.nonzero for entry in manifest_of(made).levels] == [1] + [0] * DEPTH
    with store() as con:
        assert {charge.state for charge in charges_of(con, made.release.id).values()} == {"released"}


@pytest.mark.parametrize("neighbours", ["substitution", "add_remove"])
def test_every_error_is_within_its_bound_with_a_measured_root(release: Release, neighbours: str) -> None:
    """In a run with a seed every count, the total included, is within its level's bound."""
    keys = {"exact_records_per_unit": False} if neighbours == "substitution" else {}
    made = release(seeded(1.0), neighbours=neighbours, epsilon=40.0, **keys)
    errors = [int(made.errors(terms.level).max() or 0) for terms in made.release.levels]
    assert max(errors) > 0
    assert all(error <= terms.bound for error, terms in zip(errors, made.release.levels, strict=True))


def test_without_exact_records_the_root_is_measured_too(release: Release) -> None:
    """Under substitution with at most two records a unit moves the total by two, and a level by √8; zcdp accounts."""
    manifest = manifest_of(release(max_records_per_unit=2, accountant=None))
    assert manifest.unprotected == []
    assert [round(entry.l2_sensitivity**2) for entry in manifest.levels] == [4] + [8] * DEPTH
    assert manifest.privacy.accountant == "zcdp"
    assert not manifest.privacy.exact_records_per_unit
    assert manifest.levels[0].sigma > 0
    assert "at most 2 records" in manifest.privacy.statement


def test_the_promise_of_distinct_records_earns_its_root_from_its_own_level_on(release: Release) -> None:
    """Three records distinct by region: pairs of regions hold one each, what lies above several of them up to three."""
    made = release(max_records_per_unit=3, exact_records_per_unit=None, distinct="region")
    manifest = manifest_of(made)
    # two regions at each end: 4 pairs below the root, 2 below a region of destination, 1 from pairs of regions on
    assert [round(entry.l2_sensitivity**2) for entry in manifest.levels] == [9, 2 * (4 + 1), *[2 * 3] * 5]
    assert manifest.levels[1].derivation.endswith("Δ₂² = 2·(1·2² + 1²) = 10")
    assert manifest.privacy.distinct == "region"


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


def test_invariants_are_exact_where_the_first_pass_is_lenient(release: Release) -> None:
    """Levels down to the provinces are the truth, and checked to be what was sealed, however small their counts."""
    made = release(mechanism="inftda_lenient", invariants=["province"], i_accept_unprotected=True)
    assert all(made.counts(level).equals(made.case.true_level(level)) for level in range(5))
    with store() as con:
        checks = list_checks(con, made.release.id)
    assert all(check.passed for check in checks)
    assert {row.level for row in checks if row.check == "exact_as_sealed"} == set(range(5))


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
def test_rho_is_shared_as_the_split_says(release: Release, split: Any, shares: list[int]) -> None:
    """Charges are in the proportions asked for, exactly, and add up to ρ exactly."""
    made = release(split=split)
    with store() as con:
        charges = charges_of(con, made.release.id)
    total = sum((charge.rho for charge in charges.values()), Fraction(0))
    assert [charges[level].rho / total for level in range(1, 7)] == [Fraction(part, sum(shares)) for part in shares]
    assert total == Fraction(manifest_of(made).privacy.rho)


def test_a_target_buys_just_the_noise_that_keeps_it(release: Release) -> None:
    """The bound of the level that the target names comes to its error, and ε is what that costs."""
    target = {"level": "region", "max_error": 100, "confidence": 0.95}
    manifest = manifest_of(release(epsilon=None, target=target))
    assert manifest.levels[2].bound == pytest.approx(100, rel=1e-9)
    assert manifest.levels[2].bound <= 100
    assert manifest.privacy.epsilon > 0
    assert manifest.spec["privacy"]["target"] == target


def test_rho_may_be_given_in_place_of_epsilon(release: Release) -> None:
    """Then ε is what that ρ comes to, and all of it is spent."""
    manifest = manifest_of(release(epsilon=None, rho=0.25, accountant=None))
    assert manifest.privacy.rho == pytest.approx(sum(entry.rho for entry in manifest.levels)) == 0.25
    assert manifest.privacy.accountant == "pld"
    assert manifest.privacy.epsilon == pytest.approx(3.94, abs=0.01)


@pytest.mark.parametrize("kept", [True, False])
def test_noisy_counts_are_kept_or_destroyed(release: Release, kept: bool) -> None:
    """The sealed shards are there or gone, as the spec says, and the ledger has an event of either."""
    made = release(keys={"keep_noisy_counts": kept})
    there = [noisy_path(made.release.id, level, "trunk").exists() for level in range(DEPTH + 1)]
    assert there == [kept] * (DEPTH + 1)
    with store() as con:
        events = [event for (event,) in con.execute("SELECT event FROM ledger ORDER BY position").fetchall()]
    assert [event for event in events if "noisy counts kept" in event] == events[-1:] * kept
    assert [event for event in events if "noisy counts destroyed" in event] == events[-1:] * (not kept)


def test_what_people_read_is_never_less_than_what_is_spent(release: Release) -> None:
    """An ε that a target comes to is rounded up wherever it is written."""
    made = release(epsilon=None, target={"level": "region", "max_error": 97, "confidence": 0.95})
    manifest = manifest_of(made)
    epsilon = manifest.privacy.epsilon
    written = [text.split(", ")[0] for text in manifest.privacy.statement.split("(")[1:2]]
    written += [text.split()[0] for text in (made.folder / "README.md").read_text().split("ε = ")[1:]]
    assert len(written) == 2
    assert all(epsilon <= float(text) < epsilon * (1 + 1e-5) for text in written)

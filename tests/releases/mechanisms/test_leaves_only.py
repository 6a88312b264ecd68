"""Releases of mechanisms that measure leaves only, through the command line and through the plain driver."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

import flows.walks.stored
import tasks.noise.task
import tasks.noise.truth
import tasks.optimize.task
from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from flows.console.plan_view import show_plan
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.execution.series import declare_series
from flows.forecast.answer import plan_answer
from flows.mechanisms import MECHANISMS
from flows.planning.admission import check_budget
from flows.planning.costs import Cost
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.spec.sections.privacy import Target
from flows.walks.runner import report_nothing, submit_to
from storage.counts.shards import noisy_path
from storage.database.connections import store
from storage.errors import BudgetExceeded, SpecError, StageFailed, StoreError, UsageError
from storage.ledger.events import charges_of, read_books
from storage.releases.register import find_release, list_checks
from storage.releases.seals import list_seals
from tasks.laws.law import Sampling
from tasks.laws.thresholded import thresholded_laplace
from tasks.validate.size import expected_leaves
from tests.support.folders import rewrite
from tests.support.laws import drawn_by
from tests.support.spec import SPEC
from tests.support.user import User

AREAS = ("north", "a"), ("north", "b"), ("south", "a2"), ("south", "b2"), ("south", "c2")
TRIPS = {("a", "a"): 900, ("a", "b2"): 500, ("b", "a"): 2, ("b2", "c2"): 700, ("c2", "c2"): 1}
DEPTH = 4
WITH_PAGES = True  # they take disk
MECHANISM_NAMES = ["gaussian", "stability_histogram"]
CHECKS = {"children_add_up", "adds_to_total", "areas_known_once", "seals_match", "charged_as_planned"}


@dataclass(frozen=True)
class World:
    """A folder with a table of a few trips, and a store.

    Attributes:
        folder: holds the tables, the store and what is published.
    """

    folder: Path

    def plan(self, mechanism: str, **keys: Any) -> Any:
        """Return the plan of a release of everything, with other keys of the spec."""
        privacy = SPEC["privacy"] | {"epsilon": 1.0} | keys.pop("privacy", {})  # type: ignore[operator]
        privacy = {key: value for key, value in privacy.items() if value is not None and key != "accountant"}
        if mechanism != "stability_histogram":
            privacy.setdefault("accountant", "zcdp")
        spec = SPEC | {
            "name": mechanism.replace("_", "-"),
            "input": {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
            "hierarchy": {"table": "areas.csv", "levels": ["region", "area"]},
            "release": {"tree": "destination", "finest": "area"},
            "mechanism": mechanism,
        }
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(spec | keys | {"privacy": privacy}))
        return make_plan(load_spec(self.folder / "spec.yaml"))

    def release(self, mechanism: str, release_id: str = "one", **keys: Any) -> Path:
        """Make a release and return its folder."""
        plan = self.plan(mechanism, **keys)
        with store(), ThreadPoolExecutor(2) as executor:  # open all the time: each opening takes as long as a stage
            make_release(plan, new_release(plan, release_id=release_id), submit_to(executor), report_nothing)
        return self.folder / "out" / release_id

    def events(self, release_id: str = "one") -> list[str]:
        """Return what the ledger has of a release, in order."""
        with store() as con:
            rows = [
                json.loads(text) for (text,) in con.execute("SELECT event FROM ledger ORDER BY position").fetchall()
            ]
        return [event["event"] for event in rows if event.get("release") == release_id]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a folder with a table and a store of its own, in which parts are small."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.noise.task, "CHUNK_CELLS", 3)
    monkeypatch.setattr(tasks.noise.truth, "CHUNK_CELLS", 3)
    monkeypatch.setattr(tasks.optimize.task, "CHUNK_CELLS", 7)
    (tmp_path / "areas.csv").write_text("region,area\n" + "".join(f"{region},{area}\n" for region, area in AREAS))
    rows = "".join(f"{home},{work},{people}\n" for (home, work), people in TRIPS.items())
    (tmp_path / "trips.csv").write_text("home,work,people\n" + rows)
    return World(tmp_path)


def tables(folder: Path) -> list[pl.DataFrame]:
    """Return the published levels without the intervals."""
    paths = [folder / "counts" / f"level_{level}.parquet" for level in range(DEPTH + 1)]
    return [pl.read_parquet(path).drop("low", "high", "signal") for path in paths]


def counts(table: pl.DataFrame) -> dict[tuple[str, ...], int]:
    """Return counts by codes."""
    return {tuple(codes): count for *codes, count in table.iter_rows()}


def assert_sums(levels: list[pl.DataFrame]) -> None:
    """Check that every level is the sum of the finest one's counts, without rows of zero but for the total."""
    finest = levels[-1]
    assert finest["count"].len() == 0 or (finest["count"] != 0).all()
    assert levels[0]["count"].to_list() == [finest["count"].sum()]
    for level in levels[1:]:
        sums = finest.group_by(level.columns[:-1]).agg(pl.sum("count")).filter(pl.col("count") != 0)
        assert counts(level) == counts(sums.select(level.columns))
        assert level.equals(level.sort(level.columns[:-1]))


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", MECHANISM_NAMES)
def test_a_release_by_the_command_line_is_whole_and_verified(newcomer: User, mechanism: str) -> None:
    """It is published with the finest level measured alone, every other one its sum, and passes verification."""
    sampler = {"noise": {"sampler": "table"}} if mechanism == "gaussian" else {}
    keys = yaml.safe_load((newcomer.folder / "spec.yaml").read_text())
    if mechanism == "stability_histogram":
        del keys["privacy"]["accountant"]
    (newcomer.folder / "spec.yaml").write_text(yaml.safe_dump(keys | {"mechanism": mechanism} | sampler))
    said = newcomer.run("release", "spec.yaml", "--json")
    assert (said.code, said.stderr) == (0, "")
    released = said.json()
    *sums, finest = released["levels"]
    assert [(level["summed"], level["cells"], level["rho"]) for level in sums] == [(True, 0, 0)] * 6
    assert (finest["bound"] is None) == (mechanism == "stability_histogram")
    assert (finest["rho"] > 0) == (mechanism == "gaussian")
    verified = newcomer.run("verify", released["folder"], "--json").json()
    assert (verified["ok"], verified["failures"]) == (True, [])
    assert ("unread" in verified) == (mechanism == "stability_histogram")  # its folder lists no code without a count


def test_every_leaf_of_the_universe_is_noised_and_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler is given all leaves, most without records; what it draws is published, below zero too, but for zeros."""
    seen: list[int] = []

    def sampler(true_counts: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
        noise = np.arange(len(seen), len(seen) + len(true_counts)) % 5 - 2  # from -2 to 2
        seen.extend(true_counts.tolist())
        return true_counts + noise

    recipe = drawn_by("gaussian", {"opendp": Sampling(sampler)})
    monkeypatch.setitem(MECHANISMS, "gaussian", recipe)
    levels = tables(world.release("gaussian"))
    assert len(seen) == 25
    assert sorted(count for count in seen if count) == sorted(TRIPS.values())
    with store() as con:
        [seal] = list_seals(con, "one").values()
    assert (seal.level, seal.branch, seal.cells) == (DEPTH, "trunk", 25)
    drawn = [count + number % 5 - 2 for number, count in enumerate(seen)]
    assert sorted(levels[-1]["count"]) == sorted(count for count in drawn if count)
    assert levels[-1]["count"].min() < 0
    assert_sums(levels)
    readme = " ".join((world.folder / "out" / "one" / "README.md").read_text().split())
    assert "may be below zero" in readme
    assert "The total is the sum of the counts of the finest level, not the number of records." in readme
    assert "Every sum of counts carries the noise of each of its leaves." in readme
    assert "Use the coarsest" not in readme


def test_a_parent_of_zero_has_no_row_though_its_children_have(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that add up to nothing stand without their parent, in the checks and for verification too."""

    def sampler(true_counts: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
        return np.array([(-1) ** number * 3 for number in range(len(true_counts))])

    monkeypatch.setattr(tasks.noise.task, "CHUNK_CELLS", 10**6)
    monkeypatch.setattr(tasks.noise.truth, "CHUNK_CELLS", 10**6)
    monkeypatch.setitem(
        MECHANISMS,
        "gaussian",
        drawn_by("gaussian", {"opendp": Sampling(sampler)}),
    )
    folder = world.release("gaussian")
    levels = tables(folder)
    assert any(level.height == 0 or (level["count"] < 0).any() for level in levels[1:])
    parents = {codes[:2] for codes in counts(levels[-1])}
    assert parents - {codes[:2] for codes in counts(levels[3])} or levels[2].height < 4
    assert_sums(levels)
    assert verify_answer(folder).failures == []


def test_a_histogram_shows_only_leaves_with_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler never sees a leaf without records, and what is published has been above the threshold."""
    seen: list[int] = []

    def sampler(true_counts: Any, scale: float, threshold: int) -> Any:
        seen.extend(true_counts.tolist())
        return thresholded_laplace(true_counts, scale, threshold)

    recipe = drawn_by("stability_histogram", {"opendp": Sampling(sampler)})
    monkeypatch.setitem(MECHANISMS, "stability_histogram", recipe)
    folder = world.release("stability_histogram")
    assert sorted(seen) == sorted(TRIPS.values())
    levels = tables(folder)
    shown = {(codes[1], codes[3]): count for codes, count in counts(levels[-1]).items()}
    assert shown.keys() == {leaf for leaf, people in TRIPS.items() if people > 100}
    assert min(shown.values()) >= 40
    assert_sums(levels)
    with store() as con:
        [seal] = list_seals(con, "one").values()
        assert seal.cells == len(shown)  # and not how many leaves have records
        shard = pq.ParquetFile(noisy_path("one", DEPTH, "trunk"))
        assert [shard.metadata.row_group(n).num_rows for n in range(shard.num_row_groups)] == [3]
        [charge] = charges_of(con, "one").values()
    assert (charge.rho, charge.epsilon, charge.delta) == (0, 1.0, pytest.approx(4.23e-9, rel=1e-3))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["waived"], manifest["unprotected"]) == (["fixed_total"], [])
    assert (manifest["levels"][-1]["scale"], manifest["levels"][-1]["threshold"]) == (2.0, 40)
    readme = " ".join((folder / "README.md").read_text().split())
    assert "threshold 40 cost ε = 1 and δ = 4.23e-09" in readme
    assert "no error bound is stated" in readme
    assert "| 0 | all | all | 1 | n/a |" in readme
    assert "published exactly." not in readme
    assert "may be below zero" not in readme


@pytest.mark.parametrize("mechanism", [pytest.param("gaussian", marks=pytest.mark.thorough), "stability_histogram"])
def test_an_empty_table_is_released_too(world: World, mechanism: str) -> None:
    """Without any record the histogram is empty, and the other one noise; both add up."""
    (world.folder / "trips.csv").write_text("home,work,people\n")
    folder = world.release(mechanism, privacy={"neighbours": "add_remove"})
    assert_sums(tables(folder))
    assert (tables(folder)[-1].height == 0) == (mechanism == "stability_histogram")
    assert verify_answer(folder).failures == []


@pytest.mark.parametrize("mechanism", [pytest.param("gaussian", marks=pytest.mark.thorough), "stability_histogram"])
def test_what_was_not_sealed_is_removed_unread_and_what_was_is_never_drawn_again(
    world: World, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rerun after a crash before the seal draws anew, and one after a crash behind it does not; neither is charged."""
    with monkeypatch.context() as patch:
        patch.setattr(flows.walks.stored, "add_seal", crash)
        with pytest.raises(MemoryError):
            world.release(mechanism)
    first = noisy_path("one", DEPTH, "trunk").read_bytes()
    with store() as con:
        assert (list_seals(con, "one"), charges_of(con, "one")[DEPTH].state) == ({}, "drawing")
        spent = read_books(con).accounts["synthetic-country"].spendings
    with monkeypatch.context() as patch:
        patch.setattr(flows.walks.stored, "add_frontier", crash)
        with pytest.raises(MemoryError):
            go_on()
    second = noisy_path("one", DEPTH, "trunk", 1).read_bytes()
    assert first != second
    go_on()
    assert noisy_path("one", DEPTH, "trunk", 1).read_bytes() == second
    with store() as con:
        assert list_seals(con, "one")[DEPTH, "trunk"].sha256 == sha256(second).hexdigest()
        assert find_release(con, "one").state == "published"
        assert read_books(con).accounts["synthetic-country"].spendings == spent
        assert {check.check for check in list_checks(con, "one")} - CHECKS == {
            "counts_whole" if mechanism == "gaussian" else "counts_whole_and_positive"
        }
        assert all(check.passed for check in list_checks(con, "one"))
    expected = ["reserved", "drawing", "unsealed shard removed unread", "sealed", "released"]
    assert [event for event in world.events() if event in expected] == expected
    assert_sums(tables(world.folder / "out" / "one"))


def test_a_level_that_is_not_as_charged_is_not_drawn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold, or an ε, that was altered in the store since the reservation stops the release before a draw."""
    with monkeypatch.context() as patch:
        patch.setattr(flows.walks.stored.StoredRecord, "prepare", crash)
        with pytest.raises(MemoryError):
            world.release("stability_histogram")
    with store() as con:
        con.execute("UPDATE levels SET epsilon = 2.0 WHERE level = ?", [DEPTH])
    with pytest.raises(StoreError, match="differs from its charge in the ledger"):
        go_on()
    with store() as con:
        con.execute("UPDATE levels SET epsilon = 1.0, threshold = 3 WHERE level = ?", [DEPTH])
    with pytest.raises(StageFailed):
        go_on()
    assert not noisy_path("one", DEPTH, "trunk").exists()


def test_both_share_a_cap_and_the_last_that_fits_is_told(world: World) -> None:
    """A histogram beside a Gaussian release is refused beyond the cap, with the ε that would fit, which then does."""
    budget = {"epsilon": 2.0, "delta": 1e-7}
    world.release("gaussian", "first", budget=budget)
    with pytest.raises(BudgetExceeded, match=r"cap is 2") as refusal:
        world.release("stability_histogram", "second", privacy={"epsilon": 1.9}, budget=budget)
    fits = refusal.value.left_epsilon
    assert 0.7 < fits < 1.0
    assert f"what is left is enough for ε = {fits:g}" in refusal.value.hint
    with store() as con:
        books = read_books(con)
    check_budget(world.plan("stability_histogram", privacy={"epsilon": fits}, budget=budget), books)
    with pytest.raises(BudgetExceeded):
        check_budget(world.plan("stability_histogram", privacy={"epsilon": fits + 0.01}, budget=budget), books)


def test_a_declared_series_of_histograms_is_reserved_as_a_whole(world: World) -> None:
    """Its plan comes to the sum of its releases, which `delta` must hold too."""
    schedule = {"cron": "0 3 1 * *", "until": "3 releases"}
    budget = {"epsilon": 4.0, "delta": 1e-7}
    plan = world.plan("stability_histogram", schedule=schedule, budget=budget)
    spending = plan.spending_of_series(3, 1e-7)
    assert (spending.epsilon, len(spending.approximate), spending.rho) == (3.0, 3, 0)
    assert plan_answer(plan).budget.after == Cost(epsilon=3.0, rho=0.0)
    assert plan.spending_of_series(3, 1e-8).epsilon == float("inf")
    series = declare_series(plan, datetime.now(UTC))
    assert (len(series.releases), series.epsilon, series.delta) == (3, 3.0, 1e-7)
    assert audit_answer().ok
    with pytest.raises(BudgetExceeded):
        world.release("stability_histogram", "more", name="more", privacy={"epsilon": 1.1}, budget=budget)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gaussian", {"invariants": ["region"], "i_accept_unprotected": True}, "privacy.invariants"),
    ("stability_histogram", {"invariants": ["region"], "i_accept_unprotected": True}, "privacy.invariants"),
    ("stability_histogram", {"epsilon": None, "rho": 0.1}, "privacy.rho"),
    (
        "stability_histogram",
        {"epsilon": None, "target": {"level": "area", "max_error": 9, "confidence": 0.9}},
        "privacy.target",
    ),
    ("stability_histogram", {"split": "uniform"}, "privacy.split"),
]


@pytest.mark.parametrize(("mechanism", "privacy", "field"), REFUSED)
def test_keys_without_meaning_are_refused(world: World, mechanism: str, privacy: dict[str, Any], field: str) -> None:
    """What a mechanism has no use for is an error that names the key and the reason, before anything is read."""
    with pytest.raises(SpecError, match=f"{field} must be left out with mechanism {mechanism}: ") as refusal:
        world.plan(mechanism, privacy=privacy)
    assert refusal.value.field == field


def test_a_histogram_has_one_sampler_and_no_accountant(world: World) -> None:
    """The table draws no Laplace noise, and what OpenDP's map returns needs no accountant."""
    with pytest.raises(SpecError, match=r"sampler must be opendp with mechanism stability_histogram, got table"):
        world.plan("stability_histogram", noise={"sampler": "table"})
    text = (world.folder / "spec.yaml").read_text().replace("delta: 1.0e-08", "delta: 1.0e-08\n  accountant: zcdp")
    (world.folder / "spec.yaml").write_text(text.replace("sampler: table", "sampler: opendp"))
    with pytest.raises(SpecError, match=r"privacy\.accountant must be left out"):
        make_plan(load_spec(world.folder / "spec.yaml"))
    plan = world.plan("stability_histogram")
    with pytest.raises(UsageError, match="no error bound"):
        plan_answer(plan, Target(level="area", max_error=9, confidence=0.9))


def test_too_many_leaves_are_refused_at_the_plan(world: World) -> None:
    """Beyond a hundred million leaves `gaussian` says why, and the histogram, which lists none, does not mind."""
    many = "".join(f"r{number % 7},x{number}\n" for number in range(10_001))
    (world.folder / "areas.csv").write_text("region,area\n" + many)
    with pytest.raises(SpecError, match=r"at most 100,000,000 leaves with mechanism gaussian, .* got 100,020,001") as e:
        world.plan("gaussian")
    assert e.value.field == "release.finest"
    plan = world.plan("stability_histogram")
    assert plan.levels[-1].possible_cells == 10_001**2


def test_sums_have_the_noise_of_their_leaves_or_none_that_can_be_told(world: World) -> None:
    """A level that is summed has √w σ where every leaf bears noise, and 0, read as none, where leaves may be left out."""
    sigmas = [level.sigma for level in world.plan("gaussian").levels]
    assert sigmas == pytest.approx([sigmas[-1] * leaves**0.5 for leaves in (25, 15, 9, 3, 1)])
    *sums, leaf = world.plan("stability_histogram").levels
    assert [(level.sigma, level.is_summed) for level in sums] == [(0, True)] * DEPTH
    assert leaf.sigma > 0


def test_a_plan_says_what_a_threshold_leaves_out(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """With a public guess of the total it sets a typical leaf beside the threshold, and no bound is told that none states."""
    show_plan(plan_answer(world.plan("stability_histogram", expected_total=100)))
    said = capsys.readouterr().out
    assert (
        "100 records (expected_total) spread evenly: 4 in a leaf, and a leaf is kept if its noisy count is at least 40; most leaves are left out"
        in said
    )
    assert "with 95%" not in said
    assert "ε = 1, δ = 1e-08, no ρ, by OpenDP's map" in said
    assert "A leaf is kept if its noisy count is at least 40." in said
    rows = [line.split()[-3:] for line in said.splitlines() if line.startswith((" 0", " 3", " 4"))]
    assert rows == [["summed", "n/a", "n/a"], ["summed", "n/a", "n/a"], ["n/a", "2.799", "n/a"]]
    assert "\nhow far one unit moves a level:\n" in said
    assert "at most Δ₀ = 2 counts change" in said
    assert "other ε" not in said
    wide = plan_answer(world.plan("stability_histogram", expected_total=10_000))
    assert (wide.curve, wide.typical.finest_above_noise) == ([], DEPTH)
    show_plan(wide)
    assert "left out" not in capsys.readouterr().out
    show_plan(plan_answer(world.plan("gaussian")))
    said = capsys.readouterr().out
    assert all(words in said for words in ("with 95%", "ρ = ", "Δ₂, how far one unit moves a level", "at other ε"))


def test_leaves_that_are_expected() -> None:
    """All leaves are written where each bears noise, and no more than could reach the threshold where there is one."""
    assert [cells.nonzero for cells in expected_leaves([1, 4, 25], 50, 0)] == [1, 4, 25]
    assert [cells.measured for cells in expected_leaves([1, 4, 25], None, 10)] == [0, 0, 25]
    assert [cells.nonzero for cells in expected_leaves([1, 4, 25], 30, 10)] == [1, 3, 3]
    assert [cells.nonzero for cells in expected_leaves([1, 4, 25], 0, 10)] == [1, 1, 1]
    assert [cells.nonzero for cells in expected_leaves([1, 10**400], None, 10)] == [1, 2**1000]


@pytest.mark.thorough
def test_what_is_expected_on_disk_is_published(world: World) -> None:
    """The bytes that a plan expects are those of the folder, but for a factor of three."""
    folder = world.release("gaussian")
    expected = plan_answer(world.plan("gaussian", expected_total=2_000)).disk
    published = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert published / 3 < expected.published < 3 * published


def test_a_target_is_met_on_a_sum(world: World) -> None:
    """`gaussian` buys just the noise with which a level that is summed keeps within an error."""
    target = {"level": "region", "max_error": 60, "confidence": 0.95}
    plan = world.plan("gaussian", privacy={"epsilon": None, "target": target})
    assert plan.levels[2].is_summed
    assert plan.levels[2].bound == pytest.approx(60, rel=1e-9)
    assert plan.levels[2].bound <= 60


LIES: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("gaussian", lambda manifest: manifest.pop("waived"), "other than zero|above zero|waives"),
    ("gaussian", lambda manifest: manifest["waived"].remove("fixed_total"), "waives other things"),
    ("gaussian", lambda manifest: manifest["levels"][2].pop("summed"), "seal"),
    ("gaussian", lambda manifest: manifest.update(mechanism="inftda"), "waives other things"),
    ("gaussian", lambda manifest: manifest["levels"][1].update(rho=0.5), "rho|cost nothing"),
    ("stability_histogram", lambda manifest: manifest["levels"][-1].update(threshold=30), "scale and threshold cost"),
    ("stability_histogram", lambda manifest: manifest["levels"][-1].update(scale=1.0), "scale and threshold cost"),
    ("stability_histogram", lambda manifest: manifest["levels"][-1].update(epsilon=1.1), "levels cost more"),
    ("stability_histogram", lambda manifest: manifest["levels"][-1].update(sigma=1.0), "not that of its scale"),
    ("stability_histogram", lambda manifest: manifest["privacy"].update(epsilon=0.9), "levels cost more"),
    ("stability_histogram", lambda manifest: manifest["privacy"].update(accountant="zcdp"), "privacy map"),
    ("stability_histogram", lambda manifest: manifest["privacy"].update(max_records_per_unit=2), "cost more"),
    ("stability_histogram", lambda manifest: manifest.update(mechanism="none"), "no mechanism none"),
]


def test_verification_finds_what_a_manifest_has_no_right_to_say(world: World) -> None:
    """What is waived, summed or charged otherwise than by the mechanism's recipe and map is a failure that says so."""
    folders = {mechanism: world.release(mechanism, mechanism) for mechanism in MECHANISM_NAMES}
    assert all(verify_answer(folder).ok for folder in folders.values())
    for number, (mechanism, lie, told) in enumerate(LIES):
        folder = Path(shutil.copytree(folders[mechanism], world.folder / f"lie-{number}"))
        rewrite(folder, lie)
        failures = verify_answer(folder).failures
        assert any(part in failure for part in told.split("|") for failure in failures), (mechanism, told, failures)


def crash(*_: Any) -> None:
    """Stop as a process does that is killed: nothing is committed."""
    raise MemoryError


def go_on() -> None:
    """Go on with the release, as `rerun` does."""
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release("one", submit_to(executor), report_nothing)

"""Measured once, charged once: what a failed or a killed release has sealed stays, and the rest is drawn, once."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tasks.noise.task
import tasks.noise.truth
import tasks.optimize.task
import tasks.tree.branches
from flows.execution.driver import finish_release, make_release
from flows.execution.ending import sweep_orphans
from flows.execution.reservation import new_release
from flows.execution.resumption import refresh_run_keys
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing
from storage.counts.shards import noisy_path
from storage.counts.vault import vault_path
from storage.database.connections import store
from storage.errors import SpecError, StageFailed, StoreError, UsageError
from storage.ledger.events import read_books as read_ledger
from storage.machine.locks import held
from storage.releases.register import claim_id, find_release
from storage.releases.terms import RunTerms
from tasks.capacity import cores, default_memory
from tasks.laws.law import Sampling
from tests.support.draws import (
    BRANCH_CELLS,
    BRANCHES,
    CHUNK_CELLS,
    LEVELS,
    Books,
    Draws,
    Place,
    assert_finished,
    read_books,
    write_small,
)
from tests.support.launcher import Launcher
from tests.support.laws import drawn_by


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Cut small releases into branches and chunks, and know what is drawn."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    monkeypatch.setattr(tasks.noise.truth, "CHUNK_CELLS", CHUNK_CELLS)
    monkeypatch.setattr(tasks.optimize.task, "CHUNK_CELLS", CHUNK_CELLS)
    draws = Draws()
    monkeypatch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(draws.sample)}))
    return draws


def finish(release_id: str, draws: Draws, only: str | None = None) -> None:
    """Finish a release on two threads. The store is kept open meanwhile, since opening it is most of the time."""
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release(release_id, draws.submit_to(executor), report_nothing, only=only)


def make_failing(folder: Path, release_id: str, draws: Draws) -> tuple[StageFailed, Books]:
    """Make a release that fails, and return how it failed and what is known of it afterwards."""
    plan = make_plan(load_spec(write_small(folder / "small")))
    release = new_release(plan, release_id=release_id)
    with store(), ThreadPoolExecutor(2) as executor, pytest.raises(StageFailed) as failure:
        make_release(plan, release, draws.submit_to(executor), report_nothing)
    return failure.value, read_books(release_id)


@pytest.mark.parametrize(
    "fail_at",
    [
        pytest.param({(1, "trunk"): 1}, marks=pytest.mark.thorough),
        pytest.param({(4, "b03"): 3}, marks=pytest.mark.thorough),
        {(3, "b00"): 1, (4, "b02"): 2},
    ],
    ids=lambda fail_at: " and ".join(f"{level} {branch}" for level, branch in fail_at),
)
def test_a_failed_release_goes_on_where_its_seals_end(fail_at: dict[Place, int], tmp_path: Path, draws: Draws) -> None:
    """A sampler that raises fails its own branch only, and finishing draws what was never sealed and nothing else."""
    draws.fail_at.update(fail_at)
    release_id = f"failed-{len(fail_at)}-{next(iter(fail_at))[0]}"
    fault, before = make_failing(tmp_path, release_id, draws)

    failed = {branch: level for level, branch in fail_at}
    first, *others = failed
    assert str(fault).startswith(f"{first}: measure_branch stopped: ValueError at ")
    assert str(fault).endswith(f" Also failed: {', '.join(others)}.") == bool(others)
    assert (before.state, before.reason) == ("failed", str(fault))
    assert before.published == {}
    assert vault_path(release_id).exists()
    walked = {(level, "trunk") for level in range(3)} | {(level, branch) for level in (3, 4) for branch in BRANCHES}
    stopped = {(level, branch) for level, branch in walked if "trunk" in failed or level >= failed.get(branch, 5)}
    reached = walked - stopped if "trunk" not in failed else {(0, "trunk")}
    assert set(before.seals) == before.optimised == reached
    for level in LEVELS:
        sealed_whole = not any(of == level for of, _ in stopped)
        drawn_of = any(of == level for of, _ in reached | set(fail_at))
        assert before.events_of(level) == (["drawing", "sealed"] if sealed_whole else ["drawing"] if drawn_of else [])

    draws.forget()
    finish(release_id, draws)
    assert_finished(release_id, before, draws)

    once_more = read_books(release_id)
    draws.forget()
    finish(release_id, draws)
    assert draws.cells == {}
    assert read_books(release_id) == once_more


@pytest.mark.thorough
def test_a_release_that_fails_again_draws_no_more_than_it_must(tmp_path: Path, draws: Draws) -> None:
    """However often a release fails, a level of a branch that is sealed is not drawn again."""
    draws.fail_at[2, "trunk"] = 1
    _, first = make_failing(tmp_path, "failed-often", draws)
    draws.forget()
    draws.fail_at[3, "b00"] = 1
    with pytest.raises(StageFailed, match="b00: "):
        finish("failed-often", draws)
    second = read_books("failed-often")
    assert first.seals.items() < second.seals.items()
    assert set(draws.cells) == set(second.seals) - set(first.seals)
    draws.forget()
    finish("failed-often", draws)
    assert set(draws.cells) == {(3, "b00"), (4, "b00")}
    assert_finished("failed-often", second, draws)


def kill(launch: Launcher, home: Path, folder: Path, moment: str) -> None:
    """Kill a release at a moment."""
    options = {"spec": str(write_small(folder / "small")), "output": str(folder / "out"), "release_id": "killed"}
    assert launch.run(home, "make", **options, kill_at=moment).code == -signal.SIGKILL


def test_a_sealed_shard_that_was_altered_is_not_drawn_again(
    launch: Launcher, home: Path, tmp_path: Path, draws: Draws
) -> None:
    """A sealed shard that is altered or missing stops its branch with its name; once restored, the release goes on."""
    kill(launch, home, tmp_path, "after commit seals 3 b01")
    first = read_books("killed")
    assert (3, "b01") in set(first.seals) - first.optimised
    shard = noisy_path("killed", 3, "b01")
    sealed = shard.read_bytes()
    for altered, what in [(sealed[:-1] + b"?", "not what was sealed"), (None, "missing")]:
        shard.unlink()
        if altered:
            shard.write_bytes(altered)
        with pytest.raises(StoreError, match=f"b01: level_3_b01.noisy.parquet is {what}"):
            finish("killed", draws)
        before = read_books("killed")
        assert before.state == "failed"
        assert what in before.reason
        assert before.seals[3, "b01"] == first.seals[3, "b01"]
        assert before.published == {}
        assert draws.cells[3, "b01"] == 0
        assert (shard.read_bytes() if altered else shard.exists()) == (altered or False)
    shard.write_bytes(sealed)
    before = read_books("killed")
    draws.forget()
    finish("killed", draws)
    assert_finished("killed", before, draws)


@pytest.mark.thorough
def test_what_a_killed_process_left_before_the_reservation_is_swept(
    launch: Launcher, home: Path, tmp_path: Path
) -> None:
    """It has no release and no charge; its vault goes as soon as anything else is begun, unless it is held."""
    kill(launch, home, tmp_path, "after commit CREATE true_level_2")
    assert vault_path("killed").exists()
    with store() as con:
        assert read_ledger(con).accounts == {}
        with pytest.raises(UsageError):
            find_release(con, "killed")
    (home / "vault" / "killed.duckdb.tmp").mkdir()
    with held("killed"):
        sweep_orphans()
        assert vault_path("killed").exists()
    sweep_orphans()
    assert list((home / "vault").iterdir()) == []
    assert not (home / "shards" / "killed").exists()


def test_a_folder_that_a_run_has_claimed_is_not_swept(home: Path) -> None:
    """An empty folder of shards may belong to a run that is about to begin, whose id nobody else may be given."""
    with store() as con:
        claimed = claim_id(con, "claimed")
    sweep_orphans()
    assert (home / "shards" / claimed).is_dir()


# branches that are cut further ---------------------------------------------------------------------------------------

QUARTERED = [name for branch in BRANCHES for name in (branch, *(f"{branch}-{part:02d}" for part in range(2)))]


@pytest.mark.parametrize("only", [pytest.param("b01", marks=pytest.mark.thorough), "b01-01"])
def test_a_release_goes_on_with_its_branches_whatever_memory_there_is_now(
    only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """Branches that little memory has cut further stay so: the one that failed goes on, by its own or its parent's name."""
    draws.fail_at.update({(4, "b01-01"): 1})
    with monkeypatch.context() as little:
        little.setattr(tasks.tree.branches, "CELL_BYTES", default_memory() // cores() // 20)
        fault, before = make_failing(tmp_path, "quartered", draws)
    assert str(fault).startswith("b01-01: ")
    assert before.branches == QUARTERED
    assert {branch for level, branch in before.seals if level == 4} == {
        name for name in QUARTERED if "-" in name and name != "b01-01"
    }

    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2**30)  # nothing would be cut any more
    draws.forget()
    finish("quartered", draws, only="b02-00")
    assert not draws.cells
    finish("quartered", draws, only=only)
    assert_finished("quartered", before, draws, QUARTERED)


def test_what_the_parent_drew_and_never_sealed_is_removed_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """A branch that is cut after its next level was drawn and not sealed leaves nothing of that draw behind."""
    draws.fail_at.update({(4, branch): 1 for branch in BRANCHES})
    _, before = make_failing(tmp_path, "redrawn", draws)
    unsealed = noisy_path("redrawn", 4, "b01")
    unsealed.write_bytes(b"drawn, and never sealed")
    before = read_books("redrawn")
    monkeypatch.setattr(tasks.tree.branches, "CELL_BYTES", default_memory() // cores() // 20)
    draws.forget()
    finish("redrawn", draws)
    assert not unsealed.exists()
    assert_finished("redrawn", before, draws, QUARTERED)


def test_a_failed_release_goes_on_with_the_memory_that_its_spec_names_now(tmp_path: Path, draws: Draws) -> None:
    """The `run` section may be changed between failure and rerun, as on another machine; any other change is refused."""
    draws.fail_at.update({(4, "b01"): 1})
    make_failing(tmp_path, "moved", draws)
    before, spec = read_books("moved"), tmp_path / "small" / "spec.yaml"
    text = spec.read_text()
    spec.write_text(text.replace("epsilon: 40.0", "epsilon: 39.0", 1))
    with pytest.raises(SpecError, match="was edited"):
        finish("moved", draws)
    spec.write_text(text + "run: {max_memory: 1GB, workers: processes}\n")
    refresh_run_keys("moved")
    with store() as con:
        run = find_release(con, "moved").terms.run
    assert run == RunTerms("processes", 10**9)
    draws.forget()
    finish("moved", draws)
    assert_finished("moved", before, draws)

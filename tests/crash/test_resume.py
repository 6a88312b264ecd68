"""Measured once, charged once: what a failed or a killed release has sealed stays, and the rest is drawn, once."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import tasks.noise.measure
import tasks.noise.task
import tasks.optimize.task
import tasks.tree.branches
from flows.planning.plan import make_plan
from flows.run.driver import finish_release, make_release
from flows.run.ending import sweep_orphans
from flows.run.reservation import new_release, refresh_run_keys
from flows.run.runner import report_nothing
from flows.specification.file import load_spec
from storage.counts.shard_files import noisy_path
from storage.counts.vault import vault_path
from storage.database.connections import store
from storage.errors import StageFailed, StoreError
from storage.machine.locks import held
from storage.releases.register import claim_id, find_release
from storage.releases.terms import RunTerms
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tasks.work.capacity import cores, default_memory
from tests.support.draws import (
    BRANCH_CELLS,
    BRANCHES,
    CHUNK_CELLS,
    LEVELS,
    Draws,
    assert_finished,
    read_books,
    write_small,
)
from tests.support.laws import drawn_by


@pytest.fixture
def draws(monkeypatch):
    """Cut small releases into branches and chunks, and know what is drawn."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    monkeypatch.setattr(tasks.noise.measure, "CHUNK_CELLS", CHUNK_CELLS)
    monkeypatch.setattr(tasks.optimize.task, "CHUNK_CELLS", CHUNK_CELLS)
    draws = Draws()
    monkeypatch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(draws.sample)}))
    return draws


def finish(release_id, draws, only=None):
    """Finish a release on two threads. The store is kept open meanwhile, since opening it is most of the time."""
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release(release_id, draws.submit_to(executor), report_nothing, only=only)


def make_failing(folder, release_id, draws):
    """Make a release that fails, and return how it failed and what is known of it afterwards."""
    plan = make_plan(load_spec(write_small(folder / "small")))
    release = new_release(plan, release_id=release_id)
    with store(), ThreadPoolExecutor(2) as executor, pytest.raises(StageFailed) as failure:
        make_release(plan, release, draws.submit_to(executor), report_nothing)
    return failure.value, read_books(release_id)


def test_a_failed_release_goes_on_where_its_seals_end(tmp_path, draws):
    """A sampler that raises fails its own branch only, and finishing draws what was never sealed and nothing else."""
    draws.fail_at.update({(3, "b00"): 1, (4, "b02"): 2})
    fault, before = make_failing(tmp_path, "failed", draws)
    assert str(fault).startswith("b00: measure stopped: ValueError at ")
    assert str(fault).endswith(" Also failed: b02.")
    assert (before.state, before.reason) == ("failed", str(fault))
    assert before.published == {}
    assert vault_path("failed").exists()
    walked = {(level, "trunk") for level in range(3)} | {(level, branch) for level in (3, 4) for branch in BRANCHES}
    assert set(before.seals) == before.optimised == walked - {(3, "b00"), (4, "b00"), (4, "b02")}
    assert [before.events_of(level) for level in LEVELS] == [["drawing", "sealed"]] * 2 + [["drawing"]] * 2

    draws.forget()
    finish("failed", draws)
    assert_finished("failed", before, draws)
    once_more = read_books("failed")
    draws.forget()
    finish("failed", draws)
    assert draws.cells == {}
    assert read_books("failed") == once_more


def test_a_sealed_shard_that_was_altered_is_not_drawn_again(launch, home, tmp_path, draws):
    """A sealed shard that is altered or missing stops its branch with its name; once restored, the release goes on."""
    options = {"spec": str(write_small(tmp_path / "small")), "output": str(tmp_path / "out"), "release_id": "killed"}
    assert launch.run(home, "make", **options, kill_at="after commit noisy 3 b01").code == -signal.SIGKILL
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


def test_what_a_run_has_claimed_or_holds_is_not_swept(home):
    """An empty folder of shards may belong to a run that is about to begin, and a vault to one that has begun."""
    with store() as con:
        claimed, of_same_second = claim_id(con, "claimed"), claim_id(con, "claimed")
    vault_path("begun").parent.mkdir(exist_ok=True)
    vault_path("begun").touch()
    (home / "vault" / "begun.duckdb.tmp").mkdir()
    with held("begun"):
        sweep_orphans()
        assert vault_path("begun").exists()
    sweep_orphans()
    assert list((home / "vault").iterdir()) == []
    assert of_same_second != claimed
    assert all((home / "shards" / of).is_dir() for of in (claimed, of_same_second))


# branches that are cut further ---------------------------------------------------------------------------------------

QUARTERED = [name for branch in BRANCHES for name in (branch, *(f"{branch}-{part:02d}" for part in range(2)))]


@pytest.mark.parametrize("only", [pytest.param("b01", marks=pytest.mark.thorough), "b01-01"])
def test_a_release_goes_on_with_its_branches_whatever_memory_there_is_now(only, tmp_path, monkeypatch, draws):
    """Branches that little memory has cut further stay so: the one that failed goes on, by its own or its parent's name."""
    draws.fail_at.update({(4, "b01-01"): 1})
    with monkeypatch.context() as little:
        little.setattr(tasks.tree.branches, "CELL_BYTES", default_memory() // cores() // 20)
        fault, before = make_failing(tmp_path, "quartered", draws)
    assert str(fault).startswith("b01-01: ")
    assert before.branches == QUARTERED
    quarters = {name for name in QUARTERED if "-" in name and name != "b01-01"}
    assert {branch for level, branch in before.seals if level == 4} == quarters

    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2**30)  # nothing would be cut any more
    draws.forget()
    finish("quartered", draws, only="b02-00")
    assert not draws.cells
    finish("quartered", draws, only=only)
    assert_finished("quartered", before, draws, QUARTERED)


def test_what_the_parent_drew_and_never_sealed_is_removed_unread(tmp_path, monkeypatch, draws):
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


def test_a_failed_release_goes_on_with_the_memory_that_its_spec_names_now(tmp_path, draws):
    """The `run` section may be changed between failure and rerun, as on another machine."""
    draws.fail_at.update({(4, "b01"): 1})
    make_failing(tmp_path, "moved", draws)
    before, spec = read_books("moved"), tmp_path / "small" / "spec.yaml"
    text = spec.read_text()
    spec.write_text(text + "run: {max_memory: 1GB, workers: processes}\n")
    refresh_run_keys("moved")
    with store() as con:
        run = find_release(con, "moved").terms.run
    assert run == RunTerms("processes", 10**9)
    draws.forget()
    finish("moved", draws)
    assert_finished("moved", before, draws)

"""Measured once, charged once: what a failed or a killed release has sealed stays, and the rest is drawn, once."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

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
from tests.support.laws import drawn_by


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Cut small releases into branches and chunks, and know what is drawn."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    monkeypatch.setattr(tasks.noise.truth, "CHUNK_CELLS", CHUNK_CELLS)
    monkeypatch.setattr(tasks.optimize.task, "CHUNK_CELLS", CHUNK_CELLS)
    draws = Draws()
    monkeypatch.setitem(
        MECHANISMS,
        "inftda",
        drawn_by("inftda", {"opendp": Sampling(draws.sample)}),
    )
    return draws


# A process of its own that makes the release, and is killed at a moment: at a call of the sampler, or before or after
# a stage, whose result then reaches nobody. Those that are killed while they draw have the store open all the time.
CHILD = f"""
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
import tasks.noise.truth, tasks.optimize.task, tasks.tree.branches
from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Sampling
from flows.planning.plan import make_plan
from flows.walks.runner import report_nothing
from flows.spec.file import load_spec
from storage.database.connections import store
from tasks.laws.samplers import discrete_gaussian
from tests.support.draws import place_of
from tests.support.laws import drawn_by

tasks.tree.branches.BRANCH_CELLS = {BRANCH_CELLS}
tasks.noise.truth.CHUNK_CELLS = tasks.optimize.task.CHUNK_CELLS = {CHUNK_CELLS}
calls = count(1)

def now(moment):
    if moment == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

def sample(true_counts, scale):
    now(f"draw {{next(calls)}}")
    return discrete_gaussian(true_counts, scale)

def submit(stage, *arguments):
    place = " ".join([stage.name, *map(str, place_of(arguments))])
    def run():
        now(f"before {{place}}")
        result = stage.fn(*arguments)
        now(f"after {{place}}")
        return result
    return executor.submit(run)

MECHANISMS["inftda"] = drawn_by("inftda", {{"opendp": Sampling(sample)}})
plan = make_plan(load_spec(Path(sys.argv[1])))
with store() if "draw" in sys.argv[3] else nullcontext(), ThreadPoolExecutor(2) as executor:
    make_release(plan, new_release(plan, release_id=sys.argv[2]), submit, report_nothing)
"""
UNRESERVED = "before grow_tree ('origin', 'destination') (1, 0, 1, 0)"
UNSEALED = "after measure_branch 3 b01"
SEALED_ONLY = "before optimise_branch 3 b01"
PUBLISHED = "after publish"
MOMENTS = ["draw 1", "draw 5", "draw 20", UNSEALED, PUBLISHED]


class Killed(NamedTuple):
    """What a process that was killed left behind."""

    home: Path
    release_id: str


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Killed]:
    """Start a release per moment, wait until all have been killed, and return what they left behind."""
    left, children = {}, {}
    for number, moment in enumerate([UNRESERVED, SEALED_ONLY, *MOMENTS]):
        folder = tmp_path_factory.mktemp("killed") / "small"
        left[moment] = Killed(folder / "home", f"killed-{number}")
        children[moment] = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(write_small(folder)), left[moment].release_id, moment],
            env={**os.environ, "TRELLIS_HOME": str(left[moment].home)},
        )
    codes = {moment: child.wait(timeout=120) for moment, child in children.items()}
    assert codes == dict.fromkeys(codes, -signal.SIGKILL)
    return left


def finish(release_id: str, draws: Draws) -> None:
    """Finish a release on two threads. The store is kept open meanwhile, since opening it is most of the time."""
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release(release_id, draws.submit_to(executor), report_nothing)


def make_failing(folder: Path, release_id: str, draws: Draws) -> tuple[StageFailed, Books]:
    """Make a release that fails, and return how it failed and what is known of it afterwards."""
    plan = make_plan(load_spec(write_small(folder / "small")))
    release = new_release(plan, release_id=release_id)
    with store(), ThreadPoolExecutor(2) as executor, pytest.raises(StageFailed) as failure:
        make_release(plan, release, draws.submit_to(executor), report_nothing)
    return failure.value, read_books(release_id)


@pytest.mark.parametrize(
    "fail_at",
    [{(1, "trunk"): 1}, {(4, "b03"): 3}, {(3, "b00"): 1, (4, "b02"): 2}],
    ids=lambda fail_at: " and ".join(f"{level} {branch}" for level, branch in fail_at),
)
def test_a_failed_release_goes_on_where_its_seals_end(
    fail_at: dict[Place, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """A sampler that raises fails its own branch only, and finishing draws what was never sealed and nothing else."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
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


def test_a_release_that_fails_again_draws_no_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """However often a release fails, a level of a branch that is sealed is not drawn again."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
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


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_release_goes_on_where_its_seals_end(
    moment: str, killed: dict[str, Killed], monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """After SIGKILL what is sealed stays, what is not is removed unread and drawn, and each level is charged once."""
    home, release_id = killed[moment]
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    before = read_books(release_id)
    assert before.state == "running"
    assert (moment == PUBLISHED) == bool(before.published)
    if moment == UNSEALED:
        assert (3, "b01") in before.unsealed()
    for place in before.unsealed():
        noisy_path(release_id, *place).write_bytes(b"whoever reads this fails")
    finish(release_id, draws)
    assert_finished(release_id, before, draws)


def test_a_sealed_shard_that_was_altered_is_not_drawn_again(
    killed: dict[str, Killed], monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """A sealed shard that is altered or missing stops its branch with its name; once restored, the release goes on."""
    home, release_id = killed[SEALED_ONLY]
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    first = read_books(release_id)
    assert (3, "b01") in set(first.seals) - first.optimised
    shard = noisy_path(release_id, 3, "b01")
    sealed = shard.read_bytes()
    for altered, what in [(sealed[:-1] + b"?", "not what was sealed"), (None, "missing")]:
        shard.unlink()
        if altered:
            shard.write_bytes(altered)
        with pytest.raises(StoreError, match=f"b01: level_3_b01.noisy.parquet is {what}"):
            finish(release_id, draws)
        before = read_books(release_id)
        assert before.state == "failed"
        assert what in before.reason
        assert before.seals[3, "b01"] == first.seals[3, "b01"]
        assert before.published == {}
        assert draws.cells[3, "b01"] == 0
        assert (shard.read_bytes() if altered else shard.exists()) == (altered or False)
    shard.write_bytes(sealed)
    before = read_books(release_id)
    draws.forget()
    finish(release_id, draws)
    assert_finished(release_id, before, draws)


def test_a_release_killed_before_it_was_reserved_has_cost_nothing(
    killed: dict[str, Killed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before the reservation leaves no release and no charge, and the whole budget for the next."""
    home, release_id = killed[UNRESERVED]
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    assert vault_path(release_id).exists()
    with store() as con:
        assert read_ledger(con).accounts == {}
        with pytest.raises(UsageError):
            find_release(con, release_id)


def test_what_a_killed_process_left_before_the_reservation_is_swept(
    killed: dict[str, Killed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vault of a release that was never reserved goes as soon as anything else is begun; one that is held stays."""
    home, release_id = killed[UNRESERVED]
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    (home / "vault" / f"{release_id}.duckdb.tmp").mkdir()
    with held(release_id):
        sweep_orphans()
        assert vault_path(release_id).exists()
    sweep_orphans()
    assert list((home / "vault").iterdir()) == []
    assert not (home / "shards" / release_id).exists()


def test_a_folder_that_a_run_has_claimed_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder of shards may belong to a run that is about to begin, whose id nobody else may be given."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    with store() as con:
        claimed = claim_id(con, "claimed")
    sweep_orphans()
    assert (tmp_path / "home" / "shards" / claimed).is_dir()


# branches that are cut further ---------------------------------------------------------------------------------------

QUARTERED = [name for branch in BRANCHES for name in (branch, *(f"{branch}-{part:02d}" for part in range(2)))]


@pytest.mark.parametrize("only", ["b01", "b01-01"])
def test_a_release_goes_on_with_its_branches_whatever_memory_there_is_now(
    only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """Branches that little memory has cut further stay so: the one that failed goes on, by its own or its parent's name."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "CELL_BYTES", default_memory() // cores() // 20)
    draws.fail_at.update({(4, "b01-01"): 1})
    fault, before = make_failing(tmp_path, "quartered", draws)
    assert str(fault).startswith("b01-01: ")
    assert before.branches == QUARTERED
    assert {branch for level, branch in before.seals if level == 4} == {
        name for name in QUARTERED if "-" in name and name != "b01-01"
    }

    monkeypatch.undo()
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(
        MECHANISMS,
        "inftda",
        drawn_by("inftda", {"opendp": Sampling(draws.sample)}),
    )
    draws.forget()
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release("quartered", draws.submit_to(executor), report_nothing, only="b02-00")
        assert not draws.cells
        finish_release("quartered", draws.submit_to(executor), report_nothing, only=only)
    assert_finished("quartered", before, draws, QUARTERED)


def test_what_the_parent_drew_and_never_sealed_is_removed_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """A branch that is cut after its next level was drawn and not sealed leaves nothing of that draw behind."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
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


def test_a_failed_release_goes_on_with_the_memory_that_its_spec_names_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: Draws
) -> None:
    """The `run` section may be changed between failure and rerun, as on another machine; any other change is refused."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
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

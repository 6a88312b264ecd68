"""Releases that are interrupted, or begun twice: nothing confidential is left behind, and nothing paid for is lost."""

import _thread
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Timer
from typing import Any

import numpy as np
import pytest

from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.planning.budget import reserve
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from flows.synthetic import write_ready
from flows.walks.runner import report_nothing, submit_to
from storage.counts.vault import vault_path
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.ledger.events import advance, charges_of
from storage.machine.home import home
from storage.releases.register import add_release, find_release, list_releases, state_of
from storage.releases.seals import list_seals
from tasks.ingest.task import ingest
from tasks.publish.task import publish
from tasks.synthesize.country import draw_country
from tasks.tree.task import grow_tree
from tasks.verify.folder import verify
from tests.support.draws import place_of


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of a small made-up country in a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home [of] * tests"))
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(1))
    return make_plan(load_spec(write_ready(country, tmp_path, "synthetic-commuting", "synthetic-country", epsilon=4.0)))


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    """Let SIGINT interrupt also where the tests run in a shell's background, in which it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_in(stage: Any, executor: ThreadPoolExecutor) -> Callable[..., Future[Any]]:
    """Return a `submit` under which Ctrl-C is pressed while a stage runs, which ends half a second later."""
    pressed = Event()

    def press() -> None:
        _thread.interrupt_main()
        pressed.set()

    def slowly(*arguments: Any) -> Any:
        assert pressed.wait(60)
        time.sleep(0.5)
        return stage.fn(*arguments)

    def submit(asked: Any, *arguments: Any) -> Future[Any]:
        if asked is not stage:
            return executor.submit(asked.fn, *arguments)
        Timer(0.2, press).start()
        return executor.submit(slowly, *arguments)

    return submit


def test_ctrl_c_while_ingesting_leaves_nothing_behind(plan: Plan) -> None:
    """The stage that still runs is waited for, so that it cannot write a vault that nobody knows of."""
    release = new_release(plan)
    with ThreadPoolExecutor(2) as executor, pytest.raises(KeyboardInterrupt):
        make_release(plan, release, interrupted_in(ingest, executor), report_nothing)
    left = [path for folder in ("vault", "shards") for path in (home() / folder).iterdir()]
    assert left == []
    with store() as con:
        assert list_releases(con) == []
        assert charges_of(con, release.id) == {}


def test_ctrl_c_while_publishing_keeps_what_is_sealed(plan: Plan) -> None:
    """The release is recorded as failed, and finishing it publishes the same counts without another draw."""
    release = new_release(plan)
    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(KeyboardInterrupt):
            make_release(plan, release, interrupted_in(publish, executor), report_nothing)
        with store() as con:
            seals = list_seals(con, release.id)
            assert (state_of(con, release.id), find_release(con, release.id).reason) == (
                "failed",
                "It was interrupted.",
            )
        finish_release(release.id, submit_to(executor), report_nothing)
    with store() as con:
        assert list_seals(con, release.id) == seals
        assert state_of(con, release.id) == "published"
    assert verify(Path(release.folder)) == []


def test_a_release_is_made_once(plan: Plan) -> None:
    """Making one again under its id is refused, and takes nothing from the first, published or not."""
    release = new_release(plan)
    with ThreadPoolExecutor(2) as executor:
        make_release(plan, release, submit_to(executor), report_nothing)
        before = sorted((home() / "shards" / release.id).iterdir())
        with pytest.raises(StoreError, match="makes each release only once"):
            make_release(plan, release, submit_to(executor), report_nothing)
    assert len(before) > 2 * len(plan.levels)
    assert sorted((home() / "shards" / release.id).iterdir()) == before
    assert verify(Path(release.folder)) == []


def test_a_void_charge_is_never_drawn(plan: Plan) -> None:
    """A level whose charge was given back is not measured, whoever asks for it."""
    release = new_release(plan)
    drawn: list[int] = []

    def submit(stage: Any, *arguments: Any) -> Future[Any]:
        if stage.name == "measure_branch":
            drawn.append(place_of(arguments)[0])
        return executor.submit(stage.fn, *arguments)

    with ThreadPoolExecutor(2) as executor:
        executor.submit(ingest.fn, release.id, plan.source, plan.units, plan.promised, 2**30).result()
        executor.submit(grow_tree.fn, release.id, ["origin", "destination"], list(plan.tree.steps), 2**30).result()
        with store() as con, transaction(con):
            reserve(con, plan.reservation(release.id))
            add_release(con, release)
            for level in range(2, len(plan.levels)):
                advance(con, release.id, level, "void")
        with pytest.raises(StoreError, match="has no charge for level"):
            finish_release(release.id, submit, report_nothing)
    assert drawn == [0, 1]
    assert vault_path(release.id).exists()

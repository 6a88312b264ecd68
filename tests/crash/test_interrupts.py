"""Releases that are interrupted, or have void charges: nothing confidential is left behind, and nothing paid for is lost."""

import _thread
import time
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from flows.execution.reservation import new_release
from flows.planning.budget import reserve
from flows.planning.plan import Plan
from storage.counts.vault import vault_path
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.ledger.events import advance, charges_of
from storage.machine.home import home
from storage.releases.register import add_release, find_release, list_releases, state_of
from storage.releases.seals import list_seals
from tasks.ingest.task import ingest
from tasks.publish.task import publish
from tasks.tree.task import grow_tree
from tasks.verify.folder import verify
from tests.support.draws import place_of
from tests.support.runs import Around, finish, make

pytestmark = pytest.mark.usefixtures("_ctrl_c_interrupts")


def interrupted_in(stage: Any) -> Around:
    """Press Ctrl-C while a stage runs, which ends half a second later."""
    pressed = Event()

    def press() -> None:
        _thread.interrupt_main()
        pressed.set()

    def around(asked: Any, arguments: tuple[Any, ...]) -> Any:
        if asked is stage:
            Timer(0.2, press).start()
            assert pressed.wait(60)
            time.sleep(0.5)
        return asked.fn(*arguments)

    return around


def test_ctrl_c_while_ingesting_leaves_nothing_behind(plan: Plan) -> None:
    """The stage that still runs is waited for, so that it cannot write a vault that nobody knows of."""
    release = new_release(plan)
    with pytest.raises(KeyboardInterrupt):
        make(plan, release, interrupted_in(ingest))
    assert [path for folder in ("vault", "shards") for path in (home() / folder).iterdir()] == []
    with store() as con:
        assert list_releases(con) == []
        assert charges_of(con, release.id) == {}


@pytest.mark.thorough
def test_ctrl_c_while_publishing_keeps_what_is_sealed(plan: Plan) -> None:
    """The release is recorded as failed, and finishing it publishes the same counts without another draw."""
    release = new_release(plan)
    with pytest.raises(KeyboardInterrupt):
        make(plan, release, interrupted_in(publish))
    with store() as con:
        seals, failed = list_seals(con, release.id), find_release(con, release.id)
    assert (failed.state, failed.reason) == ("failed", "It was interrupted.")
    finish(release.id)
    with store() as con:
        assert list_seals(con, release.id) == seals
        assert state_of(con, release.id) == "published"
    assert verify(Path(release.folder)) == []


def test_a_void_charge_is_never_drawn(plan: Plan) -> None:
    """A level whose charge was given back is not measured, whoever asks for it."""
    release = new_release(plan)
    drawn: list[int] = []

    def around(stage: Any, arguments: tuple[Any, ...]) -> Any:
        if stage.name == "measure_branch":
            drawn.append(place_of(arguments)[0])
        return stage.fn(*arguments)

    ingest.fn(release.id, plan.source, plan.units, plan.promised, 2**30)
    grow_tree.fn(release.id, ["origin", "destination"], list(plan.tree.steps), 2**30)
    with store() as con, transaction(con):
        reserve(con, plan.reservation(release.id))
        add_release(con, release)
        for level in range(2, len(plan.levels)):
            advance(con, release.id, level, "void")
    with pytest.raises(StoreError, match="has no charge for level"):
        finish(release.id, around)
    assert drawn == [0, 1]
    assert vault_path(release.id).exists()

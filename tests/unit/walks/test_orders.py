"""Orders: whatever is done elsewhere is done from the order alone, which travels as text."""

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import flows.trials.in_memory
import tasks.tree.branches
from flows.mechanisms import MECHANISMS, mechanism_of
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from flows.walks.orders import order_of, stage_of
from flows.walks.steps import Cut, Cuts, Step, Up
from flows.walks.take import take
from flows.walks.walk import walk
from storage.record import Record
from storage.releases.seals import TRUNK
from tasks.order import Order
from tasks.stage import Outcome, running_elsewhere, width
from tasks.tree.job import Job
from tests.support.passes import counts_of, noise_of
from tests.support.steps import beginnings

BINARY = [(a, b) for a in "12" for b in "12"]
SIGMAS = [0.0, 0.5, 0.5, 0.5, 0.5]
WITH_LEVELS = [of.name for of in MECHANISMS.values() if of.cells in {"survivors", "universe"} and not of.is_of_sizes]


@pytest.fixture
def table(universe_of) -> SeenTable:
    """Return a table of sixteen leaves of two axes."""
    universe = universe_of([BINARY, BINARY], [0, 1, 0, 1])
    areas = [np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)]
    return seen_table(universe.tree, areas, np.arange(1, 17))


@pytest.mark.parametrize("name", WITH_LEVELS)
def test_an_order_is_enough_to_take_its_step(name: str, table: SeenTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken from the text of their orders alone, in branches that are cut again, all steps come to the same release."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 1)
    monkeypatch.setattr(flows.trials.in_memory, "walk", partial(walk, cuts=Cuts(2)))
    mechanism, texts = MECHANISMS[name], list[str]()

    def take_from_text(step: Step, job: Job, *others: Any) -> Any:
        order = order_of(step, job.record)
        if order is None:
            return take(step, job, *others)
        texts.append(order.to_json())
        again = Order.from_json(texts[-1])
        assert again == order
        assert replace(mechanism_of(again.record.release), measure=mechanism.measure) == mechanism
        return take(step, replace(job, record=again.record), *others)

    usual = try_scales(table, mechanism, SIGMAS, noise_of(1))
    monkeypatch.setattr(flows.trials.in_memory, "take", take_from_text)
    from_orders = try_scales(table, mechanism, SIGMAS, noise_of(1))
    assert [counts_of(of) for of in from_orders.released] == [counts_of(of) for of in usual.released]
    if mechanism.cells == "survivors":
        assert {branch.count("-") for branch in from_orders.job.record.branches} > {0}
    assert texts


@settings(max_examples=50)
@given(beginnings())
def test_orders_hold_public_plain_values(release):
    """Whatever step comes next of whatever mechanism, its order is JSON, and has no path, no spec and no charge."""
    secrets = {"spec": "the text of a spec", "folder": "/a/folder", "reason": "a reason"}
    files = replace(release.record.release.terms.files, spec="/a/spec")
    terms = replace(release.record.release.terms, files=files, published_spec={"name": "as published"})
    release.record = replace(release.record, release=replace(release.record.release, terms=terms, **secrets))
    while True:
        for step in release.next():
            order = None if isinstance(step, Cut) else order_of(step, release.record)
            if order:
                text = order.to_json()
                assert Order.from_json(text) == order
                assert json.loads(text)["stage"] == stage_of(order).name
                hidden = [*secrets.values(), "/a/spec", "as published", '"charges"']
                assert [word for word in hidden if word in text] == []
        if not release.turn():
            break


@dataclass
class Noted:
    """Takes orders of branches, and does nothing but note them."""

    width: int = 7
    ran: list[Order] = field(default_factory=list)

    def takes(self, order: Order) -> bool:
        """Return whether it is of a branch."""
        return order.branch != TRUNK

    def run(self, order: Order) -> Outcome:
        """Note an order."""
        self.ran.append(order)
        return Outcome("", order.branch, 0.0)


def test_orders_of_branches_go_elsewhere(table: SeenTable, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken elsewhere is run there alone, and all else here; so many orders at once as there is room for."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 1)
    monkeypatch.setattr(flows.trials.in_memory, "walk", partial(walk, cuts=Cuts(2)))
    record = try_scales(table, MECHANISMS["inftda_reconciled"], SIGMAS, noise_of(1)).job.record
    here = width()
    with running_elsewhere(noted := Noted()):
        assert width() == noted.width
        at_home, away = (stage_of(order).fn(order, lambda *_: "here") for order in _ups(record))
    assert (at_home.value, away.value) == ("here", "b00")
    assert [order.branch for order in noted.ran] == ["b00"]
    assert width() == here


def _ups(record: Record) -> list[Order]:
    """Return the orders to estimate the trunk and a branch."""
    orders = [order_of(Up(branch), record) for branch in (TRUNK, "b00")]
    return [order for order in orders if order]

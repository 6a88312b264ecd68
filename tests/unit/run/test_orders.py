"""Orders, from which alone all is done elsewhere, and levels of which every cell above holds one: they change nothing else."""

import json
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flows.trials.in_memory
import tasks.steps
import tasks.tree.branches
from flows.run.steps import Cuts
from flows.run.walk import walk
from flows.trials.in_memory import public_table
from storage.releases.shards import TRUNK
from tasks.mechanisms import MECHANISMS, mechanism_of
from tasks.steps import STAGES, may_travel, order_of, take
from tasks.work.order import Order, Step
from tasks.work.stage import Outcome, running_remotely, width
from tests.support.passes import counts_of, noise_of
from tests.support.scales import try_scales
from tests.support.steps import beginnings
from tests.support.universe import universe_of

BINARY = [(a, b) for a in "12" for b in "12"]
SIGMAS = [0.0, 0.5, 0.5, 0.5, 0.5]
WITH_LEVELS = [of.name for of in MECHANISMS.values() if of.cells in {"survivors", "universe"} and not of.counts_groups]


@pytest.fixture
def table(universe_of):
    """Return a table of sixteen leaves of two axes."""
    universe = universe_of([BINARY, BINARY], [0, 1, 0, 1])
    areas = [np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)]
    return public_table(universe.tree, areas, np.arange(1, 17))


@pytest.mark.parametrize("name", WITH_LEVELS)
def test_an_order_is_enough_to_take_its_step(name, table, monkeypatch):
    """Taken from the text of their orders alone, in branches that are cut again, all steps come to the same release."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 1)
    monkeypatch.setattr(flows.trials.in_memory, "walk", partial(walk, cuts=Cuts(2)))
    mechanism, texts = MECHANISMS[name], list[str]()

    def take_from_text(step, job, *others):
        if not may_travel(step.kind):
            return take(step, job, *others)
        order = order_of(step, job.record)
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
            if step.kind != "cut" and may_travel(step.kind):
                order = order_of(step, release.record)
                text = order.to_json()
                assert Order.from_json(text) == order
                assert json.loads(text)["step"]["kind"] == STAGES[step.kind].name
                hidden = [*secrets.values(), "/a/spec", "as published", '"charges"']
                assert [word for word in hidden if word in text] == []
        if not release.turn():
            break


class Elsewhere(NamedTuple):
    """Takes orders of branches alone, and notes them."""

    taken: list[str]
    width: int = 7
    memory: None = None
    branches: None = None

    def takes(self, order):
        """Return whether an order is one of a branch."""
        return order.branch != TRUNK

    def run(self, order):
        """Note the branch of an order."""
        self.taken.append(order.branch)
        return Outcome("", order.branch, 0.0)


def test_orders_of_branches_go_elsewhere(table, tmp_path, monkeypatch):
    """What is taken elsewhere is run there alone, and all else here; so many orders at once as there is room for."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 1)
    monkeypatch.setattr(flows.trials.in_memory, "walk", partial(walk, cuts=Cuts(2)))
    record = try_scales(table, MECHANISMS["inftda_reconciled"], SIGMAS, noise_of(1)).job.record
    here, elsewhere = width(), Elsewhere([])
    with running_remotely(elsewhere):
        assert width() == 7
        monkeypatch.setattr(tasks.steps, "carry_out", lambda *_: "here")
        orders = [order_of(Step("estimate", 0, branch), record) for branch in (TRUNK, "b00")]
        assert [STAGES["estimate"].fn(order).value for order in orders] == ["here", "b00"]
    assert elsewhere.taken == ["b00"]
    assert width() == here


def only_child(path, at):
    """Return a path with a level more, at which its area is the only one in the area above it."""
    return (*path[:at], "only", *path[at:])


@st.composite
def pairs(draw, universes):
    """Draw a universe in which no level repeats another, the same with levels that do, and the numbers of these."""
    plain = draw(universes.filter(lambda of: all(of.tree.same_as(level) is None for level in range(of.tree.depth + 1))))
    paths, steps = [list(of_axis) for of_axis in plain.paths], list(plain.tree.steps)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(steps)))  # the new level comes after this one
        axis = draw(st.integers(0, len(paths) - 1))
        own = steps[:place].count(axis)
        paths[axis] = [only_child(path, own) for path in paths[axis]]
        steps.insert(place, axis)
    deep = universe_of(paths, steps)
    return plain, deep, [level for level in range(deep.tree.depth + 1) if deep.tree.same_as(level) is not None]


def table_of(universe, counts):
    """Return a table over the leaves of a universe, in the order of their paths."""
    there = [(leaf, count) for leaf, count in zip(universe.leaves(), counts, strict=True) if count]
    areas = [universe.areas(leaf) for leaf, _ in there]
    columns = [np.array([of[axis] for of in areas], dtype=np.int64) for axis in range(len(universe.paths))]
    return public_table(universe.tree, columns, np.array([count for _, count in there], dtype=np.int64))


@pytest.mark.parametrize(
    "mechanism",
    ["inftda_reconciled", "inftda_shrunk"]
    + [pytest.param(name, marks=pytest.mark.thorough) for name in ("inftda", "inftda_lenient", "tda_l2")],
)
@settings(max_examples=20)
@given(st.data())
def test_nothing_else_changes(universes, mechanism, data):
    """The same noise gives the same counts with repeated levels and without; these have the counts of the level above."""
    plain, deep, repeated = data.draw(pairs(universes))
    counts = data.draw(st.lists(st.integers(0, 9), min_size=len(plain.leaves()), max_size=len(plain.leaves())))
    scale, seed = data.draw(st.sampled_from([0.7, 4.0])), data.draw(st.integers(0, 99))
    exact = data.draw(st.booleans())
    own = [level for level in range(deep.tree.depth + 1) if level not in repeated]
    assert len(own) == plain.tree.depth + 1
    scales = [0.0 if exact and not level else scale for level in range(plain.tree.depth + 1)]
    of_level = dict(zip(own, scales, strict=True))
    recipe, asked_plain, asked_deep = MECHANISMS[mechanism], list[int](), list[int]()
    without = try_scales(table_of(plain, counts), recipe, scales, noise_of(seed, asked_plain)).released
    deep_scales = [of_level.get(level) for level in range(deep.tree.depth + 1)]
    with_them = try_scales(table_of(deep, counts), recipe, deep_scales, noise_of(seed, asked_deep)).released
    if without[0].counts[0]:  # a root that is released as 0 has no cell that could repeat it, so nothing below is drawn
        assert asked_deep == asked_plain
    for level, frontier in zip(own, without, strict=True):
        assert with_them[level].counts.tolist() == frontier.counts.tolist()
    for level in repeated:
        above = with_them[level - 1]
        kept = above.counts > 0 if level == 1 else slice(None)
        assert with_them[level].counts.tolist() == above.counts[kept].tolist()


def test_which_levels_repeat_is_a_matter_of_the_codebook(universe_of):
    """One area at the top, one area in each at the bottom, and several levels in a row; the first of them is named."""
    # Codes that come from the records may not decide what is measured: what no codebook lists repeats nothing.
    universe = universe_of([[("X", "a", "1", "1"), ("X", "b", "1", "1")], [("Y",)]], [0, 1, 0, 0, 0])
    assert [universe.tree.same_as(level) for level in range(6)] == [None, 0, 0, None, 3, 3]
    tree = universe_of([[("X", "a"), ("X", "b")]], [0, 0]).tree
    tree = replace(tree, axes=(replace(tree.axes[0], is_listed=False),))
    assert [tree.same_as(level) for level in range(3)] == [None, None, None]

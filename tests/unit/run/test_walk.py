"""The loop: it marks before it draws, records before it goes on, lets no failing branch stop the others, and works by orders from which alone all is done elsewhere."""

import json
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flows.run.walk
import flows.trials.in_memory
import tasks.steps
import tasks.tree.branches
from flows.run.steps import Cuts, next_steps
from flows.run.walk import walk
from flows.trials.in_memory import public_table
from storage.errors import Interrupted, StageFailed, StoreError, WorkerLost
from storage.releases.shards import TRUNK, Branch, Shard
from tasks.mechanisms import MECHANISMS, mechanism_of
from tasks.steps import STAGES, may_travel, order_of, take
from tasks.work.order import Order, Step
from tasks.work.stage import Outcome, running_remotely, width
from tests.support.passes import counts_of, noise_of
from tests.support.scales import try_scales
from tests.support.steps import Followed, beginnings, new_record
from tests.support.universe import universe_of


class Kept:
    """Keeps the record of a release that is followed, and notes what becomes of it.

    Attributes:
        of: the release.
        begun: the steps that were begun, in their order.
        told: what was reported: level, cells measured, cells known.
        faults: what steps raise.
    """

    def __init__(self, of, faults=lambda _: None):
        self.of, self.faults = of, faults
        self.begun = []
        self.told = []
        self.turns = Counter()  # that were opened
        self.given_up = Counter()
        self._prepared = None
        self.lost = Counter()
        self._tried = set()

    @property
    def job(self):
        """The work on the release."""
        return SimpleNamespace(record=self.of.record)

    def prepare(self, step):
        """Mark the charge of a level."""
        assert self._prepared is None
        self._prepared = step
        place = step.level, step.branch
        assert self.turns[place] == self.given_up[place]
        self.turns[place] += 1
        charge = self.of.record.charges.get(step.level)
        if charge and charge.state == "reserved":
            self.of.record = self.of.record.with_drawing(step.level)

    def check(self, step, made):
        """Nothing: it is what was promised."""

    def give_up(self, step):
        """Give a turn up, which is open."""
        place = step.level, step.branch
        self.given_up[place] += 1
        assert self.given_up[place] == self.turns[place]
        assert place not in self.of.record.shards["noisy"]

    def cut(self, branches):
        """Nothing: `cut_branch` has recorded them."""

    def commit(self, shards):
        """Record what was made, which was not there."""
        record = self.of.record
        assert not {*record.all_shards} & {*shards}
        self.of.record = record.with_shards(shards)

    def start(self, step):
        """Take a step at once, and never again; it is the one that was prepared, if it draws anything."""
        assert step in next_steps(self.of.mechanism, self.of.record, None, self.of.cuts)
        assert self.begun.count(step) == self.lost[step]
        self.begun.append(step)
        if step.kind == "measure":
            assert self._prepared == step
            self._prepared = None
            charge = self.of.record.charges.get(step.level)
            assert charge.state == "drawing" if charge else self.of.record.release.levels[step.level].is_invariant
        done = Future()
        fault = self.faults(step)
        self.lost[step] += isinstance(fault, WorkerLost)
        if fault:
            done.set_exception(fault)
        else:
            done.set_result(Outcome(step.branch, self.of.made_by(step), 0.0))
        return done

    def cut_branch(self, _, shard, *_sizes):
        """Cut a branch at random, once at each of its levels."""
        assert (shard.level, shard.branch) not in self._tried
        self._tried.add((shard.level, shard.branch))
        self.of.cut(Step("cut", *shard.place))
        return [self.of.record.branches[name] for name in self.of.record.pieces(shard.branch)]

    def walk(self, only=None):
        """Walk to the end and return the branches that are missing."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flows.run.walk, "cut_branch", self.cut_branch)
            told = self.told
            _, missing = walk(self, self.of.mechanism, self.start, lambda *said: told.append(said), only, self.of.cuts)
        return missing


@pytest.fixture
def make_followed():
    """Return the maker of a release of two levels whose trunk has been cut into two branches after level 1."""

    def make():
        mechanism = MECHANISMS["inftda"]
        record = new_record(mechanism, 2).with_drawing(0).with_drawing(1)
        record = record.with_shards([Shard("noisy", level, TRUNK, "", 1 + level) for level in (0, 1)])
        record = record.with_shards([Shard("counts", 0, TRUNK, "", 1, 2), Shard("counts", 1, TRUNK, "", 2, 9)])
        branches = {"b00": Branch("b00", TRUNK, 1, 0, 1, {}), "b01": Branch("b01", TRUNK, 1, 1, 2, {})}
        return Followed(mechanism, replace(record, branches=branches), Random(1))  # noqa: S311 (of a test)

    return make


@settings(max_examples=100)
@given(beginnings())
def test_a_walk_marks_before_it_draws_and_ends(release):
    """Each charge is marked when its first draw begins, no step is taken twice, and in the end all is released."""
    kept = Kept(release)
    assert kept.walk() == []
    assert release.is_released()
    assert {charge.state for charge in release.record.charges.values()} == {"sealed"}
    finest = [(measured, known) for level, measured, known in kept.told if level == release.record.finest]
    assert finest == sorted(finest)
    assert finest[-1] == release.record.cells_of(release.record.finest)
    again = Kept(release)
    assert again.walk() == []
    assert again.begun == []


@settings(max_examples=100)
@given(beginnings())
def test_a_branch_that_fails_does_not_stop_the_others(release):
    """What can be made without it is made, the failure names the branch, and another walk makes the rest alone."""
    failing = []

    def fault(step):
        if release.random.random() < 0.1:
            failing.append(step)
            return StoreError("The disk is full.", hint="Free some space.")
        return None

    kept, raised = Kept(release, fault), None
    try:
        assert kept.walk() == []
    except StoreError as first:
        raised = first
    first_of, *others = sorted(step.branch for step in failing) or [""]
    assert (raised is not None) == bool(failing)
    if raised:
        also = f" Also failed: {', '.join(others)}." if others else ""
        assert (str(raised), raised.hint) == (f"{first_of}: The disk is full.{also}", "Free some space.")
    left = next_steps(release.mechanism, release.record, None, release.cuts)
    assert {step for step in left if step.kind != "cut"} == set(failing)
    again = Kept(release)
    assert again.walk() == []
    assert release.is_released()
    made = [step for step in kept.begun if step not in failing]
    assert not set(made) & set(again.begun)


def test_a_request_to_stop_comes_first_and_no_text_of_a_stranger_is_told(make_followed):
    """Of several failures a request to stop is raised; of an error that may quote the data only its kind is shown."""
    for fault, raised, says in (
        (ValueError("17 people"), StageFailed, "^b00: ValueError. Also failed: b01.$"),
        (Interrupted("Stopped."), Interrupted, "Stopped"),
    ):
        faults = {"b00": ValueError("17 people"), "b01": fault}

        def of_branch(step, faults=faults):
            return faults.get(step.branch)

        kept = Kept(make_followed(), of_branch)
        with pytest.raises(raised, match=says):
            kept.walk()
        assert [step for step in kept.begun if step.branch != TRUNK] == [Step("measure", 2, name) for name in faults]


@settings(max_examples=100)
@given(beginnings())
def test_a_step_whose_worker_is_lost_begins_again(release):
    """Whatever workers are lost, all is released; each turn but the last of a place is given up before the next one opens."""

    def fault(step):
        return WorkerLost("Gone.") if kept.lost[step] < 2 and release.random.random() < 0.3 else None

    kept = Kept(release, fault)
    assert kept.walk() == []
    assert release.is_released()
    drawn = {step: lost for step, lost in kept.lost.items() if step.kind == "measure"}
    assert kept.given_up == {(step.level, step.branch): lost for step, lost in drawn.items() if lost}
    assert kept.turns == kept.given_up + Counter(dict.fromkeys(release.record.shards["noisy"], 1))


def test_a_step_that_loses_worker_after_worker_fails(make_followed):
    """After its third loss a step fails, with its turns given up, and the other branches are finished."""
    step = Step("measure", 2, "b00")
    kept = Kept(make_followed(), lambda of: WorkerLost("Gone.") if of == step else None)
    with pytest.raises(StoreError, match=r"^b00: 3 workers were lost, one after the other\.$"):
        kept.walk()
    assert (kept.given_up[2, "b00"], kept.turns[2, "b00"]) == (3, 3)
    assert (2, "b01") in kept.of.record.shards["counts"]


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

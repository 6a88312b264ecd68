"""The loop: it marks before it draws, records before it goes on, and lets no failing branch stop the others."""

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings

import flows.run.walk
from flows.run.steps import next_steps
from flows.run.walk import walk
from storage.errors import Interrupted, StageFailed, StoreError, WorkerLost
from storage.releases.shards import TRUNK, Branch, Shard
from tasks.mechanisms import MECHANISMS
from tasks.work.order import Step
from tasks.work.stage import Outcome
from tests.support.steps import Followed, beginnings, new_record


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

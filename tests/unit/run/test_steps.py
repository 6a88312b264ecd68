"""Which steps come next: for random records, reached by random steps with crashes and cuts, of every kind of mechanism."""

import pickle
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.run.steps import next_steps
from storage.errors import StoreError
from storage.releases.shards import TRUNK, Shard
from tasks.settle.task import Calibrate
from tasks.sizes.estimators import Sizes
from tasks.unbiased.task import Unbiased
from tests.support.steps import beginnings, line_of

MOST_TURNS = 5000  # of a release of at most six levels, whose branches are slices of six nodes at most
CRASHES = 3

FINISHING = {"estimate", "settle", "gather", "fit", "share", "sum", "calibrate"}


def followed(of):
    """Yield a release at every turn of its way to the end, through steps that fail and crashes, and once more at the end."""
    crashes = 0
    for _ in range(MOST_TURNS):
        yield of
        is_over = not of.turn(failing=0.1 if crashes < CRASHES else 0.0)
        if is_over and crashes >= CRASHES:
            yield of
            return
        if crashes < CRASHES and (is_over or of.random.random() < 0.05):
            crashes += 1
            of.crash()
    raise AssertionError("The steps do not end.")


def ready(record, level, branch):
    """Return whether the nodes are known whose children are the cells of a level of a branch, as far as they are needed."""
    if level == 0:
        return True
    begins = branch != TRUNK and record.branches[branch].cut_level == level - 1
    above = (level - 1, record.branches[branch].parent if begins else branch)
    return above in record.shards["counts"] or record.release.levels[level - 1].is_summed


def only_what_is_charged_is_measured(of):
    """Whatever is measured is exact by the spec, or has a charge that is reserved or being drawn; others raise an error."""
    for step in of.next():
        if step.kind != "measure":
            continue
        if of.record.release.parts[step.level].is_invariant:
            assert step.level not in of.record.charges
            continue
        charge = of.record.charges[step.level]
        assert charge.state in {"reserved", "drawing"}
        others = {level: of_other for level, of_other in of.record.charges.items() if level != step.level}
        wrong = [{step.level: replace(charge, state=of)} for of in ("void", "sealed", "released", "unheard of")]
        for own in [*wrong, {}]:
            with pytest.raises(StoreError, match=f"no charge for level {step.level} of one"):
                next_steps(of.mechanism, replace(of.record, charges=others | own), None, of.cuts)


def nothing_is_measured_twice(of):
    """No level of a branch is measured that is sealed, there or as a part of another branch, nor one that is summed up."""
    sealed = list(of.record.shards["noisy"])
    for step in of.next():
        if step.kind == "measure":
            is_view = step.level > of.record.finest
            assert step.branch == TRUNK if is_view else step.level in of.record.levels_of(step.branch)
            assert not of.record.release.parts[step.level].is_summed
            line, there = line_of(of.record, step.branch), [name for level, name in sealed if level == step.level]
            assert not [name for name in there if name in line or step.branch in line_of(of.record, name)]
        if step.kind == "cut":  # what its parts will measure is not measured yet
            assert not [level for level, name in sealed if name == step.branch and level > step.level]


def nothing_is_measured_after_the_finish_has_begun(of):
    """Once anything is estimated, settled or summed, nothing is measured, repaired or cut: all of it is there."""
    summed = [level for level, _ in of.record.shards["counts"] if of.record.release.parts[level].is_summed]
    finishing = [step for step in of.next() if step.kind in FINISHING]
    made = any(of.record.shards[kind] for kind in ("estimates", "settled", "calibrated"))
    if finishing or made or summed:
        assert finishing == of.next()
        measured = [level.level for level in of.record.release.parts if not level.is_summed]
        places = {(level, name) for level in measured for name in of.record.branches_of(level)}
        assert places == set(of.record.shards["noisy"])
        if isinstance(of.mechanism.finish, Unbiased | Sizes):  # leaves are settled first, and all levels are their sums
            places = {(of.record.finest, TRUNK)}
        levels = {place for place in places if place[0] <= of.record.finest}
        assert (places if not isinstance(of.mechanism.finish, Calibrate) else levels) <= set(of.record.shards["counts"])


def nothing_is_measured_again_once_a_finish_has_begun(of):
    """Where anything is estimated or settled, nothing is drawn, even if the store has lost its seals."""
    for made in ("estimates", "settled", "calibrated"):
        begun = {made: {(0, TRUNK): Shard(made, 0, TRUNK, "")}}
        steps = next_steps(of.mechanism, replace(of.record, shards={**of.record.shards, **begun}), None, of.cuts)
        assert not [step for step in steps if step.kind == "measure"]


def no_step_comes_before_what_it_reads(of):
    """Steps read what is recorded already, make what is not, and no two of them work on one branch at a time."""
    record, steps = of.record, of.next()
    assert len({step.branch for step in steps}) == len(steps)
    assert {step.branch for step in of.running} <= {step.branch for step in steps}
    assert [step for step in of.running if step not in steps] == []
    assert [step.branch for step in steps] == [name for name in record.all_branches if name in line_up(steps)]
    for step in steps:
        level, branch = step.level, step.branch
        match step.kind:
            case "measure":
                assert level > record.finest or of.mechanism.cells != "survivors" or ready(record, level, branch)
                assert (level, branch) not in record.shards["noisy"]
            case "repair":
                assert (level, branch) in record.shards["noisy"]
                assert (level, branch) not in record.shards["counts"]
                assert ready(record, level, branch)
            case "cut":
                assert (level, branch) in record.shards["counts"]
                assert level + 1 in record.levels_of(branch)
                assert (level, branch) not in of.cuts.whole
                assert record.shards["counts"][level, branch].rows > 1
            case "sum":
                assert record.release.levels[level].is_summed or isinstance(of.mechanism.finish, Unbiased | Sizes)
                assert all((level + 1, name) in record.shards["counts"] for name in record.branches_of(level + 1))
                assert (level, branch) not in record.shards["counts"]
            case "together":
                measured = [terms.level for terms in record.release.parts if terms.is_measured]
                assert {(number, branch) for number in measured} == set(record.shards["noisy"])
                assert not record.shards["counts"]
            case "calibrate":
                measured = [terms.level for terms in record.release.parts if terms.is_measured]
                places = {(level, name) for level in measured for name in record.branches_of(level)}
                assert places == set(record.shards["noisy"])
                assert bool(record.shards["settled"]) == bool(of.mechanism.second_pass)
                assert not record.shards["calibrated"]
            case "estimate":
                places = {(level, name) for name in record.all_branches for level in record.levels_of(name)}
                assert places <= set(record.shards["counts"])
                finest = record.levels_of(branch)[-1]
                assert {(finest, part) for part in record.pieces(branch)} <= set(record.shards["estimates"])
                assert not record.shards["settled"]
                assert branch not in line_up(record.shards["estimates"])
            case "settle":
                assert {(level, branch) for level in record.levels_of(branch)} <= set(record.shards["estimates"])
                above = record.branches.get(branch)
                assert above is None or (above.cut_level, above.parent) in record.shards["settled"]
                assert branch not in line_up(record.shards["settled"])
            case "gather":
                assert {(level - 1, name) for name in record.branches_of(level - 1)} <= set(record.shards["settled"])
                assert (level, branch) in record.shards["estimates"]
                assert (level, branch) not in record.shards["statistics"]
            case "fit":
                assert branch == TRUNK
                assert {(level, name) for name in record.branches_of(level)} <= set(record.shards["statistics"])
                assert (level, TRUNK) not in record.shards["prior"]
            case "share":
                is_drawn = level > 0 and record.release.levels[level].is_charged
                assert not is_drawn or (level, TRUNK) in record.shards["prior"]
                above = record.branches_of(level - 1) if level else ()
                assert {(level - 1, name) for name in above} <= set(record.shards["settled"])
                assert (level, branch) not in record.shards["settled"]


def line_up(places):
    """Return the branches of some steps or places."""
    return {place[1] if isinstance(place, tuple) else place.branch for place in places}


def steps_hold_references_only(of):
    """A step holds whole numbers and text alone, and is the same after a way through pickle."""
    for step in of.next():
        assert pickle.loads(pickle.dumps(step)) == step  # noqa: S301 (made here)
        assert {type(getattr(step, own.name)) for own in fields(step)} <= {int, str}


LAWS = [
    only_what_is_charged_is_measured, nothing_is_measured_twice, nothing_is_measured_after_the_finish_has_begun,
    nothing_is_measured_again_once_a_finish_has_begun, no_step_comes_before_what_it_reads, steps_hold_references_only,
]  # fmt: skip


@settings(max_examples=300)
@given(beginnings())
def test_every_turn_keeps_the_laws_to_the_end(release):
    """Through failures and crashes, each step makes what was not there, and in the end every charge is sealed."""
    for of in followed(release):
        for law in LAWS:
            law(of)
    assert of.next() == []
    assert of.is_released()
    assert {charge.state for charge in of.record.charges.values()} == {"sealed"}
    measured = [level.level for level in of.record.release.parts if not level.is_summed]
    places = {(level, name) for level in measured for name in of.record.branches_of(level)}
    assert set(of.record.shards["noisy"]) == places


@settings(max_examples=200)
@given(beginnings(), st.data())
def test_only_leaves_other_branches_as_they_are(release, data):
    """With one branch named, it, what is part of it and what holds it are finished; no shard of another one is made."""
    record_at = data.draw(st.integers(0, 60))
    for turn, of in enumerate(followed(release)):  # noqa: B007 (as it is at that turn)
        if turn == record_at:
            break
    of.crash()
    before = of.record
    uncut = [f"{name}-00" for name in before.branches]  # may come to be, or not
    only = data.draw(st.sampled_from([*before.all_branches, *uncut, "b77"]))
    is_finishing = not any(step.kind in {"measure", "repair", "cut", "together", "calibrate"} for step in of.next())

    def is_of_it(branch):
        if TRUNK in {branch, only}:
            return branch == TRUNK
        return all(own == of_only for own, of_only in zip(branch.split("-"), only.split("-"), strict=False))

    if not is_finishing:
        assert of.next(only) == [step for step in of.next() if is_of_it(step.branch)]
    while of.turn(only):
        pass
    after = of.record
    if is_finishing:
        assert of.is_released()
        return
    missing = [name for name in after.branches_of(after.finest) if (after.finest, name) not in after.shards["counts"]]
    assert not [name for name in missing if is_of_it(name)]
    others = [name for name in after.branches if not is_of_it(name)]
    if missing:
        for name in others:
            assert {shard for shard in after.all_shards if shard.branch == name} <= {*before.all_shards}
        assert after.released == after.shards["counts"]
        while of.turn():
            pass
    assert of.is_released()

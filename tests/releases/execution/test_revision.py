"""Revisions: what supersedes what is a chain without forks, and everybody who looks is told."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import flows.run.driver
from flows.answers.audit import audit_answer
from flows.answers.release_status import releases_answer, show_answer
from flows.console.plan_view import show_plan
from flows.console.release_view import show_one
from flows.forecast.answer import plan_answer
from flows.planning.admission import admission, resumable_release
from flows.planning.plan import make_plan
from flows.run.driver import rehearse
from flows.run.ending import abandon_release
from flows.run.reservation import new_release, reserve_release
from flows.run.runner import submit_to
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.errors import BudgetExceeded, SpecError, StoreError, UsageError
from storage.ledger.events import head
from storage.machine.locks import held
from storage.releases.register import set_state, state_of
from tasks.folder.verify.folder import verify
from tasks.synthesize.areas import write_country
from tests.support.cases import country_of
from tests.support.folders import rewrite
from tests.support.runs import finish, make
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in

SPEC = COUNTRY | {
    "name": "jobs",
    "dataset": "made-up-jobs",
    "release": {"tree": "destination", "finest": "region"},
    "privacy": COUNTRY["privacy"] | {"unit": "one made-up job", "epsilon": 2.0},
    "budget": {"epsilon": 40.0, "delta": 1.0e-7},
}


@dataclass(frozen=True)
class World:
    """A folder with a table, a store in which `second` supersedes `first`, and what was published."""

    place: Path  # holds `data`, the store `home`, and `out`
    first: str = ""  # the release that is superseded
    second: str = ""  # the one that supersedes it

    def plan(self, **keys):
        """Return the plan of a spec."""
        return make_plan(load_spec(spec_in(self.place, SPEC | keys)))

    def release(self, **keys):
        """Make the release of a spec; return its id."""
        plan = self.plan(**keys)
        release = new_release(plan)
        make(plan, release, threads=1)
        return release.id

    def failed(self, at, **keys):
        """Make a release that fails at a step; return its id."""

        def stop(*_, **_keys):
            raise StoreError("The disk is full.")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flows.run.driver, at, stop)
            with pytest.raises(StoreError, match="disk is full"):
                self.release(**keys)
        (newest,) = [entry.id for entry in releases_answer().releases if entry.state == "failed"]
        return newest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a release and its revision."""
    place = tmp_path_factory.mktemp("revised") / "place"
    write_country(country_of(200, 5), place / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        first = World(place).release()
        yield World(place, first, World(place).release(supersedes=first))


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    """Return a copy of that world, which may be changed; its store is open all the time."""
    place = tmp_path / "place"
    shutil.copytree(made.place, place)
    monkeypatch.setenv("TRELLIS_HOME", str(place / "home"))
    with store() as con:
        con.execute("UPDATE releases SET folder = replace(folder, ?, ?)", [str(made.place), str(place)])
        yield World(place, made.first, made.second)


def test_a_revision_is_told_wherever_somebody_looks(made, capsys):
    """Manifest, README, metadata, the store's view, `show` and `releases` name what is superseded, and by what."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(made.place / "home"))
        first, second = show_answer(made.first), show_answer(made.second)
        listed = {entry.id: entry for entry in releases_answer().releases}
        with store() as con:
            viewed = dict(con.execute("SELECT DISTINCT release, supersedes FROM published").fetchall())
        assert audit_answer().ok
    for answer in (first, listed[made.first]):
        assert (answer.supersedes, answer.superseded_by) == (None, made.second)
    for answer in (second, listed[made.second]):
        assert (answer.supersedes, answer.superseded_by) == (made.first, None)
    assert viewed == {made.first: None, made.second: made.first}
    folder = made.place / "out" / made.second
    assert json.loads((folder / "manifest.json").read_text())["supersedes"] == made.first
    assert "supersedes" not in json.loads((folder.parent / made.first / "manifest.json").read_text())
    assert json.loads((folder / "metadata.json").read_text())["dc:replaces"] == made.first
    assert f"This release supersedes `{made.first}`" in (folder / "README.md").read_text()
    assert verify(folder) == []
    show_one(first)
    show_one(second)
    said = capsys.readouterr().out
    assert f"superseded by {made.second}\n" in said
    assert f"supersedes {made.first}\n" in said


def test_a_plan_says_that_a_new_measurement_is_charged(world, capsys):
    """A revision costs what the first release did, and its plan says so; so it does of the same spec once more, and of no other."""
    answer = plan_answer(world.plan(supersedes=world.second))
    show_plan(answer)
    assert answer.supersedes == world.second
    assert answer.budget.after.rho == pytest.approx(1.5 * answer.budget.before.rho)
    assert f"supersedes {world.second}: a revision is a new measurement and is charged like" in capsys.readouterr().out
    assert answer.caution == plan_answer(world.plan(expected_total=100)).caution == ""
    again = plan_answer(world.plan())
    assert again.supersedes is None
    assert f"{world.first} was released from the same spec" in again.caution


REFUSED = {
    "nobody knows it": ("jobs-20200101T000000Z", {}, "there is no release jobs-20200101T000000Z"),
    "it is superseded": ("FIRST", {}, "is already superseded by SECOND, which is published"),
    "it is of other people": ("SECOND", {"dataset": "others"}, "belongs to dataset made-up-jobs, which does not share the budget of others"),
    "it failed": ("FAILED", {}, "is failed"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_superseded_is_refused(world, why):
    """Plan, rehearsal and reservation refuse it before anything is drawn, and say which release to name instead."""
    named, keys, told = REFUSED[why]
    names = {"FIRST": world.first, "SECOND": world.second}
    if why == "it failed":
        names["FAILED"] = world.failed("_validate", supersedes=world.second)
    if why == "it is of other people":
        shutil.copy(world.place / "data" / "trips.csv", world.place / "data" / "others.csv")
        keys = keys | {"input": SPEC["input"] | {"table": "data/others.csv"}}
    plan = world.plan(supersedes=names.get(named, named), **keys)
    with ThreadPoolExecutor(1) as threads:
        for ask in (plan_answer, new_release, lambda plan: rehearse(plan, submit_to(threads))):
            with pytest.raises(SpecError) as refused:
                ask(plan)
            assert refused.value.field == "supersedes"
            assert told.replace("SECOND", world.second) in str(refused.value)
            if why == "it is superseded":
                assert refused.value.hint == f"Supersede that release: set supersedes: {world.second}."


def test_one_value_says_all_that_refuses_a_release(world):
    """Every rule is asked, also after one is broken; nothing is recorded, and the first refusal is the one that stops a release."""
    plan = world.plan(supersedes=world.first, dataset="others", budget={"epsilon": 1.0, "delta": 1.0e-7})
    table = plan.read_table()
    with store() as con:
        before, table = head(con), table.with_copies(con)
        refused = admission(con, plan, table)
        confirmed = admission(con, plan, table, different_people=True)
        assert head(con) == before
    assert list(refused.refusals) == ["supersedes", "people", "budget"]
    assert list(confirmed.refusals) == ["supersedes", "budget"]
    assert (confirmed.others, confirmed.charge) == ((SPEC["dataset"],), plan.spending)
    with pytest.raises(SpecError, match="share the budget of others"):
        refused.check()
    with pytest.raises(BudgetExceeded, match="With this release dataset others would spend"):
        refused.check("approval", "budget")


def test_another_dataset_of_the_same_people_may_revise(world):
    """A corrected table under a name of its own supersedes, where the spec says whose people it holds."""
    shutil.copy(world.place / "data" / "trips.csv", world.place / "data" / "corrected.csv")
    release = world.release(
        supersedes=world.second, dataset="corrected", same_people_as=SPEC["dataset"],
        input=SPEC["input"] | {"table": "data/corrected.csv"},
    )  # fmt: skip
    assert show_answer(world.second).superseded_by == release
    assert audit_answer().ok


def test_of_two_that_ask_at_once_one_has_it(world):
    """A release that was asked for while nobody superseded is refused where another is running by its reservation."""
    plan = world.plan(supersedes=world.second)
    one, other = new_release(plan), new_release(plan)
    reserve_release(one, plan)
    with held(one.id):
        with pytest.raises(SpecError, match=rf"already superseded by {one.id}, which is reserved") as refused:
            reserve_release(other, plan)
        assert refused.value.hint == f"Once it is published, supersede that release: set supersedes: {one.id}."
        with store() as con:
            assert state_of(con, other.id) is None
            set_state(con, one.id, "failed", "It was interrupted.")
    assert resumable_release(one.id).state == "failed"
    reserve_release(other, plan)  # the first has given way
    with held(other.id), pytest.raises(UsageError, match=f"{other.id} supersedes it now"):
        resumable_release(one.id)


def test_a_failed_revision_gives_way_for_good(world):
    """Where another has taken its place, a failed revision cannot be gone on with, and can be abandoned."""
    waiting = world.failed("_validate", supersedes=world.second)
    assert show_answer(world.second).superseded_by is None
    third = world.release(supersedes=world.second)
    with pytest.raises(UsageError, match=f"{third} supersedes it now") as refused:
        finish(waiting, threads=1)
    assert f"`trellis abandon {waiting}`" in refused.value.hint
    assert abandon_release(waiting).deleted
    assert show_answer(world.second).superseded_by == third
    assert audit_answer().ok


def test_what_is_out_keeps_its_place(world):
    """A revision whose folder is out and whose books are open yet is superseded by nobody, is not abandoned, and can be finished."""
    waiting = world.failed("close_the_books", supersedes=world.second)
    with pytest.raises(SpecError, match=f"already superseded by {waiting}, which is failed"):
        plan_answer(world.plan(supersedes=world.second))
    with pytest.raises(UsageError, match="folder is there") as refused:
        abandon_release(waiting)
    assert f"`trellis rerun {waiting}`" in refused.value.hint
    finish(waiting, threads=1)
    assert show_answer(world.second).superseded_by == waiting


def test_a_chain_that_was_changed_is_found(world):
    """`verify` finds a manifest that is not as its spec; the audit one that is not as the store, what is not there or later, and a fork."""

    def found_after(release, supersedes):
        with store() as con:
            con.execute("UPDATE releases SET supersedes = ? WHERE id = ?", [supersedes, release])
        return [(entry.release, entry.reason) for entry in audit_answer().findings]

    for release, supersedes, blamed, right in (
        (world.second, "nobody", "supersedes nobody, which the ledger does not", world.first),
        (world.first, world.second, "whose manifest is not older", None),
    ):
        reasons = " ".join(reason for _, reason in found_after(release, supersedes))
        assert blamed in reasons
        assert "another release than the store" in reasons
        assert found_after(release, right) == []
    third = world.release()
    second, last = (world.place / "out" / release for release in (world.second, third))
    rewrite(last, lambda of: of.update(supersedes=world.first, spec=of["spec"] | {"supersedes": world.first}))
    assert verify(last) == []
    fork = (third, f"it supersedes {world.first}, which {world.second} also supersedes.")
    assert found_after(third, world.first) == [fork]
    rewrite(second, lambda of: of.update(supersedes="jobs-20200101T000000Z"))
    told = "manifest.json: supersedes must be the release that the spec names, and not this release."
    assert verify(second) == [told]
    other = (world.second, "its manifest supersedes another release than the store records.")
    assert other in found_after(third, world.first)

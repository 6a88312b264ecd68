"""Laws of every release, through the plain driver: whole, consistent, within its bounds, and the truth without noise."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import tasks.optimize.task
from flows.answers.ledger import ledger_answer
from flows.answers.release_status import release_answer
from flows.answers.verify import verify_answer
from flows.console.release_view import show_release
from flows.planning.plan import make_plan
from flows.run.driver import finish_release, make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.file import load_spec
from flows.specification.sections.run import LEAST_MEMORY
from storage.counts.shard_files import noisy_path, shard_path, write_shard
from storage.database.connections import store
from storage.errors import StoreError
from storage.releases.register import find_release, list_checks
from storage.releases.shards import add_shard, branches_of_level, list_branches, list_shards, shard_name
from tasks.folder.verify.folder import verify
from tasks.format.manifest import Manifest
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tasks.work.capacity import cores, default_memory
from tests.support.cases import CASES, case_csv
from tests.support.laws import drawn_by
from tests.support.ledger import charges_of, read_shard
from tests.support.making import CUT, make, no_noise, noise_of_the_cell

BY = [("opendp", "gaussian"), ("table", "gaussian"), ("table", "laplace"), ("opendp", "laplace")]
NOISE = [(case, *by) for case, by in zip(CASES, BY, strict=True)]


@pytest.fixture(scope="module", params=NOISE, ids=lambda noise: f"{noise[0]} by {noise[1]}, {noise[2]}")
def made(request, tmp_path_factory):
    """Make a release of each case, with the noise that users get, by either sampler and law, each on one thread and on two."""
    # Half of the cases are whole, and half are cut into branches, with either sampler and either number of threads.
    case, named, law = request.param
    number = list(CASES).index(case)
    workers, sizes = 1 + (number + (named == "table")) % 2, CUT if number >= len(CASES) // 2 else {}
    folder = tmp_path_factory.mktemp("case") / "made"
    sampler = MECHANISMS["inftda"].laws[law].samplers[named].draw
    return make(folder, CASES[case], sampler, workers=workers, sizes=sizes, named=named, law=law)


NUMBERS = ("count", "low", "high", "signal")
CHECKS = {"counts_whole_and_positive", "children_add_up", "adds_to_total", "areas_known_once", "seals_match"}
CHECKS |= {"charged_as_planned"}


def test_a_release_is_published_verified_charged_and_sealed_once(made, monkeypatch):
    """All checks of all levels are passed; charges add up to what was asked for; every level has the total, and its branches' seals."""
    assert (made.release.state, made.release.reason) == ("published", "")
    assert verify(made.folder) == []
    levels, total = range(len(made.case.order) + 1), made.case.truth["count"].sum()
    assert [made.level(level)["count"].sum() for level in levels] == [total] * len(levels)
    assert [made.level(level).columns[: -len(NUMBERS)] for level in levels] == [made.case.columns(k) for k in levels]
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    with store() as con:
        charges, seals = charges_of(con, made.release.id), list_shards(con, made.release.id)["noisy"]
        branches, checks = list_branches(con, made.release.id), list_checks(con, made.release.id)
    expected = {(check, level) for check in CHECKS for level in levels} | {("exact_as_sealed", 0)}
    assert sorted((row.check, row.level) for row in checks) == sorted(expected)
    assert all(row.passed for row in checks)
    assert {level: charge.state for level, charge in charges.items()} == dict.fromkeys(levels[1:], "released")
    assert float(sum(charge.rho for charge in charges.values())) == made.release.terms.privacy.rho
    assert bool(branches) == made.is_cut
    assert set(seals) == {(level, name) for level in levels for name in branches_of_level(branches, level)}


@pytest.mark.thorough
@pytest.mark.heavy("each case is released twice")
@pytest.mark.parametrize("some", [slice(2), slice(2, None)], ids=["two", "others"])
def test_tables_do_not_depend_on_how_the_work_was_cut(some, tmp_path, monkeypatch):
    """Where noise is tied to the cells, branches, chunks, workers, memory and the sampler's name change no byte."""
    share, least_share = default_memory() // cores(), LEAST_MEMORY // cores()
    assert share > 10 * least_share  # or the spec's memory could not be told from the machine's
    by_memory, by_processes = {"max_memory": f"{LEAST_MEMORY}B"}, {"workers": "processes"}
    with noise_of_the_cell() as sampler:
        whole = make(tmp_path / "whole", case_csv, sampler, workers=1)
        assert whole.errors(6).max() > 0
        deep = {"BRANCH_CELLS": 2, "CHUNK_CELLS": 7, "CELL_BYTES": share // 10}
        cuts = [
            (deep, 1, "opendp", {}, {"trunk", "b00"}, 10),
            ({"CELL_BYTES": least_share // 40}, 2, "opendp", by_memory, {"trunk"}, 40),
            ({"BRANCH_CELLS": 2, "CHUNK_CELLS": 5}, 2, "opendp", {}, {"trunk"}, 150),
            ({"BRANCH_CELLS": 1}, 1, "table", {}, {"trunk"}, 150),
            ({"CELL_BYTES": share // 40}, 2, "table", {}, {"trunk"}, 40),
            ({"BRANCH_CELLS": 2}, 2, "table", by_processes, {"trunk"}, 150),
        ]
        for number, (sizes, workers, named, run, parents, most) in enumerate(cuts[some]):
            folder, sampler.calls = tmp_path / f"cut-{number}", 0
            made = make(folder, case_csv, sampler, workers=workers, sizes=sizes, named=named, run=run)
            assert made.tables() == whole.tables()
            assert bool(sampler.calls) == (run != by_processes)
            monkeypatch.setenv("TRELLIS_HOME", str(made.home))
            with store() as con:
                assert {branch.parent for branch in list_branches(con, made.release.id).values()} >= parents
                assert max(seal.rows for seal in list_shards(con, made.release.id)["noisy"].values()) <= most


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Stop a release, of which everything is optimised, before its first check, and return its store."""
    folder = tmp_path_factory.mktemp("walked")
    case = case_csv(folder)
    (folder / "spec.yaml").write_text(yaml.safe_dump(case.keys))

    def submit_to_stop(executor):
        def submit(stage, *arguments):
            if stage.name == "validate_level":
                raise InterruptedError
            return executor.submit(stage.fn, *arguments)

        return submit

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        patch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(no_noise)}))
        plan = make_plan(load_spec(folder / "spec.yaml"))
        release = new_release(plan, release_id="walked")
        with store(), pytest.raises(InterruptedError):
            make_release(plan, release, submit_to_stop(executor), report_nothing)
    return folder / "home"


@pytest.fixture
def again(walked, tmp_path, own_home):
    """Return that release in a copy of its store."""
    shutil.copytree(walked, tmp_path / "home")
    with store() as con:
        con.execute("UPDATE releases SET folder = ?", [str(tmp_path / "out" / "walked")])
        yield find_release(con, "walked")


def finish(release):
    """Finish a release with a sampler that must not be called."""

    def draw_again(true_counts, scale):
        raise AssertionError("what is sealed was drawn again")

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(draw_again)}))
        finish_release(release.id, submit_to(executor), report_nothing)


def rewrite(release, level, change):
    """Change the released counts of a level, and the store's record of them, as a fault in the code would."""
    with store() as con:
        shard = list_shards(con, release.id)["counts"][level, "trunk"]
        path = shard_path(release.id, shard_name("counts", level, "trunk"))
        columns = change({name: column.copy() for name, column in read_shard(path, shard.sha256).items()})
        path.unlink()
        sha256 = write_shard(path, tuple(columns), [columns])
        add_shard(con, release.id, replace(shard, sha256=sha256))


def moved(first, last):
    """Return what adds records to the first node of the finest level and to the last, which lie in different regions."""

    def change(columns):
        columns["count"][[0, -1]] += first, last
        return columns

    return lambda release: rewrite(release, 6, change)


def below_zero(columns):
    """Move so many records from the first node to the last that it is below zero."""
    columns["count"][[0, -1]] += np.array([-1, 1]) * (columns["count"][0] + 1)
    return columns


def one_twice(columns):
    """Let the first node appear twice, each time with a part of its count."""
    doubled = {name: np.concatenate((column[:1], column)) for name, column in columns.items()}
    doubled["count"][:2] = [1, columns["count"][0] - 1]
    return doubled


def altered_noise(release):
    """Alter a sealed shard."""
    path = noisy_path(release.id, 3, "trunk")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def other_scale(release):
    """Let the ledger tell of another scale than was planned."""
    with store() as con:
        con.execute("UPDATE levels SET sigma = sigma / 2 WHERE level = 2")


@pytest.mark.parametrize(("spoil", "failed"), [
    (altered_noise, {("seals_match", 3)}),
    (other_scale, {("charged_as_planned", 2)}),
    (moved(1, 0), {("adds_to_total", 6), ("children_add_up", 6)}),
    (moved(1, -1), {("children_add_up", 6)}),
    (lambda of: rewrite(of, 6, below_zero), {("counts_whole_and_positive", 6), ("children_add_up", 6)}),
    (lambda release: rewrite(release, 6, one_twice), {("areas_known_once", 6)}),
], ids=["altered noise", "other scale", "one more", "one moved", "one below zero", "one twice"])  # fmt: skip
def test_a_spoilt_release_is_not_published(spoil, failed, again):
    """A check that fails stops the release, is named and recorded, and leaves no folder, however often it is finished."""
    spoil(again)
    for _ in range(2):
        with pytest.raises(StoreError) as refusal:
            finish(again)
        with store() as con:
            state = find_release(con, again.id)
            found = list_checks(con, again.id)
        assert str(refusal.value).startswith("Not published: ")
        assert all(f"{check} at level {level}" in str(refusal.value) for check, level in failed)
        assert (state.state, state.reason) == ("failed", str(refusal.value))
        assert {(row.check, row.level) for row in found if not row.passed} == failed
        assert len(found) == len(CHECKS) * 7 + 1  # the total is published exactly
        assert list(Path(again.folder).parent.glob("**")) == []


def test_released_counts_that_were_altered_are_not_published(again):
    """A shard of released counts that is not the recorded one stops the release by its name; mended, it is published, undrawn."""
    path = shard_path(again.id, shard_name("counts", 6, "trunk"))
    before = path.read_bytes()
    path.write_bytes(before[:-1] + b"?")
    with pytest.raises(StoreError, match=r"level_6_trunk\.counts\.parquet is not what was sealed"):
        finish(again)
    assert not Path(again.folder).exists()
    path.write_bytes(before)
    finish(again)
    assert verify(Path(again.folder)) == []


def case_with(folder, privacy):
    """Return the plain case with other privacy keys."""
    made = case_csv(folder)
    of_privacy = made.keys["privacy"] | {"accountant": "zcdp"} | privacy  # pld would take seconds each time
    made.keys["privacy"] = {key: value for key, value in of_privacy.items() if value is not None}
    made.keys.update(budget={"epsilon": 100.0, "delta": 1e-8}, keep_noisy_counts=True)
    return made


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Return what releases the plain case with other privacy keys."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "made" / "home"))
    return lambda **privacy: make(tmp_path / "made", lambda folder: case_with(folder, privacy), discrete_gaussian)


def manifest_of(made):
    """Return the published manifest, of a folder in which verification finds nothing."""
    assert verify_answer(made.folder).failures == []
    return Manifest.model_validate_json((made.folder / "manifest.json").read_bytes())


def test_invariants_are_exact_named_and_free(release, capsys):
    """Levels down to the regions are the truth, take no share of ρ, are called unprotected, and weaken the claim."""
    made = release(invariants=["region"], i_accept_unprotected=True)
    manifest = manifest_of(made)
    assert all(made.counts(level).equals(made.case.true_level(level)) for level in range(3))
    assert [(entry.rho, entry.sigma, entry.bound) for entry in manifest.levels[:3]] == [(0, 0, 0)] * 3
    assert sum(entry.rho for entry in manifest.levels[3:]) == pytest.approx(manifest.privacy.rho)
    assert len(manifest.unprotected) == 3
    assert "origin region, destination region" in manifest.unprotected[2]
    assert "only between tables that agree on every count of the levels 0 to 2" in manifest.privacy.statement
    assert "does not protect at all which of their cells a unit is in" in manifest.privacy.statement
    (account,) = ledger_answer(None).datasets
    assert account.unprotected == manifest.unprotected[1:]  # the total would be public anyway
    readme = " ".join((made.folder / "README.md").read_text().split())
    told = "**Levels 0 to 2 are published exactly. The release does not protect at all in which of their cells"
    assert told in readme
    assert "almost the same" not in readme
    shown = release_answer(made.release.id, {"total": 1.0})
    show_release(shown)
    assert shown.unprotected == manifest.unprotected
    assert "unprotected: level 2 (origin region, destination region)" in " ".join(capsys.readouterr().out.split())


def test_an_exact_level_that_is_not_as_it_was_sealed_is_not_published(release, monkeypatch):
    """A fault that moves one record between siblings of an exact level, so that all adds up, stops the release by its name."""

    def one_moved(exact, _, totals):
        moved = exact.copy()
        if len(totals) == 2:  # both regions of destination: the cells are pairs of regions
            moved[:2] += [-1, 1] if moved[0] else [1, -1]
        return moved

    monkeypatch.setattr(tasks.optimize.task, "as_they_are", one_moved)
    with pytest.raises(StoreError) as refusal:
        release(invariants=["region"], i_accept_unprotected=True)
    assert str(refusal.value).startswith("Not published: exact_as_sealed at level 2")
    assert len(re.findall("at level", str(refusal.value))) == 1

"""Laws of every release, through the plain driver: whole, consistent, within its bounds, and the truth without noise."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.spec.keys import LEAST_MEMORY
from flows.walks.runner import Future, Submit, report_nothing, submit_to
from storage.counts.shards import counts_name, noisy_path, read_shard, shard_path, write_shard
from storage.counts.vault import vault
from storage.database.connections import store
from storage.errors import StoreError
from storage.ledger.events import charges_of
from storage.releases.register import Release, find_release, list_checks
from storage.releases.seals import add_frontier, branches_of_level, list_branches, list_frontiers, list_seals
from tasks.capacity import cores, default_memory
from tasks.laws.law import Sampling
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.true_tree import TrueLevel
from tasks.verify.folder import verify
from tests.support.cases import CASES, Case, case_csv, case_precise, case_rows
from tests.support.laws import drawn_by
from tests.support.making import CUT, Made, make, no_noise, noise_of_the_cell, seeded
from tests.support.passes import counts_of, try_spec

BY = [("opendp", "gaussian"), ("table", "gaussian"), ("table", "laplace"), ("opendp", "laplace")]
NOISE = [(case, *by) for case, by in zip(CASES, BY, strict=True)]


@pytest.fixture(scope="module", params=NOISE, ids=lambda noise: f"{noise[0]} by {noise[1]}, {noise[2]}")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make a release of each case, with the noise that users get, by either sampler and law, each on one thread and on two.

    Half of the cases are whole, and half are cut into branches, with either sampler and either number of threads.
    """
    case, named, law = request.param
    number = list(CASES).index(case)
    workers, sizes = 1 + (number + (named == "table")) % 2, CUT if number >= len(CASES) // 2 else {}
    folder = tmp_path_factory.mktemp("case") / "made"
    sampler = MECHANISMS["inftda"].laws[law].samplers[named].draw
    return make(folder, CASES[case], sampler, workers=workers, sizes=sizes, named=named, law=law)


@pytest.fixture
def home(made: Made, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work on the store of the release that was made."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    return made.home


CHECKS = {
    "counts_whole_and_positive",
    "children_add_up",
    "adds_to_total",
    "areas_known_once",
    "seals_match",
    "charged_as_planned",
}


NUMBERS = ("count", "low", "high")


def test_a_release_is_published_and_verified(made: Made) -> None:
    """The release is published, verification finds nothing, and it does find a table that was changed."""
    assert (made.release.state, made.release.reason) == ("published", "")
    assert verify(made.folder) == []
    changed = made.home.parent / "changed" / made.release.id
    shutil.copytree(made.folder, changed)
    made.level(1).with_columns(pl.col("count") + 1).write_parquet(changed / "counts" / "level_1.parquet")
    assert [failure for failure in verify(changed) if "level_1" in failure]


def test_every_level_adds_up_to_the_true_total(made: Made) -> None:
    """No level gains or loses a record."""
    total = made.case.truth["count"].sum()
    assert total > 0
    assert [made.level(level)["count"].sum() for level in range(len(made.case.order) + 1)] == [total] * (
        len(made.case.order) + 1
    )


def test_published_columns_are_those_of_the_contract(made: Made) -> None:
    """Text codes coarse to fine, origin first, then numbers, sorted; only level 0 has its one row whatever it counts."""
    tables = sorted(path.name for path in (made.folder / "counts").iterdir())
    assert tables == [f"level_{level}.parquet" for level in range(len(made.case.order) + 1)]
    for level in range(len(made.case.order) + 1):
        table, codes = made.level(level), made.case.columns(level)
        expected = {**dict.fromkeys(codes, pl.String), **dict.fromkeys(NUMBERS, pl.Int64), "signal": pl.Boolean}
        assert table.schema == expected
        assert table.rows() == sorted(table.rows())
        assert table.height == 1 if level == 0 else (table["count"] > 0).all()
    assert pl.read_csv(made.folder / "counts.csv", infer_schema=False).equals(
        made.level(len(made.case.order)).cast(dict.fromkeys((*NUMBERS, "signal"), pl.String))
    )


def test_every_check_is_recorded_as_passed(made: Made, home: Path) -> None:
    """Each check of each level has its row, and all passed."""
    with store() as con:
        rows = list_checks(con, made.release.id)
    expected = {(check, level) for check in CHECKS for level in range(len(made.case.order) + 1)}
    expected.add(("exact_as_sealed", 0))
    assert sorted((row.check, row.level) for row in rows) == sorted(expected)
    assert all(row.passed for row in rows)


def test_the_true_tree_counts_what_the_table_counts(made: Made, home: Path) -> None:
    """Every level of the vault has the true nodes, with their counts, and links each to its children."""
    with vault(made.release.id) as con:
        levels = [
            con.execute(f"SELECT * FROM true_level_{level} ORDER BY position").fetchnumpy()
            for level in range(len(made.case.order) + 1)
        ]
    for level, nodes in enumerate(levels):
        assert sorted(nodes["true_count"]) == sorted(made.case.true_level(level)["count"])
    for nodes, children in pairwise(levels):
        ends = np.cumsum(nodes["children"])
        assert nodes["first_child"].tolist() == [0, *ends[:-1]]
        assert ends[-1] == len(children["true_count"])
        assert np.add.reduceat(children["true_count"], nodes["first_child"]).tolist() == nodes["true_count"].tolist()


def test_every_level_is_charged_and_sealed_once(made: Made, home: Path) -> None:
    """Each level below the root has one released charge, they add up to what was asked for, and each branch is sealed."""
    with store() as con:
        charges, seals = charges_of(con, made.release.id), list_seals(con, made.release.id)
        branches = list_branches(con, made.release.id)
    levels = range(1, len(made.case.order) + 1)
    assert {level: charge.state for level, charge in charges.items()} == dict.fromkeys(levels, "released")
    assert float(sum(charge.rho for charge in charges.values())) == made.release.terms.privacy.rho
    assert bool(branches) == made.is_cut
    assert set(seals) == {
        (level, name) for level in range(len(made.case.order) + 1) for name in branches_of_level(branches, level)
    }


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == list(CASES)[-1] else [pytest.mark.thorough]) for case in CASES]
)
def test_without_noise_the_truth_is_published(case: str, tmp_path: Path) -> None:
    """With a sampler that adds nothing every level is its true table, in every branch and chunk."""
    made = make(tmp_path / "exact", CASES[case], no_noise, sizes=CUT)
    for level in range(len(made.case.order) + 1):
        assert made.counts(level).equals(made.case.true_level(level))


def spec_of(case: Callable[[Path], Case], folder: Path) -> Path:
    """Write the table and the spec of a case, and return the spec's path."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(case(folder).keys, allow_unicode=True))
    return folder / "spec.yaml"


def test_noise_is_fresh(tmp_path: Path) -> None:
    """The same spec, released twice, comes to other counts."""
    spec = spec_of(case_rows, tmp_path)
    one, other = (try_spec(spec)[2].released[4].counts.tolist() for _ in range(2))
    assert one != other


@pytest.mark.thorough
@pytest.mark.heavy("each case is released twice")
@pytest.mark.parametrize("some", [slice(2), slice(2, None)], ids=["two", "others"])
def test_tables_do_not_depend_on_how_the_work_was_cut(
    some: slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where noise is tied to the cells, branches, chunks, workers, memory and the sampler's name change no byte."""
    share, least_share = default_memory() // cores(), LEAST_MEMORY // cores()
    assert share > 10 * least_share  # or the spec's memory could not be told from the machine's
    by_memory, by_processes = {"max_memory": f"{LEAST_MEMORY}B"}, {"workers": "processes"}
    with noise_of_the_cell() as sampler:
        whole = make(tmp_path / "whole", case_csv, sampler, workers=1)
        assert whole.errors(6).max() > 0
        deep = {"BRANCH_CELLS": 2, "CHUNK_CELLS": 7, "CELL_BYTES": share // 10}
        cuts: list[tuple[dict[str, int], int, str, dict[str, str], set[str], int]] = [
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
                assert max(seal.cells for seal in list_seals(con, made.release.id).values()) <= most


@pytest.mark.parametrize("neighbours", ["substitution", "add_remove", "substitution of at most"])
def test_every_error_is_within_its_bound(neighbours: str, tmp_path: Path) -> None:
    """In a run with a seed every count, a measured total included, is within its level's bound, and not if the noise is fudged."""
    made = case_precise(tmp_path)
    relation, *at_most = neighbours.split()
    made.keys["privacy"] |= {"neighbours": relation} | ({"exact_records_per_unit": False} if at_most else {})
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
    within = []
    for fudge in (1.0, 40.0):
        plan, table, trial = try_spec(tmp_path / "spec.yaml", seeded(fudge))
        errors = [errors_of(true, found) for true, found in zip(table.levels, trial.released, strict=True)]
        assert max(errors) > 0
        within.append([error <= terms.bound for error, terms in zip(errors, plan.levels, strict=True)])
    assert all(within[0])
    assert not all(within[1][1:])


def errors_of(true: TrueLevel, found: Frontier) -> int:
    """Return the largest error of a level, of nodes that are not released too."""
    off = Counter(counts_of(found))
    off.subtract(
        dict(zip(zip(*(of.tolist() for of in true.areas), strict=True), true.true_counts.tolist(), strict=True))
    )
    return max(abs(error) for error in off.values())


@dataclass(frozen=True)
class Walked:
    """A release that stopped when all was optimised and nothing yet validated."""

    home: Path
    release_id: str


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """Stop a release before its first check."""
    folder = tmp_path_factory.mktemp("walked")
    case = case_csv(folder)
    (folder / "spec.yaml").write_text(yaml.safe_dump(case.keys))

    def submit_to_stop(executor: Executor) -> Submit:
        def submit(stage: Any, *arguments: Any) -> Future:
            if stage.name == "validate_level":
                raise InterruptedError
            return executor.submit(stage.fn, *arguments)

        return submit

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        patch.setitem(
            MECHANISMS,
            "inftda",
            drawn_by("inftda", {"opendp": Sampling(no_noise)}),
        )
        plan = make_plan(load_spec(folder / "spec.yaml"))
        release = new_release(plan, release_id="walked")
        with store(), pytest.raises(InterruptedError):
            make_release(plan, release, submit_to_stop(executor), report_nothing)
    return Walked(folder / "home", "walked")


@pytest.fixture
def again(walked: Walked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Return that release in a copy of its store."""
    shutil.copytree(walked.home, tmp_path / "home")
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    with store() as con:
        con.execute("UPDATE releases SET folder = ?", [str(tmp_path / "out" / "walked")])
        yield find_release(con, "walked")


def finish(release: Release) -> None:
    """Finish a release with a sampler that must not be called."""

    def draw_again(true_counts: IntArray, scale: float) -> IntArray:
        raise AssertionError("what is sealed was drawn again")

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setitem(
            MECHANISMS,
            "inftda",
            drawn_by("inftda", {"opendp": Sampling(draw_again)}),
        )
        finish_release(release.id, submit_to(executor), report_nothing)


def rewrite(release: Release, level: int, change: Callable[[dict[str, IntArray]], dict[str, IntArray]]) -> None:
    """Change the released counts of a level, and the store's record of them, as a fault in the code would."""
    with store() as con:
        shard = list_frontiers(con, release.id)[level, "trunk"]
        path = shard_path(release.id, counts_name(level, "trunk"))
        columns = change({name: column.copy() for name, column in read_shard(path, shard.sha256).items()})
        path.unlink()
        sha256 = write_shard(path, tuple(columns), [columns])
        add_frontier(con, release.id, replace(shard, sha256=sha256))


def one_more(columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Add a record to the first node."""
    columns["count"][0] += 1
    return columns


def one_moved(columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Move a record from the last node to the first, which lies in another region."""
    columns["count"][0] += 1
    columns["count"][-1] -= 1
    return columns


def one_below_zero(columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Move so many records from the first node to the last that it is below zero."""
    columns["count"][-1] += columns["count"][0] + 1
    columns["count"][0] = -1
    return columns


def one_twice(columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Let the first node appear twice, each time with a part of its count."""
    doubled = {name: np.concatenate((column[:1], column)) for name, column in columns.items()}
    doubled["count"][:2] = [1, columns["count"][0] - 1]
    return doubled


def altered_noise(release: Release) -> None:
    """Alter a sealed shard."""
    path = noisy_path(release.id, 3, "trunk")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def other_scale(release: Release) -> None:
    """Let the ledger tell of another scale than was planned."""
    with store() as con:
        con.execute("UPDATE levels SET sigma = sigma / 2 WHERE level = 2")


def test_a_release_that_was_not_spoilt_is_published(again: Release) -> None:
    """The release of the next tests is published as it is, without another draw."""
    finish(again)
    assert verify(Path(again.folder)) == []


@pytest.mark.parametrize(
    ("spoil", "failed"),
    [
        (altered_noise, {("seals_match", 3)}),
        (other_scale, {("charged_as_planned", 2)}),
        (lambda release: rewrite(release, 6, one_more), {("adds_to_total", 6), ("children_add_up", 6)}),
        (lambda release: rewrite(release, 6, one_moved), {("children_add_up", 6)}),
        (
            lambda release: rewrite(release, 6, one_below_zero),
            {("counts_whole_and_positive", 6), ("children_add_up", 6)},
        ),
        (lambda release: rewrite(release, 6, one_twice), {("areas_known_once", 6)}),
    ],
    ids=["altered noise", "other scale", "one more", "one moved", "one below zero", "one twice"],
)
def test_a_spoilt_release_is_not_published(
    spoil: Callable[[Release], None], failed: set[tuple[str, int]], again: Release
) -> None:
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


def test_released_counts_that_were_altered_are_not_published(again: Release) -> None:
    """A shard of released counts that is not the recorded one stops the release by its name."""
    path = shard_path(again.id, counts_name(6, "trunk"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match=r"level_6_trunk\.counts\.parquet is not what was sealed"):
        finish(again)
    assert not Path(again.folder).exists()

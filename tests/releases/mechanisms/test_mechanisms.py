"""Mechanisms in the store: the same as in memory; and a second pass, whole wherever it stops, and free."""

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import tasks.tree.branches
from flows.cli.main import WRONG, main
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from flows.walks.runner import Submit, report_nothing
from storage.database.connections import store
from storage.errors import SpecError, StageFailed
from storage.ledger.events import charges_of
from storage.releases.register import find_release
from storage.releases.seals import list_branches, list_seals, list_settled
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.optimize.reconcile import least_squares
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.job import tree_of
from tasks.verify.folder import verify
from tests.support.cases import CASES, Case, case_csv, case_precise
from tests.support.draws import place_of
from tests.support.laws import drawn_by
from tests.support.making import CUT, MECHANISM, levels_of, make, no_noise, noise_of_the_cell, quick, sealed_of
from tests.support.passes import replay


@pytest.mark.parametrize(
    ("mechanism", "priority", "case"),
    [
        ("inftda", "false_positives", "CSV, destination tree"),
        ("inftda", "false_negatives", "a column per level"),
        ("inftda", "least_squares", "CSV, destination tree"),
        ("tda_l2", None, "Parquet without counts, origin tree"),
        ("tda_linf", None, "Parquet without counts, origin tree"),
        (MECHANISM, None, "CSV, destination tree"),
        (MECHANISM, None, "DuckDB, two codebooks"),
        ("inftda_lenient", None, "CSV, destination tree"),
        ("inftda_shrunk", None, "CSV, destination tree"),
    ],
)
def test_the_store_and_memory_agree(
    mechanism: str, priority: str | None, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the sealed noisy counts alone, the trial in memory comes to the very counts that were released."""
    keys = {"priority": priority} if priority else {}
    made = make(tmp_path / "made", quick(CASES[case], **keys), discrete_gaussian, sizes=CUT, mechanism=mechanism)
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    release, recipe = made.release, MECHANISMS[mechanism]
    in_memory = replay(tree_of(release), release.levels, sealed_of(release), recipe, priority=priority)
    assert verify(made.folder) == []
    assert listed(levels_of(release)) == listed(in_memory.released)


Listed = list[list[list[int]]]


def listed(levels: list[Frontier]) -> Listed:
    """Return, per level, the areas and the counts of its nodes, in their order."""
    return [[column.tolist() for column in (*nodes.areas, nodes.counts)] for nodes in levels]


def kept_by_count(true_counts: IntArray, scale: float, threshold: int) -> tuple[IntArray, IntArray]:
    """Keep the leaves that reach a threshold with noise that depends on their true count alone."""
    noisy = true_counts * 7919 % 13 - 6 + true_counts
    return np.flatnonzero(noisy >= threshold), noisy[noisy >= threshold]


def exactly(sampler: Any) -> Any:
    """Return a sampler of the kind of another one that adds nothing and drops nothing."""
    return no_threshold if sampler is kept_by_count else no_noise


def no_threshold(true_counts: IntArray, scale: float, threshold: int) -> tuple[IntArray, IntArray]:
    """Keep everything as it is."""
    return np.arange(len(true_counts)), true_counts


def a_hundred_more(sampler: Any) -> Any:
    """Return a sampler by which every cell has a hundred records more; a histogram's, what it keeps."""

    def sample(true_counts: IntArray, *scale: Any) -> Any:
        drawn = sampler(true_counts, *scale)
        return (drawn[0], drawn[1] + 100) if isinstance(drawn, tuple) else drawn + 100

    return sample


def all_to_the_first(_: object, first: IntArray, totals: IntArray) -> IntArray:
    """Give each parent's whole total to its first cell."""
    counts = np.zeros(first[-1], dtype=np.int64)
    has_any = np.diff(first) > 0
    counts[first[:-1][has_any]] = totals[has_any]
    return counts


def released_and_tried(folder: Path, mechanism: str, sampler: Any, **change: Any) -> tuple[Listed, Listed]:
    """Return what a release of public data, in branches and chunks, and a trial of `compare` come to by the same noise.

    Args:
        folder: is made.
        mechanism: its name.
        sampler: its noise.
        change: fields of the mechanism that differ from those in the table.
    """

    def case(at: Path) -> Case:
        made = case_precise(at)
        made.keys["public_data"] = True
        if mechanism != "stability_histogram":
            made.keys["privacy"]["accountant"] = "zcdp"
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, mechanism, replace(MECHANISMS[mechanism], **change))
        made = make(folder, case, sampler, sizes=CUT, mechanism=mechanism)
        patch.setenv("TRELLIS_HOME", str(made.home))
        patch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, {"opendp": Sampling(sampler)}))
        comparison = make_comparison(load_spec(folder / "spec.yaml"), [mechanism], [40.0], 1)
        [entry] = comparison.entries
        assert entry.plan.levels == made.release.levels
        return listed(levels_of(made.release)), listed(entry.try_on(comparison.table).released)


@pytest.mark.parametrize(
    "mechanism", [name for name, recipe in MECHANISMS.items() if recipe.cells != "views" and not recipe.is_of_sizes]
)
def test_a_release_and_a_trial_come_to_the_same_by_the_same_noise(mechanism: str, tmp_path: Path) -> None:
    """Of a table that may be seen, by noise of the cell, both have the same terms and the same counts, which are noisy."""
    with noise_of_the_cell() as of_the_cell:
        sampler = kept_by_count if mechanism == "stability_histogram" else of_the_cell
        released, tried = released_and_tried(tmp_path / "made", mechanism, sampler)
        exact, _ = released_and_tried(tmp_path / "exact", mechanism, exactly(sampler))
    assert released == tried
    assert released[-1] != exact[-1]


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "repair": ("inftda", {"repair": {"false_positives": all_to_the_first}}),
    "repair before a finish": ("inftda_reconciled", {"repair": {"false_positives": all_to_the_first}}),
    "finish": ("inftda_reconciled", {"finish": least_squares(all_to_the_first)}),
    "finish of a lenient one": ("inftda_lenient", {"finish": least_squares(all_to_the_first)}),
    "a finish where there was none": ("tda_l2", {"finish": least_squares(all_to_the_first)}),
    "no finish where there was one": ("inftda_reconciled", {"finish": None}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_to_a_mechanism_is_seen_by_both(what: str, tmp_path: Path) -> None:
    """Whichever of its choices is another one, a release and a trial come to the same other counts."""
    mechanism, change = CHANGES[what]
    with noise_of_the_cell() as sampler:
        before, tried_before = released_and_tried(tmp_path / "before", mechanism, sampler)
        after, tried_after = released_and_tried(tmp_path / "after", mechanism, sampler, **change)
    assert after == tried_after
    assert after != before
    assert tried_after != tried_before


@pytest.mark.parametrize("mechanism", ["gaussian", "stability_histogram", "inftda"])
def test_another_noise_is_seen_by_both(mechanism: str, tmp_path: Path) -> None:
    """Where every count that is drawn is a hundred more, a release and a trial come to the same larger counts."""
    with noise_of_the_cell() as of_the_cell:
        sampler = kept_by_count if mechanism == "stability_histogram" else of_the_cell
        before, tried_before = released_and_tried(tmp_path / "before", mechanism, sampler)
        after, tried_after = released_and_tried(tmp_path / "after", mechanism, a_hundred_more(sampler))
    assert before == tried_before
    assert after == tried_after
    assert after[-1] != before[-1]


def test_tables_do_not_depend_on_how_the_work_was_cut(tmp_path: Path) -> None:
    """Where noise is tied to the cells, branches of branches, chunks and workers change no byte of a second pass."""
    with noise_of_the_cell() as sampler:
        whole = make(tmp_path / "whole", quick(case_csv), sampler, workers=1, mechanism=MECHANISM)
        plain = make(tmp_path / "plain", quick(case_csv), sampler, workers=1)
        cut = make(tmp_path / "cut", quick(case_csv), sampler, sizes=CUT, mechanism=MECHANISM)
    assert whole.tables() == cut.tables()
    assert whole.tables() != plain.tables()


def test_a_second_pass_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass has no charge and no seal of its own: they are those of a release without it."""
    charges = []
    for mechanism in ("inftda", MECHANISM):
        made = make(tmp_path / mechanism, quick(case_csv), discrete_gaussian, mechanism=mechanism)
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        with store() as con:
            charges.append([(c.level, c.rho, c.sigma) for c in charges_of(con, made.release.id).values()])
            assert {level for level, _ in list_seals(con, made.release.id)} == set(range(len(made.release.levels)))
            assert bool(list_settled(con, made.release.id)) == (mechanism == MECHANISM)
    assert charges[0] == charges[1]


@pytest.mark.parametrize("at", ["estimate_branch", "settle_branch"])
def test_what_a_second_pass_has_done_is_kept(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second pass that fails in one branch goes on with what is missing, and draws nothing again."""
    made = quick(case_csv, mechanism=MECHANISM)(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2)
    done: list[str] = []

    def submit_to(executor: Executor, faulty: str) -> Submit:
        def run(stage: Any, *arguments: Any) -> Any:
            if stage.name == at:
                if place_of(arguments)[1] == faulty:
                    raise OSError
                done.append(place_of(arguments)[1])
            return stage.fn(*arguments)

        return lambda stage, *arguments: executor.submit(run, stage, *arguments)

    plan = make_plan(load_spec(tmp_path / "spec.yaml"))
    release = new_release(plan, release_id="stopped")
    with ThreadPoolExecutor(1) as executor, pytest.raises(StageFailed, match="b01: OSError"):
        make_release(plan, release, submit_to(executor, "b01"), report_nothing)
    with store() as con:
        sealed, branches = list_seals(con, "stopped"), list_branches(con, "stopped")
    assert len(branches) > 2
    with ThreadPoolExecutor(1) as executor:
        finish_release("stopped", submit_to(executor, ""), report_nothing)
    assert sorted(done) == sorted(["trunk", *branches])
    with store() as con:
        assert list_seals(con, "stopped") == sealed
        assert find_release(con, "stopped").state == "published"
    assert verify(Path(release.folder)) == []
    left = {path.name.split(".", 1)[1] for path in (tmp_path / "home" / "shards" / "stopped").glob("level_*")}
    assert left == {"noisy.parquet", "settled.parquet"}


def test_a_priority_is_for_mechanisms_that_have_it(tmp_path: Path) -> None:
    """A priority that a mechanism does not know is refused, and those that do are named."""
    made = case_csv(tmp_path)
    made.keys.update(mechanism="tda_linf", priority="false_negatives")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
    with pytest.raises(SpecError, match="priority must be left out with mechanism tda_linf") as refused:
        make_plan(load_spec(tmp_path / "spec.yaml"))
    assert str(refused.value).endswith("which only inftda can use.")


def test_counts_below_zero_are_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Synthetic records of a mechanism whose counts may be below zero are refused, by the key or the option that asks."""
    made, spec = case_csv(tmp_path), tmp_path / "spec.yaml"
    made.keys.update(mechanism="gaussian")
    spec.write_text(yaml.safe_dump(made.keys))
    for arguments in (["--records"], ["--records", "--dry-run"]):
        assert main(["release", str(spec), *arguments]) == WRONG
        assert "Error: --records must be left out with mechanism gaussian" in capsys.readouterr().err
    made.keys.update(release=made.keys["release"] | {"records": True})
    spec.write_text(yaml.safe_dump(made.keys))
    with pytest.raises(SpecError, match=r"release\.records must be left out with mechanism gaussian"):
        make_plan(load_spec(spec))

"""Mechanisms in the store: the same as in memory; and a second pass, whole wherever it stops, and free."""

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from flows.walks.trial import Truth

import tasks.tree.branches
from flows.cli.main import WRONG, main
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import Submit, report_nothing
from storage.database.connections import store
from storage.errors import SpecError, StageFailed
from storage.ledger.events import charges_of
from storage.releases.register import find_release
from storage.releases.seals import list_branches, list_seals, list_settled
from tasks.laws.samplers import discrete_gaussian
from tasks.tree.task import tree_of
from tasks.tree.true_tree import TrueLevel
from tasks.verify.folder import verify
from tests.support.cases import CASES, case_csv
from tests.support.making import CUT, MECHANISM, levels_of, make, noise_of_the_cell, quick, sealed_of


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
    ],
)
def test_the_store_and_memory_agree(
    mechanism: str, priority: str | None, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the sealed noisy counts alone, the trial in memory comes to the very counts that were released."""
    keys = {"priority": priority} if priority else {}
    made = make(tmp_path / "made", quick(CASES[case], **keys), discrete_gaussian, sizes=CUT, mechanism=mechanism)
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    sealed, tree = sealed_of(made.release), tree_of(made.release)
    nothing = np.zeros(0, dtype=np.int64)
    root = TrueLevel(tuple(np.zeros(1, dtype=np.int64) for _ in tree.axes), *(np.zeros(1, dtype=np.int64),) * 3)
    below = TrueLevel(tuple(nothing for _ in tree.axes), nothing, nothing, nothing)
    truth = Truth(tree, (root, *(below,) * tree.depth))  # nobody looks at it: what is measured is sealed
    in_memory = MECHANISMS[mechanism].trial(
        truth,
        lambda level, _: sealed[level],
        [terms.sigma for terms in made.release.levels],
        MECHANISMS[mechanism].optimiser(priority),
    )
    assert verify(made.folder) == []
    for one, other in zip(levels_of(made.release), in_memory.released, strict=True):
        assert one.counts.tolist() == other.counts.tolist()
        assert [areas.tolist() for areas in one.areas] == [areas.tolist() for areas in other.areas]


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
                if arguments[1] == faulty:
                    raise OSError
                done.append(arguments[1])
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

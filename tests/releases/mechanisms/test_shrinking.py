"""Releases by fitted priors: the same however they are cut, with what is learnt kept, and verified."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks.shrink.task
import tasks.tree.branches
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import Submit, report_nothing
from storage.database.connections import store
from storage.errors import StageFailed
from storage.releases.register import find_release
from storage.releases.seals import EstimateKind, list_branches, list_learnt, list_seals
from tasks.laws.gaussian import discrete_gaussian
from tasks.tree.job import tree_of
from tasks.verify.folder import verify
from tests.support.cases import CASES, case_csv
from tests.support.draws import place_of
from tests.support.making import CUT, Made, levels_of, make, noise_of_the_cell, quick, sealed_of
from tests.support.passes import replay

MECHANISM = "inftda_shrunk"
KINDS: tuple[EstimateKind, ...] = ("statistics", "prior")


@pytest.fixture(autouse=True)
def _every_level_has_a_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a prior be fitted to a level of any size."""
    monkeypatch.setattr(tasks.shrink.task, "FEWEST", 1)


@pytest.fixture(params=["survivors", "all"])
def measure(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return which cells are measured."""
    return request.param


def made(folder: Path, measure: str, sampler: Any, case: Any = case_csv, **options: Any) -> Made:
    """Return a release."""
    return make(folder, quick(case, measure=measure), sampler, mechanism=MECHANISM, **options)


@pytest.mark.parametrize("case", ["CSV, destination tree", "DuckDB, two codebooks"])
def test_counts_follow_from_the_sealed_noisy_counts(
    case: str, measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the sealed noisy counts alone, the trial in memory, which is not cut, comes to the very counts that were released."""
    of = made(tmp_path / "made", measure, discrete_gaussian, CASES[case], sizes=CUT)
    monkeypatch.setenv("TRELLIS_HOME", str(of.home))
    release, recipe = of.release, MECHANISMS[MECHANISM]
    recipe = replace(recipe, measure=measure)
    in_memory = replay(tree_of(release), release.levels, sealed_of(release), recipe)
    assert verify(of.folder) == []
    found, expected = levels_of(release), in_memory.released
    assert [nodes.counts.tolist() for nodes in found] == [nodes.counts.tolist() for nodes in expected]
    assert [[area.tolist() for area in nodes.areas] for nodes in found] == [
        [area.tolist() for area in nodes.areas] for nodes in expected
    ]


def test_tables_do_not_depend_on_how_the_work_was_cut(measure: str, tmp_path: Path) -> None:
    """Where noise is tied to the cells, branches of branches, chunks and workers change no byte, and nothing that is learnt."""
    with noise_of_the_cell() as sampler:
        whole = made(tmp_path / "whole", measure, sampler, workers=1)
        cut = made(tmp_path / "cut", measure, sampler, sizes=CUT)
        other = make(tmp_path / "other", quick(case_csv, measure=measure), sampler, mechanism="inftda_reconciled")
    assert whole.tables() == cut.tables()
    assert whole.tables() != other.tables()


@pytest.mark.parametrize("at", ["gather_branch", "fit_level", "share_branch"])
def test_what_was_learnt_is_kept(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that fails at any of its stages goes on with what is missing: no stage is done twice, and nothing is drawn again."""
    case = quick(case_csv, mechanism=MECHANISM)(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(case.keys))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2)
    done: list[tuple[Any, ...]] = []

    def submit_to(executor: Executor, *, is_faulty: bool) -> Submit:
        def run(stage: Any, *arguments: Any) -> Any:
            if is_faulty and stage.name == at and place_of(arguments)[0] == 3:
                raise OSError
            if stage.name in {"gather_branch", "fit_level", "share_branch"}:
                done.append((stage.name, *place_of(arguments)))
            return stage.fn(*arguments)

        return lambda stage, *arguments: executor.submit(run, stage, *arguments)

    plan = make_plan(load_spec(tmp_path / "spec.yaml"))
    release = new_release(plan, release_id="stopped")
    with ThreadPoolExecutor(1) as executor, pytest.raises(StageFailed, match="OSError"):
        make_release(plan, release, submit_to(executor, is_faulty=True), report_nothing)
    with store() as con:
        sealed = list_seals(con, "stopped")
        assert len(list_branches(con, "stopped")) > 2
        learnt = {kind: list_learnt(con, "stopped", kind) for kind in KINDS}
    with ThreadPoolExecutor(1) as executor:
        finish_release("stopped", submit_to(executor, is_faulty=False), report_nothing)
    assert len(done) == len(set(done))
    with store() as con:
        assert list_seals(con, "stopped") == sealed
        for kind in KINDS:
            assert learnt[kind].items() <= list_learnt(con, "stopped", kind).items()
        assert find_release(con, "stopped").state == "published"
    assert verify(Path(release.folder)) == []

"""Releases that measure every cell, or every cell above the finest level: whole, cut, begun again, published and verified."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import flows.planning.compatibility
import tasks.noise.truth
import tasks.tree.branches
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from flows.walks.runner import Submit, report_nothing
from storage.counts.columns import NOISY, VARIANCE
from storage.database.connections import store
from storage.errors import StageFailed
from storage.ledger.events import charges_of
from storage.record import Record, load_record
from storage.releases.seals import list_branches
from tasks.format.manifest import Manifest
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tests.support.cases import Case, case_csv
from tests.support.draws import place_of
from tests.support.folders import changed, rewrite
from tests.support.laws import drawn_by
from tests.support.making import CUT, MECHANISM, Made, levels_of, make, no_noise, noise_of_the_cell, noted, quick
from tests.support.passes import counts_of
from tests.support.wide import Wide, trips

MEASURES = ["all", "above", "survivors"]
SPARSE = {"noisy_counts": True}


@contextmanager
def limit(measure: str) -> Iterator[str]:
    """Let no more cells of a level be measured than leads to some cells, and yield what the spec must ask for."""
    with pytest.MonkeyPatch.context() as patch:
        if measure == "above":
            patch.setattr(flows.planning.compatibility, "MOST_MEASURED", 143)  # of the 144 pairs of municipalities
        yield "all" if measure == "above" else measure


def sparse(folder: Path) -> Case:
    """Make the plain case with a tenth of its trips, so that many cells are empty, and with noisy counts that are published."""
    made = quick(case_csv)(folder)
    few = pl.read_csv(folder / "trips.csv", infer_schema=False).gather_every(10)
    few.write_csv(folder / "trips.csv")
    made.keys["release"] = made.keys["release"] | SPARSE
    return replace(made, truth=made.truth.gather_every(10))


def made_with(
    folder: Path, measure: str, sampler: Any, *, keys: dict[str, dict[str, Any]] | None = None, **choices: Any
) -> Made:
    """Make a release of the sparse case that measures some cells."""

    def case(at: Path) -> Case:
        made = sparse(at)
        made.keys["measure"] = asked
        for section, of_section in (keys or {}).items():
            made.keys[section] = made.keys[section] | of_section
        return made

    with limit(measure) as asked:
        return make(folder, case, sampler, **{"mechanism": MECHANISM} | choices)


def record_of(made: Made, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Return the record of a release."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    with store() as con:
        return load_record(con, made.release.id)


def manifest_of(folder: Path) -> Manifest:
    """Return the manifest of a published folder."""
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


@pytest.mark.parametrize("name", ["inftda_reconciled", "inftda_lenient"])
@pytest.mark.parametrize("measure", MEASURES)
def test_every_cell_is_sealed_once_published_and_verified(
    measure: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seals hold every cell of the complete levels, the noisy counts list each of them once, and the folder is in order."""
    made = made_with(tmp_path / "made", measure, discrete_gaussian, sizes=CUT, mechanism=name)
    record, manifest = record_of(made, monkeypatch), manifest_of(made.folder)
    assert record.release.terms.measure == manifest.measure == measure
    assert len(record.branches) > 2
    possible = [terms.possible_cells for terms in record.release.levels]
    complete = {"all": 6, "above": 5, "survivors": 0}[measure]
    measured = [entry.cells for entry in manifest.levels]
    assert measured[: complete + 1] == possible[: complete + 1]
    assert (measured[-1] == possible[-1]) == (measure == "all")
    for entry in manifest.levels[1:]:
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{entry.level}.parquet")
        areas = [axis for axis, level in entry.axes.items() if level]
        assert noisy.height == noisy.select(areas).unique().height == entry.cells
        assert entry.nonzero == made.level(entry.level).height
        assert (made.level(entry.level)["count"] > 0).all()
    assert verify_answer(made.folder).failures == []
    assert [level.nonzero for level in record.released_levels()] == [entry.nonzero for entry in manifest.levels]


@pytest.mark.parametrize("measure", MEASURES)
def test_the_charges_are_the_same_whatever_is_measured(
    measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each level has one charge, of the amount that it has where only survivors' cells are measured."""
    charges = []
    for place, which in (("one", measure), ("other", "survivors")):
        made = made_with(tmp_path / place, which, discrete_gaussian)
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        with store() as con:
            found = charges_of(con, made.release.id).values()
        charges.append([(of.level, of.rho, of.sigma, of.state) for of in found])
        monkeypatch.undo()
    assert charges[0] == charges[1]
    assert {state for *_, state in charges[0]} == {"released"}


@pytest.mark.parametrize("name", ["inftda_reconciled", "inftda_lenient"])
@pytest.mark.parametrize("measure", ["all", "above"])
def test_tables_do_not_depend_on_how_the_work_was_cut(measure: str, name: str, tmp_path: Path) -> None:
    """Where noise is tied to the cells, branches of branches, chunks and workers change no byte of the tables."""
    with noise_of_the_cell() as sampler:
        whole = made_with(tmp_path / "whole", measure, sampler, workers=1, mechanism=name)
        small = {**CUT, "CELL_BYTES": 2_000_000}
        cut = made_with(tmp_path / "cut", measure, sampler, sizes=small, mechanism=name, run={"max_memory": "256MB"})
        fewer = made_with(tmp_path / "fewer", "survivors", sampler, workers=1, mechanism=name)
    assert whole.tables() == cut.tables()
    assert whole.tables() != fewer.tables()


def test_left_out_the_cells_are_those_of_survivors(tmp_path: Path) -> None:
    """A spec without the key comes to the tables that it had before there was one."""
    with noise_of_the_cell() as sampler:
        named = made_with(tmp_path / "named", "survivors", sampler)
        plain = make(tmp_path / "plain", sparse, sampler, mechanism=MECHANISM)
    assert named.tables() == plain.tables()
    assert "measure" not in yaml.safe_load((tmp_path / "plain" / "spec.yaml").read_text())
    assert '"measure"' not in (plain.folder / "manifest.json").read_text()


@pytest.mark.parametrize("measure", ["all", "above"])
@pytest.mark.parametrize("at", ["measure_branch", "optimise_branch", "estimate_branch", "settle_branch"])
def test_a_branch_that_failed_is_finished_with_the_same_cells(
    at: str, measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun again, a release measures what its terms say, though the default is another one now, and gives the same bytes."""
    monkeypatch.setattr(tasks.noise.truth, "true_counts_of", noted)
    with noise_of_the_cell() as sampler:
        whole = made_with(tmp_path / "whole", measure, sampler, workers=1)
        sampling = Sampling(sampler, GAUSSIAN.samplers["opendp"].tau)
        monkeypatch.setitem(MECHANISMS, MECHANISM, drawn_by(MECHANISM, {"opendp": sampling}))
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2)
        folder = tmp_path / "again"
        folder.mkdir()
        made = sparse(folder)
        with limit(measure) as asked:
            made.keys.update({"measure": asked, "mechanism": MECHANISM})
            (folder / "spec.yaml").write_text(yaml.safe_dump(made.keys))
            plan = make_plan(load_spec(folder / "spec.yaml"))

        def submit_to(executor: Executor, faulty: str) -> Submit:
            def run(stage: Any, *arguments: Any) -> Any:
                if stage.name == at and faulty in place_of(arguments):
                    raise OSError
                return stage.fn(*arguments)

            return lambda stage, *arguments: executor.submit(run, stage, *arguments)

        release = new_release(plan, release_id="stopped")
        with ThreadPoolExecutor(1) as executor, pytest.raises(StageFailed, match="b01: OSError"):
            make_release(plan, release, submit_to(executor, "b01"), report_nothing)
        with store() as con:
            assert len(list_branches(con, "stopped")) > 2
            record = load_record(con, "stopped")
        if not record.settled:  # zeros of the first pass are no counts that are released
            assert not any(of.nonzero for of in record.released_levels()[1:] if record.keeps_zeros(of.level))
        with ThreadPoolExecutor(1) as executor:
            finish_release("stopped", submit_to(executor, ""), report_nothing)
    tables = {path.name: path.read_bytes() for path in (Path(release.folder) / "counts").iterdir()}
    assert tables == {name: content for name, content in whole.tables().items() if name in tables}
    assert verify_answer(Path(release.folder)).failures == []


def test_records_that_a_coarse_cell_hides_are_found(tmp_path: Path) -> None:
    """Where the noise of a region hides all of its trips, all of them are lost, unless what is below it is measured too."""

    def hiding(true_counts: np.ndarray, scale: float) -> np.ndarray:  # one of the two regions, and nothing else
        del scale
        return np.array([0, true_counts.sum()]) if len(true_counts) == 2 else true_counts

    released = {}
    for measure in ("all", "survivors"):
        made = made_with(tmp_path / measure, measure, hiding, workers=1)
        released[measure] = made.level(1).height
        assert verify_answer(made.folder).failures == []
    assert released == {"all": 2, "survivors": 1}


@pytest.mark.parametrize("measure", ["all", "above"])
def test_without_noise_the_truth_is_released(measure: str, tmp_path: Path) -> None:
    """Where nothing is off, every level is as it is."""
    made = made_with(tmp_path / "made", measure, no_noise, sizes=CUT)
    assert [made.errors(level).sum() for level in range(7)] == [0] * 7


@pytest.mark.parametrize("measure", ["all", "above"])
def test_an_unknown_total_and_exact_levels_go_with_it(
    measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under add_remove the total is noisy; with invariants upper levels are read whole and exact, and are released as they are."""
    relation = {"privacy": {"neighbours": "add_remove"}}
    made = made_with(tmp_path / "one", measure, discrete_gaussian, sizes=CUT, keys=relation)
    assert verify_answer(made.folder).failures == []
    exact = {"privacy": {"invariants": ["province"], "i_accept_unprotected": True}}
    made = made_with(tmp_path / "two", measure, discrete_gaussian, sizes=CUT, keys=exact)
    assert verify_answer(made.folder).failures == []
    for level in range(5):
        assert made.errors(level).sum() == 0
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{level}.parquet")
        assert (noisy[VARIANCE] == 0).all()
        assert noisy[NOISY].sum() == made.level(0)["count"].item()
        assert noisy.height == (record_of(made, monkeypatch).release.levels[level].possible_cells)


@pytest.mark.parametrize("measure", ["all", "above"])
def test_an_empty_table_is_released(measure: str, tmp_path: Path) -> None:
    """Where no record is, all cells are measured, and without noise nothing below a total of 0 is released."""

    def empty(at: Path) -> Case:
        made = sparse(at)
        made.keys.update({"measure": asked, "privacy": made.keys["privacy"] | {"neighbours": "add_remove"}})
        (at / "trips.csv").write_text((at / "trips.csv").read_text().splitlines()[0] + "\n")
        return made

    with limit(measure) as asked:
        made = make(tmp_path / "made", empty, no_noise, sizes=CUT, mechanism=MECHANISM)
    assert [made.level(level).height for level in range(7)] == [1, 0, 0, 0, 0, 0, 0]
    assert [entry.cells for entry in manifest_of(made.folder).levels][:5] == [1, 2, 4, 8, 16]
    assert verify_answer(made.folder).failures == []


def test_a_published_folder_says_what_was_measured(tmp_path: Path) -> None:
    """README and report say in words that every cell was measured; where survivors' cells were, they say nothing of it."""
    said = {
        measure: made_with(tmp_path / measure, measure, discrete_gaussian).folder / "README.md" for measure in MEASURES
    }
    text = {measure: " ".join(path.read_text().split()) for measure, path in said.items()}
    assert "Every cell of every level was measured" in text["all"]
    assert "Every cell of the levels 0 to 5 was measured" in text["above"]
    assert "At level 6, only cells below a cell of level 5" in text["above"]
    assert "was measured, also where" not in text["survivors"]
    assert "Every cell of every level was measured" in (said["all"].parent / "report.html").read_text()


def test_cells_that_are_missing_are_found(tmp_path: Path) -> None:
    """A folder whose noisy counts lack cells that were measured by its own account is not in order."""
    made = made_with(tmp_path / "made", "survivors", discrete_gaussian)
    rewrite(made.folder, lambda manifest: manifest.update(measure="all"))
    assert any(
        "must have a row for every cell of the level" in failure for failure in verify_answer(made.folder).failures
    )
    plain = make(tmp_path / "plain", sparse, discrete_gaussian, mechanism="inftda")
    rewrite(plain.folder, lambda manifest: manifest.update(measure="all"))
    assert verify_answer(plain.folder).failures
    changed("noisy_counts/level_3.parquet", lambda table: table.head(3))(made.folder)
    assert verify_answer(made.folder).failures


def test_questions_about_cells_without_a_row_are_answered(tmp_path: Path) -> None:
    """Cells that were measured and have no row have a count of 0, and intervals that their own level's noise allows."""
    made = made_with(tmp_path / "made", "all", discrete_gaussian)
    rows = made.level(6).select("origin_municipality", "destination_municipality")
    codes = rows["origin_municipality"].unique().sort()
    pairs = codes.to_frame("origin_municipality").join(codes.to_frame("destination_municipality"), how="cross")
    absent = pairs.join(rows, on=pairs.columns, how="anti").rows()
    answers = [query_answer(made.folder, *pair, [], simultaneous=False) for pair in absent]
    assert {(answer.count, answer.low) for answer in answers} == {(0, 0)}
    highs = [answer.high for answer in answers if answer.high is not None]
    assert len(highs) == len(absent)
    assert max(highs) > 0  # though a noisy count far below 0 may leave no room


def test_a_comparison_tries_all_cells_by_name_or_by_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a colon, or as the spec's key, the cells of an entry are those of a release; others say that they have no choice."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    made = sparse(tmp_path)
    made.keys.update({"public_data": True, "measure": "auto", "mechanism": MECHANISM})
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
    names = [MECHANISM, f"{MECHANISM}:survivors", "inftda_lenient:all", "inftda"]
    comparison = make_comparison(load_spec(tmp_path / "spec.yaml"), names, [1.0], 1)
    assert comparison.refused == {}
    cells = {
        entry.name: [
            entry.try_on(comparison.table).job.record.cells_of(level)[0] == (entry.plan.levels[level].possible_cells)
            for level in range(7)
        ]
        for entry in comparison.entries
    }
    assert all(cells[MECHANISM])
    assert all(cells["inftda_lenient:all"])
    assert not all(cells[f"{MECHANISM}:survivors"])
    assert not all(cells["inftda"])
    assert any(note.startswith("measure is left out") for note in comparison.notes["inftda"])
    assert not any("measure" in note for note in comparison.notes.get(MECHANISM, []))


def test_a_release_and_a_trial_come_to_the_same_by_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that may be seen, a release in branches and a trial of `compare` have the same counts with every cell measured."""

    def public(at: Path) -> Case:
        made = sparse(at)
        made.keys.update({"public_data": True, "measure": "all"})
        return made

    with noise_of_the_cell() as sampler:
        made = make(tmp_path / "made", public, sampler, sizes=CUT, mechanism=MECHANISM)
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        monkeypatch.setitem(MECHANISMS, MECHANISM, drawn_by(MECHANISM, {"opendp": Sampling(sampler)}))
        comparison = make_comparison(load_spec(tmp_path / "made" / "spec.yaml"), [MECHANISM], [4.0], 1)
        tried = comparison.entries[0].try_on(comparison.table).released
        assert [counts_of(nodes) for nodes in levels_of(made.release)] == [counts_of(nodes) for nodes in tried]


def test_margins_beside_a_large_tree_leave_all_above_its_finest_level_measured(tmp_path: Path) -> None:
    """With views that are calibrated, every cell above the finest level is measured, and the folder is in order."""
    folder = Wide(tmp_path, trips()).release(noise={"sampler": "table"}, measure="all")
    manifest = manifest_of(folder)
    assert manifest.measure == "above"
    assert [entry.cells for entry in manifest.levels][:4] == [1, 20, 400, 64_000]
    assert manifest.levels[4].cells < 10_240_000
    assert verify_answer(folder).failures == []

"""Mechanisms in the store: the same as in memory however they are cut or begun again, with every cell measured or survivors' cells."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import flows.planning.compatibility
import tasks.shrink.task
import tasks.tree.branches
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.cli.main import WRONG, main
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release, reserved_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from flows.walks.runner import Submit, report_nothing
from storage.counts.columns import NOISY, VARIANCE
from storage.database.connections import store
from storage.errors import SpecError, StageFailed
from storage.ledger.events import charges_of
from storage.record import load_record
from storage.releases.register import find_release
from storage.releases.seals import EstimateKind, list_branches, list_learnt, list_seals
from tasks.format.manifest import Manifest
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.optimize.reconcile import least_squares
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.job import tree_of
from tests.support.cases import CASES, Case, case_csv
from tests.support.draws import place_of
from tests.support.folders import changed, page_of, rewrite
from tests.support.laws import drawn_by
from tests.support.library import Library
from tests.support.making import (
    CUT,
    MECHANISM,
    Made,
    levels_of,
    make,
    no_noise,
    noise_of_the_cell,
    noted,
    quick,
    sealed_of,
)
from tests.support.passes import replay

KINDS: tuple[EstimateKind, ...] = ("statistics", "prior")
Listed = list[list[list[int]]]


@pytest.fixture(autouse=True)
def _every_level_has_a_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a prior be fitted to a level of any size."""
    monkeypatch.setattr(tasks.shrink.task, "FEWEST", 1)


@contextmanager
def limit(measure: str | None) -> Iterator[dict[str, Any]]:
    """Let no more cells of a level be measured than leads to some cells, and yield the keys that ask for them."""
    with pytest.MonkeyPatch.context() as patch:
        if measure == "above":
            patch.setattr(flows.planning.compatibility, "MOST_MEASURED", 143)  # of the 144 pairs of municipalities
        yield {} if measure is None else {"measure": "all" if measure == "above" else measure}


def manifest_of(folder: Path) -> Manifest:
    """Return the manifest of a published folder."""
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


def listed(levels: list[Frontier]) -> Listed:
    """Return, per level, the areas and the counts of its nodes, in their order."""
    return [[column.tolist() for column in (*nodes.areas, nodes.counts)] for nodes in levels]


def kept_by_count(true_counts: IntArray, scale: float, threshold: int) -> tuple[IntArray, IntArray]:
    """Keep the leaves that reach a threshold with noise that depends on their true count alone."""
    noisy = true_counts * 7919 % 13 - 6 + true_counts
    return np.flatnonzero(noisy >= threshold), noisy[noisy >= threshold]


def no_threshold(true_counts: IntArray, scale: float, threshold: int) -> tuple[IntArray, IntArray]:
    """Keep everything as it is."""
    return np.arange(len(true_counts)), true_counts


def a_hundred_more(sampler: Any) -> Any:
    """Return a sampler by which every cell has a hundred records more; a histogram's, what it keeps."""

    def sample(true_counts: IntArray, *scale: Any) -> Any:
        drawn = sampler(true_counts, *scale)
        return (drawn[0], drawn[1] + 100) if isinstance(drawn, tuple) else drawn + 100

    return sample


def public(case: Callable[[Path], Case], mechanism: str, **keys: Any) -> Callable[[Path], Case]:
    """Return a case whose table may be seen, with little noise and with other keys."""

    def made(folder: Path) -> Case:
        of_case = case(folder)
        of_case.keys["privacy"] |= {"epsilon": 40.0}
        of_case.keys["budget"] |= {"epsilon": 40.0}
        if mechanism != "stability_histogram":
            of_case.keys["privacy"]["accountant"] = "zcdp"
        of_case.keys.update(public_data=True, **keys)
        return of_case

    return made


def tried_on(spec: Path, mechanism: str, sampler: Any, **change: Any) -> tuple[Any, Listed]:
    """Return the plan of a trial of `compare` with a sampler and a changed mechanism, and what it comes to, uncut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, mechanism, replace(MECHANISMS[mechanism], **change))
        patch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, {"opendp": Sampling(sampler)}))
        comparison = make_comparison(load_spec(spec), [mechanism], [40.0], 1)
        [entry] = comparison.entries
        return entry.plan, listed(entry.try_on(comparison.table).released)


def sparse(folder: Path) -> Case:
    """Make the plain case with a tenth of its trips, so that many cells are empty."""
    made = case_csv(folder)
    few = pl.read_csv(folder / "trips.csv", infer_schema=False)
    few.gather_every(10).write_csv(folder / "trips.csv")
    return replace(made, truth=made.truth.gather_every(10))


ROWS, PATHS, DUCKDB = "Parquet without counts, origin tree", "a column per level", "DuckDB, two codebooks"
CSV, SPARSE = "CSV, destination tree", "few trips"
thorough = pytest.mark.thorough


@pytest.mark.parametrize(
    ("mechanism", "measure", "case", "priority"),
    [
        pytest.param("inftda", None, CSV, "false_positives", marks=thorough),
        ("inftda", None, PATHS, "false_negatives"),
        pytest.param("inftda", None, CSV, "least_squares", marks=thorough),
        pytest.param("tda_l2", None, ROWS, None, marks=thorough),
        pytest.param("tda_linf", None, ROWS, None, marks=thorough),
        pytest.param(MECHANISM, None, PATHS, None, marks=thorough),
        pytest.param(MECHANISM, None, DUCKDB, None, marks=thorough),
        pytest.param(MECHANISM, "all", SPARSE, None, marks=thorough),
        (MECHANISM, "above", SPARSE, None),
        ("inftda_lenient", None, CSV, None),
        pytest.param("inftda_lenient", "all", SPARSE, None, marks=thorough),
        pytest.param("inftda_lenient", "above", SPARSE, None, marks=thorough),
        ("inftda_shrunk", "survivors", SPARSE, None),
        pytest.param("inftda_shrunk", "all", DUCKDB, None, marks=thorough),
        pytest.param("gaussian", None, CSV, None, marks=thorough),
        ("stability_histogram", None, CSV, None),
        ("unbiased_tree", None, CSV, None),
        *(pytest.param(name, None, CSV, None, marks=thorough) for name in ("cascade", "wavelet", "hierarchical")),
    ],
)
def test_the_store_and_memory_agree(
    mechanism: str,
    measure: str | None,
    case: str,
    priority: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release in branches, a trial of `compare`, and what follows from the sealed noisy counts alone come to the same counts."""
    with limit(measure) as keys, noise_of_the_cell() as of_the_cell:
        keys |= {"priority": priority} if priority else {}
        sampler: Any = kept_by_count if mechanism == "stability_histogram" else of_the_cell
        exactly: Any = no_threshold if sampler is kept_by_count else no_noise
        made = make(
            tmp_path / "made",
            public(sparse if case == SPARSE else CASES[case], mechanism, **keys),
            sampler,
            sizes=CUT,
            mechanism=mechanism,
        )
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        released = listed(levels_of(made.release))
        plan, tried = tried_on(made.home.parent / "spec.yaml", mechanism, sampler)
        _, exact = tried_on(made.home.parent / "spec.yaml", mechanism, exactly)
    assert plan.levels == made.release.levels
    assert released == tried
    assert released[-1] != exact[-1]  # so that it is noisy
    recipe = MECHANISMS[mechanism]
    if recipe.cells == "survivors":
        recipe = replace(recipe, measure=measure or recipe.measure)
        sealed = sealed_of(made.release)
        again = replay(tree_of(made.release), made.release.levels, sealed, recipe, priority=priority)
        assert listed(again.released) == released
    if measure and recipe.chooses_cells:
        check_measured(made, measure)
    assert verify_answer(made.folder).failures == []


SAID: dict[str, list[str]] = {
    "all": ["Every cell of every level was measured"],
    "above": [
        "Every cell of the levels 0 to 5 was measured",
        "At level 6, only cells below a cell of level 5",
    ],
    "survivors": [],
}


def check_measured(made: Made, measure: str) -> None:
    """Check that seals and noisy counts hold every cell of the complete levels once, and that manifest and README say which."""
    with store() as con:
        record = load_record(con, made.release.id)
    manifest, depth = manifest_of(made.folder), len(made.release.levels) - 1
    assert record.release.terms.measure == manifest.measure == measure
    assert len(record.branches) > 2
    possible, measured = ([getattr(of, name) for of in levels] for name, levels in (
        ("possible_cells", record.release.levels), ("cells", manifest.levels)
    ))  # fmt: skip
    complete = {"all": depth, "above": depth - 1, "survivors": 0}[measure]
    assert measured[: complete + 1] == possible[: complete + 1]
    assert (measured[-1] == possible[-1]) == (measure == "all")
    for entry in manifest.levels[1:]:
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{entry.level}.parquet")
        areas = [axis for axis, level in entry.axes.items() if level]
        assert noisy.height == noisy.select(areas).unique().height == entry.cells
        assert entry.nonzero == made.level(entry.level).height
        assert (made.level(entry.level)["count"] > 0).all()
    assert [level.nonzero for level in record.released_levels()] == [entry.nonzero for entry in manifest.levels]
    readme = " ".join((made.folder / "README.md").read_text().split())
    assert all(words in readme for words in SAID[measure])
    assert ("was measured, also where" in readme) == (measure != "survivors")
    assert (SAID["all"][0] in page_of(made.folder)) == (measure == "all")


def all_to_the_first(_: object, first: IntArray, totals: IntArray) -> IntArray:
    """Give each parent's whole total to its first cell."""
    counts = np.zeros(first[-1], dtype=np.int64)
    has_any = np.diff(first) > 0
    counts[first[:-1][has_any]] = totals[has_any]
    return counts


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "noise": ("inftda", {}),
    "noise of a histogram": ("stability_histogram", {}),
    "repair": ("inftda", {"repair": {"false_positives": all_to_the_first}}),
    "repair before a finish": ("inftda_reconciled", {"repair": {"false_positives": all_to_the_first}}),
    "finish": ("inftda_reconciled", {"finish": least_squares(all_to_the_first)}),
    "finish of a lenient one": ("inftda_lenient", {"finish": least_squares(all_to_the_first)}),
    "a finish where there was none": ("tda_l2", {"finish": least_squares(all_to_the_first)}),
    "no finish where there was one": ("inftda_reconciled", {"finish": None}),
}
SOME = ["noise of a histogram", "finish"]


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in SOME else [pytest.mark.thorough]) for what in CHANGES]
)
def test_a_change_to_a_mechanism_is_seen_by_both(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its choices is another one, a release and a trial come to the same other counts."""
    mechanism, change = CHANGES[what]
    with noise_of_the_cell() as of_the_cell:
        sampler: Any = kept_by_count if mechanism == "stability_histogram" else of_the_cell
        other = sampler if change else a_hundred_more(sampler)
        with monkeypatch.context() as patch:
            patch.setitem(MECHANISMS, mechanism, replace(MECHANISMS[mechanism], **change))
            made = make(tmp_path / "made", public(case_csv, mechanism), other, sizes=CUT, mechanism=mechanism)
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        _, before = tried_on(made.home.parent / "spec.yaml", mechanism, sampler)
        _, after = tried_on(made.home.parent / "spec.yaml", mechanism, other, **change)
    assert listed(levels_of(made.release)) == after
    assert after[-1] != before[-1]


@cache
def uncut(place: Path, mechanism: str, measure: str) -> Mapping[str, bytes]:
    """Return the tables of a release that is made in one piece, with noise of the cell."""
    folder = place / f"{mechanism}-{measure}"
    with limit(measure) as keys, noise_of_the_cell() as sampler:
        return make(folder, quick(case_csv, **keys), sampler, workers=1, mechanism=mechanism).tables()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what the tests of this file share."""
    return tmp_path_factory.mktemp("uncut")


SMALL = {**CUT, "CELL_BYTES": 2_000_000}


@pytest.mark.parametrize(
    ("mechanism", "measure", "run"),
    [
        (MECHANISM, "above", {"max_memory": "256MB"}),
        ("inftda_shrunk", "all", {}),
        pytest.param(MECHANISM, "survivors", {}, marks=thorough),
        pytest.param(MECHANISM, "all", {"max_memory": "256MB"}, marks=thorough),
        pytest.param("inftda_shrunk", "survivors", {}, marks=thorough),
        pytest.param("inftda_lenient", "all", {"max_memory": "256MB"}, marks=thorough),
        pytest.param("inftda_lenient", "above", {"max_memory": "256MB"}, marks=thorough),
    ],
)
def test_tables_do_not_depend_on_how_the_work_was_cut(
    mechanism: str, measure: str, run: dict[str, Any], tmp_path: Path, place: Path
) -> None:
    """Where noise is tied to the cells, branches of branches, chunks, workers and memory change no byte of the tables."""
    with limit(measure) as keys, noise_of_the_cell() as sampler:
        sizes = SMALL if run else CUT
        cut = make(tmp_path / "cut", quick(case_csv, **keys), sampler, sizes=sizes, mechanism=mechanism, run=run)
    assert cut.tables() == uncut(place, mechanism, measure)


SECOND_PASS, PRIORS = ["estimate_branch", "settle_branch"], ["gather_branch", "fit_level", "share_branch"]


@pytest.mark.parametrize(
    ("at", "mechanism", "measure"),
    [
        ("measure_branch", MECHANISM, "above"),
        ("settle_branch", MECHANISM, "above"),
        ("share_branch", "inftda_shrunk", "all"),
        pytest.param("optimise_branch", MECHANISM, "all", marks=thorough),
        pytest.param("estimate_branch", MECHANISM, "survivors", marks=thorough),
        pytest.param("settle_branch", MECHANISM, "survivors", marks=thorough),
        pytest.param("gather_branch", "inftda_shrunk", "survivors", marks=thorough),
        pytest.param("fit_level", "inftda_shrunk", "survivors", marks=thorough),
    ],
)
def test_a_release_that_failed_is_finished_with_the_same_bytes(
    at: str, mechanism: str, measure: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun again it measures what its terms say, does nothing twice that was done, draws nothing again, and gives the same bytes."""
    monkeypatch.setattr(tasks.noise.truth, "true_counts_of", noted)
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2)
    with noise_of_the_cell() as sampler:
        sampling = Sampling(sampler, GAUSSIAN.samplers["opendp"].tau)
        monkeypatch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, {"opendp": sampling}))
        case = quick(case_csv, mechanism=mechanism)(tmp_path)
        with limit(measure) as keys:
            (tmp_path / "spec.yaml").write_text(yaml.safe_dump(case.keys | keys))
            plan = make_plan(load_spec(tmp_path / "spec.yaml"))
        done: list[tuple[Any, ...]] = []

        def is_place(place: tuple[Any, ...]) -> bool:
            return place[0] == 3 if at in PRIORS else "b01" in place

        def submit_to(executor: Executor, *, is_faulty: bool) -> Submit:
            def run(stage: Any, *arguments: Any) -> Any:
                if is_faulty and stage.name == at and is_place(place_of(arguments)):
                    raise OSError
                if stage.name in {*SECOND_PASS, *PRIORS}:
                    done.append((stage.name, *place_of(arguments)))
                return stage.fn(*arguments)

            return lambda stage, *arguments: executor.submit(run, stage, *arguments)

        release = new_release(plan, release_id="stopped")
        with ThreadPoolExecutor(1) as executor, pytest.raises(StageFailed, match="OSError"):
            make_release(plan, release, submit_to(executor, is_faulty=True), report_nothing)
        with store() as con:
            sealed, record = list_seals(con, "stopped"), load_record(con, "stopped")
            assert len(list_branches(con, "stopped")) > 2
            learnt = {kind: list_learnt(con, "stopped", kind) for kind in KINDS}
        if not record.settled:  # zeros of the first pass are no counts that are released
            assert not any(of.nonzero for of in record.released_levels()[1:] if record.keeps_zeros(of.level))
        with ThreadPoolExecutor(1) as executor:
            finish_release("stopped", submit_to(executor, is_faulty=False), report_nothing)
    assert len(done) == len(set(done))
    with store() as con:
        assert sealed.items() <= list_seals(con, "stopped").items()
        assert (sealed == list_seals(con, "stopped")) == (at in {*SECOND_PASS, *PRIORS})
        assert all(learnt[kind].items() <= list_learnt(con, "stopped", kind).items() for kind in KINDS)
        assert find_release(con, "stopped").state == "published"
    if mechanism == MECHANISM:
        left = {
            ".".join(path.name.split(".")[-2:]) for path in (tmp_path / "home" / "shards" / "stopped").glob("level_*")
        }
        assert left == {"noisy.parquet", "settled.parquet"}
    published = {path.name: path.read_bytes() for path in (Path(release.folder) / "counts").iterdir()}
    assert published == {name: of for name, of in uncut(place, mechanism, measure).items() if name in published}
    assert verify_answer(Path(release.folder)).failures == []


def test_a_second_pass_and_more_cells_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a second pass reads, each level has one charge, of the amount that it has without one; survivors' cells are the default."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    charges = []
    choices = [("inftda", None), (MECHANISM, None), *((MECHANISM, measure) for measure in SAID)]
    for mechanism, measure in choices:
        with limit(measure) as keys:
            case = quick(case_csv, mechanism=mechanism, **keys)(tmp_path)
            (tmp_path / "spec.yaml").write_text(yaml.safe_dump(case.keys))
            plan = make_plan(load_spec(tmp_path / "spec.yaml"))
        assert reserved_release(plan, "one", tmp_path).terms.measure == (measure or "survivors")
        charges.append([(of.level, of.rho, of.sigma) for of in plan.levels if of.rho])
    assert charges == [charges[0]] * len(choices)
    assert [level for level, *_ in charges[0]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("measure", "privacy", "is_empty"),
    [
        ("above", {"invariants": ["province"], "i_accept_unprotected": True}, False),
        ("all", {"neighbours": "add_remove"}, True),
        pytest.param("above", {"neighbours": "add_remove"}, False, marks=thorough),
    ],
    ids=["exact levels", "an empty table", "an unknown total"],
)
def test_every_cell_may_be_measured_of(
    measure: str, privacy: dict[str, Any], is_empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact levels are read whole and released as they are; without noise nothing below a total of 0 is released."""

    def case(folder: Path) -> Case:
        made = quick(case_csv, **keys)(folder)
        made.keys["privacy"] |= privacy
        if is_empty:
            (folder / "trips.csv").write_text((folder / "trips.csv").read_text().splitlines()[0] + "\n")
        return made

    with limit(measure) as keys:
        sampler = no_noise if is_empty else discrete_gaussian
        made = make(tmp_path / "made", case, sampler, sizes=CUT, mechanism=MECHANISM)
    assert verify_answer(made.folder).failures == []
    if is_empty:
        assert [made.level(level).height for level in range(7)] == [1, 0, 0, 0, 0, 0, 0]
        assert [entry.cells for entry in manifest_of(made.folder).levels][:5] == [1, 2, 4, 8, 16]
    for level in range(5) if "invariants" in privacy else ():
        assert made.errors(level).sum() == 0
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{level}.parquet")
        assert (noisy[VARIANCE] == 0).all()
        assert noisy[NOISY].sum() == made.level(0)["count"].item()
        assert noisy.height == made.release.levels[level].possible_cells
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    with store() as con:
        assert {charge.state for charge in charges_of(con, made.release.id).values()} == {"released"}


def test_cells_that_are_missing_are_found(library: Library, tmp_path: Path) -> None:
    """A folder whose noisy counts lack cells that were measured by its own account is not in order."""
    folder, plain = (library[name].copied(tmp_path) for name in ("trips in two passes", "trips"))
    fewer = library["trips in two passes"].copied(tmp_path / "fewer")
    assert '"measure"' not in (folder / "manifest.json").read_text()  # as before there was a choice
    rewrite(folder, lambda manifest: manifest.update(measure="all"))
    told = "must have a row for every cell of the level"
    assert any(told in failure for failure in verify_answer(folder).failures)
    rewrite(plain, lambda manifest: manifest.update(measure="all"))
    assert verify_answer(plain).failures
    changed("noisy_counts/level_3.parquet", lambda table: table.head(3))(fewer)
    assert verify_answer(fewer).failures


def test_questions_about_cells_without_a_row_are_answered(tmp_path: Path) -> None:
    """Cells that were measured and have no row have a count of 0, and intervals that their own level's noise allows."""
    made = make(tmp_path / "made", quick(case_csv, measure="all"), discrete_gaussian, mechanism=MECHANISM)
    rows = made.level(6).select("origin_municipality", "destination_municipality")
    codes = pl.read_csv(made.home.parent / "codebook.csv", infer_schema=False)["municipality"].sort()
    pairs = codes.to_frame("origin_municipality").join(codes.to_frame("destination_municipality"), how="cross")
    absent = pairs.join(rows, on=pairs.columns, how="anti").rows()
    answers = [query_answer(made.folder, *pair, [], simultaneous=False) for pair in absent[:20]]
    assert {(answer.count, answer.low) for answer in answers} == {(0, 0)}
    highs = [answer.high for answer in answers if answer.high is not None]
    assert len(highs) == len(answers) == 20
    assert max(highs) > 0  # though a noisy count far below 0 may leave no room


def test_a_comparison_tries_all_cells_by_name_or_by_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a colon, or as the spec's key, the cells of an entry are those of a release; others say that they have no choice."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    made = quick(case_csv)(tmp_path)
    made.keys.update({"public_data": True, "measure": "auto", "mechanism": MECHANISM})
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(made.keys))
    names = [MECHANISM, f"{MECHANISM}:survivors", "inftda_lenient:all", "inftda"]
    comparison = make_comparison(load_spec(tmp_path / "spec.yaml"), names, [0.1], 1)
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

"""Releases of any features: made-up tables and UCI Adult, from the spec to the verified folder with synthetic records."""

import hashlib
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

import storage.counts.published
import tasks.format.synthetic_records
import tasks.publish.task
import tasks.validate.size
from flows.answers.verify import verify_answer
from flows.execution.driver import finish_release, make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.database.connections import store
from storage.errors import StageFailed, TrellisError
from storage.releases.register import Release, find_release, list_releases
from tasks.verify.folder import verify

if TYPE_CHECKING:
    from tests.support.user import User

REPOSITORY = Path(__file__).parents[3]
PEOPLE = 400

SCHOOLS = [("low", "1"), ("low", "01"), ("high", "2"), ("high", "10")]
FEATURES = ["area", "school", "one", "sex"]  # `area` is what Trellis itself calls a number in the store
ORDER = ["sex", "school", "area", "one"]
COLUMNS = [  # in the order of refinement
    *([], ["sex"], ["school_stage", "sex"], ["school_stage", "school_grade", "sex"]),
    *(["area", "school_stage", "school_grade", "sex"], ["area", "school_stage", "school_grade", "one", "sex"]),
]
SPEC: dict[str, Any] = {
    "name": "people",
    "dataset": "made-up-people",
    "input": {"table": "people.csv", "features": FEATURES},
    "hierarchy": {
        "area": ["n", "s", "e"],
        "school": {"table": "schools.csv", "levels": ["stage", "grade"]},
        "one": {"values": 1},
        "sex": {"values": 2},
    },
    "release": {"order": ORDER},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one made-up person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 5000.0,  # no noise, but for one draw in 10**200
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 100000.0, "delta": 1.0e-7},
}


def draw_people(generator: np.random.Generator) -> pl.DataFrame:
    """Return made-up people, a row each, with the finest code of each feature."""
    area = generator.choice(["n", "s", "s"], size=PEOPLE)  # nobody is in the east
    grade = generator.choice([grade for _, grade in SCHOOLS[:3]], size=PEOPLE)
    sex = generator.integers(0, 2, size=PEOPLE).astype(str)
    return pl.DataFrame({"sex": sex, "area": area, "one": ["0"] * PEOPLE, "school": grade, "name": ["nobody"] * PEOPLE})


def write_tables(folder: Path) -> pl.DataFrame:
    """Write the made-up people and the codebook of their schools, and return what is true of them, with every level."""
    people, schools = draw_people(np.random.default_rng(3)), pl.DataFrame(SCHOOLS, ["stage", "grade"], orient="row")
    people.write_csv(folder / "people.csv")
    schools.write_csv(folder / "schools.csv")
    true = people.join(schools, left_on="school", right_on="grade", how="left")
    return true.select("area", school_stage="stage", school_grade="school", one="one", sex="sex")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Release]:
    """Return what makes the release of a spec in this process, and notes the stages that it takes."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))

    def release(spec: dict[str, Any], stages: list[str] | None = None) -> Release:
        noted = stages if stages is not None else []
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
        plan = make_plan(load_spec(tmp_path / "spec.yaml"))
        made = new_release(plan)
        with ThreadPoolExecutor(2) as threads:
            submit = submit_to(threads)

            def counted(stage: Any, *arguments: Any) -> Any:
                noted.append(stage.name)
                return submit(stage, *arguments)

            make_release(plan, made, counted, report_nothing)
        return made

    return release


def tables(folder: str | Path, levels: int) -> list[pl.DataFrame]:
    """Return the tables of a published folder, level by level, without the intervals."""
    paths = [Path(folder) / "counts" / f"level_{level}.parquet" for level in range(levels)]
    return [pl.read_parquet(path).drop("low", "high", "signal") for path in paths]


def text_csv(path: Path) -> pl.DataFrame:
    """Return a CSV with every column as text."""
    return pl.read_csv(path, infer_schema=False)


def marginal(true: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Return the true counts of some columns, sorted by their codes."""
    if not columns:
        return pl.DataFrame({"count": [true.height]}, schema={"count": pl.Int64})
    return true.group_by(columns).agg(pl.len().cast(pl.Int64).alias("count")).sort(columns)


@pytest.mark.thorough
def test_people_are_released_by_the_command_line(newcomer: "User", prefect: Any) -> None:
    """Without noise every level is the marginal of its refinements, counts.csv the contingency table, records the rows."""
    user, true = newcomer, write_tables(newcomer.folder)
    (user.folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    said = user.run("release", "spec.yaml", "--records", "--json")
    assert (said.code, said.stderr) == (0, "")
    release = said.json()
    folder = Path(release["folder"])
    assert release["levels"][3]["axes"] == {"area": None, "school": "grade", "one": None, "sex": "sex"}
    for columns, table in zip(COLUMNS, tables(folder, 6), strict=True):
        assert_frame_equal(table, marginal(true, columns))
    counts = text_csv(folder / "counts.csv").drop("low", "high", "signal")
    assert_frame_equal(counts.cast({"count": pl.Int64}), marginal(true, COLUMNS[-1]))
    of_records = ["area", "school_grade", "one", "sex"]
    assert_frame_equal(text_csv(folder / "records.csv"), true.sort(COLUMNS[-1]).select(of_records))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["records"], manifest["spec"]) == ("csv", SPEC)
    assert set(manifest["codebooks"]) == set(FEATURES)
    readme = (folder / "README.md").read_text()
    assert "| level | refined | rows |" in readme
    assert "| 2 | school stage | " in readme
    assert "`records.csv`" in readme
    assert verify_answer(folder).failures == []
    shown = user.run("show", release["id"])
    assert [
        line.split()[1] for line in shown.stdout.splitlines() if line.startswith(" ") and line.split()[0].isdigit()
    ] == [
        *("everything", "sex", "school", "school", "area", "one"),
    ]
    levels = json.loads(prefect.artifacts(release["id"])["levels"])
    assert [row["refined"] for row in levels] == ["everything", "sex", "school stage", "school grade", "area", "one"]


@pytest.mark.parametrize(("column", "code"), [("sex", "2"), ("sex", " 1"), ("school", "3"), ("area", "w")])
def test_a_value_outside_its_domain_is_refused(make, tmp_path, capfd, column, code) -> None:
    """A code that a domain lacks is refused by the name of its column, and nobody learns which code or row it was."""
    write_tables(tmp_path)
    people = text_csv(tmp_path / "people.csv")
    pl.concat([people, people[:2].with_columns(pl.lit(code).alias(column))]).write_csv(tmp_path / "people.csv")
    lacking = "the codebook" if column == "school" else rf"hierarchy\.{column}"  # where the spec itself lists them
    with pytest.raises(
        TrellisError, match=rf"^input.table: column {column} has codes that {lacking} lacks\.(\n|$)"
    ) as refused:
        make(SPEC)
    assert refused.value.field == "input.features"
    assert re.match(rf"Add every possible code to {lacking}", refused.value.hint)
    assert not (tmp_path / "out").exists()


def with_fitting_checksums(folder: Path) -> Path:
    """Write the checksums of a folder that was spoilt."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def spoilt(folder: Path, records: pl.DataFrame, kind: str) -> list[str]:
    """Return what `verify` says of a folder with other records."""
    path = folder / f"records.{kind}"
    if kind == "csv":
        records.write_csv(path)
    else:
        records.write_parquet(path)
    return verify(with_fitting_checksums(folder))


@pytest.mark.heavy("a release fails, and is finished")
@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.thorough)])
def test_records_survive_a_failure_and_are_verified(make, tmp_path, monkeypatch, kind) -> None:
    """A rerun publishes the records that were asked for, and `verify` finds whatever was done to them since."""
    true = write_tables(tmp_path)
    if kind == "parquet":
        monkeypatch.setattr(tasks.validate.size, "MOST_CSV_ROWS", PEOPLE - 1)
    monkeypatch.setattr(tasks.format.synthetic_records, "CHUNK_RECORDS", 7)

    def fail(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(tasks.publish.task, "record_tables", fail)
        with pytest.raises(StageFailed):
            make(SPEC | {"release": {"order": ORDER, "records": True}})
    with store() as con:
        (failed,) = list_releases(con)
        folder = Path(find_release(con, failed.id).folder)
    assert not folder.exists()
    with ThreadPoolExecutor(2) as threads:
        finish_release(failed.id, submit_to(threads), report_nothing)
    assert verify_answer(folder).failures == []
    assert {path.name for path in folder.glob("records.*")} == {f"records.{kind}"}
    assert f"`records.{kind}`" in (folder / "README.md").read_text()
    records = text_csv(folder / "records.csv") if kind == "csv" else pl.read_parquet(folder / "records.parquet")
    assert_frame_equal(records, true.sort(COLUMNS[-1]).select("area", "school_grade", "one", "sex"))
    wrong = f"records.{kind} does not hold the records that the finest level counts."
    assert spoilt(folder, records[1:], kind) == [wrong]
    assert spoilt(folder, pl.concat([records, records[-1:]]), kind) == [wrong]
    assert spoilt(folder, records.with_columns(pl.lit("1").alias("one")), kind) == [wrong]
    assert spoilt(folder, records[:0], kind) == [wrong]
    columns = f"records.{kind} must have the columns of the finest codes."
    assert spoilt(folder, records.select("sex", "area", "one", "school_grade"), kind) == [columns]
    assert spoilt(folder, records.drop("sex"), kind) == [columns]
    (folder / f"records.{kind}").write_text("")
    assert verify(with_fitting_checksums(folder)) == [
        f"records.{kind} is missing or is not a readable file of records."
    ]
    assert spoilt(folder, records, kind) == []


def test_too_many_records_are_left_out(make, tmp_path, monkeypatch) -> None:
    """Records of which there would be too many are left out, which the folder says."""
    write_tables(tmp_path)
    monkeypatch.setattr(tasks.validate.size, "MOST_RECORDS", PEOPLE - 1)
    folder = Path(make(SPEC | {"release": {"order": ORDER, "records": True}}).folder)
    assert list(folder.glob("records.*")) == []
    assert json.loads((folder / "manifest.json").read_text())["records"] == "left out"
    assert "The spec asks for synthetic records. They are left out" in (folder / "README.md").read_text()
    assert verify(folder) == []


@pytest.mark.parametrize("by_path", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_trips_have_records_too(make, tmp_path, by_path) -> None:
    """Trips are records with the finest code of both ends, or with the whole path where the code alone tells no area."""
    codes = [("a", "1"), ("a", "2"), ("b", "1" if by_path else "3")]
    pl.DataFrame(codes, ["region", "town"], orient="row").write_csv(tmp_path / "codebook.csv")
    trips = [(*home, *work, 1 + number) for number, (home, work) in enumerate(zip(codes, codes[::-1], strict=True))]
    pl.DataFrame(trips, ["hr", "ht", "wr", "wt", "n"], orient="row").write_csv(tmp_path / "trips.csv")
    ends = {"origin": ["hr", "ht"], "destination": ["wr", "wt"]} if by_path else {"origin": "ht", "destination": "wt"}
    spec = SPEC | {
        "input": {"table": "trips.csv", "count": "n", **ends},
        "hierarchy": {"table": "codebook.csv", "levels": ["region", "town"]},
        "release": {"tree": "origin", "finest": "town", "records": True},
    }
    folder = Path(make(spec).folder)
    records, counts = text_csv(folder / "records.csv"), text_csv(folder / "counts.csv").drop("low", "high", "signal")
    assert records.columns == (counts.columns[:-1] if by_path else ["origin_town", "destination_town"])
    expected = [row[:-1] for row in counts.rows() for _ in range(int(row[-1]))]
    assert records.rows() == [row if by_path else (row[1], row[3]) for row in expected]
    assert records.height == 6
    assert verify(folder) == []


def test_large_levels_are_views_of_features(make, tmp_path, monkeypatch) -> None:
    """A level that the store keeps by numbers reads as it was published: without noise, the marginal of its refinements."""
    true = write_tables(tmp_path)
    monkeypatch.setattr(storage.counts.published, "TABLE_ROWS", 1)
    made = make(SPEC)
    for columns, table in zip(COLUMNS, tables(made.folder, 6), strict=True):
        assert_frame_equal(table, marginal(true, columns))
    counts = text_csv(Path(made.folder) / "counts.csv").drop("low", "high", "signal")
    assert_frame_equal(counts.cast({"count": pl.Int64}), marginal(true, COLUMNS[-1]))
    assert verify_answer(Path(made.folder)).failures == []
    with store() as con:
        for level in range(6):
            rows = con.sql(f'SELECT * FROM "{made.id}".level_{level}').pl()
            assert_frame_equal(rows, pl.read_parquet(Path(made.folder) / "counts" / f"level_{level}.parquet"))


@pytest.mark.thorough
@pytest.mark.heavy("sixty-two levels, each a task run of three")
def test_sixty_features(make, tmp_path) -> None:
    """Sixty binary features, 2**60 cells, and one of nine values are 62 consistent levels in at most 200 task runs."""
    generator, names = np.random.default_rng(5), [f"f{number:02d}" for number in range(59)] + ["more"]
    groups = generator.random((4, 60)).round()
    rows = np.abs(groups[generator.integers(0, 4, size=300)] - (generator.random((300, 60)) < 0.1)).astype(int)
    rows[:, -1] = generator.integers(0, 20, size=300)
    pl.DataFrame(rows, names, orient="row").write_csv(tmp_path / "people.csv")
    domains = {name: {"values": 2} for name in names} | {"more": {"values": 20}}  # 2**59 * 20 > 2**63
    spec = SPEC | {
        "input": {"table": "people.csv", "features": names},
        "hierarchy": domains,
        "release": {"order": names[::-1]},
        "privacy": SPEC["privacy"] | {"epsilon": 50.0},
        "noise": {"sampler": "table"},
    }
    stages: list[str] = []
    made = make(spec, stages)
    assert len(stages) <= 200
    assert verify_answer(Path(made.folder)).failures == []
    levels = tables(made.folder, 61)
    for number, (above, level) in enumerate(pairwise(levels)):
        columns = names[60 - number :]
        assert above.columns == [*columns, "count"]
        together = (
            level.group_by(columns).agg(pl.col("count").sum()) if columns else level.select(pl.col("count").sum())
        )
        assert_frame_equal(together.sort(columns) if columns else together, above)
    assert levels[0]["count"].item() == 300
    assert levels[-1].height > 4


def test_adult(real_data: Path, newcomer: "User") -> None:
    """UCI Adult is released by the spec that comes with the project, and its records read like the table."""
    if not (real_data / "adult").is_dir():
        pytest.skip(f"no real data: there is no {real_data / 'adult'}")
    spec = REPOSITORY / "deployments" / "specs" / "adult.yaml"
    output = str(newcomer.folder / "out")
    said = newcomer.run("release", str(spec), "--output", output, "--json", TRELLIS_DATA=str(real_data))
    assert (said.code, said.stderr) == (0, "")
    folder = Path(said.json()["folder"])
    assert verify_answer(folder).failures == []
    true, records = text_csv(real_data / "adult" / "adult.csv"), text_csv(folder / "records.csv")
    assert records.columns == ["sex", "race", "education-num_grade", "occupation"]
    assert records.height == true.height == 48_842
    for feature in ("sex", "race", "occupation"):
        released, really = (dict(table[feature].value_counts().iter_rows()) for table in (records, true))
        assert set(released) == set(really)
        assert max(abs(released[code] - really[code]) for code in really) < 300

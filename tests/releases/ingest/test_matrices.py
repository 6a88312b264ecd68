"""Matrices of zones, from OMX files and CSV: the same records as a table of the same trips."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openmatrix
import pytest
import tables
import yaml

from flows.api import release
from flows.forecast.check import check_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import InputError, SpecError, UsageError
from tasks.ingest.sources import matrices
from tasks.ingest.sources.locations import matrix_at
from tasks.ingest.tables import opened
from tasks.ingest.task import read_in_memory
from tests.support.spec import SPEC
from tests.support.tables import records

ZONES = ["101", "102", "203"]
CELLS = [[0, 5, 1], [7, 0, 0], [0, 11, 2]]
CODES = "district,zone\n" + "".join(f"{zone[0]},{zone}\n" for zone in ZONES)
RECORDS = [(0, 1, 5), (0, 2, 1), (1, 0, 7), (2, 1, 11), (2, 2, 2)]


def write_omx(path: Path, lookups: dict[str, list[Any]] | None = None, **cells: Any) -> None:
    """Write an OMX file of matrices and lookups."""
    with openmatrix.open_file(str(path), "w") as file:
        for name, of in cells.items():
            file[name] = np.asarray(of)
        for name, entries in (lookups or {}).items():
            file.create_mapping(name, entries)


def csv_of(cells: Any, zones: list[str] = ZONES) -> str:
    """Return a matrix as CSV."""
    rows = [[zone, *map(str, row)] for zone, row in zip(zones, cells, strict=True)]
    return "".join(",".join(row) + "\n" for row in [["zone", *zones], *rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a store, a codebook and a matrix in two forms."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "codes.csv").write_text(CODES)
    (tmp_path / "od.csv").write_text(csv_of(CELLS))
    numbers = [int(zone) for zone in ZONES]
    write_omx(tmp_path / "od.omx", {"taz": numbers}, trips=np.array(CELLS, dtype=float), small=np.array(CELLS, "u2"))
    return tmp_path


def spec_over(folder: Path, matrix: str = "od.omx::trips", name: str = "trips", **changes: Any) -> Path:
    """Write a spec over a matrix; keys of `input`, and None to take one out."""
    given = {"matrix": matrix} | changes
    keys = SPEC | {
        "name": name,
        "dataset": name,
        "input": {key: value for key, value in given.items() if value is not None},
        "hierarchy": {"table": "codes.csv", "levels": ["district", "zone"]},
        "release": {"tree": "destination", "finest": "zone"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


@pytest.mark.parametrize("cells_at_once", [1, 4, 2**21])
def test_matrices_are_ingested_as_tables_are(folder: Path, monkeypatch: pytest.MonkeyPatch, cells_at_once: int) -> None:
    """Rows are origins and columns destinations, in OMX of any type, in CSV and packed CSV, however few rows are read at once."""
    monkeypatch.setattr(matrices, "_CELLS", cells_at_once)
    (folder / "od.csv.gz").write_bytes(gzip.compress((folder / "od.csv").read_bytes()))
    long = [
        (home, work, count)
        for home, row in zip(ZONES, CELLS, strict=True)
        for work, count in zip(ZONES, row, strict=True)
    ]
    (folder / "long.csv").write_text("o,d,n\n" + "".join(f"{home},{work},{count}\n" for home, work, count in long))
    table = spec_over(folder, table="long.csv", matrix=None, origin="o", destination="d", count="n")
    assert records(table) == RECORDS
    for matrix in ("od.omx::trips", "od.omx::small", "od.csv", "od.csv.gz"):
        assert records(spec_over(folder, matrix)) == RECORDS


def test_a_matrix_is_released(folder: Path) -> None:
    """A spec with a matrix passes `check`, is released, and is published without the folder of the matrix; comparisons read it too."""
    spec = spec_over(folder, str(folder / "od.omx::trips"))
    assert check_answer(spec).ok
    published = load_spec(spec).published()["input"]
    assert published == {"matrix": "od.omx::trips"}
    assert release(spec).folder.is_dir()
    plan = make_plan(load_spec(spec))
    _, _, counts = read_in_memory(plan.source, plan.units, plan.promised)
    assert sorted(counts.tolist()) == sorted(count for *_, count in RECORDS)


def test_zones_are_named_by_a_lookup(folder: Path) -> None:
    """Without a lookup zones are numbers from 1 on; of several, the spec names one; codes may be numbers or texts."""
    (folder / "codes.csv").write_text("district,zone\na,1\na,2\nb,3\n")
    write_omx(folder / "bare.omx", trips=CELLS)
    assert records(spec_over(folder, "bare.omx::trips")) == RECORDS
    write_omx(folder / "two.omx", {"one": [1, 2, 3], "other": [3, 2, 1]}, trips=CELLS)
    with pytest.raises(InputError, match=r"^input\.zones must be given: two\.omx has the lookups one, other\.$"):
        records(spec_over(folder, "two.omx::trips"))
    turned = [(2 - home, 2 - work, count) for home, work, count in RECORDS]
    assert records(spec_over(folder, "two.omx::trips", zones="other")) == sorted(turned)
    (folder / "codes.csv").write_text("district,zone\na,A1\na,B\nb,C\n")
    with tables.open_file(str(folder / "text.omx"), "w") as file:
        file.create_group("/", "data")
        file.create_group("/", "lookup")
        file.create_carray("/data", "trips", obj=np.array(CELLS))
        file.create_array("/lookup", "names", np.array([b"A1", b"B", b"C"]))
    assert records(spec_over(folder, "text.omx::trips")) == RECORDS


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        (0.5, "must hold whole numbers"),
        (float("nan"), "must hold whole numbers"),
        (float("inf"), "must hold whole numbers"),
        (-3.0, "must be >= 0"),
        (1e300, "must hold whole numbers"),
    ],
)
def test_modelled_trips_are_refused(folder: Path, cell: float, rule: str) -> None:
    """A cell that is no whole number, or below 0, is refused by the rule and not shown; the hint says what a count is."""
    cells = np.array(CELLS, dtype=float)
    cells[0, 1] = cell
    write_omx(folder / "model.omx", {"taz": [int(zone) for zone in ZONES]}, trips=cells)
    (folder / "model.csv").write_text(csv_of(cells.tolist()))
    for matrix in ("model.omx::trips", "model.csv"):
        with pytest.raises(InputError, match=rf"^input\.matrix: column count {rule}") as refused:
            release(spec_over(folder, matrix))
        assert str(cell) not in str(refused.value)
        if "whole" in rule:
            assert "modelled trips are no counts" in refused.value.hint


def longer(text: str) -> str:
    """Add a cell to the last row."""
    return text.rstrip("\n") + ",918273\n"


@pytest.mark.parametrize(
    ("spoil", "rule", "hint"),
    [
        (longer, "cannot be read as a CSV matrix", "as many cells as the first line"),
        (lambda text: text.replace("101,0,5,1", "101,0,5"), "cannot be read as a CSV matrix", "as many cells"),
        (lambda text: text.replace(",", ";"), "must use commas", "commas"),
        (
            lambda text: text.replace("203,0", "999,0"),
            "column origin has codes that the codebook lacks",
            "every possible code",
        ),
        (lambda text: text.replace("101,0,5,1", "101,0,,1"), "column count must not be empty", ""),
        (lambda _: "", "has no line of destinations", "first line"),
    ],
)
def test_spoilt_csv_is_refused(folder: Path, spoil: Callable[[str], str], rule: str, hint: str) -> None:
    """Rows of another length, other separators, unknown zones and empty cells are refused by the key, and no cell is shown."""
    (folder / "od.csv").write_text(spoil(csv_of(CELLS)))
    with pytest.raises(InputError, match=rf"^input\.matrix: .*{rule}") as refused:
        release(spec_over(folder, "od.csv"))
    assert hint in refused.value.hint
    assert "918273" not in f"{refused.value!r} {vars(refused.value)}"


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ("zone,101,102,102\n101,0,918273,1\n", "line"),
        ("zone,101,102,102\n101,0,0,0\n", "line"),
        ("zone,101,102\n101,0,5\n102,0,6\n101,918273,0\n", "column"),
        ("zone,101,102\n101,0,5\n102,0,6\n101,0,0\n", "column"),
    ],
)
@pytest.mark.parametrize("cells_at_once", [1, 2**21])
def test_a_zone_stands_once_in_csv(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cells: str, where: str, cells_at_once: int
) -> None:
    """A zone that is twice a destination, or twice an origin, is refused as in OMX, whatever its cells hold; none is shown."""
    monkeypatch.setattr(matrices, "_CELLS", cells_at_once)
    (folder / "od.csv").write_text(cells)
    with pytest.raises(InputError) as refused:
        records(spec_over(folder, "od.csv"))
    assert str(refused.value) == f"input.matrix: the first {where} of od.csv must list each zone once."
    assert refused.value.field == "input.matrix"
    assert "918273" not in f"{refused.value!r} {vars(refused.value)} {refused.value.__context__}"


@pytest.mark.parametrize(
    ("matrix", "zones", "rule", "hint"),
    [
        ("od.omx::trip", None, "input.matrix: od.omx has no matrix trip.", "Did you mean trips?"),
        ("od.omx::trips", "tax", "input.zones: od.omx has no lookup tax.", "Did you mean taz?"),
        ("twice.omx::trips", None, "input.zones: the lookup taz must list each zone once.", ""),
        ("wide.omx::trips", None, "input.matrix: trips must be a matrix of 2 by 2 zones, as its lookup says.", ""),
        (
            "od.csv",
            "taz",
            "input.zones must be left out for a CSV matrix: its first line and column name the zones.",
            "",
        ),
        ("codes.omx::trips", None, "input.matrix: codes.omx cannot be read as an OMX matrix.", ""),
        ("od.omx", None, "input.matrix must end in .csv, .csv.gz or .omx::<matrix>, got od.omx.", "Name the matrix"),
        ("no.omx::trips", None, "input.matrix: there is no file", ""),
    ],
)
def test_what_is_no_matrix_is_refused(folder: Path, matrix: str, zones: str | None, rule: str, hint: str) -> None:
    """A name that is not in the file, and a file that is none, are refused by their key; `check` says the same."""
    write_omx(folder / "twice.omx", {"taz": [1, 1, 2]}, trips=CELLS)
    write_omx(folder / "wide.omx", {"taz": [1, 2]}, trips=[[1, 2, 3], [4, 5, 6]]) if "wide" in matrix else None
    (folder / "codes.omx").write_text(f"{CODES}\n")
    spec = spec_over(folder, matrix, zones=zones)
    with pytest.raises(InputError) as refused:
        records(spec)
    assert str(refused.value).startswith(rule)
    assert hint in refused.value.hint
    assert rule in str(check_answer(spec).problems)


def test_keys_of_columns_are_left_out_with_a_matrix(folder: Path) -> None:
    """A matrix has no columns, so keys that name one are refused by their own names."""
    for key in ("table", "origin", "destination", "count", "unit", "features", "group", "region"):
        with pytest.raises(SpecError, match=rf"^input\.{key} must be left out with input\.matrix") as refused:
            load_spec(spec_over(folder, **{key: "x"}))
        assert refused.value.field == f"input.{key}"


def test_a_table_or_a_matrix_is_given(folder: Path) -> None:
    """Neither, and zones without a matrix, are refused; `check` says once that a matrix in place of a table has a key of its own."""
    columns = {"origin": "o", "destination": "d", "matrix": None}
    with pytest.raises(SpecError, match=r"^input\.table must be given\.(\n|$)"):
        load_spec(spec_over(folder, **columns))
    with pytest.raises(SpecError, match=r"^input\.zones must be left out without input\.matrix"):
        load_spec(spec_over(folder, **columns, table="trips.csv", zones="taz"))
    (problem,) = check_answer(spec_over(folder, matrix=None, table="od.omx")).problems
    assert problem.field == "input.table"
    assert "name one by input.matrix (file.omx::matrix) in place of input.table" in problem.error


def test_a_charged_matrix_is_recognised(folder: Path) -> None:
    """The ledger knows it by its place, and a copy by its bytes."""
    release(spec_over(folder, name="first"))
    (folder / "copy.omx").write_bytes((folder / "od.omx").read_bytes())
    for matrix in ("od.omx::trips", "copy.omx::trips"):
        with pytest.raises(UsageError, match="was used by dataset first"):
            release(spec_over(folder, matrix, name="second"))


def test_the_library_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without openmatrix the error says what to install, and CSV needs none."""
    monkeypatch.setitem(sys.modules, "openmatrix", None)
    with pytest.raises(InputError, match="Trellis needs openmatrix") as refused:
        records(spec_over(folder))
    assert "trellis[matrices]" in refused.value.hint
    assert records(spec_over(folder, "od.csv")) == RECORDS


def test_blocks_are_as_small_as_they_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix of 300 by 300 zones no batch has more rows than cells are looked at at once, and all rows arrive."""
    monkeypatch.setattr(matrices, "_CELLS", 2**12)
    write_omx(folder / "large.omx", trips=np.ones((300, 300), dtype="u1"))
    with duckdb.connect() as con, opened(con, matrix_at("input.matrix", "large.omx::trips", folder)) as rows:
        assert con.sql(f"SELECT count(*) FROM {rows.scan(['count'])}").fetchall() == [(90_000,)]
    with openmatrix.open_file(str(folder / "large.omx"), "r") as file:
        batches = list(matrices._of_blocks(file["trips"], matrices.pa.array([str(zone) for zone in range(300)])))
    assert max(batch.num_rows for batch in batches) <= 2**12

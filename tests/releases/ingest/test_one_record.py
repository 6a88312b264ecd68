"""The law on which every guarantee rests: with one record more, one cell has one record more, whatever else the table holds."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from tasks.ingest.sources.locations import table_at
from tasks.ingest.task import read_in_memory
from tests.support.spec import of_features
from tests.support.tables import in_duckdb, write

USUAL = {
    "numbers": [1.0, 2.0, 2.0, 12.0],
    "times": ["2025-11-01 00:00:00", "2025-11-02 00:00:00", "2025-11-02 08:30:00"],
}
ODD = ["x", "1.0", "", None, "2025-11-01T00:00:00", "8:05", 1.5, True, 2.0**53]
UNLISTED, CHANGED = {"unlisted": "OTHER"}, {"table": "changes.csv", "from": "was", "to": "is"}
AXES = {  # each of the same column
    "digits": {"values": ["1", "2", "2025-11-01", "x"], "recode": CHANGED},
    "fractions": {"values": ["1.0", "2.0", "2025-11-01 00:00:00"], "unlisted": "1.0"},
    "hour": {"from": {"take": "hour"}, "recode": CHANGED},
    "weekday": {"from": {"take": "weekday"}},
    "bins": {"from": {"bins": [0, 2, 10]}},
    "first": {"from": {"first": 1}, "values": ["1", "2", "x"]},
}


def text(value):
    """Return a value as CSV has it."""
    return '""' if value in (None, "") else str(value)


def as_csv(path, values, encoding="utf-8", beside=""):
    """Write CSV, with another column or without, where a blank line stands behind the last record."""
    lines = [f"{line}{beside}\n" for line in ("v", *map(text, values), *([] if beside else [""]))]
    path.with_suffix(".csv").write_text("".join(lines), encoding=encoding)
    return str(path.with_suffix(".csv"))


def as_parquet(path, values, of_type):
    """Write Parquet with a column of this type."""
    texts = pl.Series("v", [None if value is None else text(value) for value in values])
    times = of_type == pl.Datetime
    column = texts.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False) if times else texts.cast(of_type, strict=False)
    column.to_frame().write_parquet(path.with_suffix(".parquet"))
    return str(path.with_suffix(".parquet"))


def json_lines(path, values):
    """Write JSON with one object per line, of which some lack the key."""
    lines = [json.dumps({} if value is None else {"v": value}) + "\n" for value in values]
    path.with_suffix(".ndjson").write_text("".join(lines))
    return str(path.with_suffix(".ndjson"))


def folder_of_json(path, values):
    """Write each record to a file of its own."""
    path.mkdir()
    for number, value in enumerate(values):
        (path / f"{number}.ndjson").write_text(json.dumps({"v": value}) + "\n")
    return str(path)


def in_file(path, values, ending):
    """Write a table of SQLite, where each value has its own type, or a sheet, with a column beside, so that no row is empty."""
    rows = [("v", "w"), *((value, "w") for value in values)]
    return str(path.parent / write(path.with_suffix(ending), {"t": rows})) + "::t"


def in_view(path, values, of_json=""):
    """Make a view of JSON, with types or without."""
    view = f"CREATE VIEW t AS FROM read_json('{json_lines(path, values)}'{of_json})"
    return in_duckdb(path.with_suffix(".duckdb"), view) + "::t"


SOURCES = {
    "csv": partial(as_csv, beside=",w"),
    "csv of one column": as_csv,
    "csv in utf-16": partial(as_csv, encoding="utf-16"),
    "texts": partial(as_parquet, of_type=pl.String),
    "doubles": partial(as_parquet, of_type=pl.Float64),
    "floats": partial(as_parquet, of_type=pl.Float32),
    "times": partial(as_parquet, of_type=pl.Datetime),
    "json": json_lines,
    "files of json": folder_of_json,
    "sqlite": partial(in_file, ending=".sqlite"),
    "workbook": partial(in_file, ending=".xlsx"),
    "view": partial(in_view, of_json=", columns = {v: 'VARCHAR'}"),
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plans(anyplace):
    """Return the plan of a release with all axes, whose table is changed from record to record; and one for columns that are not text."""
    anyplace.write("changes.csv", "was,is\nx,2\n8,2\n")
    taken = {name: UNLISTED | axis | {"from": {"column": "v"} | axis.get("from", {})} for name, axis in AXES.items()}
    without = {name: axis for name, axis in taken.items() if name != "first"}  # of which nothing is the beginning
    return [anyplace.plan(**of_features("trips.csv", axes)) for axes in (taken, without)]


def cells(plan, folder, write, values):
    """Return how many of some records each cell has."""
    table = table_at("input.table", write(folder / f"t{next(_numbers)}", values), folder)
    _, areas, counts = read_in_memory(replace(plan.source, table=table), plan.units, plan.promised)
    assert counts.sum() == len(values)
    return Counter(dict(zip(zip(*(of.tolist() for of in areas), strict=True), counts.tolist(), strict=True)))


def moved(before, after):
    """Return by how much cells change; cells that stay are left out."""
    return [after[cell] - before[cell] for cell in before | after if after[cell] != before[cell]]


# of each source those that most likely make it guess another type
FIRST = [("csv", "times"), ("doubles", "numbers"), ("times", "times"), ("json", "numbers"), ("sqlite", "numbers")]  # fmt: skip


@pytest.mark.parametrize(("source", "kind"), [
    pytest.param(*of, marks=() if of in FIRST else pytest.mark.thorough) for of in itertools.product(SOURCES, USUAL)
])  # fmt: skip
def test_one_record_more_is_one_cell_more_by_one(plans, tmp_path, source, kind):
    """Whatever the record is, and however its codes are taken and changed, no other record counts elsewhere than before."""
    usual, plan = USUAL[kind], plans[source in ("doubles", "floats", "times")]
    write, before = SOURCES[source], cells(plan, tmp_path, SOURCES[source], usual)
    of_texts = source in ("sqlite", "workbook")  # which take no fractions
    for odd in [odd for odd in ODD if not of_texts or odd is None or isinstance(odd, str)]:
        assert moved(before, cells(plan, tmp_path, write, [odd, *usual])) == [1], odd


def test_a_view_whose_types_are_guessed_breaks_the_law(plans, tmp_path):
    """The law can fail, and does where DuckDB guesses a type from all rows: the page on views says what to write."""
    values = (USUAL["numbers"], ["x", *USUAL["numbers"]])
    before, after = (cells(plans[1], tmp_path, in_view, of) for of in values)
    assert len(moved(before, after)) > 1

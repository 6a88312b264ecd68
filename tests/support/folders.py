"""Published folders: made from a spec, and changed by somebody, with the right checksums."""

import json
import shutil
import warnings
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import polars as pl
from csvw import CSVW

from flows.planning.plan import make_plan
from flows.run.reservation import new_release
from flows.specification.file import load_spec
from storage.database.connections import store
from tests.support.runs import make


def assert_described(folder):
    """Assert that a strict validator accepts the metadata of CSV, and that by it alone each CSV reads as its table; return the rows by file."""
    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always")
        described = CSVW(str(folder / "metadata.json"), validate=True, strict=True)
        assert described.is_valid
    assert [*described.warnings, *odd] == []
    rows = {
        str(table.url): [{unquote(column): value for column, value in row.items()} for row in table.iterdicts()]
        for table in described.tables
    }
    assert {*rows} == {str(path.relative_to(folder)) for path in folder.rglob("*.csv") if path.parent.name != "sdmx"}
    finest = max((folder / "counts").glob("*.parquet"), key=lambda path: int(path.stem[6:]))
    for url in rows.keys() - {"records.csv"}:
        table = pl.read_parquet(finest if url == "counts.csv" else (folder / url).with_suffix(".parquet"))
        found = [[row[column] for column in table.columns] for row in rows[url]]
        assert found == [list(row) for row in table.rows()], url
    return rows


def change_estimate(noise_rows):
    """Change the estimated share of noise rows of a level of a manifest: leave it out, or state one where there is none."""
    noise_rows.update(estimate=None if noise_rows["estimate"] is not None else 0.0)


def manifest_of(folder):
    """Return the manifest of a published folder."""
    return json.loads((folder / "manifest.json").read_text())


def table_of(folder, level):
    """Return the published table of a level."""
    return pl.read_parquet(folder / "counts" / f"level_{level}.parquet")


def rewrite(folder, change):
    """Change a manifest, with the right checksum."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    sums = folder / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith("manifest.json")]
    sums.write_text("\n".join([*lines, f"{sha256(path.read_bytes()).hexdigest()}  manifest.json"]) + "\n")


def changed(name, change):
    """Return what changes a table of a folder, with the right checksum and without the CSV beside it."""

    def of_folder(folder):
        path = folder / name
        schema = pl.read_parquet(path).schema
        change(pl.read_parquet(path)).cast(schema).write_parquet(path, compression="zstd")
        for csv in [csv for csv in folder.rglob("*.csv") if csv.parent.name != "signal"]:
            csv.unlink()
        (folder / "metadata.json").unlink(missing_ok=True)
        with_sums(folder)

    return of_folder


def stated(change):
    """Return what changes the manifest of a folder, with the right checksum."""
    return lambda folder: rewrite(folder, change)


def first(column, by):
    """Return what adds to the first value of a column."""
    return lambda table: table.with_columns(pl.col(column) + by * (pl.int_range(pl.len()) == 0))


def without_noisy_counts(folder, copy):
    """Return a copy of a folder that has no noisy counts."""
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "noisy_counts", ignore_errors=True)
    rewrite(copy, lambda manifest: manifest.pop("noisy_counts", None))
    return copy


def with_sums(folder):
    """Write the checksums of a folder as it is now."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "SHA256SUMS"]
    lines = (f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(lines))


def published(spec):
    """Make the release of a spec by the plain driver, and return its folder; TRELLIS_HOME must be set."""
    with store():  # open all the time
        plan = make_plan(load_spec(spec))
        made = new_release(plan)
        make(plan, made, threads=1)
        return Path(made.folder)

"""A published folder: it is whole wherever it is, its outputs say the same, and `verify` finds whatever was done to it since."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from copy import deepcopy

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flows.answers.verify import verify_answer
from storage.errors import StoreError
from tasks.folder.publish.task import publish
from tasks.folder.verify.folder import verify
from tasks.format.csv import csv_failures
from tests.support.ages import people_released
from tests.support.folders import assert_described, manifest_of, table_of, with_sums
from tests.support.library import ROWS
from tests.support.user import REPOSITORY

WITH_PAGES = True

DEPTH = 6  # of the trips of the library
SOME = ["walked", "grid", "sizes by tails", "trips settled together"]


@pytest.fixture(params=ROWS)
def kept(request, library):
    """Return each release of the library."""
    return library[request.param]


@pytest.fixture
def folder(library, tmp_path, monkeypatch):
    """Return a copy of trips on its own: no store, no codebook, no confidential table."""
    monkeypatch.setenv("TRELLIS_HOME", "/proc/nowhere")  # where no store can be made either
    return library["trips"].copied(tmp_path)


def failures(folder):
    """Write fitting checksums, and return what `verify` says all the same."""
    with_sums(folder)
    return verify(folder)


def put(folder, level, table):
    """Replace the table of a level, with intervals as wide as its counts need; return what `verify` says of the folder."""
    if {"count", "low", "high"} <= set(table.columns):
        table = table.with_columns(low=pl.min_horizontal("low", "count"), high=pl.max_horizontal("high", "count"))
    table.write_parquet(folder / f"counts/level_{level}.parquet")
    return failures(folder)


# of every kind of release -------------------------------------------------------------------------------------------------


def test_a_folder_is_whole_wherever_it_is(kept, tmp_path, monkeypatch):
    """It verifies by another name and without a store, all may read it, its sums are those of sha256sum, and no path is in it."""
    monkeypatch.setenv("TRELLIS_HOME", "/proc/nowhere")
    found = verify_answer(kept.copied(tmp_path).rename(tmp_path / "handed [on] by * the office"))
    assert found.failures == []
    assert found.unread is None
    files = sorted(str(path.relative_to(kept.folder)) for path in kept.folder.rglob("*") if path.is_file())
    assert {(kept.folder / name).stat().st_mode & 0o777 for name in files} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in [kept.folder, *kept.folder.glob("*/")]} == {0o755}
    lines = [line.split("  ") for line in (kept.folder / "SHA256SUMS").read_text().splitlines()]
    assert [name for _, name in lines] == sorted({*files} - {"SHA256SUMS"})
    for sha256, name in lines:
        content = (kept.folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sha256
        assert str(kept.home.parent).encode() not in content, name


def test_every_output_states_what_the_tables_hold(kept):
    """CSV by its metadata alone, sheets and README have the rows of the tables; a strict validator accepts the metadata."""
    assert_described(kept.folder)
    readme = (kept.folder / "README.md").read_text()
    listed = [[cell.strip() for cell in line.split("|")] for line in readme.splitlines() if line.startswith("| ")]
    for entry in kept.found.manifest.levels:
        level = kept.found.table(entry.level)
        if (kept.folder / "counts.xlsx").exists():
            name = f"level {entry.level}"
            sheet = pl.read_excel(kept.folder / "counts.xlsx", sheet_name=name, infer_schema_length=None)
            assert_frame_equal(sheet.select(level.columns).cast(level.schema), level)
        assert level.height == entry.nonzero
        [row] = [row for row in listed if row[1] == str(entry.level)]
        assert f"{level.height:,}" in row


def test_what_is_promised_is_said(kept):
    """Manifest, README, report and metadata state the privacy that the spec asks for, and what is not protected."""
    manifest = kept.found.manifest
    assert (manifest.id, manifest.mechanism) == (kept.folder.name, ROWS[kept.name][0].replace("grid", "unbiased_tree"))
    for key in ("unit", "neighbours", "max_records_per_unit", "epsilon", "delta"):
        assert getattr(manifest.privacy, key) == manifest.spec["privacy"][key]
    assert manifest.privacy.statement.startswith(f"({manifest.privacy.epsilon:.6g}, ")
    assert manifest.privacy.statement in kept.texts["metadata"]
    for output in ("README", "report"):
        for said in (manifest.privacy.unit, f"ε = {manifest.privacy.epsilon:.6g}", f"δ = {manifest.privacy.delta:.3g}"):
            assert said in kept.texts[output], output
        assert all(statement in kept.texts[output] for statement in manifest.unprotected)


@pytest.mark.parametrize("kept", [
    *SOME,
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ROWS if name not in SOME),
], indirect=True)  # fmt: skip
def test_altered_added_and_missing_files_are_found(kept, tmp_path):
    """One bit of a file is enough, an added file is found wherever it lies, and one that is gone is missed by its name."""
    folder = kept.copied(tmp_path)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    added = [".hidden", "counts/old/level_6.parquet", "notes.txt"]
    (folder / "counts" / "old").mkdir()
    for name in added:
        (folder / name).touch()
    assert verify(folder) == [f"{name} is not listed in SHA256SUMS." for name in added]
    for path in files:
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(content)
    with (folder / "SHA256SUMS").open("a") as file:
        file.write("0  README\n")
    assert "README is missing." in verify(folder)
    told = {f"{path.relative_to(folder)} is not the file that was published." for path in files}
    assert told <= {*verify(folder)}
    for path in files:
        path.unlink()
    assert {f"{path.relative_to(folder)} is missing." for path in files} <= {*verify(folder)}


def test_a_release_that_is_out_stays_as_it_is(tmp_path, own_home):
    """Published again it is the same to the byte and the second, and what stands in its place is neither replaced nor merged with."""
    made = people_released(tmp_path).folder
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in made.rglob("*") if file.is_file()}
    publish.fn(made.name)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before
    shutil.rmtree(made)
    made.mkdir()
    (made / "thesis.txt").write_text("the only copy")
    with pytest.raises(StoreError, match="is not this release") as refused:
        publish.fn(made.name)
    assert refused.value.field == "output"
    assert [file.name for file in made.iterdir()] == ["thesis.txt"]


# with checksums that fit --------------------------------------------------------------------------------------------------


def plus(table, row, records):
    """Return a table with so many records more in one of its rows."""
    at_row = pl.int_range(pl.len()) == row
    return table.with_columns(pl.when(at_row).then(pl.col("count") + records).otherwise("count").alias("count"))


@pytest.mark.parametrize("level", range(2, DEPTH + 1))
def test_a_record_moved_to_another_parent_does_not_add_up(folder, level):
    """A record moved between areas with different parents is found although the total stays."""
    table, above = table_of(folder, level), table_of(folder, level - 1)
    first, parents = table.row(0, named=True), above.columns[: above.columns.index("count")]
    others = table.with_row_index().filter(pl.any_horizontal(pl.col(code) != first[code] for code in parents))
    moved = plus(plus(table, 0, 1), others.sort("count")["index"][-1], -1)
    assert moved["count"].sum() == table["count"].sum()
    assert any("add up" in told for told in put(folder, level, moved))


COLUMNS, WHOLE = "columns must be", "counts must be whole numbers above zero, and no code may be missing."
SPOIL_TABLE = {
    "one record more": (lambda table: plus(table, 0, 1), "do not add up"),
    "removed": (lambda table: table[1:], "do not add up"),
    "added with a zero": (lambda table: pl.concat([table, table[-1:].with_columns(pl.lit("99").alias(table.columns[0]), count=pl.lit(0, pl.Int64))]), WHOLE),
    "negative": (lambda table: plus(plus(table, 0, -(10**6)), 1, 10**6), WHOLE),
    "null": (lambda table: plus(table, 0, None), WHOLE),
    "a code as a number": (lambda table: table.with_columns(pl.first().cast(pl.Int64)), COLUMNS),
    "a column more": (lambda table: table.insert_column(0, pl.lit("so").alias("note")), COLUMNS),
}  # fmt: skip


@pytest.mark.parametrize("level", [3, *(pytest.param(level, marks=pytest.mark.thorough) for level in (1, DEPTH))])
@pytest.mark.parametrize("spoil", SPOIL_TABLE)
def test_spoilt_tables_are_found(folder, level, spoil):
    """Rows removed, doubled, split, out of order, empty or negative are found, also if the manifest counts them; so are other columns."""
    change, told = SPOIL_TABLE[spoil]
    table, manifest = change(table_of(folder, level)), manifest_of(folder)
    manifest["levels"][level]["nonzero"] = table.height
    if "signal" in table.columns:
        manifest["levels"][level]["signal"]["rows"] = int(table["signal"].sum())
    (folder / "manifest.json").write_text(json.dumps(manifest))
    told_of_level = [failure for failure in put(folder, level, table) if failure.startswith(f"level_{level}: ")]
    assert any(told in failure for failure in told_of_level)


SPOIL_CSV = {
    "a count changed": lambda text: re.sub(r",(\d+),(\d+),(\d+),(true|false)\n\Z", r",9\1,\2,\3,\4\n", text),
    "a mark changed": lambda text: re.sub(r"(true|false)\n\Z", lambda it: f"{str(it[1] == 'false').lower()}\n", text),
    "no header": lambda text: text.partition("\n")[2],
    "a decimal point": lambda text: re.sub(r",(\d+),(true|false)\n\Z", r",\1.0,\2\n", text),
    "nothing": lambda _: "",
}


def test_another_csv_is_found(library, folder, tmp_path):
    """A CSV that is not its table is found, however it differs; so is one that is gone."""
    table = library["trips of leaves"].found.table(DEPTH)
    table.write_parquet(tmp_path / "table.parquet")
    path, whole = tmp_path / "table.csv", table.write_csv()
    for what, spoil in SPOIL_CSV.items():
        path.write_text(spoil(whole))
        assert path.read_text() != whole, what
        assert csv_failures(path, [tmp_path / "table.parquet"]) != [], what
    path.write_text(whole)
    assert csv_failures(path, [tmp_path / "table.parquet"]) == []
    for level in (0, DEPTH):
        path = folder / f"counts/level_{level}.csv"
        path.write_text(SPOIL_CSV["a mark changed"](path.read_text()))
        assert failures(folder) == [f"level_{level}.csv differs from the table of level {level}."]
        path.unlink()
        assert failures(folder) == [f"level_{level}.csv is missing or is not a CSV file of level {level}."]
        shutil.copy(library["trips"].folder / path.relative_to(folder), path)


MANIFEST_KEYS = [
    *("id", "spec", "privacy", "unprotected", "levels", "mechanism", "codebooks", "seals", "ledger", "versions"),
    *(f"privacy.{of}" for of in ("unit", "neighbours", "max_records_per_unit", "epsilon", "delta", "rho", "accountant")),
    *(f"levels.3.{key}" for key in ("level", "axes", "cells", "nonzero", "rho", "sigma", "l2_sensitivity", "bound")),
    *("seals.0.level", "seals.0.branch", "seals.0.sha256", "ledger.head", "ledger.length"),
]  # fmt: skip
UNKNOWN_KEYS = ["note", "privacy.note", "levels.3.true_total", "seals.0.note", "ledger.events", "levels.0.note"]


def test_a_manifest_with_a_key_less_or_more_is_found(folder):
    """A manifest without one of its keys, or with an unknown one, of which nobody knows whether it may be public, is told by that key."""
    whole = manifest_of(folder)
    for name in (*MANIFEST_KEYS, *UNKNOWN_KEYS):
        part = manifest = deepcopy(whole)
        *above, key = name.split(".")
        for step in above:
            part = part[int(step) if step.isdigit() else step]
        if name in MANIFEST_KEYS:
            del part[key]
        else:
            part[key] = 1
        (folder / "manifest.json").write_text(json.dumps(manifest))
        [told] = [failure for failure in failures(folder) if "manifest.json" in failure]
        assert told.startswith("manifest.json is not valid")
        assert name in told


SPOIL_MANIFEST = {
    "no spec": lambda manifest: manifest | {"spec": {}},
    "no seals": lambda manifest: manifest | {"seals": []},
    "no versions": lambda manifest: manifest | {"versions": {}},
    "more rows": lambda manifest: (manifest["levels"][3].update(nonzero=manifest["levels"][3]["nonzero"] + 1) or manifest),
    "a level less": lambda manifest: manifest | {"levels": manifest["levels"][:-1]},
    "levels out of order": lambda manifest: manifest | {"levels": manifest["levels"][::-1]},
    "another axis": lambda manifest: json.loads(json.dumps(manifest).replace('"origin": "region"', '"home": "region"')),
    "another level name": lambda manifest: json.loads(json.dumps(manifest).replace('"region"}', '"state"}')),
    "a list": lambda manifest: [manifest],
}  # fmt: skip


def test_another_manifest_is_found(folder):
    """A manifest that is not the one of these tables is found."""
    whole = manifest_of(folder)
    for what, spoil in SPOIL_MANIFEST.items():
        (folder / "manifest.json").write_text(json.dumps(spoil(deepcopy(whole))))
        assert failures(folder) != [], what


def test_what_cannot_be_read_is_found(folder, tmp_path):
    """A manifest that is no JSON, a table that is none, and what is no folder of a release fail in a sentence, and do not crash."""
    whole = (folder / "manifest.json").read_bytes()
    for content in (b"", b"{", b"\xff\xfe", b'{"id": NaN}'):
        (folder / "manifest.json").write_bytes(content)
        assert any("manifest.json" in failure for failure in failures(folder))
    (folder / "manifest.json").write_bytes(whole)
    for level, content in ((DEPTH, b"PAR1" + bytes(100) + b"PAR1"), (3, b"not Parquet"), (0, b"")):
        (folder / f"counts/level_{level}.parquet").write_bytes(content)
        assert f"level_{level}.parquet is missing or is not a Parquet file." in failures(folder)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "file", "empty"):
        assert verify(tmp_path / name) != []


# In a process of its own: a reader of Parquet that believes a damaged length may take its process down with it.
DAMAGE = """
import sys
from pathlib import Path
from tasks.folder.verify.folder import verify

folder, many = Path(sys.argv[1]), int(sys.argv[2])
for name in sys.argv[3:]:
    content = (folder / name).read_bytes()
    size, ends, bit = len(content), set(), 129
    if name.endswith(".parquet"):  # the magic, the data, the footer and its length
        footer, bit = size - 8 - int.from_bytes(content[-8:-4], "little"), 1
        ends = {0, 4, footer - 1, footer, size - 8, size - 5, size - 1}
    for at in sorted(ends | {*range(0, size, 1 + size // many)}):
        (folder / name).write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        try:
            whole = not verify(folder, workers=1)
        except BaseException as fault:
            sys.exit(f"{name}, byte {at}: {type(fault).__name__}")
        if whole:
            sys.exit(f"{name}, byte {at}: not found")
    (folder / name).write_bytes(content)
"""


@pytest.mark.parametrize(
    "many", [6, pytest.param(30, marks=[pytest.mark.thorough, pytest.mark.heavy("it verifies 150 times")])]
)
def test_no_byte_can_be_changed(folder, many):
    """A changed byte of a table, be it in its first bytes, its data or its footer, or of a text is a failure and no crash."""
    names = [f"counts/level_{level}.parquet" for level in (0, DEPTH)]
    names += ["manifest.json", "SHA256SUMS", f"counts/level_{DEPTH}.csv"]
    command = [sys.executable, "-c", DAMAGE, str(folder), str(many), *names]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[-300:]) == (0, "")


# pages --------------------------------------------------------------------------------------------------------------------


def test_words_are_compared_by_checksum_and_the_explorer_and_metadata_by_what_they_hold_as_the_page_says(folder):
    """New checksums hide changed texts and pictures, but neither other data in the explorer, nor none, nor other columns."""
    page = (REPOSITORY / "docs" / "how-to" / "publish.md").read_text()
    for name in ("README.md", "report.html"):
        assert f"`{name}`" in page
        (folder / name).write_text("All is exact.")
    explorer = (folder / "explorer.html").read_text()
    (folder / "explorer.html").write_text(explorer.replace("</body>", "<p>All is exact.</p></body>"))
    described = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(described | {"dc:description": "All is exact."}))
    assert failures(folder) == []
    assert verify_answer(folder).ok
    first = '<main><script type="application/json" id="data">{}</script>'
    changed = explorer.replace('"signal_rate":0.1', '"signal_rate":0.2')
    for other in (changed, explorer.replace("<main>", first), "<p>Nothing here"):
        (folder / "explorer.html").write_text(other)
        assert failures(folder) == []
        assert verify_answer(folder).failures == ["explorer.html does not show what the tables hold."]
    (folder / "explorer.html").unlink()
    assert failures(folder) == ["explorer.html is missing."]
    (folder / "explorer.html").write_text(explorer)
    first = described["tables"][0]
    for tables in (
        [],
        described["tables"][:-1],
        [first | {"url": "other.csv"}, *described["tables"][1:]],
        [first | {"tableSchema": {"columns": first["tableSchema"]["columns"][:-1]}}, *described["tables"][1:]],
    ):
        (folder / "metadata.json").write_text(json.dumps(described | {"tables": tables}))
        [told] = failures(folder)
        assert told.startswith("metadata.json ")

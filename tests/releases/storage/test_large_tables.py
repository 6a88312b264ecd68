"""Tables that are written, read, added up and stored a part at a time: the parts must not show, and faults between them must."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.counts.published import _rows_of, forget_levels, published_total, store_levels, store_table
from storage.counts.shards import check_shard, read_row_groups, read_shard, write_shard
from storage.database.connections import Connection, store, transaction
from storage.errors import StoreError
from storage.machine.files import sha256_of_all
from storage.releases.register import find_release, set_terms
from storage.releases.seals import list_frontiers
from tasks.format.areas import AxisAreas
from tasks.format.csv import csv_failures, write_csv
from tasks.format.manifest import Manifest
from tasks.format.rows import Rows, in_order
from tasks.format.tables import LevelTables, write_parquet
from tasks.laws.named import noise_of
from tasks.publish.task import publish
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.tree.frontier import Frontier
from tasks.tree.keys import all_differ, order_of, packed
from tasks.uncertainty.intervals import row_margins
from tasks.validate.consistency import areas_known_once, children_add_up
from tasks.validate.size import MOST_CSV_ROWS, disk_size
from tasks.verify.folder import verify
from tasks.verify.sums import AddingUp
from tests.support.spec import SPEC as COUNTRY

SPEC: dict[str, Any] = COUNTRY | {
    "name": "large",
    "privacy": {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1}
    | {"epsilon": 40.5, "delta": 3.0e-9},  # so much that every level keeps many rows
    "budget": {"epsilon": 100.0, "delta": 1.0e-7},
}
PEOPLE = 5_000
DEPTH = 6
GROUP = 2  # rows of a row group


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Release a made-up country; return the published folder, with its store at TRELLIS_HOME."""
    place = tmp_path_factory.mktemp("large")
    country = draw_country(regions=3, provinces=6, municipalities=18, people=PEOPLE, generator=np.random.default_rng(3))
    write_country(country, place / "data")
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        plan = make_plan(load_spec(place / "spec.yaml"))
        release = new_release(plan)
        with ThreadPoolExecutor(2) as threads:
            make_release(plan, release, submit_to(threads), report_nothing)
        yield Path(release.folder)


@pytest.fixture
def aside(home: Path) -> Iterator[Path]:
    """Put the published folder aside, to publish it again; return where it is meanwhile."""
    aside = home.rename(home.with_name("aside"))
    yield aside
    shutil.rmtree(home, ignore_errors=True)
    aside.rename(home)


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    """Return a copy of the published folder whose tables have many row groups."""
    copy = tmp_path / home.name
    shutil.copytree(home, copy)
    for level in range(DEPTH + 1):
        put(copy, level, table_of(copy, level))
    return copy


def table_of(folder: Path, level: int) -> pl.DataFrame:
    """Return the table of a level."""
    return pl.read_parquet(folder / "counts" / f"level_{level}.parquet")


def put(folder: Path, level: int, table: pl.DataFrame, row_group: int = GROUP) -> None:
    """Replace the table of a level, and where it is the finest `counts.csv` too, with so many rows in a row group.

    Intervals are widened where counts have left them.
    """
    if {"count", "low", "high"} <= set(table.columns):
        table = table.with_columns(low=pl.min_horizontal("low", "count"), high=pl.max_horizontal("high", "count"))
    pq.write_table(table.to_arrow(), folder / "counts" / f"level_{level}.parquet", row_group_size=row_group)
    if level == DEPTH and (folder / "counts.csv").exists():
        table.write_csv(folder / "counts.csv")


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def failures(folder: Path) -> list[str]:
    """Write fitting checksums, margins and counts of rows and marks, and return what `verify` says all the same."""

    def count(manifest: dict[str, Any]) -> None:
        for entry in manifest["levels"]:
            path = folder / "counts" / f"level_{entry['level']}.parquet"
            entry["nonzero"] = pq.read_metadata(path).num_rows
            if marked := pq.read_table(path, columns=["signal"]).column(0).combine_chunks().true_count:
                entry["signal"] = {"above": None} | entry.get("signal", {}) | {"rows": marked}
        levels = Manifest.model_validate(manifest).levels
        margins = row_margins(
            [noise_of(entry) for entry in levels],
            [entry.cells for entry in levels],
            [entry.nonzero for entry in levels],
            manifest["intervals"]["confidence"],
        )
        for entry, margin in zip(manifest["levels"], margins, strict=True):
            entry["half_width"] = margin.own

    change_manifest(folder, count)
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return verify(folder)


@st.composite
def levels_of(draw: st.DrawFn, universe: Any) -> tuple[int, Rows, list[tuple[Any, int]]]:
    """Draw a level of a universe with some of its nodes: as rows, and as pairs of a node and its count."""
    level = draw(st.integers(0, universe.tree.depth))
    nodes = universe.nodes(level)
    kept = draw(st.lists(st.sampled_from(nodes), unique=True, min_size=0 if level else 1, max_size=20))
    counted = [(node, draw(st.integers(1, 2**50))) for node in kept]
    columns = tuple(
        np.array([universe.areas(node)[axis] for node in kept], dtype=np.int32) for axis in range(len(universe.paths))
    )
    return level, Rows(columns, np.array([count for _, count in counted], dtype=np.int64)), counted


@settings(max_examples=40)
@given(data=st.data())
def test_tables_read_as_text_whatever_the_row_groups(data, universes, tmp_path_factory):
    """Every reader gets text and whole numbers, sorted, row for row, from row groups of every size."""
    universe = data.draw(universes)
    level, rows, counted = data.draw(levels_of(universe))
    group = data.draw(st.integers(1, 8))
    path = tmp_path_factory.mktemp("table") / "level.parquet"
    ordered = in_order(rows, universe.tree.sizes(level))
    write_parquet(path, LevelTables(universe.tree, level).of(ordered, group), universe.tree.axes[0].name)
    expected = sorted((tuple(code for of_axis in node for code in of_axis), count) for node, count in counted)
    width = sum(universe.tree.axis_levels(level))
    names = [f"{axis}_{name}" for axis, to in names_of(universe.tree, level) for name in to]
    read = pl.read_parquet(path)
    assert read.schema == {**dict.fromkeys(names, pl.String), "count": pl.Int64, "signal": pl.Boolean}
    assert read.rows() == [(*codes, count, None) for codes, count in expected]
    table = pq.read_table(path)
    assert table.schema.types == [pa.string()] * width + [pa.int64(), pa.bool_()]
    assert pq.read_metadata(path).num_row_groups == max(1, -(-len(rows) // group))
    found = duckdb.sql(f"FROM read_parquet('{path}')")
    assert [str(kind) for kind in found.types] == ["VARCHAR"] * width + ["BIGINT", "BOOLEAN"]
    assert found.fetchall() == read.rows()


def names_of(tree: Any, level: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return, per axis, its name and the names of its levels that a tree level has reached."""
    reached = tree.axis_levels(level)
    return [(axis.name, axis.level_names[:own]) for axis, own in zip(tree.axes, reached, strict=True)]


def test_a_whole_folder_in_many_row_groups_is_whole(folder):
    """Where tables are cut into row groups makes no difference to what is right."""
    assert pq.read_metadata(folder / "counts" / f"level_{DEPTH}.parquet").num_row_groups > 3
    assert failures(folder) == []


def exchanged(table: pl.DataFrame) -> pl.DataFrame:
    """Exchange the last row of a row group and the first of the next."""
    return pl.concat([table[: GROUP - 1], table[GROUP : GROUP + 1], table[GROUP - 1 : GROUP], table[GROUP + 1 :]])


def twice(table: pl.DataFrame) -> pl.DataFrame:
    """Begin the second row group with the row that ends the first."""
    return pl.concat([table[:GROUP], table[GROUP - 1 :]])


def twice_far_apart(table: pl.DataFrame) -> pl.DataFrame:
    """End with the row that is the first."""
    return pl.concat([table, table[:1]])


def without_a_code(table: pl.DataFrame) -> pl.DataFrame:
    """Take away the code of the first row, which still comes before all others."""
    column = pl.col("destination_region")
    return table.with_columns(pl.when(pl.int_range(pl.len()) > 0).then(column).alias("destination_region"))


UNSORTED, REPEATED = "rows must be sorted by their codes.", "two rows have the same codes."
NO_CODE = "counts must be whole numbers above zero, and no code may be missing."


@pytest.mark.parametrize(
    ("spoil", "level", "told"),
    [
        *((exchanged, level, [UNSORTED]) for level in (3, DEPTH)),
        *((twice, level, [REPEATED]) for level in (4, DEPTH)),
        (twice_far_apart, DEPTH, [REPEATED, UNSORTED]),
        (without_a_code, 1, [NO_CODE]),
    ],
)
def test_rows_that_are_not_sorted_and_once_each_are_found(folder, spoil, level, told):
    """Across row groups and far apart, rows that are exchanged, repeated or without a code are found, and nothing else is said."""
    put(folder, level, spoil(table_of(folder, level)))
    assert failures(folder) == [f"level_{level}: {of}" for of in told]


@pytest.mark.parametrize("level", [2, 3, DEPTH])
def test_one_wrong_sum_among_many_is_found(folder, level):
    """Records moved between two parents, late in the table, are found at that level and the next, the total staying."""
    table = table_of(folder, level)
    parents = table_of(folder, level - 1).columns[:-4]
    last = table.row(table.height - 1, named=True)
    others = table.with_row_index().filter(pl.any_horizontal(pl.col(code) != last[code] for code in parents))
    other = others["index"][-1]
    moved = pl.when(pl.int_range(pl.len()) == table.height - 1).then(pl.col("count") + 5)
    moved = moved.when(pl.int_range(pl.len()) == other).then(pl.col("count") + 1).otherwise("count")
    put(folder, level, table.with_columns(moved.alias("count")))
    below = table_of(folder, level)  # an equal total, so that only the parts can tell
    fewer = pl.when(pl.int_range(pl.len()) == below["count"].arg_max()).then(pl.col("count") - 6).otherwise("count")
    put(folder, level, below.with_columns(fewer.alias("count")))
    assert table_of(folder, level)["count"].sum() == PEOPLE
    assert f"level_{level}: the counts do not add up to those of the level above." in failures(folder)


def test_sums_beyond_64_bits_do_not_add_up(folder):
    """Counts that come to the right sums only because 64 bits overflow are found."""
    table, parents = table_of(folder, DEPTH).with_row_index(), table_of(folder, DEPTH - 1).columns[:-4]
    children = next(rows for rows in table.group_by(parents).agg("index")["index"].to_list() if len(rows) > 2)
    more = np.zeros(table.height, dtype=np.int64)
    more[children[:3]] = [2**63 - 1000, 2**63 - 1000, 2000]
    assert sum(more.tolist()) == 2**64
    changed = table.drop("index").with_columns(pl.Series("count", table["count"].to_numpy() + more))
    put(folder, DEPTH, changed)
    above = table_of(folder, DEPTH - 1).drop("low", "high", "signal")
    assert changed.group_by(parents).agg(pl.sum("count")).sort(parents).equals(above)
    assert failures(folder) == [
        f"level_{DEPTH}: the counts do not add up to those of the level above.",
        f"noisy_counts/level_{DEPTH}.parquet does not have the bias that the manifest states.",
    ]


def test_csv_may_be_missing_where_the_manifest_says_so(folder):
    """Without CSV a folder is whole if its manifest says so, and only then; one that nobody promised is looked at all the same."""
    (folder / "counts.csv").unlink()
    (folder / "metadata.json").unlink()
    change_manifest(folder, lambda manifest: manifest.update(csv=False))
    assert failures(folder) == []
    change_manifest(folder, lambda manifest: manifest.update(csv=True))
    assert failures(folder) == ["counts.csv is missing or is not a CSV file of the finest level."]
    change_manifest(folder, lambda manifest: manifest.pop("csv"))  # as an earlier Trellis wrote it
    assert failures(folder) == ["counts.csv is missing or is not a CSV file of the finest level."]
    change_manifest(folder, lambda manifest: manifest.update(csv=False))
    table_of(folder, DEPTH)[:-1].write_csv(folder / "counts.csv")
    assert failures(folder) == ["counts.csv differs from the table of the finest level."]


def test_columns_that_share_a_name_are_told_apart(folder):
    """A manifest and a table whose axes would name two columns the same are looked at by place, and do not crash."""
    table = table_of(folder, 2).to_arrow()
    numbers = ["count", "low", "high", "signal"]
    pq.write_table(table.rename_columns(["a_b_c", "a_b_c", *numbers]), folder / "counts" / "level_2.parquet")
    pq.write_table(
        table_of(folder, 1).to_arrow().rename_columns(["a_b_c", *numbers]), folder / "counts" / "level_1.parquet"
    )

    def rename(manifest: dict[str, Any]) -> None:
        manifest["levels"] = manifest["levels"][:3]
        for entry in manifest["levels"]:
            origin, destination = entry["axes"].values()
            entry["axes"] = {"a": origin and "b_c", "a_b": destination and "c"}
        manifest["seals"] = [seal for seal in manifest["seals"] if seal["level"] < 3]
        manifest["privacy"]["rho"] = sum(entry["rho"] for entry in manifest["levels"])
        manifest["csv"] = manifest["noisy_counts"] = False

    (folder / "counts.csv").unlink()
    (folder / "metadata.json").unlink()
    shutil.rmtree(folder / "noisy_counts")
    for path in (folder / "counts").iterdir():
        if path.stem not in {"level_0", "level_1", "level_2"}:
            path.unlink()
    change_manifest(folder, rename)
    assert failures(folder) == []


def test_a_manifest_without_axes_is_found(folder):
    """A manifest that tells of no axes does not fit tables that have some, and does not crash."""

    def forget(manifest: dict[str, Any]) -> None:
        for entry in manifest["levels"]:
            entry["axes"] = {}

    change_manifest(folder, forget)
    told = "columns must be count, low, high (int64) and signal (bool)."
    assert failures(folder) == [f"level_{level}: {told}" for level in range(1, DEPTH + 1)]


@pytest.mark.parametrize(
    ("asked", "limit", "written"),
    [(None, 0, False), (None, 10**6, True), (True, 0, True), (False, 10**6, False)],
    ids=["many rows", "few rows", "asked for", "not wanted"],
)
def test_csv_is_written_on_request_or_for_few_rows(home, aside, monkeypatch, asked, limit, written):
    """Above the limit there is a CSV only on request; manifest and README know whether there is one."""
    monkeypatch.setattr("tasks.validate.size.MOST_CSV_ROWS", limit)
    with store() as con:
        terms = find_release(con, home.name).terms
        set_terms(con, home.name, replace(terms, csv=asked))
    try:
        publish.fn(home.name)
    finally:
        with store() as con:
            set_terms(con, home.name, terms)
    assert (home / "counts.csv").exists() == written
    assert json.loads((home / "manifest.json").read_text()).get("csv", True) == written
    for name, file in (("counts.csv", "README.md"), ("counts.csv", "SHA256SUMS"), ("metadata.json", "SHA256SUMS")):
        assert (name in (home / file).read_text()) == written
    assert verify(home) == []
    for level in range(DEPTH + 1):
        assert_frame_equal(table_of(home, level), table_of(aside, level))


ODD = pa.table(
    {
        "a": ["", "a,b", 'q"q', "n\nl", "c\rr", "é", " s ", "007", "null", "x"],
        "count": pa.array([*range(1, 10), 2**62], pa.int64()),
    }
)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_csv_in_parts_is_csv(tmp_path, monkeypatch, rows):
    """Written and compared in parts of any size, CSV is what it is in one piece, odd codes included."""
    monkeypatch.setattr("tasks.format.csv._ROWS", rows)
    monkeypatch.setattr("tasks.format.csv._BLOCK", 64)
    whole, parts, finest = tmp_path / "whole.csv", tmp_path / "counts.csv", tmp_path / "finest.parquet"
    pl.DataFrame(ODD).write_csv(whole)
    write_csv(parts, (ODD[first : first + rows] for first in range(0, len(ODD), rows)))
    pq.write_table(ODD, finest, row_group_size=4)
    assert parts.read_bytes() == whole.read_bytes()
    assert csv_failures(parts, [finest]) == []
    lines = whole.read_bytes().decode()
    other = [
        lines.replace("é,6", "é,5"),
        lines.replace("007", "7"),
        lines.removesuffix(f"x,{2**62}\n"),
        lines + "y,1\n",
        lines.replace("a,count", "b,count"),
        lines.replace("é,6\n", "é,\n"),
    ]
    for text in other:
        assert text != lines
        parts.write_bytes(text.encode())
        assert csv_failures(parts, [finest]) == ["counts.csv differs from the table of the finest level."]


def store_all(con: Connection, home: Path) -> None:
    """Store the rows of all levels of a release, the finest first."""
    for level in reversed(range(DEPTH + 1)):
        store_table(con, home.name, home, level, 2**30)


def test_a_large_level_is_stored_by_numbers_and_reads_as_published(home, monkeypatch):
    """A level that is kept by its areas' numbers reads like the published table: columns, types, rows, order."""
    monkeypatch.setattr("storage.counts.published.TABLE_ROWS", 0)
    with store() as con:
        for _ in range(2):  # over the tables that the release has left, and once more
            store_all(con, home)
            with transaction(con):
                store_levels(con, home.name, home, DEPTH + 1)
        kinds = dict(
            con.execute(
                "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = ?", [home.name]
            ).fetchall()
        )
        assert [kinds[f"level_{level}"] for level in range(DEPTH + 1)] == ["BASE TABLE"] + ["VIEW"] * DEPTH
        for level in range(DEPTH + 1):
            assert_frame_equal(con.sql(f'FROM "{home.name}".level_{level}').pl(), table_of(home, level))
        named = con.execute('SELECT "view", "rows" FROM published WHERE release = ?', [home.name]).fetchall()
        assert [rows for _, rows in named] == [table_of(home, level).height for level in range(DEPTH + 1)]
        assert (named[0][0], named[DEPTH][0]) == ("total", "municipality_to_municipality")
        for level, (view, _) in enumerate(named):
            assert_frame_equal(con.sql(f'FROM "{home.name}".{view}').pl(), table_of(home, level))
        assert published_total(con, home.name) == PEOPLE
        monkeypatch.setattr("storage.counts.published.TABLE_ROWS", 10**6)
        store_all(con, home)  # tables again, over the views
        store_levels(con, home.name, home, DEPTH + 1)
        assert_frame_equal(con.sql(f'FROM "{home.name}".level_{DEPTH}').pl(), table_of(home, DEPTH))


def test_tables_of_a_release_that_was_not_recorded_are_known_to_nobody(home):
    """Tables that a killed run has stored are in no list and give no total, and they go where the release is abandoned."""
    with store() as con:
        store_table(con, "killed", home, 0, 2**30)
        assert con.sql('FROM "killed".level_0').fetchall() == [(PEOPLE, PEOPLE, PEOPLE, True)]
        assert published_total(con, "killed") is None
        forget_levels(con, "killed")
        assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'killed'").fetchall() == [(0,)]


@pytest.mark.usefixtures("aside")
def test_a_folder_is_complete_though_its_rows_cannot_be_stored(home, monkeypatch):
    """A store that is full or held keeps no folder back: publishing says that its rows are not there, and the books are closed later."""

    def full(*_: Any) -> None:
        raise StoreError("The disk is full.")

    assert publish.fn(home.name).value
    assert not publish.fn(home.name).value  # it was there
    shutil.rmtree(home)
    monkeypatch.setattr("tasks.publish.task.store_table", full)
    assert not publish.fn(home.name).value
    assert verify(home) == []


def test_a_store_is_bounded_only_while_a_table_is_stored(home, monkeypatch):
    """What a release may take bounds DuckDB too, down to what it needs, and the store is as it was afterwards."""
    asked, rows_of, seen = "SELECT current_setting('memory_limit'), current_setting('threads')", _rows_of, list[Any]()
    with store() as con:
        ((before, threads),) = con.execute(asked).fetchall()

        def looking(files: Sequence[Path]) -> str:
            seen.append(con.execute(asked).fetchone())
            return rows_of(files)

        monkeypatch.setattr("storage.counts.published._rows_of", looking)
        for most, of_table in ((0, threads), (10**6, 1)):
            monkeypatch.setattr("storage.counts.published.TABLE_ROWS", most)
            seen.clear()
            store_table(con, home.name, home, DEPTH, 2**29)
            assert set(seen) == {("256.0 MiB", of_table)}
            assert con.execute(asked).fetchall() == [(before, threads)]


def test_an_altered_shard_is_not_stored(home, monkeypatch):
    """What a large level is read from must be what was recorded."""
    monkeypatch.setattr("storage.counts.published.TABLE_ROWS", 0)
    monkeypatch.setattr("storage.counts.published.check_shard", lambda path, sha256: check_shard(path, sha256[::-1]))
    with store() as con, pytest.raises(StoreError, match="is not what was sealed"):
        store_all(con, home)


@pytest.mark.usefixtures("aside")
def test_more_nodes_than_were_recorded_are_not_published(home):
    """Shards that hold another number of nodes than the store has recorded stop the publication."""
    for more in (1, -1):
        with store() as con:
            con.execute("UPDATE frontiers SET nonzero = nonzero + ? WHERE level = 3", [more])
        try:
            with pytest.raises(StoreError, match=r"Level 3 of .* does not have as many nodes as the store recorded"):
                publish.fn(home.name)
        finally:
            with store() as con:
                con.execute("UPDATE frontiers SET nonzero = nonzero - ? WHERE level = 3", [more])


def with_sizes(nodes: list[tuple[int, int, int]], factor: int) -> tuple[tuple[Any, ...], list[int]]:
    """Return nodes as columns, and sizes of the axes that are so many times too large."""
    columns = tuple(np.array([node[axis] for node in nodes], dtype=np.int32) for axis in range(3))
    return columns, [5 * factor, 6 * factor, 7 * factor]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 6)), max_size=30),
    st.sampled_from([1, 2**20]),  # the second fills more than 64 bits
)
def test_keys_order_nodes_and_tell_them_apart(nodes, factor):
    """Nodes are ordered by their areas and told apart, whether 64 bits hold a key or not."""
    areas, sizes = with_sizes(nodes, factor)
    assert (packed(areas, sizes) is None) == (factor > 1)
    assert [nodes[row] for row in order_of(areas, sizes)] == sorted(nodes)
    assert all_differ(areas, sizes) == (len(set(nodes)) == len(nodes))


def dictionaries(rows: list[tuple[str | None, ...]]) -> list[pa.DictionaryArray]:
    """Return rows of codes as columns of dictionaries."""
    return [pa.array(column, pa.string()).dictionary_encode() for column in zip(*rows, strict=True)]


CODES = st.one_of(st.none(), st.sampled_from(["", "a", "b", "10", "9", "é", "\U0001f600"]))


@given(
    st.lists(st.lists(st.tuples(CODES, CODES, CODES), min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from([2**63 - 1, 20]),  # with the second, keys of three codes do not fit
)
def test_areas_are_known_by_their_paths(parts, largest):
    """Over any number of tables an area has one number, two have two, ranks follow the text, and parents are known."""
    areas, number_of, prefixes = AxisAreas(), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.format.areas._LARGEST_KEY", largest)
        for rows in parts:
            numbers, ranks = areas.number(len(rows), dictionaries(rows))
            above, _ = areas.number(len(rows), dictionaries([row[:2] for row in rows]))
            for row, number, parent in zip(
                rows, numbers.tolist(), areas.ancestors(numbers, 3, 2).tolist(), strict=True
            ):
                assert number_of.setdefault(row, number) == number
                prefixes.setdefault(row[:2], parent)
            assert areas.ancestors(numbers, 3, 2).tolist() == above.tolist()
            texts = [[(code is not None, code or "") for code in row] for row in rows]
            for one, of_one in zip(texts, ranks.tolist(), strict=True):
                for other, of_other in zip(texts, ranks.tolist(), strict=True):
                    assert (one < other, one == other) == (of_one < of_other, of_one == of_other)
    assert sorted(number_of.values()) == list(range(areas.known(3)))
    assert sorted(prefixes.values()) == list(range(areas.known(2)))


@st.composite
def families(draw: st.DrawFn, universe: Any) -> tuple[int, list[tuple[Any, int]]]:
    """Draw a level above the finest of a universe, and children of its nodes with their counts."""
    level = draw(st.integers(1, universe.tree.depth))
    children = draw(st.lists(st.sampled_from(universe.nodes(level)), unique=True, min_size=1, max_size=25))
    return level, [(node, draw(st.integers(1, 9))) for node in children]


def rows_of(universe: Any, nodes: list[tuple[Any, int]]) -> Rows:
    """Return nodes with their counts as rows, sorted by their areas."""
    ordered = sorted((universe.areas(node), count) for node, count in nodes)
    areas = tuple(np.array([node[axis] for node, _ in ordered], dtype=np.int32) for axis in range(len(universe.paths)))
    return Rows(areas, np.array([count for _, count in ordered], dtype=np.int64))


@settings(max_examples=60)
@given(data=st.data())
def test_children_add_up_in_parts_of_any_size(data, universes):
    """Children add up to their parents exactly where counting one by one says so, wherever the parts are cut."""
    universe = data.draw(universes)
    tree = universe.tree
    level, children = data.draw(families(universe))
    reached, above = tree.axis_levels(level), tree.axis_levels(level - 1)
    sums: Counter[Any] = Counter()
    for node, count in children:
        sums[tuple(path[:own] for path, own in zip(node, above, strict=True))] += count
    parents = list(sums.items())
    spoil = data.draw(st.sampled_from(["", "more", "without children", "without parent"]))
    if spoil == "more":
        at = data.draw(st.integers(0, len(parents) - 1))
        parents[at] = (parents[at][0], parents[at][1] + 1)
    elif spoil == "without children":
        barren = [node for node in universe.nodes(level - 1) if node not in sums]
        parents += [(node, 1) for node in barren[-1:]]
        spoil = spoil if barren else ""
    elif spoil == "without parent":
        parents.pop(data.draw(st.integers(0, len(parents) - 1)))
    refined = tree.steps[level - 1]
    adding = AddingUp(rows_of(universe, parents) if parents else rows_of(universe, children)[:0], refined)
    rows, sizes, first = rows_of(universe, children), tree.sizes(level - 1), 0
    while first < len(rows):
        part = rows[first : first + data.draw(st.integers(1, 6))]
        first += len(part)
        areas = tuple(
            axis.ancestors(of_axis, own, own_above)
            for axis, of_axis, own, own_above in zip(tree.axes, part.areas, reached, above, strict=True)
        )
        adding.add(Rows(areas, part.counts), sizes)
    assert adding.all_fit(sizes) == (spoil == "")


@settings(max_examples=60)
@given(data=st.data())
def test_checks_do_not_depend_on_the_order_of_nodes(data, universes):
    """Whether children add up and nodes appear once is found in the order of the tree and in any other."""
    universe = data.draw(universes)
    tree = universe.tree
    level, children = data.draw(families(universe))
    reached = tree.axis_levels(level - 1)
    sums: Counter[Any] = Counter()
    for node, count in children:
        sums[tuple(path[:own] for path, own in zip(node, reached, strict=True))] += count
    counted = dict(children)
    in_tree = [(node, counted[node]) for node in universe.sort(set(counted), level)]
    parents = frontier(universe, level - 1, [(node, sums[node]) for node in universe.sort(set(sums), level - 1)])
    one_more = [(in_tree[0][0], in_tree[0][1] + 1), *in_tree[1:]]
    for nodes in (in_tree, data.draw(st.permutations(in_tree))):
        assert children_add_up(tree, parents, frontier(universe, level, nodes))
        assert areas_known_once(tree, frontier(universe, level, nodes))
        assert not children_add_up(tree, parents[: len(parents) - 1], frontier(universe, level, nodes))
        assert not areas_known_once(tree, frontier(universe, level, [*nodes, nodes[0]]))
    assert not children_add_up(tree, parents, frontier(universe, level, one_more))
    assert not children_add_up(tree, parents, frontier(universe, level, one_more[::-1]))


def frontier(universe: Any, level: int, nodes: list[tuple[Any, int]]) -> Frontier:
    """Return nodes with their counts as they come."""
    areas = np.array([universe.areas(node) for node, _ in nodes], dtype=np.int64).reshape(len(nodes), -1)
    columns = tuple(areas[:, axis] for axis in range(areas.shape[1]))
    return Frontier(level, columns, np.array([count for _, count in nodes], dtype=np.int64))


def test_a_shard_is_read_by_row_groups(tmp_path):
    """Row groups come as they were written, the columns of an empty shard without rows, and of an altered shard nothing."""
    path = tmp_path / "shard.parquet"
    groups = [{"area_0": np.array(part), "count": np.array(part) + 1} for part in ([1, 2], [], [3])]
    groups = [{name: column.astype(np.int64) for name, column in group.items()} for group in groups]
    sha256 = write_shard(path, ("area_0", "count"), groups)
    found = list(read_row_groups(path, sha256))
    joined = {name: np.concatenate([group[name] for group in found]).tolist() for name in ("area_0", "count")}
    assert joined == {name: column.tolist() for name, column in read_shard(path, sha256).items()}
    assert joined == {"area_0": [1, 2, 3], "count": [2, 3, 4]}
    assert len(found) > 1
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match="is not what was sealed"):
        next(read_row_groups(path, sha256))
    path.unlink()
    empty = list(read_row_groups(path, write_shard(path, ("area_0", "count"), [])))
    assert [{name: column.tolist() for name, column in group.items()} for group in empty] == [
        {"area_0": [], "count": []}
    ]


def test_files_are_hashed_in_their_order(tmp_path):
    """Each file gets its own sha256, also where files are larger than what is read at once."""
    paths = [tmp_path / str(size) for size in (0, 1, 3 * 2**20 + 1, 2**20)]
    for path in paths:
        path.write_bytes(path.name.encode() * (int(path.name) // len(path.name)))
    assert sha256_of_all(paths) == [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_every_node_is_loaded_whatever_the_branches(home):
    """The published tables hold as many rows as the store has recorded for all branches."""
    with store() as con:
        frontiers = list_frontiers(con, home.name)
    for level in range(DEPTH + 1):
        recorded = sum(shard.nonzero for (of, _), shard in frontiers.items() if of == level)
        assert table_of(home, level).height == recorded


def test_the_plan_counts_a_csv_only_where_there_is_one():
    """Above the limit a CSV takes no disk unless it is asked for, and below it unless it is not wanted.

    Where nobody has guessed the total, there may be fewer rows than cells: the bound has the largest CSV that may be written.
    """

    def published(cells: int, total: int | None) -> dict[bool | None, int]:
        return {
            asked: disk_size([1, cells], [0.0, 1.0], total, finest_areas=[cells], code_bytes=9.0, csv=asked).published
            for asked in (None, True, False)
        }

    for cells, total, by_itself in ((2 * MOST_CSV_ROWS, 1, True), (10 * MOST_CSV_ROWS, 10**10, False)):
        sizes = published(cells, total)
        assert sizes[True] - sizes[False] > 10
        assert sizes[None] == sizes[by_itself]
    least, more = published(MOST_CSV_ROWS, None), published(2 * MOST_CSV_ROWS, None)
    assert least[None] == least[True]
    assert more[False] + 10 * MOST_CSV_ROWS < more[None] < more[True]

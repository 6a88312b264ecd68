"""Tables that are written, read, added up and stored a part at a time: the parts must not show, and faults between them must."""

import json
import shutil
from collections import Counter
from dataclasses import replace
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

from storage.counts.published import _rows_of, forget_levels, published_total, store_levels, store_table
from storage.counts.shard_files import check_shard, read_row_groups, write_shard
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.releases.register import find_release, set_terms
from tasks.folder.publish.task import publish
from tasks.folder.verify.folder import verify
from tasks.folder.verify.levels import AddingUp
from tasks.format.areas import AxisAreas
from tasks.format.csv import csv_failures, write_csv
from tasks.format.manifest import Manifest
from tasks.format.tables import LevelTables, Rows, in_order, write_parquet
from tasks.laws.named import noise_of
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.tree.frontier import Frontier
from tasks.tree.keys import all_differ, order_of, packed
from tasks.uncertainty.intervals import row_margins
from tasks.validate.task import areas_known_once, children_add_up
from tests.support.folders import published, rewrite, table_of, with_sums
from tests.support.ledger import read_shard
from tests.support.spec import SPEC as COUNTRY

SPEC = COUNTRY | {
    "name": "large",
    "privacy": {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1}
    | {"epsilon": 40.5, "delta": 3.0e-9},  # so much that every level keeps many rows
    "budget": {"epsilon": 100.0, "delta": 1.0e-7},
}
PEOPLE = 5_000
DEPTH = 6
GROUP = 2  # rows of a row group


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Release a made-up country; return the published folder, with its store at TRELLIS_HOME."""
    place = tmp_path_factory.mktemp("large")
    country = draw_country(regions=3, provinces=6, municipalities=18, people=PEOPLE, generator=np.random.default_rng(3))
    write_country(country, place / "data")
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(place / "spec.yaml")


@pytest.fixture
def aside(home):
    """Put the published folder aside, to publish it again; return where it is meanwhile."""
    aside = home.rename(home.with_name("aside"))
    yield aside
    shutil.rmtree(home, ignore_errors=True)
    aside.rename(home)


@pytest.fixture
def folder(home, tmp_path):
    """Return a copy of the published folder whose tables have many row groups."""
    copy = tmp_path / home.name
    shutil.copytree(home, copy)
    for level in range(DEPTH + 1):
        put(copy, level, table_of(copy, level))
    return copy


def put(folder, level, table, row_group=GROUP):
    """Replace the table of a level, and where it is the finest `counts.csv` too, with so many rows in a row group."""
    # Intervals are widened where counts have left them.
    if {"count", "low", "high"} <= set(table.columns):
        table = table.with_columns(low=pl.min_horizontal("low", "count"), high=pl.max_horizontal("high", "count"))
    pq.write_table(table.to_arrow(), folder / "counts" / f"level_{level}.parquet", row_group_size=row_group)
    if level == DEPTH and (folder / "counts.csv").exists():
        table.write_csv(folder / "counts.csv")


def failures(folder):
    """Write fitting checksums, margins and counts of rows and marks, and return what `verify` says all the same."""

    def count(manifest):
        for entry in manifest["levels"]:
            path = folder / "counts" / f"level_{entry['level']}.parquet"
            entry["nonzero"] = pq.read_metadata(path).num_rows
            if marked := pq.read_table(path, columns=["signal"]).column(0).combine_chunks().true_count:
                entry["signal"] = {"above": None} | entry.get("signal", {}) | {"rows": marked}
        levels = Manifest.model_validate(manifest).levels
        noises, cells, rows = zip(*((noise_of(entry), entry.cells, entry.nonzero) for entry in levels), strict=True)
        margins = row_margins(noises, cells, rows, manifest["intervals"]["confidence"])
        for entry, margin in zip(manifest["levels"], margins, strict=True):
            entry["half_width"] = margin.own

    rewrite(folder, count)
    with_sums(folder)
    return verify(folder)


def columns_of(universe, nodes):
    """Return nodes with their counts as columns, as they come."""
    areas = np.array([universe.areas(node) for node, _ in nodes], dtype=np.int64)
    areas = areas.reshape(len(nodes), len(universe.paths))
    return tuple(areas.T), np.array([count for _, count in nodes], dtype=np.int64)


@settings(max_examples=40)
@given(data=st.data())
def test_tables_read_as_text_whatever_the_row_groups(data, universes, tmp_path_factory):
    """Every reader gets text and whole numbers, sorted, row for row, from row groups of every size."""
    universe = data.draw(universes)
    level = data.draw(st.integers(0, universe.tree.depth))
    nodes = st.lists(st.sampled_from(universe.nodes(level)), unique=True, min_size=0 if level else 1, max_size=20)
    counted = [(node, data.draw(st.integers(1, 2**50))) for node in data.draw(nodes)]
    rows = Rows(*columns_of(universe, counted))
    group = data.draw(st.integers(1, 8))
    path = tmp_path_factory.mktemp("table") / "level.parquet"
    ordered = in_order(rows, universe.tree.sizes(level))
    write_parquet(path, LevelTables(universe.tree, level).of(ordered, group), universe.tree.axes[0].name)
    expected = sorted((tuple(code for of_axis in node for code in of_axis), count) for node, count in counted)
    width = sum(universe.tree.axis_levels(level))
    reached = zip(universe.tree.axes, universe.tree.axis_levels(level), strict=True)
    names = [f"{axis.name}_{name}" for axis, own in reached for name in axis.level_names[:own]]
    read = pl.read_parquet(path)
    assert read.schema == {**dict.fromkeys(names, pl.String), "count": pl.Int64, "signal": pl.Boolean}
    assert read.rows() == [(*codes, count, None) for codes, count in expected]
    table = pq.read_table(path)
    assert table.schema.types == [pa.string()] * width + [pa.int64(), pa.bool_()]
    assert pq.read_metadata(path).num_row_groups == max(1, -(-len(rows) // group))
    found = duckdb.sql(f"FROM read_parquet('{path}')")
    assert [str(kind) for kind in found.types] == ["VARCHAR"] * width + ["BIGINT", "BOOLEAN"]
    assert found.fetchall() == read.rows()


UNSORTED, REPEATED = "rows must be sorted by their codes.", "two rows have the same codes."
NO_CODE = "counts must be whole numbers above zero, and no code may be missing."


@pytest.mark.parametrize(("order", "level", "told"), [
    (lambda rows: [*rows[: GROUP - 1], GROUP, GROUP - 1, *rows[GROUP + 1 :]], 3, [UNSORTED]),
    (lambda rows: [*rows[:GROUP], *rows[GROUP - 1 :]], 4, [REPEATED]),
    (lambda rows: [*rows, 0], DEPTH, [REPEATED, UNSORTED]),
    (list, 1, [NO_CODE]),  # the first row, which still comes before all others, loses a code
], ids=["exchanged", "twice", "twice far apart", "without a code"])  # fmt: skip
def test_rows_that_are_not_sorted_and_once_each_are_found(folder, order, level, told):
    """Across row groups and far apart, rows that are exchanged, repeated or without a code are found, and nothing else is said."""
    table = table_of(folder, level)
    table = table[order(range(table.height))]
    if told == [NO_CODE]:
        column = pl.col("destination_region")
        table = table.with_columns(pl.when(pl.int_range(pl.len()) > 0).then(column).alias("destination_region"))
    put(folder, level, table)
    assert failures(folder) == [f"level_{level}: {of}" for of in told]


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
    assert failures(folder) == [f"level_{DEPTH}: the counts do not add up to those of the level above."]


def test_csv_may_be_missing_where_the_manifest_says_so(folder):
    """Without CSV a folder is whole if its manifest says so, and only then; one that nobody promised is looked at all the same."""
    (folder / "counts.csv").unlink()
    (folder / "metadata.json").unlink()
    missing = ["counts.csv is missing or is not a CSV file of the finest level."]
    for promised, told in ((False, []), (True, missing), (None, missing)):  # at last, as an earlier Trellis wrote it
        rewrite(folder, lambda of, csv=promised: of.pop("csv") if csv is None else of.update(csv=csv))
        assert failures(folder) == told
    rewrite(folder, lambda manifest: manifest.update(csv=False))
    table_of(folder, DEPTH)[:-1].write_csv(folder / "counts.csv")
    assert failures(folder) == ["counts.csv differs from the table of the finest level."]


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
    lines = whole.read_bytes()
    for text in (lines.replace(b"007", b"7"), lines.removesuffix(f"x,{2**62}\n".encode()), lines + b"y,1\n"):
        assert text != lines
        parts.write_bytes(text)
        assert csv_failures(parts, [finest]) == ["counts.csv differs from the table of the finest level."]


def store_all(con, home):
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
        named = "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = ?"
        kinds = dict(con.execute(named, [home.name]).fetchall())
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

    def full(*_):
        raise StoreError("The disk is full.")

    assert publish.fn(home.name).value
    assert not publish.fn(home.name).value  # it was there
    shutil.rmtree(home)
    monkeypatch.setattr("tasks.folder.publish.task.store_table", full)
    assert not publish.fn(home.name).value
    assert verify(home) == []


def test_a_store_is_bounded_only_while_a_table_is_stored(home, monkeypatch):
    """What a release may take bounds DuckDB too, down to what it needs, and the store is as it was afterwards."""
    asked, rows_of, seen = "SELECT current_setting('memory_limit'), current_setting('threads')", _rows_of, list[Any]()
    with store() as con:
        ((before, threads),) = con.execute(asked).fetchall()

        def looking(files):
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
            con.execute("UPDATE shards SET rows = rows + ? WHERE kind = 'counts' AND level = 3", [more])
        try:
            with pytest.raises(StoreError, match="Level 3 does not have as many nodes as the store recorded"):
                publish.fn(home.name)
        finally:
            with store() as con:
                con.execute("UPDATE shards SET rows = rows - ? WHERE kind = 'counts' AND level = 3", [more])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 6)), max_size=30),
    st.sampled_from([1, 2**20]),  # the second fills more than 64 bits
)
def test_keys_order_nodes_and_tell_them_apart(nodes, factor):
    """Nodes are ordered by their areas and told apart, whether 64 bits hold a key or not."""
    areas = tuple(np.array([node[axis] for node in nodes], dtype=np.int32) for axis in range(3))
    sizes = [5 * factor, 6 * factor, 7 * factor]
    assert (packed(areas, sizes) is None) == (factor > 1)
    assert [nodes[row] for row in order_of(areas, sizes)] == sorted(nodes)
    assert all_differ(areas, sizes) == (len(set(nodes)) == len(nodes))


CODES = st.one_of(st.none(), st.sampled_from(["", "a", "b", "10", "9", "é", "\U0001f600"]))


@given(
    st.lists(st.lists(st.tuples(CODES, CODES, CODES), min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from([2**63 - 1, 20]),  # with the second, keys of three codes do not fit
)
def test_areas_are_known_by_their_paths(parts, largest):
    """Over any number of tables an area has one number, two have two, ranks follow the text, and parents are known."""
    areas = AxisAreas()
    number_of = {}
    prefixes = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.format.areas._LARGEST_KEY", largest)
        for rows in parts:
            columns = [pa.array(column, pa.string()).dictionary_encode() for column in zip(*rows, strict=True)]
            numbers, ranks = areas.number(len(rows), columns)
            above, _ = areas.number(len(rows), columns[:2])
            parents = areas.ancestors(numbers, 3, 2).tolist()
            for row, number, parent in zip(rows, numbers.tolist(), parents, strict=True):
                assert number_of.setdefault(row, number) == number
                prefixes.setdefault(row[:2], parent)
            assert areas.ancestors(numbers, 3, 2).tolist() == above.tolist()
            texts = [[(code is not None, code or "") for code in row] for row in rows]
            for one, of_one in zip(texts, ranks.tolist(), strict=True):
                for other, of_other in zip(texts, ranks.tolist(), strict=True):
                    assert (one < other, one == other) == (of_one < of_other, of_one == of_other)
    assert sorted(number_of.values()) == list(range(areas.known(3)))
    assert sorted(prefixes.values()) == list(range(areas.known(2)))


@settings(max_examples=60)
@given(data=st.data())
def test_children_add_up_in_any_order_and_in_parts_of_any_size(data, universes):
    """Children add up to parents, once each, exactly where counting one by one says so, however listed and wherever parts are cut."""
    universe = data.draw(universes)
    tree = universe.tree
    level = data.draw(st.integers(1, tree.depth))
    nodes = data.draw(st.lists(st.sampled_from(universe.nodes(level)), unique=True, min_size=1, max_size=25))
    counts = dict(zip(nodes, data.draw(st.lists(st.integers(1, 9), min_size=25, max_size=25)), strict=False))
    reached, above = tree.axis_levels(level), tree.axis_levels(level - 1)
    sums = Counter()
    for node, count in counts.items():
        sums[tuple(path[:own] for path, own in zip(node, above, strict=True))] += count
    parents = [(node, sums[node]) for node in universe.sort(set(sums), level - 1)]
    spoil = data.draw(st.sampled_from(["", "more", "without children", "without parent"]))
    at = data.draw(st.integers(0, len(parents) - 1))
    if spoil == "more":
        parents[at] = (parents[at][0], parents[at][1] + 1)
    elif spoil == "without children":
        barren = [node for node in universe.nodes(level - 1) if node not in sums]
        parents += [(node, 1) for node in barren[-1:]]
        spoil = spoil if barren else ""
    elif spoil == "without parent":
        parents.pop(at)
    children = [(node, counts[node]) for node in universe.sort(set(counts), level)]
    if spoil != "without children":  # as the walk has them, in the order of the tree or in any other
        top = Frontier(level - 1, *columns_of(universe, parents))
        for listed in (children, data.draw(st.permutations(children))):
            below = Frontier(level, *columns_of(universe, listed))
            assert children_add_up(tree, top, below) == (spoil == "")
            assert areas_known_once(tree, below)
            assert not areas_known_once(tree, Frontier(level, *columns_of(universe, [*listed, listed[0]])))
    sizes, first = tree.sizes(level - 1), 0  # as a folder has them, sorted by their areas
    by_areas, sorted_parents = (sorted(of, key=lambda pair: universe.areas(pair[0])) for of in (children, parents))
    rows = Rows(*columns_of(universe, by_areas))
    known = Rows(*columns_of(universe, sorted_parents)) if parents else rows[:0]
    adding = AddingUp(known, tree.steps[level - 1])
    while first < len(rows):
        part = rows[first : first + data.draw(st.integers(1, 6))]
        first += len(part)
        of_axes = zip(tree.axes, part.areas, reached, above, strict=True)
        areas = tuple(axis.ancestors(of_axis, own, own_above) for axis, of_axis, own, own_above in of_axes)
        adding.add(Rows(areas, part.counts), sizes)
    assert adding.all_fit(sizes) == (spoil == "")


def test_a_shard_is_read_by_row_groups(tmp_path):
    """Row groups come as they were written, the columns of an empty shard without rows, and of an altered shard nothing."""
    path, columns = tmp_path / "shard.parquet", ("area_0", "count")
    for parts in ([[1, 2], [], [3]], []):
        groups = [{name: np.array(part, dtype=np.int64) for name in columns} for part in parts]
        sha256, wanted = write_shard(path, columns, groups), [number for part in parts for number in part]
        found = list(read_row_groups(path, sha256))
        for name in columns:
            assert [value for group in found for value in group[name].tolist()] == wanted
            assert read_shard(path, sha256)[name].tolist() == wanted
        assert (len(found) > 1) == bool(parts)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(StoreError, match="is not what was sealed"):
            next(read_row_groups(path, sha256))
        path.unlink()

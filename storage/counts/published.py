"""Published levels in the store, for SQL: a schema per release, with a table or a view per level, and readable names."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from storage.counts.shard_files import check_shard, read_codebook, shard_path
from storage.database.connections import Connection, file_literal
from storage.machine.home import shard_folder
from storage.releases.register import Release, find_release
from storage.releases.shards import list_shards, released_of
from storage.tables import BOUNDS, ENDS, SIGNAL, column_name, files_there, flat_features

_MOST_BYTES = 63  # of a name: the limit of other databases


def level_views(
    levels: Sequence[Mapping[str, str | None]], flat: Collection[str] = (), taken: Collection[str] = ()
) -> list[str]:
    """Return the names of the views of a release's levels: `total`, then `<origin>_to_<destination>`, `by_<features>`, or both.

    No two names are the same, whatever the case of their letters. A name ends with the level's number if it would otherwise
    repeat another or one that is taken, or if it is cut because it is too long.

    Args:
        levels: per level, by axis the name of the axis level reached, None where it is not refined yet.
        taken: names that no view can have.
    """
    wanted = [_wanted(axes, flat) for axes in levels]
    seen = Counter(name.casefold() for name in wanted)
    not_free = {name.casefold() for name in taken}
    alone = [
        seen[name.casefold()] == 1 and name.casefold() not in not_free and len(name.encode()) <= _MOST_BYTES
        for name in wanted
    ]
    not_free |= {name.casefold() for name, is_alone in zip(wanted, alone, strict=True) if is_alone}
    names = []
    for level, (name, is_alone) in enumerate(zip(wanted, alone, strict=True)):
        numbered, digits = name, f"_{level}"
        while not is_alone and (numbered == name or numbered.casefold() in not_free):
            cut = name.encode()[: _MOST_BYTES - len(digits)].decode(errors="ignore")
            numbered, digits = cut + digits, f"{digits}_{level}"
        not_free.add(numbered.casefold())
        names.append(numbered)
    return names


def _wanted(axes: Mapping[str, str | None], flat: Collection[str]) -> str:
    if not any(axes.values()):
        return "total"
    ends = [axes.get(end) for end in ENDS]
    flows = "_to_".join(level or "all" for level in ends) if set(ENDS) <= set(axes) and any(ends) else ""
    by = [column_name(axis, level, flat) for axis, level in axes.items() if level and not (flows and axis in ENDS)]
    return "_".join(filter(None, [flows, *(["by", *by] if by else [])]))


_LEAST_MEMORY = 2**27  # bytes: DuckDB needs so much for a table of any size

TABLE_ROWS = 100_000  # a level with more rows is stored by the numbers of its areas: codes take five times as long and as much disk


def partial_folder(folder: Path) -> Path:
    """Return the folder beside a published folder in which it is written until it is complete."""
    return folder.with_name(f".{folder.name}.partial")


def store_table(con: Connection, release_id: str, folder: Path, level: int, memory: int) -> None:
    """Store the rows of a level of a folder in the schema named after the release; `store_levels` makes the tables known.

    A small level is the table `level_0`, `level_1`, …. Of a large one, `level_7_numbers` has its counts by the numbers of areas, as its shards hold
    them, the published intervals and marks; a table per axis has the codes of these numbers. Each is committed by itself, and takes
    the place of a table that a killed run has left.

    Args:
        con: the store, outside of a transaction.
        folder: its published folder, or what is to become it; the table of the level is complete.
        memory: bytes that the release may take.
    Raises:
        StoreError: a shard of a large level is missing or not what was recorded.
    """
    from duckdb import CatalogException

    con.execute(f"CREATE SCHEMA IF NOT EXISTS {_name(release_id)}")
    files = files_there(folder, level)
    is_large = _is_large(level, files)
    with _limited(con, max(memory // 2, _LEAST_MEMORY), one_thread=not is_large):
        if is_large:
            _store_numbers(con, release_id, level, files)
            _store_codes(con, release_id, level)
        else:
            rows = f"TABLE {_name(release_id)}.level_{level} AS SELECT * FROM {_rows_of(files)}"
            try:
                con.execute(f"CREATE OR REPLACE {rows}")
            except CatalogException:  # the view of a large level, which another version has left
                _drop(con, release_id, f"level_{level}")
                con.execute(f"CREATE {rows}")


@contextmanager
def _limited(con: Connection, memory: int, *, one_thread: bool) -> Iterator[None]:
    """Bound what DuckDB takes while a table is stored; another release that this process stores meanwhile has the same bounds.

    Args:
        memory: bytes; what needs more is written to disk.
        one_thread: whether it works in the thread that asks. A large table, which is sorted, has all threads. Of a small one several
            leave row groups half full, and a checkpoint writes these again, in one thread.
    """
    con.execute(f"SET memory_limit = '{memory}B'")
    if one_thread:
        con.execute("SET threads = 1")
    try:
        yield
    finally:
        con.execute("RESET threads")
        con.execute("RESET memory_limit")


def store_levels(con: Connection, release_id: str, folder: Path, levels: int) -> None:
    """Make the tables of a published folder known, which `store_table` has stored, as `level_0`, `level_1`, …

    A large level is a view that joins the numbers of its areas with their codes. Views with readable names lie beside the levels;
    `published` lists these. Tables of views are `view_<name>`.
    """
    listed = con.execute("DELETE FROM published_levels WHERE release_id = ? RETURNING view_name", [release_id])
    for (view,) in listed.fetchall():  # the readable views of an earlier run
        _drop(con, release_id, view)
    release, rows_of_level, taken = find_release(con, release_id), [], [f"level_{level}" for level in range(levels)]
    for level in range(levels):
        files = files_there(folder, level)
        rows_of_level.append(_row_count(files))
        if _is_large(level, files):
            _drop(con, release_id, f"level_{level}")
            _join_codes(con, release_id, level, files)
            taken += [f"level_{level}_numbers", *(_codes_of(axis, name) for _, axis, name in _refined(release, level))]
    _name_levels(con, release, rows_of_level, taken)
    _store_views(con, release_id, folder, levels)


def forget_levels(con: Connection, release_id: str) -> None:
    """Drop the tables of a release that was killed while it was recorded as published."""
    con.execute(f"DROP SCHEMA IF EXISTS {_name(release_id)} CASCADE")


def _row_count(files: Sequence[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)


def _is_large(level: int, files: Sequence[Path]) -> bool:
    return level > 0 and _row_count(files) > TABLE_ROWS


def _rows_of(files: Sequence[Path]) -> str:
    """Return what selects the rows of Parquet files, one file after the other."""
    return f"read_parquet([{', '.join(map(file_literal, files))}], hive_partitioning = false)"


def _store_views(con: Connection, release_id: str, folder: Path, levels: int) -> None:
    """Store the tables of views as `view_<name>`; those that have not the cells of a level are listed among the published ones."""
    for view in find_release(con, release_id).terms.views:
        path, name = folder / "views" / f"{view.name}.parquet", f"view_{view.name}"
        _drop(con, release_id, name)
        con.execute(f"CREATE TABLE {_name(release_id)}.{_name(name)} AS SELECT * FROM {_rows_of([path])}")
        if view.number >= levels:
            values = [release_id, view.number, name, pq.read_metadata(path).num_rows]
            con.execute("INSERT INTO published_levels VALUES (?, ?, ?, ?)", values)


def _name_levels(con: Connection, release: Release, rows_of_level: Sequence[int], taken: Sequence[str]) -> None:
    """Create the readable views of a release's levels beside its tables, and list them with their number of rows.

    The names of the tables are not looked up: DuckDB would describe every table of every release.
    """
    flat, schema = flat_features(release.terms.published_spec), _name(release.id)
    views = level_views([terms.axes for terms in release.levels], flat, taken)
    for level, (view, rows) in enumerate(zip(views, rows_of_level, strict=True)):
        con.execute(f"CREATE VIEW {schema}.{_name(view)} AS SELECT * FROM {schema}.level_{level}")
        con.execute("INSERT INTO published_levels VALUES (?, ?, ?, ?)", [release.id, level, view, rows])


def _drop(con: Connection, release_id: str, name: str) -> None:
    """Drop the table or view of an earlier run with this name: DuckDB does not replace a table by a view.

    Views alone are looked through: `information_schema` describes every table of every release.
    """
    views = "SELECT 1 FROM duckdb_views() WHERE schema_name = ? AND view_name = ?"
    kind = "VIEW" if con.execute(views, [release_id, name]).fetchall() else "TABLE"
    con.execute(f"DROP {kind} IF EXISTS {_name(release_id)}.{_name(name)}")


def _store_numbers(con: Connection, release_id: str, level: int, published: Sequence[Path]) -> None:
    """Store a level as a table of numbers. The intervals and marks are those of the published table, whose rows are in the same order."""
    shards = [shard for shard in released_of(list_shards(con, release_id)).values() if shard.level == level]
    own = [shard_path(release_id, shard.name) for shard in shards]
    for path, shard in zip(own, shards, strict=True):
        check_shard(path, shard.sha256)
    axes = [number for number, _, _ in _refined(find_release(con, release_id), level)]
    areas = ", ".join(f"area_{number}" for number in axes)
    narrow = ", ".join(f"area_{number}::INTEGER AS area_{number}" for number in axes)
    ends = _ends(published)
    con.execute(
        f"CREATE OR REPLACE TABLE {_name(release_id)}.level_{level}_numbers AS SELECT * FROM"
        f" (SELECT {narrow}, count FROM {_rows_of(own)} ORDER BY {areas})"
        + (f" POSITIONAL JOIN (SELECT {', '.join(ends)} FROM {_rows_of(published)})" if ends else "")
    )


def _store_codes(con: Connection, release_id: str, level: int) -> None:
    """Store the codes of the areas of a level by their numbers, in a table per axis."""
    release = find_release(con, release_id)
    flat = flat_features(release.terms.published_spec)
    for _, axis, reached in _refined(release, level):
        codebook = read_codebook(shard_folder(release.id), axis)
        above = codebook.columns[: codebook.columns.index(reached) + 1]
        codes = codebook.select(above).rename({name: column_name(axis, name, flat) for name in above})
        table, key = _table_of_codes(axis, reached)
        codes = codes.unique(maintain_order=True).with_row_index(key)  # in the order in which areas are numbered
        con.execute(f"CREATE OR REPLACE TABLE {_name(release.id)}.{table} AS SELECT * FROM codes")


def _codes_of(axis: str, reached: str) -> str:
    return f"codes_{axis}_{reached}"


def _table_of_codes(axis: str, reached: str) -> tuple[str, str]:
    """Return the quoted name of the table with the codes of an axis level, and the name of the column with the numbers of its areas."""
    return _name(_codes_of(axis, reached)), "number" if axis.casefold() == "area" else "area"


def _join_codes(con: Connection, release_id: str, level: int, published: Sequence[Path]) -> None:
    """Create the view of a level that is stored by numbers, which has the codes instead."""
    release, schema = find_release(con, release_id), _name(release_id)
    joins, columns, areas = "", "", []
    for number, axis, reached in _refined(release, level):
        codes, key = _table_of_codes(axis, reached)
        joins += f" JOIN {schema}.{codes} AS codes_{number} ON codes_{number}.{key} = numbers.area_{number}"
        columns += f"codes_{number}.* EXCLUDE ({key}), "
        areas.append(f"area_{number}")
    con.execute(
        f"CREATE VIEW {schema}.level_{level} AS SELECT {columns}{', '.join(('count', *_ends(published)))}"
        f" FROM {schema}.level_{level}_numbers AS numbers{joins} ORDER BY {', '.join(areas)}"
    )


def _refined(release: Release, level: int) -> list[tuple[int, str, str]]:
    """Return the number, the name and the level reached of each axis that a level refines."""
    reached = enumerate(release.levels[level].axes.items())
    return [(number, axis, name) for number, (axis, name) in reached if name]


def _ends(published: Sequence[Path]) -> list[str]:
    """Return the columns of intervals and marks that the files of a level have."""
    return [name for name in pq.read_schema(published[0]).names if name in {*BOUNDS, SIGNAL}]


def published_total(con: Connection, release_id: str) -> int | None:
    """Return the published total of a release; None if the store does not hold its levels."""
    listed = con.execute("FROM published_levels WHERE release_id = ? AND level = 0", [release_id])
    if not listed.fetchall():
        return None
    return int(con.execute(f"SELECT sum(count) FROM {_name(release_id)}.level_0").fetchall()[0][0])


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""The vault: the true counts of one release, in a file of its own, so that deleting the file deletes them.

It is written while a release is ingested and its tree is built. After that only measuring opens it, read-only.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from storage.counts.shard_files import IntArray
from storage.database.connections import Connection, connect, let_go
from storage.errors import StoreError
from storage.machine.home import VAULTS, subfolder


def vault_path(release_id: str) -> Path:
    """Return the path of a release's true counts."""
    return subfolder(VAULTS) / f"{release_id}.duckdb"


@contextmanager
def vault(release_id: str, *, read_only: bool = True, memory: int | None = None) -> Iterator[Connection]:
    """Open the vault of a release. DuckDB writes to a folder beside it what does not fit in memory; that is as confidential.

    While a release runs, a vault that is only read stays open for a moment, for the next level.

    Args:
        read_only: False while it is written.
        memory: bytes that DuckDB may take; most of the machine's memory if left out.
    Raises:
        StoreError: it is to be read, and is not there.
    """
    path = vault_path(release_id)
    if read_only and not path.exists():
        raise StoreError(
            f"{path} is gone.",
            field="TRELLIS_HOME",
            hint="Mount its disk again, or put the file back. Then run `trellis rerun`.",
        )
    with connect(path, spill=_spill(path), read_only=read_only, lingers=read_only) as con:
        if memory:
            con.execute(f"SET memory_limit = '{memory}B'")
        yield con


def list_vaults() -> list[str]:
    """Return the releases that have a vault, or files left over from one."""
    return sorted({path.name.partition(".duckdb")[0] for path in subfolder(VAULTS).iterdir()})


def vault_files() -> list[Path]:
    """Return the files of all vaults; nobody may be writing one."""
    return sorted(path for path in subfolder(VAULTS).rglob("*") if path.is_file())


def remove_vault(release_id: str) -> None:
    """Delete the true counts of a release, their write-ahead log, and the temporary files of a killed process."""
    path = vault_path(release_id)
    let_go(path)
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)
    shutil.rmtree(_spill(path), ignore_errors=True)


def _spill(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def read_records(con: Connection, axes: int) -> tuple[list[IntArray], IntArray]:
    """Return, from the records that ingest wrote, the finest area per axis and the true count. Confidential."""
    areas = [f"area_{axis}::BIGINT" for axis in range(axes)]
    *of_axes, true_counts = _columns(con, f"SELECT {', '.join([*areas, 'true_count'])} FROM records").values()
    return of_axes, true_counts


def _columns(con: Connection, query: str, values: Sequence[int] | None = None) -> dict[str, IntArray]:
    """Return the columns of what a query selects, through Arrow, which takes a quarter of the time of NumPy's way.

    Args:
        values: of its parameters, so that none is in its text.
    """
    table = con.sql(query, params=values).to_arrow_table()
    arrays = {name: table.column(name).to_numpy() for name in table.column_names}
    # OpenDP refuses arrays that cannot be written
    return {name: np.require(array, requirements="W") for name, array in arrays.items()}


def write_true_level(con: Connection, level: int, areas: Sequence[IntArray], columns: Mapping[str, IntArray]) -> None:
    """Add a true level, in the order of the tree, with each node's position.

    An axis on which all areas are 0, such as one that is not refined yet, has no column. With many features that saves half
    of the columns.
    """
    arrays = {f"area_{axis}": area for axis, area in enumerate(areas) if area.any()} | dict(columns)
    arrays["position"] = np.arange(len(areas[0]))
    rows = pa.table(arrays)  # noqa: F841 (DuckDB finds it by its name)
    con.execute(f"CREATE TABLE true_level_{level} AS SELECT * FROM rows")


def write_true_codebook(con: Connection, axis: int, codebook: pl.DataFrame) -> None:
    """Add the codes of an axis that no codebook lists. They come from the records, so they are as confidential."""
    rows = codebook.rename({level: f"level_{number}" for number, level in enumerate(codebook.columns, 1)})  # noqa: F841 (DuckDB finds it by its name)
    con.execute(f"CREATE TABLE true_codebook_{axis} AS SELECT * FROM rows")


def read_true_codebooks(con: Connection) -> dict[int, pl.DataFrame]:
    """Return, by axis number, the sorted codes of the records on every axis that has no codebook. Confidential."""
    names = _tables(con)
    tables = {int(name.rpartition("_")[2]): name for name in names if name.startswith("true_codebook_")}
    return {axis: con.sql(f"SELECT * FROM {table}").pl().sort(pl.all()) for axis, table in sorted(tables.items())}


def _tables(con: Connection) -> list[str]:
    return [name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()]


def true_levels(release_id: str) -> int:
    """Return how many true levels a vault holds; 0 while its tree is not complete."""
    with vault(release_id) as con:
        names = _tables(con)
    return 0 if "records" in names else sum(name.startswith("true_level_") for name in names)


def read_true_nodes(con: Connection, level: int, lowest: Sequence[int], highest: Sequence[int]) -> dict[str, IntArray]:
    """Return areas, `first_child` and `children` of a level's true nodes between the first and last area of each axis. Confidential."""
    areas = _areas(con, level, range(len(lowest)))
    columns = ", ".join(f"{area} AS {name}" for name, area in areas.items())
    within = " AND ".join(f"{area} BETWEEN ? AND ?" for area in areas.values())
    bounds = [bound for pair in zip(lowest, highest, strict=True) for bound in pair]
    return _columns(con, f"SELECT {columns}, first_child, children FROM true_level_{level} WHERE {within}", bounds)


def read_true_leaves(con: Connection, level: int, axes: int, most: int) -> Iterator[tuple[list[IntArray], IntArray]]:
    """Yield the areas per axis and the true counts of all true nodes of a level, in order, at most `most` nodes at a time. Confidential."""
    nodes = count_true_nodes(con, level)
    for first in range(0, nodes, most):
        end = min(first + most, nodes)
        *areas, true_counts = read_true_rows(con, level, range(axes), first, end, ["true_count"]).values()
        yield areas, true_counts


def count_true_nodes(con: Connection, level: int) -> int:
    """Return how many true nodes a level has. Confidential."""
    (nodes,) = con.execute(f"SELECT count(*) FROM true_level_{level}").fetchall()[0]
    return int(nodes)


def read_true_rows(
    con: Connection,
    level: int,
    axes: Iterable[int],
    first: int,
    end: int,
    columns: Sequence[str] = ("true_count", "first_child", "children"),
) -> dict[str, IntArray]:
    """Return the areas on some axes and other columns of a level's true nodes at some positions. Confidential.

    Args:
        end: the position after the last one.
        columns: which follow the areas.
    Raises:
        StoreError: a node is missing or out of order.
    """
    areas = [f"{area} AS {name}" for name, area in _areas(con, level, axes).items()]
    query = f"SELECT {', '.join(['position', *areas, *columns])} FROM true_level_{level} WHERE position >= ? AND position < ?"
    rows = _columns(con, query, [first, end])
    # DuckDB keeps the order of insertion; a sort takes ten times as long
    if not np.array_equal(rows.pop("position"), np.arange(first, end)):
        raise StoreError(f"Level {level} of the vault is not complete.", field="TRELLIS_HOME", hint="Restore a backup.")
    return rows


def _areas(con: Connection, level: int, axes: Iterable[int]) -> dict[str, str]:
    """Return, by its name, the SQL of the areas on each axis in a true level: their column, or 0 where they have none."""
    described = con.execute(f"SELECT * FROM true_level_{level} LIMIT 0").description or []
    there = {column[0] for column in described}
    return {name: name if name in there else "0::BIGINT" for name in (f"area_{axis}" for axis in axes)}

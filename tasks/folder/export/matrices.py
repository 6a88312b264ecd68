"""Matrices of trips for transport models: an Open Matrix file (OMX 0.2) for each level that has the same zones at both ends.

A file has a matrix for each number of a table: `count`, `low`, `high`; of a level that refines attributes of trips too, one for each
number and combination of codes, such as `count_bus`, whose attribute `trellis_codes` has the codes as they are. Rows are origins and columns
are destinations. A pair of zones
without a row has a count of 0 and, since no interval is published for it, NaN in the others. Zones are all areas of the codebook, in the
order of their codes, with trips or without. The mapping `zone` numbers them from 1 on; `zone_code` has their codes and `zone_name`
their names, as UTF-8; `zone_code_<k>` has the codes of the areas of level k in which they lie.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from storage.tables import COUNT, ENDS, Role, ends_of
from tasks.folder.export.tables import PublishedTable, PublishedTables
from tasks.format.manifest import Manifest
from tasks.format.noisy_counts import CODEBOOK
from tasks.format.published_tree import published_names, tree_of_codebook
from tasks.tree.order import Tree
from tasks.words.areas import NAME, code_columns

MOST_ZONES = 20_000  # of a matrix of 400 million cells, 3.2 GB once it is read

FOLDER, ENDING = "omx", "omx"
_ZONE, _CODE, _NAME = "zone", "zone_code", "zone_name"  # mappings: in a list by name, the numbers come first
_CODES = "trellis_codes"  # of a matrix: the codes of attributes by column, as JSON
_CELLS = 4_000_000  # of a block of rows that is written or compared at once
_CHUNK_CELLS = 2**17  # a megabyte
_ABOUT = ("trellis_release", "trellis_level", "trellis_guarantee", "trellis_cells")
_OF_CELLS = (
    "Rows are origins, columns destinations. A pair of zones without a row in the table has count 0, and NaN in the other matrices:"
    " its released count is 0, and no interval is published for it."
)


def is_square(axes: Mapping[str, str | None], roles: Iterable[Role | None]) -> bool:
    """Return whether the cells of a level are pairs of areas of one level of the codebook of both ends, with attributes or without.

    Args:
        axes: per axis, the name of the level that is reached.
    """
    reached, ends = list(axes.values()), ends_of(list(roles))
    return ends is not None and reached[ends[0]] is not None and reached[ends[0]] == reached[ends[1]]


def cells_of_matrices(tree: Tree, level: int) -> tuple[int, int]:
    """Return how many zones the matrices of a square level have, and how many combinations of codes of attributes there are."""
    sizes, ends = tree.sizes(level), tree.ends or (0, 1)
    return sizes[ends[0]], math.prod(size for axis, size in enumerate(sizes) if axis not in ends)


@dataclass(frozen=True, slots=True)
class _Planes:
    """The combinations of codes of attributes, each of which has matrices of its own.

    Attributes:
        columns: of the codes of attributes in the table; none where it has no attributes.
        finest: the places of those that have the finest codes.
        codes: of each combination, in the order of `columns`; one of none without attributes.
    """

    columns: tuple[str, ...]
    finest: tuple[int, ...]
    codes: Sequence[tuple[str, ...]]

    def named(self, number: str) -> list[str]:
        """Return the names of the matrices of a number, one per combination; what HDF5 takes in no name is replaced, and names differ."""
        if not self.columns:
            return [number]
        taken, names = dict[str, int](), list[str]()
        for codes in self.codes:
            name = "_".join([number, *(re.sub(r"[^A-Za-z0-9]", "_", codes[place]) for place in self.finest)])
            while name in taken:
                taken[name] += 1
                name = f"{name}__{taken[name]}"
            taken[name] = 1
            names.append(name)
        return names


def _planes_of(tables: PublishedTables, table: PublishedTable, codes: Sequence[tuple[str, ...]] = ((),)) -> _Planes:
    """Return some combinations of codes of the attributes of a level."""
    by_axis = [tables.codes_of(table, axis) for axis in table.axes if axis not in ENDS]
    columns = [column for of in by_axis for column in of]
    finest = tuple(columns.index(of[-1]) for of in by_axis if of)
    return _Planes(tuple(columns), finest, codes)


def write_matrices(tables: PublishedTables, tree: Tree, levels: Sequence[PublishedTable]) -> None:
    """Write the matrices of some levels of a folder."""
    (tables.folder / FOLDER).mkdir()
    names = published_names(tables.folder, tables.manifest)
    for table in levels:
        level = len(tables.codes_of(table, ENDS[0]))
        zones = tree.axes[0].paths(level).sort(code_columns(level))
        called = names.tables.get((ENDS[0], level))
        if called is not None:
            zones = zones.join(called, on=code_columns(level), how="left", maintain_order="left")
        _write(tables, table, zones, _planes(tables, table, tree))


def _planes(tables: PublishedTables, table: PublishedTable, tree: Tree) -> _Planes:
    """Return all combinations of codes of attributes that a level could have by the codebook, in the order of their codes."""
    codes: list[tuple[str, ...]] = [()]
    for axis in tree.axes:
        if axis.name not in ENDS and (level := len(tables.codes_of(table, axis.name))):
            paths = axis.paths(level).sort(code_columns(level)).rows()
            codes = [(*above, *path) for above in codes for path in paths]
    return _planes_of(tables, table, codes)


def _write(tables: PublishedTables, table: PublishedTable, zones: pl.DataFrame, planes: _Planes) -> None:
    import openmatrix
    from tables import Float64Atom

    size = zones.height
    numbers = _numbers(tables, table)
    with openmatrix.open_file(str(tables.folder / table.path_in(FOLDER, ENDING)), "w") as file:
        file.root._v_attrs["SHAPE"] = np.array([size, size], dtype=np.int32)
        for name, text in zip(_ABOUT, _about(tables.manifest, table), strict=True):
            file.root._v_attrs[name] = text
        chunk = (min(size, max(1, _CHUNK_CELLS // size)), min(size, _CHUNK_CELLS))
        matrices = {  # track_times: the same release is the same bytes
            name: file.create_carray(
                file.root.data,
                name,
                Float64Atom(dflt=_empty(number)),
                (size, size),
                chunkshape=chunk,
                track_times=False,
            )
            for number in numbers
            for name in planes.named(number)
        }
        for number in numbers if planes.columns else ():
            for name, codes in zip(planes.named(number), planes.codes, strict=True):
                stated = dict(zip(planes.columns, codes, strict=True))
                matrices[name].attrs[_CODES] = json.dumps(stated, ensure_ascii=False)
        for first, blocks in _blocks(tables, table, zones, planes):
            for name, block in blocks.items():
                matrices[name][first : first + len(block)] = block
        lookup = file.root.lookup if "lookup" in file.root else file.create_group(file.root, "lookup")
        for name, entries in _mappings(zones).items():
            file.create_array(lookup, name, obj=entries, track_times=False)


def _numbers(tables: PublishedTables, table: PublishedTable) -> list[str]:
    return [field.name for field in tables.schema(table) if pa.types.is_integer(field.type)]


def _empty(name: str) -> float:
    """Return what a matrix has where the table has no row."""
    return 0.0 if name == COUNT else np.nan


def _about(manifest: Manifest, table: PublishedTable) -> tuple[str, ...]:
    return manifest.id, table.counts_by, manifest.privacy.statement, _OF_CELLS


def _mappings(zones: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the mappings of zones: their numbers, their codes, those of the areas that hold them, and their names if they have any."""
    codes = [column for column in zones.columns if column != NAME]
    texts = {_CODE: zones[codes[-1]]} | {f"zone_{column}": zones[column] for column in codes[:-1]}
    if NAME in zones.columns:
        texts[_NAME] = zones[NAME].fill_null("")
    numbers = {_ZONE: np.arange(1, zones.height + 1, dtype=np.uint32)}
    return numbers | {name: np.array([text.encode() for text in of.to_list()]) for name, of in texts.items()}


def _blocks(
    tables: PublishedTables, table: PublishedTable, zones: pl.DataFrame, planes: _Planes
) -> Iterator[tuple[int, dict[str, NDArray[np.float64]]]]:
    """Yield the matrices in blocks of whole rows, in their order: the first row, and by name a block of every matrix.

    Raises:
        ValueError: a row of the table has an area or a code that is not one of them, or rows are not in the order of origins.
    """
    size, numbers = zones.height, _numbers(tables, table)
    high = max(1, _CELLS // (size * len(planes.codes)))
    waiting = [pl.DataFrame({"row": [], "column": [], "plane": []} | {name: [] for name in numbers}).cast(pl.Float64)]
    parts = _placed(tables, table, zones, planes)
    for first in range(0, size, high):
        end = min(first + high, size)
        while (not waiting or waiting[-1].is_empty() or waiting[-1]["row"][-1] < end) and (
            part := next(parts, None)
        ) is not None:
            waiting.append(part)
        together = pl.concat(waiting)
        now = together.filter(pl.col("row") < end)
        waiting = [together[now.height :]]
        rows, columns, of_planes = (now[place].to_numpy().astype(np.int64) for place in ("row", "column", "plane"))
        rows -= first
        if rows.min(initial=0) < 0:
            raise ValueError(f"the rows of {table.path} are not in the order of their origins.")
        blocks = dict[str, NDArray[np.float64]]()
        for number in numbers:
            block = np.full((len(planes.codes), end - first, size), _empty(number))
            block[of_planes, rows, columns] = now[number].fill_null(np.nan).to_numpy()
            blocks |= dict(zip(planes.named(number), block, strict=True))
        yield first, blocks


def _placed(
    tables: PublishedTables, table: PublishedTable, zones: pl.DataFrame, planes: _Planes
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table with the numbers of their zones and planes, from 0 on, as `row`, `column` and `plane`; all columns are Float64."""
    numbers, attributes = _numbers(tables, table), list(planes.columns)
    of_planes = pl.DataFrame([*planes.codes], dict.fromkeys(attributes, pl.String), orient="row").with_row_index(
        "plane"
    )
    codes = [column for column in zones.columns if column != NAME]
    numbered = zones.select(codes).with_row_index("number")
    for part in tables.parts(table):
        rows = pl.DataFrame(part)
        places = {}
        for end, place in zip(ENDS, ("row", "column"), strict=True):
            of_end = rows.select(tables.codes_of(table, end))
            of_end.columns = codes
            places[place] = of_end.join(numbered, on=codes, how="left", maintain_order="left")["number"]
        if attributes:
            joined = rows.select(attributes).join(of_planes, on=attributes, how="left", maintain_order="left")
            places["plane"] = joined["plane"]
        else:
            places["plane"] = pl.repeat(0, rows.height, eager=True)
        placed = pl.DataFrame(places)
        if placed.null_count().sum_horizontal().item():
            raise ValueError(f"{table.path} has codes that are not in the codebook.")
        yield pl.concat([placed, rows.select(numbers)], how="horizontal").cast(pl.Float64)


def matrix_failures(tables: PublishedTables, levels: Sequence[PublishedTable]) -> list[str]:
    """Return where the matrices of some levels differ from their tables, one sentence per file."""
    failures = []
    for table in levels:
        name = table.path_in(FOLDER, ENDING)
        try:
            failures += [f"{name}: {failure}" for failure in _failures(tables, table)]
        except Exception as fault:  # noqa: BLE001 (HDF5 raises its own for every kind of damage)
            failures.append(f"{name} is missing or is not a file of matrices ({type(fault).__name__}).")
    return failures


def _failures(tables: PublishedTables, table: PublishedTable) -> list[str]:
    import openmatrix

    with openmatrix.open_file(str(tables.folder / table.path_in(FOLDER, ENDING))) as file:
        about = tuple(str(file.root._v_attrs[name]) for name in _ABOUT)
        if about != _about(tables.manifest, table):
            return ["it says something else than manifest.json."]
        zones = _zones_in(file, tables, table)
        if zones is None:
            return ["its zones are not the areas of the codebook, numbered in the order of their codes."]
        shape = (zones.height, zones.height)
        planes = _planes_in(file, tables, table)
        named = [name for number in _numbers(tables, table) for name in planes.named(number)]
        if sorted(file.list_matrices()) != sorted(named) or tuple(file.shape()) != shape:
            return [f"its matrices are not those of the numbers of {table.path}."]
        if any(file[name].shape != shape for name in file.list_matrices()):
            return ["a matrix has another shape."]
        try:
            for first, blocks in _blocks(tables, table, zones, planes):
                for name, block in blocks.items():
                    if not np.array_equal(file[name][first : first + len(block)], block, equal_nan=True):
                        return [f"the matrix {name} differs from {table.path}."]
        except ValueError as fault:
            return [f"{fault}"]
    return []


def _planes_in(file: Any, tables: PublishedTables, table: PublishedTable) -> _Planes:
    """Return the combinations of codes that the matrices of a file are about, in the order of their codes."""
    columns = _planes_of(tables, table).columns
    stated = [json.loads(str(file[name].attrs[_CODES])) for name in file.list_matrices()] if columns else [{}]
    return _planes_of(tables, table, sorted({tuple(str(of[column]) for column in columns) for of in stated}))


def _zones_in(file: Any, tables: PublishedTables, table: PublishedTable) -> pl.DataFrame | None:
    """Return the zones of a file of matrices; None where they are not those of the release."""
    level = len(tables.codes_of(table, ENDS[0]))
    there = {name: file.get_node(file.root.lookup, name)[:] for name in file.list_mappings()}
    names = published_names(tables.folder, tables.manifest).tables.get((ENDS[0], level))
    mapped = [*(f"zone_{column}" for column in code_columns(level)[:-1]), _CODE]
    if there.keys() != {_ZONE, *mapped} | ({_NAME} if names is not None else set()):
        return None
    texts = {column: _texts(there[name]) for column, name in zip(code_columns(level), mapped, strict=True)}
    zones = pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String))
    if not np.array_equal(there[_ZONE], np.arange(1, zones.height + 1)):
        return None
    if not zones.equals(zones.unique().sort(zones.columns)):
        return None
    codebook = tables.folder / CODEBOOK
    if codebook.exists():  # beside noisy counts
        tree = tree_of_codebook(tables.manifest, pl.read_parquet(codebook, glob=False))
        if not zones.equals(tree.axes[0].paths(level).sort(code_columns(level))):
            return None
    if names is None:
        return zones
    expected = zones.join(names, on=zones.columns, how="left", maintain_order="left")
    return expected if _texts(there[_NAME]) == expected[NAME].fill_null("").to_list() else None


def _texts(entries: NDArray[Any]) -> list[str]:
    return [bytes(entry).decode() for entry in entries]

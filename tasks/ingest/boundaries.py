"""The shapes of areas, from public files: matched to the codes of an axis, and put together for coarser levels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import shapely

from tasks.atlas.names import code_columns
from tasks.atlas.shapes import GEOMETRY
from tasks.ingest.shape_files import Feature, polygon, polygons, read_features
from tasks.ingest.sources.files import FileTable

CODE = "code"  # the property that holds codes, where a spec says nothing
ANY_LEVEL = ""  # of a file whose level is the one that has its codes

_ZEROS = "The usual causes are leading zeros that were dropped, and codes in another property: name it in {}.code."


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where the shapes of an axis' areas are.

    Attributes:
        field: the spec's key that names them, for errors.
        files: by level, the file; by `ANY_LEVEL` one whose level is to be found.
        code: the property, or the column, that holds the codes.
    """

    field: str
    files: Mapping[str, FileTable]
    code: str = CODE


def read_shapes(
    boundaries: Boundaries,
    codebook: pl.DataFrame,
    released: int,
    read: Callable[[FileTable, str], list[Feature]] = read_features,
) -> dict[int, pl.DataFrame]:
    """Return the shapes of areas by axis level, as in `Shapes`.

    A level without a file has what its areas' parts cover, as far as these have shapes. Codes that are none of the axis are
    passed over.

    Args:
        boundaries: where the shapes are.
        codebook: all areas, as `read_codebook` returns them, also those finer than any that is released.
        released: the axis level down to which shapes are asked for.
        read: reads a file; both ends of trips may share what it has read.
    Raises:
        InputError: a file cannot be read, has none of the codes, or a shape that is no polygon in degrees.
    """
    levels, of_file = codebook.columns, {}
    for name, table in boundaries.files.items():
        features = read(table, boundaries.code)
        level = _level_of(features, codebook) if name == ANY_LEVEL else levels.index(name) + 1
        of_file[level] = _of_level(boundaries, table, features, codebook.select(levels[:level]).unique())
    found: dict[int, pl.DataFrame] = {}
    for level in range(max(of_file), 0, -1):
        found[level] = of_file[level] if level in of_file else _together(found[level + 1])
    return {level: areas for level, areas in sorted(found.items()) if level <= released}


def _level_of(features: Sequence[Feature], codebook: pl.DataFrame) -> int:
    """Return the level most of whose codes a file has; of several, the finest."""
    codes = {feature.code for feature in features}
    shared = [len(codes.intersection(codebook[level].unique())) for level in codebook.columns]
    return max(range(1, len(shared) + 1), key=lambda level: (shared[level - 1], level))


def _of_level(
    boundaries: Boundaries, table: FileTable, features: Sequence[Feature], areas: pl.DataFrame
) -> pl.DataFrame:
    """Return the shapes of the areas of a level, whose codes are the last column of `areas`."""
    level = areas.columns[-1]
    known = set(areas[level])
    kept = [feature for feature in features if feature.code in known]
    if not kept:
        raise table.fault(
            f"no code of {table.path.name} in {boundaries.code} is a code of the axis.",
            _ZEROS.format(boundaries.field.partition(".boundaries")[0]),
        )
    shapes = [(of.code, shape) for of, shape in zip(kept, polygons(table, kept), strict=True) if shape is not None]
    if not shapes:
        raise table.fault(f"no area of {table.path.name} has a shape.")
    by_code = _unions(shapes)
    if areas.filter(pl.col(level).is_in(by_code.keys()))[level].is_duplicated().any():
        raise table.fault(
            f"the codes of level {level} must differ to have shapes; one is that of two areas.",
            "Give areas codes of their own in the codebook, such as those of the areas above and their own together.",
        )
    return _sorted(areas.rows(), lambda path: by_code.get(path[-1]))


def _together(finer: pl.DataFrame) -> pl.DataFrame:
    """Return what the areas of a level cover, from those of the next finer one."""
    by_path = _unions((tuple(codes[:-1]), shapely.from_wkb(shape)) for *codes, shape in finer.iter_rows())
    return _sorted(list(by_path), by_path.get)


def _unions(shapes: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return what the shapes of each key cover together."""
    parts: dict[Any, list[Any]] = {}
    for key, shape in shapes:
        parts.setdefault(key, []).append(shape)
    return {key: of[0] if len(of) == 1 else polygon(shapely.union_all(of)) for key, of in parts.items()}


def _sorted(paths: Sequence[tuple[str, ...]], shape_of: Callable[[tuple[str, ...]], Any]) -> pl.DataFrame:
    """Return the areas that have a shape as a table, sorted by their codes."""
    rows = [(*path, shape) for path in sorted(paths) if (shape := shape_of(path)) is not None]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(code_columns(len(paths[0])))}
    wkb = shapely.to_wkb([row[-1] for row in rows])
    return pl.DataFrame({**columns, GEOMETRY: pl.Series(list(wkb), dtype=pl.Binary)})

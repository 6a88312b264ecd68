"""Counts for statistical offices: SDMX-CSV 2.0 of each level, and their structure as SDMX-ML 3.0.

A dimension is an axis that a level has reached, with a list of codes; the measure is `OBS_VALUE`. `LOW`, `HIGH` and `SIGNAL` are attributes
of an observation. A code is a valid identifier of SDMX as it is, or gets one by the rule of `sdmx_id`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from storage.tables import COUNT
from tasks.folder.export.tables import PublishedTable, PublishedTables, day_of
from tasks.format.csv import have_same_rows, open_csv
from tasks.format.manifest import Manifest
from tasks.format.metadata import SDMX
from tasks.format.published_tree import axes_by_path, axis_columns, published_names
from tasks.format.tables import UNREADABLE
from tasks.tree.order import Tree
from tasks.words.areas import NAME, code_columns

STRUCTURE = f"{SDMX}/structure.xml"
MOST_ROWS = 5_000_000  # of a level, as for CSV that nobody asked for

_AGENCY, _VERSION, _CONCEPTS = "TRELLIS", "1.0", "CONCEPTS"
_VALUE = "OBS_VALUE"
_OF_EVERY_FILE = ("STRUCTURE", "STRUCTURE_ID", "ACTION")
_RESERVED = {_VALUE, *_OF_EVERY_FILE}
_BETWEEN = "@"  # the codes of a path


def sdmx_id(text: str, *, begins_with_letter: bool = False) -> str:
    """Return an identifier of SDMX for a text: letters, digits, _, $ and -; any other character as `_x` with its number in hexadecimal and `_`.

    Different texts have different identifiers.

    Args:
        text: a code, or the name of a column.
        begins_with_letter: whether the identifier must begin with a letter, as those of columns must; otherwise it gets `C_` in front.
    """
    valid = re.sub(r"_(?=x[0-9A-F]+_)|[^A-Za-z0-9_-]", lambda match: f"_x{ord(match[0]):X}_", text)
    if begins_with_letter and (not re.match(r"(?!C_)[A-Za-z]", valid) or valid in _RESERVED):
        return f"C_{valid}"
    return valid


def write_sdmx(tables: PublishedTables, tree: Tree, levels: Sequence[PublishedTable]) -> None:
    """Write the SDMX-CSV files of some levels of a folder, and their structure."""
    (tables.folder / SDMX).mkdir()
    (tables.folder / STRUCTURE).write_text(_structure(tables, tree, levels), encoding="utf-8")
    for table in levels:
        with (tables.folder / table.path_in(SDMX, "csv")).open("wb") as file:
            for number, part in enumerate(_observations(tables, table)):
                pl.DataFrame(part).write_csv(file, include_header=number == 0)


def _flow(manifest: Manifest, table: PublishedTable) -> str:
    return sdmx_id(f"{manifest.id}_level_{table.level}", begins_with_letter=True)


def _dimensions(tables: PublishedTables, table: PublishedTable) -> dict[str, tuple[str, list[str]]]:
    """Return the dimensions of a level: by identifier, the axis, and the columns of its codes that make up a code."""
    dimensions, by_path = {}, axes_by_path(tables.manifest)
    for axis in table.axes:
        if columns := tables.codes_of(table, axis):
            own = columns if axis in by_path else columns[-1:]
            dimensions[sdmx_id(columns[-1], begins_with_letter=True)] = (axis, own)
    return dimensions


def _numbers(tables: PublishedTables, table: PublishedTable) -> dict[str, tuple[str, pa.DataType]]:
    """Return the measure and the attributes of a level: by identifier, their columns and kinds."""
    fields = [field for field in tables.schema(table) if field.type in {pa.int64(), pa.bool_()}]
    return {_VALUE if of.name == COUNT else of.name.upper(): (of.name, of.type) for of in fields}


def _observations(tables: PublishedTables, table: PublishedTable) -> Iterator[pa.Table]:
    """Yield the rows of a level as SDMX-CSV has them."""
    dimensions, numbers = _dimensions(tables, table), _numbers(tables, table)
    flow = f"{_AGENCY}:{_flow(tables.manifest, table)}({_VERSION})"
    of_file = [pl.lit(text).alias(name) for name, text in zip(_OF_EVERY_FILE, ("dataflow", flow, "I"), strict=True)]
    for part in tables.parts(table):
        rows = pl.DataFrame(part)
        codes = [_identified(rows, columns).alias(name) for name, (_, columns) in dimensions.items()]
        of_row = [pl.col(column).alias(name) for name, (column, _) in numbers.items()]
        yield rows.select(*of_file, *codes, *of_row).to_arrow().cast(_schema(dimensions, numbers))


def _schema(dimensions: dict[str, Any], numbers: dict[str, tuple[str, pa.DataType]]) -> pa.Schema:
    texts = [(name, pa.string()) for name in (*_OF_EVERY_FILE, *dimensions)]
    return pa.schema([*texts, *((name, kind) for name, (_, kind) in numbers.items())])


def _identified(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return the identifiers of the areas of some rows, by the columns of their codes."""
    areas = rows.select(columns).unique()
    known = areas.with_columns(pl.Series("\0id", [_code_of(path) for path in areas.iter_rows()], pl.String))
    return rows.select(columns).join(known, on=list(columns), how="left", maintain_order="left")["\0id"]


def _code_of(path: Sequence[str]) -> str:
    return _BETWEEN.join(map(sdmx_id, path))


def _structure(tables: PublishedTables, tree: Tree, levels: Sequence[PublishedTable]) -> str:
    """Return the structure of some levels: lists of codes, concepts, and a data structure and a dataflow for each."""
    from pysdmx.io.xml.sdmx30.writer.structure import write
    from pysdmx.model import ConceptScheme, Organisation
    from pysdmx.model.message import Header

    lists, concepts, flows = dict[str, Any](), dict[str, Any](), []
    for table in levels:
        for name, (axis, columns) in _dimensions(tables, table).items():
            if name not in lists:
                lists[name] = _codelist(tables, tree, name, axis, columns)
        made, own = _data_structure(tables, table)
        concepts |= own
        flows += made
    header = Header(
        id=sdmx_id(tables.manifest.id), prepared=day_of(tables.manifest), sender=Organisation(id=_AGENCY), test=False
    )
    items = list(concepts.values())
    scheme = ConceptScheme(id=_CONCEPTS, name="What is counted", agency=_AGENCY, version=_VERSION, items=items)
    text = write([*lists.values(), scheme, *flows], prettyprint=True, header=header)
    return str(text)


def _codelist(tables: PublishedTables, tree: Tree, name: str, axis: str, columns: Sequence[str]) -> Any:
    from pysdmx.model import Code, Codelist

    [of_axis] = [each for each in tree.axes if each.name == axis]
    level = axis_columns(tables.manifest, axis).index(columns[-1]) + 1
    areas = of_axis.paths(level).sort(code_columns(level))
    names = published_names(tables.folder, tables.manifest)
    codes = [
        Code(id=_code_of(path[-len(columns) :]), name=names.name_of(axis, path) or " / ".join(path[-len(columns) :]))
        for path in areas.iter_rows()
    ]
    return Codelist(id=f"CL_{name}", name=columns[-1], agency=_AGENCY, version=_VERSION, items=codes)


def _data_structure(tables: PublishedTables, table: PublishedTable) -> tuple[list[Any], dict[str, Any]]:
    """Return the data structure and the dataflow of a level, and the concepts that they use, by identifier."""
    from pysdmx.model import Concept, Dataflow, DataStructureDefinition, DataType, ItemReference
    from pysdmx.model.dataflow import Component, Components, Role

    def concept(name: str) -> ItemReference:
        return ItemReference(sdmx_type="Concept", agency=_AGENCY, id=_CONCEPTS, version=_VERSION, item_id=name)

    concepts, components = {}, []
    for name, (_, columns) in _dimensions(tables, table).items():
        concepts[name] = Concept(name, name=columns[-1])
        codes = f"urn:sdmx:org.sdmx.infomodel.codelist.Codelist={_AGENCY}:CL_{name}({_VERSION})"
        components.append(Component(name, True, Role.DIMENSION, concept(name), local_enum_ref=codes))
    for name, (column, kind) in _numbers(tables, table).items():
        dtype = DataType.BOOLEAN if pa.types.is_boolean(kind) else DataType.LONG
        concepts[name] = Concept(name, name=column, dtype=dtype)
        is_value = name == _VALUE
        role, level = (Role.MEASURE, None) if is_value else (Role.ATTRIBUTE, "O")
        of = Component(name, is_value, role, concept(name), local_dtype=dtype, attachment_level=level)
        components.append(of)
    flow, title = _flow(tables.manifest, table), f"{tables.manifest.id}, {table.title}: {table.counts_by}"
    structure = DataStructureDefinition(
        id=flow, name=title, agency=_AGENCY, version=_VERSION, components=Components(components)
    )
    return [structure, Dataflow(id=flow, name=title, agency=_AGENCY, version=_VERSION, structure=structure)], concepts


def sdmx_failures(tables: PublishedTables, levels: Sequence[PublishedTable]) -> list[str]:
    """Return where the SDMX-CSV files of some levels differ from their tables, or from their structure; one sentence per file."""
    failures = _structure_failures(tables, levels)
    for table in levels:
        name = table.path_in(SDMX, "csv")
        schema = _schema(_dimensions(tables, table), _numbers(tables, table))
        try:
            reader = open_csv(tables.folder / name, schema)
            there = (pa.Table.from_batches([batch]) for batch in reader)
            same = reader.schema.names == schema.names and have_same_rows(_observations(tables, table), there)
        except UNREADABLE:
            failures.append(f"{name} is missing or is not a CSV file.")
            continue
        if not same:
            failures.append(f"{name} differs from {table.path}.")
    return failures


def _structure_failures(tables: PublishedTables, levels: Sequence[PublishedTable]) -> list[str]:
    """Return how the structure is no valid SDMX-ML, or does not describe the files."""
    from pysdmx.io import read_sdmx

    try:
        message = read_sdmx((tables.folder / STRUCTURE).read_text(encoding="utf-8"), validate=True)
        lists = {of.id: {code.id: code.name for code in of.items} for of in message.get_codelists()}
        structures = {of.id: of for of in message.get_data_structure_definitions()}
        flows = {of.id for of in message.get_dataflows()}
    except Exception as fault:  # noqa: BLE001 (the parser raises many kinds)
        return [f"{STRUCTURE} is missing or is not SDMX-ML ({type(fault).__name__})."]
    if structures.keys() != flows or flows != {_flow(tables.manifest, table) for table in levels}:
        return [f"{STRUCTURE} does not describe the levels of this release."]
    names = published_names(tables.folder, tables.manifest)
    for table in levels:
        dimensions, numbers = _dimensions(tables, table), _numbers(tables, table)
        components = [of.id for of in structures[_flow(tables.manifest, table)].components]
        if sorted(components) != sorted([*dimensions, *numbers]):
            return [f"{STRUCTURE} does not have the columns of {table.path_in(SDMX, 'csv')}."]
        for part in tables.parts(table):
            rows = pl.DataFrame(part)
            for name, (_, columns) in dimensions.items():
                if not set(_identified(rows, columns)) <= lists.get(f"CL_{name}", {}).keys():
                    return [f"{STRUCTURE} lacks codes of {table.path_in(SDMX, 'csv')}."]
        for name, (axis, columns) in dimensions.items():
            called = names.tables.get((axis, len(tables.codes_of(table, axis))))
            if called is not None and not _are_called(called, len(columns), lists[f"CL_{name}"]):
                return [f"{STRUCTURE} has other names than names/."]
    return []


def _are_called(called: pl.DataFrame, depth: int, codes: dict[str, str | None]) -> bool:
    own = code_columns(called.width - 1)[-depth:]
    return all(codes.get(_code_of(path)) == name for *path, name in called.select(*own, NAME).iter_rows())

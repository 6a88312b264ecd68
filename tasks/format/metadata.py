"""`metadata.json`: a description of a release's CSV files for programs, in the W3C's vocabulary for tables (CSVW).

It follows from the manifest and the columns of the files alone. The publisher may add a license, as `dc:license`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa

from storage.tables import BOUNDS, COUNT, REMAINDER, SIGNAL, column_name, flat_features
from tasks.format.csv import csv_header, with_names
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.format.tables import UNREADABLE
from tasks.words.levels import Spec, axes_called, description_of, place, source_of, title_of

METADATA = "metadata.json"
SDMX = "sdmx"  # the folder of CSV files with a structure of their own

_DIALECT = {
    "encoding": "utf-8",
    "header": True,
    "delimiter": ",",
    "quoteChar": '"',
    "doubleQuote": True,
    "commentPrefix": None,  # otherwise readers would skip a row whose first code begins with #
    "trim": False,
}


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file of a published folder.

    Attributes:
        url: its path in the folder.
        level: the level that it holds.
        codes: its columns of text, codes and names, which come first.
        numbers: its columns of whole numbers, and the last one of true and false; none if each row is a record.
        view: the name of the view that it holds; empty for a level.
        of_signal: whether it holds the rows of the level that stand out, and remainders.
        names: those columns of text that hold names.
    """

    url: str
    level: int
    codes: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    view: str = ""
    of_signal: bool = False
    names: frozenset[str] = frozenset()


def csv_file(
    url: str,
    level: int,
    schema: pa.Schema,
    view: str = "",
    *,
    of_signal: bool = False,
    names: Sequence[pl.DataFrame] = (),
) -> CsvFile:
    """Return the description of a CSV file that has the columns of a table with this schema, with names as in `with_names`."""
    schema = with_names(schema.empty_table(), names).schema
    numbers = tuple(field.name for field in schema if field.type in {pa.int64(), pa.bool_()})
    texts = tuple(schema.names[: len(schema.names) - len(numbers)])
    of_names = frozenset(areas.columns[-1] for areas in names) & {*texts}
    return CsvFile(url, level, texts, numbers, view, of_signal, of_names)


def metadata_text(manifest: Manifest, files: Sequence[CsvFile]) -> str:
    """Return the text of `metadata.json`: a table group with one table per CSV file."""
    privacy = manifest.privacy
    numbers = ("epsilon", "delta", "rho", "neighbours", "unit", "max_records_per_unit", "accountant")
    group = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title_of(manifest.spec, manifest.id),
        "dc:identifier": manifest.id,
        "dc:description": " ".join(filter(None, (description_of(manifest.spec), privacy.statement))),
        **({"dc:source": source} if (source := source_of(manifest.spec)) else {}),
        **({"dc:replaces": manifest.supersedes} if manifest.supersedes else {}),
        "dialect": _DIALECT,
        "notes": [
            {"dc:subject": "differential privacy"} | {name: getattr(privacy, name) for name in numbers},
            {"dc:subject": "published exactly, not protected", "statements": manifest.unprotected},
            *_poor_margins(manifest),
        ],
        "tables": [_table(manifest, file) for file in files],
    }
    return json.dumps(group, indent=2, ensure_ascii=False) + "\n"


def described_files(folder: Path) -> list[Path]:
    """Return the CSV files of a published folder that `metadata.json` describes: all but those of SDMX, which have a structure."""
    return [file for file in folder.rglob("*.csv") if file.relative_to(folder).parts[0] != SDMX]


def metadata_failures(folder: Path) -> list[str]:
    """Return one sentence if `metadata.json` lists other CSV files or columns than the folder has, otherwise nothing."""
    path = folder / METADATA
    if not path.exists():
        return []
    try:
        tables = json.loads(path.read_bytes())["tables"]
        listed = {table["url"]: [column["titles"] for column in table["tableSchema"]["columns"]] for table in tables}
        there = {str(file.relative_to(folder)): csv_header(file) for file in described_files(folder)}
    except (*UNREADABLE, ValueError, LookupError, TypeError):
        return [f"{METADATA} or a CSV file has the wrong form."]
    return [] if listed == there else [f"{METADATA} does not list the CSV files and their columns as they are."]


def _table(manifest: Manifest, file: CsvFile) -> dict[str, Any]:
    of_code, of_view = _codes(manifest), next((view for view in manifest.views if view.name == file.view), None)
    entry = of_view or manifest.levels[file.level]
    columns = [
        _column(
            name, "string", f"The name of the area whose code is in {before}. Empty where it has none.", required=False
        )
        if name in file.names
        else _column(name, "string", of_code.get(name, "A code."), required=not file.of_signal)
        for before, name in zip(("", *file.codes), file.codes, strict=False)
    ]
    described = _numbers(manifest, entry) | (_of_signal(manifest) if file.of_signal else {})
    columns += [
        _column(name, "boolean" if name in _FLAGS else "integer", described[name], required=name in {COUNT, *_FLAGS})
        for name in file.numbers
    ]
    schema: dict[str, Any] = {"columns": columns}
    if file.codes and file.numbers and not file.of_signal:
        schema["primaryKey"] = [_name(code) for code in file.codes if code not in file.names]
    return {
        "url": file.url,
        "dc:title": f"View {of_view.name}" if of_view else _title(entry, manifest.spec, of_signal=file.of_signal),
        "dc:description": _VIEW
        if of_view
        else _SIGNAL
        if file.of_signal
        else _described(manifest, entry, of_records=not file.numbers),
        "notes": [
            {"level": entry.level, "rho": entry.rho, "sigma": entry.sigma, "bound": entry.bound},
            *([] if file.numbers else _differences(manifest)),
        ],
        "tableSchema": schema,
    }


_FLAGS = {SIGNAL, REMAINDER}

_SIGNAL = (
    "The rows of the level that stand out from the noise, and remainders: what they leave of the rows of the same kind of table above,"
    " so that all rows add up to the total."
)

_VIEW = "Counts of a grouping of the finest level's cells, with a row for every cell, also where the count is zero."


def _title(entry: LevelEntry, spec: Spec, *, of_signal: bool) -> str:
    rows = ", rows that stand out" if of_signal else ""
    return f"Level {entry.level}: {place(axes_called(spec, entry.axes)) or 'everything'}{rows}"


def _poor_margins(manifest: Manifest) -> list[dict[str, Any]]:
    """Return a note about totals of one axis that nothing measures by itself, if there are any."""
    errors = {of.margin: of.expected_error for of in manifest.poor_margins}
    note = {"dc:subject": "totals that nothing measures by itself", "dc:description": manifest.warning_of_margins}
    return [note | {"expected_error": errors}] if errors else []


def _differences(manifest: Manifest) -> list[dict[str, Any]]:
    """Return a note for synthetic records about the views from which their sums differ, if there are any."""
    differ = {name: of.model_dump() for name, of in manifest.differences.items()}
    return [{"dc:subject": "views from whose tables sums of these records differ", "differs": differ}] if differ else []


def _described(manifest: Manifest, entry: LevelEntry, *, of_records: bool) -> str:
    if of_records:
        records = "Synthetic records: one row for each record that the finest level counts. No row belongs to anyone."
        warnings = filter(None, (manifest.warning_of_margins, manifest.warning_of_views))
        return " ".join([records, *warnings])
    return f"Counts. A missing row {manifest.missing_row}." if entry.level else "The total."


def _column(name: str, datatype: str, description: str, *, required: bool) -> dict[str, Any]:
    return {
        "name": _name(name),
        "titles": name,
        "datatype": datatype,
        "required": required,
        "null": "",
        "dc:description": description,
    }


def _numbers(manifest: Manifest, entry: LevelEntry) -> dict[str, str]:
    """Return the descriptions of the columns of numbers of a level or view, by name."""
    counted = "groups" if manifest.counts_groups else "records"
    sure = f"{100 * manifest.intervals.confidence:g}% probability"
    stated = "Empty where no interval is stated."
    outside = f"{100 * (1 - manifest.intervals.confidence):.4g}%"
    one = (
        f"with {sure}, over all noise, the true count of a cell that was fixed beforehand lies between low and high."
        if entry.intervals is None or entry.intervals.promise == "cells"
        else f"on average at most {outside} of the table's rows have a true count that is not between low and high."
    )
    one = f"{one} {stated}"
    all_ = f"with {sure}, over all noise, the true counts of all cells lie between these ends at once. {stated}"
    low, high, simultaneous_low, simultaneous_high = BOUNDS
    return {
        COUNT: f"The released number of {counted}.",
        low: f"Lower end of the interval, {counted}: {one}",
        high: f"Upper end of the interval, {counted}: {one}",
        simultaneous_low: f"Lower end of the wider interval, {counted}: {all_}",
        simultaneous_high: f"Upper end of the wider interval, {counted}: {all_}",
        SIGNAL: "Whether the row stands out from the noise: of a table's rows that do, at most"
        f" {100 * manifest.intervals.signal_rate:.4g}% are expected to have a true count of 0."
        " What the ends of intervals promise of all rows, they do not promise of these alone.",
    }


def _of_signal(manifest: Manifest) -> dict[str, str]:
    """Return the descriptions of the columns that say something else in tables of the rows that stand out."""
    outside = f"{100 * (1 - manifest.intervals.confidence):.4g}%"
    promise = (
        f"of the table's rows that are no remainders, on average at most {outside} have a true count that is not between low and"
        " high. Empty for remainders, and where no interval is stated."
    )
    low, high, *_ = BOUNDS
    return {
        low: f"Lower end of the interval, records: {promise}",
        high: f"Upper end of the interval, records: {promise}",
        REMAINDER: "Whether the row is a remainder: what the other rows leave of the count with its codes. Codes that are empty"
        " are not told apart.",
    }


def _codes(manifest: Manifest) -> Mapping[str, str]:
    """Return the descriptions of the columns of codes, by name."""
    flat = flat_features(manifest.spec)
    return {
        column_name(axis, level, flat): f"The code of the {axis}"
        + ("." if axis in flat else f" at level {level}, as text: leading zeros matter.")
        for entry in manifest.levels
        for axis, level in entry.axes.items()
        if level
    } | {
        name: f"The code of {name}, which depends on {' and '.join(column.of)} as `derived/{name}.parquet` lists it."
        for name, column in manifest.derived.items()
    }


def _name(column: str) -> str:
    """Return a column's name as a variable of a URI template, as CSVW requires: only letters, digits and _ stay unencoded."""
    encoded = quote(column, safe="")
    for sign in "-.~":
        encoded = encoded.replace(sign, f"%{ord(sign):02X}")
    return "%5F" + encoded[1:] if encoded.startswith("_") else encoded

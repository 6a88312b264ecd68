"""A starter spec for a table, with columns guessed from the header: short, or with an explanation above every key there is.

In the long one a key that is not set has a `#` directly before it, and shows its default or an example. Delete the `#` to set
the key.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.specification.explanations import Model, describe_default, explanation, section_of
from flows.specification.keys import Spec
from flows.specification.sections.hierarchy import Hierarchy, Values
from flows.specification.sections.input import MOST_FEATURES
from flows.specification.starters.examples import as_yaml, comment, example
from flows.specification.starters.headers import (
    GuessedColumns,
    are_known,
    candidates,
    guess_columns,
    is_about_people,
    is_weight,
    level_names,
)
from flows.specification.starters.nesting import guess_levels
from flows.specification.undecided import FILL_IN, purpose
from storage.errors import InputError, UsageError
from storage.tables import ENDS
from tasks.ingest.sources.csv_files import Dialect, OtherDialect
from tasks.ingest.sources.databases import Relation
from tasks.ingest.sources.files import FileTable
from tasks.ingest.sources.locations import table_at
from tasks.ingest.tables import Table, check_columns, opened, reader

SCHEMA = Path(__file__).parents[1] / "spec.schema.json"  # by which editors complete and check a spec

_MOST_LINES, _MOST_NAMED = 12, 8  # features with a line each, and columns that are named though no key uses them

_BEFORE_WORD = re.compile(
    r"(19|20)\d\d[ _]?[a-z]{3,}|\d{1,3}[ _]?(min|minutes|h|hours|km|st|nd|rd|th)([ _]|$)"
)  # 2018_car

_MODELINE = "# yaml-language-server: $schema="  # by which editors find what completes and checks a spec

# What a decision may look like, where the table does not say.
_EXAMPLE = {
    "input.origin": "home",
    "input.destination": "work",
    "hierarchy.table": "codebook.csv",
    "privacy.unit": "one person",
    "privacy.neighbours": "substitution or add_remove",
    "privacy.max_records_per_unit": "1",
    "privacy.epsilon": "1.0",
    "privacy.delta": "1.0e-8",
    "budget.epsilon": "4.0",
    "budget.delta": "1.0e-7",
}

# What follows from a decision where no column seems to say whose record a row is, and where one does.
_WITHOUT_UNIT = {
    "privacy.unit": "no column seems to say whose record a row is: whoever has several of these units is protected less",
    "privacy.max_records_per_unit": "without input.unit nobody checks this limit: it is your promise, and ingest cuts nothing",
}
_WITH_UNIT = {
    "privacy.unit": "who or what input.unit identifies",
    "privacy.max_records_per_unit": "of a unit with more records than this, ingest keeps this many, drawn at random, and drops the others",
}
_NO_TRIPS = "no trips? Write features: [COLUMN, …] in place of origin and destination, and COLUMN: {values: [CODE, …]} for each in hierarchy"

_GUESSED = "guessed from its name"
_GUESSED_LEVELS = "guessed from their names, one per level: put coarse before fine, or name the finest alone"
_GUESSED_CSV = "guessed from the first line"

_BEGUN = (
    "A release spec for {table}, written by `trellis new`.",
    f"Every {FILL_IN} is yours to decide. `trellis check` lists them, and nothing is released before they are replaced.",
    "If the column names below are data values, the table has no header line: do not share this file.",
)
_REST = (
    "docs/how-to/choose-epsilon.md helps with privacy and budget. docs/reference/spec.md explains all other keys, and `trellis new TABLE"
    " --every-key` writes them here."
)
_EVERY_KEY = (
    "A key directly after a # is not set. It shows its default or an example. Delete the # to set it.",
    "`trellis check` lists what is left to do, `trellis plan` shows cost and accuracy, `trellis release` makes the release.",
)


@dataclass(frozen=True, slots=True)
class Starter:
    """A starter spec, in its file if one was asked for, and what it takes the columns of the table for."""

    path: str | None
    spec: str
    columns: GuessedColumns


def starter(table: str, folder: Path, codebook: str | None = None, *, every_key: bool = False) -> Starter:
    """Return a starter spec for a table. Reads the header of the table and no row; of the codebook, which is public, all.

    Args:
        table: its path, relative to the working directory.
        folder: the folder of the spec.
        codebook: the path of a public table with a row per area, likewise.
        every_key: whether every key there is stands in the spec, below its explanation.
    Raises:
        InputError: a table cannot be read, its first line does not name columns, or no column could hold codes.
        UsageError: a codebook is given for a table that seems to describe people.
    """
    place, csv = _written("TABLE", table)
    names, is_header = _header(place)
    if csv and not are_known(names):  # what nobody says to be CSV of this kind may begin with a record
        _header(table_at("TABLE", table, Path.cwd()))
    columns = guess_columns(names, MOST_FEATURES)
    if not columns.origin and not candidates(names):
        _refuse_repeated(place)
        raise InputError(
            f"TABLE: {place.name} has no column that could hold codes of areas or features.",
            field="TABLE",
            hint="Give a table with columns such as origin and destination, or sex and age.",
        )
    if codebook and any(map(is_about_people, columns.features)):
        raise UsageError(
            "--codebook is for trips, and no two columns of the table seem to be the ends of one.",
            field="--codebook",
            hint="Name the codebook of each feature in the spec: hierarchy: {FEATURE: {table: …, levels: […]}}.",
        )
    if codebook and columns.features:
        columns = replace(columns, features=(), left_over=(*columns.features, *columns.left_over))
    columns = columns if is_header else replace(columns, left_over=())
    areas = _areas(codebook, folder, columns) if codebook else _keys_of_areas(_levels(columns))
    given = _given(place, folder, columns, {} if columns.features else areas, csv)
    remarks = (*_BEGUN, *(_EVERY_KEY if every_key else [_REST]))
    head = [line for text in remarks for line in comment(text.format(table=ascii(place.name)[1:-1]), "")]
    body = _section(Spec, "", given, columns) if every_key else _short(given, columns)
    return Starter(None, "\n".join([f"{_MODELINE}{SCHEMA.as_uri()}", *head, "", *body]).rstrip() + "\n", columns)


def _names(table: Table) -> tuple[list[str], list[str]]:
    """Return the names of columns that no other column has, and those of all, blank ones too."""
    with reader(table) as con, opened(con, table) as rows:
        return rows.distinct, [name.strip() for name in rows.header or rows.names]


def _refuse_repeated(table: Table) -> None:
    """Refuse a table that has columns of one name."""
    with reader(table) as con, opened(con, table) as rows:
        for name in rows.names:
            check_columns(table, rows, [name])


def starter_answer(table: str, out: Path | None, codebook: str | None = None, *, every_key: bool = False) -> Starter:
    """Write the starter to a file, if one is named, and return the answer of `trellis new`; arguments are those of `starter`.

    Raises:
        InputError: the table cannot be read.
        UsageError: the file exists, or cannot be written.
    """
    begun = starter(table, (out.parent if out else Path()).absolute(), codebook, every_key=every_key)
    if out:
        try:
            with out.open("x", encoding="utf-8") as file:
                file.write(begun.spec)
        except FileExistsError:
            raise UsageError(
                f"--out: {out} already exists and is not overwritten.", field="--out", hint="Name another file."
            ) from None
        except OSError as fault:
            raise UsageError(f"--out: {out} cannot be written ({fault.strerror}).", field="--out") from None
    return replace(begun, path=str(out)) if out else begun


def _written(field: str, location: str, dialect: Dialect | None = None) -> tuple[Table, dict[str, str]]:
    """Return a table, and the keys of `csv` with which its header can be read; none where it needs none."""
    table = table_at(field, location, Path.cwd(), dialect)
    try:
        with reader(table) as con, opened(con, table):
            keys = {key: getattr(dialect, key, None) for key in ("separator", "encoding")}
            return table, {key: value for key, value in keys.items() if value not in {None, ","}}
    except OtherDialect as fault:  # with which it is decoded, or has more names
        return _written(field, location, fault.dialect)


def _header(table: Table) -> tuple[list[str], bool]:
    """Return the names of columns, and whether all are surely names, so that a spec may have those that it does not use.

    Without a header the first line is a confidential record, which a spec must not copy. A blank field or a number among the names is
    what a record has; only beside names that are known is a blank first or last name an index or a comma at the end, and are years names.
    """
    names, header = _names(table)
    values = [name for name in header if re.fullmatch(r"[-+0-9.,:/ ]*|.*@.*", name)]
    by_digit = [name for name in header if re.match(r"\d", name) and not _BEFORE_WORD.match(name)]
    if not values and 2 * len(by_digit) < len(header):
        return names, True
    years = [int(name) for name in values if re.fullmatch(r"(19|20)\d\d", name)]
    are_years = len(years) > 1 and years == [*range(years[0], years[0] + len(years))]
    named = [name for name in names if name.strip() not in values]
    if ((values == [""] and "" in {header[0], header[-1]}) or (are_years and len(years) == len(values))) and are_known(
        named
    ):
        return named, False
    wrong = "some fields are blank or values" if values else "half of the fields begin with a digit, as values do"
    raise InputError(
        f"TABLE: the first line of {table.name} must hold the column names; {wrong}.",
        field="TABLE",
        hint="Add a line of column names above the rows, or rename the columns.",
    )


def _short(given: Mapping[str, str], columns: GuessedColumns) -> Iterator[str]:
    """Yield the lines of the keys that are set, without explanations but for a word on what is to be decided."""
    for section in ("", "input", "hierarchy", "release", "privacy", "budget"):
        if section:
            yield f"{section}:"
        if section == "hierarchy" and columns.features:
            yield from _short_features(columns.features)
        for path, value in given.items():
            above, _, key = path.rpartition(".")
            if above == section:
                yield from _follows(path, columns)
                yield f"{'  ' * bool(above)}{key}: {value}"
        if section == "input":
            yield from _of_columns(columns)


def _follows(path: str, columns: GuessedColumns) -> Iterator[str]:
    """Yield what follows from a decision, as a comment above its key."""
    if said := (_WITH_UNIT if columns.units else _WITHOUT_UNIT).get(path):
        yield f"  # {said}"


def _of_columns(columns: GuessedColumns) -> Iterator[str]:
    """Yield what is to know of the columns, as comments below the section `input`."""
    if not columns.origin and not columns.features:
        yield f"  # {_NO_TRIPS}"
    for name in filter(is_weight, columns.left_over):
        yield f"  # {ascii(name)[1:-1]} seems to be a weight, which is no number of records: docs/how-to/shape-your-table.md#survey-weights"
    if not columns.count:
        yield "  # each row is one record: if a column says how many a row stands for, add it as count"
    if left := _left_over(columns):
        yield f"  # not used: {left}"
        if columns.origin:
            yield "  # trips by hour, mode or purpose: docs/how-to/trips-by-mode-and-hour.md"


def _short_features(features: Sequence[str]) -> Iterator[str]:
    codes = [f"{as_yaml(name)}: {{values: {FILL_IN}}}" for name in features]
    yield f"  # of each feature: {explanation(Values, 'values')}"
    yield from [f"  {code}" for code in codes] if len(codes) <= _MOST_LINES else [f"  {{{', '.join(codes)}}}"]


def _left_over(columns: GuessedColumns) -> str:
    open_ones = {*columns.units, *(() if columns.origin or columns.features else candidates(columns.left_over))}
    names = [name if name.isprintable() else ascii(name) for name in columns.left_over if name not in open_ones]
    more = f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else ""
    why = " (identifiers, times and places are no features)" if columns.features and names else ""
    return ", ".join(names[:_MOST_NAMED]) + more + why


def _place(table: Table, folder: Path) -> str:
    if not isinstance(table, FileTable):
        return table.location
    place = os.path.relpath(table.path, folder) if table.path.is_relative_to(folder) else str(table.path)
    return f"{place}::{table.inner}" if table.inner else place


def _areas(codebook: str, folder: Path, columns: GuessedColumns) -> dict[str, str]:
    """Return the keys about areas by a codebook. Where its codes are unique by path only, the ends need a column for each level."""
    table, csv = _written("--codebook", codebook)
    guessed = guess_levels(table)
    levels = guessed.levels
    why = "codes are unique by path only" if guessed.by_path else "coarse to fine, as its rows nest"
    keys = _keys_of_areas(levels) | {
        "hierarchy.table": as_yaml(_place(table, folder)),
        "hierarchy.levels": f"{as_yaml(levels)} # {why}",
    }
    if csv:
        keys["hierarchy.csv"] = f"{as_yaml(csv)} # {_GUESSED_CSV}"
    if guessed.labels:
        keys["hierarchy.labels"] = f"{as_yaml(guessed.labels)} # guessed from the names of columns"
    if guessed.by_path and len(columns.origin) != len(levels):
        keys |= {f"input.{end}": _to_decide(f"input.{end}", as_yaml(levels)) for end in ENDS}
    return keys


def _keys_of_areas(levels: list[str]) -> dict[str, str]:
    return {
        "hierarchy.table": _to_decide("hierarchy.table"),
        "hierarchy.levels": _to_decide("hierarchy.levels", as_yaml(levels)),
        "release.tree": "destination",
        "release.finest": _to_decide("release.finest", " or ".join(map(as_yaml, levels))),
    }


def _to_decide(key: str, example: str = "") -> str:
    return f"{FILL_IN} # {purpose(key)} For example: {example or _EXAMPLE[key]}"


def _given(
    table: Table, folder: Path, columns: GuessedColumns, areas: Mapping[str, str], csv: Mapping[str, str]
) -> dict[str, str]:
    """Return the values of the keys that the starter sets, as YAML, some with a comment after them.

    Those about areas are `areas`, and those of `input.csv` are `csv`.
    """
    of_table = table.table or table.name if isinstance(table, Relation) else table.name.split(".")[0]
    name = re.sub(r"[^a-z0-9]+", "-", of_table.casefold()).strip("-")[:64].rstrip("-") or "release"
    given = {"name": name, "dataset": _to_decide("dataset", name), "input.table": as_yaml(_place(table, folder))}
    if csv:  # the section in one line, and its keys one by one
        given["input.csv"] = f"{as_yaml(dict(csv))} # {_GUESSED_CSV}"
        given |= {f"input.csv.{key}": as_yaml(value) for key, value in csv.items()}
    able = candidates(columns.left_over)[:_MOST_NAMED]
    for end, several in zip(() if columns.features else ENDS, (able, able[::-1]), strict=False):
        of_end = getattr(columns, end)
        guessed = f"{as_yaml(of_end[0] if len(of_end) == 1 else list(of_end))} # {_GUESSED if len(of_end) == 1 else _GUESSED_LEVELS}"
        given[f"input.{end}"] = guessed if of_end else _to_decide(f"input.{end}", " or ".join(map(as_yaml, several)))
    if columns.features:
        given["input.features"] = (
            f"{as_yaml(list(columns.features))} # all other columns: delete those that are not features"
        )
    if columns.count:  # counts of something else would be released as counts of people
        given["input.count"] = _to_decide("input.count", as_yaml(columns.count))
    if columns.unit:
        given["input.unit"] = f"{as_yaml(columns.unit)} # guessed from its name: whose record a row is"
    elif columns.units:
        given["input.unit"] = _to_decide("input.unit", " or ".join(map(as_yaml, columns.units[:_MOST_NAMED])))
    if columns.features:
        given["release.order"] = as_yaml(list(columns.features))
    given |= dict(areas) | {key: _to_decide(key) for key in _EXAMPLE if key.startswith(("privacy", "budget"))}
    if columns.units:  # of which one record each would drop most rows
        given["privacy.max_records_per_unit"] = _to_decide("privacy.max_records_per_unit", "10")
    return given


def _levels(columns: GuessedColumns) -> list[str]:
    return level_names(columns.origin) if len(columns.origin) > 1 else ["region", "area"]


def _section(model: Model, path: str, given: Mapping[str, str], columns: GuessedColumns) -> Iterator[str]:
    """Yield the lines of the keys of a section, each key below its explanation."""
    indent = "  " * path.count(".")
    for key, info in model.model_fields.items():
        whole, below = f"{path}{key}", section_of(info)
        if not path and key != "name":
            yield ""
        yield from comment(explanation(model, key), indent)
        if whole == "hierarchy":
            yield "hierarchy:"
            yield from _hierarchy(given, columns)
        elif below and whole not in given:
            is_given = any(name.startswith(f"{whole}.") for name in given)
            yield f"{indent}{'' if is_given else '#'}{key}:"
            yield from _section(below, f"{whole}.", given, columns)
        elif whole in given:
            yield from _follows(whole, columns)
            yield f"{indent}{key}: {given[whole]}"
        else:
            yield f"{indent}#{key}: {example(whole, info, columns.features or _levels(columns))}"
        if whole == "input":
            yield from _of_columns(columns)


def _hierarchy(given: Mapping[str, str], columns: GuessedColumns) -> Iterator[str]:
    """Yield the lines for the codebook of both ends, or for the codes of each feature."""
    if columns.features:
        either = (
            f"{explanation(Values, 'values')} For a feature with several levels, {{table: …, levels: […]}} instead."
        )
        yield from comment(either, "  ")
        yield from (f"  {as_yaml(name)}: {{values: {FILL_IN}}}" for name in columns.features)
        return
    for key, info in Hierarchy.model_fields.items():
        yield from comment(explanation(Hierarchy, key), "  ")
        value = given.get(f"hierarchy.{key}")
        yield f"  {key}: {value}" if value else f"  #{key}: {describe_default(info)}"

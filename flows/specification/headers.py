"""Guesses the use of a table's columns from common column names. Reads no row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flows.specification.sections.views import NOT_OF_CODES

# Words in the names of origin columns, each with its counterpart for destinations: LODES, taxis, shared bicycles, surveys.
_ENDS = (
    ("h", "w"),
    ("origin", "destination"),
    ("origin", "dest"),
    ("orig", "dest"),
    ("o", "d"),
    ("from", "to"),
    ("home", "work"),
    ("home", "workplace"),
    ("residence", "workplace"),
    ("residence", "work"),
    ("pickup", "dropoff"),
    ("pu", "do"),
    ("start", "end"),
    ("source", "target"),
    ("departure", "arrival"),
)
# Weights are not here: a survey's weight says how many people a record represents, and is not a number of records.
_COUNTS = {"count", "counts", "trips", "trip", "flow", "flows", "people", "persons", "jobs", "commuters"}
_COUNTS |= {"s000", "n", "obs", "volume", "frequency", "freq", "total"}
_NUMBER_OF = {"n", "num", "number", "of", "count", "counts", "total"}
_UNITS = {"person", "user", "household", "hh", "device", "card", "respondent", "individual", "unit", "rider"}
_UNITS |= {"customer", "traveller", "traveler", "employee", "worker", "patient", "member", "subscriber", "participant"}
_IDENTIFIERS = {"id", "nr", "no", "key", "hash", "number"}
_PLACES = {"lat", "lng", "lon", "long", "latitude", "longitude"}
_NO_AREA = {"time", "date", "datetime", "timestamp", "at", "name"} | _PLACES
_OF_EACH_ROW = {"uuid", "guid", "rowid", "ssn", "email", "mail", "phone", "telephone", "firstname", "surname"}
_OF_EACH_ROW |= _NO_AREA - {"at"} | {"lastname", "created", "updated", "iban", "url", "ip"}
_OF_EACH_ROW |= {"caseno", "serial", "serialno", "ref", "reference", "nino", "pin", "passport", "respondent", "record"}
_ABOUT_AREAS = {"name", "label", "population", "pop", "households", "km2", "hectares"} | _PLACES - {"lng", "long"}


@dataclass(frozen=True, slots=True)
class GuessedColumns:
    """The columns of a table by their guessed use.

    Attributes:
        origin: the columns of codes where trips begin: one, or one per level; empty for a table without trips.
        destination: the columns of codes where trips end, in the same order.
        features: the columns of codes of a table without trips.
        count: the column of counts; None where each row seems to be one record.
        unit: the column that identifies units; None where no column does.
        left_over: all other columns.
    """

    origin: tuple[str, ...]
    destination: tuple[str, ...]
    features: tuple[str, ...]
    count: str | None
    unit: str | None
    left_over: tuple[str, ...]


def guess_columns(names: Sequence[str], most_features: int) -> GuessedColumns:
    """Return the guessed use of columns, each named once; columns beyond `most_features` features are left over."""
    unit = next((name for name in names if _is_unit(name)), None)
    count = next((name for name in names if name != unit and _is_count(name)), None)
    others = [name for name in names if name not in {unit, count}]
    origin, destination = _ends(others)
    features: list[str] = []
    for name in () if origin else others:
        if _may_be_feature(name) and name.casefold() not in {taken.casefold() for taken in features}:
            features.append(name)
    features = features[:most_features]
    used = {*origin, *destination, *features}
    left_over = tuple(name for name in others if name not in used)
    return GuessedColumns(tuple(origin), tuple(destination), tuple(features), count, unit, left_over)


def level_names(columns: Sequence[str]) -> list[str]:
    """Return names for the levels of columns whose names hold an end and a level, such as `home_region`."""
    ends = {word for pair in _ENDS for word in pair}
    names = ["_".join(word for word in words_of(column) if word not in ends) for column in columns]
    return names if all(names) and len(set(names)) == len(names) else [f"level_{k + 1}" for k in range(len(columns))]


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: `PULocationID` and `pu_location_id` have the same words."""
    separated = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", name)  # `PULocation` becomes `PU Location`
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|\d+", separated)]


def _ends(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of both ends: pairs of names that differ only in the word for the end."""
    by_words = {tuple(words_of(name)): name for name in names}
    for begin, end in _ENDS:
        pairs = []
        for words, name in by_words.items():
            mirrored = tuple(end if word == begin else word for word in words)
            if begin in words and mirrored in by_words:
                pairs.append((words, name, by_words[mirrored]))
        areas = [pair for pair in pairs if _NO_AREA.isdisjoint(pair[0])] or [
            pair for pair in pairs if pair[0][-1] == "name"
        ]
        if areas:
            return [pair[1] for pair in areas], [pair[2] for pair in areas]
    return [], []


def _is_count(name: str) -> bool:
    words = words_of(name)
    bare = "".join(words) in _COUNTS
    return bare or (len(words) > 1 and all(word in _COUNTS | _NUMBER_OF for word in words))


def _is_unit(name: str) -> bool:
    words = words_of(name)
    if "".join(words) in {"pid", "uid", "hhid", *(f"{unit}id" for unit in _UNITS)}:
        return True
    return len(words) > 1 and words[0] in _UNITS and words[-1] in _IDENTIFIERS


def is_no_level(name: str) -> bool:
    """Return whether a column of a codebook seems to describe its areas, by its name, rather than to hold them."""
    return not _ABOUT_AREAS.isdisjoint(words_of(name))


def is_identifier(name: str) -> bool:
    """Return whether a column seems to have a value of its own in every row, or nearly, by its name: ids, times, addresses."""
    words = words_of(name)
    return bool(words) and (words[-1] in _IDENTIFIERS or not _OF_EACH_ROW.isdisjoint({*words, "".join(words)}))


def _may_be_feature(name: str) -> bool:
    """Return whether a feature may have this name, which becomes a column name and part of file names."""
    return (
        bool(name.strip())
        and not is_identifier(name)
        and name.isprintable()
        and "/" not in name
        and name.casefold() not in NOT_OF_CODES
    )

"""What the columns of a table may be, guessed from their names as the field writes them. No row is read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from storage.counts.columns import NOISY, NUMBERS, VARIANCE

# What stands where a trip begins, and what stands in its place where it ends: LODES, taxis, shared bicycles, surveys.
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
# No weight: a survey's says how many people a record stands for, and is no number of records.
_COUNTS = {"count", "counts", "trips", "trip", "flow", "flows", "people", "persons", "jobs", "commuters"}
_COUNTS |= {"s000", "n", "obs", "volume", "frequency", "freq", "total"}
_NUMBER_OF = {"n", "num", "number", "of", "count", "counts", "total"}
_UNITS = {
    "person",
    "user",
    "household",
    "hh",
    "device",
    "card",
    "respondent",
    "individual",
    "unit",
    "rider",
    "customer",
}
_UNITS |= {"traveller", "traveler", "employee", "worker", "patient", "member", "subscriber", "participant"}
_IDENTIFIERS = {"id", "nr", "no", "key", "hash", "number"}
_NO_AREA = {"time", "date", "datetime", "timestamp", "at", "lat", "lng", "lon", "long", "latitude", "longitude", "name"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by what they seem to be.

    Attributes:
        origin: of codes where trips begin: one, or one per level; empty where the table seems to hold no trips.
        destination: likewise where they end, in the same order.
        features: of codes, where it holds no trips.
        count: of counts; None where a row seems to be a record.
        unit: that tells units apart; None where none does.
        left_over: the others.
    """

    origin: tuple[str, ...]
    destination: tuple[str, ...]
    features: tuple[str, ...]
    count: str | None
    unit: str | None
    left_over: tuple[str, ...]


def guess_columns(names: Sequence[str], most_features: int) -> Columns:
    """Return what columns seem to be.

    Args:
        names: of all columns, in their order; each once.
        most_features: beyond so many the others are left over.
    """
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
    return Columns(tuple(origin), tuple(destination), tuple(features), count, unit, left_over)


def level_names(columns: Sequence[str]) -> list[str]:
    """Return what the levels of columns may be called that are named by an end and a level, such as `home_region`."""
    ends = {word for pair in _ENDS for word in pair}
    names = ["_".join(word for word in words_of(column) if word not in ends) for column in columns]
    return names if all(names) and len(set(names)) == len(names) else [f"level_{k + 1}" for k in range(len(columns))]


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters: `PULocationID` and `pu_location_id` have the same."""
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|\d+", _parted(name))]


def _parted(name: str) -> str:
    """Part capitals that are an abbreviation from the word behind them, which begins with the last of them."""
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", name)


def _ends(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of both ends: those whose names differ in one word alone, which says the end."""
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


def _may_be_feature(name: str) -> bool:
    """Return whether a name may be that of a feature: it becomes a column, and part of the names of files."""
    return (
        bool(name.strip())
        and name.isprintable()
        and "/" not in name
        and name.casefold() not in {*NUMBERS, NOISY, VARIANCE}
    )

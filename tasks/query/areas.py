"""The areas that a question names: by a code, by a level and a code, or by the path where only that tells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from storage.errors import UsageError
from tasks.query.folder import PublishedFolder

EVERYTHING = "all"

_SHOWN = 3  # areas, where several are meant or none


@dataclass(frozen=True, slots=True)
class Area:
    """An area of an axis.

    Attributes:
        level: of the axis; 0 for everything.
        path: its code, and those of the areas that hold it, coarse to fine.
        number: among the areas of its level, where the folder has a codebook; otherwise 0.
    """

    level: int
    path: tuple[str, ...]
    number: int = 0


class Catalogue(Protocol):
    """Where areas are looked up.

    Attributes:
        missing: what is to be said besides of an area that is not found.
    """

    missing: str

    def areas(self, axis: str, level: int, codes: Mapping[int, str]) -> list[Area]:
        """Return a few of the areas of an axis level that have these codes, by axis level, none finer than theirs."""


class Codebook:
    """The areas of the codebook that is published with the noisy counts: all that there are."""

    missing = ""

    def __init__(self, folder: PublishedFolder) -> None:
        """Look areas up in a folder with noisy counts."""
        self._axes = {axis.name: axis for axis in folder.tree.axes}

    def areas(self, axis: str, level: int, codes: Mapping[int, str]) -> list[Area]:
        """Return a few of the areas of an axis level that have these codes."""
        of_axis = self._axes[axis]
        found = np.arange(of_axis.areas(level))
        for own, code in sorted(codes.items(), reverse=True):
            above = of_axis.ancestors(found, level, own)
            same = np.flatnonzero((of_axis.codes[own - 1] == code).to_numpy())
            found = found[np.isin(above, same)]
        return [self._area(axis, level, int(number)) for number in found[: _SHOWN + 1]]

    def _area(self, axis: str, level: int, number: int) -> Area:
        of_axis, one = self._axes[axis], np.array([number])
        path = (of_axis.codes[own - 1][int(of_axis.ancestors(one, level, own)[0])] for own in range(1, level + 1))
        return Area(level, tuple(path), number)


class ReleasedAreas:
    """The areas of the rows of the tables: those without any are not known."""

    missing = " The folder has no codebook, and an area that no released count names cannot be told from one that does not exist."

    def __init__(self, folder: PublishedFolder) -> None:
        """Look areas up in any folder."""
        self._folder = folder

    def areas(self, axis: str, level: int, codes: Mapping[int, str]) -> list[Area]:
        """Return a few of the areas of an axis level that have these codes."""
        folder, columns = self._folder, self._folder.columns(axis, level)
        number = list(folder.axes).index(axis)
        tree_level = next(at for at in range(len(folder.steps) + 1) if folder.reached(at)[number] == level)
        asked = [pl.col(columns[own - 1]) == code for own, code in codes.items()]
        rows = folder.table(tree_level).filter(*asked) if asked else folder.table(tree_level)
        (found,) = folder.collect([rows.select(columns).unique().sort(columns).head(_SHOWN + 1)])
        return [Area(level, path) for path in found.iter_rows()]


def find_area(folder: PublishedFolder, catalogue: Catalogue, axis: str, asked: object) -> Area:
    """Return the area that a question names.

    Args:
        folder: that is asked.
        catalogue: of it.
        axis: of the area.
        asked: a code, where one level of the axis alone has it; `LEVEL=CODE`; several of them behind commas, where only
            the path tells; the same as a mapping of levels to codes; `all` or None for everything.
    Raises:
        UsageError: there is no such area, or there are several; says which levels there are, or how to name one of them.
    """
    names = folder.axes[axis]
    if asked is None or asked == EVERYTHING:
        return Area(0, ())
    if isinstance(asked, str):
        codes = _by_level(axis, asked, names)
    elif isinstance(asked, Mapping):
        codes = dict(asked)
    else:
        raise UsageError(f"{axis}: codes are text, got {asked!r}.", field=axis)
    if codes is not None:
        return _at_levels(catalogue, axis, names, codes)
    found = {level: catalogue.areas(axis, level, {level: str(asked)}) for level in range(1, len(names) + 1)}
    found = {level: areas for level, areas in found.items() if areas}
    if len(found) > 1:
        written = [f"{names[level - 1]}={asked}" for level in found]
        raise UsageError(
            f"{axis}: {asked} is a code of the levels {' and '.join(names[level - 1] for level in found)}.",
            field=axis,
            hint=f"Say {' or '.join(written)}.",
        )
    if not found:
        raise _unknown(catalogue, axis, names, f"{axis}: no level has an area {asked}.")
    return _only(axis, names, *found.values())


def _by_level(axis: str, text: str, names: Sequence[str]) -> dict[object, object] | None:
    """Return the codes that a text names by level, None where it is a code; codes may hold commas and equals signs."""
    level = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    if not re.match(rf"\s*(?:{level})=", text):
        return None
    parts = [part.partition("=") for part in re.split(rf",\s*(?=(?:{level})=)", text.strip())]
    codes: dict[object, object] = {name: code for name, _, code in parts}
    if len(codes) < len(parts):
        raise UsageError(f"{axis}: {text} names a level twice.", field=axis)
    return codes


def _at_levels(catalogue: Catalogue, axis: str, names: Sequence[str], codes: Mapping[object, object]) -> Area:
    """Return the area whose path has some codes."""
    by_number = {}
    for name, code in codes.items():
        if name not in names or not isinstance(code, str):
            told = f"has no level {name}" if name not in names else f"level {name}: codes are text, got {code!r}"
            raise UsageError(f"{axis}: {told}.", field=axis, hint=f"Its levels are {', '.join(names)}.")
        by_number[list(names).index(str(name)) + 1] = code
    if not by_number:
        return Area(0, ())
    areas = catalogue.areas(axis, max(by_number), by_number)
    if not areas:
        said = ",".join(f"{name}={code}" for name, code in codes.items())
        raise _unknown(catalogue, axis, names, f"{axis}: there is no area {said}.")
    return _only(axis, names, areas)


def _only(axis: str, names: Sequence[str], areas: Sequence[Area]) -> Area:
    """Return the only one of some areas of a level."""
    if len(areas) == 1:
        return areas[0]
    level, code = names[areas[0].level - 1], areas[0].path[-1]
    paths = [",".join(f"{name}={part}" for name, part in zip(names, area.path, strict=False)) for area in areas]
    more = ", or another" if len(paths) > _SHOWN else ""
    raise UsageError(
        f"{axis}: several areas of the level {level} have the code {code}, and only the path tells them apart.",
        field=axis,
        hint=f"Say {' or '.join(paths[:_SHOWN])}{more}.",
    )


def _unknown(catalogue: Catalogue, axis: str, names: Sequence[str], told: str) -> UsageError:
    """Return what is said of an area that is not found: which levels there are, and how an area of each is named."""
    first = [catalogue.areas(axis, level, {}) for level in range(1, len(names) + 1)]
    levels = [
        f"{name} (such as {name}={areas[0].path[-1]})" if areas else name
        for name, areas in zip(names, first, strict=True)
    ]
    return UsageError(
        told + catalogue.missing, field=axis, hint=f"The levels of {axis}: {', '.join(levels)}; or {EVERYTHING}."
    )

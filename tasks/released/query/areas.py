"""The areas that a query names: by a code or a name, by a level and a code, or by a path where a code is not unique."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.errors import UsageError
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Axis
from tasks.words.spelling import closest, did_you_mean, plain

EVERYTHING = "all"

_SHOWN = 3  # areas that a refusal lists
_IN_QUOTES = "Write the code in quotes, as the codebook has it."

_NO_CODEBOOK = " The folder has no codebook, so an area without a released count looks like one that does not exist."


@dataclass(frozen=True, slots=True)
class Area:
    """An area of an axis.

    Attributes:
        level: its axis level; 0 for everything.
        path: the codes of the areas that contain it and its own code, coarse to fine.
        number: its number among the areas of its level if the folder has a codebook; otherwise 0.
    """

    level: int
    path: tuple[str, ...]
    number: int = 0


def areas_with(folder: PublishedFolder, axis: str, level: int, codes: Mapping[int, str]) -> list[Area]:
    """Return a few areas of an axis level that have codes, given by axis levels of which none is finer.

    Without a codebook they are some of those that have a row in the tables.
    """
    if folder.has_tree:
        of_axis = folder.tree.axes[list(folder.axes).index(axis)]
        numbers = np.arange(of_axis.areas(level))
        for own, code in sorted(codes.items(), reverse=True):
            same = np.flatnonzero((of_axis.codes[own - 1] == code).to_numpy())
            numbers = numbers[np.isin(of_axis.ancestors(numbers, level, own), same)]
        return [area_of(of_axis, level, int(number)) for number in numbers[: _SHOWN + 1]]
    columns, table = folder.columns(axis, level), _rows_at(folder, axis, level)
    asked = [pl.col(columns[own - 1]) == code for own, code in codes.items()]
    rows = table.filter(*asked) if asked else table
    (paths,) = folder.collect([rows.select(columns).unique().sort(columns).head(_SHOWN + 1)])
    return [Area(level, path) for path in paths.iter_rows()]


def _rows_at(folder: PublishedFolder, axis: str, level: int) -> pl.LazyFrame:
    """Return the coarsest table that reaches an axis level."""
    at = list(folder.axes).index(axis)
    return folder.scan(next(of for of in folder.manifest.levels if folder.reached(of.level)[at] == level))


def _codes_at(folder: PublishedFolder, axis: str, level: int) -> list[str]:
    """Return the codes of an axis level; without a codebook, those that have a row in the tables."""
    if folder.has_tree:
        return folder.tree.axes[list(folder.axes).index(axis)].codes[level - 1].unique().sort().to_list()
    column = folder.columns(axis, level)[-1]
    (codes,) = folder.collect([_rows_at(folder, axis, level).select(pl.col(column).unique().sort())])
    return codes[column].to_list()


def coarsest(folder: PublishedFolder, axis: str, area: Area) -> Area:
    """Return the coarsest area that is the same by the codebook: the parent of an only child, and so on upwards.

    The codes of an axis without a codebook are those that were released: there may be others, and nothing is an only child.
    """
    if not folder.has_tree:
        return area
    of = folder.tree.axes[list(folder.axes).index(axis)]
    if area_of(of, area.level, area.number) != area:
        return area
    numbers, levels = of.coarsest_alike(np.array([area.number]), area.level)
    return area_of(of, int(levels[0]), int(numbers[0]))


def area_of(axis: Axis, level: int, number: int) -> Area:
    """Return an area of an axis by its number at a level."""
    one = np.array([number])
    path = (axis.codes[own - 1][int(axis.ancestors(one, level, own)[0])] for own in range(1, level + 1))
    return Area(level, tuple(path), number)


def find_area(folder: PublishedFolder, axis: str, asked: object) -> Area:
    """Return the area that a query names.

    Args:
        folder: where the area is looked up.
        axis: the name of its axis.
        asked: a code that only one level of the axis has, or an area and its only child, and so on; `LEVEL=CODE`; several of these, separated by commas, where only the
            path identifies the area; a mapping of levels to codes; None for everything, or `all` where no area is called so. A name may
            stand for a code that is not found.
    Raises:
        UsageError: there is no such area, or there are several. The hint lists the levels, or how to name one of the areas.
    """
    names = folder.axes[axis]
    if asked is None:
        return Area(0, ())
    if isinstance(asked, Mapping):
        return _at_levels(folder, axis, asked)
    if not isinstance(asked, str):
        raise UsageError(f"{axis}: a code must be text, got {_in_words(asked)}.", field=axis, hint=_IN_QUOTES)
    if not asked.strip():
        raise UsageError(
            f"{axis} must name an area, got nothing.", field=axis, hint=f"For everything, leave {axis} out."
        )
    if asked == EVERYTHING:
        _check_everything(folder, axis)
        return Area(0, ())
    if (codes := _by_level(axis, asked, names)) is not None:
        return _at_levels(folder, axis, codes)
    of_levels = {name: areas_with(folder, axis, level, {level: asked}) for level, name in enumerate(names, 1)}
    levels = [name for name, areas in of_levels.items() if areas]
    alike = {coarsest(folder, axis, area) for areas in of_levels.values() for area in areas}
    if len(levels) > 1 and len(alike) > 1:
        raise UsageError(
            f"{axis}: {asked} is a code at the levels {' and '.join(levels)}.",
            field=axis,
            hint=f"Write {' or '.join(f'{name}={asked}' for name in levels)}.",
        )
    return _only(folder, axis, of_levels[levels[0]]) if levels else _called(folder, axis, asked)


def _check_everything(folder: PublishedFolder, axis: str) -> None:
    """Refuse `all` where an area has that code or name."""
    names = folder.axes[axis]
    coded = [
        area.path for level in range(1, len(names) + 1) for area in areas_with(folder, axis, level, {level: EVERYTHING})
    ]
    shown = [f"{names[len(path) - 1]}={path[-1]}" for path in [*coded, *folder.names.paths(axis, EVERYTHING)]]
    if shown:
        hint = f"Write {' or '.join(dict.fromkeys(shown[:_SHOWN]))} for the area. For everything, leave {axis} out."
        raise UsageError(
            f"{axis}: an area is called {EVERYTHING}, which otherwise means everything.", field=axis, hint=hint
        )


def _by_level(axis: str, text: str, names: Sequence[str]) -> dict[object, object] | None:
    """Return the codes that a text names by level, or None if the text is a code; codes may contain `,` and `=`."""
    level = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    if not re.match(rf"\s*(?:{level})=", text):
        return None
    parts = [part.partition("=") for part in re.split(rf",\s*(?=(?:{level})=)", text.strip())]
    codes: dict[object, object] = {name: code for name, _, code in parts}
    if len(codes) < len(parts):
        raise UsageError(f"{axis}: {text} names a level twice.", field=axis)
    return codes


def _called(folder: PublishedFolder, axis: str, asked: str) -> Area:
    """Return the area that has a name; refuse a name that no area has, or several have."""
    paths = folder.names.paths(axis, asked)
    if not paths:
        raise _unknown(folder, axis, f"{axis}: no level has an area {asked}.", asked)
    if len(paths) > 1:
        raise called_alike(axis, asked, [_written(folder.axes[axis], path) for path in paths])
    return _on_path(folder, axis, paths[0])


def called_alike(axis: str, asked: str, written: Sequence[str]) -> UsageError:
    """Return the refusal of a name that several areas have, given how to write each of them."""
    more = ", or another" if written[_SHOWN:] else ""
    return UsageError(
        f"{axis}: {len(written)} areas are called {asked}.",
        field=axis,
        hint=f"Write {' or '.join(written[:_SHOWN])}{more}.",
    )


def _on_path(folder: PublishedFolder, axis: str, path: Sequence[str]) -> Area:
    """Return an area that exists, by the codes of its path; it may have no row."""
    areas = areas_with(folder, axis, len(path), dict(enumerate(path, 1)))
    return areas[0] if areas else Area(len(path), tuple(path))


def _written(names: Sequence[str], path: Sequence[str]) -> str:
    return ",".join(f"{name}={code}" for name, code in zip(names, path, strict=False))


def _at_levels(folder: PublishedFolder, axis: str, codes: Mapping[object, object]) -> Area:
    """Return the area whose path has these codes or names."""
    names, by_number = folder.axes[axis], {}
    for name, code in codes.items():
        if name not in names or not isinstance(code, str):
            is_level = name in names
            message = (
                f"level {name}: a code must be text, got {_in_words(code)}" if is_level else f"has no level {name}"
            )
            meant = _IN_QUOTES if is_level else did_you_mean(str(name), names)
            raise UsageError(
                f"{axis}: {message}.", field=axis, hint=f"{meant} Its levels are {', '.join(names)}.".lstrip()
            )
        by_number[names.index(str(name)) + 1] = code
    if not by_number:
        return Area(0, ())
    level, finest = max(by_number), by_number[max(by_number)]
    areas = areas_with(folder, axis, level, by_number)
    if not areas:
        paths = _named_so(folder, axis, by_number)
        if len(paths) > 1:
            raise called_alike(axis, finest, [_written(names, path) for path in paths])
        areas = [_on_path(folder, axis, path) for path in paths]
    if not areas:
        written = ",".join(f"{name}={code}" for name, code in codes.items())
        raise _unknown(folder, axis, f"{axis}: there is no area {written}.", finest)
    return _only(folder, axis, areas)


def _named_so(folder: PublishedFolder, axis: str, asked: Mapping[int, str]) -> list[tuple[str, ...]]:
    """Return the areas of the finest level asked for whose paths have these names, or codes at other levels than that."""
    finest = max(asked)
    return [
        path
        for path in folder.names.paths(axis, asked[finest])
        if len(path) == finest
        and all(
            path[level - 1] == value or path[:level] in folder.names.paths(axis, value)
            for level, value in asked.items()
        )
    ]


def _in_words(value: object) -> str:
    """Return a value that is no code in words: a number as it is, anything else by its type."""
    return str(value) if isinstance(value, int | float) else f"a {type(value).__name__}"


def _only(folder: PublishedFolder, axis: str, areas: Sequence[Area]) -> Area:
    """Return the only area, or refuse when there are several."""
    if len(areas) == 1:
        return areas[0]
    names = folder.axes[axis]
    level, code = names[areas[0].level - 1], areas[0].path[-1]
    paths = [_written(names, area.path) for area in areas]
    more = ", or another" if len(paths) > _SHOWN else ""
    raise UsageError(
        f"{axis}: several areas of the level {level} have the code {code}; only a path identifies one of them.",
        field=axis,
        hint=f"Write {' or '.join(paths[:_SHOWN])}{more}.",
    )


def _unknown(folder: PublishedFolder, axis: str, message: str, asked: str) -> UsageError:
    """Return the refusal of an area; its hint says which names are like it, and lists the levels, with an example of each."""
    names = folder.axes[axis]
    called = [
        f"{folder.names.name_of(axis, path)} ({_written(names[len(path) - 1 :], path[-1:])})"
        for path in folder.names.like(axis, asked)
    ]
    codes = [(name, code) for level, name in enumerate(names, 1) for code in _codes_at(folder, axis, level)]
    near = closest(asked, dict.fromkeys(code for _, code in codes), _SHOWN)
    coded = [f"{name}={code}" for one in near for name, code in codes if code == one]
    is_same = any(plain(one).lstrip("0") == plain(asked).lstrip("0") for one in near)
    alike = ([*coded, *called] if is_same else [*called, *coded])[:_SHOWN]
    meant = f"Did you mean {' or '.join(alike)}?" if alike else did_you_mean(asked, [code for _, code in codes])
    ends = re.fullmatch(r"([^-–,\s]+)\s*[-–,].*?([^-–,\s]+)", asked)
    if axis in folder.ordered and ends and {*ends.groups()} <= {code for _, code in codes}:
        meant = f"A range is written {ends[1]}..{ends[2]}."
    first = [areas_with(folder, axis, level, {}) for level in range(1, len(names) + 1)]
    levels = [
        f"{name} (such as {name}={areas[0].path[-1]})" if areas else name
        for name, areas in zip(names, first, strict=True)
    ]
    return UsageError(
        message + ("" if folder.has_tree else _NO_CODEBOOK),
        field=axis,
        hint=f"{meant} The levels of {axis} are {', '.join(levels)}; `{EVERYTHING}` means everything.".lstrip(),
    )

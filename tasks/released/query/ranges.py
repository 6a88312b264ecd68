"""Ranges of an ordered axis: which areas they hold, and the fewest areas that they are made of."""

from dataclasses import dataclass

import numpy as np

from storage.errors import UsageError
from storage.tables import domains_of
from tasks.released.boxes import fewest_areas
from tasks.released.query.areas import Area, area_of, called_alike, find_area
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Axis
from tasks.tree.ordered import RANGE, goes_round, has_other_code
from tasks.words.areas import Names
from tasks.words.spelling import did_you_mean

_SHOWN = 3  # codes of a level that a refusal shows


@dataclass(frozen=True, slots=True)
class AreaRange:
    """Adjacent areas of a level of an ordered axis.

    Attributes:
        level: the axis level.
        first: the number of the first area.
        stop: the number of the first one after it that is outside; not above `first` where the range goes over the end of an axis that
            goes round.
    """

    level: int
    first: int
    stop: int


def find_areas(folder: PublishedFolder, axis: str, asked: object) -> Area | AreaRange:
    """Return the area or the range that a query names: `FIRST..LAST`, two codes of one level of an ordered axis, of which one may be left out, or one as `find_area`.

    A name may stand for a code that is not found. On an axis that goes round, a range may go over the end: 22..2 is 22, 23, 0, 1, 2.

    Raises:
        UsageError: there is no such area; or the ends of a range are of different levels, reversed, or of an axis without order.
    """
    if not isinstance(asked, str) or RANGE not in asked or "=" in asked:
        return find_area(folder, axis, asked)
    of = folder.ordered.get(axis)
    if of is not None:
        domain = domains_of(folder.manifest.spec)[axis]
        codes = of.areas(of.depth) - has_other_code(domain)
        may_be_round = not (domain.get("unlisted") or domain.get("calendar"))
        return _range(of, folder.names, asked, codes, is_round=goes_round(axis, domain), may_be_round=may_be_round)
    try:
        return find_area(folder, axis, asked)
    except UsageError as fault:
        raise UsageError(
            f"{axis}: {asked} is no area, and no range either, since the codes of {axis} have no order.",
            field=axis,
            hint=f"{fault.hint} Name several areas one by one.",
        ) from None


def _range(axis: Axis, names: Names, asked: str, codes: int, *, is_round: bool, may_be_round: bool) -> AreaRange:
    """Return a range of an ordered axis, or the area of a made level that has this name; its order has so many codes.

    Args:
        may_be_round: whether its spec could say that it goes round.
    """
    first, _, last = asked.partition(RANGE)
    if not (first.strip() and last.strip()):
        return _open_range(axis, names, first.strip(), last.strip(), asked, codes)
    (level, begin), (other, end) = (
        _end(axis, names, code.strip(), asked, place) for place, code in enumerate((first, last))
    )
    if level != other:
        one, two = (axis.level_names[own - 1] for own in (level, other))
        raise UsageError(
            f"{axis.name}: the ends of {asked} must be of one level, got {first} of level {one} and {last} of level {two}.",
            field=axis.name,
            hint=f"For example {axis.codes[level - 1][begin]}{RANGE}{axis.codes[level - 1][axis.areas(level) - 1]}.",
        )
    if end < begin and not is_round:
        said_by = " Where an axis goes round, as hours do, its spec says so by round: true beside ordered."
        raise UsageError(
            f"{axis.name}: in {asked}, {last} comes before {first} in the order of {axis.name}, "
            + ("and its spec does not say that the order goes round." if may_be_round else "which does not go round."),
            field=axis.name,
            hint=f"From {first} over the end to {last}, ask for {first}{RANGE} and {RANGE}{last}, one count each."
            + (said_by if may_be_round else ""),
        )
    if end + 1 == begin:
        return AreaRange(level, 0, axis.areas(level))
    return AreaRange(level, begin, end + 1)


def _open_range(axis: Axis, names: Names, first: str, last: str, asked: str, codes: int) -> AreaRange:
    """Return the range from a code to the last one of its level, or to a code from the first one of its level."""
    if not (first or last):
        raise UsageError(f"{axis.name}: {asked} must name a first code, a last code, or both.", field=axis.name)
    level, end = _end(axis, names, first or last, asked, 0 if first else 1)
    areas = codes if level == axis.depth and end < codes else axis.areas(level)
    return AreaRange(level, end, areas) if first else AreaRange(level, 0, end + 1)


def _end(axis: Axis, names: Names, code: str, asked: str, place: int) -> tuple[int, int]:
    """Return the level of the first end of a range, or of the last one, and the number of its area there.

    The ends of areas of made levels are codes too, for releases that go down to such a level. A name may stand for a code that is
    not found.
    """
    for level in reversed(range(1, axis.depth + 1)):
        own = axis.codes[level - 1]
        of_ends = own.str.split(RANGE).list.get(-place) if level == axis.depth else own
        numbers = np.flatnonzero((of_ends == code).to_numpy())
        if len(numbers):
            return level, int(numbers[0])
    paths = names.paths(axis.name, code)
    if len(paths) > 1:
        raise called_alike(axis.name, code, [path[-1] for path in paths])
    if paths:
        level = len(paths[0])
        return level, int(np.flatnonzero((axis.codes[level - 1] == paths[0][-1]).to_numpy())[0])
    levels = [
        f"{name} (such as {', '.join(codes.head(_SHOWN))})"
        for name, codes in zip(axis.level_names, axis.codes, strict=True)
        if not codes.str.contains(RANGE, literal=True).any()
    ]
    named = [names.name_of(axis.name, path) or path[-1] for path in names.like(axis.name, code)]
    meant = did_you_mean(code, [*named, *(one for codes in axis.codes for one in codes)])
    known = (
        f"Its codes are those of {'; '.join(levels)}."
        if levels
        else f"Its areas are {', '.join(axis.codes[-1].head(_SHOWN))}, …."
    )
    raise UsageError(
        f"{axis.name}: {code} in {asked} is no code{' and no name' if names.levels(axis.name) else ''} of {axis.name}.",
        field=axis.name,
        hint=f"{meant} {known}".lstrip(),
    )


def runs_of(folder: PublishedFolder, axis: str, asked: Area | AreaRange) -> list[Area | AreaRange]:
    """Return the two parts of a range that goes over the end of its axis; otherwise what was asked for."""
    if isinstance(asked, Area) or asked.first < asked.stop:
        return [asked]
    last = AreaRange(asked.level, asked.first, folder.ordered[axis].areas(asked.level))
    return [last, AreaRange(asked.level, 0, asked.stop)]


def areas_of(folder: PublishedFolder, axis: str, asked: Area | AreaRange) -> list[Area]:
    """Return the fewest areas of which a range is made, in their order; of an area, itself."""
    if isinstance(asked, Area):
        return [asked]
    of = folder.ordered[axis]
    return [
        area_of(of, level, number)
        for run in runs_of(folder, axis, asked)
        if isinstance(run, AreaRange)
        for level, number in fewest_areas(of, run.level, run.first, run.stop)
    ]


def codes_of(axis: Axis, asked: AreaRange) -> tuple[str, str]:
    """Return the codes of the ends of a range."""
    codes = axis.codes[asked.level - 1]
    return codes[asked.first], codes[asked.stop - 1]

"""Sets of areas that a question adds up: `A+B`, and ranges `FIRST..LAST`; and the fewest areas that they are made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import UsageError
from storage.tables import domains_of
from tasks.released.boxes import areas_at, fewest_areas
from tasks.released.query.areas import Area, area_of, areas_with, called_alike, find_area
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Axis, IntArray
from tasks.tree.ordered import RANGE, goes_round, has_other_code
from tasks.words.areas import Names
from tasks.words.spelling import did_you_mean

TOGETHER = "+"  # between areas that are added up

_SHOWN = 3  # codes of a level that a refusal shows
_MOST_TOGETHER = 4  # parts between the signs of a sum that may be one code or name, such as 65+

Numbered = tuple[int, IntArray]  # areas of an axis level, by their numbers


@dataclass(frozen=True, slots=True)
class AreaSet:
    """Areas of an axis that are added up.

    Attributes:
        level: the finest axis level of those that were named.
        pieces: the fewest areas that they are, in the order of the codebook.
        written: their codes as they are written in a question.
        name: of the group that they are; None where it has none.
    """

    level: int
    pieces: tuple[Area, ...]
    written: str
    name: str | None = None


def find_areas(folder: PublishedFolder, axis: str, asked: object) -> Area | AreaSet:
    """Return the area that a query names, as `find_area`, or the set of areas: several with a + between them, of which each may be a range.

    A range `FIRST..LAST` is of two codes of one level, in the order of the codebook; on an ordered axis one may be left out, and on one that goes
    round it may go over the end: 22..2 is 22, 23, 0, 1, 2. A name may stand for a code that is not found. A code or a name that has a + in it
    comes first.

    Raises:
        UsageError: there is no such area; an area is named twice; or the ends of a range are of different levels, or reversed.
    """
    if not isinstance(asked, str) or not (TOGETHER in asked or RANGE in asked) or _is_known(folder, axis, asked):
        return find_area(folder, axis, asked)
    texts = [*_summands(folder, axis, asked)]
    if len(texts) == 1 and (RANGE not in texts[0] or "=" in texts[0]):
        return find_area(folder, axis, texts[0])
    of = axis_of(folder, axis)
    if of is None:
        return _by_paths(folder, axis, texts)
    found, written = list[Numbered](), list[str]()
    for text in texts:
        if RANGE in text and "=" not in text and not _is_known(folder, axis, text):
            numbered, as_written = _range_in(folder, of, text)
        else:
            area = find_area(folder, axis, text)
            numbered, as_written = (area.level, np.array([area.number])), area.path[-1] if area.level else text
        found.append(numbered)
        written.append(as_written)
    return set_of(of, found, TOGETHER.join(written))


def set_of(axis: Axis, found: Sequence[Numbered], written: str, group: str = "") -> AreaSet:
    """Return a set of areas of any levels as the fewest areas.

    Args:
        group: what the set is called in a refusal, if not as it is written.
    Raises:
        UsageError: an area is in it twice.
    """
    level = max(own for own, _ in found)
    areas = np.concatenate([areas_at(axis, of, own, level) for own, of in found])
    distinct, times = np.unique(areas, return_counts=True)
    if len(distinct) < len(areas):
        raise _twice(
            axis.name, group or written, axis.codes[level - 1][int(distinct[times > 1][0])] if level else "everything"
        )
    fewest = [*fewest_areas(axis, level, distinct)] if axis.is_listed else found
    in_order = sorted(
        (int(axis.first_descendants(own, axis.depth)[number]), own, number)
        for own, of in fewest
        for number in of.tolist()
    )
    return AreaSet(level, tuple(area_of(axis, own, number) for _, own, number in in_order), written)


def _twice(axis: str, written: str, code: str) -> UsageError:
    return UsageError(
        f"{axis}: {code} is in {written} twice.", field=axis, hint="Name each area once, and none inside another."
    )


def _by_paths(folder: PublishedFolder, axis: str, texts: Sequence[str]) -> AreaSet:
    """Return a set of areas of which only their paths are known, since the folder has no codebook."""
    areas = [find_area(folder, axis, text) for text in texts if RANGE not in text or _is_known(folder, axis, text)]
    if len(areas) < len(texts):
        raise UsageError(
            f"{axis}: {TOGETHER.join(texts)} has a range, and the folder has no codebook that says which codes are between two.",
            field=axis,
            hint=f"Name the areas with a {TOGETHER} between them.",
        )
    return set_by_paths(axis, areas, TOGETHER.join(area.path[-1] if area.level else "all" for area in areas))


def set_by_paths(axis: str, areas: Sequence[Area], written: str, group: str = "") -> AreaSet:
    """Return a set of areas that are known by their paths alone; arguments and refusals as for `set_of`."""
    paths = {area.path for area in areas}
    for place, area in enumerate(areas):
        if area in areas[:place] or any(area.path[:level] in paths for level in range(area.level)):
            raise _twice(axis, group or written, area.path[-1] if area.level else "everything")
    return AreaSet(max(area.level for area in areas), tuple(areas), written)


def holds(folder: PublishedFolder, axis: str, whole: Area | AreaSet, part: Area | AreaSet) -> bool:
    """Return whether all areas of one set lie in another."""
    of = axis_of(folder, axis)
    inside, others = (area.pieces if isinstance(area, AreaSet) else (area,) for area in (part, whole))
    if of is None:
        paths = {area.path for area in others}
        return all(any(area.path[:level] in paths for level in range(area.level + 1)) for area in inside)
    leaves, finest = (
        np.concatenate([areas_at(of, np.array([area.number]), area.level, of.depth) for area in areas])
        for areas in (inside, others)
    )
    return bool(np.isin(leaves, finest).all())


def axis_of(folder: PublishedFolder, axis: str) -> Axis | None:
    """Return an axis with all of its areas; None where the folder does not know them."""
    if axis in folder.ordered:
        return folder.ordered[axis]
    return folder.tree.axes[list(folder.axes).index(axis)] if folder.has_tree else None


def _is_known(folder: PublishedFolder, axis: str, text: str) -> bool:
    """Return whether a text is a code or a name as it stands, though it may look like several.

    On an ordered axis, the code of a made level is a range.
    """
    if RANGE in text and TOGETHER not in text and axis in folder.ordered:
        return False
    levels = range(1, len(folder.axes[axis]) + 1)
    is_code = any(areas_with(folder, axis, level, {level: text}) for level in levels)
    return is_code or bool(folder.names.paths(axis, text))


def _summands(folder: PublishedFolder, axis: str, asked: str) -> Iterator[str]:
    """Yield the areas and ranges between the signs of a sum; a code or a name with such a sign in it is one."""
    parts, begin = asked.split(TOGETHER), 0
    while begin < len(parts):
        ends = range(min(begin + _MOST_TOGETHER, len(parts)), begin + 1, -1)
        texts = ((end, TOGETHER.join(parts[begin:end]).strip()) for end in ends)
        one = begin + 1, parts[begin].strip()
        begin, text = next((of for of in texts if _is_one(folder, axis, of[1])), one)
        if not text:
            raise UsageError(
                f"{axis}: {asked} must have an area on both sides of each {TOGETHER}.",
                field=axis,
                hint=f"For example A{TOGETHER}B.",
            )
        yield text


def _is_one(folder: PublishedFolder, axis: str, text: str) -> bool:
    """Return whether a text with a sign of a sum in it is a code, a name, or a range whose ends are."""
    first, is_range, last = text.partition(RANGE)
    ends = [end.strip() for end in (first, last) if end.strip()] if is_range else [text]
    return _is_known(folder, axis, text) or all(_is_known(folder, axis, end) for end in ends)


def _range_in(folder: PublishedFolder, axis: Axis, asked: str) -> tuple[Numbered, str]:
    """Return the areas of a range, and how it is written by its ends."""
    codes, domain = axis.areas(axis.depth), None
    if axis.name in folder.ordered:
        domain = domains_of(folder.manifest.spec)[axis.name]
        codes -= has_other_code(domain)
    level, first, stop = _range(axis, folder.names, asked, codes, domain)
    end, of_level = axis.areas(level), axis.codes[level - 1]
    over_the_end = np.append(np.arange(stop), np.arange(first, end))
    numbers = np.arange(first, stop) if first < stop else over_the_end
    return (level, numbers), f"{of_level[first]}{RANGE}{of_level[stop - 1]}"


def _range(axis: Axis, names: Names, asked: str, codes: int, domain: Mapping[str, Any] | None) -> tuple[int, int, int]:
    """Return the level of a range, its first area, and the first one after it that is outside: not above the first one where it goes over the end.

    The area of a made level that has this name is a range too.

    Args:
        codes: how many the order has.
        domain: of an ordered axis; None of others.
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
    if end < begin and domain is None:
        raise UsageError(
            f"{axis.name}: in {asked}, {last} comes before {first} in the order of the codebook.",
            field=axis.name,
            hint=f"A range has all codes from its first one to its last one. Others can be added up: {first}{TOGETHER}{last}.",
        )
    if end < begin and domain is not None and not goes_round(axis.name, domain):
        may_be_round = not (domain.get("unlisted") or domain.get("calendar"))
        said_by = " Where an axis goes round, as hours do, its spec says so by round: true beside ordered."
        raise UsageError(
            f"{axis.name}: in {asked}, {last} comes before {first} in the order of {axis.name}, "
            + ("and its spec does not say that the order goes round." if may_be_round else "which does not go round."),
            field=axis.name,
            hint=f"From {first} over the end to {last}, ask for {first}{RANGE}{TOGETHER}{RANGE}{last}."
            + (said_by if may_be_round else ""),
        )
    if end + 1 == begin:
        return level, 0, axis.areas(level)
    return level, begin, end + 1


def _open_range(axis: Axis, names: Names, first: str, last: str, asked: str, codes: int) -> tuple[int, int, int]:
    """Return the range from a code to the last one of its level, or to a code from the first one of its level."""
    if not (first or last):
        raise UsageError(f"{axis.name}: {asked} must name a first code, a last code, or both.", field=axis.name)
    level, end = _end(axis, names, first or last, asked, 0 if first else 1)
    areas = codes if level == axis.depth and end < codes else axis.areas(level)
    return (level, end, areas) if first else (level, 0, end + 1)


def _end(axis: Axis, names: Names, code: str, asked: str, place: int) -> tuple[int, int]:
    """Return the level of the first end of a range, or of the last one, and the number of its area there.

    The ends of areas of made levels are codes too, for releases that go down to such a level. A name may stand for a code that is
    not found.
    """
    for level in reversed(range(1, axis.depth + 1)):
        own = axis.codes[level - 1]
        numbers = np.flatnonzero((own == code).to_numpy())
        if level == axis.depth and not len(numbers):
            numbers = np.flatnonzero((own.str.split(RANGE).list.get(-place) == code).to_numpy())
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

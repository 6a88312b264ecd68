"""Sets of areas and of codes of derived columns that a question adds up: `A+B`, and ranges `FIRST..LAST`; and the fewest areas that they are made of."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.errors import UsageError
from storage.tables import domains_of
from tasks.released.boxes import areas_at, fewest_areas
from tasks.released.query.areas import EVERYTHING, Area, areas_with, called_alike, find_area
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Axis, IntArray, axis_from_codebook
from tasks.tree.ordered import RANGE, codes_apart, codes_beside, goes_round, with_unlisted
from tasks.words.areas import Names
from tasks.words.spelling import did_you_mean

TOGETHER = "+"  # between areas that are added up

_BIN = r"^(-?[\d.]+)(?:-(-?[\d.]+)|\+)$"

_SHOWN = 3  # codes of a level that a refusal shows
_MOST_CODES = 20  # of a derived column that a refusal shows
_MOST_TOGETHER = 4  # parts between the signs of a sum that may be one code or name, such as 65+


@dataclass(frozen=True, slots=True)
class AreaSet:
    """Areas of an axis that are added up; or codes of a derived column, which are areas of one level.

    Attributes:
        level: the finest axis level of those that were named.
        pieces: the fewest areas that they are, in the order of the codebook; those that were named, where no codebook tells.
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
    if isinstance(asked, AreaSet):
        return asked
    if not isinstance(asked, str) or not (TOGETHER in asked or RANGE in asked) or is_known(folder, axis, asked):
        return find_area(folder, axis, asked)
    areas, written, texts = list[Area](), list[str](), [*_summands(folder, axis, asked)]
    for text in texts:
        if RANGE in text and "=" not in text and not is_known(folder, axis, text):
            inside, as_written = _range_in(folder, axis, text)
        else:
            inside = [find_area(folder, axis, text)]
            as_written = inside[0].path[-1] if inside[0].level else text
        areas += inside
        written.append(as_written)
    return set_of(folder, axis, areas, TOGETHER.join(written)) if len(texts) > 1 or inside[1:] else inside[0]


def find_codes(folder: PublishedFolder, name: str, asked: object) -> Area | AreaSet:
    """Return the code of a derived column that a query names, or the set of codes: several with a + between them, or all of them.

    They have no order, and so no ranges. A code that has a + in it comes first.

    Raises:
        UsageError: there is no such code, or one is named twice.
    """
    if isinstance(asked, AreaSet):
        return asked
    known, text = folder.codes_of[name], str(asked)
    if asked is None or (text == EVERYTHING and EVERYTHING not in known):
        return Area(0, ())
    texts = [text] if text in known or TOGETHER not in text else [*_summands(folder, name, text)]
    areas = [find_code(folder, name, code) for code in texts]
    return set_of(folder, name, areas, TOGETHER.join(texts)) if areas[1:] else areas[0]


def find_code(folder: PublishedFolder, name: str, code: str) -> Area:
    """Return a code of a derived column.

    Raises:
        UsageError: there is none.
    """
    known = folder.codes_of[name]
    if code in known:
        return Area(1, (code,), known.index(code))
    is_range = RANGE in code and {end.strip() for end in code.split(RANGE)} <= {*known, ""}
    meant = f"{name} has no order, and so no ranges: name each code, with a {TOGETHER} between them."
    shown = ", ".join(known[:_MOST_CODES]) + (" and others" if known[_MOST_CODES:] else "")
    hint = f"{meant if is_range else did_you_mean(code, known)} Its codes are {shown}.".lstrip()
    raise UsageError(f"{name} has no code {code}.", field=name, hint=hint)


def set_of(folder: PublishedFolder, axis: str, areas: Sequence[Area], written: str, name: str | None = None) -> AreaSet:
    """Return a set of areas of any levels as the fewest areas.

    Raises:
        UsageError: an area is in it twice.
    """
    paths, level = Counter(area.path for area in areas), max(area.level for area in areas)
    for area in areas:
        if paths[area.path] > 1 or any(area.path[:own] in paths for own in range(area.level)):
            code, hint = area.path[-1] if area.level else "everything", "Name each area once, and none inside another."
            raise UsageError(f"{axis}: {code} is in {name or written} twice.", field=axis, hint=hint)
    of = axis_of(folder, axis)
    if of is None or not of.is_listed:
        return AreaSet(level, tuple(areas), written, name)
    numbers = [areas_at(of, _numbers(folder, of, own, areas), own, level) for own in {area.level for area in areas}]
    fewest = [*fewest_areas(of, level, np.sort(np.concatenate(numbers)))]
    if len(fewest) > 1 and not folder.has_tree:  # of rows alone, those of one level say more than those of several
        fewest = [(level, np.sort(np.concatenate(numbers)))]
    begins = {own: of.first_descendants(own, of.depth) for own, _ in fewest}
    pieces = [area for own, inside in fewest for area in areas_in(of, own, inside)]
    return AreaSet(level, tuple(sorted(pieces, key=lambda area: begins[area.level][area.number])), written, name)


def _numbers(folder: PublishedFolder, axis: Axis, level: int, areas: Sequence[Area]) -> IntArray:
    """Return the numbers of those areas that are of a level, ascending."""
    if folder.has_tree:
        return np.sort([area.number for area in areas if area.level == level])
    if not level:
        return np.zeros(1, dtype=np.int64)
    codes = [area.path[-1] for area in areas if area.level == level]  # an ordered axis has each code once
    return np.flatnonzero(axis.codes[level - 1].is_in(codes).to_numpy())


def areas_in(axis: Axis, level: int, numbers: IntArray) -> list[Area]:
    """Return the areas of a level that have some numbers."""
    paths = axis.paths(level, numbers).rows() if level else [()]
    return [Area(level, path, number) for path, number in zip(paths, numbers.tolist(), strict=True)]


def holds(whole: Area | AreaSet, part: Area | AreaSet) -> bool:
    """Return whether all areas of one set lie in another."""
    inside, others = (area.pieces if isinstance(area, AreaSet) else (area,) for area in (part, whole))
    paths = {area.path for area in others}
    return all(any(area.path[:level] in paths for level in range(area.level + 1)) for area in inside)


def is_all_of(folder: PublishedFolder, axis: str, part: Area | AreaSet, whole: Area | AreaSet) -> bool:
    """Return whether a set of areas that lies in another one is all of it, by the codebook."""
    both, of = [area.pieces if isinstance(area, AreaSet) else (area,) for area in (part, whole)], axis_of(folder, axis)
    if of is None or not of.is_listed:
        return {area.path for area in both[0]} == {area.path for area in both[1]}
    one, other = (
        sum(
            len(areas_at(of, _numbers(folder, of, own, areas), own, of.depth)) for own in {area.level for area in areas}
        )
        for areas in both
    )
    return one == other


def have_same_codes(one: PublishedFolder, other: PublishedFolder, axis: str) -> bool:
    """Return whether an axis, or a derived column, has the same codes in two releases, down to the finest level of both.

    Codes that are known from released counts alone are no codebook that could differ.
    """
    manifests, books = (one.manifest, other.manifest), [axis_of(folder, axis) for folder in (one, other)]
    same_file = len({manifest.codebooks.get(axis, manifest.id) for manifest in manifests}) == 1
    if same_file or any(axis in manifest.unlisted for manifest in manifests):
        return True
    if books[0] is None or books[1] is None:
        return False
    depth = min(of.depth for of in books if of)
    one_level, other_level = ((of.level_names[:depth], {*of.paths(depth).rows()}) for of in books if of)
    return one_level == other_level


def axis_of(folder: PublishedFolder, axis: str) -> Axis | None:
    """Return an axis, or the codes of a derived column as one, with all of its areas; None where the folder does not know them."""
    if axis in folder.manifest.derived:
        return axis_from_codebook(axis, pl.DataFrame({axis: folder.codes_of[axis]}))
    if folder.has_tree:
        return folder.tree.axes[list(folder.axes).index(axis)]
    return folder.ordered.get(axis)


def is_known(folder: PublishedFolder, axis: str, text: str) -> bool:
    """Return whether a text is a code or a name as it stands, though it may look like several.

    On an ordered axis, the code of a made level is a range.
    """
    if axis in folder.manifest.derived:
        return text in folder.codes_of[axis]
    if RANGE in text and TOGETHER not in text and axis in folder.ordered:
        return False
    levels = range(1, len(folder.axes[axis]) + 1)
    return bool(folder.names.paths(axis, text)) or any(areas_with(folder, axis, own, {own: text}) for own in levels)


def _summands(folder: PublishedFolder, axis: str, asked: str) -> Iterator[str]:
    """Yield the areas and ranges between the signs of a sum; a code, a name or an end of a range with such a sign in it is one."""
    parts, begin = asked.split(TOGETHER), 0
    while begin < len(parts):
        ends = range(min(begin + _MOST_TOGETHER, len(parts)), begin, -1)
        texts = [(end, TOGETHER.join(parts[begin:end]).strip()) for end in ends]
        begin, text = next(of for of in texts if of[0] == begin + 1 or _is_one(folder, axis, of[1]))
        if not text:
            message = f"{axis}: {asked} must have an area on both sides of each {TOGETHER}."
            raise UsageError(message, field=axis, hint=f"For example A{TOGETHER}B.")
        yield text


def _is_one(folder: PublishedFolder, axis: str, text: str) -> bool:
    first, _, last = text.partition(RANGE)
    return is_known(folder, axis, text) or all(is_known(folder, axis, end.strip()) for end in (first, last) if end)


def _range_in(folder: PublishedFolder, name: str, asked: str) -> tuple[list[Area], str]:
    """Return the areas of a range, and how it is written by its ends. The area of a made level that has this name is a range too."""
    axis, (first, _, last) = axis_of(folder, name), asked.partition(RANGE)
    first, last = first.strip(), last.strip()
    if not (first or last):
        raise UsageError(f"{name}: {asked} must name a first code, a last code, or both.", field=name)
    if axis is None:
        message = f"{name}: {asked} is a range, and the folder has no codebook that says which codes are between two."
        raise UsageError(message, field=name, hint=f"Name the areas with a {TOGETHER} between them.")
    keys = domains_of(folder.manifest.spec).get(name)
    values = keys.get("values") if isinstance(keys, dict) else keys
    listed = with_unlisted(values, None) if isinstance(values, list | int) else ()
    if [*listed] != sorted(listed):  # the tables have them sorted, and the spec in another order
        hint = f"Name each code, with a {TOGETHER} between them. An axis has an order if its spec lists its codes under ordered."
        raise UsageError(f"{name}: {asked} is a range, and the codes of {name} have no order.", field=name, hint=hint)
    domain = keys if name in folder.ordered else None
    has_bins = domain is not None and "bins" in (domain.get("from") or {})
    found = [
        _end(axis, folder.names, code, asked, place, has_bins=has_bins)
        for place, code in enumerate((first, last))
        if code
    ]
    (level, begin), (other, end) = found[0], found[-1]
    if level != other:
        one, two = (axis.level_names[own - 1] for own in (level, other))
        raise UsageError(
            f"{name}: the ends of {asked} must be of one level, got {first} of level {one} and {last} of level {two}.",
            field=name,
            hint=f"For example {axis.codes[level - 1][begin]}{RANGE}{axis.codes[level - 1][axis.areas(level) - 1]}.",
        )
    areas, beside = axis.areas(level), () if domain is None else codes_beside(domain["ordered"])
    if domain is not None and (beside or level == axis.depth):
        areas -= codes_apart(domain)
    if beside and max(begin, end) >= areas:
        code, of_order = (axis.codes[level - 1][place] for place in (max(begin, end), 0))
        hint = f"Ask for {code} alone, or add it to a range: {of_order}{RANGE}{TOGETHER}{code}."
        raise UsageError(f"{name}: {code} stands beside the order, and is in no range.", field=name, hint=hint)
    if not last:
        end = max(begin, areas - 1)
    elif not first:
        begin = 0
    if end < begin and not (domain is not None and goes_round(name, domain)):
        may_be_round = domain is not None and not (domain.get("unlisted") or domain.get("calendar"))
        rule = "and its spec does not say that the order goes round" if may_be_round else "which does not go round"
        said_by = " Where an axis goes round, as hours do, its spec says so by round: true beside ordered."
        raise UsageError(
            f"{name}: in {asked}, {last} comes before {first} in the order of {'the codebook' if domain is None else name}, {rule}.",
            field=name,
            hint=f"From {first} over the end to {last}, ask for {first}{RANGE}{TOGETHER}{RANGE}{last}."
            + (said_by if may_be_round else ""),
        )
    if end + 1 == begin:
        begin, end = 0, areas - 1
    numbers = np.arange(begin, end + 1) if begin <= end else np.append(np.arange(end + 1), np.arange(begin, areas))
    of_level = axis.codes[level - 1]
    return areas_in(axis, level, numbers), f"{of_level[begin]}{RANGE}{of_level[end]}"


def _end(axis: Axis, names: Names, code: str, asked: str, place: int, *, has_bins: bool) -> tuple[int, int]:
    """Return the level of the first end of a range, or of the last one, and the number of its area there.

    The ends of areas of made levels are codes too, for releases that go down to such a level; so are those of bins: 18 and 64 of 18-64. A
    name may stand for a code that is not found.
    """
    for level in reversed(range(1, axis.depth + 1)):
        own = axis.codes[level - 1]
        numbers = np.flatnonzero((own == code).to_numpy())
        if level == axis.depth and not len(numbers):
            ends = own.str.extract(_BIN, place + 1) if has_bins else own.str.split(RANGE).list.get(-place)
            numbers = np.flatnonzero((ends == code).fill_null(value=False).to_numpy())
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

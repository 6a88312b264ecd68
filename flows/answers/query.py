"""Questions about areas, answered from a published folder alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

from storage.errors import UsageError
from tasks.format.published_tree import derived_places
from tasks.released.query.answers import Answer, answer
from tasks.released.query.areas import Area, coarsest
from tasks.released.query.sets import AreaSet, find_areas
from tasks.released.sources.folder import PublishedFolder, open_folder
from tasks.words.levels import place
from tasks.words.spelling import did_you_mean

_SHOWN = 20  # codes that a refusal lists


@dataclass(frozen=True, slots=True)
class Question:
    """An area or a set of areas of each axis, in their order, and a code of each derived column that is named.

    Attributes:
        asked: how they were asked for, by axis and derived column.
    """

    asked: Mapping[str, Any]
    areas: Sequence[Area | AreaSet]
    codes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AreaCounted:
    """An area that a question is about.

    Attributes:
        level: the name of its level.
        path: its code, behind the codes of the areas that it lies in; of several areas how they are written, such as 001+010..019.
        name: what it is called; None where the release has no name for it.
    """

    level: str
    path: Sequence[str]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to a question about areas.

    Attributes:
        where: per axis the area that was counted; None for everything.
        low: the lower end of the count's interval; None, like `high`, where no interval can be stated.
        exact: whether the count is published exactly.
        confidence: with at least this probability, over all noise, the interval holds the true count.
        simultaneous: whether it does so together with those of all other questions.
        promise: `question`: it does so for a question that was fixed before the counts were seen. `simultaneous`: for all questions
            at once.
        level: the tree level whose cells were added up; `axes` is its reach.
        cells: how many were added up, by how they came about.
        how: the count and the interval were put together, in words.
        sd: the standard deviation of the count, records; None where it is no unbiased estimate.
    """

    id: str
    where: Mapping[str, AreaCounted | None]
    count: int
    low: int | None
    high: int | None
    exact: bool
    confidence: float | None
    simultaneous: bool
    promise: Literal["question", "simultaneous"]
    level: int
    axes: Mapping[str, str | None]
    cells: Mapping[str, int]
    how: str
    sd: float | None = None


@dataclass(frozen=True, slots=True)
class QueryAnswers:
    """The answers to one question for several areas: one for every combination."""

    id: str
    answers: Sequence[QueryAnswer]


def query_answer(
    folder: Path,
    origin: str | Sequence[str] | None,
    destination: str | Sequence[str] | None,
    where: Sequence[str],
    *,
    simultaneous: bool,
) -> QueryAnswer | QueryAnswers:
    """Return the count of a question, its interval, and how both were put together; several where an axis has several areas.

    Args:
        folder: published.
        origin: an area as in `--where origin=…`, or several; likewise `destination`.
        where: `NAME=AREA` each; everything of an axis that is not named. An axis may be named several times.
        simultaneous: whether the interval is to hold together with those of all other questions.
    Raises:
        TrellisError: the folder cannot be read, or has no such area.
    """
    published = open_folder(folder)
    both = {"origin": origin, "destination": destination}
    ends = [
        f"{end}={area}" for end, asked in both.items() for area in ([asked] if isinstance(asked, str) else asked or ())
    ]
    answers = [
        _answer_about(published, question, simultaneous=simultaneous)
        for question in questions(published, _by_axis([*ends, *where]))
    ]
    return answers[0] if len(answers) == 1 else QueryAnswers(published.manifest.id, answers)


def questions(published: PublishedFolder, asked_for: Mapping[str, Sequence[Any]]) -> Iterator[Question]:
    """Yield a question for every combination of what is asked for.

    Args:
        published: the folder.
        asked_for: by axis, its areas, as `find_areas` takes them; everything of an axis that is not named. By derived column, its codes.
    Raises:
        UsageError: there is no such axis, area or code, or there are several such areas.
    """
    known = [*published.axes, *published.manifest.derived]
    for axis in asked_for:
        if axis not in known:
            hint = f"{did_you_mean(axis, known)} Its axes are {', '.join(known)}.".lstrip()
            raise UsageError(f"The release has no axis {axis}.", field=axis, hint=hint)
    axes = list(published.axes)
    asked_for = {
        axis: [normalize("NFC", one) if isinstance(one, str) else one for one in asked]
        for axis, asked in asked_for.items()
    }
    choices: dict[str, list[tuple[Any, Any]]] = {
        axis: [(asked, find_areas(published, axis, asked)) for asked in asked_for.get(axis, [None])] for axis in axes
    }
    for name in published.manifest.derived:
        if name in asked_for:
            choices[name] = [(asked, _code(published, name, str(asked))) for asked in asked_for[name]]
    for combination in product(*choices.values()):
        asked, chosen = (dict(zip(choices, of, strict=True)) for of in zip(*combination, strict=True))
        areas = [chosen.pop(axis) for axis in axes]
        yield Question(asked, areas, chosen)


def answered(
    published: PublishedFolder, question: Question, *, simultaneous: bool
) -> tuple[Answer, Sequence[Area | AreaSet]]:
    """Return the answer to a question, and the areas that it is about: an only child is the same as its parent, and is answered as that.

    Where no interval of the parent is stated, the child has its own.
    """
    areas, notes = list(question.areas), list[str]()
    for number, ((axis, names), own) in enumerate(zip(published.axes.items(), question.areas, strict=True)):
        if isinstance(own, Area) and (same := coarsest(published, axis, own)) != own:
            parent = f"of {names[same.level - 1]} {same.path[-1]}" if same.level else "there is"
            areas[number] = same
            notes.append(
                f"{axis} {own.path[-1]} is the only {names[own.level - 1]} {parent}, so it has the same count and interval"
            )
    counted = answer(published, areas, question.codes, simultaneous=simultaneous)
    if notes and counted.low is None:
        return answer(published, question.areas, question.codes, simultaneous=simultaneous), question.areas
    return replace(counted, how="; ".join([counted.how, *notes])), areas


def _answer_about(published: PublishedFolder, question: Question, *, simultaneous: bool) -> QueryAnswer:
    codes, manifest = question.codes, published.manifest
    counted, areas = answered(published, question, simultaneous=simultaneous)
    return QueryAnswer(
        id=manifest.id,
        where={
            axis: _counted(published, axis, area, names)
            for (axis, names), area in zip(published.axes.items(), question.areas, strict=True)
        }
        | {name: AreaCounted(name, [code]) for name, code in codes.items()},
        count=counted.count,
        low=counted.low,
        high=counted.high,
        exact=counted.low == counted.high
        and published.is_exact([area.level for area in areas])
        and not (codes or counted.deviation),
        confidence=manifest.intervals.confidence if counted.low is not None else None,
        simultaneous=simultaneous,
        sd=counted.deviation,
        promise="simultaneous" if simultaneous else "question",
        level=counted.level,
        axes=dict(manifest.levels[counted.level].axes),
        cells=counted.cells,
        how=counted.how,
    )


def _counted(published: PublishedFolder, axis: str, area: Area | AreaSet, names: Sequence[str]) -> AreaCounted | None:
    if isinstance(area, AreaSet):
        return AreaCounted(names[area.level - 1], [area.written])
    if not area.level:
        return None
    return AreaCounted(names[area.level - 1], list(area.path), published.names.name_of(axis, area.path))


def _code(published: PublishedFolder, name: str, code: str) -> str:
    """Return a code of a derived column; refuse one that the column does not have, or a column that no count tells apart."""
    if not published.manifest.has_sources:
        raise _not_apart(published, name)
    known = published.codes_of(name)
    if code not in known:
        shown = ", ".join(known[:_SHOWN]) + (" and others" if known[_SHOWN:] else "")
        hint = f"{did_you_mean(code, known)} Its codes are {shown}.".lstrip()
        raise UsageError(f"{name} has no code {code}.", field=name, hint=hint)
    return code


def _not_apart(published: PublishedFolder, name: str) -> UsageError:
    """Return the refusal of a derived column where levels and views were not settled together, so that no sum of leaves has an interval."""
    manifest = published.manifest
    axes = list(published.axes.items())
    of = place({axes[axis][0]: axes[axis][1][level - 1] for axis, level in derived_places(manifest)[name]})
    views = [f"{view.name} ({place(view.axes)})" for view in manifest.views]
    return UsageError(
        f"The release tells no codes of {name} apart: none of its views has them, and its leaves are not settled together with views.",
        field=name,
        hint=f"{name} depends on {of}: name these instead." + (f" Its views are {'; '.join(views)}." if views else ""),
    )


def _by_axis(where: Sequence[str]) -> dict[str, list[str]]:
    asked_for: dict[str, list[str]] = {}
    for condition in where:
        axis, equals, area = condition.partition("=")
        if not equals or not axis.strip():
            hint = "For example --where origin=44007, --where sex=1 or --where destination=cty=44007."
            raise UsageError(f"--where must have the form NAME=AREA, got {condition}.", field="--where", hint=hint)
        areas = asked_for.setdefault(axis.strip(), [])
        if area in areas:
            raise UsageError(f"{axis.strip()}={area} is named twice.", field="--where")
        areas.append(area)
    return asked_for

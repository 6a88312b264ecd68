"""Questions about areas, answered from a published folder alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from operator import index
from pathlib import Path
from typing import Any, Literal, SupportsIndex
from unicodedata import normalize

from storage.errors import UsageError
from storage.releases.terms import VIEWS
from storage.tables import SIZE
from tasks.format.published_tree import derived_places
from tasks.released.query.answers import Answer, answer, codes_in
from tasks.released.query.areas import EVERYTHING, Area
from tasks.released.query.comparisons import Asked, Compared, compared, of_itself
from tasks.released.query.sets import AreaSet, find_areas, find_codes, have_same_codes, holds, is_all_of
from tasks.released.sources.folder import PublishedFolder, open_folder
from tasks.words.areas import size_called
from tasks.words.levels import place
from tasks.words.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class Question:
    """An area or a set of areas of each axis, in their order, and a code or a set of codes of each derived column that is named.

    Attributes:
        asked: how they were asked for, by axis and derived column.
    """

    asked: Mapping[str, Any]
    areas: Sequence[Area | AreaSet]
    codes: Mapping[str, Area | AreaSet]


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
        difference: to another release, if it was asked for.
        share: of a whole, if it was asked for.
        period: which days are added up, in words, if the folder has the cumulative counts of a series.
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
    difference: Compared | None = None
    share: Compared | None = None
    period: str | None = None


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
    areas: Sequence[str] = (),
    minus: Path | None = None,
    share_of: str | None = None,
) -> QueryAnswer | QueryAnswers:
    """Return the count of a question, its interval, and how both were put together; several where an axis has several areas.

    Args:
        origin: an area as in `--where origin=…`, or several; likewise `destination`.
        where: `NAME=AREA` each; everything of an axis that is not named. An axis may be named several times.
        simultaneous: whether the interval is to hold together with those of all other questions.
        areas: public tables of groups of areas, `FILE` or `NAME=FILE` each: one count for each group.
        minus: another published folder, whose answers are taken off.
        share_of: `NAME=AREA`: the whole, which holds what is asked for.
    Raises:
        TrellisError: the folder cannot be read, or has no such area.
    """
    published = open_folder(folder)
    both = {"origin": origin, "destination": destination}
    ends = [
        f"{end}={area}" for end, asked in both.items() for area in ([asked] if isinstance(asked, str) else asked or ())
    ]
    named = [(text.partition("="), text) for text in areas]
    known = {*published.axes, *published.manifest.derived}
    tables = [(axis, place) if axis in known else (None, text) for (axis, _, place), text in named]
    whole = share_of and next((axis, of) for axis, [of] in _by_axis([share_of], "--share-of").items())
    told = answers_to(
        published,
        _by_axis([*ends, *where]),
        tables,
        minus=None if minus is None else open_folder(minus),
        share_of=whole or None,
        simultaneous=simultaneous,
    )
    answers = [_answer_about(published, of, simultaneous=simultaneous) for of in told]
    return answers[0] if len(answers) == 1 else QueryAnswers(published.manifest.id, answers)


# a question, the answer to it, how it differs from another release, and which share of a whole it is
Told = tuple[Question, Answer, Compared | None, Compared | None]


def answers_to(
    published: PublishedFolder,
    asked_for: Mapping[str, Sequence[Any]],
    tables: Sequence[tuple[str | None, Any]] = (),
    *,
    minus: PublishedFolder | None = None,
    share_of: tuple[str, Any] | None = None,
    simultaneous: bool = False,
) -> Iterator[Told]:
    """Yield the answer to every combination of what is asked for.

    Args:
        asked_for: as for `questions`.
        tables: of groups of areas, each with its axis, where it is named: paths, or data frames.
        minus: another release, whose answers are taken off.
        share_of: the whole of each count: an axis and an area of it, or a derived column and a code of it.
    Raises:
        UsageError: as `questions`; or what is compared cannot be.
    """
    if simultaneous and (minus or share_of):
        raise UsageError("Differences and shares have no intervals that hold all at once.", field="--simultaneous")
    confidence, others = published.manifest.intervals.confidence, list[Question]()
    if minus is not None:
        if minus.manifest.seals == published.manifest.seals:  # ids of two stores may be the same
            raise UsageError("--minus must name another release.", field="--minus")
        try:
            others = [*questions(minus, _with_groups(minus, asked_for, tables))]
        except UsageError as fault:
            raise UsageError(f"{minus.manifest.id}: {fault}", field="--minus", hint=fault.hint) from None
    same = cache(partial(have_same_codes, published, minus or published))
    for number, question in enumerate(questions(published, _with_groups(published, asked_for, tables))):
        asked, less, share = Asked.of(published, question.areas, question.codes), None, None
        if minus is not None:
            other = Asked.of(minus, others[number].areas, others[number].codes)
            less = compared(asked, other, minus.manifest.id, confidence, is_share=False)
            of_areas = dict(zip(published.axes, question.areas, strict=True)) | {**question.codes}
            if named := [name for name, of in of_areas.items() if of.level and not same(name)]:
                less = replace(less, how=f"{less.how}; the codebooks of both releases differ on {' and '.join(named)}")
        if share_of is not None:
            (whole, is_all), name = _whole_of(published, question, share_of), "=".join(map(str, share_of))
            share = (
                of_itself(whole, name, confidence)
                if is_all
                else compared(asked, whole, name, confidence, is_share=True)
            )
        yield question, answered(published, question, simultaneous=simultaneous), less, share


def _with_groups(
    published: PublishedFolder, asked_for: Mapping[str, Sequence[Any]], tables: Sequence[tuple[str | None, Any]]
) -> dict[str, Sequence[Any]]:
    """Return what is asked for by axis, with the groups of tables."""
    if not tables:
        return dict(asked_for)
    from flows.answers.groups import groups_of  # which reads tables, as nothing else of a query does

    asked = dict(asked_for)
    for axis, sets in (item for named, table in tables for item in groups_of(published, table, named).items()):
        if axis in asked:
            raise UsageError(f"--areas: {axis} is asked for twice.", field="--areas")
        asked[axis] = sets
    return asked


def _whole_of(published: PublishedFolder, question: Question, share_of: tuple[str, Any]) -> tuple[Asked, bool]:
    """Return the same question with another area of one axis or code of a derived column, and whether the part is all of that."""
    name, of = share_of
    [wider] = questions(published, {name: [of]})
    part, whole = (dict(zip(published.axes, of.areas, strict=True)) | {**of.codes} for of in (question, wider))
    if not holds(whole[name], part.get(name, Area(0, ()))):
        message = f"--share-of: {name}={of} does not hold all that is asked for."
        hint = f"A share is of a whole, for example --share-of {name}={EVERYTHING}."
        raise UsageError(message, field="--share-of", hint=hint)
    is_all = is_all_of(published, name, part.get(name, Area(0, ())), whole[name])
    whole = part | {name: whole[name]}
    areas = [whole.pop(axis) for axis in published.axes]
    return Asked.of(published, areas, whole), is_all


def questions(published: PublishedFolder, asked_for: Mapping[str, Sequence[Any]]) -> Iterator[Question]:
    """Yield a question for every combination of what is asked for.

    Args:
        asked_for: by axis, its areas, as `find_areas` takes them; everything of an axis that is not named. By derived column, its codes, as `find_codes`.
    Raises:
        UsageError: there is no such axis, area or code, or there are several such areas.
    """
    known = [*published.axes, *published.manifest.derived]
    for axis in asked_for:
        if axis not in known:
            of = [name for name, levels in published.axes.items() if axis in levels]
            meant = f"It is a level of {' and '.join(of)}." if of else did_you_mean(axis, known)
            hint = f"{meant} Its axes are {', '.join(known)}.".lstrip()
            raise UsageError(f"The release has no axis {axis}.", field=axis, hint=hint)
    axes = list(published.axes)
    asked_for = {axis: [*map(_as_text, asked)] for axis, asked in asked_for.items()}
    choices: dict[str, list[tuple[Any, Any]]] = {
        axis: [(asked, find_areas(published, axis, asked)) for asked in asked_for.get(axis, [None])] for axis in axes
    }
    for name in published.manifest.derived:
        if name in asked_for:
            _check_apart(published, name)
            choices[name] = [(asked, find_codes(published, name, asked)) for asked in asked_for[name]]
    for combination in product(*choices.values()):
        asked, chosen = (dict(zip(choices, of, strict=True)) for of in zip(*combination, strict=True))
        areas = [chosen.pop(axis) for axis in axes]
        yield Question(asked, areas, chosen)


def answered(published: PublishedFolder, question: Question, *, simultaneous: bool) -> Answer:
    """Return the answer to a question, which says of an only child that it is the same as its parent, and is answered as that."""
    counted, notes = answer(published, question.areas, question.codes, simultaneous=simultaneous), list[str]()
    for (axis, names), own, same in zip(published.axes.items(), question.areas, counted.areas, strict=True):
        if isinstance(own, Area) and isinstance(same, Area) and same != own:
            parent = f"of {names[same.level - 1]} {same.path[-1]}" if same.level else "there is"
            notes.append(
                f"{axis} {own.path[-1]} is the only {names[own.level - 1]} {parent}, so it has the same count and interval"
            )
    return replace(counted, how="; ".join([counted.how, *notes]))


def _as_text(asked: Any) -> Any:
    """Return a code as text in NFC, where it is a text or a whole number; likewise the codes of a mapping of levels."""
    if isinstance(asked, Mapping):
        return {level: _as_text(code) for level, code in asked.items()}
    if isinstance(asked, SupportsIndex) and not isinstance(asked, bool):
        return str(index(asked))
    return normalize("NFC", asked) if isinstance(asked, str) else asked


def _answer_about(published: PublishedFolder, told: Told, *, simultaneous: bool) -> QueryAnswer:
    (question, counted, difference, share), manifest = told, published.manifest
    return QueryAnswer(
        id=manifest.id,
        where={
            axis: _counted(published, axis, area, names)
            for (axis, names), area in zip(published.axes.items(), question.areas, strict=True)
        }
        | {name: _counted(published, name, of, [name]) for name, of in question.codes.items()},
        count=counted.count,
        low=counted.low,
        high=counted.high,
        exact=counted.low == counted.high
        and published.is_exact([area.level for area in counted.areas])
        and not (codes_in(question.codes) or counted.deviation),
        confidence=manifest.intervals.confidence if counted.low is not None else None,
        simultaneous=simultaneous,
        sd=counted.deviation,
        promise="simultaneous" if simultaneous else "question",
        level=counted.level,
        axes=dict(manifest.levels[counted.level].axes),
        cells=counted.cells,
        how=counted.how,
        difference=difference,
        share=share,
        period=manifest.days.period(manifest.id) if manifest.cumulative and manifest.days else None,
    )


def _counted(published: PublishedFolder, axis: str, area: Area | AreaSet, names: Sequence[str]) -> AreaCounted | None:
    if isinstance(area, AreaSet):
        return AreaCounted(names[area.level - 1], [area.written], area.name)
    if not area.level:
        return None
    name = published.names.name_of(axis, area.path)
    if axis == SIZE and published.manifest.counts_groups and published.has_tree:
        name = size_called(area.path[-1], published.tree.axes[-1].codes[-1][-1])
    return AreaCounted(names[area.level - 1], list(area.path), None if name == area.path[-1] else name)


def _check_apart(published: PublishedFolder, name: str) -> None:
    """Refuse a derived column where no views settle the leaves, so that no sum of leaves has an interval."""
    manifest = published.manifest
    if manifest.has_sources or manifest.counts_groups or manifest.covariance == VIEWS:
        return
    axes = list(published.axes.items())
    of = place({axes[axis][0]: axes[axis][1][level - 1] for axis, level in derived_places(manifest)[name]})
    views = [f"{view.name} ({place(view.axes)})" for view in manifest.views]
    raise UsageError(
        f"The release tells no codes of {name} apart: none of its views has them, and its leaves are not settled together with views.",
        field=name,
        hint=f"{name} depends on {of}: name these instead." + (f" Its views are {'; '.join(views)}." if views else ""),
    )


def _by_axis(where: Sequence[str], option: str = "--where") -> dict[str, list[str]]:
    asked_for: dict[str, list[str]] = {}
    for condition in where:
        axis, equals, area = condition.partition("=")
        if not equals or not axis.strip():
            hint = f"For example {option} origin=44007, {option} sex=1 or {option} destination=cty=44007."
            raise UsageError(f"{option} must have the form NAME=AREA, got {condition}.", field=option, hint=hint)
        areas = asked_for.setdefault(axis.strip(), [])
        if area in areas:
            raise UsageError(f"{axis.strip()}={area} is named twice.", field="--where")
        areas.append(area)
    return asked_for

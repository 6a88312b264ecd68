"""Answers to queries: a box's released count, its interval and an explanation, from a published folder alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product

import numpy as np
import polars as pl

from tasks.format.published_tree import axes_by_path
from tasks.released.boxes import Boxes
from tasks.released.families import estimate_of
from tasks.released.query.areas import Area, coarsest
from tasks.released.query.sets import AreaSet
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.tree.axis import IntArray

_BETWEEN = "\0"  # no code has it


@dataclass(frozen=True, slots=True)
class Answer:
    """What a folder says about a box.

    Attributes:
        count: the released count, records.
        level: the coarsest tree level whose whole cells make up the box.
        cells: numbers of cells of that level in the box, where known, as in `tasks.released.estimate.Answers`; of sets, of how many `areas`
            they are made.
        how: an explanation of the count and the interval.
        low: the lower end of the interval, records; None where no interval can be stated.
        high: the upper end, records; None where no interval can be stated.
        deviation: the standard deviation of the count, records; None where it is no unbiased estimate.
        areas: per axis, what it is about: of an only child, the coarsest area that is the same.
    """

    count: int
    level: int
    cells: dict[str, int] = field(default_factory=dict)
    how: str = ""
    low: int | None = None
    high: int | None = None
    deviation: float | None = None
    areas: tuple[Area | AreaSet, ...] = ()


def answer(
    folder: PublishedFolder,
    asked: Sequence[Area | AreaSet],
    codes: Mapping[str, Area | AreaSet] | None = None,
    *,
    simultaneous: bool = False,
) -> Answer:
    """Return what a folder says about a box, as `Estimate.answers` says it about many.

    Args:
        folder: the published folder.
        asked: one area per axis, or a set of them.
        codes: a code of each derived column that is asked for, or a set of them; none if left out.
        simultaneous: whether the interval must hold together with those of all other boxes.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    estimate = estimate_of(FolderSource(folder))

    def about(areas: Sequence[Area | AreaSet]) -> Answer:
        parts = parts_of(folder, areas, codes or {})
        found, source = estimate.sum_of(parts, simultaneous=simultaneous), estimate.folder
        pieces = math.prod(len(of.pieces) for of in areas if isinstance(of, AreaSet))
        level = source.levels[-1].level if parts[0].codes else max(map(source.level_of, parts))
        cells = {"areas": pieces} if any(isinstance(of, AreaSet) for of in areas) else {}
        cells |= {name: int(of[0]) for name, of in found.cells.items() if name != "added" or of[0]}
        low, high = (int(end[0]) if found.stated[0] else None for end in (found.low, found.high))
        deviation = None if found.deviation is None else float(found.deviation[0])
        return Answer(int(found.count[0]), level, cells, found.how(0), low, high, deviation, tuple(areas))

    is_cell = not simultaneous and all(isinstance(of, Area) for of in asked)
    [box, *_] = parts_of(folder, asked, codes or {})
    is_row = is_cell and (estimate.has_rows_of(box) or estimate.has_view_of(box))
    alike = [*asked] if is_row else coarsest_of(folder, asked)
    found = about(alike)
    return about(asked) if found.low is None and alike != [*asked] else found


def coarsest_of(folder: PublishedFolder, asked: Sequence[Area | AreaSet]) -> list[Area | AreaSet]:
    """Return areas, with the coarsest area that is the same in place of an only child."""
    return [
        coarsest(folder, axis, of) if isinstance(of, Area) else of for axis, of in zip(folder.axes, asked, strict=True)
    ]


def codes_in(asked: Mapping[str, Area | AreaSet]) -> dict[str, list[str]]:
    """Return the codes of each derived column, without columns of which all are asked for."""
    pieces = {name: of.pieces if isinstance(of, AreaSet) else (of,) for name, of in asked.items()}
    return {name: [area.path[-1] for area in of] for name, of in pieces.items() if of[0].level}


def parts_of(
    folder: PublishedFolder, asked: Sequence[Area | AreaSet], codes: Mapping[str, Area | AreaSet]
) -> list[Boxes]:
    """Return the single boxes that make up a question, one for every combination of axis levels, with the rows of tables that lie in them."""
    sides = list[list[tuple[int, IntArray, Sequence[pl.Expr]]]]()
    for axis, of in zip(folder.axes, asked, strict=True):
        areas = sorted(of.pieces if isinstance(of, AreaSet) else [of], key=lambda area: (area.level, area.number))
        by_level = [(level, list(inside)) for level, inside in groupby(areas, key=lambda area: area.level)]
        sides.append(
            [
                (level, np.array([area.number for area in inside]), _rows_in(folder, axis, level, inside))
                for level, inside in by_level
            ]
        )
    boxes = list[Boxes]()
    for box in product(*sides):
        levels, numbers, within = zip(*box, strict=True)
        boxes.append(Boxes(levels, numbers, within, codes_in(codes)))
    return boxes


def _rows_in(folder: PublishedFolder, axis: str, level: int, areas: Sequence[Area]) -> list[pl.Expr]:
    """Return which rows of a table lie in some areas of an axis level."""
    columns = folder.columns(axis, level)
    if len(areas) == 1:
        return [pl.col(column) == code for column, code in zip(columns, areas[0].path, strict=True)]
    if axis not in axes_by_path(folder.manifest):
        return [pl.col(columns[-1]).is_in([area.path[-1] for area in areas])]
    paths = pl.concat_str(columns, separator=_BETWEEN)
    return [paths.is_in([_BETWEEN.join(area.path) for area in areas])]

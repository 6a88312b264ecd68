"""Answers to queries: a box's released count, its interval and an explanation, from a published folder alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import polars as pl

from tasks.released.boxes import Boxes, level_of
from tasks.released.estimate import Estimate
from tasks.released.explanations import describe_pieces, explain_pieces
from tasks.released.families import estimate_of
from tasks.released.query.areas import Area
from tasks.released.query.ranges import AreaRange, areas_of
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.released.sums import leaf_sum_intervals


@dataclass(frozen=True, slots=True)
class Answer:
    """What a folder says about a box.

    Attributes:
        count: the released count, records.
        level: the coarsest tree level whose whole cells make up the box.
        cells: numbers of cells of that level in the box, where known, as in `tasks.released.estimate.Answers`.
        how: an explanation of the count and the interval.
        low: the lower end of the interval, records; None where no interval can be stated.
        high: the upper end, likewise.
        deviation: the standard deviation of the count, records; None where it is no unbiased estimate.
    """

    count: int
    level: int
    cells: dict[str, int] = field(default_factory=dict)
    how: str = ""
    low: int | None = None
    high: int | None = None
    deviation: float | None = None


def answer(
    folder: PublishedFolder,
    asked: Sequence[Area | AreaRange],
    codes: Mapping[str, str] | None = None,
    *,
    simultaneous: bool = False,
) -> Answer:
    """Return what a folder says about a box.

    Args:
        folder: the published folder.
        asked: one area per axis, or a range of an ordered one.
        codes: the codes of derived columns, where everything was settled together; none if left out.
        simultaneous: whether the interval must hold together with those of all other boxes.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    source = FolderSource(folder)
    estimate, confidence = estimate_of(source), folder.manifest.intervals.confidence
    if estimate.takes_ranges or not any(isinstance(of, AreaRange) for of in asked):
        return _of_box(source, estimate, _box(folder, asked, codes or {}), confidence, simultaneous=simultaneous)
    return _of_ranges(source, estimate, asked, codes or {}, simultaneous=simultaneous)


def _of_box(source: FolderSource, estimate: Estimate, box: Boxes, confidence: float, *, simultaneous: bool) -> Answer:
    """Return the answer about one box."""
    found = estimate.answers(box, confidence=confidence, simultaneous=simultaneous)
    level = source.levels[-1].level if box.codes else source.level_of(box)
    low, high = (int(end[0]) if found.stated[0] else None for end in (found.low, found.high))
    cells = {name: int(of[0]) for name, of in found.cells.items() if name != "added" or of[0]}
    deviation = None if found.deviation is None else float(found.deviation[0])
    return Answer(int(found.count[0]), level, cells, found.how(0), low, high, deviation)


def _of_ranges(
    source: FolderSource,
    estimate: Estimate,
    asked: Sequence[Area | AreaRange],
    codes: Mapping[str, str],
    *,
    simultaneous: bool,
) -> Answer:
    """Return the answer about ranges: the sum of those about the fewest areas that make them up, whose intervals all hold.

    Each of k intervals misses with a probability of at most α/k.
    """
    folder, manifest = source.folder, source.manifest
    boxes = list(product(*(areas_of(folder, axis, of) for axis, of in zip(folder.axes, asked, strict=True))))
    share, is_known = 1 - manifest.intervals.confidence, manifest.noisy_counts or simultaneous
    confidence = 1 - share if simultaneous or not is_known else 1 - share / len(boxes)
    found = [
        _of_box(source, estimate, _box(folder, box, codes), confidence, simultaneous=simultaneous) for box in boxes
    ]
    level, count = level_of(folder.steps, [of.level for of in asked]), sum(of.count for of in found)
    cells = {"areas": len(boxes), "released": sum(of.cells.get("released", 0) for of in found)}
    whole = Answer(count, level, cells, describe_pieces(len(boxes), simultaneous=simultaneous))
    if not simultaneous and all("leaves" in of.cells for of in found):  # the noise of all these leaves is added up
        leaves, tail = sum(of.cells["leaves"] for of in found), math.log(share / 2)
        low, high = leaf_sum_intervals(np.array([count]), np.array([leaves]), source.levels[-1].noise, tail)
        return replace(whole, cells=cells | {"leaves": leaves}, low=int(low[0]), high=int(high[0]))
    if len(found) > 1 and not is_known:
        return replace(whole, how=explain_pieces(len(found), manifest.levels[-1].threshold))
    ends = [(of.low, of.high) for of in found if of.low is not None and of.high is not None]
    if len(ends) < len(found):
        untold = next(of for of in found if of.low is None)
        return replace(whole, how=f"{whole.how}; no interval: {untold.how}")
    return replace(whole, low=sum(low for low, _ in ends), high=sum(high for _, high in ends))


def _box(folder: PublishedFolder, asked: Sequence[Area | AreaRange], codes: Mapping[str, str]) -> Boxes:
    """Return one box, with the rows of tables that lie in it."""
    within = list[Sequence[pl.Expr]]()
    for axis, of in zip(folder.axes, asked, strict=True):
        columns = folder.columns(axis, of.level)
        if isinstance(of, AreaRange):
            inside = folder.ordered[axis].codes[of.level - 1][of.first : of.stop]
            within.append([pl.col(columns[-1]).is_in(inside.implode())])
        else:
            within.append([pl.col(column) == code for column, code in zip(columns, of.path, strict=True)])
    ends = [(of.first, of.stop) if isinstance(of, AreaRange) else (of.number, of.number + 1) for of in asked]
    areas, stops = (tuple(np.array([end[side]]) for end in ends) for side in (0, 1))
    has_ranges = any(isinstance(of, AreaRange) for of in asked)
    return Boxes(tuple(of.level for of in asked), areas, stops if has_ranges else None, tuple(within), codes)

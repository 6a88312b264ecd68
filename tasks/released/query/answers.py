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
from tasks.released.query.areas import Area, coarsest
from tasks.released.query.ranges import AreaRange, areas_of, runs_of
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
    areas: tuple[Area | AreaRange, ...] = ()


def answer(
    folder: PublishedFolder,
    asked: Sequence[Area | AreaRange],
    codes: Mapping[str, str] | None = None,
    *,
    simultaneous: bool = False,
) -> Answer:
    """Return what a folder says about a box, as `Estimate.answers` says it about many.

    Args:
        folder: the published folder.
        asked: one area per axis, or a range of an ordered one.
        codes: the codes of derived columns, where everything was settled together; none if left out.
        simultaneous: whether the interval must hold together with those of all other boxes.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    estimate, confidence = estimate_of(FolderSource(folder)), folder.manifest.intervals.confidence
    ranges = [of for of in asked if isinstance(of, AreaRange)]
    is_box = not ranges or (estimate.takes_ranges and all(of.first < of.stop for of in ranges))

    def about(areas: Sequence[Area | AreaRange]) -> Answer:
        if is_box:
            found = _of_box(estimate, _box(folder, areas, codes or {}), confidence, simultaneous=simultaneous)
        else:
            found = _of_ranges(estimate, areas, codes or {}, simultaneous=simultaneous)
        return replace(found, areas=tuple(areas))

    alike = [
        of if isinstance(of, AreaRange) else coarsest(folder, axis, of)
        for axis, of in zip(folder.axes, asked, strict=True)
    ]
    found = about(alike)
    return about(asked) if found.low is None and alike != [*asked] else found


def _of_box(estimate: Estimate, box: Boxes, confidence: float, *, simultaneous: bool) -> Answer:
    """Return the answer about one box."""
    source, answers = estimate.folder, estimate.answers(box, confidence=confidence, simultaneous=simultaneous)
    level = source.levels[-1].level if box.codes else source.level_of(box)
    low, high = (int(end[0]) if answers.stated[0] else None for end in (answers.low, answers.high))
    cells = {name: int(of[0]) for name, of in answers.cells.items() if name != "added" or of[0]}
    deviation = None if answers.deviation is None else float(answers.deviation[0])
    return Answer(int(answers.count[0]), level, cells, answers.how(0), low, high, deviation)


def _of_ranges(
    estimate: Estimate, asked: Sequence[Area | AreaRange], codes: Mapping[str, str], *, simultaneous: bool
) -> Answer:
    """Return the answer about ranges: the sum of those about the fewest areas that make them up, whose intervals all hold.

    Each of k intervals misses with a probability of at most α/k. Where the estimate takes ranges, only those that go over the end of
    their axis come here, and are made up of two.
    """
    source, folder, manifest = estimate.folder, estimate.folder.folder, estimate.folder.manifest
    parts_of = runs_of if estimate.takes_ranges else areas_of
    boxes = list(product(*(parts_of(folder, axis, of) for axis, of in zip(folder.axes, asked, strict=True))))
    share, is_known = 1 - manifest.intervals.confidence, manifest.noisy_counts or simultaneous or estimate.takes_ranges
    confidence = 1 - share if simultaneous or not is_known else 1 - share / len(boxes)
    pieces = [_of_box(estimate, _box(folder, box, codes), confidence, simultaneous=simultaneous) for box in boxes]
    level, count = level_of(folder.steps, [of.level for of in asked]), sum(piece.count for piece in pieces)
    cells = {"areas": len(boxes), "released": sum(piece.cells.get("released", 0) for piece in pieces)}
    whole = Answer(count, level, cells, describe_pieces(len(boxes), simultaneous=simultaneous))
    if estimate.takes_ranges:
        whole = replace(whole, deviation=_deviation_round(estimate, asked, codes))
    elif not simultaneous and all("leaves" in piece.cells for piece in pieces):
        # the noise of all these leaves is added up
        leaves, tail = sum(piece.cells["leaves"] for piece in pieces), math.log(share / 2)
        low, high = leaf_sum_intervals(np.array([count]), np.array([leaves]), source.levels[-1].noise, tail)
        return replace(whole, cells=cells | {"leaves": leaves}, low=int(low[0]), high=int(high[0]))
    if len(pieces) > 1 and not is_known:
        return replace(whole, how=explain_pieces(len(pieces), manifest.levels[-1].threshold))
    ends = [(piece.low, piece.high) for piece in pieces if piece.low is not None and piece.high is not None]
    if len(ends) < len(pieces):
        without = next(piece for piece in pieces if piece.low is None)
        return replace(whole, how=f"{whole.how}; no interval: {without.how}")
    return replace(whole, low=sum(low for low, _ in ends), high=sum(high for _, high in ends))


def _deviation_round(estimate: Estimate, asked: Sequence[Area | AreaRange], codes: Mapping[str, str]) -> float | None:
    r"""Return the standard deviation of the count of a range that goes over the end of one axis; None of several, or where none is known.

    With the last areas A, the first ones B and those between them M, all sums of two neighbours are ranges, whose variances are known:

    .. math:: V(A + B) = V(A) + V(B) + V(M) + V(A + M + B) - V(A + M) - V(M + B)
    """
    folder, round_ = estimate.folder.folder, [of for of in asked if isinstance(of, AreaRange) and of.stop <= of.first]
    if len(round_) > 1:
        return None
    variance, axis = 0.0, next(number for number, of in enumerate(asked) if of is round_[0])
    level, first, stop = round_[0].level, round_[0].first, round_[0].stop
    end = folder.ordered[list(folder.axes)[axis]].areas(level)
    for sign, begin, until in (
        (1, first, end), (1, 0, stop), (1, stop, first), (1, 0, end), (-1, stop, end), (-1, 0, first),
    ):  # fmt: skip
        part = [AreaRange(level, begin, until) if of is round_[0] else of for of in asked]
        deviation = estimate.deviations(_box(folder, part, codes))
        if deviation is None:
            return None
        variance += sign * float(deviation[0]) ** 2
    return math.sqrt(max(variance, 0.0))


def _box(folder: PublishedFolder, asked: Sequence[Area | AreaRange], codes: Mapping[str, str]) -> Boxes:
    """Return one box, with the rows of tables that lie in it."""
    within, ends = list[Sequence[pl.Expr]](), list[tuple[int, int]]()
    for axis, of in zip(folder.axes, asked, strict=True):
        columns = folder.columns(axis, of.level)
        if isinstance(of, AreaRange):
            inside = folder.ordered[axis].codes[of.level - 1][of.first : of.stop]
            within.append([pl.col(columns[-1]).is_in(inside.implode())])
            ends.append((of.first, of.stop))
        else:
            within.append([pl.col(column) == code for column, code in zip(columns, of.path, strict=True)])
            ends.append((of.number, of.number + 1))
    areas, stops = (tuple(np.array([end]) for end in of_axes) for of_axes in zip(*ends, strict=True))
    has_ranges = any(isinstance(of, AreaRange) for of in asked)
    return Boxes(tuple(of.level for of in asked), areas, stops if has_ranges else None, tuple(within), codes)

"""Answers to queries: a box's released count, its interval and an explanation, from a published folder alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, INTERVAL, NOISY, SIMULTANEOUS
from tasks.laws.named import noise_of
from tasks.query.areas import Area, Catalogue, Codebook, ReleasedAreas
from tasks.query.boxes import Box, areas_below, areas_met, level_of, most_leaves, without_children
from tasks.query.explanations import (
    describe_below_threshold,
    describe_cells,
    describe_leaves,
    describe_pieces,
    describe_row,
    describe_unmeasured,
    explain_missing_interval,
    explain_missing_simultaneous,
)
from tasks.query.folder import PublishedFolder
from tasks.query.ranges import AreaRange, fewest_areas
from tasks.query.settled import margin_answer, settled_answer
from tasks.query.sizes import sizes_answer
from tasks.query.sums import MetCells, box_interval, leaf_sum_interval, simultaneous_box_interval
from tasks.query.unbiased import unbiased_answer
from tasks.uncertainty.intervals import simultaneous_margins


@dataclass(frozen=True, slots=True)
class Answer:
    """What a folder says about a box.

    Attributes:
        count: the released count, records.
        level: the coarsest tree level whose whole cells make up the box.
        cells: numbers of cells of that level in the box, where known: `possible`, `released` (with a count other than 0),
            `measured`, and `dropped`, which were not measured because a cell above them was dropped. Also `dropped_under`, the
            number of those cells above, and `cap`, the most records that they count together. Where a view answers, or
            everything was settled together: `added`, the cells whose noisy counts the interval adds up.
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


def catalogue_of(folder: PublishedFolder) -> Catalogue:
    """Return the catalogue of a folder: its codebook, or its tables if it has no codebook."""
    return Codebook(folder) if folder.has_tree else ReleasedAreas(folder)


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
    manifest = folder.manifest
    if manifest.covariance:
        found = unbiased_answer(folder, asked, simultaneous=simultaneous)
        cells = {"leaves": found.leaves} if found.leaves else {}
        return Answer(found.count, found.level, cells, found.how, found.low, found.high, found.deviation)
    if manifest.statistic:
        groups = sizes_answer(folder, asked, simultaneous=simultaneous)
        return Answer(groups.count, groups.level, {}, groups.how, groups.low, groups.high)
    areas = [of for of in asked if isinstance(of, Area)]
    if len(areas) < len(asked):
        return _of_ranges(folder, asked, codes or {}, simultaneous=simultaneous)
    if manifest.is_settled_together:
        return _of_settled(folder, areas, codes or {}, simultaneous=simultaneous)
    level = level_of(folder.steps, [area.level for area in areas])
    of_view = None if simultaneous else margin_answer(folder, areas, level)
    if of_view is not None:
        return Answer(of_view.count, level, {"added": of_view.cells}, of_view.how, of_view.low, of_view.high)
    rows = _rows(folder, level, areas)
    known = Answer(int(rows[COUNT].sum()), level, {"released": rows.height})
    is_cell = folder.reached(level) == tuple(area.level for area in areas)
    kind = SIMULTANEOUS if simultaneous else INTERVAL
    if manifest.levels[-1].threshold:
        return _of_thresholded(folder, known, rows, is_cell, kind)
    if manifest.adds_up_leaves:
        return _of_leaves(folder, known, rows, is_cell, areas, kind)
    if manifest.noisy_counts:
        return _of_measured(folder, known, areas, simultaneous=simultaneous)
    return _of_rows(folder, known, rows, is_cell, kind)


def _of_ranges(
    folder: PublishedFolder, asked: Sequence[Area | AreaRange], codes: Mapping[str, str], *, simultaneous: bool
) -> Answer:
    """Return the answer about ranges: the sum of those about the fewest areas that make them up, whose intervals all hold.

    Each of k intervals misses with a probability of at most α/k. Where every leaf was measured and nothing else, the noise of all
    leaves in the box is added up instead.
    """
    boxes = list(
        product(
            *(
                list(fewest_areas(folder.ordered[axis], of)) if isinstance(of, AreaRange) else [of]
                for axis, of in zip(folder.axes, asked, strict=True)
            )
        )
    )
    share, is_known = 1 - folder.manifest.intervals.confidence, folder.manifest.noisy_counts or simultaneous
    apart = folder if simultaneous or not is_known else folder.at_confidence(1 - share / len(boxes))
    found = [answer(apart, box, codes, simultaneous=simultaneous) for box in boxes]
    level = level_of(folder.steps, [of.level for of in asked])
    count, finest = sum(of.count for of in found), folder.manifest.levels[-1]
    cells = {"areas": len(boxes), "released": sum(of.cells.get("released", 0) for of in found)}
    whole = Answer(count, level, cells, describe_pieces(len(boxes), simultaneous=simultaneous))
    if folder.manifest.adds_up_leaves and not finest.threshold and not simultaneous and folder.manifest.noisy_counts:
        leaves = sum(of.cells["leaves"] for of in found)
        low, high = leaf_sum_interval(count, leaves, noise_of(finest), math.log(share / 2))
        return replace(whole, cells=cells | {"leaves": leaves}, low=low, high=high)
    if len(found) > 1 and not is_known:
        why = (
            f"leaves below the threshold of {finest.threshold:,} may be missing"
            if finest.threshold
            else "the noisy counts are not published"
        )
        return replace(whole, how=f"sum of the {len(found):,} areas that the range is made of; no interval: {why}")
    ends = [(of.low, of.high) for of in found if of.low is not None and of.high is not None]
    if len(ends) < len(found):
        untold = next(of for of in found if of.low is None)
        return replace(whole, how=f"{whole.how}; no interval: {untold.how}")
    return replace(whole, low=sum(low for low, _ in ends), high=sum(high for _, high in ends))


def _of_settled(
    folder: PublishedFolder, areas: Sequence[Area], codes: Mapping[str, str], *, simultaneous: bool
) -> Answer:
    """Return the answer where everything was settled together."""
    finest = folder.manifest.levels[-1].level
    level = finest if codes else level_of(folder.steps, [area.level for area in areas])
    found = settled_answer(folder, areas, codes)
    cells = {"added": found.cells} if found.cells else {}
    if simultaneous:
        return Answer(found.count, level, cells, explain_missing_simultaneous(found.cells))
    return Answer(found.count, level, cells, found.how, found.low, found.high)


def _rows(folder: PublishedFolder, level: int, areas: Sequence[Area]) -> pl.DataFrame:
    """Return the released rows of a level in a box."""
    codes = [
        pl.col(column) == code
        for axis, area in zip(folder.axes, areas, strict=True)
        for column, code in zip(folder.columns(axis, area.level), area.path, strict=True)
    ]
    table = folder.table(level)
    rows = table.filter(*codes) if codes else table
    (found,) = folder.collect([rows.select(COUNT, *folder.manifest.bounds)])
    return found


def _of_measured(folder: PublishedFolder, known: Answer, areas: Sequence[Area], *, simultaneous: bool) -> Answer:
    """Return the answer from the noisy counts of every level."""
    manifest, box = folder.manifest, _box(areas)
    levels = _met_cells(folder, known.level, box)
    noises = [noise_of(entry) for entry in manifest.levels]
    confidence = _confidence(folder)
    if simultaneous:
        possible = [folder.tree.possible_cells(level) for level in range(len(noises))]
        found = simultaneous_box_interval(levels, simultaneous_margins(noises, possible, confidence), known.count)
    else:
        found = box_interval(levels, noises, confidence, known.count)
    cells = known.cells | {
        "possible": levels[-1].possible,
        "measured": found.measured,
        "dropped": levels[-1].possible - found.measured,
        "dropped_under": found.dropped_under,
        "cap": found.cap,
    }
    how = describe_cells(manifest.levels[known.level], cells, found.level_above)
    return replace(known, cells=cells, how=how, low=found.low, high=found.high)


def _met_cells(folder: PublishedFolder, level: int, box: Box) -> list[MetCells]:
    """Return, for level 0 down to the box's own level, the cells that the box overlaps."""
    tree = folder.tree
    met = [areas_met(tree, above, box) for above in range(level + 1)]
    scans = [folder.noisy(above, of_level) for above, of_level in enumerate(met)]
    several = [above for above in range(level) if math.prod(map(len, met[above])) > 1]
    children = (folder.noisy(above + 1, areas_below(tree, above, met[above])) for above in several)
    found = folder.collect([*scans, *(scan.select(pl.col(NOISY).sum(), n=pl.len()) for scan in children)])
    sums = {above: of_children.row(0) for above, of_children in zip(several, found[level + 1 :], strict=True)}
    cells, below = [], None
    for own in reversed(range(level + 1)):
        areas = folder.areas_of(own, found[own])
        dropped = np.zeros(0, dtype=np.int64) if below is None else without_children(tree, own, areas, below)
        noisy = found[own][NOISY].to_numpy()
        cells.append(MetCells(math.prod(map(len, met[own])), noisy, dropped, *sums.get(own, (0, 0))))
        below = areas
    return cells[::-1]


def _of_leaves(
    folder: PublishedFolder,
    known: Answer,
    rows: pl.DataFrame,
    is_cell: bool,
    areas: Sequence[Area],
    kind: tuple[str, str],
) -> Answer:
    """Return the answer where every leaf was measured and counts are sums of leaves."""
    finest, log_tail = folder.manifest.levels[-1], math.log((1 - _confidence(folder)) / 2)
    if not folder.manifest.noisy_counts:
        if is_cell and rows.height:
            return _of_row(folder, known, rows, kind)
        if kind == SIMULTANEOUS:
            return replace(known, how=explain_missing_simultaneous(known.cells["released"]))
        leaves = (
            1 if is_cell and known.level == finest.level else finest.cells
        )  # the noise of all leaves reaches further
        low, high = leaf_sum_interval(known.count, leaves, noise_of(finest), log_tail)
        return replace(known, how=describe_leaves(leaves, are_known=leaves == 1), low=low, high=high)
    tree, box = folder.tree, _box(areas)
    own, below = areas_met(tree, known.level, box), areas_met(tree, finest.level, box)
    leaves, possible = math.prod(map(len, below)), math.prod(map(len, own))
    known = replace(known, cells=known.cells | {"possible": possible, "leaves": leaves}, how=describe_leaves(leaves))
    if kind == INTERVAL:
        low, high = leaf_sum_interval(known.count, leaves, noise_of(finest), log_tail)
    else:
        log_tail -= math.log(len(folder.manifest.levels) * tree.possible_cells(known.level))
        most = most_leaves(tree, known.level, own)
        low, high = leaf_sum_interval(known.count, most, noise_of(finest), log_tail, cells=possible)
    return replace(known, low=low, high=high)


def _of_thresholded(
    folder: PublishedFolder, known: Answer, rows: pl.DataFrame, is_cell: bool, kind: tuple[str, str]
) -> Answer:
    """Return the answer where only leaves whose noisy count reaches a threshold were kept."""
    finest = folder.manifest.levels[-1]
    if not is_cell or known.level < finest.level:
        return replace(known, how=explain_missing_interval(known.cells["released"], finest.threshold))
    if rows.height:
        return _of_row(folder, known, rows, kind)
    if kind == SIMULTANEOUS:
        return replace(known, how=explain_missing_simultaneous(0))
    z = noise_of(finest).quantile(math.log((1 - _confidence(folder)) / 2))
    return replace(known, how=describe_below_threshold(finest.threshold), low=0, high=finest.threshold - 1 + z)


def _of_rows(
    folder: PublishedFolder, known: Answer, rows: pl.DataFrame, is_cell: bool, kind: tuple[str, str]
) -> Answer:
    r"""Return the answer of a folder without noisy counts: the interval of a cell's row, or otherwise what the root allows.

    A cell may have a row or not, and its interval must cover the true count either way. Whenever its row's interval covers it,
    the noise of the root is not below -z', the root's margin as a cell that contains others. So without a row, the root's high
    must use that margin too.
    """
    if is_cell and rows.height:
        return _of_row(folder, known, rows, kind)
    root = folder.manifest.levels[0]
    (everything,) = folder.collect([folder.table(0)])
    if kind[1] not in everything.columns:
        return replace(known, how=explain_missing_simultaneous(known.cells["released"]))
    further = 0 if kind == SIMULTANEOUS else max((root.cap_margin or 0) - (root.half_width or 0), 0)
    high = int(everything[kind[1]][0]) + further
    return replace(
        known, how=describe_unmeasured(known.cells["released"], known.level), low=0, high=max(high, known.count)
    )


def _of_row(folder: PublishedFolder, known: Answer, rows: pl.DataFrame, kind: tuple[str, str]) -> Answer:
    """Return the answer for a cell that has a row in the table of its level."""
    if not set(kind) <= set(rows.columns) or rows[kind[0]][0] is None:
        return replace(known, how=explain_missing_simultaneous(1))
    low, high = (int(rows[end][0]) for end in kind)
    return replace(known, how=describe_row(folder.manifest.levels[known.level]), low=low, high=high)


def _box(areas: Sequence[Area]) -> Box:
    return Box(tuple(area.level for area in areas), tuple(area.number for area in areas))


def _confidence(folder: PublishedFolder) -> float:
    return folder.manifest.intervals.confidence

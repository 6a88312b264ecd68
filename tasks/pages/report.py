"""The report of a published folder: what its template shows, made from the manifest and the released counts alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from storage.releases.register import CheckResult
from storage.releases.terms import ADJUSTED
from storage.tables import REGION, column_name, flat_features
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.format.stated import Table, above_noise_of, deviations_of, noise_rows_of, views_stated
from tasks.pages.charts import (
    areas_picture,
    cells_picture,
    histograms_picture,
    is_written,
    matrix_picture,
    noise_picture,
    noise_series,
    series_picture,
    sizes_picture,
)
from tasks.pages.facts import CLASS_NAMES, Facts, LevelFacts, Matrix, OrderedCounts
from tasks.pages.maps import maps_shown
from tasks.pages.statements import StatedFacts, facts_stated
from tasks.pages.templates import page
from tasks.released.query.summaries import Histograms, LargeCount
from tasks.words.areas import STEP, Names
from tasks.words.levels import about, axes_called, place, title_of
from tasks.words.numbers import (
    NOT_STATED,
    format_bound,
    format_cells,
    format_cost,
    format_percent,
    format_rounded,
    format_sigma,
)

Checks = Mapping[int, tuple[int, int]]  # per level, how many checks passed, and how many there were

_MOST_COLUMNS = 6  # columns of codes that are all listed
_SIGMA = "noise (σ)"
_ZERO = "none"


def report(
    manifest: Manifest, facts: Facts, checks: Checks, how_counted: str = ADJUSTED, formulas: Sequence[str] = ()
) -> str:
    """Return the page.

    Args:
        manifest: the release's manifest.
        facts: what the report shows of its released counts.
        checks: the checks recorded before it was published.
        how_counted: as in `readme`.
        formulas: as in `readme`.
    """
    stated, shown, names = facts_stated(manifest), manifest.levels[facts.largest_level], facts.names
    confidence, matrix = manifest.intervals.confidence, facts.matrix
    has_matrix = matrix is not None and matrix.counts.size
    return page(
        "report.html",
        m=manifest,
        facts=stated,
        counts=facts,
        title=title_of(manifest.spec, manifest.id),
        about=about(manifest.spec),
        axes=list(manifest.levels[0].axes),
        places=[_place(manifest, level) for level in manifest.levels],
        how_counted=how_counted,
        formulas=formulas,
        shown=shown,
        largest_known=facts.levels[shown.level],
        missed=format_percent(1 - confidence),
        bound=format_bound(shown.sigma, shown.bound, summed=shown.summed),
        deviation_of_total=deviations_of(manifest.levels[0]),
        called=lambda large: _called(facts, large),
        maps=maps_shown(facts, manifest.spec, format_percent(confidence)),
        histograms=[
            {"level": of.level, "shown": len(of.regions), "there": of.there, "numbers": _of_histograms(of, names)}
            | {"svg": histograms_picture(of, confidence, names)}
            for of in facts.histograms
        ],
        series=[
            {"axis": of.axis, "source": of.source, "numbers": _of_series(of, names)}
            | {"svg": series_picture(of, confidence, names)}
            for of in facts.series
        ],
        charts=_charts(manifest, facts, stated),
        matrix=_matrix(matrix, names, stated.counted) if matrix is not None and has_matrix else None,
        is_small=matrix is not None and is_written(matrix) and 0 < len(facts.largest_axes) <= 2 and not names,
        files=_files(manifest, facts, checks),
        line_after=_line_after(manifest, facts),
        views=views_stated(manifest),
        noise=_noise_table(manifest, facts, stated),
        has_intervals=any(level.half_width is not None for level in facts.levels),
        has_bias=any(entry.bias for entry in manifest.levels),
    )


def passed_checks(checks: Sequence[CheckResult]) -> dict[int, tuple[int, int]]:
    """Return, per level, how many of its recorded checks passed, and how many there were."""
    found: dict[int, tuple[int, int]] = {}
    for check in checks:
        passed, of = found.get(check.level, (0, 0))
        found[check.level] = (passed + check.passed, of + 1)
    return found


def _place(manifest: Manifest, level: LevelEntry) -> str:
    return place(axes_called(manifest.spec, level.axes)) or "everything"


def _called(facts: Facts, large: LargeCount) -> list[dict[str, str | None]]:
    """Return, per axis, what the area of a large count is called, if it has a name, and what identifies it."""
    areas = zip(facts.largest_axes, large.paths or large.codes, large.codes, strict=True)
    return [{"name": facts.names.name_of(axis, path), "code": STEP.join(codes)} for axis, path, codes in areas]


def _line_after(manifest: Manifest, facts: Facts) -> int | None:
    """Return the level below which most counts are small beside their noise, as the noisy counts themselves show it."""
    finest, last = facts.finest_above_noise or 0, manifest.levels[-1]
    return None if not facts.is_noise_compared or last.threshold or finest == last.level else finest


def _files(manifest: Manifest, facts: Facts, checks: Checks) -> list[dict[str, Any]]:
    """Return what each file holds; of many columns of codes, those that the level above has not."""
    flat = flat_features(manifest.spec)
    files, above = list[dict[str, Any]](), list[str]()
    for entry, level in zip(manifest.levels, facts.levels, strict=True):
        columns = _columns(manifest.levels[: entry.level + 1], flat)
        is_long = len(columns) > _MOST_COLUMNS
        passed, of = checks.get(entry.level, (0, 0))
        shown: dict[str, Any] = {"columns": [column for column in columns if not is_long or column not in above]}
        shown |= {"above": len(above) if is_long else 0, "rows": level.rows, "possible": level.possible_cells}
        shown |= {"areas": _areas(level), "passed": passed, "checks": of}
        files.append({"level": entry.level, "path": entry.path, **shown})
        above = columns
    return files


def _columns(levels: Sequence[LevelEntry], flat: frozenset[str]) -> list[str]:
    """Return the columns of codes of the last of these levels."""
    return [
        column_name(axis, level, flat)
        for axis in levels[-1].axes
        for level in dict.fromkeys(entry.axes[axis] for entry in levels)
        if level
    ]


def _areas(level: LevelFacts) -> list[str]:
    """Return how many areas have a released count: per axis, or for many axes in all."""
    if len(level.areas) > 2:
        left, possible = sum(of.left for of in level.areas), sum(of.possible or 0 for of in level.areas)
        return [f"{left:,} of {possible:,}" if possible else f"{left:,}"]
    return [
        f"{of.axis} {of.left:,}" + (f" of {of.possible:,}" if of.possible is not None else "") for of in level.areas
    ]


def _noise_table(manifest: Manifest, facts: Facts, stated: StatedFacts) -> Table:
    """Return what each level costs, how noisy it is and how far off it can be; no column that would be empty."""
    levels, of_epsilon = manifest.levels, sum(bool(entry.epsilon) for entry in manifest.levels) > 1
    interval = f"interval ({format_percent(manifest.intervals.confidence)}), on average"
    cost = [
        format_cost(of.rho, of.epsilon, of_epsilon=of_epsilon, same_as=of.same_as) if not of.summed else "summed"
        for of in levels
    ]
    bounds = [format_bound(of.sigma, of.bound, summed=of.summed) for of in levels]
    after = [format_bound(of.sigma, of.bound_after, summed=of.summed) for of in levels]
    widths = [NOT_STATED if of.half_width is None else f"± {format_rounded(of.half_width)}" for of in facts.levels]
    biases = [NOT_STATED if of.bias is None else f"{of.bias:+,.3g}".replace("-", "−") for of in levels]
    means = [facts.mean_count(of.level) for of in levels]
    columns = {
        "level": [str(of.level) for of in levels],
        "counts by": [_place(manifest, of) for of in levels],
        "ε" if of_epsilon else "ρ": cost,
        "noise (sigma)": [format_sigma(of.sigma, summed=of.summed) for of in levels],
        "sd of a count": [deviations_of(of) for of in levels] if any(of.deviations for of in levels) else [],
        "error bound (95%)": bounds if any(of.bound is not None for of in levels) else [],
        "as released": after if any(of.bound_after is not None for of in levels) else [],
        interval: widths if {*widths} != {NOT_STATED} else [],
        "rows that stand out": [_standing_out(of) for of in levels],
        "noise rows": [noise_rows_of(of) for of in levels] if any(of.noise_rows for of in levels) else [],
        f"rows, records above {stated.twice.short}": [above_noise_of(of) for of in levels]
        if any(of.above_noise for of in levels)
        else [],
        "bias": biases if any(of.bias for of in levels) else [],
        "mean count": [format_rounded(mean or 0.0) for mean in means] if not facts.is_unlisted else [],
        "largest count": [f"{of.most:,}" for of in facts.levels],
    }
    return _by_level({head: cells for head, cells in columns.items() if cells})


def _standing_out(entry: LevelEntry) -> str:
    """Return how many rows of a level stand out from the noise, in per cent; nothing where there is no row."""
    rows = entry.signal.rows if entry.signal else 0
    return f"{100 * rows / entry.nonzero:.3g}%" if entry.nonzero else NOT_STATED


def _charts(manifest: Manifest, facts: Facts, stated: StatedFacts) -> dict[str, dict[str, Any]]:
    """Return the charts of the levels, each with its numbers."""
    levels, cells = manifest.levels, stated.cells
    return {
        "noise": {"svg": noise_picture(levels, facts, stated.counted), "numbers": _of_noise(levels, facts)},
        "sizes": {"svg": sizes_picture(facts), "numbers": _of_sizes(facts)},
        "cells": {"svg": cells_picture(levels, facts, cells), "numbers": _of_cells(levels, facts, cells)},
        "areas": {"svg": areas_picture(facts), "numbers": _of_areas(facts)},
    }


def _by_level(columns: Mapping[str, Sequence[str]]) -> Table:
    return Table([*columns], [*zip(*columns.values(), strict=True)])


def _numbered(facts: Facts, columns: Mapping[str, Sequence[str]]) -> Table:
    return _by_level({"level": [str(level) for level in range(len(facts.levels))], **columns})


def _of_noise(levels: Sequence[LevelEntry], facts: Facts) -> Table:
    """Return the noise and the errors of every level, beside the mean count; no column that would be empty."""
    columns = {head: [_rounded(value) for value in values] for head, values in noise_series(levels, facts).items()}
    if _SIGMA in columns:
        columns[_SIGMA] = [format_sigma(level.sigma, summed=level.summed) for level in levels]
    return _numbered(facts, {head: cells for head, cells in columns.items() if not {*cells} <= {_ZERO, NOT_STATED}})


def _of_sizes(facts: Facts) -> Table:
    """Return how many rows of each level have a count of each size."""
    shown = [number for number in range(len(CLASS_NAMES)) if any(level.sizes[number] for level in facts.levels)]
    return _numbered(
        facts, {CLASS_NAMES[number]: [f"{level.sizes[number]:,}" for level in facts.levels] for number in shown}
    )


def _of_cells(levels: Sequence[LevelEntry], facts: Facts, cells: str) -> Table:
    """Return how many cells of each level are possible, measured and released."""
    possible = [format_cells(level.possible_cells) for level in facts.levels]
    measured, released = [f"{level.cells:,}" for level in levels], [f"{level.rows:,}" for level in facts.levels]
    return _numbered(facts, {f"possible {cells}": possible, "measured": measured, "released": released})


def _of_areas(facts: Facts) -> Table:
    """Return how many areas of each axis have a released count at every level."""
    there = [{areas.axis: areas for areas in level.areas} for level in facts.levels]
    axes = [areas.axis for areas in facts.levels[-1].areas if areas.possible]
    return _numbered(
        facts,
        {
            axis: [f"{of[axis].left:,} of {of[axis].possible:,}" if axis in of else NOT_STATED for of in there]
            for axis in axes
        },
    )


def _of_series(series: OrderedCounts, names: Names) -> Table:
    """Return the counts along an ordered axis, with their intervals."""
    of_areas = zip(series.paths, series.counts.tolist(), series.low.tolist(), series.high.tolist(), strict=True)
    rows = [
        [names.called(series.axis, path), f"{count:,}", _end(low), _end(high)] for path, count, low, high in of_areas
    ]
    return Table([series.axis, "count", "low", "high"], rows)


def _of_histograms(histograms: Histograms, names: Names) -> Table:
    """Return the numbers of groups of some regions by size, with their intervals."""
    rows = [
        [names.called(REGION, region.path) or "everything", size, f"{count:,}", _end(low), _end(high)]
        for region in histograms.regions
        for size, count, low, high in zip(
            histograms.sizes, region.counts.tolist(), region.low.tolist(), region.high.tolist(), strict=True
        )
    ]
    return Table(["region", "size", "groups", "low", "high"], rows)


def _matrix(matrix: Matrix, names: Names, counted: str) -> dict[str, Any]:
    """Return the counts of two axes against each other; a cell without a row says so, and one that may be noise says so."""
    called = [
        [names.called(axis, path) for path in paths] for axis, paths in zip(matrix.axes, matrix.codes, strict=True)
    ]
    of_rows = called[0] if len(called) > 1 else ["count"]
    noise = np.where(matrix.may_be_zero, ", may be noise", "")
    cells = [[f"{count:,}" for count in counts] for counts in matrix.counts.tolist()]
    shown = np.where(matrix.is_released, np.char.add(np.array(cells, dtype=str), noise), "no row")
    rows = [[name, *of_row] for name, of_row in zip(of_rows, shown.tolist(), strict=True)]
    areas = zip(matrix.axes, matrix.codes, matrix.left, strict=True)
    return {
        "svg": matrix_picture(matrix, names, counted),
        "axes": matrix.axes,
        "level": matrix.level,
        "has_negative": (matrix.counts < 0).any(),
        "has_noise": matrix.may_be_zero.any(),
        "cut": [{"axis": of, "shown": len(codes), "left": left} for of, codes, left in areas if left > len(codes)],
        "numbers": Table([" by ".join(matrix.axes), *called[-1]], rows),
    }


def _rounded(value: float | None) -> str:
    return NOT_STATED if value is None else format_rounded(value) if value else _ZERO


def _end(value: float) -> str:
    """Return an end of an interval."""
    return NOT_STATED if math.isnan(value) else f"{value:,.0f}"

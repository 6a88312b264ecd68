"""The report of a published folder: what its template shows, made from the manifest and the released counts alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from storage.releases.register import CheckResult
from storage.releases.terms import ADJUSTED
from storage.tables import REGION, SIZE, column_name, flat_features
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.format.stated import TextTable, above_noise_of, deviations_of, noise_rows_of, views_stated
from tasks.pages.charts import (
    areas_picture,
    histograms_picture,
    levels_picture,
    matrix_picture,
    noise_picture,
    noise_series,
    series_picture,
    sizes_picture,
)
from tasks.pages.facts import CLASS_NAMES, Facts, Matrix, OrderedCounts
from tasks.pages.maps import maps_shown
from tasks.pages.statements import StatedFacts, facts_stated
from tasks.pages.templates import page
from tasks.released.query.summaries import Histogram, Histograms, LargeCount
from tasks.words.areas import STEP, Names, size_called
from tasks.words.levels import about, axes_called, place, title_of, view_called
from tasks.words.numbers import (
    NOT_STATED,
    format_bound,
    format_cells,
    format_cost,
    format_percent,
    format_rounded,
    format_sigma,
)

_MOST_COLUMNS = 6  # columns of codes that are all listed
_SIGMA = "noise (σ)"
_ZERO = "none"


def report(
    manifest: Manifest,
    facts: Facts,
    checks: Sequence[CheckResult],
    how_counted: str = ADJUSTED,
    formulas: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        checks: the checks recorded before it was published. Other arguments are those of `readme`.
    """
    stated, shown, names = facts_stated(manifest), manifest.levels[facts.largest_level], facts.names
    confidence, matrix = manifest.intervals.confidence, facts.matrix
    places = [place(axes_called(manifest.spec, level.axes)) or "everything" for level in manifest.levels]
    return page(
        "report.html",
        m=manifest,
        facts=stated,
        counts=facts,
        title=title_of(manifest.spec, manifest.id),
        about=about(manifest.spec),
        places=places,
        how_counted=how_counted,
        formulas=formulas,
        shown=shown,
        bound=format_bound(shown.sigma, shown.bound, summed=shown.summed),
        deviation_of_total=deviations_of(manifest.levels[0]),
        called=lambda axes, large: _called(facts, axes, large, stated.largest_size),
        maps=maps_shown(facts, manifest.spec, format_percent(confidence)),
        histograms=[
            {"of": of, "svg": histograms_picture(of, confidence, names), "numbers": _histograms_numbers(of, names)}
            for of in facts.histograms
        ],
        series=[
            {"of": of, "svg": series_picture(of, confidence, names), "numbers": _series_numbers(of, names)}
            for of in facts.series
        ],
        charts=_charts(manifest, facts, stated),
        matrix=_matrix(matrix, names, stated.counted) if matrix is not None and matrix.counts.size else None,
        files=_files(manifest, facts, checks),
        line_after=_line_after(manifest, facts),
        views=views_stated(manifest),
        view_called=lambda m, name: next(view_called(m.spec, of.axes) for of in m.views if of.name == name),
        noise=_noise_table(manifest, facts, stated, places),
    )


def _called(facts: Facts, refined: Sequence[str], large: LargeCount, last: str) -> list[dict[str, str | None]]:
    """Return, per axis, what the area of a large count is called, if it has a name, and what identifies it; `last` is the code of the largest size, where groups are counted."""
    areas = zip(refined, large.paths or large.codes, large.codes, strict=True)
    return [
        {
            "name": facts.names.name_of(axis, path),
            "code": size_called(codes[-1], last) if last and axis == SIZE else STEP.join(codes),
        }
        for axis, path, codes in areas
    ]


def _line_after(manifest: Manifest, facts: Facts) -> int | None:
    """Return the level below which most counts are small beside their noise, as the noisy counts themselves show it."""
    finest, last = facts.finest_above_noise or 0, manifest.levels[-1]
    return None if not facts.is_noise_compared or last.threshold or finest == last.level else finest


def _files(manifest: Manifest, facts: Facts, checks: Sequence[CheckResult]) -> list[dict[str, Any]]:
    """Return what each file holds; of many columns of codes, those that the level above has not."""
    flat, reached = flat_features(manifest.spec), {axis: list[str]() for axis in manifest.levels[-1].axes}
    files, above = list[dict[str, Any]](), list[str]()
    for entry, level in zip(manifest.levels, facts.levels, strict=True):
        for axis, finest in entry.axes.items():
            if finest and finest not in reached[axis]:
                reached[axis].append(finest)
        columns = [column_name(axis, of_axis, flat) for axis in entry.axes for of_axis in reached[axis]]
        is_long = len(columns) > _MOST_COLUMNS
        passed = [check.passed for check in checks if check.level == entry.level]
        areas = [f"{of.axis} {of.left:,}" + (f" of {of.possible:,}" if of.possible else "") for of in level.areas]
        if len(areas) > 2:
            left, possible = sum(of.left for of in level.areas), sum(of.possible or 0 for of in level.areas)
            areas = [f"{left:,} of {possible:,}" if possible else f"{left:,}"]
        shown = [column for column in columns if not is_long or column not in above]
        file = {"entry": entry, "counts": level, "areas": areas, "checks": len(passed), "passed": sum(passed)}
        files.append(file | {"columns": shown, "above": len(above) if is_long else 0})
        above = columns
    return files


def _noise_table(manifest: Manifest, facts: Facts, stated: StatedFacts, places: Sequence[str]) -> TextTable:
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
    signals = [(of.signal.rows if of.signal else 0, of.nonzero) for of in levels]
    columns = {
        "counts by": places,
        "ε" if of_epsilon else "ρ": cost,
        "noise (sigma)": [format_sigma(of.sigma, summed=of.summed) for of in levels],
        "sd of a count": [deviations_of(of) for of in levels] if any(of.deviations for of in levels) else [],
        "error bound (95%)": bounds if any(of.bound is not None for of in levels) else [],
        "as released": after if any(of.bound_after is not None for of in levels) else [],
        interval: widths if {*widths} != {NOT_STATED} else [],
        "rows that stand out": [f"{100 * rows / of:.3g}%" if of else NOT_STATED for rows, of in signals],
        "noise rows": [noise_rows_of(of) for of in levels] if any(of.noise_rows for of in levels) else [],
        f"rows, records above {stated.twice.short}": [above_noise_of(of) for of in levels]
        if any(of.above_noise for of in levels)
        else [],
        "bias": biases if any(of.bias for of in levels) else [],
        "mean count": [format_rounded(mean or 0.0) for mean in means] if not facts.is_unlisted else [],
        "largest count": [f"{of.most:,}" for of in facts.levels],
    }
    return _by_level({head: cells for head, cells in columns.items() if cells})


def _charts(manifest: Manifest, facts: Facts, stated: StatedFacts) -> dict[str, dict[str, Any]]:
    """Return the charts of the levels, each with its numbers."""
    levels, cells = manifest.levels, stated.cells
    of_cells: dict[str, list[int | None]] = {
        f"possible {cells}": [level.possible_cells for level in facts.levels],
        "measured": [level.cells for level in levels],
        "released": [level.rows for level in facts.levels],
    }
    described = f"How many {cells} are possible at every level, and how many are released"
    written = {head: list(map(format_cells, numbers)) for head, numbers in of_cells.items()}
    return {
        "noise": {"svg": noise_picture(levels, facts, stated.counted), "numbers": _noise_numbers(levels, facts)},
        "sizes": {"svg": sizes_picture(facts), "numbers": _sizes_numbers(facts)},
        "cells": {"svg": levels_picture(of_cells, cells, described, first=1), "numbers": _by_level(written)},
        "areas": {"svg": areas_picture(facts), "numbers": _areas_numbers(facts)},
    }


def _by_level(columns: Mapping[str, Sequence[str]]) -> TextTable:
    """Return a table with a row per level, after its number."""
    rows = enumerate(zip(*columns.values(), strict=True))
    return TextTable(["level", *columns], [[str(level), *cells] for level, cells in rows])


def _noise_numbers(levels: Sequence[LevelEntry], facts: Facts) -> TextTable:
    """Return the noise and the errors of every level, beside the mean count; no column that would be empty."""
    columns = {head: [_rounded(value) for value in values] for head, values in noise_series(levels, facts).items()}
    if _SIGMA in columns:
        columns[_SIGMA] = [format_sigma(level.sigma, summed=level.summed) for level in levels]
    return _by_level({head: cells for head, cells in columns.items() if not {*cells} <= {_ZERO, NOT_STATED}})


def _sizes_numbers(facts: Facts) -> TextTable:
    """Return how many rows of each level have a count of each size."""
    shown = [number for number in range(len(CLASS_NAMES)) if any(level.sizes[number] for level in facts.levels)]
    return _by_level({CLASS_NAMES[number]: [f"{level.sizes[number]:,}" for level in facts.levels] for number in shown})


def _areas_numbers(facts: Facts) -> TextTable:
    """Return how many areas of each axis have a released count at every level."""
    levels = [
        {of.axis: f"{of.left:,} of {of.possible:,}" for of in level.areas if of.possible} for level in facts.levels
    ]
    return _by_level({axis: [level.get(axis, NOT_STATED) for level in levels] for axis in levels[-1]})


def _series_numbers(series: OrderedCounts, names: Names) -> TextTable:
    """Return the counts along an ordered axis, with their intervals."""
    areas = [names.called(series.axis, path) for path in series.paths]
    return TextTable([series.axis, "count", "low", "high"], _with_ends(areas, series))


def _histograms_numbers(histograms: Histograms, names: Names) -> TextTable:
    """Return the numbers of groups of some places by size, with their intervals."""
    axes = [axis for axis, _ in histograms.places[0].areas]
    rows = [
        [*(names.called(*area) for area in place.areas), *([] if axes else ["everything"]), *row]
        for place in histograms.places
        for row in _with_ends(histograms.sizes, place)
    ]
    return TextTable([*(axes or [REGION]), "size", "groups", "low", "high"], rows)


def _with_ends(names: Sequence[str], of: OrderedCounts | Histogram) -> list[list[str]]:
    """Return counts by their names, each with the ends of its interval, if it has one."""
    ends = [[NOT_STATED if math.isnan(end) else f"{end:,.0f}" for end in both] for both in (of.low, of.high)]
    return [[name, f"{count:,}", *both] for name, count, *both in zip(names, of.counts, *ends, strict=True)]


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
        "numbers": TextTable([" by ".join(matrix.axes), *called[-1]], rows),
    }


def _rounded(value: float | None) -> str:
    return NOT_STATED if value is None else format_rounded(value) if value else _ZERO

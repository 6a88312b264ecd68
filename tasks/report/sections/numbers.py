"""The numbers behind the charts of a report, as tables that unfold."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from storage.counts.columns import REGION
from tasks.atlas.names import Names
from tasks.format.manifest import LevelEntry
from tasks.report.facts import CLASS_NAMES, Facts, Matrix, OrderedCounts
from tasks.report.frame import table
from tasks.report.levels import noise_series
from tasks.report.sections.histograms import Histograms
from tasks.words.numbers import NOT_STATED, format_cells, format_rounded, format_sigma

_MOST_ROWS = 400
_ZERO = "none"
_SIGMA = "noise (σ)"


def behind(heads: Sequence[str], rows: Sequence[Sequence[str]], *, of: str = "chart") -> str:
    """Return a table of the numbers behind a chart that is folded until somebody asks for it.

    Args:
        heads: HTML, one per column.
        rows: HTML, one cell per column.
        of: the word for the picture.
    """
    shown = rows[:_MOST_ROWS]
    more = "" if len(rows) <= _MOST_ROWS else f"<p>The first {_MOST_ROWS:,} of {len(rows):,} rows.</p>"
    return (
        f'<details class="numbers"><summary>The numbers behind this {of}</summary>{more}{table(heads, shown)}</details>'
    )


def of_noise(levels: Sequence[LevelEntry], facts: Facts) -> str:
    """Return the noise and the errors of every level, beside the mean count; no column that would be empty."""
    columns = {head: [_rounded(value) for value in values] for head, values in noise_series(levels, facts).items()}
    if _SIGMA in columns:
        columns[_SIGMA] = [format_sigma(level.sigma, summed=level.summed) for level in levels]
    return _by_level({head: cells for head, cells in columns.items() if not {*cells} <= {_ZERO, NOT_STATED}})


def numbers_of_groups(facts: Facts) -> str:
    """Return how many rows of each level have a count of each size."""
    shown = [number for number in range(len(CLASS_NAMES)) if any(level.sizes[number] for level in facts.levels)]
    return _by_level({CLASS_NAMES[number]: [f"{level.sizes[number]:,}" for level in facts.levels] for number in shown})


def of_cells(levels: Sequence[LevelEntry], facts: Facts, cells: str) -> str:
    """Return how many cells of each level are possible, measured and released."""
    return _by_level(
        {
            f"possible {cells}": [format_cells(level.possible_cells) for level in facts.levels],
            "measured": [f"{level.cells:,}" for level in levels],
            "released": [f"{level.rows:,}" for level in facts.levels],
        }
    )


def of_areas(facts: Facts) -> str:
    """Return how many areas of each axis have a released count at every level."""
    axes = [areas.axis for areas in facts.levels[-1].areas if areas.possible]
    columns: dict[str, list[str]] = {escape(axis): [] for axis in axes}
    for level in facts.levels:
        there = {areas.axis: areas for areas in level.areas}
        for axis in axes:
            known = there.get(axis)
            columns[escape(axis)].append(f"{known.left:,} of {known.possible:,}" if known else NOT_STATED)
    return _by_level(columns)


def of_series(series: OrderedCounts, names: Names) -> str:
    """Return the counts along an ordered axis, with their intervals."""
    rows = [
        [escape(names.called(series.axis, path)), f"{count:,}", _end(low), _end(high)]
        for path, count, low, high in zip(
            series.paths, series.counts.tolist(), series.low.tolist(), series.high.tolist(), strict=True
        )
    ]
    return behind([escape(series.axis), "count", "low", "high"], rows)


def of_histograms(histograms: Histograms, names: Names) -> str:
    """Return the numbers of groups of some regions by size, with their intervals."""
    rows = [
        [escape(names.called(REGION, region.path)) or "everything", escape(size), f"{count:,}", _end(low), _end(high)]
        for region in histograms.regions
        for size, count, low, high in zip(
            histograms.sizes, region.counts.tolist(), region.low.tolist(), region.high.tolist(), strict=True
        )
    ]
    return behind(["region", "size", "groups", "low", "high"], rows)


def of_matrix(matrix: Matrix, names: Names) -> str:
    """Return the counts of two axes against each other; a cell without a row says so, and one that may be noise says so."""
    called = [
        [escape(names.called(axis, path)) for path in paths]
        for axis, paths in zip(matrix.axes, matrix.codes, strict=True)
    ]
    heads = called[-1]
    of_rows = called[0] if len(called) > 1 else ["count"]
    noise = np.where(matrix.may_be_zero, ", may be noise", "")
    cells = [[f"{count:,}" for count in counts] for counts in matrix.counts.tolist()]
    shown = np.where(matrix.is_released, np.char.add(np.array(cells, dtype=str), noise), "no row")
    rows = [[name, *of_row] for name, of_row in zip(of_rows, shown.tolist(), strict=True)]
    return behind([" by ".join(escape(axis) for axis in matrix.axes), *heads], rows)


def _by_level(columns: dict[str, list[str]]) -> str:
    rows = [[str(level), *cells] for level, cells in enumerate(zip(*columns.values(), strict=True))]
    return behind(["level", *columns], rows)


def _rounded(value: float | None) -> str:
    return NOT_STATED if value is None else format_rounded(value) if value else _ZERO


def _end(value: float) -> str:
    """Return an end of an interval."""
    return NOT_STATED if math.isnan(value) else f"{value:,.0f}"

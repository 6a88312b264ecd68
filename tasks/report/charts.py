"""The pictures of a report: the levels of a release side by side, and its coarsest matrix."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from storage.counts.columns import REGION
from tasks.atlas.names import Names
from tasks.format.manifest import LevelEntry
from tasks.report.facts import CLASS_NAMES, CLASSES, Facts, LevelFacts, Matrix, OrderedCounts
from tasks.report.levels import noise_series
from tasks.report.sections.histograms import Histograms
from tasks.report.sections.largest import Path
from tasks.report.svg import as_svg, figure, level_ticks, line_style
from tasks.words.numbers import format_percent, format_short

_WIDTH, _HEIGHT = 5.0, 3.2  # inches; a wide screen shows two side by side
_MARGINS = (0.8, 0.48, 0.1, 0.52)
_WHOLE_PAGE = 9.9

_MOST_CODES = 9  # below a line along an axis

_FEW_AXES = 4  # axes that have a line each
_MOST_IN_FULL = 1_000_000  # smaller counts have room for all their digits
_MOST_WRITTEN = 12  # areas per side of a matrix that has its counts in its cells
_LONGEST_CODE = 24  # characters
_TALLEST = 1e-4  # share of the noise; the picture cuts off smaller values
_LARGEST = 1e300  # larger numbers cannot be drawn as floats

_NOISY: dict[str, Any] = {"facecolor": "#f3f3f3", "hatch": "///", "edgecolor": "#cfcfcf", "linewidth": 0, "zorder": 0}


def noise_picture(levels: Sequence[LevelEntry], facts: Facts, counted: str = "records") -> str:
    """Draw noise and error bound per level beside the mean count of its possible cells, in what is counted."""
    series = noise_series(levels, facts)
    with figure(_WIDTH, _HEIGHT, margins=_MARGINS) as (drawn, (panel,)):
        _shade_noise(panel, levels, facts)
        for (name, values), style in zip(series.items(), count(), strict=False):
            _line(panel, name, values, style)
        errors = [level.sigma for level in levels if 0 < level.sigma < _LARGEST]
        _log_scale(panel, least=_TALLEST * min(errors, default=1.0))
        _level_axis(panel, len(levels))
        panel.set_ylabel(counted)
        _legend(panel)
        return as_svg(drawn, "The noise and the stated errors of every level, beside the mean count of its cells")


def sizes_picture(facts: Facts) -> str:
    """Draw, per level, the share of the released counts in each size class."""
    shown = [number for number in range(len(CLASSES) + 1) if any(level.sizes[number] for level in facts.levels)]
    rows = np.array([max(level.rows, 1) for level in facts.levels], dtype=float)
    with figure(_WIDTH, _HEIGHT, margins=_MARGINS) as (drawn, (panel,)):
        below = np.zeros(len(facts.levels))
        for place, number in enumerate(shown):
            shares = 100 * np.array([level.sizes[number] for level in facts.levels]) / rows
            grey = 0.93 - 0.8 * place / max(len(shown) - 1, 1)  # light to dark, so that it works without colour
            colour = (grey * 0.82, grey * 0.93, min(1.0, grey + 0.08))
            panel.bar(
                range(len(rows)),
                shares,
                bottom=below,
                width=0.82,
                color=colour,
                edgecolor="#444444",
                linewidth=0.4,
                label=CLASS_NAMES[number],
            )
            below += shares
        panel.set_axisbelow(True)
        panel.set_ylim(0, 100)
        panel.set_ylabel("% of the rows")
        _level_axis(panel, len(rows))
        _legend(panel, columns=4)
        return as_svg(drawn, "The sizes of the released counts of every level, as shares of its rows")


def cells_picture(levels: Sequence[LevelEntry], facts: Facts, cells: str) -> str:
    """Draw, per level, how many cells are possible, measured and released; `cells` is the word for them."""
    series: dict[str, Sequence[float | None]] = {
        f"possible {cells}": [_as_float(level.possible_cells) for level in facts.levels],
        "measured": [level.cells for level in levels],
        "released": [level.rows for level in facts.levels],
    }
    with figure(_WIDTH, _HEIGHT, margins=_MARGINS) as (drawn, (panel,)):
        for (name, values), style in zip(series.items(), count(1), strict=False):
            _line(panel, name, values, style)
        _log_scale(panel)
        _level_axis(panel, len(levels))
        panel.set_ylabel(cells)
        _legend(panel)
        return as_svg(drawn, f"How many {cells} are possible at every level, and how many are released")


def areas_picture(facts: Facts) -> str:
    """Draw, per level and axis, the share of the areas that have a row; nothing where the areas are unknown."""
    series = _areas_left(facts.levels)
    if not series:
        return ""
    with figure(_WIDTH, _HEIGHT, margins=_MARGINS) as (drawn, (panel,)):
        for (name, values), style in zip(series.items(), count(), strict=False):
            _line(panel, name, values, style)
        panel.set_ylim(0, 105)
        panel.set_ylabel("% of the codebook")
        _level_axis(panel, len(facts.levels))
        _legend(panel)
        return as_svg(drawn, "The share of the areas of the codebook that have a released count, at every level")


def series_picture(series: OrderedCounts, confidence: float, names: Names) -> str:
    """Draw the counts along an ordered axis as a line, with a band from the lower to the upper ends of their intervals."""
    with figure(_WHOLE_PAGE, _HEIGHT, margins=_MARGINS) as (drawn, (panel,)):
        places = np.arange(len(series.codes))
        band = f"{format_percent(confidence)} interval"
        panel.fill_between(places, series.low, series.high, color="#1b6ca8", alpha=0.25, linewidth=0, label=band)
        panel.plot(places, series.counts, color="#1b6ca8", linewidth=1.2, label="count")
        shown = np.unique(np.linspace(0, len(places) - 1, min(len(places), _MOST_CODES)).round().astype(int))
        labels = [_label(names.name_of(series.axis, series.paths[place]), (series.codes[place],)) for place in shown]
        panel.set_xticks(shown, labels, parse_math=False)
        panel.set_xlabel(series.axis)
        panel.set_ylabel("records")
        _legend(panel)
        return as_svg(drawn, f"The released counts along {series.axis}, with their intervals")


def histograms_picture(histograms: Histograms, confidence: float, names: Names) -> str:
    """Draw, for some regions side by side, a bar for the groups of each size and a line for its interval."""
    columns, places = len(histograms.regions), np.arange(len(histograms.sizes))
    width = min(_WHOLE_PAGE, 2.4 + 2.6 * columns)
    bottom = 0.45
    with figure(width, _HEIGHT, columns, margins=(0.8, bottom, 0.1, 0.6)) as (drawn, panels):
        for panel, region in zip(panels, histograms.regions, strict=True):
            panel.bar(places, region.counts, width=0.8, color="#1b6ca8", alpha=0.75, label="groups")
            interval = f"{format_percent(confidence)} interval"
            panel.vlines(places, region.low, region.high, color="#222222", linewidth=1, label=interval)
            room = max(2, int(_MOST_CODES * width / columns / _WHOLE_PAGE))
            shown = np.unique(np.linspace(0, len(places) - 1, min(len(places), room)).round().astype(int))
            panel.set_xticks(shown, [histograms.sizes[place] for place in shown])
            called = _label(names.name_of(REGION, region.path), region.path) if region.path else "everything"
            panel.set_title(called, fontsize=9, parse_math=False)
            panel.set_xlabel("size")
        panels[0].set_ylabel("groups")
        panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1.07), ncols=2, borderaxespad=0.2)  # above the title
        return as_svg(drawn, f"The released numbers of groups by size, at level {histograms.level}")


def matrix_picture(matrix: Matrix, names: Names, counted: str = "records") -> str:
    """Draw the coarsest matrix as a heat map; a small one has its counts in its cells."""
    labels = [_labels(names, axis, codes) for axis, codes in zip(matrix.axes, matrix.codes, strict=True)]
    rows, columns = [""] if len(labels) == 1 else labels[0], labels[-1]
    written = is_written(matrix)
    upright = len(columns) > _MOST_WRITTEN or max(map(len, columns), default=0) > 8
    left = 0.55 + 0.075 * max(map(len, rows), default=0)
    bottom = 0.5 + (0.07 * max(map(len, columns), default=0) if upright else 0.15)
    right = 0.15 if written else 1.0
    width = min(_WHOLE_PAGE, max(4.0, left + right + (0.72 if written else 0.21) * len(columns)))
    height = bottom + 0.15 + max(0.9, (0.36 if written else 0.2) * len(rows))
    with figure(width, height, margins=(left, bottom, right, 0.15)) as (drawn, (panel,)):
        image = _heat(panel, matrix)
        if written:
            _write_counts(panel, matrix, image)
        elif image is not None:
            _key(drawn, image, width, counted)
        size = 9 if written else 7
        turned = {"rotation": 90} if upright else {}
        panel.set_xticks(range(len(columns)), columns, parse_math=False, fontsize=size, **turned)
        panel.set_yticks(range(len(rows)), rows, parse_math=False, fontsize=size)
        panel.set_xlabel(matrix.axes[-1], parse_math=False)
        panel.set_ylabel(matrix.axes[0] if len(labels) > 1 else "", parse_math=False)
        panel.grid(visible=False)
        panel.tick_params(length=0)
        for side in panel.spines.values():
            side.set_visible(False)
        return as_svg(drawn, f"The released counts by {' and '.join(matrix.axes)}, darker for more")


def is_written(matrix: Matrix) -> bool:
    """Return whether a matrix is so small that its counts are written into its cells."""
    rows, columns = matrix.counts.shape
    return bool(max(rows, columns) <= _MOST_WRITTEN)


def _heat(panel: Any, matrix: Matrix) -> Any:
    """Draw the counts above zero, darker for more, and hatched those that may be zero; a count below zero gets a minus, and a missing
    one nothing.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.patches import Rectangle

    rows, columns = matrix.counts.shape
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(rows - 0.5, -0.5)
    below = np.argwhere(matrix.is_released & (matrix.counts < 0))
    if len(below) and max(rows, columns) > _MOST_WRITTEN:
        panel.plot(below[:, 1], below[:, 0], linestyle="none", marker="_", color="#444444", markersize=4)
    for row, column in np.argwhere(matrix.may_be_zero):
        panel.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **_NOISY))
    clear = (matrix.counts > 0) & ~matrix.may_be_zero
    above = np.ma.masked_where(~clear, matrix.counts.astype(float))
    if not above.count():
        return None
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.06, 0.92, 128)))
    least, most = float(above.min()), float(above.max())
    return panel.imshow(
        above, cmap=shades, norm=LogNorm(least, max(most, 1.001 * least)), interpolation="none", aspect="auto"
    )


def _write_counts(panel: Any, matrix: Matrix, image: Any) -> None:
    for row, column in np.argwhere(matrix.is_released):
        count = int(matrix.counts[row, column])
        is_noise = bool(matrix.may_be_zero[row, column])
        is_dark = image is not None and count > 0 and not is_noise and image.norm(count) > 0.68
        colour = "white" if is_dark else "#1a1a1a"
        text = (f"{count:,}" if abs(count) < _MOST_IN_FULL else format_short(count)).replace("-", "−")
        panel.text(column, row, text, ha="center", va="center", color=colour, fontsize=8.5)


def _key(drawn: Any, image: Any, width: float, counted: str) -> None:
    """Draw the key of shades at the right margin."""
    key = drawn.colorbar(image, cax=drawn.add_axes((1 - 0.85 / width, 0.25, 0.16 / width, 0.5)))
    key.ax.set_title(counted, fontsize=8, loc="left")
    _log_ticks(key.ax.yaxis)
    key.outline.set_visible(False)


def _areas_left(levels: Sequence[LevelFacts]) -> dict[str, list[float | None]]:
    """Return, per axis, the percentage of its areas with a row at each level; for many axes, that of all together."""
    axes = [areas.axis for areas in levels[-1].areas if areas.possible]
    if len(axes) <= _FEW_AXES:
        of_level = [{areas.axis: areas for areas in level.areas} for level in levels]
        return {
            axis: [
                100 * areas[axis].left / possible if axis in areas and (possible := areas[axis].possible) else None
                for areas in of_level
            ]
            for axis in axes
        }
    left = [sum(areas.left for areas in level.areas if areas.possible) for level in levels]
    possible_ = [sum(areas.possible or 0 for areas in level.areas) for level in levels]
    return {
        "values of all features": [
            100 * some / of_all if of_all else None for some, of_all in zip(left, possible_, strict=True)
        ]
    }


def _shade_noise(panel: Any, levels: Sequence[LevelEntry], facts: Facts) -> None:
    """Mark the levels at which most counts are small beside their noise."""
    last = len(levels) - 1
    finest = facts.finest_above_noise
    if finest == last or not facts.is_noise_compared:
        return
    first = 0.5 if finest is None else finest + 0.5
    label = "mostly left out" if levels[-1].threshold else "small beside noise"
    panel.axvspan(first, last + 0.5, **_NOISY)
    panel.axvline(first, color="#1a1a1a", linewidth=1.2, linestyle="--")
    at_top = panel.get_xaxis_transform()
    style = {"transform": at_top, "va": "top", "weight": "bold", "backgroundcolor": "white"}
    if last + 0.5 - first < 0.4 * (last + 1):  # too narrow for the words
        panel.text(first - 0.05, 0.97, f"{label} →", ha="right", **style)
    else:
        panel.text(first + 0.05, 0.97, f"{label} →", **style)


def _line(panel: Any, name: str, values: Sequence[float | None], style: int) -> None:
    """Draw one value per level; leave out a value that is zero, unknown or too large, and a line without values."""
    drawn = [value if value is not None and 0 < value < _LARGEST else math.nan for value in values]
    if all(math.isnan(value) for value in drawn):
        return
    panel.plot(range(len(drawn)), drawn, label=name, **line_style(style))


def _log_scale(panel: Any, least: float = 0.0) -> None:
    """Scale a panel by powers of ten, down to `least` or to its least value."""
    values = [value for line in panel.lines for value in np.asarray(line.get_ydata(), dtype=float) if value > 0]
    panel.set_yscale("log")
    if len(panel.lines) and values:
        panel.set_ylim(
            10.0 ** math.floor(math.log10(max(min(values), least))), 10.0 ** math.ceil(math.log10(1.2 * max(values)))
        )
    _log_ticks(panel.yaxis)


def _log_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    return format_short(round(value)) if 1 <= value < 1e15 else f"{value:g}"


def _level_axis(panel: Any, levels: int) -> None:
    panel.set_xticks(level_ticks(levels, _WIDTH - _MARGINS[0] - _MARGINS[2]))
    panel.set_xlim(-0.5, levels - 0.5)
    panel.set_xlabel("level")
    panel.yaxis.set_label_coords(-0.155, 0.5)


def _legend(panel: Any, columns: int = 2) -> None:
    handles, labels = panel.get_legend_handles_labels()
    if not handles:
        return
    panel.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.2,
        handlelength=2.4 if columns == 2 else 1.2,
    )


def _labels(names: Names, axis: str, paths: Sequence[Path]) -> list[str]:
    """Return what areas are called at a picture: their names, or their codes where a short name would be that of two."""
    called = [_label(names.name_of(axis, path), path) for path in paths]
    return [
        label if called.count(label) == 1 else _label(None, path) for label, path in zip(called, paths, strict=True)
    ]


def _label(name: str | None, path: Path) -> str:
    text = name or " › ".join(path)
    if len(text) <= _LONGEST_CODE:
        return text
    half = _LONGEST_CODE // 2  # both ends tell areas apart
    return f"{text[: half - 1]}…{text[-half:]}"


def _as_float(cells: int | None) -> float | None:
    return None if cells is None or cells > _LARGEST else float(cells)

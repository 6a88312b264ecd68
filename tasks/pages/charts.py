"""The pictures of a report: the levels of a release side by side, and its coarsest matrix."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np
from markupsafe import Markup

from tasks.format.entries import LevelEntry
from tasks.pages.facts import CLASS_NAMES, Facts, Matrix, OrderedCounts
from tasks.pages.svg import (
    INK,
    Layer,
    Row,
    Scale,
    chart,
    levels_axis,
    linear_axis,
    lines,
    log_axis,
    marks,
    short,
    style,
)
from tasks.released.query.summaries import Histogram, Histograms
from tasks.tree.axis import Path
from tasks.words.areas import Names
from tasks.words.numbers import format_percent, format_short

_WIDE, _WHOLE_PAGE = 500, 990  # pixels; a wide screen shows two charts side by side
_FEW_AXES = 4  # axes that have a line each
_MOST_IN_FULL = 1_000_000  # smaller counts have room for all their digits
_MOST_WRITTEN = 12  # areas per side of a matrix that has its counts in its cells
_TALLEST = 1e-4  # share of the noise; the picture cuts off smaller values
_LARGEST = 1e300  # larger numbers cannot be drawn as floats
_SHADES = ((228, 240, 250), (107, 174, 214), (8, 64, 129))  # red, green and blue, from few to many
_DARK = 0.62  # the shade from which on white is easier to read than black
_BLUE, _BAND = "#1b6ca8", "#8fb5d3"


def noise_series(levels: Sequence[LevelEntry], facts: Facts) -> dict[str, list[float | None]]:
    """Return what a report draws of the noise of levels 0 to T beside their mean counts, by its name; None where it is not stated."""
    if any(level.deviations for level in levels):
        noise = {"sd of a count": [level.deviations.most if level.deviations else None for level in levels]}
    else:
        noise = {"noise (σ)": [level.sigma for level in levels]}
    return {
        "mean count": [facts.mean_count(level.level) for level in levels],
        **noise,
        "half of the interval": [level.half_width for level in facts.levels],
        "error bound (95%)": [level.bound for level in levels],
        "threshold": [level.threshold for level in levels],
    }


def noise_picture(levels: Sequence[LevelEntry], facts: Facts, counted: str = "records") -> Markup:
    """Draw noise and error bound per level beside the mean count of its possible cells, in what is counted."""
    errors = [level.sigma for level in levels if 0 < level.sigma < _LARGEST]
    description = "The noise and the stated errors of every level, beside the mean count of its cells"
    least = _TALLEST * min(errors, default=1.0)
    series, under = noise_series(levels, facts), _noise_band(levels, facts)
    return levels_picture(series, counted, description, least=least, under=under)


def sizes_picture(facts: Facts) -> Markup:
    """Draw, per level, the share of the released counts in each size class."""
    shown = [number for number in range(len(CLASS_NAMES)) if any(level.sizes[number] for level in facts.levels)]
    names = [CLASS_NAMES[number] for number in shown]
    bars = list[Row]()
    for place, level in enumerate(facts.levels):
        ends = [0.0, *np.cumsum([100 * level.sizes[number] / max(level.rows, 1) for number in shown]).tolist()]
        for (low, high), name in zip(pairwise(ends), names, strict=True):
            bars += [{"x": place - 0.41, "x2": place + 0.41, "y": low, "y2": high, "of": name}] if high > low else []
    named = [(name, {"c": _shade(place / max(len(shown) - 1, 1))}) for place, name in enumerate(names)]
    layers = [marks("rect", bars, stroke=INK, stroke_width=0.4)]
    axes = levels_axis(range(len(facts.levels))), linear_axis("% of the rows", [0, 100])
    description = "The sizes of the released counts of every level, as shares of its rows"
    return chart([("", layers)], axes, named, description, _WIDE)


def areas_picture(facts: Facts) -> str:
    """Draw, per level and axis, the share of the areas that have a row; for many axes, that of all together.

    Draw nothing where the areas are unknown.
    """
    axes = [areas.axis for areas in facts.levels[-1].areas if areas.possible]
    lines_of = {axis: {axis} for axis in axes} if len(axes) <= _FEW_AXES else {"values of all features": {*axes}}
    series: dict[str, list[float | None]] = {name: [] for name in lines_of}
    for name, level in product(lines_of, facts.levels):
        counted = [areas for areas in level.areas if areas.axis in lines_of[name]]
        left, possible = sum(areas.left for areas in counted), sum(areas.possible or 0 for areas in counted)
        series[name].append(100 * left / possible if possible else None)
    description = "The share of the areas of the codebook that have a released count, at every level"
    return levels_picture(series, "% of the codebook", description, is_share=True) if series else ""


def series_picture(series: OrderedCounts, confidence: float, names: Names) -> Markup:
    """Draw the counts along an ordered axis as a line, with a band from the lower to the upper ends of their intervals."""
    counts, ends, interval = series.counts.tolist(), _ends(series), f"{format_percent(confidence)} interval"
    band = [
        {"x": at, "y": low, "y2": high, "of": interval, "part": at - place}
        for place, (at, low, high) in enumerate(ends)
    ]
    line = [{"x": at, "y": count, "of": "count"} for at, count in enumerate(counts)]
    labels = [_label(names.name_of(series.axis, path), path[-1:]) for path in series.paths]
    x = Scale(series.axis, (-0.02 * len(counts), 1.02 * len(counts) - 1), labels)
    y = linear_axis("records", [*counts, *(end for _, *both in ends for end in both)])
    layers = [marks("area", band), marks("line", line)]
    described = f"The released counts along {series.axis}, with their intervals"
    return chart([("", layers)], (x, y), [("count", {"c": _BLUE}), (interval, {"c": _BAND})], described, _WHOLE_PAGE)


def histograms_picture(histograms: Histograms, confidence: float, names: Names) -> Markup:
    """Draw, for some places side by side, a bar for the groups of each size and a line for its interval."""
    panels, heights, interval = list[tuple[str, list[Layer]]](), [0.0], f"{format_percent(confidence)} interval"
    for place in histograms.places:
        counts, ends = place.counts.tolist(), _ends(place)
        bars = [{"x": at - 0.4, "x2": at + 0.4, "y": 0, "y2": count, "of": "groups"} for at, count in enumerate(counts)]
        reach = [{"x": at, "y": low, "y2": high, "of": interval} for at, low, high in ends]
        called = ", ".join(_label(names.name_of(axis, path), path) for axis, path in place.areas) or "everything"
        panels.append((called, [marks("rect", bars, opacity=0.75), marks("rule", reach)]))
        heights += [*counts, *(end for _, *both in ends for end in both)]
    axes = Scale("size", (-0.9, len(histograms.sizes) - 0.1), histograms.sizes), linear_axis("groups", heights)
    description = f"The released numbers of groups by size, at level {histograms.level}"
    wide = min(_WHOLE_PAGE, 240 + 260 * len(panels))
    return chart(panels, axes, [("groups", {"c": _BLUE}), (interval, {"c": INK})], description, wide)


def matrix_picture(matrix: Matrix, names: Names, counted: str = "records") -> Markup:
    """Draw the coarsest matrix as a heat map; a small one has its counts in its cells, and a large one a key of shades."""
    labels = [_labels(names, axis, codes) for axis, codes in zip(matrix.axes, matrix.codes, strict=True)]
    rows, columns, written = [""] if len(labels) == 1 else labels[0], labels[-1], is_written(matrix)
    wide, high = (72, 36) if written else (21, 20)  # pixels of a cell
    wide = max(min(wide, (_WHOLE_PAGE - 200) // len(columns)), 280 // len(columns))
    ends = (-0.5, len(columns) - 0.5), (len(rows) - 0.5, -0.5)
    x = Scale(matrix.axes[-1], ends[0], columns)
    y = Scale(matrix.axes[0] if len(labels) > 1 else "", ends[1], rows)
    ground = marks("rect", [{"x": -0.5, "x2": ends[0][1], "y": -0.5, "y2": ends[1][0]}], fill="white")
    clear = (matrix.counts > 0) & ~matrix.may_be_zero
    of_clear = (int(matrix.counts[clear].min()), int(matrix.counts[clear].max())) if clear.any() else (1, 1)
    key = [] if written or not clear.any() else _shades_key(of_clear, counted)
    return chart(
        [("", [ground, *_heat(matrix, of_clear)])],
        (x, y),
        key,
        f"The released counts by {' and '.join(matrix.axes)}, darker for more",
        wide * len(columns) + 80,
        high=max(90, high * len(rows)),
        hatch="cells",
    )


def is_written(matrix: Matrix) -> bool:
    """Return whether a matrix is so small that its counts are written into its cells."""
    return bool(max(matrix.counts.shape) <= _MOST_WRITTEN)


def _heat(matrix: Matrix, ends: tuple[int, int]) -> list[Layer]:
    """Return the counts above zero, darker for more, and hatched those that may be zero; a count below zero has a minus,
    and a missing one nothing.
    """
    written, hatched, shaded, texts = is_written(matrix), list[Row](), list[Row](), list[Row]()
    for row, column in np.argwhere(matrix.is_released | matrix.may_be_zero).tolist():
        count, is_clear = int(matrix.counts[row, column]), not matrix.may_be_zero[row, column]
        shade = _depth(count, ends) if is_clear and count > 0 else 0.0
        cell = {"x": column - 0.5, "x2": column + 0.5, "y": row - 0.5, "y2": row + 0.5}
        if not is_clear:
            hatched.append(cell)
        elif count > 0:
            shaded.append(cell | {"c": _shade(shade)})
        if matrix.is_released[row, column] and (written or count < 0):
            text = f"{count:,}" if abs(count) < _MOST_IN_FULL else format_short(count)
            place = {"x": column, "y": row, "c": "white" if shade > _DARK else "#1a1a1a"}
            texts.append(place | {"t": text.replace("-", "−") if written else "−"})
    return [marks("rect", hatched, fill="url(#cells)"), marks("rect", shaded), marks("text", texts, dy=4)]


def _shades_key(ends: tuple[int, int], counted: str) -> list[tuple[str, Row]]:
    """Return what the shades of some counts mean, from the least to the most."""
    counts = sorted({round(of, 1 - len(str(of))) for of in map(int, np.geomspace(*ends, 5))})
    return [(f"{format_short(of)} {counted}", {"c": _shade(_depth(of, ends))}) for of in counts]


def _depth(count: int, ends: tuple[int, int]) -> float:
    """Return how dark a count is, between the least and the most, on a logarithmic scale."""
    return math.log(max(count, 1) / ends[0]) / max(math.log(ends[1] / ends[0]), 1e-3)


def _shade(share: float) -> str:
    """Return a colour from light at 0 to dark at 1."""
    parts = [np.interp(share, (0, 0.5, 1), of) for of in zip(*_SHADES, strict=True)]
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def _noise_band(levels: Sequence[LevelEntry], facts: Facts) -> list[Layer]:
    """Return marks of the levels at which most counts are small beside their noise."""
    last, finest = len(levels) - 1, facts.finest_above_noise
    if finest == last or not facts.is_noise_compared:
        return []
    first = 0.5 if finest is None else finest + 0.5
    is_narrow = last + 0.5 - first < 0.4 * (last + 1)  # too narrow for the words
    words = [{"x": first, "t": f"{'mostly left out' if levels[-1].threshold else 'small beside noise'} →"}]
    aside = {"text_anchor": "end", "dx": -5} if is_narrow else {"text_anchor": "start", "dx": 5}
    below = {"y": 20, "y2": "height"}
    return [
        marks("rect", [{"x": first, "x2": last + 0.5}], below, fill="url(#levels)", opacity=0.6),
        marks("rule", [{"x": first}], below | {"y": 0}, stroke_width=1.2, stroke_dasharray=(5, 3)),
        marks("text", words, {"y": 10}, dy=4, font_weight="bold", **aside),
    ]


def levels_picture(
    series: Mapping[str, Sequence[float | None]],
    title: str,
    description: str,
    *,
    first: int = 0,
    is_share: bool = False,
    least: float = 0.0,
    under: Sequence[Layer] = (),
) -> Markup:
    """Draw a line per series, with one value per level, in the styles from `first` on.

    Leave out a value that is zero, unknown or too large, and a line without values. A line ends at the edge where it
    falls below `least`.
    """
    drawn = {
        name: [float(value) if value is not None and 0 < value < _LARGEST else None for value in values]
        for name, values in series.items()
    }
    named = [(name, style(first + number)) for number, name in enumerate(drawn) if any(drawn[name])]
    shown = [value for name, _ in named for value in drawn[name] if value]
    y = linear_axis(title, [0, 100]) if is_share else log_axis(title, shown, least)
    rows, edge = list[Row](), y.ends[0]
    for name, _ in named:
        for level, (before, value) in enumerate(pairwise([None, *drawn[name]])):
            row: Row = {"x": level, "y": value, "of": name}
            if value and value < edge:
                row |= {"y": edge if before and before > edge else None, "is_edge": True}
            rows.append(row)
    axes = levels_axis(range(max(map(len, drawn.values())))), y
    panel = [*under, *lines(rows)]
    return chart([("", panel)], axes, named, description, _WIDE, hatch="levels" if under else "")


def _ends(of: OrderedCounts | Histogram) -> list[tuple[int, float, float]]:
    """Return the place, the lower and the upper end of every interval that is stated."""
    ends = enumerate(zip(of.low.tolist(), of.high.tolist(), strict=True))
    return [(at, low, high) for at, (low, high) in ends if math.isfinite(low + high)]


def _labels(names: Names, axis: str, paths: Sequence[Path]) -> list[str]:
    """Return what areas are called at a picture: their names, or their codes where a short name would be that of two."""
    called = [_label(names.name_of(axis, path), path) for path in paths]
    return [
        label if called.count(label) == 1 else _label(None, path) for label, path in zip(called, paths, strict=True)
    ]


def _label(name: str | None, path: Path) -> str:
    return short(name or " › ".join(path))

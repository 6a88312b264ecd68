"""Charts as inline SVG, which Vega-Lite draws: they need no network and no font, and their lines differ without colour.

A chart is a row of panels, and a panel has layers of marks: a mark per row, in a line together. The fields of rows have
fixed names: x, y, x2 and y2 are places, t is a text, c a colour, d a dash, s a shape, and `of` tells lines apart. So
what is public is always data, never the name of a field or an expression. All places and margins are set here: Vega measures
no texts, so the fonts of a machine change nothing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import count
from textwrap import wrap
from typing import Any

from markupsafe import Markup

from tasks.words.numbers import format_short

STYLES = (  # colour, seen on white and on a dark page; shape; dash: no two are alike in any of the three
    ("#1b6ca8", "circle", (1, 0)),
    ("#c8553d", "square", (5, 3)),
    ("#3a7d44", "triangle-up", (7, 2, 1, 2)),
    ("#8a5db0", "diamond", (1, 2)),
    ("#8a6d1b", "triangle-down", (5, 1, 1, 1)),
    ("#7a7a7a", "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z", (1, 4)),
    ("#d6619e", "cross", (10, 3)),
    ("#1596a0", "M0,-1L.3,-.3L1,-.3L.45,.15L.65,.9L0,.45L-.65,.9L-.45,.15L-1,-.3L-.3,-.3Z", (3, 1, 1, 1, 1, 1)),
    ("#c27c00", "triangle-left", (2, 1)),
    ("#a8433a", "triangle-right", (12, 3, 3, 3)),
    ("#5b7fde", "M0,-1L.95,-.3L.6,.8L-.6,.8L-.95,-.3Z", (4, 4)),
    ("#6f8a10", "M-1,-1L1,-1L-1,1L1,1Z", (1, 1, 6, 1)),
)
INK = "currentColor"  # that of the page's text, which is light on a dark page

Row = dict[str, Any]
Layer = dict[str, Any]

_MOST_LOG_TICKS = 10
_MOST_TICKS = 6
_LONGEST = 24  # characters of a label
_LETTER, _LINE, _GAP = 6.9, 16, 20  # pixels: the width of a letter, a line of text, and what is between panels
_FIELDS = {  # the channels of each kind of mark, and the fields that they show as they are
    "area": {"detail": "of"},
    "line": {"color": "c", "strokeDash": "d", "detail": "of"},
    "point": {"color": "c", "shape": "s"},
    "rect": {"color": "c"},
    "rule": {"color": "c", "strokeDash": "d"},
    "text": {"color": "c", "text": "t"},
}
_LINES = ("domainColor", "tickColor", "gridColor")
_CONFIG = {
    "aria": False,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {"labels": False, "title": None, "gridOpacity": 0.15} | dict.fromkeys(_LINES, INK),
    "line": {"strokeWidth": 1.5},
    "point": {"filled": True, "opacity": 1, "size": 30},
    "rule": {"color": INK},
    "text": {"color": INK, "fontSize": 12},
}
_HATCH = (
    '<defs><pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line y2="6" stroke="#8a8a8a" stroke-opacity=".7" stroke-width="1.6"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Axis:
    """The horizontal or the vertical axis of panels.

    Attributes:
        title: what it shows; empty for none.
        ends: at the left and the right, or at the bottom and the top; in the units of the rows.
        ticks: labels by place, in the same units; below a panel, as many are shown as have room.
        is_log: whether it is logarithmic.
        is_turned: whether the labels read upwards.
        is_bare: whether there are labels alone, without line, ticks and grid.
    """

    title: str
    ends: tuple[float, float]
    ticks: Mapping[Any, str]
    is_log: bool = False
    is_turned: bool = False
    is_bare: bool = False


def levels_axis(levels: Iterable[str | int]) -> Axis:
    """Return an axis of levels by their numbers and views by their names, the first one at 0; names are turned."""
    labels = [str(level) for level in levels]
    is_turned = not all(label.isdecimal() for label in labels)
    return Axis("level", (-0.5, len(labels) - 0.5), dict(enumerate(map(short, labels))), is_turned=is_turned)


def log_axis(title: str, values: Iterable[float], least: float = 1e-6) -> Axis:
    """Return a logarithmic axis with 1, 2, 5, 10, … or powers of ten, from the least value to the largest or beyond.

    Args:
        title: of the axis.
        values: those above zero have to fit.
        least: where the axis ends, whatever smaller values there are.
    """
    above = [value for value in values if value > 0] or [1.0, 10.0]
    start, most = max(min(above), least), max(*above, least)
    powers = range(math.floor(math.log10(start)), math.ceil(math.log10(most)) + 1)
    ticks = [float(f"{lead}e{power}") for power in powers for lead in (1, 2, 5)]
    first, last = sum(tick <= start for tick in ticks) - 1, sum(tick < most for tick in ticks)
    if len(shown := ticks[first : max(last, first + 1) + 1]) > _MOST_LOG_TICKS:
        shown = ticks[::3]
    every = math.ceil(len(shown) / _MOST_LOG_TICKS)
    return Axis(title, (shown[0], shown[-1]), {tick: _number(tick) for tick in shown[::every]}, is_log=True)


def linear_axis(title: str, values: Iterable[float], finest: int = 0) -> Axis:
    """Return an axis from the least of some values or below to the largest or above.

    Args:
        title: of the axis.
        values: those that have to fit.
        finest: the power of ten that is the least step between two ticks; 0 for counts.
    """
    shown = list(values) or [0.0]
    least, most = min(shown), max(shown)
    span = max(most - least, 0.06 * max(most, -least))  # or short numbers would be the same
    step = next(step for step in _steps(finest) if span <= step * _MOST_TICKS)
    first, last = math.floor(least / step), max(math.ceil(most / step), math.floor(least / step) + 1)
    start = max(first * step, least - 0.05 * step) if first == -1 else first * step  # little room for little below 0
    ticks = [round(part * step, 9) for part in range(first, last + 1) if part * step >= start]
    return Axis(title, (start, ticks[-1]), {tick: _number(tick) for tick in ticks})


def short(text: str) -> str:
    """Return both ends of a long label, which tell labels apart."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"


def room_of(labels: Iterable[str]) -> int:
    """Return the pixels that the longest of some labels takes."""
    return math.ceil(_LETTER * max(map(len, labels), default=0))


def marks(kind: str, rows: Sequence[Row], pixels: str = "", **look: Any) -> Layer:
    """Return a layer.

    Args:
        kind: area, line, point, rect, rule or text.
        rows: all with the same fields, as above.
        pixels: which places are in pixels from the panel's upper left corner, not in units of the axes: x, y or xy.
        look: other properties of the mark, as Vega-Lite has them.
    """
    there = rows[0] if rows else {}
    encoding: Layer = {
        channel: {"field": field} if channel in {"detail", "text"} else {"field": field, "scale": None}
        for channel, field in _FIELDS[kind].items()
        if field in there
    }
    encoding |= {place: {"field": place, "type": "quantitative", "scale": None, "axis": None} for place in pixels}
    encoding |= {place: {"field": place} for place in ("x2", "y2") if place in there}
    return {"data": {"values": rows}, "mark": {"type": kind, **look}, "encoding": encoding}


def style(number: int) -> Row:
    """Return colour, shape and dash of a line by its number; styles repeat after the last."""
    return dict(zip("csd", STYLES[number % len(STYLES)], strict=True))


def lines(rows: Sequence[Row]) -> list[Layer]:
    """Return lines with a point at each row; they have a gap where y is None, and no point where s is empty."""
    return [marks("line", rows), marks("point", [row for row in rows if row["s"] and row["y"] is not None])]


def chart(
    panels: Sequence[tuple[str, Sequence[Layer]]],
    axes: tuple[Axis, Axis],
    named: Sequence[tuple[str, Row]],
    description: str,
    wide: float,
    *,
    high: float = 216,
    right: float = 20,
    hatch: str = "",
) -> Markup:
    """Return panels side by side below a key, as an SVG element that shrinks with the page and is described in words.

    Args:
        panels: the title of each, and its layers, the lowest first.
        axes: the horizontal and the vertical one, of all panels.
        named: the entries of the key: names, and the fields of a line (with d), a point or square (with s) or both.
        description: plain text.
        wide: the width of all, pixels.
        high: the height of each panel, pixels.
        right: room beside the last one, pixels.
        hatch: the name of the hatching that marks are filled with as `url(#name)`; no other chart of a page has it.
    """
    from vl_convert import vegalite_to_svg  # only pages need it

    x, y = axes
    left = 42 + room_of(y.ticks.values()) if y.is_bare else 80
    below = 36 + room_of(x.ticks.values()) if x.is_turned else 44
    above = 12 + 24 * any(title for title, _ in panels)
    key, lines_of_key = _key(named, wide - left - right, above)
    top, width = above + _LINE * lines_of_key, (wide - left - right + _GAP) / len(panels) - _GAP
    beside = replace(y, title="", ticks=dict.fromkeys(y.ticks, ""))  # of the panels that follow the first one
    drawn = [
        _panel((width, high), x, beside if number else y, layers, (left, below), title)
        for number, (title, layers) in enumerate(panels)
    ]
    drawn[0]["layer"] += key
    padding = {"left": left, "top": top, "right": 0, "bottom": 0}
    layout = {"autosize": "none", "bounds": "flush", "padding": padding, "spacing": _GAP, "background": None}
    svg: str = vegalite_to_svg({"config": _CONFIG, **layout, "hconcat": drawn}, allowed_base_urls=[])
    size = f'viewBox="0 0 {wide:g} {top + high + below + 4:g}" width="100%" style="max-width: {wide:g}px"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(description)}" {size}>'
    return Markup(head + (_HATCH.format(hatch) if hatch else "") + svg[svg.index(">") + 1 :])  # noqa: S704 (Vega escapes texts)


def warm_up() -> None:
    """Draw a chart without marks: the first one of a process takes half a second, and others a twentieth."""
    chart([("", [])], (linear_axis("", []), linear_axis("", [])), [], "", 500)


def _panel(
    size: tuple[float, float], x: Axis, y: Axis, layers: Sequence[Layer], room: tuple[float, float], title: str
) -> Layer:
    """Return a panel of a width and a height, with room at its left and below for labels and titles; all in pixels."""
    (width, height), (left, below) = size, room
    each = _LINE if x.is_turned else room_of(x.ticks.values()) + 8
    every = next(step for step in _steps() if len(x.ticks) * each <= step * width)
    x = replace(x, ticks=dict([*x.ticks.items()][::every]))
    turned = {"angle": 270, "align": "right", "baseline": "middle"} if x.is_turned else {"baseline": "top"}
    of_y = wrap(y.title, max(12, int(height / 6)))
    texts = [
        marks("text", [{"x": at, "y": height + 8, "t": label} for at, label in x.ticks.items()], "y", **turned),
        marks(
            "text",
            [{"x": -8, "y": at, "t": label} for at, label in y.ticks.items()],
            "x",
            align="right",
            baseline="middle",
        ),
        marks("text", [{"x": width / 2, "y": height + below - 14, "t": x.title}], "xy", baseline="top"),
        marks("text", [{"x": 6 - left, "y": height / 2, "t": of_y}], "xy", angle=270, baseline="top"),
        marks("text", [{"x": width / 2, "y": -8, "t": title}], "xy", fontWeight=600),
    ]
    shown = [layer for layer in texts if any(row["t"] for row in layer["data"]["values"])]
    encoding = {"x": _place("x", x), "y": _place("y", y)}
    return {"width": width, "height": height, "encoding": encoding, "layer": [*layers, *shown]}


def _place(name: str, axis: Axis) -> Layer:
    scale = {"type": "log" if axis.is_log else "linear", "domain": list(axis.ends), "nice": False}
    shown = None if axis.is_bare else {"values": list(axis.ticks)}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": shown}


def _key(named: Sequence[tuple[str, Row]], width: float, bottom: float) -> tuple[list[Layer], int]:
    """Return a key that is at most so wide, its last line so many pixels above the panel, and how many lines it has."""
    sample = 28 if any("d" in look for _, look in named) else 14  # pixels of a line or a square
    each = sample + 20 + room_of(name for name, _ in named)
    columns = max(1, int(width / each))
    top = -bottom - _LINE * ((len(named) - 1) // columns)
    places = [(each * (at % columns), top + _LINE * (at // columns)) for at in range(len(named))]
    rows: list[Row] = [
        {"x": x, "x2": x + sample, "y": y, "t": name} | look for (x, y), (name, look) in zip(places, named, strict=True)
    ]
    points = [row | {"x": row["x"] + sample / 2} for row in rows if "s" in row]
    layers = [
        marks("rule", [row for row in rows if "d" in row], "xy", strokeWidth=1.5),
        marks("point", [row for row in points if "d" in row], "xy"),
        marks("point", [row for row in points if "d" not in row], "xy", size=110, stroke=INK, strokeWidth=0.4),
        marks("text", [row | {"x": row["x2"] + 5, "c": INK} for row in rows], "xy", align="left", baseline="middle"),
    ]
    return layers, math.ceil(len(named) / columns)


def _steps(finest: int = 0) -> Iterator[Any]:
    """Yield 1, 2, 5, 10, 20, 50 and so on, from a power of ten on."""
    return (lead * 10**power for power in count(finest) for lead in (1, 2, 5))


def _number(value: float) -> str:
    return format_short(round(value)) if 1 <= abs(value) < 1e15 else f"{value:g}"

"""Charts as inline SVG: they need no network, and their lines differ without colour.

A chart is a row of panels, and a panel has layers of marks, a mark per row. The fields of rows have fixed names: x, y, x2 and y2 are
places, t is a text, c a colour, `of` is the name of a line, which the key explains, and `part` one of several areas of a name.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from markupsafe import Markup

_CIRCLE = "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z"
STYLES = (  # colour, seen on white and on a dark page; shape; dash: no two are alike in any of the three
    ("#1b6ca8", _CIRCLE, (1, 0)),
    ("#c8553d", "M-.9,-.9L.9,-.9L.9,.9L-.9,.9Z", (5, 3)),
    ("#3a7d44", "M0,-1L1,.75L-1,.75Z", (7, 2, 1, 2)),
    ("#8a5db0", "M0,-1.2L1,0L0,1.2L-1,0Z", (1, 2)),
    ("#8a6d1b", "M0,1L1,-.75L-1,-.75Z", (5, 1, 1, 1)),
    ("#7a7a7a", "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z", (1, 4)),
    ("#d6619e", "M-1,-.4L-.4,-.4L-.4,-1L.4,-1L.4,-.4L1,-.4L1,.4L.4,.4L.4,1L-.4,1L-.4,.4L-1,.4Z", (10, 3)),
    ("#1596a0", "M0,-1L.3,-.3L1,-.3L.45,.15L.65,.9L0,.45L-.65,.9L-.45,.15L-1,-.3L-.3,-.3Z", (3, 1, 1, 1, 1, 1)),
    ("#c27c00", "M-1,0L.75,-1L.75,1Z", (2, 1)),
    ("#a8433a", "M1,0L-.75,-1L-.75,1Z", (12, 3, 3, 3)),
    ("#5b7fde", "M0,-1L.95,-.3L.6,.8L-.6,.8L-.95,-.3Z", (4, 4)),
    ("#6f8a10", "M-1,-1L1,-1L-1,1L1,1Z", (1, 1, 6, 1)),
)
INK = "currentColor"  # that of the page's text, which is light on a dark page

Row = dict[str, Any]

_LONGEST = 24  # characters of a label
_LETTER, _BESIDE, _GAP = 6.9, 80, 20  # pixels: the width of a letter, the room of an axis, and what is between panels
_LINE, _NUMBERS = 18, 54  # pixels: the height of a line of text, and the room of numbers beside an axis
_LEAST = 0.68  # of its width: on a narrower screen a picture scrolls, so that people can read it
_STEPS = [lead * 10**power for power in range(7) for lead in (1, 2, 5)]  # between labels
_LIGHT = {"stroke": INK, "stroke_opacity": 0.15}
_HATCH = (
    '<defs><pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line y2="6" stroke="#8a8a8a" stroke-opacity=".7" stroke-width="1.6"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Layer:
    """Marks of one kind, as `marks` makes them."""

    kind: str
    rows: Sequence[Row]
    at: Mapping[str, float | str]
    look: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """The horizontal or the vertical axis of panels.

    Attributes:
        title: what it shows; empty for none.
        ends: at the left and the right, or at the bottom and the top; in the units of the rows.
        labels: of the places 0, 1, 2 and so on, of which as many are shown as have room, upwards where names are long; None for
            numbers.
    """

    title: str
    ends: tuple[float, float]
    labels: Sequence[str] | None = None
    is_log: bool = False


def levels_axis(levels: Iterable[str | int]) -> Scale:
    """Return an axis of levels by their numbers and views by their names, the first one at 0."""
    labels = [str(level) for level in levels]
    return Scale("level", (-0.5, len(labels) - 0.5), labels)


def log_axis(title: str, values: Iterable[float], least: float = 1e-6) -> Scale:
    """Return a logarithmic axis of whole powers of ten, from the least value to the largest or beyond.

    Args:
        values: those above zero have to fit.
        least: where the axis ends, whatever smaller values there are.
    """
    above = [value for value in values if value > 0] or [1.0, 10.0]
    low, high = max(min(above), least), max(*above, least)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    first -= float(f"1e{first}") > low  # a logarithm is rounded
    last = max(last + (float(f"1e{last}") < high), first + 1)
    return Scale(title, (float(f"1e{first}"), float(f"1e{last}")), is_log=True)


def linear_axis(title: str, values: Iterable[float]) -> Scale:
    """Return an axis from the least of some values or below to the largest or above."""
    shown = list(values) or [0.0]
    least, most = min(shown), max(shown)
    return Scale(title, (least, max(most, least + 1e-9 if least != most else least + 1)))


def short(text: str) -> str:
    """Return both ends of a long label, which tell labels apart."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"


def room_of(labels: Iterable[str]) -> int:
    """Return the pixels that the longest of some labels takes, about."""
    return math.ceil(_LETTER * max(map(len, labels), default=0))


def marks(kind: str, rows: Sequence[Row], at: Mapping[str, Any] | None = None, **look: Any) -> Layer:
    """Return a layer.

    Args:
        kind: area, line, point, rect, rule or text.
        rows: all with the same fields, as above.
        at: places in pixels in place of fields, such as {"y": 10}; `width` and `height` are those of the panel.
        look: attributes of the mark in SVG, with `_` for `-`; of a text also dx and dy, pixels.
    """
    return Layer(kind, rows, at or {}, look)


def style(number: int) -> Row:
    """Return colour, shape and dash of a line by its number; styles repeat after the last."""
    return dict(zip("csd", STYLES[number % len(STYLES)], strict=True))


def lines(rows: Sequence[Row]) -> list[Layer]:
    """Return lines with a point at each row; they have a gap where y is None, and no point where a line ends at the edge."""
    points = [row for row in rows if row["y"] is not None and not row.get("is_edge")]
    return [marks("line", rows), marks("point", points)]


def chart(
    panels: Sequence[tuple[str, Sequence[Layer]]],
    axes: tuple[Scale, Scale],
    named: Sequence[tuple[str, Row]],
    description: str,
    wide: float,
    *,
    high: float = 216,
    hatch: str = "",
) -> Markup:
    """Return panels side by side below a key, as an SVG element that shrinks with the page and is described in words.

    Args:
        panels: the title of each, and its layers, the lowest first.
        axes: the horizontal and the vertical one, of all panels.
        named: the entries of the key: names, and their colour, with shape and dash for lines.
        description: plain text.
        wide: the width of all, pixels, about.
        high: the height of each panel, pixels.
        hatch: the name of the hatching that marks are filled with as `url(#name)`; no other chart of a page has it.
    """
    x, y = (_nice(axis) for axis in axes)
    width, left = (wide - _BESIDE + _GAP) / len(panels) - _GAP, _beside(y, high)
    columns = max(1, int(wide) // (room_of(name for name, _ in named) + 50))
    above = _LINE * -(-len(named) // columns) + (_LINE + 6 if any(title for title, _ in panels) else 10)
    parts, below = list[str](), 0.0
    for number, (title, layers) in enumerate(panels):
        place_x, place_y = _placing(x, 0, width), _placing(y, high, 0)
        drawn, below = _axes(x, y, width, high, is_first=not number)
        for layer in layers:
            drawn += _drawn(layer, dict(named), (place_x, place_y), (width, high))
        drawn.append(_text(title, width / 2, -8, font_weight=600))
        parts += [
            f'<g transform="translate({_short(left + number * (width + _GAP))},{_short(above)})">',
            *drawn,
            "</g>",
        ]
    parts += _key(named, columns, left)
    across, down = math.ceil(left + len(panels) * (width + _GAP)), math.ceil(above + high + below)
    size = (
        f'viewBox="0 0 {across} {down}" width="100%" style="max-width: {across}px; min-width: {_LEAST * across:.0f}px"'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(description)}" {size}>'
    return Markup(head + (_HATCH.format(hatch) if hatch else "") + "".join(parts) + "</svg>")  # noqa: S704 (texts are escaped)


def _nice(axis: Scale) -> Scale:
    """Return an axis of numbers that begins and ends at round ones."""
    low, high = axis.ends
    if axis.labels is not None or axis.is_log:
        return axis
    step = _step(high - low, 10)
    return replace(axis, ends=(math.floor(low / step) * step, math.ceil(high / step) * step))


def _step(length: float, count: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten of which about `count` make a length."""
    power = 10.0 ** math.floor(math.log10(length / count))
    error = length / count / power
    return power * (
        10 if error >= math.sqrt(50) else 5 if error >= math.sqrt(10) else 2 if error >= math.sqrt(2) else 1
    )


def _rounds(low: float, high: float, count: float) -> list[float]:
    """Return the multiples of such a step between two numbers."""
    step = _step(high - low, count)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _placing(axis: Scale, first: float, last: float) -> Callable[[float], float]:
    """Return the map from the units of an axis to pixels."""
    of = math.log10 if axis.is_log else float
    begin, end = map(of, axis.ends)
    return lambda value: first + (of(value) - begin) / (end - begin or 1) * (last - first)


def _is_long(axis: Scale, pixels: float) -> bool:
    labels = [short(label) for label in axis.labels or ()]
    return len(labels) * (room_of(labels) + 8) > pixels and not all(label.isdecimal() for label in labels)


def _labelled(axis: Scale, pixels: float, *, is_upright: bool) -> list[tuple[float, str]]:
    """Return the places of an axis that have a label, and the labels, as many as have room."""
    if axis.labels is not None:
        labels = [short(label) for label in axis.labels]
        room = 16 if is_upright or _is_long(axis, pixels) else room_of(labels) + 8
        every = next(of for of in _STEPS if len(labels) * room <= of * pixels)
        return [(float(at), labels[at]) for at in range(0, len(labels), every)]
    low, high = axis.ends
    if not axis.is_log:
        return [(value, _number(value)) for value in _rounds(low, high, 6)]
    first, last = round(math.log10(low)), round(math.log10(high))
    leads = (1, 2, 5) if last - first <= 2 else (1,)
    powers = [round(of) for of in _rounds(first, last, min(last - first, 8))]
    values = [float(f"{lead}e{power}") for power in powers for lead in leads]
    return [(value, _number(value)) for value in values if value <= high]


def _number(value: float) -> str:
    """Return a number at an axis: with few digits, and from a hundred thousand on with a letter or a power of ten."""
    size = abs(value)
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if 1e5 <= size < 1e15 and size >= 10**power:
            text = f"{size / 10**power:.4g}{letter}"
            break
    else:
        text = f"{size:,.10g}" if 1 <= size < 1e15 else f"{size:g}"
    return f"−{text}" if value < 0 else text


def _beside(axis: Scale, pixels: float) -> float:
    """Return the room that labels and title of a vertical axis take."""
    labels = room_of(label for _, label in _labelled(axis, pixels, is_upright=True)) + 8
    return (max(labels, _NUMBERS) if axis.labels is None else labels) + (_LINE + 4 if axis.title else 4)


def _axes(x: Scale, y: Scale, width: float, high: float, *, is_first: bool) -> tuple[list[str], float]:
    """Return grid, ticks, labels and titles of the axes of a panel, and how far they reach below it."""
    place_x, place_y = _placing(x, 0, width), _placing(y, high, 0)
    grid, rest, is_long = list[str](), list[str](), x.labels is not None and _is_long(x, width)
    across = _labelled(x, width, is_upright=False)
    for at, label in ((place_x(value), label) for value, label in across):
        grid.append(_line(at, 0, at, high, **_LIGHT))
        rest.append(_line(at, high, at, high + 5, stroke=INK))
        rest.append(_text(label, at + 4 if is_long else at, high + (8 if is_long else 17), turned=is_long))
    for at, label in ((place_y(value), label) for value, label in _labelled(y, high, is_upright=True)):
        grid.append(_line(0, at, width, at, **_LIGHT))
        rest += [_line(-5, at, 0, at, stroke=INK), _text(label, -8, at + 4, text_anchor="end")] if is_first else []
    ends = [_line(0, high, width, high, stroke=INK), _line(0, 0, 0, high, stroke=INK)]
    below = (room_of(label for _, label in across) + 8 if is_long else _LINE) + 6
    rest.append(_text(x.title, width / 2, high + below + 12))
    rest += [_text(y.title, 14 - _beside(y, high), high / 2, turned=True, text_anchor="middle")] if is_first else []
    return [*grid, *(f'<g class="role-axis-domain">{end}</g>' for end in ends), *rest], below + (
        _LINE if x.title else 0
    )


def _drawn(
    layer: Layer,
    named: Mapping[str, Row],
    placing: tuple[Callable[[float], float], Callable[[float], float]],
    size: tuple[float, float],
) -> list[str]:
    """Return the marks of a layer in the pixels of its panel."""
    whole = dict(zip(("width", "height"), size, strict=True))

    def place(row: Row, name: str) -> float:
        value = layer.at.get(name)
        if value is None:
            return placing["xy".index(name[0])](row[name])
        return whole[value] if isinstance(value, str) else value

    def ends(row: Row) -> tuple[float, float, float, float]:
        second = (name if name in row or name in layer.at else name[0] for name in ("x2", "y2"))
        return place(row, "x"), place(row, "y"), *(place(row, name) for name in second)  # type: ignore[return-value]

    if layer.kind in {"line", "area"}:
        return _connected(layer, named, place)
    drawn = []
    for row in layer.rows:
        known: Row = named.get(row.get("of", ""), {})
        colour: str = row.get("c") or known.get("c", INK)
        if layer.kind == "rect":
            x1, y1, x2, y2 = ends(row)
            path = f"M{_short(x1)},{_short(y1)}H{_short(x2)}V{_short(y2)}H{_short(x1)}Z"
            drawn.append(f'<path d="{path}"{_attributes({"fill": colour} | layer.look)}/>')
        elif layer.kind == "rule":
            drawn.append(_line(*ends(row), **({"stroke": colour} | layer.look)))
        elif layer.kind == "text":
            drawn.append(_text(row["t"], place(row, "x"), place(row, "y"), **({"fill": colour} | layer.look)))
        elif row["y"] is not None:
            drawn.append(_symbol(place(row, "x"), place(row, "y"), str(known.get("s", _CIRCLE)), colour, 2.7))
    return drawn


def _connected(layer: Layer, named: Mapping[str, Row], place: Callable[[Row, str], float]) -> list[str]:
    """Return the lines or the areas of a layer, one for each name and part."""
    groups: dict[tuple[Any, Any], list[Row]] = {}
    for row in layer.rows:
        groups.setdefault((row.get("of"), row.get("part")), []).append(row)
    drawn = []
    for (name, _), rows in groups.items():
        known: Row = named.get(name, {})
        if layer.kind == "area":
            outline = [(place(row, "x"), place(row, "y")) for row in rows] + [
                (place(row, "x"), place(row, "y2")) for row in rows[::-1]
            ]
            path = "L".join(f"{_short(x)},{_short(y)}" for x, y in outline)
            drawn.append(f'<path d="M{path}Z"{_attributes({"fill": known.get("c", INK)} | layer.look)}/>')
            continue
        path, pen = "", "M"
        for row in rows:
            if row["y"] is None:
                pen = "M"
            else:
                path, pen = f"{path}{pen}{_short(place(row, 'x'))},{_short(place(row, 'y'))}", "L"
        look = {"stroke": known.get("c", INK), "fill": "none", "stroke_width": 1.5}
        dash = {"stroke_dasharray": known["d"]} if "d" in known else {}
        drawn += [f'<path d="{path}"{_attributes(look | dash | layer.look)}/>'] if path else []
    return drawn


def _key(named: Sequence[tuple[str, Row]], columns: int, left: float) -> list[str]:
    """Return what the looks of marks mean, above the panels."""
    wide, entries = room_of(name for name, _ in named) + 50, list[str]()
    for number, (name, look) in enumerate(named):
        x, y = left + number % columns * wide, number // columns * _LINE + 10
        entries.append(_symbol(x + 6, y, look.get("s", "M-1.2,-1.2L1.2,-1.2L1.2,1.2L-1.2,1.2Z"), look.get("c", INK), 4))
        entries.append(_text(name, x + 16, y + 4, text_anchor="start"))
    return ['<g class="role-legend-entry">', *entries, "</g>"] if entries else []


def _symbol(x: float, y: float, shape: str, colour: str, size: float) -> str:
    at = f"scale({size}) translate({_short(x / size)},{_short(y / size)})"
    return f'<path transform="{at}" d="{shape}" fill="{colour}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, **look: Any) -> str:
    ends = {"x1": _short(x1), "y1": _short(y1), "x2": _short(x2), "y2": _short(y2)}
    return f"<line{_attributes(ends | look)}/>"


def _text(text: str, x: float, y: float, *, turned: bool = False, dx: float = 0, dy: float = 0, **look: Any) -> str:
    """Return a text; one that is turned is read upwards, and ends at its place."""
    if not text:
        return ""
    at = f"translate({_short(x + dx)},{_short(y + dy)}){' rotate(-90)' if turned else ''}"
    plain = {
        "font_family": "system-ui, sans-serif",
        "font_size": 12,
        "fill": INK,
        "text_anchor": "end" if turned else "middle",
    }
    return f'<text transform="{at}"{_attributes(plain | look)}>{escape(text)}</text>'


def _attributes(look: Mapping[str, Any]) -> str:
    texts = {name: " ".join(map(str, of)) if isinstance(of, tuple) else of for name, of in look.items()}
    return "".join(f' {name.replace("_", "-")}="{escape(str(of))}"' for name, of in texts.items())


def _short(value: float) -> str:
    """Return pixels with at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if round(value, 2) else "0"

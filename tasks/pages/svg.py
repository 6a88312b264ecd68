"""Charts as inline SVG, which Vega-Lite draws: they need no network, and their lines differ without colour.

A chart is a row of panels, and a panel has layers of marks, a mark per row. The fields of rows have fixed names: x, y, x2 and y2 are
places, t is a text, c a colour, and `of` is the name of a line, which the key explains. So what is public is always data, never the name
of a field; labels of axes are literals of one expression.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

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

_LONGEST = 24  # characters of a label
_LETTER, _BESIDE, _GAP = 6.9, 80, 20  # pixels: the width of a letter, the room of an axis, and what is between panels
_LEAST = 0.68  # of its width: on a narrower screen a picture scrolls, so that people can read it
_STEPS = [lead * 10**power for power in range(7) for lead in (1, 2, 5)]  # between labels
_NUMBER = "format(datum.value, abs(datum.value) >= 1e15 ? '~e' : abs(datum.value) >= 1e5 ? '.3~s' : abs(datum.value) >= 1 ? ',' : '~g')"
_INKS = dict.fromkeys(("labelColor", "titleColor", "domainColor", "tickColor", "gridColor"), INK)
_CONFIG = {
    "aria": False,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 12},
    "axis": _INKS
    | {"gridOpacity": 0.15, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400, "labelLimit": 0},
    "legend": {
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 0,
        "orient": "top",
        "title": None,
        "symbolSize": 60,
    },
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
        look: other properties of the mark, as Vega-Lite has them.
    """
    there = rows[0] if rows else {}
    encoding: Layer = {place: {"field": place} for place in ("x2", "y2") if place in there}
    encoding |= {"color": {"field": "c", "scale": None}} if "c" in there else {}
    encoding |= {"text": {"field": "t"}} if "t" in there else {}
    encoding |= {place: {"value": value} for place, value in (at or {}).items()}
    return {"data": {"values": rows}, "mark": {"type": kind, **look}, "encoding": encoding}


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
    from vl_convert import vegalite_to_svg  # only pages need it

    x, y = axes
    width = (wide - _BESIDE + _GAP) / len(panels) - _GAP
    looks = _looks(named, int(wide)) if named else {}
    drawn = [
        {
            "width": width,
            "height": high,
            "encoding": {"x": _place("x", x, width), "y": _place("y", y, high, is_first=not number)},
            "layer": [
                marks("point", []) | {"encoding": {name: look for name, look in looks.items() if name != "strokeDash"}},
                *(_with_looks(layer, looks) for layer in layers),
                marks("text", [{"t": title}], {"x": width / 2, "y": -8}, fontWeight=600),
            ],
        }
        for number, (title, layers) in enumerate(panels)
    ]
    svg: str = vegalite_to_svg(
        {"config": _CONFIG, "background": None, "spacing": _GAP, "hconcat": drawn}, allowed_base_urls=[]
    )
    whole = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    across, down = whole.groups() if whole else (f"{wide:g}", f"{high:g}")
    size = f'viewBox="0 0 {across} {down}" width="100%" style="max-width: {across}px; min-width: {_LEAST * float(across):.0f}px"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(description)}" {size}>'
    return Markup(head + (_HATCH.format(hatch) if hatch else "") + svg[svg.index(">") + 1 :])  # noqa: S704 (Vega escapes texts)


def warm_up() -> None:
    """Draw a chart without marks: the first one of a process takes half a second, and others a twentieth."""
    chart([("", [])], (linear_axis("", []), linear_axis("", [])), [], "", 500)


def _looks(named: Sequence[tuple[str, Row]], wide: int) -> dict[str, Layer]:
    """Return what marks of named lines look like, and the key that explains them."""
    names = [name for name, _ in named]
    has_shapes = any("s" in look for _, look in named)
    columns = max(1, wide // (room_of(names) + 50))
    key: Layer = {"columns": columns, "columnPadding": 10 + room_of(names) // 4}
    key |= {"symbolStrokeWidth": 0} if has_shapes else {"symbolType": "square", "symbolSize": 130}

    def look(field: str) -> Layer:
        scale = {"domain": names, "range": [of.get(field, INK) for _, of in named]}
        return {"field": "of", "type": "nominal", "sort": None, "scale": scale, "legend": key}

    return {"color": look("c")} | ({"shape": look("s"), "strokeDash": look("d")} if has_shapes else {})


def _with_looks(layer: Layer, looks: Mapping[str, Layer]) -> Layer:
    """Return a layer whose marks look as the key says, where they are named."""
    rows, kind = layer["data"]["values"], layer["mark"]["type"]
    if not rows or "of" not in rows[0]:
        return layer
    taken = {"line": ("color", "strokeDash"), "point": ("color", "shape")}.get(kind, ("color",))
    detail = {"detail": {"field": "part"}} if "part" in rows[0] else {}
    own = {name: looks[name] | {"legend": None} for name in taken if name in looks}
    return layer | {"encoding": detail | layer["encoding"] | own}


def _place(name: str, axis: Scale, pixels: float, *, is_first: bool = True) -> Layer:
    """Return what Vega-Lite needs to know of an axis; of the panels after the first one, the vertical axis has no labels."""
    shown: Layer = {"title": axis.title or None, "labels": is_first, "labelOverlap": False}
    if axis.labels is None:
        shown |= {"labelExpr": _NUMBER, "minExtent": 54 if name == "y" else 0}
        decades = round(math.log10(axis.ends[1] / axis.ends[0])) if axis.is_log else 0
        shown |= {"tickCount": min(decades, 8) or 6}
        if decades in {1, 2}:
            shown |= {
                "values": [of * axis.ends[0] for of in (1, 2, 5, 10, 20, 50, 100)[: 3 * decades + 1]],
                "tickCount": 8,
            }
    else:
        labels = [short(label) for label in axis.labels]
        is_long = len(labels) * (room_of(labels) + 8) > pixels and not all(label.isdecimal() for label in labels)
        room = 16 if is_long or name == "y" else room_of(labels) + 8
        every = next(of for of in _STEPS if len(labels) * room <= of * pixels)
        shown |= {"values": [*range(0, len(labels), every)], "labelAngle": 270 if is_long and name == "x" else 0}
        shown |= {"minExtent": room_of(labels) + 8} if is_long or name == "y" else {}
        shown["labelExpr"] = f"{json.dumps(labels, ensure_ascii=False)}[datum.value]"
    shown |= {"title": None} if not is_first else {"titleAnchor": "middle", "titleLimit": 0}
    scale = {"type": "log" if axis.is_log else "linear", "domain": list(axis.ends), "zero": False}
    nice = axis.labels is None and not axis.is_log
    return {"field": name, "type": "quantitative", "scale": scale | {"nice": nice}, "axis": shown}

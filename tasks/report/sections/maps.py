"""The maps of a report: areas in shades of their totals, hatched where these may be noise, and blank where they are 0."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from tasks.atlas.drawings import drawn_shapes
from tasks.atlas.names import Names
from tasks.atlas.shapes import Shapes
from tasks.report.sections.numbers import behind
from tasks.report.sections.totals import AreaTotals
from tasks.tree.axis import IntArray
from tasks.words.numbers import format_percent, format_rounded
from tasks.words.readers import Spec, level_called

MAP_STYLE = """.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem }
.maps figure { margin: 1rem 0; min-width: 0 }
.maps h3 { margin: 0 0 .4rem }
.map path { stroke: #fff; stroke-width: 1; vector-effect: non-scaling-stroke; stroke-linejoin: round }
.map .n, .map .z { stroke: #bbb; stroke-width: .6 } .map .z, .z { fill: #fff; background: #fff }
.map .c0, .c0 { fill: #cfe1f2; background: #cfe1f2 } .map .c1, .c1 { fill: #94c4df; background: #94c4df }
.map .c2, .c2 { fill: #4a98c9; background: #4a98c9 } .map .c3, .c3 { fill: #1b69af; background: #1b69af }
.map .c4, .c4 { fill: #08306b; background: #08306b }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .4rem 0; padding: 0; font-size: .875rem }
.key i { display: inline-block; width: 1.1rem; height: .85rem; margin-right: .4rem; vertical-align: -.05rem; border: 1px solid #888;
    print-color-adjust: exact }
.key .n { background: repeating-linear-gradient(135deg, #fff 0 3px, #999 3px 4px) }
@media print { .maps { grid-template-columns: 1fr 1fr } }
"""

_WIDEST, _TALLEST = 480, 560  # pixels
_MOST = 40_000  # characters that the paths of a map have
_CLASSES = 5
_NOISE, _ZERO = -1, -2  # in place of a class of counts


def maps_section(
    maps: Sequence[AreaTotals], shapes: Shapes, names: Names, spec: Spec, what: str, confidence: float
) -> str:
    """Return the section of the maps; empty if there is none.

    Args:
        maps: the totals that they show.
        shapes: of areas; likewise `names`.
        names: of areas.
        spec: the published spec.
        what: the word for what is counted.
        confidence: of each interval.
    """
    percent = format_percent(confidence)
    figures = [figure for totals in maps if (figure := _figure(totals, shapes, names, spec, what, percent))]
    return f'<h2>On the map</h2>\n<div class="maps">\n{"".join(figures)}\n</div>' if figures else ""


def _figure(totals: AreaTotals, shapes: Shapes, names: Names, spec: Spec, what: str, percent: str) -> str:
    place, word = (totals.axis, totals.level), level_called(spec, totals.axis, totals.level_name)
    keys, drawings = drawn_shapes(shapes, {place: totals.paths}, _MOST)
    if place not in keys:
        return ""
    drawing = drawings[keys[place]]
    limits, stands_out = _limits(totals.counts[totals.stands_out]), totals.stands_out
    classes = np.searchsorted(limits, totals.counts, side="right")
    classes = np.where(stands_out, classes, np.where(totals.counts == 0, _ZERO, _NOISE))
    title = _title(totals.axis)
    called = [names.called(totals.axis, path) for path in totals.paths]
    picture = _picture(title, totals, word, drawing, classes, called)
    without = drawing["d"].count(None)
    shown = classes[[d is not None for d in drawing["d"]]]
    missing = f" {without:,} of {len(totals.paths):,} areas have no shape." if without else ""
    caption = f"Released {what} by {escape(word)}{_noise(totals, percent, is_hatched=_NOISE in shown)}{missing}"
    order = np.argsort(-totals.counts, kind="stable").tolist()
    if totals.ranges:
        heads, ends = (
            ["count", f"low ({percent})", f"high ({percent})"],
            (totals.counts, totals.ranges.low, totals.ranges.high),
        )
        rows = [[escape(called[area]), *(f"{of[area]:,}" for of in ends)] for area in order]
    elif totals.noise is None:
        heads, rows = ["count"], [[escape(called[area]), f"{totals.counts[area]:,}"] for area in order]
    else:
        heads = ["count", "above twice the noise"]
        rows = [
            [escape(called[area]), f"{totals.counts[area]:,}", "yes" if stands_out[area] else "no"] for area in order
        ]
    table = behind([escape(word), *heads], rows, of="map")
    return f"<figure><h3>{escape(title)}</h3>{picture}{_key(limits, shown)}<figcaption>{caption}</figcaption>{table}</figure>\n"


def _noise(totals: AreaTotals, percent: str, *, is_hatched: bool) -> str:
    """Return how the map tells noise from signal, to follow what it counts."""
    if totals.ranges:
        hatched = f" Hatched areas may be noise: the {percent} intervals of their totals reach 0." if is_hatched else ""
        return f".{hatched} Each area is judged by itself."
    if totals.noise is None:
        hatched = " Hatched areas count less than 0." if is_hatched else ""
        return f", added up from level {totals.of_level}.{hatched} No interval is stated here for these totals."
    twice = f"{format_rounded(2 * totals.noise)}, twice the noise of such a sum"
    begin = f", added up from level {totals.of_level}."
    if is_hatched:
        return f"{begin} Hatched areas may be noise: their totals are at most {twice}."
    return f"{begin} Shaded totals are above {twice}." if totals.noise and totals.stands_out.any() else begin


def _title(axis: str) -> str:
    return {"origin": "Where trips begin", "destination": "Where trips end"}.get(axis, f"By {axis}")


def _limits(counts: IntArray) -> list[int]:
    """Return where the classes of a map begin, but for the first: in whole numbers of two digits, with as many areas in each."""
    if not len(counts):
        return []
    cuts = np.quantile(counts, np.linspace(0, 1, _CLASSES + 1)[1:-1])
    rounded = {int(float(f"{cut:.1e}")) for cut in cuts.tolist()}
    return sorted(cut for cut in rounded if counts.min() < cut <= counts.max())


def _key(limits: Sequence[int], classes: IntArray) -> str:
    """Return what the shades of a map mean, in words."""
    if not limits:
        words = ["above 0"]
    else:
        between = [f"{low:,} to {high - 1:,}" for low, high in pairwise(limits)]
        words = [f"under {limits[0]:,}", *between, f"{limits[-1]:,} or more"]
    items = [f'<li><i class="{_shade(number, len(words))}"></i>{word}</li>' for number, word in enumerate(words)]
    noise = ['<li><i class="n"></i>may be noise</li>'] if (classes == _NOISE).any() else []
    zero = ['<li><i class="z"></i>counts 0</li>'] if (classes == _ZERO).any() else []
    items = items if (classes >= 0).any() else []
    return f'<ul class="key">{"".join([*noise, *items, *zero])}</ul>'


def _shade(number: int, classes: int) -> str:
    """Return the CSS class of a class of counts: the darkest one is that of the largest counts."""
    if number < 0:
        return {_NOISE: "n", _ZERO: "z"}[number]
    return f"c{number + _CLASSES - max(classes, 1) if classes < _CLASSES else number}"


def _picture(
    title: str,
    totals: AreaTotals,
    word: str,
    drawing: Mapping[str, Any],
    classes: IntArray,
    called: Sequence[str],
) -> str:
    """Return a map as an SVG element, in which an area tells what it is called and what it counts."""
    width, height = drawing["width"], drawing["height"]
    many = max(int(classes.max()) + 1, 1)
    paths = []
    for area, d in enumerate(drawing["d"]):
        if d is None:
            continue
        shade = f'class="{_shade(int(classes[area]), many)}"'
        if classes[area] == _NOISE:
            shade += f' fill="url(#hatch-{totals.level}-{_slug(totals.axis)})"'
        paths.append(f'<path {shade} d="{d}"><title>{escape(called[area])}: {totals.counts[area]:,}</title></path>\n')
    pixels = min(_WIDEST, _TALLEST * width / height)
    hatch = (
        f'<defs><pattern id="hatch-{totals.level}-{_slug(totals.axis)}" width="14" height="14" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect width="14" height="14" fill="#fff"/><rect width="4" height="14" fill="#999"/></pattern></defs>'
    )
    about = f"{title}: a map of the totals by {word}, darker for more; the table below has its numbers"
    return (
        f'<svg class="map" role="img" aria-label="{escape(about, quote=True)}" width="100%" style="max-width: {pixels:.0f}px"'
        f' viewBox="-4 -4 {width + 8} {height + 8}" fill-rule="evenodd"><title>{escape(title)}</title>'
        f"{hatch if (classes == _NOISE).any() else ''}\n{''.join(paths)}</svg>"
    )


def _slug(axis: str) -> str:
    """Return a name that an address inside the page may have, one for each axis."""
    return axis.encode().hex()

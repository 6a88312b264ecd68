"""Charts of reports and comparisons: what is drawn, whatever names say, told apart without colour, also in the dark."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from html import escape, unescape
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pages.charts import histograms_picture, matrix_picture, noise_picture, series_picture, sizes_picture
from tasks.pages.facts import CLASS_NAMES, Matrix, OrderedCounts
from tasks.pages.svg import STYLES, chart, levels_axis, linear_axis, lines, log_axis, style
from tasks.released.query.summaries import Histogram, Histograms
from tasks.words.areas import Names
from tests.support.facts import facts_of, manifest_of, terms_of, tree_of_features, tree_of_trips
from tests.support.reports import read

NAMELESS = Names({})
HOSTILE = ["<script>", "datum.x", "a.b[0]", "\\", "{signal}", "clip1", "'\"", "url(#cells)"]
SHAPE = r'translate\([^)]*\)" d="(M[^"]*)" fill="#'
GROUNDS = {"white": "#ffffff", "dark": "#14171b"}


def matrix_of(counts, below=0, names=None):
    """Return the matrix of some counts, 0 where there is no row; those less than `below` may be zero."""
    made = np.array(counts)
    codes = tuple(tuple((names[at] if names else f"{at}",) for at in range(size)) for size in made.shape)
    axes = ("datum.y", "a.b[0]") if names else ("origin", "destination")
    return Matrix(2, axes, codes, made.shape, made, made != 0, (made != 0) & (made < below))


def series_of(name, codes):
    """Return counts along an axis, with an interval but for the second one."""
    counts = np.arange(len(codes)) * 100
    low = np.where(np.arange(len(codes)) == 1, np.nan, counts - 7.0)
    return OrderedCounts(name, "level 1", tuple((code,) for code in codes), counts, low, low + 14)


def histograms_of(names):
    """Return the numbers of groups of three sizes in regions with some names."""
    counts = np.array([900, 70, 5])
    places = tuple(
        Histogram(at, (("region", (name,)),), counts, counts - 9.0, counts + 9.0) for at, name in enumerate(names)
    )
    return Histograms(2, (1, 1), ("1", "2", "3"), places, 9)


def texts_of(svg):
    """Return what is written in a chart, each text by itself."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def light_of(colour):
    """Return the relative luminance of a colour."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_names_are_shown_as_they_are():
    """Codes, axes, regions and mechanisms that look like markup, fields, expressions or ids are texts alone."""
    of_mechanisms = chart(
        [(name, lines([{"x": 1, "y": 2, "of": name}])) for name in HOSTILE],
        (levels_axis(HOSTILE), linear_axis("a.b[0]", [0, 9])),
        [(name, style(number)) for number, name in enumerate(HOSTILE)],
        "<of them>",
        4000,
    )
    eight = np.ones((8, 8), dtype=int).tolist()
    for svg, many in (
        (matrix_picture(matrix_of(eight, names=HOSTILE), NAMELESS), 2),
        (series_picture(series_of("a.b[0]", HOSTILE), 0.9, NAMELESS), 1),
        (histograms_picture(histograms_of(HOSTILE[:6]), 0.9, NAMELESS), 1),
        (of_mechanisms, 10),
    ):
        seen, texts = read(svg), texts_of(svg)
        assert set(seen.tags) <= {"svg", "g", "path", "line", "text", "defs", "pattern"}
        shown = HOSTILE[:6] if "groups" in texts else HOSTILE
        assert all(texts.count(name) >= many for name in shown), [name for name in shown if name not in texts]


def test_a_chart_is_part_of_its_page():
    """It is an image with a description, shrinks, has the page's colour, the system's font, and no ground."""
    svg = series_picture(series_of("<age> & 'more'", ["0", "1", "2"]), 0.9, NAMELESS)
    first, inside = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    described = escape("The released counts along <age> & 'more', with their intervals")
    assert re.search(
        rf'role="img" aria-label="{re.escape(described)}" viewBox="0 0 (\d+) \d+" width="100%" style="max-width: \1px; min-width: \d+px"',
        first,
    )
    assert "height=" not in first
    assert set(re.findall(r'<text[^>]* font-family="([^"]*)"', inside)) == {"system-ui, sans-serif"}
    assert set(re.findall(r'<text[^>]* fill="([^"]*)"', inside)) == {"currentColor"}
    assert "white" not in inside
    assert not re.search(r"<(rect|image|style|clipPath|linearGradient)", inside)
    assert "currentColor" in re.findall(r'role-axis-domain[^>]*><line[^>]*stroke="([^"]*)"', inside)


def test_a_chart_is_the_same_whoever_draws_it():
    """From several threads at once, and again, the same input has the same bytes."""
    drawn = [matrix_of([[number, 70], [5, -3]], below=9) for number in (40, 50)] * 4
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda matrix: matrix_picture(matrix, NAMELESS), drawn))
    assert texts == [matrix_picture(drawn[0], NAMELESS), matrix_picture(drawn[1], NAMELESS)] * 4


def test_lines_are_told_apart_without_colour():
    """Twelve lines have colours, shapes and dashes of which no two are alike, and stand out by 3 to 1 in both."""
    assert len(STYLES) == 12
    for kind in zip(*STYLES, strict=True):
        assert len(set(kind)) == len(STYLES)
    for ground, (colour, _, _) in ((ground, of) for ground in GROUNDS.values() for of in STYLES):
        low, high = sorted((light_of(ground), light_of(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3, (colour, ground)
    named = [(str(number), style(number)) for number in range(12)]
    rows = [{"x": x, "y": x, "of": name} for name, _ in named for x in (1, 2)]
    svg = chart([("", lines(rows))], (levels_axis("012"), linear_axis("", [0, 3])), named, "", 500)
    panel, key = svg.split("role-legend-entry")
    for part, kinds in (
        (panel, (r'stroke-dasharray="([^"]*)"', r'stroke="(#\w{6})"', SHAPE)),
        (key, (r'fill="(#\w{6})"', SHAPE)),
    ):
        assert all(len(set(re.findall(kind, part))) == 12 for kind in kinds)


def test_sizes_are_told_apart_without_colour(axis_of):
    """The shades of the size classes are darker for more, by steps that can be seen in grey."""
    terms = terms_of(tree := tree_of_trips(axis_of, 1, areas=8))
    facts = facts_of(tree, {(area, area): 5 * 10**area for area in range(7)}, terms)
    key = sizes_picture(facts).partition("role-legend-entry")[2]
    colours = re.findall(r'fill="#(\w{2})(\w{2})(\w{2})"', key)
    weighed = [(0.299 * int(r, 16) + 0.587 * int(g, 16) + 0.114 * int(b, 16)) / 255 for r, g, b in colours]
    shade_of = dict(zip(texts_of(key), weighed, strict=False))
    shades = [shade_of[name] for name in CLASS_NAMES if name in shade_of]
    assert len(shades) == len(colours) == 7
    assert all(one - other > 0.05 for one, other in pairwise(shades))


@pytest.mark.parametrize("areas", [3, 20])
def test_a_matrix_shows_counts_noise_and_what_is_missing(areas):
    """Noise is hatched, a count below zero has a minus, and a cell without a row nothing; a large matrix has a key."""
    counts = np.arange(areas * areas).reshape(areas, areas) * 10 + 100
    counts[0, :3] = (7, -4, 0)
    svg = matrix_picture(matrix_of(counts.tolist(), below=9), NAMELESS, "trips")
    texts, steps = texts_of(svg), 0 if areas == 3 else 5
    assert re.findall(r'<pattern id="(\w+)"', svg) == ["cells"]
    assert svg.count('fill="url(#cells)"') == 2
    cells = re.findall(r'<path[^>]* fill="(#\w{6})"', svg)
    assert len(cells) == areas * areas - 3 + steps
    lights = [light_of(colour) for colour in cells[: areas * areas - 3]]
    assert all(one >= other for one, other in pairwise(lights))
    assert lights[0] > 3 * lights[-1]
    if areas == 3:
        assert {"7", "−4", "130", "180"} <= set(texts)
        assert "trips" not in texts
    else:
        assert texts.count("−") == 1
        assert {"100 trips", "300 trips", "700 trips", "2,000 trips", "4,000 trips"} <= set(texts)
        assert "130" not in texts


def test_levels_below_the_noise_are_hatched_and_a_line_ends_at_the_edge(axis_of):
    """They begin at a dashed line, which says so; nothing is drawn below the picture, where mean counts are tiny."""
    terms = terms_of(tree := tree_of_features(axis_of, 60))
    facts = facts_of(tree, {(0,) * 60: 50, (1,) * 60: 7}, terms)
    levels = manifest_of(terms, facts).levels
    svg = noise_picture(levels, facts)
    assert 0 < facts.finest_above_noise == 60 or "small beside noise →" in texts_of(svg)
    hatched = "small beside noise →" in texts_of(svg)
    assert ('fill="url(#levels)"' in svg) == ('<pattern id="levels"' in svg) == hatched
    paths = re.findall(r'<path d="(M[^"]*)" stroke="#', svg)
    assert len(paths) == 4
    heights = [float(y) for path in paths for y in re.findall(r"[ML][^,]*,([^MLZ]*)", path)]
    assert 0 <= min(heights) < max(heights) <= 216
    exact = manifest_of(terms, facts_of(tree, {(0,) * 60: 10**9, (1,) * 60: 10**9}, terms)).levels
    assert "url(" not in noise_picture(exact, facts_of(tree, {(0,) * 60: 10**9, (1,) * 60: 10**9}, terms))


@given(st.lists(st.floats(1e-9, 1e30), min_size=1, max_size=5), st.lists(st.integers(-(10**15), 10**15), max_size=5))
def test_axes_hold_their_values(above_zero, counts):
    """From a millionth on, every value lies between the ends, which differ; those of a logarithmic axis are powers of ten."""
    for axis, values in (
        (log_axis("", above_zero), [value for value in above_zero if value >= 1e-6]),
        (linear_axis("", counts), counts),
    ):
        low, high = axis.ends
        assert all(low <= value <= high for value in values)
        assert low < high
    assert log_axis("", [3, 40_000]).ends == (1.0, 100_000.0)


@pytest.mark.parametrize(("axis", "shown"), [
    (log_axis("", [3, 40_000]), ["1", "10", "100", "1,000", "10,000", "100k"]),
    (log_axis("", [0.5, 5]), ["0.1", "0.2", "0.5", "1", "2", "5", "10"]),
    (log_axis("", [1, 1e30]), ["1", "100k", "10G", "1e+15", "1e+20", "1e+25", "1e+30"]),
    (linear_axis("", [0, 1]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    (linear_axis("", [-20, 1234567]), ["0", "200k", "400k", "600k", "800k", "1M", "1.2M"]),
])  # fmt: skip
def test_numbers_at_axes_are_few_and_short(axis, shown):
    """They are in full up to a hundred thousand; of many powers of ten, some are left out."""
    texts = texts_of(chart([("", [])], (levels_axis([]), axis), [], "", 500))
    texts = [text for text in texts if text and text != "level"]
    assert 2 <= len(texts) <= 11
    assert texts == shown


@pytest.mark.parametrize(("levels", "shown"), [(1, 1), (17, 17), (61, 13), (400, 8)])
def test_levels_are_whole_numbers_with_room(levels, shown):
    """Every level, every second, fifth, tenth and so on has its number; views are called by their names, upwards."""
    y = linear_axis("", [0.01, 0.1])
    numbers = [str(level) for level in range(levels)]
    svg = chart([("", [])], (levels_axis(numbers), y), [], "", 500)
    written = [text for text in texts_of(svg) if text.isdecimal() and text != "0"]
    assert written == numbers[:: math.ceil(levels / shown)][1:]
    assert not re.search(r"<text[^>]*rotate\(270[^>]*>\d", svg)
    views = ["0", "1", *(f"a view called {number}" for number in range(8))]
    svg = chart([("", [])], (levels_axis(views), y), [], "", 500)
    assert all(re.search(rf"<text[^>]*rotate\((270|-90)[^>]*>{of}<", svg) for of in views)

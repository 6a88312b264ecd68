"""Figures as inline SVG: they need no network and no font, and their lines differ without colour."""

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import count
from threading import RLock
from typing import Any

STYLES = (  # colour, marker, line: no two are alike in any of the three
    ("#1b6ca8", "o", "-"),
    ("#c8553d", "s", "--"),
    ("#3a7d44", "^", "-."),
    ("#7a4e9f", "D", ":"),
    ("#8a6d1b", "v", (0, (5, 1, 1, 1))),
    ("#444444", "x", (0, (1, 3))),
    ("#d6619e", "P", (0, (8, 2))),
    ("#17a2a8", "*", (0, (3, 1, 1, 1, 1, 1))),
    ("#e69f00", "<", (0, (2, 1))),
    ("#8c2d19", ">", (0, (10, 2, 2, 2))),
    ("#5b7fde", "p", (0, (4, 4))),
    ("#93b010", "+", (0, (1, 1, 5, 1))),
)

_TICKS_PER_INCH = 4  # numbers of two digits
_MOST_LOG_TICKS = 10


def line_style(number: int) -> dict[str, Any]:
    """Return the style of a line by its number, for Matplotlib's `plot` and `errorbar`; styles repeat after the last."""
    colour, marker, line = STYLES[number % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": line, "markersize": 4, "linewidth": 1.2}


_PIXELS = 100  # pixels of the page per inch of a figure

_ALONE = RLock()  # threads publish releases at once, and the whole process shares Matplotlib's settings

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its messages about fonts and its cache concern nobody

_SETTINGS: Any = {
    "svg.hashsalt": "trellis",  # makes the same picture the same text
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


def level_ticks(levels: int, inches: float) -> range:
    """Return which levels get a number on an axis, from 0 on, so that the numbers have room on so many inches."""
    room = max(1, int(_TICKS_PER_INCH * inches))
    every = next(step for step in _steps() if levels <= step * room)
    return range(0, levels, every)


def label_levels(panel: Any, labels: Sequence[str], inches: float) -> None:
    """Write under an axis of levels and views what they are called, as many as have room; names of views are turned.

    Args:
        panel: of Matplotlib.
        labels: of all levels and views, the first one at 0.
        inches: how wide the panel is.
    """
    ticks = level_ticks(len(labels), inches)
    turned = {} if all(label.isdecimal() for label in labels) else {"rotation": 90}
    panel.set_xticks(ticks, [labels[tick] for tick in ticks], parse_math=False, **turned)


def log_ticks(least: float, most: float) -> list[float]:
    """Return the numbers on a logarithmic axis: 1, 2, 5, 10, …, from the least value or below to the largest or above.

    Args:
        least: the least value; a smaller one than a millionth counts as a millionth.
        most: the largest value.
    """
    least = max(least, 1e-6)
    most = max(most, least)
    start = least / 1.05  # so that the least bar has a length
    powers = [10.0**power for power in range(math.floor(math.log10(start)), math.ceil(math.log10(most)) + 1)]
    ticks = [lead * power for power in powers for lead in (1, 2, 5)]
    first, last = sum(tick <= start for tick in ticks) - 1, sum(tick < most for tick in ticks)
    shown = ticks[max(first, 0) : last + 1]
    return shown if len(shown) <= _MOST_LOG_TICKS else powers


def _steps() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on."""
    return (lead * 10**power for power in count() for lead in (1, 2, 5))


def import_matplotlib() -> None:
    """Import what draws figures, which takes half a second, so that it is there once a page is written."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401


@contextmanager
def figure(
    width: float, height: float, columns: int = 1, margins: tuple[float, float, float, float] | None = None
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a figure with axes side by side, which share their vertical scale.

    Args:
        width: inches.
        height: inches.
        columns: how many axes.
        margins: inches left free at the left, bottom, right and top. If left out, Matplotlib finds them, which takes three
            times as long.
    """
    import matplotlib as mpl  # takes half a second to import, and only pages need it
    from matplotlib.figure import Figure

    with _ALONE, mpl.rc_context(_SETTINGS):
        drawn = Figure(figsize=(width, height), layout=None if margins else "constrained")
        if margins:
            left, bottom, right, top = margins
            drawn.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)
        axes = drawn.subplots(1, columns, sharey=True, squeeze=False)[0]
        yield drawn, list(axes)


def as_svg(drawn: Any, description: str) -> str:
    """Return a figure as an SVG element that shrinks with the page and carries a description in words."""
    import matplotlib as mpl

    text = io.StringIO()
    with _ALONE, mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's browser has other fonts
        drawn.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    element = text.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    most = f"{drawn.get_figwidth() * _PIXELS:.0f}px"
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 width="100%" style="max-width: {most}"', element, count=1)
    element = re.sub(r"'DejaVu Sans', [^;\"]*sans-serif", "system-ui, sans-serif", element)  # as the page around it
    return element.replace("<svg", f'<svg role="img" aria-label="{escape(description, quote=True)}"', 1)

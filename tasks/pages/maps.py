"""The maps of a report: areas in shades of their totals, hatched where these may be noise, and blank where they are 0."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tasks.format.stated import TextTable
from tasks.pages.facts import Facts
from tasks.released.query.summaries import AreaTotals
from tasks.tree.axis import IntArray
from tasks.words.drawings import drawn_shapes
from tasks.words.levels import Spec, level_called

_WIDEST, _TALLEST = 480, 560  # pixels
_MOST = 40_000  # characters that the paths of a map have
_CLASSES = 5
_NOISE, _ZERO = -1, -2  # in place of a class of counts


def maps_shown(facts: Facts, spec: Spec, percent: str) -> list[dict[str, Any]]:
    """Return what a template needs to draw each map.

    Args:
        facts: what the report shows, with the totals of areas, their shapes and names.
        percent: the confidence of each interval, in words.
    """
    return [shown for totals in facts.maps if (shown := _map(totals, facts, spec, percent))]


def _map(totals: AreaTotals, facts: Facts, spec: Spec, percent: str) -> dict[str, Any] | None:
    place, word = (totals.axis, totals.level), level_called(spec, totals.axis, totals.level_name)
    keys, drawings = drawn_shapes(facts.shapes, {place: totals.paths}, _MOST)
    if place not in keys:
        return None
    drawing, stands_out = drawings[keys[place]], totals.stands_out
    limits = _limits(totals.counts[stands_out])
    classes = np.searchsorted(limits, totals.counts, side="right")
    classes = np.where(stands_out, classes, np.where(totals.counts == 0, _ZERO, _NOISE))
    called = [facts.names.called(totals.axis, path) for path in totals.paths]
    drawn = classes[[d is not None for d in drawing["d"]]]
    many = max(int(classes.max()) + 1, 1)
    areas = zip(drawing["d"], classes.tolist(), called, totals.counts.tolist(), strict=True)
    ends = [None, *limits, None]
    return {
        "totals": totals,
        "drawing": drawing,
        "word": word,
        "pixels": round(min(_WIDEST, _TALLEST * drawing["width"] / drawing["height"])),
        "areas": [
            {"shade": _shade(of, many), "path": d, "called": name, "count": count} for d, of, name, count in areas if d
        ],
        "has_noise": (drawn == _NOISE).any(),
        "has_zero": (drawn == _ZERO).any(),
        "classes": [
            (_shade(number, len(limits) + 1), *between)
            for number, between in enumerate(pairwise(ends))
            if (drawn >= 0).any()
        ],
        "stands_out": stands_out.any(),
        "without_shape": drawing["d"].count(None),
        "numbers": _numbers(totals, word, called, percent),
    }


def _numbers(totals: AreaTotals, word: str, called: Sequence[str], percent: str) -> TextTable:
    """Return the totals of all areas, the largest first, with what is known of their noise."""
    columns = {word: called, "count": [f"{count:,}" for count in totals.counts]}
    if totals.ends:
        of_ends = ((f"low ({percent})", totals.ends[0]), (f"high ({percent})", totals.ends[1]))
        columns |= {head: [f"{end:,}" for end in ends] for head, ends in of_ends}
    elif totals.noise is not None:
        columns["above twice the noise"] = ["yes" if clear else "no" for clear in totals.stands_out]
    rows = [*zip(*columns.values(), strict=True)]
    return TextTable([*columns], [rows[area] for area in np.argsort(-totals.counts, kind="stable").tolist()])


def _limits(counts: IntArray) -> list[int]:
    """Return where the classes of a map begin, but for the first: in whole numbers of two digits, with as many areas in each."""
    if not len(counts):
        return []
    cuts = np.quantile(counts, np.linspace(0, 1, _CLASSES + 1)[1:-1])
    rounded = {int(float(f"{cut:.1e}")) for cut in cuts.tolist()}
    return sorted(cut for cut in rounded if counts.min() < cut <= counts.max())


def _shade(number: int, classes: int) -> str:
    """Return the CSS class of a class of counts: the darkest one is that of the largest counts."""
    if number < 0:
        return {_NOISE: "n", _ZERO: "z"}[number]
    return f"c{number + _CLASSES - max(classes, 1) if classes < _CLASSES else number}"

"""What the page needs to add areas up: what was measured of the cells of its tables, and of those above them, or what their variances follow from."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from storage.releases.terms import DENSE
from storage.tables import HIGH, LOW, NOISY, SIZE
from tasks.released.boxes import Boxes
from tasks.released.estimate import Estimate, Measured
from tasks.tree.axis import AxisLevels, FloatArray, IntArray
from tasks.tree.keys import packed

_MOST_DRAWS = 10**15  # of the cells of a table: the noise of more says nothing of their sum
_MOST_ALONE = 250_000  # measured cells of all tables of rows alone
_ROWS_ALONE = "this page has the rows of its table, and no room for what was measured of its other cells"
_MOST_ABOVE = 100_000  # measured cells, or areas, of all levels above those that are added up
MOST_NUMBERED = 2**53  # cells that have numbers in a script
_MOST_RANGES = 50_000  # of all tables together, and of 316 codes
_MOST_BESIDE = 300  # cells of views beside a tree: the page factors a matrix of them, once, in two seconds
_MOST_CODES = 400  # of strategies together: likewise


class Sums:
    """What the tables of a page share: the noise of what was measured, and the measured cells of levels above it."""

    def __init__(self, estimate: Estimate) -> None:
        """Gather nothing yet."""
        self._estimate, self._room = estimate, _MOST_RANGES
        self._room_alone = _MOST_ALONE
        self._parts, self._walked = set[int](), 0
        self._by_squares = self._least_squares()

    def of_table(self, boxes: Boxes, count: IntArray) -> dict[str, Any]:
        """Return what a table of all its cells says for sums over them: `measured` of its cells, or the ends of all `ranges` of sizes, or by a strategy.

        Where neither is there, `why` says in words why no interval of a sum follows.
        """
        measured, size = self._estimate.measured(boxes), self._estimate.folder.tree.number_of(SIZE)
        if self._estimate.source.covariance == DENSE and self._by_squares is None:
            size = 0  # its one axis; of several no ranges are stated
        why = None if measured else self._why_not()
        if measured and _most_draws(measured) > _MOST_DRAWS:
            measured, why = None, f"its noise may be a sum of more than {_MOST_DRAWS:,} draws"
        size = size if size is not None and boxes.levels[size] else None
        ranges = None if size is None else self._ranges(boxes.levels, size, count)
        if measured and size is not None and not ranges:
            measured, why = (
                None,
                "the noise of two sizes cancels out in part, and this page has no room for all of their ranges",
            )
        return {"measured": measured and self._measured(measured), "ranges": ranges, "why": why}

    def of_rows(self, level: int, boxes: Boxes) -> dict[str, Any]:
        """Return what a table of the rows of a level says for sums over its cells: what was measured of them, if it has room, and otherwise why not."""
        folder, nothing = self._estimate.folder, {"measured": None, "ranges": None}
        one = self._estimate.measured(Boxes(boxes.levels, tuple(of[:1] for of in boxes.areas))) if len(boxes) else None
        if one is None:
            return nothing | {"why": self._why_not()}
        if one.part != level or folder.manifest.adds_up_leaves:
            return nothing | {"why": _ROWS_ALONE}
        cells, possible = folder.cells(level), folder.tree.possible_cells(level)
        numbers = packed(cells.areas, folder.tree.sizes(level))
        if numbers is None or len(cells) > self._room_alone:
            return nothing | {"why": _ROWS_ALONE}
        self._room_alone -= len(cells)
        order, draws = np.argsort(numbers), np.ones(len(cells), dtype=np.int64)
        of_all = Measured(level, cells.column(NOISY)[order], draws, None if one.possible is None else draws)
        which = None if len(cells) == possible else numbers[order].tolist()
        return nothing | {"measured": self._measured(of_all) | {"cells": which}, "why": None}

    def _why_not(self) -> str | None:
        """Return why sums of cells follow from nothing that this page holds, in words; None where they follow from least squares."""
        source = self._estimate.source
        if self._by_squares:
            return None
        if source.covariance:
            beside = "views with derived columns" if self._estimate.least_squares() is None else "many cells"
            return f"it follows from least squares over {beside}, by a matrix that has no room in this page"
        if source.statistic:
            return "what was measured runs through all places, so that the noise of several follows from all of them"
        return "it follows from the levels and from views that were measured apart, by that of which the noise is the least"

    def _measured(self, measured: Measured) -> dict[str, Any]:
        self._parts.add(measured.part)
        if measured.possible is not None:
            self._walked = max(self._walked, measured.part)
        return {
            "part": measured.part,
            "noisy": measured.noisy.tolist(),
            "draws": _in_short(measured.draws),
            "possible": None if measured.possible is None else _in_short(measured.possible),
            "most": None if measured.most is None else _in_short(measured.most),
        }

    def _ranges(self, levels: AxisLevels, axis: int, count: IntArray) -> dict[str, Any] | None:
        codes = self._estimate.folder.tree.axes[axis].areas(levels[axis])
        many = count.size * (codes + 1) // 2
        if many > self._room:
            return None
        first, last = np.triu_indices(codes)
        sums = np.pad(count.reshape(-1, codes).cumsum(axis=1), ((0, 0), (1, 0)))  # sizes are the last axis
        found = self._estimate.ranges(levels, sums[:, last + 1] - sums[:, first])
        if found is None:
            return None
        self._room -= many
        *ends, draws = found
        of_ends = {end: of.ravel().tolist() for end, of in zip((LOW, HIGH), ends, strict=True)}
        return {"axis": axis, **of_ends, "draws": None if draws is None else draws.ravel().tolist()}

    def _least_squares(self) -> dict[str, Any] | None:
        """Return what the variance of any sum follows from; None where it does not, or takes more than a page has room for."""
        found, axes = self._estimate.least_squares(), self._estimate.folder.tree.axes
        if found is None or sum(len(first) for axis in axes for first in axis.first_child) > _MOST_ABOVE:
            return None
        sizes = [[axis.areas(level) for axis, level in zip(axes, at, strict=True)] for at, _ in found.views or ()]
        codes = sum(len(products) for products, _ in found.strategies.values())
        uneven = sum(of.size for *_, portions in found.trees for of in portions if of.size > 1)
        if sum(map(math.prod, sizes)) > _MOST_BESIDE or codes > _MOST_CODES or uneven > _MOST_ABOVE:
            return None
        shown: dict[str, Any] = {
            "trees": [
                {"steps": steps, "scales": scales} | _uneven(portions) for steps, scales, portions in found.trees
            ],
            "views": found.views and [{"at": list(at), "scale": scale} for at, scale in found.views],
            "fan_outs": [[_in_short(np.diff(first)) for first in axis.first_child] for axis in axes],
            "rounding": found.rounding_variance,
            "slack": found.slack,
        }
        if found.strategies:  # whole numbers, so that the data of a page are the same on every machine
            shown["strategies"] = [
                {
                    "axis": axis,
                    "products": [row[: at + 1] for at, row in enumerate(of.astype(np.int64).tolist())],
                    "scale": scale,
                }
                for axis, (of, scale) in found.strategies.items()
            ]
        return shown

    def shared(self) -> dict[str, Any]:
        """Return what all tables share: the noise of parts, and where a tree was walked the measured cells of the levels above."""
        source, walked = self._estimate.source, bool(self._walked)
        parts = [part.level for part in source.levels] if walked else sorted(self._parts)
        noises = {number: source.parts[number].noise for number in parts}
        return {
            "noises": {
                str(number): {"law": noise.law.name, "scale": noise.scale, "terms": noise.terms} if noise.law else None
                for number, noise in noises.items()
            },
            "above": self._above() if walked else None,
            "leaves": self._estimate.folder.manifest.adds_up_leaves,
            "total": source.total,
            "least_squares": self._by_squares,
            "why": self._why_none(),
        }

    def _why_none(self) -> str | None:
        """Return why the release states no interval of some numbers, so that none follows; None where it states all of them."""
        folder = self._estimate.folder
        if (threshold := folder.levels[-1].threshold) > 0:
            return (
                f"numbers below the threshold of {threshold:,} are left out of sums, and nobody knows how many they are"
            )
        if not (folder.manifest.noisy_counts or folder.manifest.covariance):
            return "the noisy counts are not published, and intervals of rows have a probability of their own"
        return None

    def _above(self) -> list[dict[str, Any]]:
        """Return the measured cells of the levels above the finest one that is added up, as far as they have room, with what these have below them."""
        folder, above, room = self._estimate.folder, list[dict[str, Any]](), _MOST_ABOVE
        for level in range(self._walked):
            cells, below = folder.cells(level), folder.children(level)
            numbers, room = packed(cells.areas, folder.tree.sizes(level)), room - len(cells)
            if room < 0 or numbers is None or folder.tree.possible_cells(level) > MOST_NUMBERED:
                break
            above.append({
                "at": list(cells.levels),
                "cells": numbers.tolist(),
                "noisy": cells.column(NOISY).tolist(),
                "below": below.noisy.tolist(),
                "children": below.cells.tolist(),
            })  # fmt: skip
        return above


def _most_draws(measured: Measured) -> int:
    """Return of how many draws a sum over a whole table can be."""
    return sum((measured.draws if measured.possible is None else measured.possible).tolist())


def _uneven(portions: Sequence[FloatArray]) -> dict[str, Any]:
    """Return the portions of the nodes of each level of a tree, None where all are alike; nothing where they are at every level."""
    shown = [{"shape": of.shape, "values": of.ravel().tolist()} if of.size > 1 else None for of in portions]
    return {"portions": shown} if any(shown) else {}


def _in_short(values: IntArray) -> int | list[int]:
    """Return whole numbers as a list; one of them if all are the same."""
    found: list[int] = values.tolist()
    return found[0] if len(set(found)) == 1 else found

"""What the page needs to add areas up: what was measured of the cells of its tables, and of those above them, and all ranges."""

from typing import Any

import numpy as np

from storage.tables import HIGH, LOW, NOISY
from tasks.released.boxes import Boxes
from tasks.released.estimate import Estimate, Measured
from tasks.tree.axis import AxisLevels, IntArray
from tasks.tree.keys import packed

_MOST_DRAWS = 10**15  # of the cells of a table: the noise of more says nothing of their sum
_MOST_ABOVE = 100_000  # measured cells of all levels above those that are added up
MOST_NUMBERED = 2**53  # cells that have numbers in a script
_MOST_RANGES = 50_000  # of all tables together, and of 316 codes
_MOST_VISITED = 20_000_000  # nodes of a tree that are compared to the ranges of one table
_ONE_BY_ONE = 50  # for how many ranges one stands of which the leaves lie apart in a tree of several axes


class Sums:
    """What the tables of a page share: the noise of what was measured, and the measured cells of levels above it."""

    def __init__(self, estimate: Estimate) -> None:
        """Gather nothing yet."""
        self._estimate, self._room = estimate, _MOST_RANGES
        self._parts, self._walked = set[int](), 0

    def of_table(self, boxes: Boxes, count: IntArray) -> dict[str, Any]:
        """Return what a table of all its cells says for sums over them: `measured` of its cells, or the ends of all `ranges` of one axis."""
        measured, ranges = self._estimate.measured(boxes), None
        if measured and _most_draws(measured) > _MOST_DRAWS:
            measured = None
        for axis, level in enumerate(boxes.levels) if measured is None else ():
            ranges = ranges or self._ranges(boxes.levels, axis, count) if level else ranges
        return {"measured": measured and self._measured(measured), "ranges": ranges}

    def _measured(self, measured: Measured) -> dict[str, Any]:
        self._parts.add(measured.part)
        if measured.possible is not None:
            self._walked = max(self._walked, measured.part)
        return {
            "part": measured.part,
            "noisy": measured.noisy.tolist(),
            "draws": _in_short(measured.draws),
            "possible": None if measured.possible is None else _in_short(measured.possible),
        }

    def _ranges(self, levels: AxisLevels, axis: int, count: IntArray) -> dict[str, Any] | None:
        folder, tree = self._estimate.folder.folder, self._estimate.folder.tree
        name, codes = tree.axes[axis].name, tree.axes[axis].areas(levels[axis])
        many, is_size = count.size // max(codes, 1) * codes * (codes + 1) // 2, folder.manifest.roles[name] == "size"
        many *= 1 if is_size or folder.manifest.crosses or len(tree.axes) == 1 else _ONE_BY_ONE
        if many > self._room or not (name in folder.ordered or is_size):
            return None
        is_quick = is_size or folder.manifest.is_grid
        if not is_quick and self._estimate.rows_added(levels) * codes * (codes + 1) > 2 * _MOST_VISITED:
            return None
        sizes = [of.areas(level) for of, level in zip(tree.axes, levels, strict=True)]
        first, last = np.triu_indices(codes)
        sums = np.moveaxis(count.reshape(sizes), axis, -1).reshape(-1, codes).cumsum(axis=1)
        sums = np.pad(sums, ((0, 0), (1, 0)))
        ends = self._estimate.ranges(levels, axis, sums[:, last + 1] - sums[:, first])
        if ends is None:
            return None
        self._room -= many
        return {"axis": axis, **{end: of.ravel().tolist() for end, of in zip((LOW, HIGH), ends, strict=True)}}

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
        }

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


def _in_short(values: IntArray) -> int | list[int]:
    """Return whole numbers as a list; one of them if all are the same."""
    found: list[int] = values.tolist()
    return found[0] if len(set(found)) == 1 else found

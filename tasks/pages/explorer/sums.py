"""What the page needs to add areas up: what was measured of the cells of its tables, how far the noise of sums goes, and all ranges."""

import math
from typing import Any

import numpy as np

from storage.tables import HIGH, LOW
from tasks.released.boxes import Boxes
from tasks.released.estimate import Estimate, Measured
from tasks.tree.axis import AxisLevels, IntArray
from tasks.uncertainty.intervals import above_share, sum_margins

_FEW_DRAWS, _WIDER = 16, 1.2  # numbers of draws that are listed: all up to this, and beyond each by this factor
_MOST_DRAWS = 10**15  # of the cells of a table: the noise of more says nothing of their sum
_SHARES = (1, 2, 3, 4, 5, 6, 8)  # numbers of sums whose intervals share the probability
_MOST_RANGES = 50_000  # of all tables together, and of 316 codes
_ONE_BY_ONE = 50  # for how many ranges one stands of which the leaves lie apart in a tree of several axes


class Sums:
    """What the tables of a page share: margins by what was measured, and the dropped cells above them."""

    def __init__(self, estimate: Estimate) -> None:
        """Gather nothing yet."""
        self._estimate, self._room = estimate, _MOST_RANGES
        self._parts, self._dropped = dict[int, tuple[Measured, int]](), dict[tuple[int, int], int]()
        self._under = {tuple[int, ...](): 0}  # what several boxes lie under, and its number

    def of_table(self, boxes: Boxes, count: IntArray) -> dict[str, Any]:
        """Return what a table of all its cells says for sums over them: `measured` of its cells, or the ends of all `ranges` of one axis."""
        measured, ranges = self._estimate.measured(boxes), None
        if measured and _most_draws(measured) > _MOST_DRAWS:
            measured = None
        for axis, level in enumerate(boxes.levels) if measured is None else ():
            ranges = ranges or self._ranges(boxes.levels, axis, count) if level else ranges
        return {"measured": measured and self._measured(measured), "ranges": ranges}

    def _measured(self, measured: Measured) -> dict[str, Any]:
        under = np.zeros(len(measured.draws), dtype=np.int64)
        for box, cells in measured.dropped.items():
            numbers = tuple(self._dropped.setdefault(cell, len(self._dropped)) for cell in cells)
            under[box] = self._under.setdefault(numbers, len(self._under))
        parts, number = self._estimate.source.parts, measured.part
        if measured.possible is None:  # independent draws of one law are added up, wherever they were measured
            number = next((own for own in self._parts if parts[own].noise == parts[number].noise), number)
        known, most = self._parts.get(number, (measured, 0))
        self._parts[number] = known, most + _most_draws(measured)
        possible = None if measured.possible is None else _in_short(measured.possible)
        return {
            "part": number,
            "noisy": measured.noisy.tolist(),
            # of cells of one draw, what lies under a dropped cell has none
            "draws": None if possible == 1 else _in_short(measured.draws),
            "possible": possible,
            "under": under.tolist() if measured.dropped else None,
        }

    def _ranges(self, levels: AxisLevels, axis: int, count: IntArray) -> dict[str, Any] | None:
        folder, tree = self._estimate.folder.folder, self._estimate.folder.tree
        name, codes = tree.axes[axis].name, tree.axes[axis].areas(levels[axis])
        many, is_size = count.size // max(codes, 1) * codes * (codes + 1) // 2, folder.manifest.roles[name] == "size"
        many *= 1 if is_size or folder.manifest.crosses or len(tree.axes) == 1 else _ONE_BY_ONE
        if many > self._room or not (name in folder.ordered or is_size):
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
        """Return what all tables share: of each part the margins by numbers of draws and of sums that share the probability, the most that each dropped cell counts."""
        source = self._estimate.source
        margins = dict[str, dict[str, Any]]()
        for number, (measured, most) in sorted(self._parts.items()):
            noise, draws = source.parts[number].noise, [*range(1, min(most, _FEW_DRAWS) + 1)]
            while draws and draws[-1] < most:
                draws.append(math.ceil(draws[-1] * _WIDER))
            z = [sum_margins(noise, np.array(draws), measured.tail(share)).tolist() for share in _SHARES]
            margins[str(number)] = {"draws": draws, "z": z}
        return {
            "margins": margins,
            "shares": list(_SHARES),
            "walked": any(measured.possible is not None for measured, _ in self._parts.values()),
            "dropped": [self._cap(*cell) for cell in self._dropped],
            "under": [list(numbers) for numbers in self._under],
            "total": source.total,
        }

    def _cap(self, level: int, cell: int) -> int:
        """Return the most that a dropped cell counts, with a margin that holds for all possible cells of its level, whatever is asked."""
        folder, confidence = self._estimate.folder, self._estimate.source.intervals.confidence
        noises = [part.noise for part in folder.levels]
        share = above_share(noises, 1 - (1 - confidence) / max(_SHARES))
        log_tail = math.log(share / 2 / folder.tree.possible_cells(level)) if share else 0.0
        margin = noises[level].quantile(log_tail) if noises[level] else 0
        return max(0, int(folder.noisy(level)[cell]) + margin)


def _most_draws(measured: Measured) -> int:
    """Return of how many draws a sum over a whole table can be."""
    return sum((measured.draws if measured.possible is None else measured.possible).tolist())


def _in_short(values: IntArray) -> int | list[int]:
    """Return whole numbers as a list; one of them if all are the same."""
    found: list[int] = values.tolist()
    return found[0] if len(set(found)) == 1 else found

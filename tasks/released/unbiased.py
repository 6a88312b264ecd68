"""What a release says of which every node was measured: unbiased counts, with intervals by their exact variances."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import numpy as np

from storage.releases.terms import DENSE, GRID, VIEWS
from storage.tables import COUNT
from tasks.format.entries import Signal
from tasks.format.tables import Rows
from tasks.released.boxes import Boxes, areas_at, level_of, possible_cells
from tasks.released.estimate import Answers, Estimate, Known, LeastSquares, without_intervals
from tasks.released.sources.protocol import Misfit, Source, measured_cells
from tasks.tree.axis import AxisLevels, BoolArray, FloatArray, IntArray
from tasks.tree.frontier import taking
from tasks.tree.views import Partition, leaves_of, level_view
from tasks.unbiased.deviations import AtOnce, ReleasedCounts, released_counts
from tasks.unbiased.grid import Grid, finest_measured, sums_of_first
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.variance import in_ranges, in_sets, portions_of, side_tree, tree_variances
from tasks.unbiased.views import TreeWithViews
from tasks.uncertainty.intervals import NO_CAP, intervals

_SHOWN = 6  # areas or codes that an explanation names

Areas = set[tuple[int, int]]  # of an axis, by their levels and numbers

NO_CODES: Mapping[str, Sequence[str]] = MappingProxyType({})


_CLOSE = 1e-6  # records: by how much sums of floats on another machine may differ

_FLOATS = 2.0**-46  # of the records: likewise


def _has_parts_of(source: Source) -> bool:
    """Return whether the levels and views are those that the rule of the variances needs: all tables of a grid; views that are measured; one axis; or none."""
    depth, views = source.tree.depth, [part for number, part in source.parts.items() if number >= len(source.levels)]
    if source.covariance in {GRID, DENSE}:
        every, axes = product(*(range(axis.depth + 1) for axis in source.tree.axes)), source.tree.axes
        at = {number: source.view(number).axis_levels for number in source.parts}
        leaves = {axis: axes[axis].depth for axis in source.strategies}
        noisy = [at[number] for number, part in source.parts.items() if part.is_measured and not part.is_exact]
        return (
            sorted(at.values()) == [*every]
            and bool(noisy)
            and bool(leaves) == (source.covariance == DENSE)
            and all(of.rows.shape == (axes[axis].areas(leaves[axis]),) * 2 for axis, of in source.strategies.items())
            and all(levels[axis] == finest for levels in noisy for axis, finest in leaves.items())
        )
    is_numbered = sorted(source.parts) == [*range(depth + 1 + len(views))]
    return is_numbered and all(part.noise for part in views) if source.covariance == VIEWS else not views


class UnbiasedEstimate(Estimate):
    """What is said of a tree of which every node was measured, or of a grid of which every combination was; of any sets of areas."""

    def __init__(self, source: Source) -> None:
        """Compute the variances of all levels."""
        super().__init__(source)
        if not _has_parts_of(source):
            raise Misfit(
                "manifest.json: covariance must be grid where, and only where, all combinations of levels of the axes are levels or views, views"
                " where, and only where, views beside a tree are measured, and dense where only finest areas of the axes with a strategy are measured, of which each has a row and a column."
            )
        parts = [(source.view(of.level), None if of.summed else of.noise) for of in source.parts.values()]
        self._counts: ReleasedCounts = released_counts(
            source.tree,
            parts,
            source.intervals.confidence,
            source.total,
            is_grid=source.covariance == GRID,
            has_views=source.covariance == VIEWS,
            strategies=source.strategies,
        )

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        terms, levels = self.source.intervals, self.source.tree.axis_levels(level)
        nodes = self.source.nodes(level)
        areas = [of.astype(np.int64) for of in nodes.areas]
        estimates = self._counts.estimates(self.source.view(level), areas, nodes.counts)
        signal, above = estimates.signals(terms.signal_rate)
        marked = int(signal.sum())
        self._known[level] = Known(
            promise="cells",
            half_width=self._counts.cell_half_width(levels),
            simultaneous_half_width=self._counts.simultaneous_half_width(levels) if terms.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
            shares=estimates.shares(),
            deviations=self._counts.deviations(levels),
        )
        bounds = self._counts.intervals(self.source.view(level), estimates, simultaneous=terms.simultaneous)
        return Rows(nodes.areas, nodes.counts, bounds, signal)

    def cells(self, number: int) -> tuple[Rows, Known]:
        """Return all cells of a view, zeros too, in the order of their areas, and what is known of them."""
        partition, counts = self.source.partition(number), self.source.counts(number)
        view, areas = partition.view, partition.cells().areas
        known = Known(
            promise="cells",
            half_width=self._counts.cell_half_width(view),
            deviations=self._counts.deviations(view),
        )
        estimates, at_once = self._counts.estimates(view, areas, counts), self.source.intervals.simultaneous
        return Rows(areas, counts, self._counts.intervals(view, estimates, simultaneous=at_once)), known

    def unsettled(self) -> Iterator[str]:
        """Yield that the counts of the leaves are not those of least squares over the noisy counts, rounded, where these are published."""
        source, tree = self.folder, self.source.tree
        if not source.manifest.noisy_counts:
            return
        leaves, nodes = Partition(tree, level_view(tree, tree.depth)), source.nodes(tree.depth)
        counts = np.zeros(len(leaves), dtype=np.int64)
        counts[leaves.places(leaves_of(tree, [of.astype(np.int64) for of in nodes.areas]))] = nodes.counts
        is_settled = self._are_settled_boxes(counts) if self._counts.crosses else self._is_settled_tree(counts, leaves)
        if not is_settled:
            yield f"{source.manifest.levels[-1].path} is not what the noisy counts are settled to."

    def _is_settled_tree(self, counts: IntArray, leaves: Partition) -> bool:
        """Return whether the sums over the first leaves are those of least squares, rounded."""
        source, tree = self.source, self.source.tree
        precisions = precisions_of([None if part.summed else part.noise for part in source.levels])
        values = least_squares(
            tree_variances(tree, precisions), precisions, lambda level: taking(iter([source.noisy(level)]))
        )
        take = taking(leaves.places(leaves_of(tree, cells)) for cells in measured_cells(source, tree.depth))
        off = 0.0
        for part in values:
            moved = off + np.cumsum(counts[take(len(part))] - part)
            if (abs(moved) > 0.5 + _CLOSE + _FLOATS * abs(part).sum()).any():
                return False
            off = float(moved[-1])
        return True

    def _are_settled_boxes(self, counts: IntArray) -> bool:
        """Return whether the sums over the first areas of all axes are those of least squares, rounded."""
        source = self.source
        numbers = {source.view(number).axis_levels: number for number in source.parts}
        values = self._counts.settle(numbers, source.noisy)
        moved = sums_of_first(counts.reshape(values.shape) - values)
        return bool((abs(moved) <= 0.5 + _CLOSE + _FLOATS * abs(values).sum()).all())

    def deviations(self, boxes: Boxes) -> FloatArray:
        """Return the standard deviations of the counts of boxes, float64, shape (boxes,), records."""
        tree, released, level = self.source.tree, self._counts, self.folder.level_of(boxes)
        if isinstance(released.variances, Grid) or tree.axis_levels(level) == boxes.levels:
            variances = released.variances.of_cells(boxes.levels, boxes.areas)
            return released.with_rounding(variances, released.runs(boxes.levels))
        variances = released.variances.of_boxes(*self._leaves(boxes))
        if released.crosses:
            return released.with_rounding(variances, released.runs(boxes.levels))
        runs = self._runs(boxes, level)
        deviations = np.zeros(len(boxes))
        for number in np.unique(runs).tolist():
            deviations[runs == number] = released.with_rounding(variances[runs == number], number)
        return deviations

    def ranges(self, levels: AxisLevels, count: IntArray) -> tuple[IntArray, IntArray, None] | None:
        """Return low and high of all ranges of the areas of a level, by a strategy; None without one."""
        [axis, *others], released = self.source.tree.axes, self._counts
        if self.source.covariance != DENSE or others:
            return None
        begins = axis.first_descendants(levels[0], axis.depth)
        first, last = np.triu_indices(axis.areas(levels[0]))
        margin = released.box_margin(
            released.with_rounding(released.variances.of_boxes([begins[first]], [begins[last + 1]]))
        )
        low, high = intervals(count[0], margin, NO_CAP if released.total is None else released.total, count[0])
        return low[None], high[None], None

    def least_squares(self) -> LeastSquares | None:
        """Return what the variance of any sum of areas follows from; None beside views with derived columns."""
        tree, source = self.source.tree, self.source
        scales = {
            number: None if of.summed else of.noise.scale if of.noise else 0.0 for number, of in source.parts.items()
        }
        trees = [(list(tree.steps), [scales[level] for level in range(tree.depth + 1)], portions_of(tree))]
        views: list[tuple[AxisLevels, float]] | None = None
        strategies = dict[int, tuple[FloatArray, float]]()
        if source.covariance in {GRID, DENSE}:  # the scale of a table is the product of one of each axis
            of_table = {source.view(number).axis_levels: scale for number, scale in scales.items()}
            finest, trees = finest_measured(of for of, scale in of_table.items() if scale), []
            for number, axis in enumerate(tree.axes):
                at = [(*finest[:number], level, *finest[number + 1 :]) for level in range(axis.depth + 1)]
                own, whole = [of_table[levels] for levels in at], of_table[finest] or 1.0
                if number in source.strategies:
                    strategies[number] = source.strategies[number].products, 1.0 if number else whole
                else:
                    shape = [-1 if of == number else 1 for of in range(len(tree.axes))]
                    portions = tuple(of.reshape(shape) for of in portions_of(side_tree(axis)))
                    trees.append(
                        ([number] * axis.depth, [of and of / whole for of in own] if number else own, portions)
                    )
        if source.covariance == VIEWS:
            beside = [source.view(number) for number in scales if number > tree.depth]
            if any(view.derived for view in beside):
                return None
            views = [(view.axis_levels, scales[view.number] or 0.0) for view in beside]
        return LeastSquares(trees, views, self._counts.rounding_variance, self._counts.slack, strategies)

    def rows_added(self, levels: AxisLevels) -> int:
        """Return how many cells the level of some axis levels has."""
        return self.source.tree.possible_cells(level_of(self.folder.folder.steps, levels))

    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of boxes."""
        first, stop = self._leaves(boxes)
        at_once = [
            self._counts.at_once(in_ranges([of[[box]] for of in first], [of[[box]] for of in stop]))
            for box in range(len(boxes) if simultaneous else 0)
        ]
        leaves = np.prod([end - begin for begin, end in zip(first, stop, strict=True)], axis=0)

        def named(box: int) -> list[Areas]:
            return [{(level, int(of[box]))} for level, of in zip(boxes.levels, boxes.areas, strict=True)]

        return self._said(self._count(boxes), self.deviations(boxes), at_once, confidence, named, leaves)

    def _sum_of(self, parts: Sequence[Boxes], confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of the sum of single boxes, whose leaves are all areas of a set of each axis."""
        chosen, count = self._chosen(parts), np.sum([self._count(box) for box in parts], axis=0)
        codes = parts[0].codes
        if codes and simultaneous:
            return without_intervals(
                count,
                "sum of rows; no interval holds at once with all others: the probability is shared out over nodes, ranges and cells of views,"
                " and a set of codes of derived columns is none of these",
            )
        at_once = [self._counts.at_once(in_sets(chosen))] if simultaneous else []
        inside = self._inside(chosen, codes) if codes else None
        leaves = np.array(
            [math.prod(int(np.count_nonzero(of)) for of in chosen) if inside is None else inside.sum(dtype=np.int64)]
        )
        named: list[Areas] = [
            {(box.levels[number], area) for box in parts for area in box.areas[number].tolist()}
            for number in range(len(chosen))
        ]
        deviation = (
            self._counts.box_deviation(in_sets(chosen)) if inside is None else self._counts.set_deviation(inside)
        )
        return self._said(count, deviation, at_once, confidence, lambda _: named, leaves, codes)

    def _inside(self, chosen: Sequence[BoolArray], codes: Mapping[str, Sequence[str]]) -> FloatArray:
        """Return which leaves have areas of a set of each axis and codes of derived columns, 1.0 or 0.0, one dimension per axis."""
        tree, derived = self.source.tree, self.folder.folder.derived
        levels, areas = tree.axis_levels(tree.depth), Partition(tree, level_view(tree, tree.depth)).cells().areas
        inside = np.all([of[own] for of, own in zip(chosen, areas, strict=True)], axis=0)
        for name, of_column in codes.items():
            inside &= derived[name].is_in(of_column, derived[name].at(tree, levels, areas))
        every: FloatArray = inside.astype(np.float64).reshape(tree.sizes(tree.depth))
        return every

    def _said(
        self,
        count: IntArray,
        deviation: FloatArray,
        at_once: Sequence[AtOnce],
        confidence: float | None,
        named: Callable[[int], list[Areas]],
        leaves: IntArray,
        codes: Mapping[str, Sequence[str]] = NO_CODES,
    ) -> Answers:
        """Return answers by deviations; or by bounds that take no normal law, which hold with all others."""
        margin = self._counts.box_margin(deviation, self._confidence(confidence))
        if at_once:
            margin = np.array([of.margin for of in at_once], dtype=np.int64)

        def how(box: int) -> str:
            if not at_once:
                return self._how(named(box), codes, is_exact=not deviation[box])
            _, parts, kind = at_once[box]
            return f"sum of {parts:,} {kind if parts == 1 else f'{kind}s'}, whose intervals all hold at once"

        low, high = intervals(count, margin, NO_CAP if self._counts.total is None else self._counts.total, count)
        return Answers(count, low, high, np.ones(len(count), dtype=bool), how, {"leaves": leaves}, deviation)

    @property
    def rounding(self) -> int:
        """By how much rounding may move the count of a box, records."""
        return self._counts.rounding

    def covariance(self, part: Sequence[Boxes], whole: Sequence[Boxes]) -> float:
        r"""Return the covariance of a part and of a whole that holds it before rounding, records squared; they differ on one axis at most.

        With the rest R, which is whole without part, :math:`2 \mathrm{Cov}(A, B) = V(A) + V(B) - V(R)`.
        """
        inside, of_whole = self._chosen(part), self._chosen(whole)
        variances, codes = self._counts.variances, (part[0].codes, whole[0].codes)
        if any(codes) and isinstance(variances, TreeWithViews):
            weights, of_all = (self._inside(of, own) for of, own in zip((inside, of_whole), codes, strict=True))
            found = [variances.of_weights(of) for of in (weights, of_all, of_all - weights)]
        else:
            differ = [not np.array_equal(*of) for of in zip(inside, of_whole, strict=True)]
            axis = differ.index(True) if any(differ) else 0
            rest = [of & ~inside[axis] if number == axis else of for number, of in enumerate(of_whole)]
            found = [float(variances.variances_of(in_sets(of))[0]) for of in (inside, of_whole, rest)]
        return (found[0] + found[1] - found[2]) / 2

    def _count(self, boxes: Boxes) -> IntArray:
        """Return the counts of boxes, the sums of their rows."""
        source = self.folder
        level = -1 if boxes.codes else source.level_of(boxes)  # the leaves make up every box, with whatever codes
        return source.rows_met(source.manifest.levels[level], boxes).sums(COUNT)

    def _chosen(self, parts: Sequence[Boxes]) -> list[BoolArray]:
        """Return per axis which finest areas are in the sum of single boxes, shape (areas,)."""
        found = [np.zeros(axis.areas(axis.depth), dtype=bool) for axis in self.source.tree.axes]
        for box in parts:
            for axis, areas, level, chosen in zip(self.source.tree.axes, box.areas, box.levels, found, strict=True):
                chosen[areas_at(axis, areas, level, axis.depth)] = True
        return found

    def absent_high(self, level: int, most_cells: int) -> int | None:  # noqa: ARG002
        """Return z of the widest interval of a cell of a level, records."""
        return self._counts.widest_margin(self.source.tree.axis_levels(level))

    def _leaves(self, boxes: Boxes) -> tuple[list[IntArray], list[IntArray]]:
        """Return per axis the first finest area in each box, and the first one after it that is outside."""
        first, stop = list[IntArray](), list[IntArray]()
        for number, (axis, level) in enumerate(zip(self.source.tree.axes, boxes.levels, strict=True)):
            begins, areas = axis.first_descendants(level, axis.depth), boxes.areas[number]
            first.append(begins[areas])
            stop.append(begins[areas + 1])
        return first, stop

    def _runs(self, boxes: Boxes, level: int) -> IntArray:
        """Return of how many runs of adjacent leaves each box is made, int64, shape (boxes,).

        The box is made of whole cells of a level. Go up as long as it is made of whole cells of the level above too. The parents of its
        cells then have one child in the box each, and others beside it: no two of these children are adjacent.
        """
        tree = self.source.tree
        runs, is_open = np.ones(len(boxes), dtype=np.int64), np.ones(len(boxes), dtype=bool)
        for below in reversed(range(1, level + 1)):
            number, above = tree.refined(below - 1)
            axis, asked = tree.axes[number], boxes.levels[number]
            if above >= asked:
                continue  # the axis was not asked for so finely
            parents = axis.ancestors(boxes.areas[number], asked, above)
            ends = is_open & (axis.children_of(above, parents) > 1)
            runs[ends] = possible_cells(tree, below - 1, boxes)[ends].astype(np.int64)
            is_open &= ~ends
        return runs

    def _how(self, named: Sequence[Areas], codes: Mapping[str, Sequence[str]], *, is_exact: bool) -> str:
        """Return how the count of a set of areas of each axis, with some codes of derived columns, was put together, in words."""
        asked = dict(codes)
        for axis, of in zip(self.source.tree.axes, named, strict=True):
            areas = sorted(of, key=lambda area: axis.first_descendants(area[0], axis.depth)[area[1]])
            asked[axis.name] = [axis.codes[level - 1][area] for level, area in areas if level]
        more = {name: f" and {len(of) - _SHOWN:,} more" if len(of) > _SHOWN else "" for name, of in asked.items()}
        texts = [f"{name} {', '.join(of[:_SHOWN])}{more[name]}" for name, of in asked.items() if of]
        counted = f"sum over {' × '.join(texts)}" if texts else "the total"
        if is_exact:
            return f"{counted}, published exactly"
        of_what = {GRID: "all combinations of levels", VIEWS: "all levels and views", DENSE: "all measured sums"}
        what = of_what.get(self.source.covariance, "all levels")
        return f"{counted}; its standard deviation follows from least squares over {what}"


class CountedOnly(Estimate):
    """What a folder says that has no codebook, where every node was measured: counts alone."""

    def rows(self, level: int) -> Rows:
        """Return the rows of the table alone."""
        return self.source.nodes(level)

    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:  # noqa: ARG002
        """Return the counts of boxes."""
        source = self.folder
        count = source.rows_met(source.manifest.levels[source.level_of(boxes)], boxes).sums(COUNT)
        why = "sum of rows; no interval: the folder has no codebook, since the noisy counts are not published"
        return without_intervals(count, why)

    def absent_high(self, level: int, most_cells: int) -> int | None:  # noqa: ARG002
        """Return None: no interval is stated."""
        return None

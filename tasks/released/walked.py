"""What a release says whose tree was walked: of counts that were repaired on the way down, or of sums of the leaves that alone were measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import mul

import numpy as np

from storage import tables
from storage.errors import StoreError
from storage.tables import COUNT, INTERVAL, NOISY, SIMULTANEOUS
from tasks.format.entries import LevelEntry, Signal
from tasks.format.tables import Rows, SlicedRows
from tasks.released.boxes import Boxes, as_one, lifted, most_leaves, possible_cells
from tasks.released.estimate import Answers, Drawn, Estimate, Known, Measured, without_intervals
from tasks.released.explanations import (
    describe_below_threshold,
    describe_cells,
    describe_leaves,
    describe_unmeasured,
    explain_missing_interval,
    explain_missing_simultaneous,
)
from tasks.released.sources.protocol import Source
from tasks.released.sources.rows_kept import RowsInMemory, RowsKept, RowsOnDisk, WalkedRows, fit_on_disk
from tasks.released.sums import box_intervals, leaf_sum_intervals, own_log_tail, simultaneous_box_intervals
from tasks.released.together import TogetherEstimate
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import locate
from tasks.uncertainty.bounds import Moves, bounds_after, reach_after
from tasks.uncertainty.intervals import (
    NO_CAP,
    Margins,
    above_share,
    intervals,
    margins_of,
    rounded_outwards,
    row_log_tail,
    row_margins,
    simultaneous_margins,
    sum_margins,
)
from tasks.uncertainty.noise_rows import EXACT, shares_of_sums
from tasks.uncertainty.signals import Margin, signal_tail, signals, tails_of
from tasks.uncertainty.sources import for_every_level, own_levels
from tasks.work.capacity import side_by_side

_MEASURED_ALONE = ", which is measured by itself; sums of the levels may differ from it"


@dataclass(frozen=True, slots=True, eq=False)
class _Repeated:
    """The rows of a level each of whose cells is the one cell that a row of the level above holds.

    Attributes:
        axis: the axis that is refined, by its number.
        child: of each of its areas, the one that it holds.
    """

    above: SlicedRows
    axis: int
    child: IntArray

    def __len__(self) -> int:
        return len(self.above)

    def __getitem__(self, rows: slice) -> Rows:
        held = self.above[rows]
        areas = list(held.areas)
        areas[self.axis] = self.child[areas[self.axis]].astype(np.int32)
        return replace(held, areas=tuple(areas))


class WalkedEstimate(Estimate):
    """What is said of counts that were repaired on the way down, or of sums of leaves that alone were measured.

    A box is asked about by the coarsest level whose whole cells make it up.
    """

    def __init__(self, source: Source) -> None:
        """Compute the margins of all levels, where every level is measured."""
        super().__init__(source)
        self._views, self._own = TogetherEstimate(source), own_levels(source.levels)
        self._moves = list[Moves]()  # of the levels of their own that were read
        self._repeats: SlicedRows | None = None  # the rows of the level before, where the next one repeats it

    @cached_property
    def _margins(self) -> list[list[Margins]]:
        """Per kind of interval in the tables, the margins of levels 0 to T; empty unless every level is measured."""
        source, terms = self.source, self.source.intervals
        if any(part.summed for part in source.levels):
            return []
        own = self._own
        asked = [(max(part.cells, 1), share) for part in own for share in (1 - terms.confidence, terms.signal_rate)]
        for _ in side_by_side(lambda of: tails_of(*of), asked, source.threads):
            pass  # `tails_of` has them then, and takes no time
        noises, rows = [part.noise for part in own], [part.nonzero for part in own]
        kinds = [row_margins(noises, [part.cells for part in own], rows, terms.confidence)]
        if terms.simultaneous:
            possible = [self._listed(part.level) for part in own]
            kinds.append(simultaneous_margins(noises, possible, terms.confidence))
        return [for_every_level(source.levels, of_kind) for of_kind in kinds]

    def rows(self, level: int) -> SlicedRows:
        """Return all released nodes of a level in the order of their codes; areas take half the bytes of a frontier's."""
        levels = self.source.levels
        if levels[level].same_as is not None:
            rows = self._repeated(level)
        elif self._margins:
            rows = self._measured(level)
        else:
            rows = self._of_leaves_alone(level)
        self._repeats = rows if level + 1 < len(levels) and levels[level + 1].same_as is not None else None
        return rows

    def cells(self, number: int) -> tuple[Rows, Known]:
        """Return all cells of a view, zeros too, in the order of their areas, and what is known of them."""
        return self._views.cells(number)

    def _measured(self, level: int) -> SlicedRows:
        """Return the rows of a measured level, and keep what is known of them."""
        source, part, sizes = self.source, self.source.levels[level], self.source.tree.sizes(level)
        terms, noise, margins = source.intervals, part.noise, [of_kind[level] for of_kind in self._margins]
        kept: RowsKept = RowsInMemory(sizes, is_in_order=source.is_in_order)
        if source.disk is not None and part.nonzero > tables.PART_ROWS and fit_on_disk(sizes):
            kept = RowsOnDisk(source.disk, sizes)
        reach = reach_after(noise, part.cells, sum(not own.is_exact for own in self._own))
        begin = partial(WalkedRows, noise, self._step(level), reach, margins, kept)
        whole = begin()
        for run in source.runs(level, self._margins, begin):
            whole.moves.add_all(run.moves)
            if whole.seen and run.seen:
                whole.seen.add_all(run.seen)
            kept.add(run.rows)
        _check_rows(part, len(kept))
        margin: int | None = 0
        if not part.is_exact:
            rate = terms.signal_rate
            log_tail = signal_tail(len(kept), part.cells, rate, lambda tail: kept.count_above(noise.quantile(tail)))
            margin = None if log_tail is None else noise.quantile(log_tail)
        marked = 0 if margin is None else kept.count_above(margin)
        kept.mark(margin)
        self._moves.append(whole.moves)
        shares = whole.seen.shares() if whole.seen else EXACT if part.nonzero else None
        fixed = for_every_level(source.levels, margins_of([own.noise for own in self._own], terms.confidence))
        bound = np.array([bounds_after(self._moves)[-1]])
        self._known[level] = Known(
            promise="rows",
            half_width=margins[0].own,
            cap_margin=fixed[level].cap,
            simultaneous_half_width=margins[-1].own if terms.simultaneous else None,
            # the bias and the counts together reveal the sum of the noisy counts
            bias=None if terms.rounded else whole.moves.bias,
            bound=int(rounded_outwards(bound, bound, self._step(level))[1][0]),
            signal=Signal(rows=marked, above=None if part.is_exact else margin) if marked else None,
            shares=shares,
        )
        return kept

    def _repeated(self, level: int) -> SlicedRows:
        """Return the rows of the level above, each with the area of the one cell that it holds."""
        tree, rows = self.source.tree, self._repeats
        axis = tree.steps[level - 1]
        child = tree.axes[axis].first_child[tree.axis_levels(level - 1)[axis]]
        if rows is None:
            raise StoreError(f"Level {level} cannot be read before the level that it repeats.")
        self._known[level] = replace(self._known[level - 1], bias=None)
        self.source.repeat(level)
        if level == 1:  # a root of 0 has a row, and no cell
            root = rows[:]
            rows = root[np.flatnonzero(root.counts)]
        return _Repeated(rows, axis, child)

    def _of_leaves_alone(self, level: int) -> Rows:
        """Return a level of a mechanism that measures leaves only: its counts are its noisy counts."""
        source, part, finest = self.source, self.source.levels[level], self.source.levels[-1]
        nodes, tree = source.nodes(level), source.tree
        _check_rows(part, len(nodes))
        counts, noise, rate = nodes.counts, finest.noise, source.intervals.signal_rate
        leaves = None
        if level < finest.level and not finest.threshold:
            leaves = tree.leaves_below(level, [of.astype(np.int64) for of in nodes.areas])

        def margin_of(log_tail: float) -> Margin:
            return noise.quantile(log_tail) if leaves is None else sum_margins(noise, leaves, log_tail)

        bounds, tails = list[IntArray](), self._log_tails(level)
        for log_tail in tails:
            bounds += intervals(counts, margin_of(log_tail), NO_CAP, counts)
        signal, margin, shares = counts > 0, None, None
        if not finest.threshold:
            cells, one = self._listed(level), np.ones(len(nodes), dtype=np.int64)
            signal, margin = signals(counts, part.cells if leaves is None else cells, rate, margin_of)
            shares = shares_of_sums(noise, counts, one if leaves is None else leaves, cells)
        marked = int(np.count_nonzero(signal))
        self._known[level] = Known(
            promise=("cells" if finest.threshold else "rows") if tails else None,
            bias=0.0 if leaves is None and not (finest.threshold or source.intervals.rounded) else None,
            signal=Signal(rows=marked, above=margin if isinstance(margin, int) else None) if marked else None,
            shares=shares,
        )
        return Rows(nodes.areas, counts, tuple(bounds), signal)

    def _log_tails(self, level: int) -> list[float]:
        """Return, per kind of interval, the logarithm of the probability on one side; empty if none can be stated.

        Every cell of a level is a sum of measured leaves, and no two share one. Where only leaves with records are measured,
        their number is secret, and the interval is that of a leaf that is fixed beforehand.
        """
        source, part, finest = self.source, self.source.levels[level], self.source.levels[-1]
        terms, possible = source.intervals, source.possible_cells(level)
        if finest.threshold and level < finest.level:
            return []
        fixed = _log_tail(terms.confidence)
        kinds = [fixed if finest.threshold else row_log_tail(self._listed(level), part.nonzero, terms.confidence)]
        if terms.simultaneous:
            if possible is None:
                return []
            kinds.append(fixed - math.log((1 if finest.threshold else len(source.levels)) * possible))
        return kinds

    def _listed(self, level: int) -> int:
        """Return how many cells a level can have. Only a mechanism that shows codes may not know them, and needs no such number."""
        possible = self.source.possible_cells(level)
        if possible is None:
            raise StoreError(f"Level {level} has codes that no codebook lists, so no interval can be stated.")
        return possible

    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of boxes: by the levels, or by a view that is measured by itself where it has less noise."""
        is_row, confidence = confidence is None and self.has_rows_of(boxes), self._confidence(confidence)
        by_levels = self._by_levels(boxes, confidence, simultaneous=simultaneous)
        if simultaneous or is_row or self.folder.level_of(boxes) <= 1:
            return by_levels
        return self._with_views(boxes, confidence, by_levels, [boxes])

    def _sum_of(self, parts: Sequence[Boxes], confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of the sum of single boxes.

        Cells that were measured at several levels are not added up as independent noise: which were, at the lower ones, follows from the
        noise above. Their intervals share the probability; or the areas are taken apart to be of one level. The possible cells decide,
        so the question and the codebook alone.
        """
        source, asked, confidence = self.folder, confidence, self._confidence(confidence)
        if simultaneous or not source.folder.has_tree:
            return super()._sum_of(parts, confidence, simultaneous=simultaneous)
        apart = as_one(source.tree, parts)
        if source.manifest.noisy_counts and not source.manifest.adds_up_leaves and not source.levels[-1].threshold:
            best = min((parts, [apart]), key=lambda of: self._reach(of, confidence))
            if len(best) > 1:
                found = super()._sum_of(best, confidence, simultaneous=False)
                return self._with_views(apart, confidence, found, best) if source.manifest.own_views else found
        return self.answers(apart, confidence=asked)

    def _reach(self, parts: Sequence[Boxes], confidence: float) -> int:
        """Return how far the noise of boxes goes whose intervals share the probability, if all of their cells are measured, records."""
        source, reach, noises = self.folder, 0, [part.noise for part in self.folder.levels]
        for box in parts:
            level = source.level_of(box)
            log_tail = own_log_tail(noises, level, 1 - (1 - confidence) / len(parts))
            reach += noises[level].quantile(log_tail, int(possible_cells(source.tree, level, box)[0]))
        return reach

    def absent_high(self, level: int, most_cells: int) -> int | None:
        """Return what the interval of no cell of a level without a row goes beyond, records; None where none is stated."""
        source, manifest = self.folder, self.folder.manifest
        finest, confidence = source.levels[-1], manifest.intervals.confidence
        if manifest.own_views:
            return super().absent_high(level, most_cells)
        if finest.threshold:
            return self._below_threshold(confidence) if level == finest.level else None
        if manifest.adds_up_leaves:
            leaves = finest.cells if level < finest.level else 1
            if manifest.noisy_counts:
                leaves = source.tree.most_cells_below(source.folder.reached(level), source.folder.reached(finest.level))
            return int(sum_margins(finest.noise, np.array([leaves]), _log_tail(confidence))[0])
        return self._most_without_a_row(level) if manifest.noisy_counts else max(self._everything(INTERVAL), 0)

    def measured(self, boxes: Boxes) -> Measured | None:
        """Return what was measured of boxes at their level; None without the noisy counts of all."""
        source, finest, level = self.folder, self.folder.levels[-1], self.folder.level_of(boxes)
        if finest.threshold or not source.manifest.noisy_counts or source.manifest.own_views:
            return None
        if source.manifest.adds_up_leaves:
            count = source.rows_met(source.manifest.levels[level], boxes).sums(COUNT)
            leaves = possible_cells(source.tree, finest.level, boxes).astype(np.int64)
            return Measured(finest.level, count, leaves)
        own = source.measured_met(level, boxes)[-1]
        return Measured(level, own.met.sums(NOISY), own.met.rows, own.possible)

    def _by_levels(self, boxes: Boxes, confidence: float, *, simultaneous: bool) -> Answers:
        """Return what the levels say where each was measured, or only the finest one."""
        source, level = self.folder, self.folder.level_of(boxes)
        met = source.rows_met(source.manifest.levels[level], boxes)
        kind = SIMULTANEOUS if simultaneous else INTERVAL
        known = without_intervals(met.sums(COUNT), "", {"released": met.rows})
        if source.levels[-1].threshold or not source.manifest.noisy_counts:
            return self._of_rows(boxes, level, known, kind, confidence)
        if source.manifest.adds_up_leaves:
            return self._of_leaves(boxes, level, known, kind, confidence)
        return self._of_measured(boxes, level, known, confidence, simultaneous=simultaneous)

    def _of_measured(
        self, boxes: Boxes, level: int, known: Answers, confidence: float, *, simultaneous: bool
    ) -> Answers:
        """Return the answers from the noisy counts of every level."""
        source, tree = self.folder, self.folder.tree
        levels = source.measured_met(level, boxes)
        noises = [part.noise for part in source.levels]
        if simultaneous:
            possible = [tree.possible_cells(own) for own in range(len(noises))]
            margins = simultaneous_margins(noises, possible, confidence)
            ends = simultaneous_box_intervals(levels, margins, known.count)
        else:
            ends = box_intervals(levels, noises, confidence, known.count)
        cells = {
            **known.cells,
            "possible": levels[-1].possible,
            "measured": ends.measured,
            "dropped": levels[-1].possible - ends.measured,
            "dropped_under": ends.dropped_under,
            "cap": ends.cap,
        }

        def how(box: int) -> str:
            of_box = {name: int(of[box]) for name, of in cells.items()}
            above = int(ends.level_above[box])
            return describe_cells(source.manifest.levels[level], of_box, None if above < 0 else above)

        return Answers(known.count, ends.low, ends.high, _all(boxes), how, cells)

    def _of_leaves(self, boxes: Boxes, level: int, known: Answers, kind: tuple[str, str], confidence: float) -> Answers:
        """Return the answers from the noisy counts of all leaves, which alone were measured."""
        source, finest, log_tail = self.folder, self.folder.levels[-1], _log_tail(confidence)
        leaves, possible = (possible_cells(source.tree, of, boxes).astype(np.int64) for of in (finest.level, level))
        if kind == INTERVAL:
            low, high = leaf_sum_intervals(known.count, leaves, finest.noise, log_tail)
        else:
            log_tail -= math.log(len(source.levels) * source.tree.possible_cells(level))
            most = most_leaves(source.tree, level, boxes)
            low, high = leaf_sum_intervals(known.count, most, finest.noise, log_tail, possible)
        cells = {**known.cells, "possible": possible, "leaves": leaves}
        drawn = Drawn(int(known.count[0]), {finest.level: (finest.noise, int(leaves[0]))}) if boxes.within else None
        return Answers(
            known.count, low, high, _all(boxes), lambda box: describe_leaves(int(leaves[box])), cells, drawn=drawn
        )

    def _of_rows(self, boxes: Boxes, level: int, known: Answers, kind: tuple[str, str], confidence: float) -> Answers:
        r"""Return the answers of a folder without the noisy counts of all leaves: the interval of a cell's row, or otherwise what is known.

        A leaf without a row may not have reached a threshold, and of sums of such leaves nothing is known. A sum of leaves that were all
        measured has no more noise than all of them. Of others the root tells. A cell may have a row or not, and its interval must cover
        the true count either way. Whenever its row's interval covers it, the noise of the root is not below -z', the root's margin as a
        cell that contains others. So without a row, the root's high must use that margin too.
        """
        source, finest, released = self.folder, self.folder.levels[-1], known.cells["released"]
        is_of_cells, low, has_kind = source.folder.reached(level) == boxes.levels, 0 * known.count, kind == INTERVAL
        is_cell = is_of_cells and boxes.cells == 1
        if finest.threshold and not (is_cell and level == finest.level):
            return replace(known, how=lambda box: explain_missing_interval(int(released[box]), finest.threshold))
        if finest.threshold:
            high, how = low + self._below_threshold(confidence), describe_below_threshold(finest.threshold)
        elif source.manifest.adds_up_leaves:
            are_known = is_of_cells and level == finest.level
            many = boxes.cells if are_known else finest.cells  # the noise of all leaves reaches further
            ends = leaf_sum_intervals(known.count, np.full(len(boxes), many), finest.noise, _log_tail(confidence))
            low, high, how = *ends, describe_leaves(many, are_known=are_known)
        else:
            has_kind, how = kind[1] in source.manifest.bounds, ""
            high = np.maximum(self._everything(kind), known.count) if has_kind else low

        def of_others(box: int) -> str:
            if not has_kind:
                return explain_missing_simultaneous(int(released[box]))
            return how or describe_unmeasured(int(released[box]), level)

        others = Answers(known.count, low, high, _all(boxes) & has_kind, of_others, known.cells)
        return self._with_rows(boxes, others, kind) if is_cell else others

    def _with_views(self, boxes: Boxes, confidence: float, by_levels: Answers, parts: Sequence[Boxes]) -> Answers:
        """Return what views of their own say of the boxes of which they have less noise, where levels are only calibrated to views.

        By the levels, a single box is the sum of some `parts`.
        """
        source, level = self.folder, self.folder.level_of(boxes)
        views = self._views.sums_of(boxes, source.manifest.own_views)
        if not views:
            return by_levels
        variance = np.array([view.variance for view in views])
        best, least = variance.argmin(axis=0), variance.min(axis=0)
        answered = np.isfinite(least)
        is_cell = source.folder.reached(level) == boxes.levels and boxes.cells == 1
        if not self.has_view_of(boxes) and (source.manifest.noisy_counts or is_cell):
            noises = [source.parts[source.level_of(box)].noise.variance for box in parts]
            many = [possible_cells(source.tree, source.level_of(box), box).astype(np.float64) for box in parts]
            answered &= noises[0] > least if is_cell else sum(map(mul, noises, many)) > least
        if boxes.within is not None:
            [view] = [views[int(best[0])]]
            return self._views.said([view], view.count, confidence, _MEASURED_ALONE) if answered[0] else by_levels
        count, low, high, stated = by_levels.count, by_levels.low, by_levels.high, by_levels.stated | answered
        added = np.zeros_like(count)
        for number, view in enumerate(views):
            chosen, ends = answered & (best == number), self._views.interval([view], view.count, confidence)
            count, added = np.where(chosen, view.count, count), np.where(chosen, view.cells, added)
            low, high = np.where(chosen, ends[0], low), np.where(chosen, ends[1], high)

        def how(box: int) -> str:
            if not answered[box]:
                return by_levels.how(box)
            return f"{views[best[box]].how(box)}{_MEASURED_ALONE}"

        cells = {"added": added} if answered.all() else by_levels.cells
        return Answers(count, low, high, stated, how, cells)

    def _everything(self, kind: tuple[str, str]) -> int:
        """Return the most that any box counts without noisy counts, records: what the row of everything allows, as a cap."""
        root = self.folder.manifest.levels[0]
        further = 0 if kind == SIMULTANEOUS else max((root.cap_margin or 0) - (root.half_width or 0), 0)
        return int(self.folder.table(root).column(kind[1])[0]) + further

    def _below_threshold(self, confidence: float) -> int:
        """Return the most that a leaf counts that was not kept, records."""
        finest = self.folder.levels[-1]
        return finest.threshold - 1 + finest.noise.quantile(_log_tail(confidence))

    def _most_without_a_row(self, level: int) -> int:
        """Return the most that the interval of any cell of a level reaches that has no row, records.

        A cell without a row was measured, or lies in one cell above that was measured and dropped. Then what this one counts, and each
        cell above, is its upper end.
        """
        source, tree = self.folder, self.folder.tree
        noises, confidence = [part.noise for part in source.levels], source.manifest.intervals.confidence
        share = above_share(noises, confidence)
        most, caps_above = 0, np.full(1, NO_CAP)
        for at in range(level + 1):
            cells, above = source.cells(at), np.full(len(source.cells(at)), NO_CAP)
            if at:
                coarser = lifted(tree, cells.levels, cells.areas, source.folder.reached(at - 1))
                above = caps_above[locate(coarser, source.cells(at - 1).areas, tree.sizes(at - 1))]
            if at < level:
                margin = noises[at].quantile(math.log(share)) if noises[at] else 0
                caps_above = np.minimum(above, np.maximum(cells.column(NOISY) + margin, 0))
                most = max(most, int(caps_above[source.children(at).cells == 0].max(initial=0)))
                continue
            own = noises[at].quantile(own_log_tail(noises, level, confidence))
            highs = np.maximum(cells.column(NOISY) + own, 0)
            lacks_row = locate(cells.areas, source.level_table(level).areas, tree.sizes(level)) < 0
            most = max(most, int(np.minimum(highs, above)[lacks_row].max(initial=0)))
        return most


def _check_rows(part: LevelEntry, rows: int) -> None:
    """Refuse a level that has more or fewer rows than are stated."""
    if rows != part.nonzero:
        raise StoreError(f"Level {part.level} does not have as many nodes as the store recorded.")


def _log_tail(confidence: float) -> float:
    return math.log((1 - confidence) / 2)


def _all(boxes: Boxes) -> BoolArray:
    return np.ones(len(boxes), dtype=bool)

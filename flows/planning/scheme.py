"""What a release measures, without the amount of noise: the tree over its codebooks, and which levels and views have noise."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from flows.specification.keys import Spec
from flows.specification.rules import wrong_key
from flows.specification.sections.hierarchy import Ordered
from flows.specification.sections.privacy import PrivacyKeys
from flows.specification.sections.run import RunKeys
from storage.releases.terms import VIEWS
from storage.tables import ENDS, SIZE
from tasks.accounting.allocation import Allocation
from tasks.accounting.sensitivity import (
    SUBSTITUTION,
    Sensitivity,
    combined_sensitivity,
    days_derivation,
    derivation,
    over_days,
    sensitivity_of,
    sizes_derivation,
    strategy_derivation,
)
from tasks.laws.days import Days
from tasks.laws.law import NO_NOISE, Law, LevelNoise
from tasks.mechanisms import OTHERWISE, Mechanism
from tasks.sizes.intervals import noise_of_sum, own_source, source_of_view
from tasks.sizes.places import places_of
from tasks.tree.axis import axis_from_codebook
from tasks.tree.branches import memory_for, most_cells
from tasks.tree.order import Tree, alternate, in_sequence
from tasks.tree.views import View, every_level, level_view, lowered
from tasks.unbiased.dense import Strategy
from tasks.unbiased.deviations import ReleasedCounts, released_counts
from tasks.unbiased.grid import Grid
from tasks.unbiased.optimum import Design, gram
from tasks.unbiased.workloads import RANGES, mean_and_worst, range_variances
from tasks.uncertainty.bounds import CONFIDENCE
from tasks.uncertainty.sources import best_source
from tasks.words.numbers import format_cells, rounded_down, rounded_up
from tasks.work.capacity import cores, default_memory

NOTHING = Allocation((), ())

_SUMS = "sums of the finest level's counts"

# of the arrays that settle group sizes, per finest region and size, as benchmarks/group_sizes.py measures
_BYTES_OF_CELL = 200


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """What a release measures, without the amount of noise.

    Attributes:
        keys: the spec's section `privacy`.
        law: of the noise, one of the mechanism's.
        most_distinct: per level, and then per view, the most cells of the level `privacy.distinct` that meet one node; None without a promise.
        first_measured: the first tree level that the mechanism measures by itself. Levels above it are published exactly or are
            sums. Where everything is settled together, such a level is measured too if a view has its cells.
        measured: the numbers of all levels and views that are measured with noise, ascending: of the levels from
            `first_measured` on those that do not repeat the one above; with views one of those that are alike, and views
            that have not the cells of a level by the codebooks.
        sensitivities: how far one unit moves each of `measured`, in its order.
        allocation: how any ρ, or any ε, is shared among `measured`, in its order.
        rho: what the release costs, where the targets of its split say so; None otherwise.
        views: those that have not the cells of a level.
        names: by the number of a level or view, the name of the view that the spec gives its cells.
        designs: the strategies by which axes are measured at their finest level, by the numbers of the axes; empty where counts are measured.
        days: the factor by which the counts of the days of a series are measured together; None where each release stands alone.
    """

    keys: PrivacyKeys
    tree: Tree
    mechanism: Mechanism
    law: Law
    most_distinct: tuple[int, ...] | None
    first_measured: int
    measured: tuple[int, ...]
    sensitivities: tuple[Sensitivity, ...]
    allocation: Allocation
    rho: Fraction | None = None
    views: tuple[View, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    designs: Mapping[int, Design] = field(default_factory=dict)
    days: Days | None = None

    @property
    def strategies(self) -> dict[int, Strategy]:
        """The strategies of the designs."""
        return {axis: of.strategy for axis, of in self.designs.items()}

    @property
    def is_grid(self) -> bool:
        """Whether all combinations of levels of several axes are measured."""
        return self.mechanism.is_grid

    @property
    def cascades(self) -> tuple[str, ...]:
        """The axes where the split `cascade` gives nodes of one level different precisions."""
        return tuple(axis.name for axis in self.tree.axes if axis.cascades)

    def released(self, measured: Sequence[LevelNoise], confidence: float = CONFIDENCE) -> ReleasedCounts:
        """Return what is known of the released counts where every node is measured, given the noise of what is measured."""
        return replace(_released(self, tuple(noise.scale for noise in measured)), confidence=confidence)

    def ranges(self, measured: Sequence[LevelNoise]) -> tuple[float, float, float] | None:
        """Return the root mean variance of all ranges, the largest deviation of one, records, and the gap to the bound; None without a strategy.

        The gap is by which part the mean variance of the workload exceeds what any linear mechanism with Gaussian noise needs at this ρ.
        """
        if not self.designs or self.is_grid:
            return None
        covariance, [design] = self.released(measured).covariance, self.designs.values()
        mean = float((gram(design.workload, len(covariance)) * covariance).sum())
        of_ranges = mean_and_worst(range_variances(covariance))[RANGES]
        of_one = self.sensitivities[0].l2_squared / (
            self.keys.max_records_per_unit**2 * measured[0].scale ** 2
        )  # 2ρ of one record
        return of_ranges.mean**0.5, of_ranges.worst**0.5, mean * of_one / design.at_least - 1

    def ranges_beside(self, measured: Sequence[LevelNoise]) -> list[tuple[dict[str, str], float]]:
        """Return of a grid the root mean variance of all ranges of its ordered axes, records, by the level of each other axis that is not left out."""
        variances, axes = self.released(measured).variances if self.is_grid else None, self.tree.axes
        if not isinstance(variances, Grid) or not self.tree.ordered:
            return []
        levels = [[None] if axis.is_ordered else [*range(axis.depth + 1)] for axis in axes]
        return [
            (
                {axis.name: axis.level_names[of - 1] for axis, of in zip(axes, at, strict=True) if of},
                variances.mean_of_ranges(at) ** 0.5,
            )
            for at in product(*levels)
        ]

    @property
    def named_views(self) -> list[tuple[str, View]]:
        """Every view that the spec names, by its name."""
        return [(name, self.view(number)) for number, name in self.names.items()]

    def names_of(self, number: int) -> list[str]:
        """Return the names of the views that have the cells of a level or view, by the codebooks."""
        if number > self.tree.depth:
            return [self.names[number]]
        level = level_alike(self.tree, self.view(number))
        return [name for of, name in self.names.items() if level_alike(self.tree, self.view(of)) == level]

    def view(self, number: int) -> View:
        """Return a level or a view by its number."""
        depth = self.tree.depth
        return self.views[number - depth - 1] if number > depth else level_view(self.tree, number)

    def source(self, number: int, measured: Mapping[int, LevelNoise]) -> tuple[int, LevelNoise]:
        """Return the measurement from which the intervals of a level or view follow, and its noise in the widest cell.

        `measured` is, by number, the noise of what is measured; no noise where that is exact.
        """
        if groups := self.mechanism.of_groups:  # a view is a sum of rows
            source, _, draws = source_of_view(self.tree, self.view(number), groups.measured.name, measured)
            return source, replace(measured[source], terms=int(draws.max()))
        if not self.mechanism.settles_together:
            return number, measured[number]
        views = {other: (self.view(other), noise) for other, noise in measured.items()}
        return best_source(self.view(number), views, self.tree)

    def finest_noise(self, measured: Sequence[LevelNoise]) -> LevelNoise:
        """Return the noise of the finest level that is measured, given that of all that is; views come after levels."""
        return measured[max(place for place, number in enumerate(self.measured) if number <= self.tree.depth)]

    def noises(self, measured: Sequence[LevelNoise]) -> list[LevelNoise]:
        """Return the noise of levels 0 to T, given that of the measured levels; of sums that of the widest cell.

        Sums of leaves that reached a threshold have none that could be stated: they miss the leaves that are left out. Where
        everything is settled together it is that of the measurement from which intervals follow.
        """
        tree, of_number, groups = self.tree, self.of_measured(measured), self.mechanism.of_groups
        levels = range(tree.depth + 1)
        if self.mechanism.settles_together:
            return [self.source(level, of_number)[1] for level in levels]
        if groups:
            statistic = groups.measured.name
            return [of_number.get(level) or noise_of_sum(tree, level, statistic, of_number) for level in levels]
        if self.law.keeps_some or not self.mechanism.adds_up_leaves:
            return [of_number.get(self.own(level), NO_NOISE) for level in levels]
        leaves = tree.axis_levels(tree.depth)
        return [replace(measured[0], terms=tree.most_cells_below(tree.axis_levels(of), leaves)) for of in levels]

    def of_measured(self, measured: Sequence[LevelNoise]) -> dict[int, LevelNoise]:
        """Return the noise of what is measured, by number; a public total, which is met exactly, has none."""
        meets_total = self.mechanism.settles_together or self.mechanism.is_unbiased
        exact = {0: NO_NOISE} if meets_total and self.keys.total_is_public else {}
        return exact | dict(zip(self.measured, measured, strict=True))

    def bounds(self, measured: Sequence[LevelNoise], confidence: float) -> list[float] | None:
        """Return the error bounds of levels 0 to T; None where the mechanism states none."""
        if self.mechanism.bounds is None:
            return None
        own = [level for level in range(self.tree.depth + 1) if self.same_as(level) is None]
        possible, noises = [self.tree.possible_cells(level) for level in own], self.noises(measured)
        bounds = self.mechanism.bounds([noises[level] for level in own], possible, confidence)
        bound_of = dict(zip(own, bounds, strict=True))
        return [bound_of[self.own(level)] for level in range(self.tree.depth + 1)]

    def same_as(self, level: int) -> int | None:
        """Return the level above that a level repeats, since each of its cells holds one cell of this level; None for others.

        A level that the spec publishes exactly is measured, and one that is summed repeats nothing.
        """
        if self.mechanism.cells != "survivors" or not self.first_measured <= level <= self.tree.depth:
            return None
        same = self.tree.same_as(level)
        return None if same is None else max(same, self.first_measured - 1)

    def own(self, level: int) -> int:
        """Return the level that a level repeats, or the level itself."""
        same = self.same_as(level)
        return level if same is None else same

    def derivation(self, level: int) -> str:
        """Return how far one unit moves a level, and how that is computed, in words; or why nothing is said of it."""
        mechanism, groups, is_measured = self.mechanism, self.mechanism.of_groups, level in self.measured
        if mechanism.settles_together and not is_measured:
            if level > self.tree.depth:
                return f"same as level {level_alike(self.tree, self.view(level))}, by the codebooks"
            return "published exactly" if level == 0 and self.keys.total_is_public else _SUMS
        if self.designs and is_measured:
            return strategy_derivation(
                self.keys.neighbours,
                self.keys.max_records_per_unit,
                self.sensitivity(level),
                total_is_public=self.keys.total_is_public,
                axes=len(self.designs),
                nodes=self._nodes(level),
            )
        if self.designs and level >= self.first_measured:
            return _SUMS
        if mechanism.is_unbiased and level >= self.first_measured and not is_measured:
            return "not measured by itself: settled from the other levels"
        if groups and not is_measured:
            is_level = 0 < level <= self.tree.depth
            return (
                f"the regions of level {own_source(level, self.measured)}, by the codebook: {_SUMS}"
                if is_level
                else _SUMS
            )
        moved = self.keys.neighbours, self.keys.max_records_per_unit
        if groups:
            return sizes_derivation(groups.measured.name, self.sensitivity(level), *moved, self.law.norm)
        if level < self.first_measured and not mechanism.settles_together:
            return _SUMS if mechanism.adds_up_leaves else "published exactly"
        if (same := self.same_as(level)) is not None:
            return f"same as level {same}: each of its cells holds one cell of this level, so nothing is measured"
        if self.law.derivation:
            return self.law.derivation(*moved, self.is_root(level))
        distinct = self.most_distinct[level] if self.most_distinct else None
        own = derivation(*moved, distinct, is_root=self.is_root(level))
        own = days_derivation(*moved, self.days.weights) if self.days else own
        return f"{own}; σ is that of the most precise cells" if self.cascades else own

    def sensitivity(self, number: int) -> Sensitivity:
        """Return how far one unit moves a level or view."""
        moved, groups = (self.keys.neighbours, self.keys.max_records_per_unit), self.mechanism.of_groups
        if groups:
            return groups.measured.sensitivity(*moved, places_of(self.tree, number))
        if self.designs and all(
            self.view(number).axis_levels[axis] == self.tree.axes[axis].depth for axis in self.designs
        ):
            rows = [of.rows for of in self.strategies.values()]
            is_public = self.keys.total_is_public
            return combined_sensitivity(rows, *moved, total_is_public=is_public, nodes=self._nodes(number))
        distinct = self.most_distinct[number] if self.most_distinct else None
        of_day = sensitivity_of(*moved, distinct, is_root=self.is_root(number))
        return over_days(of_day, self.days.weights, self.keys.neighbours) if self.days else of_day

    def _nodes(self, number: int) -> int:
        """Return in how many nodes of the axes without a strategy strategies measure the leaves of theirs."""
        sizes = self.view(number).sizes(self.tree)
        return math.prod(size for axis, size in enumerate(sizes) if axis not in self.designs)

    @property
    def total(self) -> int | None:
        """The place in `measured` of a total that substitution may move less than all else; None where there is none."""
        if self.keys.neighbours != SUBSTITUTION or self.days:
            return None
        return next((place for place, number in enumerate(self.measured) if self.is_root(number)), None)

    def is_root(self, number: int) -> bool:
        """Return whether a level or view holds everything in one cell, whatever the codebooks are."""
        return not any(self.view(number).names.values())


@lru_cache(maxsize=1)  # a plan asks several times, and views take a factor of a dense matrix
def _released(scheme: Scheme, scales: tuple[float, ...]) -> ReleasedCounts:
    of_number = scheme.of_measured([LevelNoise(scheme.law, scale) for scale in scales])
    parts = [(view, of_number.get(view.number)) for view in [*every_level(scheme.tree), *scheme.views]]
    total = 0 if scheme.keys.total_is_public else None  # its value is not known, and is not asked for
    has_views = scheme.mechanism.covariance == VIEWS
    return released_counts(
        scheme.tree,
        parts,
        CONFIDENCE,
        total,
        is_grid=scheme.is_grid,
        has_views=has_views,
        strategies=scheme.strategies,
    )


def tree_over(codebooks: dict[str, Any], spec: Spec, unlisted: Collection[str] = ()) -> Tree:
    """Return the tree of a spec over the codebooks of its axes; those of axes that are unlisted have levels and no rows."""
    axes = tuple(
        replace(
            axis_from_codebook(name, codebook, spec.role_of(name)),
            is_listed=name not in unlisted,
            is_ordered=isinstance(spec.hierarchy_of(name)[1], Ordered),
        )
        for name, codebook in codebooks.items()
    )
    depths = [axis.depth for axis in axes]
    order = [(spec.axes.index(axis), level) for axis, level in spec.refinements]
    if spec.release.group_sizes:
        order.insert(0, (spec.axes.index(SIZE), 1))
    if order:
        return Tree(axes, in_sequence(depths, order))
    first = spec.release.grid[0] if spec.release.grid else spec.release.tree or ENDS[1]
    turns = [depth if axis.role in ENDS or spec.release.grid else 0 for axis, depth in zip(axes, depths, strict=True)]
    steps = alternate(turns, spec.axes.index(first))
    rest = (number for number, depth in enumerate(depths) if not turns[number] for _ in range(depth))
    return Tree(axes, (*steps, *rest))


def check_fan_out(tree: Tree, run: RunKeys, memory_of_worker: int | None = None) -> None:
    """Refuse a node with more children than fit in memory. All children of a node are measured and optimised together.

    Branches share the memory of this machine, one on each core. On a cluster this machine walks the trunk alone, and each
    branch has the memory of a worker, bytes; None where nobody knows yet.
    """
    memory, workers = run.max_memory or default_memory(), 1 if run.workers == "dask" else cores()
    _check_children(tree, "run.max_memory", memory, workers, "Raise run.max_memory")
    if run.workers == "dask" and memory_of_worker is not None:
        raised = "Raise memory_per_worker in the cluster file, if the workers have as much"
        _check_children(tree, "memory_per_worker", memory_of_worker, 1, raised)


def _check_children(tree: Tree, field: str, memory: int, workers: int, raised: str) -> None:
    for level, axis in enumerate(tree.steps):
        own_level = tree.axis_levels(level)[axis]
        children = tree.axes[axis].most_children(own_level)
        if children > most_cells(memory, workers, len(tree.axes)):
            names = tree.axes[axis].level_names
            one = f"one {names[own_level - 1]}" if own_level else "everything"
            raise wrong_key(
                field,
                f"must be at least {rounded_up(memory_for(children, workers, len(tree.axes)) / 1e9, 3)}GB: {one} holds"
                f" {children:,} areas of level {names[own_level]}, got {rounded_down(memory / 1e9, 3)}GB.",
                hint=f"{raised}, or add a level between the two to the codebook.",
            )


def check_memory_of_groups(tree: Tree, max_memory: int | None) -> None:
    """Refuse regions and sizes of which settling may take more memory than a release has."""
    cells = tree.possible_cells(tree.depth)
    otherwise = "choose a smaller release.group_sizes.largest, or a coarser region"
    check_memory(cells * _BYTES_OF_CELL, max_memory, f"{format_cells(cells)} regions times sizes", otherwise)


def check_memory(needed: int, max_memory: int | None, settled: str, otherwise: str) -> None:
    """Refuse to settle what may take more bytes than a release has; words say what that is, and what to do beside raising them."""
    memory = max_memory or default_memory()
    if needed > memory:
        raise wrong_key(
            "run.max_memory",
            f"must be at least {rounded_up(needed / 1e9, 3)}GB: so much memory may settling {settled} take,"
            f" got {rounded_down(memory / 1e9, 3)}GB.",
            hint=f"Raise run.max_memory if the machine has as much, {otherwise}.",
        )


def check_leaves(spec: Spec, tree: Tree, mechanism: Mechanism) -> None:
    """Refuse a universe with more leaves than a mechanism can measure."""
    leaves, most = tree.possible_cells(tree.depth), mechanism.most_leaves
    if most is None or leaves <= most:
        return
    if mechanism.counts_groups:
        raise wrong_key(
            "release.group_sizes.largest",
            f"must leave at most {most:,} regions times sizes, which all are measured, got {format_cells(leaves)}.",
            hint="Count larger groups together with a smaller largest, or name a coarser region.",
        )
    is_deep = any(axis.depth > 1 for axis in tree.axes)
    fewer = ["Choose a coarser level"] if is_deep else []
    if spec.input.features and len(tree.axes) > 1:
        fewer.append("leave a feature out" if fewer else "Leave a feature out")
    with_views = mechanism.cells == "views" and bool(spec.views)
    if with_views:
        other = "a mechanism that walks the tree, without release.views"
    elif mechanism.is_unbiased:
        other = f"mechanism {OTHERWISE}, which measures only below cells with a count"
        other = "mechanism unbiased_tree, which takes far more" if mechanism.is_dense else other
    else:
        other = "mechanism inftda, which measures only below cells with a count"
    field = "input.features" if spec.input.features and not is_deep else "release.finest"
    raise wrong_key(
        field,
        f"must leave at most {most:,} leaves with {'release.views' if with_views else f'mechanism {mechanism.name}'},"
        f" which {'need' if with_views else 'draws and writes'} noise for every leaf, got {format_cells(leaves)}.",
        hint=f"{', '.join(fewer)}, or choose {other}." if fewer else f"Choose {other}.",
    )


def measured_scheme(
    keys: PrivacyKeys, tree: Tree, whole: Tree, mechanism: Mechanism, law: Law, views: Sequence[tuple[str, View]]
) -> Scheme:
    """Return the measurements of a spec, without shares and sensitivities; arguments are those of `scheme_of`.

    Raises:
        SpecError: a level that the spec names does not exist, or nothing is left to measure.
    """
    own = tuple(view for _, view in views if view.number > tree.depth)
    names = {view.number: name for name, view in views}
    first = _first_measured(keys, tree, mechanism)
    measured = _measured(tree, mechanism, first, [view for _, view in views], total_is_public=keys.total_is_public)
    if not measured and keys.invariants:
        raise wrong_key("privacy.invariants", "must leave a level to measure.")
    if not measured:
        raise wrong_key(
            "hierarchy",
            "must leave something to measure: every level has one area in each area above it, and the total is public.",
            hint="Release the table down to a level that has several areas.",
        )
    most_distinct = _most_distinct(keys, tree, whole, own) if law.norm == 2 else None  # ℓ₁ depends on records alone
    return Scheme(keys, tree, mechanism, law, most_distinct, first, measured, (), NOTHING, views=own, names=names)


def _first_measured(keys: PrivacyKeys, tree: Tree, mechanism: Mechanism) -> int:
    """Return the first tree level that a mechanism measures by itself."""
    if keys.invariants:
        return 1 + max(released_level(tree, name, "privacy.invariants") for name in keys.invariants)
    first = mechanism.views(tree)[0].number
    return 1 if keys.total_is_public and first == 0 else first


def _most_distinct(keys: PrivacyKeys, tree: Tree, whole: Tree, views: Sequence[View]) -> tuple[int, ...] | None:
    """Return, per level and then per view, the most promised cells that meet one of its nodes; None without a promise."""
    if not keys.distinct:
        return None
    promised = promised_levels(keys, whole)
    axis_levels = [*map(tree.axis_levels, range(tree.depth + 1)), *(view.axis_levels for view in views)]
    return tuple(whole.most_cells_below(of, promised) for of in axis_levels)


def _measured(
    tree: Tree, mechanism: Mechanism, first: int, views: Sequence[View], *, total_is_public: bool
) -> tuple[int, ...]:
    """Return the numbers of the levels and views that are measured with noise."""
    if mechanism.counts_groups:
        cells = [tree.possible_cells(level) for level in range(tree.depth + 1)]
        return tuple(level for level in range(first, tree.depth + 1) if level == 1 or cells[level] > cells[level - 1])
    if not mechanism.settles_together:
        is_summed = mechanism.adds_up_leaves
        own = (level for level in range(first, tree.depth + 1) if is_summed or tree.same_as(level) is None)
        return (*own, *sorted(view.number for view in views if view.number > tree.depth))
    alike = {view.number: level_alike(tree, view) for view in [*every_level(tree)[first:], *views]}
    # of levels and views with the same cells one level is measured; with a public total none with the cells of level 0 is
    levels = {level for level in alike.values() if level is not None}
    if total_is_public:
        levels.discard(level_alike(tree, level_view(tree, 0)))
    return (*sorted(levels), *sorted(number for number, level in alike.items() if level is None))


def level_alike(tree: Tree, view: View) -> int | None:
    """Return the finest level that has the cells of a level or view, by the codebooks; None if no level has."""
    own = view.lowered(tree)
    levels = reversed(range(tree.depth + 1))
    alike = (level for level in levels if lowered(tree, tree.axis_levels(level)) == own.axis_levels)
    return next((level for level in alike if level_view(tree, level).lowered(tree).is_same_as(own)), None)


def promised_levels(keys: PrivacyKeys, whole: Tree) -> tuple[int, ...]:
    """Return, per axis, the axis level at which a unit's records are promised distinct; 0 without a promise."""
    level = whole.level_named(keys.distinct) if keys.distinct else 0
    return whole.axis_levels(level or 0)


def released_level(tree: Tree, name: str, field: str, *others: str) -> int:
    """Return the level that a key of the spec names; a message lists the other names that the key may have.

    Raises:
        SpecError: no released level has that name.
    """
    level = tree.level_named(name)
    if level is None:
        names = dict.fromkeys([*(name for axis in tree.axes for name in axis.level_names), *others])
        raise wrong_key(field, f"must be one of the released levels {', '.join(names)}, got {name}.")
    return level

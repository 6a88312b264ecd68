"""Mechanisms: each is a frozen value with five choices, and all are in one table. A new one takes a function and a line.

The choices are the noise, which views are measured, which of their cells, how each is repaired on the way down, and what
happens once everything is sealed. One loop carries them all (`flows.run.walk`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from storage.errors import StoreError
from storage.releases.register import Release
from storage.releases.terms import (
    ABOVE,
    ADJUSTED,
    ALL,
    COUNTS_POSITIVE,
    DEFAULT_FOR_SIZES,
    DENSE,
    FIXED_TOTAL,
    GRID,
    SURVIVORS,
    VIEWS,
    Covariance,
    Measure,
)
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import Law, LevelNoise
from tasks.laws.named import GAUSSIAN_OVER_DAYS
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tasks.optimize.chebyshev import nearest_by_solver, nearest_in_chebyshev, nearest_in_chebyshev_large_first
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.lenient import settle_and_prune, spread_in_euclid
from tasks.optimize.reconcile import UpDown, settle
from tasks.optimize.shrink import Shrink
from tasks.optimize.siblings import Optimiser
from tasks.settle.task import Calibrate, Together
from tasks.sizes.estimators import MECHANISMS as SIZE_MECHANISMS
from tasks.sizes.estimators import Sizes
from tasks.tree.axis import FloatArray
from tasks.tree.order import Tree
from tasks.tree.views import AddUp, Measured, View, below_everything, every_level, finest_level
from tasks.unbiased.dense import MOST_CODES
from tasks.unbiased.precisions import cascade, mean_fan_outs, most_fan_outs, uniform, wavelet, worst_node
from tasks.unbiased.task import Unbiased
from tasks.uncertainty.bounds import bounds_of_sums, chebyshev_bounds

# laws of noise for any cell, empty or not
EVERY_CELL: Mapping[str, Law] = MappingProxyType({"gaussian": GAUSSIAN, "laplace": LAPLACE})

MOST_SETTLED = 10**7  # leaves that are settled together
MOST_MEASURED = 10**7  # cells of one level that are all measured, whatever survives

AUTO: Literal["auto"] = "auto"

Split = Callable[[Tree], FloatArray]  # from a tree to the relative precisions of its levels

# the splits of trees of which every node is measured, by their names in the spec
SPLITS: Mapping[str, Split] = MappingProxyType(
    {
        "uniform": lambda tree: uniform(mean_fan_outs(tree)),
        "cascade": cascade,
        "worst_node": lambda tree: worst_node(most_fan_outs(tree)),
        "wavelet": lambda tree: wavelet(mean_fan_outs(tree)),
    }
)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism; what is left out is as in a walk down a tree.

    Attributes:
        laws: the laws of noise that it can use, by their names in the spec; the first one is the default.
        views: from the tree to what is measured, coarse to fine.
        cells: which of their cells: the children of those that are left above, all, or those with records; `views`, all cells
            of the views that the spec names as well.
        repair: from noisy counts and their parents' totals to consistent counts, on the way down, by the `priority` that the
            spec names for equally good counts; without a priority the first one is used. Empty if there is nothing to
            repair.
        finish: what happens once everything is sealed; None if nothing does.
        bounds: from the noise and the possible cells of all levels, and a confidence, to the levels' error bounds; None
            if it states none.
        most_leaves: the most leaves that a release may have; None for any number.
        split: how the budget is shared among all levels where the spec does not say, if every node is measured; None for what is best
            for ranges of an ordered axis, and for nodes where there is none.
        waived: what it cannot meet by nature: `counts_positive` (counts may be below zero; rows with a count of 0 are left
            out), `fixed_total` (a public total is not met). Releases do not check what is waived, and publish that it is.
        refused: keys of the spec's privacy that it does not take, with the reason.
        how_counted: how its counts come from measurements, in words that follow "the noise in one measurement,".
        caution: what a plan says about it; empty for most.
        takes_list: whether it keeps the groups of every region within a public list of them; only of group sizes.
        measure: with a second pass, which cells of its tree: those below what survives the first pass, all, or all of the levels
            above the finest. In the table it is what holds where the spec does not say, and may be `auto`, which `measuring` decides.
    """

    name: str
    laws: Mapping[str, Law] = field(default_factory=lambda: EVERY_CELL)
    views: Callable[[Tree], Sequence[View]] = every_level
    cells: Measured = "survivors"
    repair: Mapping[str, Optimiser] = field(default_factory=dict)
    finish: UpDown | Shrink | AddUp | Together | Calibrate | Unbiased | Sizes | None = None
    bounds: Callable[[Sequence[LevelNoise], Sequence[int], float], list[float]] | None = None
    most_leaves: int | None = None
    split: Split | None = None
    waived: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    how_counted: str = ADJUSTED
    caution: str = ""
    takes_list: bool = False
    measure: Measure | Literal["auto"] = SURVIVORS

    def __post_init__(self) -> None:
        """Refuse choices that the stages cannot carry out together.

        Survivors are children of counts that are repaired before the next level is measured, so every level is measured, and none
        waits to be summed. (A level above the first view would be published exactly, though no spec has asked for that.) Only a second
        pass reads cells that the first pass would not measure.
        """
        if self.measure != SURVIVORS and not self.chooses_cells:
            raise ValueError(f"{self.name}: with measure {self.measure}, cells must be survivors, with a second pass.")
        settles_views = isinstance(self.finish, Together) or self._is_unbiased_with_views
        choices = self.cells, self.views, bool(self.repair)
        if settles_views or self.cells == "views":
            goes = settles_views and self.cells == "views" and not self.repair
            rule = "cells views there must be no repair, and the finish must be Together, or Unbiased with views or for a grid"
        elif isinstance(self.finish, Unbiased):
            goes = choices == ("universe", every_level, False)
            rule = "the finish Unbiased there must be no repair, cells must be universe, and views every_level"
        elif isinstance(self.finish, Sizes):
            goes = choices == ("universe", below_everything, False)
            rule = "the finish Sizes there must be no repair, cells must be universe, and views below_everything"
        elif self.cells == "survivors":
            goes = choices == ("survivors", every_level, True) and not isinstance(self.finish, AddUp)
            rule = "cells survivors there must be a repair, views must be every_level, and the finish cannot be AddUp"
        else:
            goes = choices == (self.cells, finest_level, False) and isinstance(self.finish, AddUp)
            rule = f"cells {self.cells} there must be no repair, views must be finest_level and the finish AddUp"
        if not goes:
            raise ValueError(f"{self.name}: with {rule}.")

    @property
    def default_law(self) -> Law:
        """The law of its noise where a spec names none."""
        return next(iter(self.laws.values()))

    def law_of(self, name: str) -> Law | None:
        """Return the law that ledgers and manifests call by a name; None if it is not one of the mechanism's."""
        laws = list(self.laws.values())
        if self.is_unbiased:
            laws += [replace(GAUSSIAN_OVER_DAYS, samplers=law.samplers) for law in laws]
        return next((law for law in laws if law.name == name), None)

    def sampler(self, law: str, named: str) -> Any:
        """Return a sampler of the law that ledgers and manifests call by a name.

        Raises:
            StoreError: the mechanism does not draw that law; no other law may draw at its scale.
        """
        charged = self.law_of(law)
        if charged is None:
            raise StoreError(f"The release is charged for noise that mechanism {self.name} does not draw: {law}.")
        return charged.samplers[named].draw

    @property
    def shows_codes(self) -> bool:
        """Whether it looks only at cells with records, and shows the codes of those that enough records have.

        Such a mechanism needs no codebook, and its released counts are its noisy counts. Others measure cells without
        records too, and so must know all of them.
        """
        return all(law.keeps_some for law in self.laws.values())

    @property
    def counts_groups(self) -> bool:
        """Whether it counts groups by their sizes."""
        return isinstance(self.finish, Sizes)

    @property
    def of_groups(self) -> Sizes | None:
        """What is measured of group sizes, and how they are estimated; None for other releases."""
        return self.finish if isinstance(self.finish, Sizes) else None

    @property
    def is_unbiased(self) -> bool:
        """Whether every node is measured, and all levels are settled without bias."""
        return isinstance(self.finish, Unbiased)

    @property
    def is_dense(self) -> bool:
        """Whether whole-number combinations of all leaves of axes are measured."""
        return self.covariance == DENSE

    @property
    def is_grid(self) -> bool:
        """Whether all combinations of levels of several axes are measured, or of strategies of some and levels of the others."""
        return self.covariance == GRID or (self.is_dense and self.cells == "views")

    @property
    def covariance(self) -> Covariance:
        """By which rule the variance of any sum of its counts follows from the noise of the levels; empty where by none."""
        return self.finish.covariance if isinstance(self.finish, Unbiased) else ""

    @property
    def adds_up_leaves(self) -> bool:
        """Whether leaves alone are measured, and all else is their sums."""
        return isinstance(self.finish, AddUp)

    @property
    def settles_together(self) -> bool:
        """Whether all that is measured is settled together, so that every level and view is a sum of the leaves."""
        return isinstance(self.finish, Together)

    @property
    def calibrates(self) -> bool:
        """Whether the levels of a tree that was walked are moved towards totals of views."""
        return isinstance(self.finish, Calibrate)

    @property
    def settles_whole_parts(self) -> bool:
        """Whether every cell of what is measured is, and one step settles all of it."""
        return self.settles_together or self.is_unbiased or self.counts_groups

    @property
    def measures_views(self) -> bool:
        """Whether it measures views beside the levels of its tree."""
        return isinstance(self.finish, Together | Calibrate) or self._is_unbiased_with_views

    @property
    def _is_unbiased_with_views(self) -> bool:
        return isinstance(self.finish, Unbiased) and (self.is_grid or self.finish.covariance == VIEWS)

    @property
    def chooses_cells(self) -> bool:
        """Whether it can measure more cells than those below what survives, because a second pass reads them."""
        return self.cells == "survivors" and self.second_pass is not None

    @property
    def second_pass(self) -> UpDown | None:
        """The second pass of its tree; None if it has none."""
        finish = self._finish_of_tree
        return finish.passes if isinstance(finish, Shrink) else finish if isinstance(finish, UpDown) else None

    @property
    def shrinks(self) -> Shrink | None:
        """The finish of its tree, if the way down of its second pass follows priors; None otherwise."""
        finish = self._finish_of_tree
        return finish if isinstance(finish, Shrink) else None

    @property
    def follows_priors(self) -> bool:
        """Whether priors count its leaves, with views or without."""
        return self.shrinks is not None or (isinstance(self.finish, Together) and self.finish.by_priors is not None)

    @property
    def _finish_of_tree(self) -> Any:
        return self.finish.second_pass if isinstance(self.finish, Calibrate) else self.finish

    def optimiser(self, priority: str | None) -> Optimiser | None:
        """Return the optimiser that a priority names, or the first one; None if there is nothing to repair."""
        return self.repair[priority] if priority else next(iter(self.repair.values()), None)


_NO_EXACT_LEVEL = "every level is the sum of noisy leaves, and none is published exactly"
_ONE_SHARE = "one level is measured, and it takes all"
_FROM_SEVERAL = "not in a count: each count is estimated from its own measurement and those below it, and adjusted so that all add up"
_SHRUNK = (
    "not in a count: each count is estimated from its own measurement and those below it, drawn towards what its level shows to"
    " be likely, and adjusted so that all add up; counts that stand alone among small ones tend to be too low"
)
_TOGETHER = (
    "not in a count: each count is settled together with all levels and views, so that none is below 0 and all add up"
)
_DRAWN_TOGETHER = (
    "not in a count: each count is drawn towards what its level shows to be likely, and then settled together with all levels and views,"
    " so that none is below 0 and all add up; counts that stand alone among small ones tend to be too low"
)
_CALIBRATED = (
    "not in a count: all counts are calibrated to the totals of single axes, as far as the areas that are left allow"
)
_NO_BOUND = "it states no error bound"
_ONLY_TOTAL = "everything is settled together, and only a public total is met exactly"
_REFUSED_WITH_VIEWS = {
    "target": f"with release.views {_NO_BOUND}",
    "invariants": "with release.views only a public total is met exactly",
}
_BY_LEAST_SQUARES = "not in a count: each count is estimated without bias from the measurements of all levels; its own standard deviation is stated beside it"
_BY_STRATEGY = "not in a count: each count is estimated without bias from sums of many counts with whole weights; its own standard deviation is stated beside it"
_NO_TARGET = "its errors are stated as standard deviations, which split: {targets: …} may set"
_NO_RHO = "it costs (epsilon, delta) by OpenDP's map, and no rho"

_BY_SIZE = "not in a count: numbers of groups come from the measurements of all levels, adjusted so that they are whole, not below 0, and add up"

_ANY_MOVE = "its noise is for records that may all move alike"
_OWN_SPLIT = "the mechanism is this split; unbiased_tree takes any"


def _unbiased(name: str, split: Split | None, refused: Mapping[str, str]) -> Mechanism:
    """Return a mechanism that measures every node of the tree, and differs from others of its kind by its split alone."""
    return Mechanism(
        name=name,
        laws={"gaussian": GAUSSIAN},
        cells="universe",
        finish=Unbiased(),
        most_leaves=10**8,
        split=split,
        waived=frozenset({COUNTS_POSITIVE}),
        refused={"target": _NO_TARGET, "invariants": _ONLY_TOTAL, **refused},
        how_counted=_BY_LEAST_SQUARES,
    )


def _counting_groups(name: str) -> Mechanism:
    """Return a mechanism of group sizes: what it measures of each region and size, and its estimator, are in their own table."""
    return Mechanism(
        name=name,
        laws={"laplace": LAPLACE, "gaussian": GAUSSIAN},
        views=below_everything,
        cells="universe",
        finish=SIZE_MECHANISMS[name],
        most_leaves=10**8,
        refused={"target": _NO_BOUND},
        how_counted=_BY_SIZE,
        takes_list=name == DEFAULT_FOR_SIZES,
        caution=""
        if name == DEFAULT_FOR_SIZES
        else f"{name} is there to compare with; {DEFAULT_FOR_SIZES} is nearer to the true numbers.",
    )


# inftda_shrunk: ours. inftda, tda_l2, tda_linf, stability_histogram: Boninsegna and Silvestri (2025); inftda_reconciled: its second pass is that of
# Hay, Rastogi, Miklau and Suciu (2010); inftda_lenient: ours; gaussian: Canonne, Kamath and Steinke (2020). docs/proofs/mechanisms.md has the
# mathematics of each. cbdp: Fioretto, Lee and Van Hentenryck (2018). cascade: Dharangutte, Gao, Gong and Wang (2024); wavelet:
# Xiao, Wang and Gehrke (2010); hierarchical: Hay, Rastogi, Miklau and Suciu (2010). optimal_ranges: Denisov, McMahan, Rush, Smith and
# Thakurta (2022).
MECHANISMS = {
    recipe.name: recipe
    for recipe in (
        Mechanism(
            name="inftda",
            repair={
                "false_positives": nearest_in_chebyshev,
                "false_negatives": nearest_in_chebyshev_large_first,
                "least_squares": nearest_in_euclid,
            },
            bounds=chebyshev_bounds,
        ),
        Mechanism(
            name="inftda_reconciled",
            repair={"false_positives": nearest_in_chebyshev},
            finish=UpDown(partial(settle, optimiser=nearest_in_chebyshev)),
            how_counted=_FROM_SEVERAL,
        ),
        Mechanism(
            name="inftda_lenient",
            repair={"least_squares": spread_in_euclid},
            finish=UpDown(partial(settle_and_prune, optimiser=nearest_in_euclid)),
            how_counted=_FROM_SEVERAL,
        ),
        Mechanism(
            name="inftda_shrunk",
            repair={"false_positives": nearest_in_chebyshev},
            finish=Shrink(UpDown(partial(settle, optimiser=nearest_in_euclid))),
            how_counted=_SHRUNK,
            measure=AUTO,
        ),
        Mechanism(name="tda_l2", repair={"least_squares": nearest_in_euclid}, bounds=chebyshev_bounds),
        Mechanism(
            name="tda_linf",
            repair={"any": nearest_by_solver},
            bounds=chebyshev_bounds,
            caution="tda_linf solves a mixed-integer program for every node that has a count: about a millisecond each, and"
            " far more where nodes have thousands of children. inftda finds an optimum a thousand times faster.",
        ),
        Mechanism(
            name="gaussian",
            views=finest_level,
            cells="universe",
            finish=AddUp(),
            bounds=bounds_of_sums,
            most_leaves=10**8,
            waived=frozenset({COUNTS_POSITIVE, FIXED_TOTAL}),
            refused={"split": _ONE_SHARE, "invariants": _NO_EXACT_LEVEL},
        ),
        Mechanism(
            name="stability_histogram",
            laws={"laplace": THRESHOLDED_LAPLACE},
            views=finest_level,
            cells="records",
            finish=AddUp(),
            waived=frozenset({FIXED_TOTAL}),
            refused={
                "rho": _NO_RHO,
                "target": _NO_BOUND,
                "accountant": _NO_RHO,
                "split": _ONE_SHARE,
                "invariants": _NO_EXACT_LEVEL,
            },
        ),
        Mechanism(
            name="cbdp",
            views=finest_level,
            cells="views",
            finish=Together(),
            most_leaves=MOST_SETTLED,
            refused={"target": _NO_BOUND, "invariants": _ONLY_TOTAL},
            how_counted=_TOGETHER,
            caution="cbdp measures the leaves and the views alone. Counts of other levels are sums of leaves with the noise of all of them, and can be"
            " off by a thousand. A level that a view in release.views names is measured.",
        ),
        _unbiased("cascade", SPLITS["cascade"], {"split": _OWN_SPLIT}),
        _unbiased("wavelet", SPLITS["wavelet"], {"split": _OWN_SPLIT}),
        _unbiased("hierarchical", SPLITS["uniform"], {"split": _OWN_SPLIT}),
        _unbiased("unbiased_tree", None, {}),
        replace(
            _unbiased("optimal_ranges", None, {"target": _NO_BOUND, "distinct": _ANY_MOVE}),
            finish=Unbiased(DENSE),
            most_leaves=MOST_CODES,
            how_counted=_BY_STRATEGY,
        ),
        *map(_counting_groups, SIZE_MECHANISMS),
    )
}


# what a spec gets that names none, by the rule of `flows.planning.views`
WITH_PRIORS, WITH_BOUND, OTHERWISE = "inftda_shrunk", "inftda", "inftda_reconciled"


def can_settle_views(tree: Tree) -> bool:
    """Return whether a tree has few enough leaves to be settled together with views."""
    return tree.possible_cells(tree.depth) <= MOST_SETTLED


def mechanism_with(mechanism: Mechanism, *, has_views: bool, together: bool = True, is_grid: bool = False) -> Mechanism:
    """Return a mechanism as it is for a release with views or without.

    With views, a mechanism that goes down a tree measures every cell of every level whatever survives, and everything is settled
    together: each released count has a measurement of its own, and nothing that was pruned has to be revived. One that follows priors counts
    its leaves by them first. Where there are too many leaves for that, it goes down its tree as always; its views are totals of single axes, measured besides, to which its
    counts are calibrated.

    A mechanism that measures every node of a tree measures every cell of the views too, and settles all of it by least squares. In a grid
    it measures all combinations of levels of the axes, which are levels and views. Others go down their tree there as always.

    Args:
        together: whether there are few enough leaves to settle all of it together.
        is_grid: whether the views are the combinations of levels of the axes that are no levels of the tree.
    """
    if mechanism.is_dense and is_grid:
        return replace(mechanism, cells="views", most_leaves=MOST_SETTLED)
    if mechanism.finish == Unbiased() and (is_grid or has_views):
        finish = Unbiased(GRID if is_grid else VIEWS)
        return replace(mechanism, cells="views", finish=finish, most_leaves=MOST_SETTLED)
    if is_grid or not has_views or mechanism.cells != "survivors":
        return mechanism
    refused = {**mechanism.refused, **_REFUSED_WITH_VIEWS}
    if not together:
        calibrate = Calibrate(mechanism.shrinks or mechanism.second_pass)
        return replace(mechanism, finish=calibrate, bounds=None, refused=refused, how_counted=_CALIBRATED)
    return replace(
        mechanism,
        cells="views",
        repair={},
        finish=Together(mechanism.shrinks),
        measure=SURVIVORS,
        bounds=None,
        most_leaves=MOST_SETTLED,
        refused=refused,
        how_counted=_DRAWN_TOGETHER if mechanism.shrinks else _TOGETHER,
        caution="",
    )


def mechanism_of(release: Release) -> Mechanism:
    """Return the mechanism of a release as it was planned, whatever the defaults are now."""
    together = release.levels[0].source is not None
    mechanism = mechanism_with(
        MECHANISMS[release.terms.mechanism],
        has_views=together or bool(release.views) or release.terms.crosses,
        together=together,
        is_grid=release.terms.is_grid,
    )
    return replace(mechanism, measure=release.terms.measure)


def measuring(mechanism: Mechanism, tree: Tree, most: int = MOST_MEASURED) -> Mechanism:
    """Return a mechanism with `auto` decided: as many cells of a tree as are not too many. The rule reads the codebooks alone.

    Every cell of every level is measured where the finest level has at most `most` cells; every cell of the levels above it where
    the one above it has; and otherwise the children of what survives.

    Args:
        mechanism: as it is with views or without.
        most: cells of one level.
    """
    if mechanism.measure != AUTO:
        return mechanism
    measure: Measure = SURVIVORS
    if tree.possible_cells(tree.depth) <= most:
        measure = ALL
    elif tree.depth > 1 and tree.possible_cells(tree.depth - 1) <= most:
        measure = ABOVE
    return replace(mechanism, measure=measure)

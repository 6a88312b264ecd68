"""Mechanisms: five independent choices, each mechanism a frozen value in one table. A new one takes a function and a line.

The choices are the noise, which views are measured, which of their cells, how each is repaired on the way down, and what
happens once everything is sealed. One loop carries them all (`flows.walks.walk`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from storage.releases.terms import COUNTS_POSITIVE, FIXED_TOTAL
from tasks.noise.samplers import Sampler, discrete_gaussian
from tasks.noise.table_sampler import LARGEST_TAU, table_noise
from tasks.noise.thresholding import ThresholdedSampler, thresholded_laplace
from tasks.optimize.chebyshev import nearest_in_chebyshev, nearest_in_chebyshev_large_first
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.lenient import settle_and_prune, spread_in_euclid
from tasks.optimize.reconcile import UpDown, least_squares, settle
from tasks.optimize.solver import nearest_by_solver
from tasks.optimize.task import Optimiser
from tasks.tree.order import Tree
from tasks.tree.views import AddUp, Measured, View, every_level, finest_level
from tasks.validate.bounds import chebyshev_bounds, gaussian_bounds


@dataclass(frozen=True, slots=True)
class Noise:
    """A sampler and its distance from the law that it draws from.

    Attributes:
        sampler: adds noise of a scale to true counts.
        tau: the total variation distance of one draw from its law is at most this; 0 if it is exact.
    """

    sampler: Sampler | ThresholdedSampler
    tau: Fraction = Fraction(0)


DISCRETE_GAUSSIANS = {"opendp": Noise(discrete_gaussian), "table": Noise(table_noise, LARGEST_TAU)}

NOTHING_TO_REPAIR: Mapping[str, Optimiser] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism.

    Attributes:
        name: its name in the spec.
        noises: the samplers of its noise, by their names in the spec; all draw from one law.
        views: from the tree to what is measured, coarse to fine.
        cells: which of their cells: the children of those that are left above, all, or those with records.
        repair: from noisy counts and their parents' totals to consistent counts, on the way down, by the `priority` that the
            spec names for equally good counts; without a priority the first one is used. Empty if there is nothing to
            repair.
        finish: what happens once everything is sealed; None if nothing does.
        bounds: from the scales and the possible cells of all levels, and a confidence, to the levels' error bounds; None
            if it states none.
        is_thresholded: whether it measures only leaves with records and keeps those that reach a threshold: its charge is
            (ε, δ), and has no ρ.
        most_leaves: the most leaves that a release may have; None for any number.
        waived: what it cannot meet by nature: `counts_positive` (counts may be below zero; rows with a count of 0 are left
            out), `fixed_total` (a public total is not met). Releases do not check what is waived, and publish that it is.
        refused: keys of the spec's privacy that it does not take, with the reason.
        caution: what a plan says about it; empty for most.
    """

    name: str
    noises: Mapping[str, Noise]
    views: Callable[[Tree], Sequence[View]]
    cells: Measured
    repair: Mapping[str, Optimiser]
    finish: UpDown | AddUp | None = None
    bounds: Callable[[Sequence[float], Sequence[int], float], list[float]] | None = None
    is_thresholded: bool = False
    most_leaves: int | None = None
    waived: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    caution: str = ""

    def optimiser(self, priority: str | None) -> Optimiser | None:
        """Return the optimiser that a priority names, or the first one; None if there is nothing to repair."""
        return self.repair[priority] if priority else next(iter(self.repair.values()), None)


_NO_EXACT_LEVEL = "every level is the sum of noisy leaves, and none is published exactly"
_ONE_SHARE = "one level is measured, and it takes all"
_NO_RHO = "it costs (epsilon, delta) by OpenDP's map, and no rho"

# inftda, tda_l2, tda_linf, stability_histogram: Boninsegna and Silvestri (2025); inftda_reconciled: its second pass is that of
# Hay, Rastogi, Miklau and Suciu (2010); inftda_lenient: ours; gaussian: Canonne, Kamath and Steinke (2020). docs/mechanisms.md has the
# mathematics of each.
MECHANISMS = {
    recipe.name: recipe
    for recipe in (
        Mechanism(
            name="inftda",
            noises=DISCRETE_GAUSSIANS,
            views=every_level,
            cells="survivors",
            repair={
                "false_positives": nearest_in_chebyshev,
                "false_negatives": nearest_in_chebyshev_large_first,
                "least_squares": nearest_in_euclid,
            },
            bounds=chebyshev_bounds,
        ),
        Mechanism(
            name="inftda_reconciled",
            noises=DISCRETE_GAUSSIANS,
            views=every_level,
            cells="survivors",
            repair={"false_positives": nearest_in_chebyshev},
            finish=least_squares(partial(settle, optimiser=nearest_in_chebyshev)),
        ),
        Mechanism(
            name="inftda_lenient",
            noises=DISCRETE_GAUSSIANS,
            views=every_level,
            cells="survivors",
            repair={"least_squares": spread_in_euclid},
            finish=least_squares(partial(settle_and_prune, optimiser=nearest_in_euclid)),
        ),
        Mechanism(
            name="tda_l2",
            noises=DISCRETE_GAUSSIANS,
            views=every_level,
            cells="survivors",
            repair={"least_squares": nearest_in_euclid},
        ),
        Mechanism(
            name="tda_linf",
            noises=DISCRETE_GAUSSIANS,
            views=every_level,
            cells="survivors",
            repair={"any": nearest_by_solver},
            bounds=chebyshev_bounds,
            caution="tda_linf solves a mixed-integer program for every node that has a count: about a millisecond each, and"
            " far more where nodes have thousands of children. inftda finds an optimum a thousand times faster.",
        ),
        Mechanism(
            name="gaussian",
            noises=DISCRETE_GAUSSIANS,
            views=finest_level,
            cells="universe",
            repair=NOTHING_TO_REPAIR,
            finish=AddUp(),
            bounds=gaussian_bounds,
            most_leaves=10**8,
            waived=frozenset({COUNTS_POSITIVE, FIXED_TOTAL}),
            refused={"split": _ONE_SHARE, "invariants": _NO_EXACT_LEVEL},
        ),
        Mechanism(
            name="stability_histogram",
            noises={"opendp": Noise(thresholded_laplace)},
            views=finest_level,
            cells="records",
            repair=NOTHING_TO_REPAIR,
            finish=AddUp(),
            is_thresholded=True,
            waived=frozenset({FIXED_TOTAL}),
            refused={
                "rho": _NO_RHO,
                "target": "it states no error bound",
                "accountant": _NO_RHO,
                "split": _ONE_SHARE,
                "invariants": _NO_EXACT_LEVEL,
            },
        ),
    )
}

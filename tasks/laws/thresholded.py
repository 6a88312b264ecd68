"""Thresholded discrete Laplace noise: a histogram that looks only at cells with records.

Its cost is only (ε, δ). δ is the probability that a cell which holds the records of only one unit is released at all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

import numpy as np

from tasks.accounting.allocation import LARGEST_SCALE, LEAST_SCALE
from tasks.accounting.conversions import DIGITS
from tasks.accounting.opendp import check_scale, opendp
from tasks.accounting.sensitivity import SUBSTITUTION, Sensitivity, touched_cells
from tasks.laws.laplace import laplace_quantile, laplace_reach, laplace_variance, standard_deviation
from tasks.laws.law import Law, LevelCost, Sampling
from tasks.tree.axis import IntArray

_LARGEST_THRESHOLD = 2**60  # keeps what is compared inside 64 bits


@dataclass(frozen=True, slots=True)
class Thresholded:
    """Discrete Laplace noise on the cells with records; cells below a threshold are left out.

    Attributes:
        scale: s of the noise, records.
        threshold: θ, the least noisy count that is kept, records.
        epsilon: its cost, together with `delta`, by OpenDP's map.
    """

    scale: float
    threshold: int
    epsilon: float
    delta: float


def thresholded_for(sensitivity: Sensitivity, epsilon: float, delta: float) -> Thresholded:
    r"""Return the least noise and the least threshold that keep (ε, δ).

    .. math:: s = \Delta_1 / \epsilon, \qquad \theta = \lceil m + s \ln(c / \delta) \rceil

    with Δ₁ = 2m under substitution and m under add_remove; c = m, or 2 for one record under substitution. Both are rounded
    up, and θ is raised, until OpenDP's map stays within (ε, δ).

    Args:
        sensitivity: of the leaves.
    Raises:
        ValueError: the scale would be out of range, or no threshold keeps δ.
    Source:
        Boninsegna and Silvestri (2025) for one record under substitution; Rogers (2023), Theorem 7.
    """
    if not LEAST_SCALE * epsilon <= sensitivity.l1 <= LARGEST_SCALE * epsilon:
        raise ValueError(
            f"epsilon must give a noise scale from {LEAST_SCALE} to 2**32, got scale {sensitivity.l1 / epsilon:g}."
        )
    scale = sensitivity.l1 / epsilon
    first = _by_formula(sensitivity, scale, delta)
    while privacy_cost(sensitivity, scale, first)[0] > epsilon:
        scale = math.nextafter(scale, math.inf)

    def keeps(threshold: int) -> bool:
        return privacy_cost(sensitivity, scale, threshold)[1] <= delta

    threshold = _least(keeps, first)
    return Thresholded(scale, threshold, *privacy_cost(sensitivity, scale, threshold))


def privacy_cost(sensitivity: Sensitivity, scale: float, threshold: int) -> tuple[float, float]:
    """Return (ε, δ), as OpenDP's map gives it, of noise of scale s where noisy counts from θ on are kept.

    OpenDP 0.16 keeps a noisy count that equals its threshold, and its map leaves that case out: at θ it gives the δ of
    counts above θ. So the map is asked for θ − 1, above which are the counts from θ on.

    Args:
        sensitivity: of the leaves: with m records per unit, 2m cells under substitution, or m, each by at most m.
        threshold: θ, above m.
    Raises:
        ValueError: the threshold is not above m: the records of a single unit could be released more often than not.
    """
    if threshold <= sensitivity.largest:
        raise ValueError(f"threshold must be above max_records_per_unit, {sensitivity.largest}, got {threshold}.")
    epsilon, delta = _measurement(scale, threshold - 1).map((sensitivity.cells, sensitivity.l1, sensitivity.largest))
    return float(epsilon), float(delta)


def thresholded_laplace(true_counts: IntArray, scale: float, threshold: int) -> tuple[IntArray, IntArray]:
    """Return which cells are kept, and their noisy counts, drawn by OpenDP from the system's entropy.

    Args:
        true_counts: int64, shape (cells,), records, > 0. Confidential, as is how many there are.
        threshold: θ, records.
    Returns:
        The rows that are kept, int64, ascending, so that their order tells nothing; and their noisy counts, int64, >= θ.
    Guarantees:
        (ε, δ) of `privacy_cost`. What is returned may be released, and so may its size.
    Source:
        OpenDP's make_laplace_threshold; Canonne, Kamath and Steinke (2020) for the noise.
    """
    kept = _measurement(scale, threshold)(dict(enumerate(true_counts.tolist())))
    rows = np.fromiter(kept.keys(), dtype=np.int64, count=len(kept))
    noisy = np.fromiter(kept.values(), dtype=np.int64, count=len(kept))
    order = np.argsort(rows)
    return rows[order], noisy[order]


def derivation(neighbours: str, max_records: int, _is_root: bool) -> str:
    """Return in one line how one unit can change the leaves, for plans and manifests."""
    cells = touched_cells(neighbours, max_records)
    many = "record" if max_records == 1 else f"{max_records} records"
    moves = (
        f"lose a unit's {many} and others gain as many" if neighbours == SUBSTITUTION else f"gain or lose its {many}"
    )
    return (
        f"some leaves {moves}: at most Δ₀ = {cells} counts change, by Δ₁ = {cells} in all and each by Δ∞ = {max_records} at"
        " most; discrete Laplace noise"
    )


def _by_formula(sensitivity: Sensitivity, scale: float, delta: float) -> int:
    """Return ⌈m + s ln(c/δ)⌉, rounded up exactly."""
    most = sensitivity.largest
    c = sensitivity.cells if most == 1 else most
    with localcontext(prec=DIGITS):
        exact = most + Decimal(scale) * (c / Decimal(delta)).ln()
        return max(int(exact.to_integral_value(ROUND_CEILING)), most + 1)


def _least(keeps: Callable[[int], bool], first: int) -> int:
    """Return the least integer >= `first` for which a condition holds that is true from some integer on."""
    fails, step = first - 1, 1
    while not keeps(fails + step):
        fails, step = fails + step, 2 * step
        if fails > _LARGEST_THRESHOLD:
            raise ValueError("delta must be larger: no threshold is large enough for it.")
    holds = fails + step
    while holds - fails > 1:
        middle = (fails + holds) // 2
        fails, holds = (fails, middle) if keeps(middle) else (middle, holds)
    return holds


def _measurement(scale: float, threshold: int) -> Any:  # an OpenDP measurement: counts by key in, those kept out
    check_scale(scale)
    dp = opendp()
    counts = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64"))
    return dp.m.make_laplace_threshold(
        counts, dp.l01inf_distance(dp.absolute_distance(T="i64")), scale=scale, threshold=threshold
    )


def _quantile(scale: float, log_tail: float, terms: int) -> int:
    """Return the quantile of the noise of one leaf; sums lack the leaves that are left out, which is not noise."""
    if terms != 1:
        raise ValueError(
            "no interval can be stated for a sum of leaves: those below the threshold are missing from it."
        )
    return laplace_quantile(scale, log_tail)


def _cost(scale: float, threshold: int, sensitivity: Sensitivity) -> LevelCost:
    epsilon, delta = privacy_cost(sensitivity, scale, threshold)
    return LevelCost(epsilon=epsilon, delta=delta)


def _fit(cost: LevelCost, sensitivity: Sensitivity) -> tuple[float, int]:
    noise = thresholded_for(sensitivity, cost.epsilon, cost.delta)
    return noise.scale, noise.threshold


THRESHOLDED_LAPLACE = Law(
    name="thresholded_discrete_laplace",
    called="thresholded discrete Laplace noise",
    norm=1,
    samplers={"opendp": Sampling(thresholded_laplace)},
    cost=_cost,
    fit=_fit,
    deviation=standard_deviation,
    variance=laplace_variance,
    reach=laplace_reach,
    quantile=_quantile,
    derivation=derivation,
    keeps_some=True,
)

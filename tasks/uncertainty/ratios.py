r"""Intervals of a share a/b of which numerator and denominator bear noise, by inverting tests: all shares r that the noise allows.

Let A be the noise of the noisy part, â = a + A, and likewise B of the whole. At the true share r, where a - r b = 0,

.. math:: \hat a - r \hat b = A - r B

So the set of all r in [0, 1] with |â − r b̂| <= t(r) covers the true share with a probability of 1 − α if, for each r, |A − rB| goes beyond
t(r) with a probability of α at most (Fieller, 1954). For each r, t may be any such bound, as long as the noise does not choose it: the least
of several, whichever that is at r. An r that any of them refuses is refused.

If the draws of the part are among those of the whole, then B = A + C for the noise C of the rest, and A − rB = (1 − r) A − r C. So, with
noises X and Y that do not depend on one another and weights u and v, there are these bounds of |u X − v Y|:

- **By parts.** Split α in any two. |X| goes beyond its quantile at the one, and |Y| beyond its quantile at the other, with a probability of α
  together. This needs no independence.
- **By the sum of discrete Gaussians.** Let V be the variance Σ σ² of the draws of X, and κ as in `tasks.laws.gaussian`, so that
  P[X = k] <= κ φ(k) with φ the density of the normal law of variance V. Let U be uniform on (−½, ½). X + U has at x the density P[X = k] for a
  whole number k with |x − k| <= ½, and for any η > 0

  .. math:: k^2 \ge \max(0, |x| - 1/2)^2 \ge \frac{x^2}{1 + \eta} - \frac{1}{4 \eta}

  so the density is at most K φ′(x), with φ′ of the variance V′ = (1 + η) V and K = κ √(1 + η) exp(1 / 8ηV). Likewise for Y. Since
  u X − v Y is within (u + v)/2 of the same sum of X + U and Y + U′,

  .. math:: P[u X - v Y > t] \le K_X K_Y \, Q\Big(\frac{t - (u + v)/2}{\sqrt{u^2 V_X' + v^2 V_Y'}}\Big)

  For much noise this is hardly more than the quantile of normal noise.

Every t here is a convex function of r: a norm of weights that are linear in r, and what is linear. So r b̂ − â − t(r) is concave, and the shares
above r₀ that are refused are an interval, whose lower end is found by halving.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtri_exp

from tasks.laws.gaussian import GAUSSIAN, gaussian_log_kappa
from tasks.laws.law import LevelNoise, quantile_of_sum

Draws = Sequence[tuple[LevelNoise, int]]  # the noise of cells, and how many cells have it
Reach = Callable[[float], float]  # from a share r to what |A - rB| goes beyond with a probability of α at most, convex

_SPLITS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)  # of α, for the one of two noises
_WIDENED = (0.5, 1.0, 2.0)  # η in units of 1 / 2√V
_HALVINGS = 40


def reaches_of(part: Draws, rest: Draws, alpha: float, *, is_inside: bool, is_independent: bool) -> list[Reach]:
    """Return bounds of |A − rB|.

    Args:
        part: the draws of A.
        rest: the draws of C where those of A are among those of B, which is A + C; otherwise all draws of B.
        alpha: α, in (0, 1).
        is_inside: whether they are.
        is_independent: whether the two do not depend on one another.
    """

    def weights(share: float) -> tuple[float, float]:
        return (1 - share if is_inside else 1.0), share

    def by_parts(of_part: float) -> Reach:
        one, other = (
            quantile_of_sum(of, math.log(alpha * much / 2)) if much else 0
            for of, much in ((part, of_part), (rest, 1 - of_part))
        )
        return lambda share: math.fsum(w * z for w, z in zip(weights(share), (one, other), strict=True))

    def as_one(widened: float) -> Reach:
        variances, log_factor, moved = list[float](), 0.0, list[float]()
        for draws in (part, rest):
            scales = tuple((noise.scale, cells * noise.terms) for noise, cells in draws if noise and cells)
            variance = sum(scale**2 * terms for scale, terms in scales)
            if variance:
                eta = widened / 2 / math.sqrt(variance)
                log_factor += gaussian_log_kappa(scales) + math.log1p(eta) / 2 + 1 / (8 * eta * variance)
                variance *= 1 + eta
            variances.append(variance)
            moved.append(0.5 if variance else 0.0)
        z = -float(ndtri_exp(min(math.log(alpha / 2) - log_factor, math.log(0.5))))
        return lambda share: (
            z * math.sqrt(np.dot(np.square(weights(share)), variances)) + float(np.dot(weights(share), moved))
        )

    noisy = [any(noise and cells for noise, cells in draws) for draws in (part, rest)]
    if not all(noisy):
        return [by_parts(float(noisy[0]))]
    reaches = [by_parts(of_part) for of_part in _SPLITS]
    if is_independent and {noise.law.name for noise, _ in (*part, *rest) if noise.law} == {GAUSSIAN.name}:
        reaches += [as_one(widened) for widened in _WIDENED]
    return reaches


def share_ends(part: float, whole: float, reaches: Sequence[Reach]) -> tuple[float, float]:
    """Return the least and the greatest share in [0, 1] that all tests allow; where the noise allows all, that is 0 and 1.

    Args:
        part: â, records.
        whole: b̂, records.
        reaches: bounds of |A − rB|, each with a probability of α.
    """
    nearest = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
    low, high = 0.0, 1.0
    for reach in reaches:
        low = max(low, _end(nearest, 0.0, lambda share: part - share * whole - reach(share)))  # noqa: B023
        high = min(high, _end(nearest, 1.0, lambda share: share * whole - part - reach(share)))  # noqa: B023
    return low, high


def _end(inside: float, limit: float, excess: Callable[[float], float]) -> float:
    """Return the end, towards a limit, of what a test does not refuse, outwards; `excess` is concave and above 0 where it refuses."""
    if excess(limit) <= 0:
        return limit
    if excess(inside) > 0:
        return inside
    refused = limit
    for _ in range(_HALVINGS):
        middle = (inside + refused) / 2
        inside, refused = (inside, middle) if excess(middle) > 0 else (middle, refused)
    return refused

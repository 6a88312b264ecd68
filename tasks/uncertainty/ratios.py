r"""Intervals of a share a/b of which numerator and denominator bear noise, by inverting tests: all shares r that the noise allows.

Let A be the noise of the noisy part, â = a + A, and likewise B of the whole. At the true share r, where a - r b = 0, :math:`\hat a - r \hat b = A - r B`.
So the set of all r in [0, 1] with |â − r b̂| <= t(r) covers the true share with a probability of 1 − α if, for each r, |A − rB| goes beyond
t(r) with a probability of α at most (Fieller, 1954). If the draws of the part are among those of the whole, then B = A + C for the noise C of
the rest, and A − rB = (1 − r) A − r C.

So, with independent sums X and Y of discrete Gaussians and weights u and v, |u X − v Y| needs a bound. Let V be the variance Σ σ² of the draws of X, and κ as in
`tasks.laws.gaussian`, so that P[X = k] <= κ φ(k) with φ the density of the normal law of variance V. Let U be uniform on (−½, ½). X + U has at x
the density P[X = k] for a whole number k with |x − k| <= ½, so that k² >= x² / (1 + η) − 1 / 4η for any η > 0. The density is at most K φ′(x), with
φ′ of the variance V′ = (1 + η) V and K = κ √(1 + η) exp(1 / 8ηV). Likewise for Y. Since u X − v Y is within (u + v)/2 of the same sum of X + U and
Y + U′,

.. math:: P[u X - v Y > t] \le K_X K_Y \, Q\Big(\frac{t - (u + v)/2}{\sqrt{u^2 V_X' + v^2 V_Y'}}\Big)

This t is a convex function of r: a norm of weights that are linear in r, and what is linear. So r b̂ − â − t(r) is concave, and the shares above
â/b̂ that are refused are an interval.
"""

import math
from collections.abc import Callable

from tasks.laws.gaussian import gaussian_log_kappa, normal_quantile
from tasks.laws.law import Draws

Reach = Callable[[float], float]  # from a share r to what |A - rB| goes beyond with a probability of α at most, convex


def reach_of(part: Draws, rest: Draws, alpha: float, *, is_inside: bool) -> Reach:
    """Return the bound of |A − rB| for independent sums of discrete Gaussians, with η = 1 / 2√V.

    Args:
        part: the draws of A.
        rest: the draws of C where those of A are among those of B, which is A + C; otherwise all draws of B.
        alpha: α, in (0, 1).
        is_inside: whether they are.
    """
    (of_part, further), (of_rest, more) = (spread(draws) for draws in (part, rest))
    z = normal_quantile(math.log(alpha / 2) - further - more)

    def reach(share: float) -> float:
        own = 1 - share * is_inside
        return z * math.sqrt(own**2 * of_part + share**2 * of_rest) + (own + share) / 2

    return reach


def spread(draws: Draws) -> tuple[float, float]:
    """Return V′ and log K of a sum of discrete Gaussians, with η = 1 / 2√V; 0 and 0 of no draws."""
    variance = sum(scale**2 * terms for scale, terms in draws)
    if not variance:
        return 0.0, 0.0
    eta = 1 / (2 * math.sqrt(variance))
    return (1 + eta) * variance, gaussian_log_kappa(draws) + math.log1p(eta) / 2 + 1 / (8 * eta * variance)


def share_ends(part: float, whole: float, reach: Reach) -> tuple[float, float]:
    """Return the least and the greatest share in [0, 1] that the test allows; where the noise allows all, that is 0 and 1.

    Args:
        part: â, records.
        whole: b̂, records.
    """
    nearest = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0

    def end(limit: float, sign: int) -> float:
        def excess(share: float) -> float:
            return sign * (share * whole - part) - reach(share)

        if excess(limit) <= 0 or limit == nearest:
            return limit
        if excess(nearest) > 0:
            return nearest
        from scipy.optimize import brentq

        return float(brentq(excess, nearest, limit))

    return end(0.0, -1), end(1.0, 1)

"""The ε of discrete Laplace noise by OpenDP's map, and the least scale that keeps an ε. Such ε add up, and need no δ."""

from functools import lru_cache

from tasks.accounting.allocation import LARGEST_SCALE, LEAST_SCALE
from tasks.accounting.floats import least_float
from tasks.accounting.opendp import laplace_measurement


def laplace_map(scale: float, l1_sensitivity: int) -> float:
    """Return ε, as OpenDP's privacy map gives it, for discrete Laplace noise of scale s on histograms.

    Args:
        scale: s, finite and > 0, records.
        l1_sensitivity: Δ₁, records.
    Raises:
        ValueError: the scale is not finite and positive.
    """
    return float(laplace_measurement(scale).map(l1_sensitivity))


@lru_cache(maxsize=4096)
def laplace_scale_for(epsilon: float, l1_sensitivity: int) -> float:
    r"""Return s, the least float whose privacy map stays within ε.

    .. math:: s = \Delta_1 / \epsilon, \text{ rounded until } \mathrm{map}(\Delta_1; s) \le \epsilon

    Args:
        epsilon: the level's share, > 0.
        l1_sensitivity: Δ₁, >= 1.
    Raises:
        ValueError: ε is so small that s would exceed 2**32, or so large that there would be no noise.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be > 0 at every level, got {epsilon}.")
    scale = l1_sensitivity / epsilon
    if scale > LARGEST_SCALE:
        raise ValueError(f"the noise scale must be <= 2**32: epsilon {epsilon:g} of a level is too small.")
    if scale < LEAST_SCALE:
        raise ValueError(
            f"the noise scale must be >= {LEAST_SCALE}: with epsilon {epsilon:g} at a level the true counts show."
        )
    return least_float(lambda scale: laplace_map(scale, l1_sensitivity) <= epsilon, scale)

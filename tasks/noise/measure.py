"""Turns true counts into noisy counts, once. The trust line runs through this function."""

from fractions import Fraction

from tasks.accounting.opendp import privacy_map
from tasks.accounting.sensitivity import square_root_up
from tasks.noise.samplers import Sampler
from tasks.tree.axis import IntArray
from tasks.tree.true_tree import LARGEST_TOTAL


def measure(
    true_counts: IntArray, scale: float, rho: Fraction, l2_sensitivity_squared: int, sampler: Sampler
) -> IntArray:
    """Return the noisy counts of some cells of one level.

    Args:
        true_counts: int64, shape (cells,), records. Confidential.
        scale: σ of the level, records.
        rho: the level's share of the budget.
        l2_sensitivity_squared: Δ₂² of the level.
        sampler: the noise; `discrete_gaussian` outside of tests.
    Guarantees:
        Nothing is drawn unless the privacy map of exactly this scale is finite and within ρ.
    Raises:
        ValueError: ρ or Δ₂ is not positive, the scale is not finite and positive, it would cost more than ρ, or a true
            count is so large that noise could carry it beyond 64 bits.
    """
    if rho <= 0:
        raise ValueError(f"rho must be > 0, got {rho}.")
    if l2_sensitivity_squared <= 0:
        raise ValueError(f"l2_sensitivity_squared must be > 0, got {l2_sensitivity_squared}.")
    cost = privacy_map(scale, square_root_up(l2_sensitivity_squared))
    if not cost <= rho:  # also refuses a cost that is not a number
        raise ValueError(f"scale {scale} costs rho {cost}, which exceeds the level's share {float(rho)}.")
    if len(true_counts) and not (true_counts.min() >= 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 0 to 2**40: noise could carry others beyond 64 bits.")
    return sampler(true_counts, scale)

"""Turns true counts into noisy counts, once. The trust line runs through this function."""

from fractions import Fraction

from tasks.accounting.opendp import privacy_map
from tasks.accounting.sensitivity import square_root_up
from tasks.laws.law import Sampler, ThresholdedSampler
from tasks.laws.thresholded import Thresholded, privacy_cost
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


def measure_thresholded(
    true_counts: IntArray, noise: Thresholded, neighbours: str, max_records: int, sampler: ThresholdedSampler
) -> tuple[IntArray, IntArray]:
    """Return which of some cells with records are kept, and their noisy counts.

    Args:
        true_counts: int64, shape (cells,), records, > 0. Confidential.
        noise: the noise, and its charge.
        neighbours: `substitution` or `add_remove`.
        max_records: m, records per unit.
        sampler: the noise; `thresholded_laplace` outside of tests.
    Guarantees:
        Nothing is drawn unless OpenDP's map of exactly this scale and threshold is within the charge.
    Raises:
        ValueError: the cost would exceed the charge, or a true count is out of range.
    """
    epsilon, delta = privacy_cost(neighbours, max_records, noise.scale, noise.threshold)
    if not (epsilon <= noise.epsilon and delta <= noise.delta):
        raise ValueError(f"scale {noise.scale} and threshold {noise.threshold} cost more than the level is charged.")
    if len(true_counts) and not (true_counts.min() > 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 1 to 2**40: only cells with records are measured.")
    return sampler(true_counts, noise.scale, noise.threshold)

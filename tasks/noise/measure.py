"""Turns true counts into noisy counts, once. The trust line runs through this function."""

from tasks.accounting.sensitivity import Sensitivity
from tasks.laws.law import LevelCost, LevelNoise, Sampler, ThresholdedSampler
from tasks.laws.thresholded import Thresholded, privacy_cost
from tasks.tree.axis import IntArray
from tasks.tree.true_tree import LARGEST_TOTAL


def measure(
    true_counts: IntArray, noise: LevelNoise, charged: LevelCost, sensitivity: Sensitivity, sampler: Sampler
) -> IntArray:
    """Return the noisy counts of some cells of one level.

    Args:
        true_counts: int64, shape (cells,), records. Confidential.
        noise: of the level.
        charged: what the level may cost alone. That is its charge, but for levels beside a measured total: these are charged what
            they cost any unit together.
        sensitivity: how far one unit moves the level; the law takes its own norm.
        sampler: of the law of the noise, outside of tests.
    Guarantees:
        Nothing is drawn unless the privacy map of exactly this scale is finite and within the charge.
    Raises:
        ValueError: the level is charged nothing or no unit moves it, the scale is not finite and positive, it would cost more
            than is charged, or a true count is so large that noise could carry it beyond 64 bits.
    """
    if noise.law is None or not (charged.rho > 0 or charged.epsilon > 0):
        raise ValueError("rho or epsilon must be > 0: nothing is drawn that is not charged.")
    if sensitivity.l2_squared <= 0 or sensitivity.l1 <= 0:
        raise ValueError(f"sensitivities must be > 0, got {sensitivity}.")
    if not charged.covers(cost := noise.law.cost(noise.scale, 0, sensitivity)):
        raise ValueError(f"scale {noise.scale} costs {cost}, which exceeds the level's share, {charged}.")
    if len(true_counts) and not (true_counts.min() >= 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 0 to 2**40: noise could carry others beyond 64 bits.")
    return sampler(true_counts, noise.scale)


def measure_thresholded(
    true_counts: IntArray, noise: Thresholded, sensitivity: Sensitivity, sampler: ThresholdedSampler
) -> tuple[IntArray, IntArray]:
    """Return which of some cells with records are kept, and their noisy counts.

    Args:
        true_counts: int64, shape (cells,), records, > 0. Confidential.
        noise: the noise, and its charge.
        sensitivity: of the leaves.
        sampler: the noise; `thresholded_laplace` outside of tests.
    Guarantees:
        Nothing is drawn unless OpenDP's map of exactly this scale and threshold is within the charge.
    Raises:
        ValueError: the cost would exceed the charge, or a true count is out of range.
    """
    epsilon, delta = privacy_cost(sensitivity, noise.scale, noise.threshold)
    if not (epsilon <= noise.epsilon and delta <= noise.delta):
        raise ValueError(f"scale {noise.scale} and threshold {noise.threshold} cost more than the level is charged.")
    if len(true_counts) and not (true_counts.min() > 0 and true_counts.max() <= LARGEST_TOTAL):
        raise ValueError("true counts must be from 1 to 2**40: only cells with records are measured.")
    return sampler(true_counts, noise.scale, noise.threshold)

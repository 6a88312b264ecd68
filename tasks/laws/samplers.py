"""Samplers: a sampler adds noise of a given scale to whole chunks of true counts. No sampler takes a seed."""

import numpy as np

from tasks.accounting.opendp import gaussian_measurement, laplace_measurement
from tasks.tree.axis import IntArray


def discrete_gaussian(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Gaussian noise, drawn by OpenDP from the system's entropy.

    Args:
        true_counts: int64, shape (cells,), records. Confidential.
        scale: σ, finite and > 0, in records.
    Returns:
        Noisy counts, int64, shape (cells,).
    Guarantees:
        ρ-zCDP with ρ = `privacy_map(scale, Δ₂)` for histograms that differ by at most Δ₂ in the Euclidean norm.
    Raises:
        ValueError: the scale is not finite and positive (OpenDP accepts 0 and would return the data).
    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's make_gaussian on integer vectors.
    """
    return np.asarray(gaussian_measurement(scale)(true_counts), dtype=np.int64)


def discrete_laplace(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Laplace noise, drawn by OpenDP from the system's entropy.

    Args:
        true_counts: int64, shape (cells,), records. Confidential.
        scale: s, finite and > 0, in records.
    Returns:
        Noisy counts, int64, shape (cells,).
    Guarantees:
        ε-differential privacy with ε = `laplace_map(scale, Δ₁)` for histograms that differ by at most Δ₁ in the ℓ₁ norm.
    Raises:
        ValueError: the scale is not finite and positive.
    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's make_laplace on integer vectors.
    """
    return np.asarray(laplace_measurement(scale)(true_counts), dtype=np.int64)

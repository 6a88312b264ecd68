"""Samplers: a sampler adds noise of a given scale to whole chunks of true counts. No sampler takes a seed."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tasks.tree.axis import IntArray

Sampler = Callable[[IntArray, float], IntArray]


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
    return np.asarray(_measurement(scale)(true_counts), dtype=np.int64)


def privacy_map(scale: float, l2_sensitivity: float) -> float:
    """Return ρ, as OpenDP's privacy map gives it, for discrete Gaussian noise of scale σ.

    Raises:
        ValueError: the scale is not finite and positive.
    """
    return float(_measurement(scale).map(l2_sensitivity))


@cache
def opendp() -> Any:
    """Return OpenDP's package, whose import takes a second."""
    from opendp import prelude

    prelude.enable_features("contrib")
    return prelude


def _measurement(scale: float) -> Any:  # an OpenDP measurement: integers in, integers out, Euclidean distance
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be finite and > 0, got {scale}.")
    dp = opendp()
    histograms = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*histograms, scale=scale, MO="ZeroConcentratedDivergence")

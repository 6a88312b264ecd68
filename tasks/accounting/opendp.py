"""OpenDP's discrete Gaussian and discrete Laplace measurements, and the ρ that a privacy map charges for a scale."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any


@cache
def opendp() -> Any:
    """Return what Trellis uses of OpenDP, whose `prelude` would also import what serves other libraries."""
    from opendp import combinators, domains, measurements, metrics, mod

    mod.enable_features("contrib")
    of_spaces = {name: getattr(module, name) for module in (domains, metrics) for name in module.__all__}
    return SimpleNamespace(m=measurements, c=combinators, OpenDPException=mod.OpenDPException, **of_spaces)


def check_scale(scale: float) -> None:
    """Refuse a scale that is not finite and positive, with a ValueError: OpenDP accepts 0 and would return the data."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be finite and > 0, got {scale}.")


def gaussian_measurement(scale: float) -> Any:
    """Return OpenDP's measurement that adds discrete Gaussian noise to integer vectors, in the Euclidean norm.

    Args:
        scale: σ, in records.
    """
    check_scale(scale)
    dp = opendp()
    histograms = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*histograms, scale=scale, MO="ZeroConcentratedDivergence")


def laplace_measurement(scale: float) -> Any:
    """Return OpenDP's measurement that adds discrete Laplace noise to integer vectors, in the ℓ₁ norm.

    Args:
        scale: s, in records.
    """
    check_scale(scale)
    dp = opendp()
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)


def privacy_map(scale: float, l2_sensitivity: float) -> float:
    """Return ρ, as OpenDP's privacy map gives it, for discrete Gaussian noise of scale σ."""
    return float(gaussian_measurement(scale).map(l2_sensitivity))

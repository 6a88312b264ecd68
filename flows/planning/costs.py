"""Caps and costs as plans, ledgers and refusals state them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What releases cost together: an ε at the cap's δ, and a ρ."""

    epsilon: float
    rho: float


@dataclass(frozen=True, slots=True)
class CapTerms:
    """What all releases about the same people may cost together: (ε, δ), and the ρ that zCDP's conversion allows."""

    epsilon: float
    delta: float
    rho: float

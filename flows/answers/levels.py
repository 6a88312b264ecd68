"""The levels of a release as commands and the UI show them."""

from collections.abc import Mapping
from dataclasses import dataclass

from storage.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedLevel:
    """One level of a release: its terms, and how much of it is measured.

    Attributes:
        level: 0 for everything, T for the finest.
        axes: per axis, the name of the axis level reached, None where it is not refined yet.
        cells: how many are measured so far.
        nonzero: how many cells have a released count that is not 0.
        rho: what the level costs; 0 where it is not measured, or is only (ε, δ).
        sigma: the standard deviation of the noise, records.
        l2_sensitivity: Δ₂, records.
        derivation: how Δ₂ comes about, in words.
        bound: with 95% probability, every count at this level is within this many records of the true count; None where
            none is stated.
        summed: True where nothing is measured at this level and its counts are sums; otherwise left out, as is all below.
        mechanism: what is drawn, where it is only (ε, δ).
        epsilon: of that; likewise `delta`, `scale` (records) and `threshold`, the least noisy count that is kept.
    """

    level: int
    axes: Mapping[str, str | None]
    cells: int
    nonzero: int
    rho: float
    sigma: float
    l2_sensitivity: float
    derivation: str
    bound: float | None
    summed: bool | None = None
    mechanism: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    scale: float | None = None
    threshold: int | None = None


def released_levels(record: Record) -> list[ReleasedLevel]:
    """Return the levels of a release as they are so far."""
    return [ReleasedLevel(**entry) for entry in record.level_entries()]

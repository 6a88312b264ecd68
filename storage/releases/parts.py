"""The parts of a release: its levels and views, each a public partition of the cells, as decided before anything was drawn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

DISCRETE_GAUSSIAN = "discrete_gaussian"  # what a level is charged for where nothing else is stated


@dataclass(frozen=True, slots=True)
class Part:
    """What was decided about a level, or about a view, before anything was drawn: it is measured, exact, or summed.

    Attributes:
        level: 0 for everything, T for the finest; a view that has not the cells of a level has a number above T.
        axes: per axis, the name of the axis level reached, None where it is not refined yet; per derived column its own name.
        possible_cells: the cells if every node survived; None where no codebook lists them.
        is_invariant: whether the level is published exactly; the spec decides that, and a share of 0 does not imply it.
        rho: the level's share of the budget; 0 where the level is not measured, or by a mechanism that is only (ε, δ).
        sigma: the standard deviation of the noise, records; of a summed level that of its widest cell; 0 where the level is invariant, or sums what reached a threshold, whose error is not noise alone.
        l2_sensitivity_squared: Δ₂²; 0 where the level takes no ρ.
        bound: with 95% probability, every count at this level is within this many records of the true count; None where none is
            stated.
        derivation: how Δ₂² comes about, in words.
        tau: how far the sampler may be from its law, in total variation over the cells that one unit can touch.
        is_summed: whether nothing is measured here, and the counts are the sums of the finest level's.
        mechanism: what is drawn here, as the ledger names it.
        epsilon: of a mechanism that is only (ε, δ), otherwise 0; likewise `delta` and `threshold`.
        scale: of the noise, records; 0 where it is the standard deviation, as of a discrete Gaussian that is not tiny. Of weighted sums of
            days it is the scale of what is drawn for them, and `sigma` that of the day's own counts.
        threshold: the least noisy count that is kept, records.
        same_as: the level above whose counts, noise and bound these are, since each of its cells holds one cell of this level;
            None for others. Nothing is measured here, and nothing is charged.
        view: the name of the view that it is, or that has the cells of this level; empty for other levels.
        source: where everything is settled together, the measurement from which intervals follow: the number of a level or a
            view that refines this one, or its own; None elsewhere.
    """

    level: int
    axes: Mapping[str, str | None]
    possible_cells: int | None
    is_invariant: bool
    rho: Fraction
    sigma: float
    l2_sensitivity_squared: int
    bound: float | None
    derivation: str = ""
    tau: Fraction = Fraction(0)
    is_summed: bool = False
    mechanism: str = DISCRETE_GAUSSIAN
    epsilon: float = 0.0
    delta: float = 0.0
    scale: float = 0.0
    threshold: int = 0
    same_as: int | None = None
    view: str = ""
    source: int | None = None

    @property
    def is_charged(self) -> bool:
        """Whether noise is drawn here, which is charged."""
        return self.is_measured and not self.is_invariant

    @property
    def is_measured(self) -> bool:
        """Whether counts of this level are read, with noise or without."""
        return not self.is_summed and self.same_as is None

    @property
    def stated(self) -> dict[str, Any]:
        """What JSON and manifests state of this part, by the names of the fields of `StatedPart`."""
        return {
            "level": self.level,
            "axes": dict(self.axes),
            "rho": float(self.rho),
            "sigma": self.sigma,
            "l2_sensitivity": math.sqrt(self.l2_sensitivity_squared),
            "derivation": self.derivation,
            "bound": self.bound,
            "view": self.view or None,
            **self._noise_stated(),
        }

    def _noise_stated(self) -> dict[str, Any]:
        """Return what is stated of a part that is summed or repeated, or of whose noise ρ and σ do not say all."""
        scale = self.scale or None
        if self.is_summed:
            return {"summed": True}
        if self.same_as is not None:  # without a scale, σ says all of the noise
            return {"same_as": self.same_as, "mechanism": self.mechanism if scale else None, "scale": scale}
        if not self.epsilon:
            return {"scale": scale, "mechanism": self.mechanism if scale else None}
        charged = {"mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta}
        return {**charged, "scale": self.scale, "threshold": self.threshold or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPart:
    """What JSON states of a level or a view, planned or made: a `Part`, as numbers. What JSON leaves out is None.

    Attributes:
        l2_sensitivity: Δ₂, records.
        summed: True where nothing is measured and counts are sums.
        mechanism: what is drawn, where it is only (ε, δ).
        view: the name of the view that it is, or whose cells it has.
        deviations: where every node is measured, the `least` and the `most` standard deviation of a released count, records.
    """

    level: int
    axes: Mapping[str, str | None]
    rho: float
    sigma: float
    l2_sensitivity: float
    derivation: str
    bound: float | None
    summed: bool | None = None
    same_as: int | None = None
    mechanism: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    scale: float | None = None
    threshold: int | None = None
    view: str | None = None
    deviations: Mapping[str, float] | None = None

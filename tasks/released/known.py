"""What is known of a level or a view once its counts are read, and what its manifest states of that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.format.manifest import AboveNoise, Deviations, LevelIntervals, NoiseRows, Promise, Signal
from tasks.uncertainty.shares import Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a level or view; None where it is not stated.

    Attributes:
        promise: what `low` and `high` promise.
        half_width: z of the interval around a row's noisy count, records; None where rows have different ones.
        cap_margin: z', the margin above the noisy count of a cell that limits the cells inside it, in questions that are fixed
            beforehand, records.
        simultaneous_half_width: z of the simultaneous intervals, records.
        bias: released minus noisy counts, the mean over the measured cells, records.
        bound: what the error of no count at the level exceeds, with the confidence of `tasks.uncertainty.bounds`, records.
        signal: the rows that stand out from the noise; None where no row does.
        shares: how much of its rows is noise, and how much stands above it.
        deviations: the least and the most standard deviation of a released count, records.
    """

    promise: Promise | None
    half_width: int | None = None
    cap_margin: int | None = None
    simultaneous_half_width: int | None = None
    bias: float | None = None
    bound: int | None = None
    signal: Signal | None = None
    shares: Shares | None = None
    deviations: tuple[float, float] | None = None

    def stated(self, confidence: float) -> Mapping[str, Any]:
        """Return what the manifest states of this, by the names of an entry of a level; of a view it states some of it."""
        shares = self.shares
        return {
            "intervals": LevelIntervals(confidence=confidence, promise=self.promise) if self.promise else None,
            "half_width": self.half_width,
            "cap_margin": self.cap_margin,
            "simultaneous_half_width": self.simultaneous_half_width,
            "bias": self.bias,
            "bound_after": self.bound,
            "signal": self.signal,
            "noise_rows": NoiseRows(estimate=shares.noise, at_most=shares.noise_at_most) if shares else None,
            "above_noise": AboveNoise(rows=shares.rows_above, records=shares.records_above) if shares else None,
            "deviations": Deviations(least=self.deviations[0], most=self.deviations[1]) if self.deviations else None,
        }

"""The noise laws by the names that ledgers and manifests give them."""

from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.laws.thresholded import THRESHOLDED_LAPLACE

# drawn for weighted sums of the counts of several days; its σ is that of the counts of one day, which many draws have made
GAUSSIAN_OVER_DAYS = replace(
    GAUSSIAN, name="discrete_gaussian_over_days", deviation=float, variance=lambda sigma: sigma**2
)

LAWS = MappingProxyType({law.name: law for law in (GAUSSIAN, LAPLACE, THRESHOLDED_LAPLACE, GAUSSIAN_OVER_DAYS)})


class MeasuredLevel(Protocol):
    """What terms and manifests state of a level that is measured or exact.

    Attributes:
        mechanism: the name of its law.
        sigma: σ, records; 0 where the level is exact.
        scale: the scale of its noise, records; 0 where σ is the scale. Over days it is that of what is drawn for their sums.
    """

    @property
    def mechanism(self) -> str: ...  # noqa: D102
    @property
    def sigma(self) -> float: ...  # noqa: D102
    @property
    def scale(self) -> float: ...  # noqa: D102


def noise_of(level: MeasuredLevel) -> LevelNoise:
    """Return the noise of a level that is measured or exact, as its terms or its manifest state it."""
    if not level.sigma:
        return NO_NOISE
    law = LAWS[level.mechanism]
    own = level.sigma if law is GAUSSIAN_OVER_DAYS else level.scale
    return LevelNoise(law, own or level.sigma)

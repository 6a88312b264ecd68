"""Differences and shares of two answers, with intervals that hold: by all draws at once where these are known, otherwise by both intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tasks.laws.gaussian import GAUSSIAN, normal_quantile
from tasks.laws.law import quantile_of_sum
from tasks.released.boxes import Boxes
from tasks.released.estimate import Answers, Drawn, Estimate
from tasks.released.families import estimate_of
from tasks.released.query.answers import coarsest_of, codes_in, parts_of
from tasks.released.query.areas import Area
from tasks.released.query.sets import AreaSet
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.released.unbiased import UnbiasedEstimate
from tasks.uncertainty.ratios import Reach, reach_of, share_ends, spread

_BY_DRAWS = "the noise of both is added up"
_BY_VARIANCE = "its standard deviation follows from those of both"
_BY_INTERVALS = "both intervals hold, each of which misses with half of the probability"
_BY_NONE = "both are exact"
_BY_ONE = "one of both is exact, and the interval is that of the other"
_OF_ITSELF = "by the codebooks, part and whole are the same cells, whatever they count"
_OF_ROWS = "no interval: those of rows have a probability of their own, since the noisy counts are not published"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a folder: the single boxes that make it up.

    Attributes:
        is_exact: whether its count is published without noise.
        is_of_rows: whether its interval is that of a row, which has a probability of its own.
    """

    estimate: Estimate
    parts: Sequence[Boxes]
    is_exact: bool
    is_of_rows: bool

    @classmethod
    def of(
        cls, folder: PublishedFolder, asked: Sequence[Area | AreaSet], codes: Mapping[str, Area | AreaSet]
    ) -> "Asked":
        """Return a question by its areas per axis, and its codes of derived columns."""
        areas = coarsest_of(folder, asked)
        is_exact = not codes_in(codes) and folder.is_exact([area.level for area in areas])
        is_of_rows = not (is_exact or folder.manifest.noisy_counts or folder.manifest.covariance)
        return cls(estimate_of(FolderSource(folder)), parts_of(folder, areas, codes), is_exact, is_of_rows)

    def answer(self, confidence: float) -> Answers:
        """Return the answer, whose interval misses with a probability of at most 1 - confidence."""
        return self.estimate.sum_of(self.parts, confidence=confidence)


@dataclass(frozen=True, slots=True)
class Compared:
    """A difference to another release, or a share of a whole.

    Attributes:
        other: the id of the other release, or the whole, as NAME=AREA.
        count: what that counts, records.
        value: the released difference, records; or the share, from 0 to 1, None where the whole counts nothing.
        low: the lower end of the interval of the true one; None, like `high` and `confidence`, where none can be stated.
        how: the interval was put together, in words.
    """

    other: str
    count: int
    value: float | None
    low: float | None
    high: float | None
    confidence: float | None
    how: str


def compared(one: Asked, other: Asked, name: str, confidence: float, *, is_share: bool) -> Compared:
    """Return how much more one question counts than another of a release whose noise does not depend on it, or which share of another one.

    That is one of the same release that holds it; `tasks.uncertainty.ratios` proves the intervals of shares.
    """
    alpha, found = 1 - confidence, [of.answer(confidence) for of in (one, other)]
    count, of_other = (int(of.count[0]) for of in found)
    value: float | None = count - of_other
    if is_share:
        value = min(max(count / of_other, 0.0), 1.0) if of_other > 0 else None
    if (
        value is not None
        and one.is_exact
        and other.is_exact
        and all(of.stated[0] and of.low[0] == of.high[0] for of in found)
    ):
        return Compared(name, of_other, value, value, value, confidence, _BY_NONE)
    noisy = tuple(of.drawn.noisy if of.drawn else int(of.count[0]) for of in found)
    reach, how = _by_variance(one, other, found, alpha, is_share=is_share), _BY_VARIANCE
    if (drawn := found[0].drawn) and (drawn_other := found[1].drawn):
        how = _BY_ONE if one.is_exact or other.is_exact else _BY_DRAWS
        reach = (_share_by_draws if is_share else _difference_by_draws)(drawn, drawn_other, alpha)
    low: float | None
    high: float | None
    if reach is None:
        low, high, how = _by_intervals(one, other, alpha, is_share=is_share)
    elif is_share:
        low, high = share_ends(noisy[0], noisy[1], reach)
    else:
        middle, z = noisy[0] - noisy[1], math.ceil(reach(1.0))
        low, high = middle - z, middle + z
    if low is None or high is None:
        return Compared(name, of_other, value, None, None, None, how)
    if value is not None:
        low, high = min(low, value), max(high, value)
    return Compared(name, of_other, value, low, high, confidence, how)


def of_itself(whole: Asked, name: str, confidence: float) -> Compared:
    """Return the share of a whole that is the whole itself: all of it, without any noise."""
    return Compared(name, int(whole.answer(confidence).count[0]), 1.0, 1.0, 1.0, confidence, _OF_ITSELF)


def _difference_by_draws(one: Drawn, other: Drawn, alpha: float) -> Reach | None:
    """Return the bound of A − B for the noise of two releases, which is independent; None where the sum of both laws has no quantiles."""
    draws = [*one.draws.values(), *other.draws.values()]
    if len({noise.law.name for noise, _ in draws if noise.law}) > 1:
        return None
    return lambda _: quantile_of_sum(draws, math.log(alpha / 2))


def _share_by_draws(part: Drawn, whole: Drawn, alpha: float) -> Reach | None:
    """Return the bound of |A − rB| where B is the noise of a whole that holds the part; None but for independent Gaussian noise of both.

    If both are sums of cells of one level or view, all draws of the part are among those of the whole.
    """
    one, other = dict(part.draws), dict(whole.draws)
    is_inside = part.is_of_cells and whole.is_of_cells and len(other) == 1 and one.keys() <= other.keys()
    if is_inside:
        other = {number: (noise, cells - one.get(number, (noise, 0))[1]) for number, (noise, cells) in other.items()}
    draws = [
        tuple((noise.scale, cells * noise.terms) for noise, cells in of.values() if noise and cells)
        for of in (one, other)
    ]
    is_gaussian = all(noise.law is GAUSSIAN for noise, _ in (*one.values(), *other.values()))
    if not (all(draws) and is_gaussian and (is_inside or one.keys().isdisjoint(other))):
        return None
    return reach_of(draws[0], draws[1], alpha, is_inside=is_inside)


def _by_variance(one: Asked, other: Asked, found: Sequence[Answers], alpha: float, *, is_share: bool) -> Reach | None:
    """Return the bound of |A − rB| for unbiased counts, whose errors are taken to be normal; None for others.

    In the difference of two releases, Gaussian draws may stand for one of them: by the bound of `tasks.uncertainty.ratios`. The noise of days that
    were measured together is not independent, so that no bound of their difference follows from both variances.
    """
    if not is_share and all(of.estimate.folder.manifest.days for of in (one, other)):
        return None
    first, second = (_normal(of.estimate, answer) for of, answer in zip((one, other), found, strict=True))
    unbiased = [of.estimate for of in (one, other) if isinstance(of.estimate, UnbiasedEstimate)]
    is_of_both = len(unbiased) == 2 or not (is_share or one.is_exact or other.is_exact)
    if not (unbiased and first and second and is_of_both):
        return None
    together = unbiased[0].covariance(one.parts, other.parts) if is_share else 0.0
    normal = normal_quantile(math.log(alpha / 2) - first.further - second.further)

    def reach(ratio: float) -> float:
        variance = first.variance + ratio**2 * second.variance - 2 * ratio * together
        return normal * math.sqrt(max(variance, 0.0)) + first.rounding + ratio * second.rounding

    return reach


class _Normal(NamedTuple):
    """A normal law for an error: once `rounding` is taken off, its density is at most exp(further) times that of the law."""

    variance: float
    further: float
    rounding: float


def _normal(estimate: Estimate, found: Answers) -> _Normal | None:
    """Return the normal law of the error of an unbiased count, or of a sum of Gaussian draws; None of others."""
    if isinstance(estimate, UnbiasedEstimate):
        return _Normal(0.0 if found.deviation is None else float(found.deviation[0]) ** 2, 0.0, estimate.rounding)
    draws = [*found.drawn.draws.values()] if found.drawn else []
    if not draws or any(noise.law is not GAUSSIAN for noise, _ in draws):
        return None
    return _Normal(*spread(tuple((noise.scale, cells * noise.terms) for noise, cells in draws if cells)), 0.5)


def _by_intervals(one: Asked, other: Asked, alpha: float, *, is_share: bool) -> tuple[float | None, float | None, str]:
    """Return the ends that follow from two intervals that both hold with a probability of 1 - α, and how; None where there are none, and why.

    What is exact misses never, and the other one may miss as often as both.
    """
    if one.is_of_rows or other.is_of_rows:
        return None, None, _OF_ROWS
    is_any_exact = one.is_exact or other.is_exact
    found = [of.answer(1 - alpha if is_any_exact else 1 - alpha / 2) for of in (one, other)]
    without = next((of for of in found if not of.stated[0]), None)
    if without is not None:
        return None, None, f"no interval: {without.how(0)}"
    (least, most), (fewest, largest) = ((int(of.low[0]), int(of.high[0])) for of in found)
    how = _BY_ONE if is_any_exact else _BY_INTERVALS
    if not is_share:
        return least - largest, most - fewest, how
    return min(least / largest, 1.0) if largest else 0.0, min(most / fewest, 1.0) if fewest else 1.0, how

"""Differences and shares of two answers, with intervals that hold: by all draws at once where these are known, otherwise by both intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri_exp

from tasks.laws.law import quantile_of_sum
from tasks.released.boxes import Boxes
from tasks.released.estimate import Answers, Drawn, Estimate
from tasks.released.families import estimate_of
from tasks.released.query.answers import parts_of
from tasks.released.query.areas import Area
from tasks.released.query.sets import AreaSet
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.released.unbiased import UnbiasedEstimate
from tasks.uncertainty.estimates import margins
from tasks.uncertainty.ratios import reaches_of, share_ends

_BY_DRAWS = "the noise of both is added up"
_BY_VARIANCE = "its standard deviation follows from those of both"
_BY_INTERVALS = "both intervals hold, each of which misses with half of the probability"
_BY_ONE = "one of both is exact, and the interval is that of the other"
_OF_ROWS = "no interval: those of rows have a probability of their own, since the noisy counts are not published"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a folder: the single boxes that make it up.

    Attributes:
        is_exact: whether its count is published without noise.
    """

    estimate: Estimate
    parts: Sequence[Boxes]
    is_exact: bool

    @classmethod
    def of(cls, folder: PublishedFolder, areas: Sequence[Area | AreaSet], codes: Mapping[str, str]) -> "Asked":
        """Return a question by its areas per axis, and its codes of derived columns."""
        is_exact = not codes and folder.is_exact([area.level for area in areas])
        return cls(estimate_of(FolderSource(folder)), parts_of(folder, areas, codes), is_exact)

    def answer(self, confidence: float) -> Answers:
        """Return the answer, whose interval misses with a probability of at most 1 - confidence."""
        return self.estimate.sum_of(self.parts, confidence=confidence)

    @property
    def takes_any_confidence(self) -> bool:
        """Whether the interval may have another confidence than those of the tables."""
        manifest = self.estimate.folder.manifest
        return bool(self.is_exact or manifest.noisy_counts or manifest.covariance)


@dataclass(frozen=True, slots=True)
class Compared:
    """A difference, or a share.

    Attributes:
        value: the released one: records, or a share; None where nothing is shared out.
        low: the lower end of its interval; None, like `high`, where none can be stated.
        how: the interval was put together, in words.
    """

    value: float | None
    low: float | None
    high: float | None
    how: str


def difference(one: Asked, other: Asked, confidence: float) -> Compared:
    """Return how much more one release counts than another, whose noise does not depend on it."""
    alpha, both = 1 - confidence, [of.answer(confidence) for of in (one, other)]
    (count, less), how = (int(of.count[0]) for of in both), _BY_DRAWS
    (drawn, drawn_less), deviations = (of.drawn for of in both), [of.deviation for of in both]
    if drawn is not None and drawn_less is not None:
        middle = drawn.noisy - drawn_less.noisy
        of_both = [*drawn.draws.values(), *drawn_less.draws.values()]
        reach = quantile_of_sum(of_both, math.log(alpha / 2))
        low, high = middle - reach, middle + reach
    elif deviations[0] is not None and deviations[1] is not None:
        together = np.sqrt(deviations[0] ** 2 + deviations[1] ** 2)
        rounding = sum(of.estimate.rounding for of in (one, other) if isinstance(of.estimate, UnbiasedEstimate))
        reach, how = int(margins(together, math.log(alpha / 2), rounding)[0]), _BY_VARIANCE
        low, high = count - less - reach, count - less + reach
    else:
        ends, how = _both_ends(one, other, alpha)
        if ends is None:
            return Compared(count - less, None, None, how)
        low, high = ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]
    return Compared(count - less, min(low, count - less), max(high, count - less), how)


def share(part: Asked, whole: Asked, confidence: float) -> Compared:
    """Return which share of a whole a part of it is, of the same release; `tasks.uncertainty.ratios` proves its intervals."""
    alpha, both = 1 - confidence, [of.answer(confidence) for of in (part, whole)]
    (count, of_all), how = (int(of.count[0]) for of in both), _BY_DRAWS
    released = min(max(count / of_all, 0.0), 1.0) if of_all > 0 else None
    (drawn, drawn_whole), estimate = (of.drawn for of in both), part.estimate
    if drawn is not None and drawn_whole is not None:
        one, other = dict(drawn.draws), dict(drawn_whole.draws)
        is_inside = _are_inside(drawn, drawn_whole)
        if is_inside:
            other = {
                number: (noise, cells - one.get(number, (noise, 0))[1]) for number, (noise, cells) in other.items()
            }
        is_independent = is_inside or one.keys().isdisjoint(other)
        reaches = reaches_of(
            [*one.values()], [*other.values()], alpha, is_inside=is_inside, is_independent=is_independent
        )
        low, high = share_ends(drawn.noisy, drawn_whole.noisy, reaches)
    elif isinstance(estimate, UnbiasedEstimate):
        of_part, of_whole = (float(of.deviation[0]) ** 2 if of.deviation is not None else 0.0 for of in both)
        together, how = estimate.covariance(part.parts, whole.parts), _BY_VARIANCE
        normal = -float(ndtri_exp(math.log(alpha / 2)))

        def reach(ratio: float) -> float:
            variance = of_part + ratio**2 * of_whole - 2 * ratio * together
            return normal * math.sqrt(max(variance, 0.0)) + (1 + ratio) * estimate.rounding

        low, high = share_ends(count, of_all, [reach])
    else:
        ends, how = _both_ends(part, whole, alpha)
        if ends is None:
            return Compared(released, None, None, how)
        (least, most), (fewest, largest) = ends
        low, high = least / largest if largest else 0.0, most / fewest if fewest else 1.0
    low, high = min(low, 1.0), min(high, 1.0)
    return Compared(
        released,
        low if released is None else min(low, released),
        high if released is None else max(high, released),
        how,
    )


Ends = tuple[int, int]  # of an interval


def _both_ends(one: Asked, other: Asked, alpha: float) -> tuple[tuple[Ends, Ends] | None, str]:
    """Return two intervals that both hold with a probability of 1 - α, and how; None where there are none, and why.

    What is exact misses never, and the other one may miss as often as both.
    """
    if not (one.takes_any_confidence and other.takes_any_confidence):
        return None, _OF_ROWS
    is_any_exact = one.is_exact or other.is_exact
    found = [of.answer(1 - alpha if is_any_exact else 1 - alpha / 2) for of in (one, other)]
    without = next((of for of in found if not of.stated[0]), None)
    if without is not None:
        return None, f"no interval: {without.how(0)}"
    first, second = ((int(of.low[0]), int(of.high[0])) for of in found)
    return (first, second), _BY_ONE if is_any_exact else _BY_INTERVALS


def _are_inside(part: Drawn, whole: Drawn) -> bool:
    """Return whether all draws of a part are among those of a whole that holds it: both are sums of cells of one level or view."""
    is_of_cells = part.is_of_cells and whole.is_of_cells
    return is_of_cells and len(whole.draws) == 1 and part.draws.keys() <= whole.draws.keys()

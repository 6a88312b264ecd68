"""What releases about the same people cost one unit of them, and caps and costs as plans, ledgers and refusals state them.

A release is charged for a unit with as many records as its own spec states. Where ingest cuts records beyond that, the charge
holds for every unit. Where the data owner promises it, another release about the same people may promise more records. Then
what the first one cost a unit with that many records is more than its charge, and that is what counts (docs/proofs/privacy.md).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True, slots=True)
class Contributions:
    """How many records a unit has, and who ensures it; the fields are in the order in which the ledger has them.

    Attributes:
        bounded_by: `ingest`, or the data owner's `promise`.
        distinct: the level at which a unit's records lie in distinct cells; None without that promise.
        exact_records_per_unit: whether every unit has exactly `max_records_per_unit`.
        max_records_per_unit: how many records one unit has at most.
        distinct_cells: the sha256 of what the promise of distinct records is about: columns, levels and codebooks. Empty without that
            promise.
    """

    bounded_by: Literal["ingest", "promise"]
    distinct: str | None
    exact_records_per_unit: bool
    max_records_per_unit: int
    distinct_cells: str = ""


@dataclass(frozen=True, slots=True)
class Spending:
    """What one release, or one declared series, has spent or reserved.

    Attributes:
        rho: of all its discrete Gaussians.
        approximate: (ε, δ) of each of its mechanisms that is only (ε, δ).
        epsilon: of its own guarantee, with `delta`; that is what it costs if these people have no other release.
        tau: how far its samplers may be from their laws, in total variation over the cells that one unit can touch.
        contributions: for which units that is what it costs; None for all of them.
    """

    rho: Fraction
    approximate: tuple[tuple[float, float], ...]
    epsilon: float
    delta: float
    tau: Fraction = Fraction(0)
    contributions: Contributions | None = None


def weakest_promise(all_contributions: Iterable[Contributions | None]) -> Contributions | None:
    """Return the units for which a claim about several releases holds; None for all units, if ingest bounds every release.

    They have as many records as any release promises. The records are distinct only where every promise says so of the same cells: a
    level of the same name may have others.
    """
    promised = [of for of in all_contributions if of and of.bounded_by == "promise"]
    if not promised:
        return None
    most = max(promised, key=lambda of: of.max_records_per_unit)
    is_kept = len(promised) == 1 or (
        most.distinct_cells and {of.distinct_cells for of in promised} == {most.distinct_cells}
    )
    return most if is_kept else replace(most, distinct=None, distinct_cells="")


def for_one_unit(spendings: Sequence[Spending]) -> list[Spending]:
    """Return what each of several releases costs a unit that has as many records as any of them promises."""
    unit = weakest_promise(spending.contributions for spending in spendings)
    return [_grown(spending, unit) if unit else spending for spending in spendings]


def growth(charged: Contributions | None, unit: Contributions | None) -> Fraction:
    r"""Return by which factor the ρ of a release grows for a unit that has more records than the release was charged for.

    .. math:: (M/m)^2 \text{ without a promise of distinct records;} \quad
        \lceil M/m \rceil^2 \text{ where it is kept;} \quad M^2/m \text{ where only the release made it}

    M records are moved one after the other, or m at a time. Each step is one of a unit that the release was charged for, and Δ₂
    is at most the sum of the steps. Of one record Δ₂² is at most 1/m of what it is of m distinct ones.
    """
    if unit is None or charged is None or charged.bounded_by == "ingest":
        return Fraction(1)
    most, m = unit.max_records_per_unit, charged.max_records_per_unit
    if charged.distinct is None:
        return Fraction(most, m) ** 2
    if unit.distinct:
        return Fraction(math.ceil(Fraction(most, m)) ** 2)
    return Fraction(most**2, m)


def _grown(spending: Spending, unit: Contributions) -> Spending:
    """Return what a release costs a unit that may have more records than it was charged for."""
    charged = spending.contributions
    factor = growth(charged, unit)
    if charged is None or factor == 1:
        return spending
    times = Fraction(unit.max_records_per_unit, charged.max_records_per_unit)
    return replace(
        spending,
        rho=spending.rho * factor,
        approximate=tuple(_approximate_grown(*pair, times) for pair in spending.approximate),
        epsilon=math.inf,  # its own guarantee is not about that unit
        tau=spending.tau * math.ceil(times),
        contributions=unit,
    )


def _approximate_grown(epsilon: float, delta: float, times: Fraction) -> tuple[float, float]:
    """Return (ε, δ) for `times` as many records: ε grows as Δ₁ does; with a δ, in whole steps (Dwork and Roth 2014)."""
    if not delta:
        return math.nextafter(float(Fraction(epsilon) * times), math.inf), 0.0
    steps = math.ceil(times)
    try:
        delta *= math.expm1(steps * epsilon) / math.expm1(epsilon) * (1 + 2**-40)
    except OverflowError:
        delta = 1.0
    return math.nextafter(steps * epsilon, math.inf), min(delta, 1.0)


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


def claimed_units(contributions: Sequence[Contributions | None], *, days_together: bool = False) -> str:
    """Return for which units, and between which tables, the claim about several releases holds, in words.

    Args:
        days_together: whether one of them is a series that measures its days together, so that these count as one table.
    """
    promised = weakest_promise(contributions)
    # a total was published exactly beside a release for which units may have fewer records
    only_some_are_exact = len({of.exact_records_per_unit for of in contributions if of}) > 1
    tables = ", between tables with the same number of units" if only_some_are_exact else ""
    if promised is None:
        return f"every unit, however many records it has: ingest keeps no more of them than each release states{tables}"
    how, most = "exactly" if promised.exact_records_per_unit else "at most", promised.max_records_per_unit
    records = f"{how} {most} record{'s' * (most > 1)}"
    where = f" in different areas of {promised.distinct}" if promised.distinct and most > 1 else ""
    days = " (where days are measured together: in the tables of all of them)" if days_together else ""
    return f"every unit with {records}{where}{days}, as the data owner promises{tables}"

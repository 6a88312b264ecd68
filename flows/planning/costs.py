"""Caps and costs as plans, ledgers and refusals state them."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.ledger.spending import Contributions, only_some_are_exact, weakest_promise


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


def claimed_units(contributions: Sequence[Contributions | None]) -> str:
    """Return for which units, and between which tables, the claim about several releases holds, in words."""
    promised = weakest_promise(contributions)
    tables = ", between tables with the same number of units" if only_some_are_exact(contributions) else ""
    if promised is None:
        return f"every unit, however many records it has: ingest keeps no more of them than each release states{tables}"
    how, most = "exactly" if promised.exact_records_per_unit else "at most", promised.max_records_per_unit
    records = f"{how} {most} record{'s' * (most > 1)}"
    where = f" in different areas of {promised.distinct}" if promised.distinct and most > 1 else ""
    return f"every unit with {records}{where}, as the data owner promises{tables}"

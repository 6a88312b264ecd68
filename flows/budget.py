"""What releases about the same people cost together, and what is left: the rule of composition, in one place.

Releases are chosen after seeing earlier ones. ρ adds up even then; privacy loss distributions do not. So across releases
the ρ of all discrete Gaussians is summed and converted once (`zcdp`), and mechanisms that are only (ε, δ) add theirs.
One release by itself stands by its own statement, whatever its accountant.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from storage.books import Cap, Spending, Standing
from tasks.noise.accounting import delta_left, float_above, float_below, least_with_tau, zcdp_epsilon, zcdp_rho


def cap_of(epsilon: float, delta: float) -> Cap:
    """Return a cap in (ε, δ) with the ρ that it allows.

    Raises:
        ValueError: epsilon or delta is out of range.
    """
    return Cap(epsilon, delta, zcdp_rho(epsilon, delta))


def composed_epsilon(spendings: Sequence[Spending], delta: float) -> float:
    r"""Return an ε such that releases about the same people are together (ε, δ)-differentially private.

    .. math:: \epsilon = \sum_i \epsilon_i +
        \mathrm{zCDP}\left(\sum \rho, \delta - \sum_i \delta_i - (1 + e^\epsilon) \sum \tau\right)

    Infinite where what is taken off δ exceeds it.

    Source:
        Whitehouse, Ramdas, Rogers and Wu (2023): zCDP adds up where each release is chosen after seeing the earlier ones.
    """
    if not spendings:
        return 0.0
    together = _together(spendings, delta)
    alone = spendings[0]
    if len(spendings) == 1 and alone.delta <= delta:
        return min(together, alone.epsilon)
    return together


def epsilon_beside(spendings: Sequence[Spending], cap: Cap, delta: float) -> float:
    """Return the ε that one more release, which is only (ε, δ), may have at a δ; 0 for none."""
    spent = _together([*spendings, Spending(Fraction(0), ((0.0, delta),), 0.0, delta)], cap.delta)
    return max(float_below(Fraction(cap.epsilon) - Fraction(spent)), 0.0) if math.isfinite(spent) else 0.0


def standing_of(spendings: Sequence[Spending], cap: Cap) -> Standing:
    """Return where releases about the same people stand against their cap."""
    left = Fraction(0)
    epsilons, deltas = _approximate(spendings)
    epsilon, delta = float_below(Fraction(cap.epsilon) - epsilons), float_below(Fraction(cap.delta) - deltas)
    if epsilon > 0 and delta > 0 and (spared := delta_left(delta, cap.epsilon, _tau(spendings))) > 0:
        left = max(left, zcdp_rho(epsilon, spared) - _rho(spendings))
    left_epsilon = cap.epsilon if not spendings else zcdp_epsilon(left, cap.delta)
    return Standing(composed_epsilon(spendings, cap.delta), left, left_epsilon)


def _together(spendings: Sequence[Spending], delta: float) -> float:
    epsilons, deltas = _approximate(spendings)
    left = float_below(Fraction(delta) - deltas)
    rho = _rho(spendings)
    if left < 0 or (rho and not left):
        return math.inf
    if not rho:
        return float_above(epsilons)
    return least_with_tau(
        lambda spared: float_above(epsilons + Fraction(zcdp_epsilon(rho, spared))), left, _tau(spendings)
    )


def _rho(spendings: Sequence[Spending]) -> Fraction:
    return sum((spending.rho for spending in spendings), Fraction(0))


def _tau(spendings: Sequence[Spending]) -> Fraction:
    return sum((spending.tau for spending in spendings), Fraction(0))


def _approximate(spendings: Sequence[Spending]) -> tuple[Fraction, Fraction]:
    """Return the sums of ε and of δ over the mechanisms that are only (ε, δ)."""
    pairs = [pair for spending in spendings for pair in spending.approximate]
    return sum((Fraction(pair[0]) for pair in pairs), Fraction(0)), sum(
        (Fraction(pair[1]) for pair in pairs), Fraction(0)
    )

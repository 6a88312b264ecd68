"""What releases about the same people cost together, and what is left: the rule of composition.

A release is chosen after its author has seen the earlier ones. ρ adds up even then; privacy loss distributions do not. So
across releases the ρ of all discrete Gaussians is summed and converted once (`zcdp`), and mechanisms that are only (ε, δ) add
theirs. How much is spent on which kind is also chosen after seeing earlier releases. So where both kinds occur, both together
must keep within the cap at one Rényi order, which the cap fixes (docs/proofs/privacy.md). If there is only one release, its own
guarantee counts, whatever its accountant. All costs are those of one unit (`for_one_unit`).
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from storage.ledger.accounts import Cap, Standing
from storage.ledger.spending import Contributions, Spending, for_one_unit
from tasks.accounting.accountants import least_with_tau, within_tau
from tasks.accounting.conversions import float_above, float_below, renyi_epsilon, renyi_order, zcdp_epsilon, zcdp_rho


def cap_of(epsilon: float, delta: float) -> Cap:
    """Return a cap in (ε, δ) with the ρ that it allows.

    Raises:
        ValueError: epsilon or delta is out of range.
    """
    return Cap(epsilon, delta, zcdp_rho(epsilon, delta))


def composed_epsilon(spendings: Sequence[Spending], delta: float, cap: Cap | None = None) -> float:
    r"""Return an ε such that releases about the same people are together (ε, δ)-differentially private.

    .. math:: \epsilon = \max\left\{\sum_i \epsilon_i + \mathrm{zCDP}\left(\sum \rho, \delta'\right),
        \mathrm{RDP}_\alpha\left(\alpha \sum \rho + \sum_i \min(\epsilon_i, \alpha \epsilon_i^2 / 2), \delta'\right)\right\},
        \qquad \delta' = \delta - \sum_i \delta_i - (1 + e^\epsilon) \sum \tau

    and the sum of ε where there is no ρ. Infinite where what is taken off δ exceeds it.

    Args:
        delta: the δ at which ε is sought.
        cap: the cap on all of them, whose ρ and δ fix α. Without one the second term is left out, which is correct only where
            nothing was chosen after seeing an earlier release.
    Source:
        Whitehouse, Ramdas, Rogers and Wu (2023), Feldman and Zrnic (2021): zCDP, and Rényi divergence of one order, add up where
        each release is chosen after seeing the earlier ones. Bun and Steinke (2016): ε is ε²/2-zCDP.
    """
    if not spendings:
        return 0.0
    together, alone = _together(for_one_unit(spendings), delta, cap), spendings[0]
    if len(spendings) == 1 and alone.delta <= delta:
        return min(together, alone.epsilon)
    return together


def epsilon_beside(
    spendings: Sequence[Spending],
    cap: Cap,
    delta: float,
    tau: Fraction = Fraction(0),
    contributions: Contributions | None = None,
) -> float:
    """Return the largest ε at a δ of one more release that is only (ε, δ), drawn within τ of its law; 0 if none fits."""

    def fits(epsilon: float) -> bool:
        beside = Spending(Fraction(0), ((epsilon, delta),), math.inf, delta, tau, contributions)
        return _together(for_one_unit([*spendings, beside]), cap.delta, cap) <= cap.epsilon

    low, high = 0.0, cap.epsilon
    if fits(high):
        return high
    while low < (middle := (low + high) / 2) < high and high > cap.epsilon * 2**-60:
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def standing_of(spendings: Sequence[Spending], cap: Cap) -> Standing:
    """Return where releases about the same people stand against their cap.

    With inexact samplers the largest ε whose cost of τ leaves enough of δ takes the place of the cap's: as planning has it.
    """
    spent, left = for_one_unit(spendings), Fraction(0)
    epsilons, deltas = _approximate(spent)
    most, spared = within_tau(cap.epsilon, float_below(Fraction(cap.delta) - deltas), _tau(spent))
    epsilon = float_below(Fraction(most) - epsilons)
    if epsilon > 0 and spared > 0:
        left = max(left, zcdp_rho(epsilon, spared) - _rho(spent))
        if epsilons:
            order = renyi_order(cap.rho, cap.delta)
            of_order = (most - _at_order(spent, order, spared)) / order * (1 - 2**-30)
            left = min(left, max(Fraction(of_order), Fraction(0)))
    left_epsilon = cap.epsilon if not spendings else zcdp_epsilon(left, cap.delta)
    return Standing(composed_epsilon(spendings, cap.delta, cap), left, left_epsilon)


def releases_within(cap: Cap, one: Spending) -> int:
    """Return how many releases like one fit a cap on their own, without what inexact samplers take off δ.

    ρ adds up and is converted once; (ε, δ) add up. A single release counts with its own guarantee.
    """
    epsilons, deltas = _approximate([one])
    many = [cap.rho // one.rho] if one.rho else []
    many += [Fraction(cap.epsilon) // epsilons] if epsilons else []
    many += [Fraction(cap.delta) // deltas] if deltas else []
    alone = one.epsilon <= cap.epsilon and one.delta <= cap.delta
    return max(min(many, default=0), int(alone))


def _together(spendings: Sequence[Spending], delta: float, cap: Cap | None = None) -> float:
    epsilons, deltas = _approximate(spendings)
    left = float_below(Fraction(delta) - deltas)
    rho = _rho(spendings)
    if left < 0 or (rho and not left):
        return math.inf

    def converted(spared: float) -> float:
        if not rho:
            return float_above(epsilons)
        added = float_above(epsilons + Fraction(zcdp_epsilon(rho, spared)))
        if not epsilons or cap is None:
            return added
        return max(added, _at_order(spendings, renyi_order(cap.rho, cap.delta), spared))

    return least_with_tau(converted, left, _tau(spendings))


def _at_order(spendings: Sequence[Spending], order: float, delta: float) -> float:
    """Return what releases cost together at one Rényi order, converted to ε at a δ."""
    pairs = [pair for spending in spendings for pair in spending.approximate]
    of_pairs = math.fsum(min(epsilon, order * epsilon**2 / 2) for epsilon, _ in pairs)  # the same in any order
    loss = order * float_above(_rho(spendings)) + of_pairs
    return renyi_epsilon(loss, order, delta)


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

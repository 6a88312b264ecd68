"""What releases cost together when each is chosen after seeing the earlier ones, against whoever chooses worst.

A person sees the outcomes of Gaussian releases one by one, and at a moment of their choice spends all that the cap leaves on
one mechanism that is only (ε, δ): randomised response, than which none tells more. When to stop is found by going backwards
from the last release, on a grid of privacy losses; what comes out is the δ that really holds at the cap's ε.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from flows.planning.composition import cap_of, epsilon_beside
from storage.ledger.spending import Spending
from tasks.accounting.conversions import zcdp_epsilon

STEP = 0.02  # of the grid of losses
RELEASES = 10
DELTA = 1e-7


def real_delta(cap, left_at):
    """Return the δ at the cap's ε that the worst choice of a moment comes to; `left_at` leads from the ρ that is spent to the ε that is left."""
    top = float(cap.rho)
    spent = np.geomspace(top / 100, top, RELEASES)
    reach = cap.epsilon + 8 * math.sqrt(2 * top)
    losses = np.arange(-math.ceil(reach / STEP), math.ceil(reach / STEP) + 1) * STEP

    def stopped(rho):
        """Return what stopping is worth at every loss so far: the mean of (1 − e^(ε − loss))⁺ after the last mechanism."""
        last = left_at(Fraction(rho))
        more, less = (np.clip(-np.expm1(cap.epsilon - losses - sign * last), 0, None) for sign in (1, -1))
        likely = 1 / (1 + math.exp(-last))
        return np.asarray(likely * more + (1 - likely) * less)

    worth = stopped(spent[-1])
    for before, after in zip(spent[-2::-1], spent[:0:-1], strict=True):
        worth = np.maximum(stopped(before), expected(worth, after - before))
    return float(expected(worth, spent[0])[len(losses) // 2])


def expected(worth, rho):
    """Return the mean of a worth after one more Gaussian release: the loss grows by ρ, with variance 2ρ."""
    width = math.ceil((rho + 8 * math.sqrt(2 * rho)) / STEP)
    moves = np.arange(-width, width + 1) * STEP
    weights = np.exp(-((moves - rho) ** 2) / (4 * rho))
    padded = np.concatenate((np.full(width, worth[0]), worth, np.full(width, worth[-1])))
    return np.convolve(padded, (weights / weights.sum())[::-1], "valid")


def spendings(rho):
    """Return so much ρ as releases."""
    return [Spending(rho, (), math.inf, DELTA)]


@pytest.mark.parametrize("epsilon", [1.0, 10.0, 20.0])
def test_no_choice_of_a_moment_passes_the_cap(epsilon):
    """Whatever is seen on the way, and whenever the rest is spent on one mechanism without ρ, the cap's δ holds."""
    cap = cap_of(epsilon, DELTA)
    assert real_delta(cap, lambda rho: epsilon_beside(spendings(rho), cap, 0.0)) <= DELTA


def test_a_sum_by_itself_would_pass_it():
    """Where ε is only added to what ρ converts to, choosing the moment passes the cap: the test can tell."""
    cap = cap_of(20.0, DELTA)
    assert real_delta(cap, lambda rho: max(0.0, cap.epsilon - zcdp_epsilon(rho, DELTA))) > 1.3 * DELTA

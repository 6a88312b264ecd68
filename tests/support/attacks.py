"""Attacks that guess from which of two neighbouring tables a release was made, and what their guesses show of ε.

An attack may abstain. Who keeps (ε, δ) cannot prevent that some guesses are right, but there are at most e^ε times as many
of them as of wrong ones, and δ of all guesses more.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FALSE_ALARM = 1e-4  # of all attacks on a claim together

_STAKES = 0.6, 0.95  # of what may be lost at most: for many guesses, and for few that are all right
_EPSILONS = [number / 100 for number in range(2001)]  # that are tried; some 10⁹ guesses would refute the last
# of ε: how far a release may have to lean to a table; just below what Laplace noise leans by
_CERTAIN = 0.99, 1.49, 1.99
_REHEARSALS = 2000
_RIDGE = 0.1  # records squared: what never varies but between the tables counts most, and no division is by 0

Values = NDArray[np.float64]

LAWS = {  # the logarithm of the probability of noise of a scale, but for a constant
    "gaussian": lambda noise, scales: -((noise / scales) ** 2) / 2,
    "laplace": lambda noise, scales: -np.abs(noise) / scales,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of a release: that it is (ε, δ)-differentially private."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Guesses:
    """Guesses about as many releases of the one table as of the other, or of many audits at once: how many were right, and wrong, of how many."""

    right: NDArray[np.int64]
    wrong: NDArray[np.int64]
    of: int


def guesses_of(one, other, certain):
    """Return what is guessed from how much as many releases of either table lean to the one: nothing unless they lean by `certain`."""
    right = (one >= certain).sum(-1) + (other <= -certain).sum(-1)
    return Guesses(right, (one <= -certain).sum(-1) + (other >= certain).sum(-1), 2 * one.shape[-1])


def log_evidence(guesses, claim, stakes=_STAKES):
    r"""Return the logarithm of what somebody owns who began with 1 and bet against a claim on every guess.

    .. math:: \prod_i (1 + \lambda g_i), \qquad g = 1 - \delta, \; -e^\epsilon - \delta, \; -\delta

    for a right guess, a wrong one and none, on average over some λ. With S the guess "one" and S′ the guess "other", the
    claim says P(S) ≤ e^ε P′(S) + δ and P′(S′) ≤ e^ε P(S′) + δ. So the means of g over the one table and over the other add
    up to at most 0, the mean of the product is at most 1 (of two factors the product is largest where they are equal), and
    a product of 1/α or more has at most the probability α.

    The rule by which is guessed must be fixed before the releases are seen. Small stakes λ notice a small excess in many guesses.

    Source:
        Waudby-Smith and Ramdas (2024), for bets on bounded means.
    """
    most = math.exp(claim.epsilon) + claim.delta
    none = guesses.of - guesses.right - guesses.wrong
    owned = [
        guesses.right * math.log1p(stake / most * (1 - claim.delta))
        + guesses.wrong * math.log1p(-stake)
        + none * math.log1p(-stake / most * claim.delta)
        for stake in stakes
    ]
    return np.logaddexp.reduce(owned) - math.log(len(stakes))


def lower_bound(guesses, delta, false_alarm):
    """Return a lower confidence bound on ε at δ: the least one that is not refuted, to two digits; 0 if nothing is shown."""
    least = -math.log(false_alarm)
    return next(epsilon for epsilon in _EPSILONS if log_evidence(guesses, Claim(epsilon, delta)) < least)


def leaning(values, one, other, scales, law):
    """Return by how much values, shape (…, counts), lean to the one table: the logarithm of the ratio of their probabilities, where there is noise."""
    seen = (scales > 0) & (one != other)
    log_probability, of = LAWS[law], scales[seen]
    near, far = (log_probability(values[..., seen] - table[seen], of) for table in (one, other))
    return (near - far).sum(-1)


def learned(one, other, claim):
    """Return what is guessed of half of the releases by the linear discriminant of the other half, and by how far along it a guess is worth its risk."""
    half = len(one) // 2
    means = one[:half].mean(0), other[:half].mean(0)
    spread = np.cov(np.vstack([one[:half] - means[0], other[:half] - means[1]]).T) + _RIDGE * np.eye(one.shape[1])
    towards = np.linalg.solve(spread, means[0] - means[1])
    along = [(of - (means[0] + means[1]) / 2) @ towards for of in (one, other)]
    teaching, tested = zip(*((of[:half], of[half:]) for of in along), strict=True)
    certain = max(
        np.unique(np.abs(teaching)), key=lambda least: float(log_evidence(guesses_of(*teaching, least), claim))
    )
    return guesses_of(*tested, max(certain, np.finfo(float).tiny))


@dataclass(frozen=True, slots=True)
class Attack:
    """A rule by which the table is guessed, fixed before any release is seen."""

    tables: tuple[Values, Values]  # the true counts of the one and of the other, shape (counts,)
    scales: Values  # those that the noise is taken to have; 0 for counts that are not looked at
    law: str  # of the noise, as in LAWS
    certain: float  # by how much a release must lean to a table for a guess that is worth its risk
    power: float  # how often the claim would be refuted if the noise had these scales, by simulation

    def guesses(self, one, other):
        """Return what is guessed from the counts of releases of either table, shape (releases, counts)."""
        leanings = (leaning(of, *self.tables, self.scales, self.law) for of in (one, other))
        return guesses_of(*leanings, certain=self.certain)


def rehearsed(tables, scales, law, claim, *, releases, false_alarm):
    """Return an attack that was tried on the noisy counts of releases of either table that nobody has made: their noise is drawn here."""
    generator = np.random.default_rng(14)
    leanings = [np.zeros((_REHEARSALS, releases)) for _ in tables]
    for column in np.flatnonzero((scales > 0) & (tables[0] != tables[1])):
        outcomes = np.arange(-math.ceil(40 * scales[column]) - 2, math.ceil(40 * scales[column]) + 3)
        weights = np.exp(LAWS[law](outcomes, scales[column]))
        one, other, scale = (values[column, None] for values in (*tables, scales))
        for of, true in zip(leanings, (one, other), strict=True):
            noisy = true + generator.choice(outcomes, of.shape, p=weights / weights.sum())
            of += leaning(noisy[..., None], one, other, scale, law)
    sure = [part * claim.epsilon for part in _CERTAIN]
    tried = [(log_evidence(guesses_of(*leanings, least), claim), least) for least in sure]
    evidence, certain = max(tried, key=lambda of: float(of[0].mean()))
    return Attack(tables, scales, law, certain, float((evidence >= -math.log(false_alarm)).mean()))
